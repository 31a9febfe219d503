//! The treatments of a plan: changes to the machine that are undone afterwards.

use super::kinds::{KeyError, Words, kinds};
use crate::cpus::CpuSelector;
use crate::units::{Hz, Nanos};
use crate::words::words;
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

kinds! {
    /// What a treatment changes.
    pub enum TreatmentKind: Words {
        /// Keeps processes, interrupts and timers of others away from CPUs.
        "shield" => Shield(ShieldPlan),
        /// Moves interrupts to other CPUs.
        "irq-affinity" => IrqAffinity(IrqAffinityPlan),
        /// Moves a process with all its threads to certain CPUs.
        "affinity" => Affinity(AffinityPlan),
        /// Sets how the frequency is chosen, and its limits.
        "governor" => Governor(GovernorPlan),
        /// Switches the second threads of cores off.
        "smt-off" => SmtOff(SmtOffPlan),
        /// Limits how deep CPUs sleep.
        "idle" => Idle(IdlePlan),
        /// Gives CPUs a part of the last-level cache to themselves.
        "cache-partition" => CachePartition(CachePartitionPlan),
        /// Keeps graphics devices powered, and at one clock.
        "gpu-power" => GpuPower(GpuPowerPlan),
        /// Sets transparent huge pages.
        "thp" => Thp(ThpPlan),
        /// Sets the merging of equal pages.
        "ksm" => Ksm(KsmPlan),
        /// Sets the moving of pages between NUMA nodes.
        "numa-balancing" => NumaBalancing(SwitchPlan),
        /// Sets the kernel's lockup detectors.
        "watchdog" => Watchdog(SwitchPlan),
        /// Sets what real-time tasks may use of each period.
        "rt-throttling" => RtThrottling(RtThrottlingPlan),
        /// Writes any file below /sys or /proc.
        "sysfs" => Sysfs(SysfsPlan),
        /// Sets any sysctl.
        "sysctl" => Sysctl(SysctlPlan),
        /// Sets a parameter of a kernel module.
        "module-parameter" => ModuleParameter(ModuleParameterPlan),
    }
}

/// Keeps processes, interrupts and timers of others away from CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShieldPlan {
    /// Which CPUs are shielded.
    #[serde(default = "CpuSelector::target")]
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

words! {
    /// How a shield keeps processes away.
    #[derive(Default)]
    pub enum ShieldMethod: "a way to shield" {
        /// A cpuset where the kernel offers one, else the affinity of every thread.
        #[default]
        Auto = "auto",
        /// An isolated partition of cgroup v2, or cpusets of cgroup v1.
        Cpuset = "cpuset",
        /// The affinity of every thread that can be moved; threads that are started later inherit it from their parents.
        Affinity = "affinity",
    }
}

/// Moves interrupts to other CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IrqAffinityPlan {
    /// Which: line numbers, names of devices or drivers, PCI addresses, `msi`, or `all` that can be moved.
    #[serde(default = "all")]
    pub interrupts: Vec<String>,
    /// Where to.
    #[serde(default = "CpuSelector::others")]
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
    #[serde(default = "CpuSelector::others")]
    pub cpus: CpuSelector,
}

/// Sets how the frequency is chosen, and its limits; what is absent stays as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GovernorPlan {
    /// On which CPUs. CPUs that share a clock change together.
    #[serde(default = "CpuSelector::target")]
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
    #[serde(default = "CpuSelector::target")]
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
    #[serde(default = "CpuSelector::target")]
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

/// Gives CPUs a part of the last-level cache to themselves (resctrl).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CachePartitionPlan {
    /// Which CPUs get the part.
    #[serde(default = "CpuSelector::target")]
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
    #[serde(default = "all")]
    pub devices: Vec<String>,
    /// Whether the clock is fixed to the highest that the driver offers.
    #[serde(default = "yes")]
    pub fixed_clock: bool,
}

impl Words for ShieldPlan {}
impl Words for AffinityPlan {}
impl Words for SmtOffPlan {}
impl Words for IdlePlan {}
impl Words for GpuPowerPlan {}
impl Words for ThpPlan {}
impl Words for KsmPlan {}
impl Words for SwitchPlan {}
impl Words for RtThrottlingPlan {}
impl Words for SysfsPlan {}
impl Words for SysctlPlan {}
impl Words for ModuleParameterPlan {}

impl Words for IrqAffinityPlan {
    fn check(&self) -> Result<(), KeyError> {
        let message = "is empty; name interrupts, or leave it out for all";
        if self.interrupts.is_empty() { Err(KeyError::new("interrupts", message)) } else { Ok(()) }
    }
}

impl Words for GovernorPlan {
    fn check(&self) -> Result<(), KeyError> {
        let Self { cpus: _, governor: None, min: None, max: None, energy_preference: None, turbo: None } =
            self
        else {
            return Ok(());
        };
        let message = "sets nothing; give `governor`, `min`, `max`, `energy_preference` or `turbo`";
        Err(KeyError::new("", message))
    }
}

impl Words for CachePartitionPlan {
    fn check(&self) -> Result<(), KeyError> {
        for (key, percent) in [
            ("share_percent", Some(self.share_percent)),
            ("others_bandwidth_percent", self.others_bandwidth_percent),
        ] {
            if percent.is_some_and(|percent| !(1..=99).contains(&percent)) {
                return Err(KeyError::new(key, "is out of range; it is 1 to 99"));
            }
        }
        Ok(())
    }
}

fn all() -> Vec<String> {
    vec!["all".to_owned()]
}
fn yes() -> bool {
    true
}
fn half() -> u32 {
    50
}
fn never() -> String {
    "never".to_owned()
}
