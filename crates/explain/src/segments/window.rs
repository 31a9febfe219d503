//! The window of a spike, its pieces, and what is known of the machine in addition to the recording.

use super::Segment;
use std::collections::BTreeMap;
use whylate_core::{CpuId, CpuSet};

/// How long entering and leaving the kernel may take on each side of a recorded segment, in a loop that never sleeps.
const MARGIN_NS: u64 = 1_500;
/// The same in a virtual machine, where the hypervisor delivers the interrupt and handles its end. With an interrupt whose
/// function took 3 us, this was 9 us in all on a quiet host, and 17 to 30 us on each side on another day.
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
    /// Whether the task is a probe of this program, whose own work takes only microseconds.
    pub is_probe: bool,
    /// The process of the measuring threads.
    pub process: u32,
    /// The thread, where only one of the process is measured: others of it may delay that one.
    pub thread: Option<u32>,
    /// Priority of the measuring thread, as tools print it; negative for an ordinary one.
    pub priority: i32,
}

/// What is known of the machine in addition to the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Whether it is a virtual machine, whose hypervisor may take the CPU unseen.
    pub is_virtual: bool,
    /// Time that the hypervisor took from the CPU around the window; absent if it does not report it.
    pub steal_ns: Option<u64>,
    /// Firmware interrupts counted around the window; absent without a counter.
    pub smis: Option<u64>,
    /// The process of this program; 0 if there is none. Its effects on the measured CPUs, such as interrupts or its run time
    /// on the only CPU, belong to the measurement itself.
    pub own_process: u32,
    /// The other threads of the core of each CPU that has any online.
    pub siblings: BTreeMap<CpuId, CpuSet>,
    pub lines: BTreeMap<u32, String>,
    /// What gives a CPU to an ordinary thread although a real-time one is runnable; `None` if both are possible.
    pub throttler: Option<&'static str>,
    /// The control group of the task whose quota may be used up, with the quota.
    pub quota: Option<String>,
}

impl Surroundings {
    /// Whether a process is this program, so that its effects belong to the measurement itself.
    pub(crate) fn is_own(&self, process: u32) -> bool {
        self.own_process != 0 && process == self.own_process
    }

    /// How long entering and leaving the kernel may take on each side of a recorded segment.
    pub(super) fn margin_ns(&self) -> u64 {
        if self.is_virtual { MARGIN_VIRTUAL_NS } else { MARGIN_NS }
    }
}

/// A stretch of the window in which one thing had the CPU.
#[derive(Clone, Debug)]
pub(super) struct Slice<'r> {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    /// What had it; `None` if nothing was recorded.
    pub(super) segment: Option<&'r Segment>,
    /// The interrupt next to it, whose entry or exit it may be.
    pub(super) neighbour: Option<&'r Segment>,
    /// The thread that had the CPU, perhaps below an interrupt or a softirq.
    pub(super) thread: Option<&'r Segment>,
}
