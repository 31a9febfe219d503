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

/// Where the wake-ups of the tasks that count have gone, on all CPUs since the start. What is in none of the histograms
/// `wakeup` and `sharedprio` and none of these counts is still waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WakeupCounts {
    /// Wake-ups seen.
    pub wakeups: u64,
    /// Of tasks that were running already, or still: there was no latency.
    pub without_switch: u64,
    /// That ended on a CPU where nothing is measured.
    pub elsewhere: u64,
    /// Not measured because there was no room or a program could not run: what is missing in the histograms.
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
    /// How often it should have run and did not, because it was running already on the CPU.
    pub missed: u64,
}

/// Something that the kernel may tell, and whether it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facility {
    /// What it tells of.
    pub name: String,
    /// Why it does not; absent when it does.
    pub missing: Option<String>,
}
