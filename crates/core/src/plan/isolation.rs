//! The treatments that set CPUs, caches and graphics devices apart: `shield`, `cache-partition`, `gpu-power`.

use crate::cpus::CpuSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Keeps processes, interrupts and timers of others away from CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShieldPlan {
    /// Which CPUs are shielded.
    #[serde(default = "target_cpus")]
    pub cpus: CpuSelector,
    /// From tasks and threads of the kernel that can be moved, and from work that has no CPU of its own.
    #[serde(default = "yes")]
    pub processes: bool,
    /// From interrupts that can be moved.
    #[serde(default = "yes")]
    pub interrupts: bool,
    /// From timers, as far as the running kernel allows.
    #[serde(default = "yes")]
    pub local_timer: bool,
    /// How processes are kept away.
    #[serde(default)]
    pub method: ShieldMethod,
}

/// How a shield keeps processes away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ShieldMethod {
    /// A cpuset where the kernel offers one, else the affinity of every thread.
    #[default]
    Auto,
    /// An isolated partition of cgroup v2, or cpusets of cgroup v1.
    Cpuset,
    /// The affinity of every thread that can be moved; threads that are started later inherit it from their parents.
    Affinity,
}

/// Gives CPUs a part of the last-level cache to themselves (resctrl).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CachePartitionPlan {
    /// Which CPUs get the part.
    #[serde(default = "target_cpus")]
    pub cpus: CpuSelector,
    /// How large it is, in percent of the cache, rounded to whole ways.
    #[serde(default = "half")]
    pub share_percent: u32,
    /// What the other CPUs may use of the memory bandwidth, in percent; by default it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_bandwidth_percent: Option<u32>,
}

/// Keeps graphics devices powered, and at one clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GpuPowerPlan {
    /// Which: names (`card0`), PCI addresses, drivers, or `all`.
    #[serde(default = "all_devices")]
    pub devices: Vec<String>,
    /// Whether the clock is fixed to the highest that the driver offers.
    #[serde(default = "yes")]
    pub fixed_clock: bool,
}

fn target_cpus() -> CpuSelector {
    CpuSelector::Target
}
fn yes() -> bool {
    true
}
fn half() -> u32 {
    50
}
fn all_devices() -> Vec<String> {
    vec!["all".to_owned()]
}
