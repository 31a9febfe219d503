//! What the programs report.

use whylate_core::result::CpuHistograms;

/// What the histograms hold at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramsSnapshot {
    /// The histograms that are on, of each CPU.
    pub cpus: Vec<CpuHistograms>,
    /// What is not in them.
    pub counts: WakeupCounts,
}

/// What became of the wake-ups of counted tasks, on all CPUs since the start. A wake-up that is in none of these counts and
/// in neither histogram (`wakeup`, `sharedprio`) still waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WakeupCounts {
    pub wakeups: u64,
    /// Wake-ups of tasks that were still running: no latency.
    pub without_switch: u64,
    /// Wake-ups that ended on a CPU where nothing is measured.
    pub elsewhere: u64,
    /// Missing in the histograms because there was no room or a program could not run.
    pub lost: u64,
}

/// What one program has cost so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramCost {
    /// The event that it runs at.
    pub event: String,
    /// How often it ran while statistics were on.
    pub runs: u64,
    /// For how long in all.
    pub time_ns: u64,
    /// How often it did not run at its event because it was already running on the CPU.
    pub missed: u64,
}

/// Something that programs may record, and whether they can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facility {
    pub name: String,
    /// Why it cannot be; `None` if it can.
    pub missing: Option<String>,
}
