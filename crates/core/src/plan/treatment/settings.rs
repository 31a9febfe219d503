//! Treatments of the cache, of graphics devices, and of settings that live in a file.

use super::{Flag, KeyError, Words, all, yes};
use crate::cpus::CpuSelector;
use crate::units::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Gives CPUs a part of the last-level cache to themselves (resctrl).
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply cache-partition --cpus 1
  whylate treat apply cache-partition --cpus 1 --share 25 --others-bandwidth 50"))]
pub struct CachePartitionPlan {
    /// CPUs that get a part of the cache to themselves.
    #[serde(default = "CpuSelector::target")]
    pub cpus: CpuSelector,
    /// How large it is, in percent of the cache, rounded to whole ways.
    #[serde(default = "half")]
    #[schemars(extend("x-flag" = Flag::named("share")))]
    pub share_percent: u32,
    /// What the others may use of the memory bandwidth, in percent; by default as it is.
    #[schemars(extend("x-flag" = Flag::named("others-bandwidth")))]
    pub others_bandwidth_percent: Option<u32>,
}

/// Keeps graphics devices powered, and at one clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply gpu-power                        every device stays powered
  whylate treat apply gpu-power card0 --leave-clock"))]
pub struct GpuPowerPlan {
    /// Names (card0), PCI addresses, drivers, or all.
    #[serde(default = "all")]
    #[schemars(extend("x-flag" = Flag::positional("device")))]
    pub devices: Vec<String>,
    /// Whether the clock is fixed to the highest that the driver offers.
    #[serde(default = "yes")]
    #[schemars(extend("x-flag" = Flag::off("leave-clock", "Leaves the clock as it is")))]
    pub fixed_clock: bool,
}

/// Sets transparent huge pages.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply thp never
  whylate treat apply thp madvise --defrag never"))]
pub struct ThpPlan {
    /// always, madvise or never.
    #[serde(default = "never")]
    #[schemars(extend("x-flag" = Flag::positional("mode")))]
    pub enabled: String,
    /// When memory is compacted for them: always, defer, defer+madvise, madvise, never.
    pub defrag: Option<String>,
}

/// Treatments that switch something of the whole machine on or off.
macro_rules! switches {
    ($(#[doc = $doc:literal] $name:ident, $example:literal;)+) => {$(
        #[doc = $doc]
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        #[schemars(extend("x-examples" = concat!("Examples:\n  whylate treat apply ", $example)))]
        pub struct $name {
            /// Whether it is on.
            #[serde(default)]
            #[schemars(extend("x-flag" = Flag::positional("state")))]
            pub enabled: bool,
        }

        impl Words for $name {}
    )+};
}

switches! {
    /// Sets the merging of equal pages. Pages that were merged before stay so.
    KsmPlan, "ksm off";
    /// Sets the moving of pages between NUMA nodes.
    NumaBalancingPlan, "numa-balancing off";
    /// Sets the kernel's lockup detectors.
    WatchdogPlan, "watchdog off";
}

/// Sets what real-time tasks may use of each period.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply rt-throttling            no limit: a real-time loop may take all of a CPU
  whylate treat apply rt-throttling 980ms      of each period"))]
pub struct RtThrottlingPlan {
    /// Time in each period (`kernel.sched_rt_period_us`); by default without a limit.
    #[schemars(extend("x-flag" = Flag::positional("runtime")))]
    pub runtime: Option<Nanos>,
}

/// Writes any file below /sys or /proc.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply sysfs /sys/kernel/mm/ksm/run 0
  whylate treat apply sysfs '/sys/devices/system/machinecheck/machinecheck{cpu}/check_interval' 0"))]
pub struct SysfsPlan {
    /// File below /sys or /proc; `{cpu}` in it stands for each of --cpus.
    #[schemars(extend("x-flag" = Flag::positional("path")))]
    pub path: String,
    /// What to write.
    #[schemars(extend("x-flag" = Flag::text("value")))]
    pub value: String,
    /// CPUs that `{cpu}` stands for.
    #[serde(default = "CpuSelector::target")]
    #[schemars(extend("x-flag" = Flag::by_default("all")))]
    pub cpus: CpuSelector,
}

/// Sets any sysctl.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply sysctl vm.stat_interval 120
  whylate treat apply sysctl kernel.sched_rt_runtime_us -1"))]
pub struct SysctlPlan {
    /// Name: vm.swappiness.
    #[schemars(extend("x-flag" = Flag::positional("key")))]
    pub key: String,
    /// What to set it to.
    #[schemars(extend("x-flag" = Flag::text("value")))]
    pub value: String,
}

/// Sets a parameter of a kernel module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply module-parameter kvm halt_poll_ns 0"))]
pub struct ModuleParameterPlan {
    /// Module: i915.
    #[schemars(extend("x-flag" = Flag::positional("module")))]
    pub module: String,
    /// Parameter.
    #[schemars(extend("x-flag" = Flag::positional("parameter")))]
    pub parameter: String,
    /// What to set it to.
    #[schemars(extend("x-flag" = Flag::text("value")))]
    pub value: String,
}

impl Words for GpuPowerPlan {}
impl Words for ThpPlan {}
impl Words for RtThrottlingPlan {}
impl Words for SysfsPlan {}
impl Words for SysctlPlan {}
impl Words for ModuleParameterPlan {}

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

fn half() -> u32 {
    50
}
fn never() -> String {
    "never".to_owned()
}
