//! Candidates: moments at which a task may have been late, before anybody asked why.

use whylate_core::CpuId;
use whylate_core::result::ExpectedFrom;
use whylate_trace::event::Name;

/// Why a moment counts as late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LateKind {
    /// The task slept, and ran later than it should have.
    Wakeup,
    /// The task was taken off the CPU though it wanted to go on.
    Preempted {
        /// That CPU.
        cpu: CpuId,
        /// For a task of lower priority, or for none.
        for_lesser: bool,
    },
    /// The task blocked in the middle of its work; whether that was a lock or a page fault, the window tells.
    Blocked,
    /// The timerlat tracer's sample; with moment and latency of the one in its interrupt.
    Timerlat {
        /// `(at_ns, latency_ns)` of the sample in the interrupt.
        irq: Option<(u64, u64)>,
    },
    /// The hwlat tracer's sample: it looked with interrupts off.
    Hwlat {
        /// Time in NMIs within the sample.
        nmi_ns: u64,
    },
    /// The osnoise tracer's gap.
    NoiseGap {
        /// What the tracer knows to have interrupted it.
        interference: u32,
    },
}

/// A spike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Late {
    pub(super) pid: Option<u32>,
    pub(super) command: Option<Name>,
    pub(super) priority: Option<i32>,
    /// Where it ran at last.
    pub(super) cpu: CpuId,
    pub(super) expected_ns: u64,
    pub(super) actual_ns: u64,
    pub(super) from: ExpectedFrom,
    pub(super) error_ns: u64,
    pub(super) kind: LateKind,
    /// When the task was last switched away from: the window begins there, if that is not long ago.
    pub(super) since_ns: u64,
}

impl Late {
    /// A task of which nothing is known was late on that CPU.
    pub(super) fn new(
        cpu: CpuId,
        expected_ns: u64,
        actual_ns: u64,
        from: ExpectedFrom,
        kind: LateKind,
    ) -> Self {
        let (pid, command, priority, error_ns) = (None, None, None, 0);
        Self {
            pid,
            command,
            priority,
            cpu,
            expected_ns,
            actual_ns,
            from,
            error_ns,
            kind,
            since_ns: expected_ns,
        }
    }

    pub(super) fn latency_ns(&self) -> u64 {
        self.actual_ns.saturating_sub(self.expected_ns)
    }
}

/// The largest candidates, and the number of all.
#[derive(Clone, Debug, Default)]
pub(super) struct Largest {
    lates: Vec<Late>,
    pub(super) found: u64,
}

impl Largest {
    /// Keeps `late` when it is among the `top` largest.
    pub(super) fn push(&mut self, late: Late, top: usize) {
        self.found += 1;
        let place = self.lates.partition_point(|other| other.latency_ns() >= late.latency_ns());
        if place < top {
            self.lates.insert(place, late);
            self.lates.truncate(top);
        }
    }

    /// Takes the candidates out that ended at that moment.
    pub(super) fn take_at(&mut self, actual_ns: u64) -> Option<Late> {
        let index = self.lates.iter().position(|late| late.actual_ns == actual_ns)?;
        self.found = self.found.saturating_sub(1);
        Some(self.lates.remove(index))
    }

    /// Adds those of others.
    pub(super) fn merge(&mut self, others: &Self, top: usize) {
        let found = self.found + others.found;
        for late in &others.lates {
            self.push(*late, top);
        }
        self.found = found;
    }

    /// The largest latency.
    pub(super) fn worst_ns(&self) -> u64 {
        self.lates.first().map_or(0, Late::latency_ns)
    }

    /// Largest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Late> {
        self.lates.iter()
    }
}
