//! The treatments of a plan: changes to the machine that are undone afterwards.

use super::isolation::{CachePartitionPlan, GpuPowerPlan, ShieldPlan};
use crate::cpus::CpuSelector;
use crate::units::{Hz, Nanos};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One treatment, by the name that cells use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TreatmentPlan {
    /// The name.
    pub name: String,
    /// What it changes.
    #[serde(flatten)]
    pub kind: TreatmentKind,
}

/// What a treatment changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum TreatmentKind {
    /// Keeps processes, interrupts and timers of others away from CPUs.
    Shield(ShieldPlan),
    /// Moves interrupts to other CPUs.
    IrqAffinity(IrqAffinityPlan),
    /// Moves a process with all its threads to certain CPUs.
    Affinity(AffinityPlan),
    /// Sets how the frequency is chosen, and its limits.
    Governor(GovernorPlan),
    /// Switches the second threads of cores off.
    SmtOff(SmtOffPlan),
    /// Limits how deep CPUs sleep.
    Idle(IdlePlan),
    /// Gives CPUs a part of the last-level cache to themselves.
    CachePartition(CachePartitionPlan),
    /// Keeps graphics devices powered, and at one clock.
    GpuPower(GpuPowerPlan),
    /// Sets transparent huge pages.
    Thp(ThpPlan),
    /// Sets the merging of equal pages.
    Ksm(KsmPlan),
    /// Sets the moving of pages between NUMA nodes.
    NumaBalancing(SwitchPlan),
    /// Sets the kernel's lockup detectors.
    Watchdog(SwitchPlan),
    /// Sets what real-time tasks may use of each period.
    RtThrottling(RtThrottlingPlan),
    /// Writes any file below /sys or /proc.
    Sysfs(SysfsPlan),
    /// Sets any sysctl.
    Sysctl(SysctlPlan),
    /// Sets a parameter of a kernel module.
    ModuleParameter(ModuleParameterPlan),
}

impl TreatmentKind {
    /// The names of the treatments there are.
    pub const KINDS: [&str; 16] = [
        "shield",
        "irq-affinity",
        "affinity",
        "governor",
        "smt-off",
        "idle",
        "cache-partition",
        "gpu-power",
        "thp",
        "ksm",
        "numa-balancing",
        "watchdog",
        "rt-throttling",
        "sysfs",
        "sysctl",
        "module-parameter",
    ];

    /// Its name among [`TreatmentKind::KINDS`].
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Shield(_) => "shield",
            Self::CachePartition(_) => "cache-partition",
            Self::GpuPower(_) => "gpu-power",
            Self::IrqAffinity(_) => "irq-affinity",
            Self::Affinity(_) => "affinity",
            Self::Governor(_) => "governor",
            Self::SmtOff(_) => "smt-off",
            Self::Idle(_) => "idle",
            Self::Thp(_) => "thp",
            Self::Ksm(_) => "ksm",
            Self::NumaBalancing(_) => "numa-balancing",
            Self::Watchdog(_) => "watchdog",
            Self::RtThrottling(_) => "rt-throttling",
            Self::Sysfs(_) => "sysfs",
            Self::Sysctl(_) => "sysctl",
            Self::ModuleParameter(_) => "module-parameter",
        }
    }
}

/// Moves interrupts to other CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IrqAffinityPlan {
    /// Which: line numbers, names of devices or drivers, PCI addresses, `msi`, or `all` that can be moved.
    #[serde(default = "all_interrupts")]
    pub interrupts: Vec<String>,
    /// Where to.
    #[serde(default = "other_cpus")]
    pub cpus: CpuSelector,
    /// Whether interrupts that are set up later go there too (/proc/irq/default_smp_affinity).
    #[serde(default = "yes")]
    pub new_interrupts: bool,
}

/// Moves a process with all its threads to certain CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AffinityPlan {
    /// Its name or number; all processes of that name.
    pub process: String,
    /// Where to.
    #[serde(default = "other_cpus")]
    pub cpus: CpuSelector,
}

/// Sets how the frequency is chosen, and its limits; what is absent stays as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GovernorPlan {
    /// On which CPUs. CPUs that share a clock change together.
    #[serde(default = "target_cpus")]
    pub cpus: CpuSelector,
    /// `performance`, `powersave`, `schedutil`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// Lowest frequency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Hz>,
    /// Highest frequency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Hz>,
    /// `performance`, `balance_performance`, … (Intel and AMD processors that choose the frequency themselves).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_preference: Option<String>,
    /// Whether frequencies above the nominal one are used; of the whole machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turbo: Option<bool>,
}

/// Switches the second threads of cores off.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SmtOffPlan {
    /// CPUs that keep their core to themselves; by default SMT is switched off for the whole machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSelector>,
}

/// Limits how deep CPUs sleep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdlePlan {
    /// On which CPUs.
    #[serde(default = "target_cpus")]
    pub cpus: CpuSelector,
    /// States that take longer to leave are not used; `0s` leaves only polling.
    #[serde(default)]
    pub exit_latency_max: Nanos,
}

/// Sets transparent huge pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThpPlan {
    /// `always`, `madvise` or `never`.
    #[serde(default = "never")]
    pub enabled: String,
    /// When memory is compacted for them: `always`, `defer`, `defer+madvise`, `madvise`, `never`; by default it
    /// stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defrag: Option<String>,
}

/// Sets the merging of equal pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KsmPlan {
    /// Whether it runs. Pages merged before stay so.
    #[serde(default)]
    pub enabled: bool,
}

/// Something of the whole machine that is on or off.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SwitchPlan {
    /// Whether it is on.
    #[serde(default)]
    pub enabled: bool,
}

/// Sets what real-time tasks may use of each period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RtThrottlingPlan {
    /// Time in each period (`kernel.sched_rt_period_us`); by default without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Nanos>,
}

/// Writes any file below /sys or /proc.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SysfsPlan {
    /// The file; `{cpu}` in it stands for each of `cpus`.
    pub path: String,
    /// What to write.
    pub value: String,
    /// The CPUs that `{cpu}` stands for.
    #[serde(default = "target_cpus")]
    pub cpus: CpuSelector,
}

/// Sets any sysctl.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SysctlPlan {
    /// Its name: `vm.swappiness`.
    pub key: String,
    /// What to set it to.
    pub value: String,
}

/// Sets a parameter of a kernel module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModuleParameterPlan {
    /// The module: `i915`.
    pub module: String,
    /// The parameter.
    pub parameter: String,
    /// What to set it to.
    pub value: String,
}

fn all_interrupts() -> Vec<String> {
    vec!["all".to_owned()]
}
fn target_cpus() -> CpuSelector {
    CpuSelector::Target
}
fn other_cpus() -> CpuSelector {
    CpuSelector::Others
}
fn yes() -> bool {
    true
}
fn never() -> String {
    "never".to_owned()
}
