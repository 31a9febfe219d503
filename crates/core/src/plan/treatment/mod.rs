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
    /// Whether its cells run without it where it cannot be applied; else they are skipped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
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
        /// Moves a group of processes (cgroup v2) to certain CPUs.
        "cgroup" => Cgroup(CgroupPlan),
        /// Limits what a program may use of the CPUs.
        "cpu-quota" => CpuQuota(CpuQuotaPlan),
        /// Gives threads a scheduling policy and a priority.
        "priority" => Priority(PriorityPlan),
        /// Keeps the kernel's unbound work queues on certain CPUs.
        "workqueue" => Workqueue(WorkqueuePlan),
        /// Sets what ordinary tasks get while real-time tasks are runnable.
        "fair-server" => FairServer(FairServerPlan),
        /// Moves the packet work of network interfaces to certain CPUs.
        "network" => Network(NetworkPlan),
        /// Sets when network interfaces interrupt, and whether their links sleep.
        "ethtool" => Ethtool(EthtoolPlan),
        /// Sets the frequency governor, frequency limits, energy preference, turbo.
        "governor" => Governor(GovernorPlan),
        /// Switches the other threads of cores off.
        "smt-off" => SmtOff(SmtOffPlan),
        /// Disables idle states that take long to leave.
        "idle" => Idle(IdlePlan),
        /// Gives CPUs a part of the last-level cache to themselves.
        "cache-partition" => CachePartition(CachePartitionPlan),
        /// Keeps graphics devices powered, and at one clock.
        "gpu-power" => GpuPower(GpuPowerPlan),
        /// Keeps PCI devices and their links awake.
        "pci-power" => PciPower(PciPowerPlan),
        /// Sets transparent huge pages.
        "thp" => Thp(ThpPlan),
        /// Sets the merging of equal pages.
        "ksm" => Ksm(KsmPlan),
        /// Sets the moving of pages between NUMA nodes.
        "numa-balancing" => NumaBalancing(NumaBalancingPlan),
        /// Sets the kernel's lockup detectors.
        "watchdog" => Watchdog(WatchdogPlan),
        /// Sets what real-time tasks may use of each period.
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
