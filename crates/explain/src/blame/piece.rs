//! A piece of a window, and who had the CPU in it.

use crate::time;
use std::borrow::Cow;
use whylate_core::result::CauseKind;

/// Leaving an idle state takes less than this; a longer delay comes from the timer, or from a CPU that stands still.
pub(crate) const IDLE_EXIT_MAX_NS: u64 = 2_000_000;

/// A guest without an idle driver idles in HLT. Its host needs less than this to wake it, even from a deep idle state of its
/// own.
pub(crate) const HALT_EXIT_MAX_NS: u64 = 200_000;

/// An edge of the kernel (entry, exit, arming a timer, HLT) has a few instructions: if it takes longer than this, the CPU was
/// stopped.
pub(crate) const EDGE_MAX_NS: u64 = 20_000;

/// A handler that is silent for longer may have been stopped itself: a guest's timer interrupts normally take some 5 us, and
/// took 50 to 120 us now and then.
pub(crate) const STOPPED_LEAST_NS: u64 = 50_000;

/// Whether a task of priority `own`, as tools print it, cannot preempt a thread of priority `other`. Ordinary tasks share
/// their CPU as equals, whatever their nice values.
pub(crate) fn may_run_before(other: i32, own: i32) -> bool {
    own <= 0 || other >= own
}

/// Who had the CPU, and the evidence for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Blame {
    /// `None` for what every wake-up needs.
    pub(crate) kind: Option<CauseKind>,
    pub(crate) actor: Option<String>,
    pub(crate) pid: Option<u32>,
    /// See [`Cause`](whylate_core::result::Cause).
    pub(crate) delayed: Option<String>,
    pub(crate) function: Option<String>,
    /// Who called the function, innermost first.
    pub(crate) callers: Vec<String>,
    /// On the scale of [`crate::confidence`].
    pub(crate) confidence: f64,
    /// Empty without evidence.
    pub(crate) evidence: Cow<'static, str>,
}

impl Blame {
    pub(crate) fn new(kind: CauseKind, confidence: f64, evidence: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: Some(kind), confidence, evidence: evidence.into(), ..Self::default() }
    }

    pub(crate) fn unattributed() -> Self {
        Self::unattributed_as("")
    }

    /// No actor is blamed; the evidence is what is known.
    pub(crate) fn unattributed_as(known: &'static str) -> Self {
        Self::new(CauseKind::Unattributed, 0.0, known)
    }

    pub(crate) fn actor(self, actor: impl Into<String>) -> Self {
        Self { actor: Some(actor.into()), ..self }
    }

    pub(crate) fn thread(self, command: &str, pid: u32) -> Self {
        Self { pid: Some(pid), ..self.actor(command) }
    }

    pub(crate) fn named(self, named: Option<(String, Vec<String>)>) -> Self {
        let (function, callers) = named.unzip();
        Self { function, callers: callers.unwrap_or_default(), ..self }
    }

    pub(crate) fn who(&self) -> (Option<CauseKind>, Option<u32>, [&Option<String>; 3]) {
        (self.kind, self.pid, [&self.actor, &self.delayed, &self.function])
    }
}

/// A stretch of the window in which one thing had the CPU.
#[derive(Clone, Debug)]
pub(crate) struct Piece<D> {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// When what had the CPU began, which may be before the piece.
    pub(crate) began: u64,
    pub(crate) blame: Blame,
    /// What the caller knows about it in addition.
    pub(crate) detail: D,
}

impl<D> Piece<D> {
    pub(crate) fn length(&self) -> u64 {
        time::between(self.from, self.to)
    }
}
