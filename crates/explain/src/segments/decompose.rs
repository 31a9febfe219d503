//! From what had a CPU to the causes of a spike.
//!
//! At each moment of the spike's window one thing has the CPU: the innermost of what the kernel recorded there, since an
//! interrupt stops a softirq and a softirq stops a thread. What is left over is explained by what is known of the moment
//! at which it ended, or by nothing. Shares are parts of the window, so those of one spike add up to at most 1.

use super::blame::Context;
use super::{Activity, Recording, Segment};
use crate::confidence;
use crate::divide::{self, Piece, lower};
use std::collections::BTreeMap;
use whylate_core::figure::nanoseconds;
use whylate_core::result::Cause;
use whylate_core::{CpuId, CpuSet};

/// What entering and leaving the kernel may take on each side of what was recorded, in a loop that never sleeps.
const MARGIN_NS: u64 = 1_500;
/// The same in a virtual machine, where the hypervisor lets the interrupt in and is told of its end: for an interrupt
/// whose function took 3 us this was measured as 9 us in all on a quiet host, and as 17 to 30 us on each side on another
/// day.
const MARGIN_VIRTUAL_NS: u64 = 30_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    pub cpu: CpuId,
    /// When the task should have run, or when it was last seen running.
    pub from_ns: u64,
    /// When it ran again.
    pub to_ns: u64,
    /// Whether the task waited for a timer (a `timer` probe), or was running all the time (a `stall` probe).
    pub is_timer: bool,
    /// The process of the measuring threads.
    pub process: u32,
    /// Priority of the measuring thread, as tools print it; negative for an ordinary one.
    pub priority: i32,
}

/// What is known of the machine besides the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Whether it is a virtual machine, whose hypervisor may take the CPU unseen.
    pub is_virtual: bool,
    /// Time that the hypervisor took of the CPU around the window; absent where it does not tell.
    pub steal_ns: Option<u64>,
    /// Firmware interrupts counted around the window; absent without a counter.
    pub smis: Option<u64>,
    /// The process of this program: what it does to the measured CPUs, as by interrupts or by running on the only CPU, is the
    /// measurement's own doing; 0 when there is none.
    pub own_process: u32,
    /// The other threads of the core of each CPU that has any online.
    pub siblings: BTreeMap<CpuId, CpuSet>,
    pub lines: BTreeMap<u32, String>,
}

impl Surroundings {
    /// Whether a process is this program, on whose account something is then the measurement's own doing.
    pub(crate) fn is_own(&self, process: u32) -> bool {
        self.own_process != 0 && process == self.own_process
    }

    /// What entering and leaving the kernel may take on each side of what was recorded.
    pub(super) fn margin_ns(&self) -> u64 {
        if self.is_virtual { MARGIN_VIRTUAL_NS } else { MARGIN_NS }
    }
}

/// The causes of a spike, the main one first; never empty.
pub fn decompose(window: &Window, recording: &Recording, surroundings: &Surroundings) -> Vec<Cause> {
    let pieces = pieces(window, recording, surroundings);
    let latency_ns = window.to_ns.saturating_sub(window.from_ns);
    causes_of(&pieces, latency_ns, recording.lost)
}

/// What had the CPU at each moment of the window.
pub(crate) fn pieces(window: &Window, recording: &Recording, surroundings: &Surroundings) -> Vec<Piece<()>> {
    let context = Context::of(window, recording, surroundings);
    let piece = |slice: &Slice<'_>| Piece {
        from: slice.from_ns,
        to: slice.to_ns,
        began: slice.from_ns,
        blame: context.blame(slice),
        detail: (),
    };
    slices(window, recording, surroundings.margin_ns()).iter().map(piece).collect()
}

/// The causes of a latency, the main one first; never empty.
pub(crate) fn causes_of(pieces: &[Piece<()>], latency_ns: u64, lost: u64) -> Vec<Cause> {
    let groups = divide::groups(pieces);
    let mut causes: Vec<Cause> = groups.iter().map(|group| group.cause(latency_ns)).collect();
    for (cause, group) in causes.iter_mut().zip(&groups).filter(|(cause, _)| cause.confidence.is_some()) {
        let stretches = group.stretches().len();
        let times = if stretches == 1 { String::new() } else { format!(" in {stretches} pieces") };
        cause.evidence.push(format!("{}{times}", nanoseconds(group.time)));
        if lost > 0 {
            let reason = format!("less sure: {lost} records of that time were lost");
            lower(cause, confidence::OF_LOSSES, reason);
        }
    }
    let main = divide::main_of(&causes);
    let (main, also) = divide::split(causes, main);
    std::iter::once(main).chain(also).collect()
}

/// A stretch of the window in which one thing had the CPU.
#[derive(Clone, Debug)]
pub(super) struct Slice<'r> {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    /// What had it; `None` where nothing was recorded.
    pub(super) segment: Option<&'r Segment>,
    /// The interrupt next to it, whose entry or exit it may be.
    pub(super) neighbour: Option<&'r Segment>,
}

/// Cuts the window where what has the CPU changes.
fn slices<'r>(window: &Window, recording: &'r Recording, margin_ns: u64) -> Vec<Slice<'r>> {
    let covers_time = |segment: &&Segment| match segment.what {
        Activity::Lock { process, .. } => window.process != 0 && process == window.process,
        ref other => other.rank().is_some(),
    };
    let covering: Vec<&Segment> = recording.segments.iter().filter(covers_time).collect();
    // Next to an interrupt is its entry or exit, in a loop that never sleeps.
    let is_interrupt = |segment: &&Segment| !window.is_timer && segment.what.is_interrupt();
    let mut cuts = vec![window.from_ns, window.to_ns];
    for segment in &recording.segments {
        cuts.extend([segment.from_ns, segment.to_ns]);
        if is_interrupt(&segment) {
            cuts.extend([segment.from_ns.saturating_sub(margin_ns), segment.to_ns.saturating_add(margin_ns)]);
        }
    }
    cuts.retain(|at_ns| (window.from_ns..=window.to_ns).contains(at_ns));
    cuts.sort_unstable();
    cuts.dedup();
    let slice = |pair: &[u64]| {
        let (from_ns, to_ns) = (pair[0], pair[1]);
        let covers = |segment: &&Segment| segment.from_ns <= from_ns && segment.to_ns >= to_ns;
        let distance_ns = |segment: &Segment| {
            from_ns.saturating_sub(segment.to_ns).max(segment.from_ns.saturating_sub(to_ns))
        };
        let is_near = |segment: &&Segment| {
            segment.from_ns.saturating_sub(margin_ns) <= from_ns
                && segment.to_ns.saturating_add(margin_ns) >= to_ns
        };
        let all = || covering.iter().copied();
        let near = all().filter(is_interrupt).filter(is_near);
        Slice {
            from_ns,
            to_ns,
            segment: all().filter(covers).max_by_key(|segment| segment.what.rank()),
            neighbour: near.min_by_key(|segment| distance_ns(segment)),
        }
    };
    cuts.windows(2).map(slice).collect()
}
