//! The treatments of a plan: changes to the machine that are undone afterwards.
//!
//! The type of a kind holds its keys in a plan, which are its flags in `whylate treat apply KIND`.

mod boot;
mod cpus;
mod devices;
mod scheduling;
mod settings;

pub use boot::*;
pub use cpus::*;
pub use devices::*;
pub use scheduling::*;
pub use settings::*;

use super::flag::Flag;
use super::kinds::{KeyError, Words, kinds};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One treatment, by the name that cells use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TreatmentPlan {
    /// The name.
    pub name: String,
    /// Whether cells with this treatment run without it if it cannot be applied; otherwise these cells are skipped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// What it changes.
    #[serde(flatten)]
    pub kind: TreatmentKind,
}

kinds! {
    /// What a treatment changes.
    pub enum TreatmentKind: Words {
        /// Keeps other processes, their timers, and interrupts away from the given CPUs.
        "shield" => Shield(ShieldPlan),
        /// Moves interrupts to other CPUs.
        "irq-affinity" => IrqAffinity(IrqAffinityPlan),
        /// Moves a process with all its threads to given CPUs.
        "affinity" => Affinity(AffinityPlan),
        /// Moves a control group (cgroup v2) with all its processes to given CPUs.
        "cgroup" => Cgroup(CgroupPlan),
        /// Limits the CPU time of a process (quota).
        "cpu-quota" => CpuQuota(CpuQuotaPlan),
        /// Gives threads a scheduling policy and a priority.
        "priority" => Priority(PriorityPlan),
        /// Restricts the kernel's unbound workqueues to given CPUs.
        "workqueue" => Workqueue(WorkqueuePlan),
        /// Sets the CPU time that the fair server guarantees to ordinary tasks.
        "fair-server" => FairServer(FairServerPlan),
        /// Moves the packet processing of network interfaces to given CPUs.
        "network" => Network(NetworkPlan),
        /// Sets interrupt coalescing and Energy-Efficient Ethernet of network interfaces.
        "ethtool" => Ethtool(EthtoolPlan),
        /// Sets the frequency governor, frequency limits, energy preference, turbo.
        "governor" => Governor(GovernorPlan),
        /// Takes the SMT siblings of CPUs offline.
        "smt-off" => SmtOff(SmtOffPlan),
        /// Disables idle states that take long to leave.
        "idle" => Idle(IdlePlan),
        /// Reserves a part of the last-level cache for given CPUs.
        "cache-partition" => CachePartition(CachePartitionPlan),
        /// Keeps graphics devices powered and at their highest clock.
        "gpu-power" => GpuPower(GpuPowerPlan),
        /// Keeps PCI devices and their links awake.
        "pci-power" => PciPower(PciPowerPlan),
        /// Sets the mode of transparent huge pages.
        "thp" => Thp(ThpPlan),
        /// Switches the merging of identical pages (KSM) on or off.
        "ksm" => Ksm(KsmPlan),
        /// Switches automatic NUMA balancing on or off.
        "numa-balancing" => NumaBalancing(NumaBalancingPlan),
        /// Switches the kernel's lockup detectors on or off.
        "watchdog" => Watchdog(WatchdogPlan),
        /// Sets the CPU time that real-time tasks may use in each period (real-time throttling).
        "rt-throttling" => RtThrottling(RtThrottlingPlan),
        /// Writes any file below /sys or /proc.
        "sysfs" => Sysfs(SysfsPlan),
        /// Sets any sysctl.
        "sysctl" => Sysctl(SysctlPlan),
        /// Sets a parameter of a kernel module.
        "module-parameter" => ModuleParameter(ModuleParameterPlan),
        /// Requires a kernel command line; changes nothing.
        "boot" => Boot(BootPlan),
    }
}

fn all() -> Vec<String> {
    vec!["all".to_owned()]
}
fn yes() -> bool {
    true
}
