//! Treatments of the cache, of graphics devices, and of settings that live in a file.

use super::{Flag, KeyError, Words, all, yes};
use crate::cpus::CpuSelector;
use crate::units::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reserves a part of the last-level cache for given CPUs (resctrl).
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply cache-partition --cpus 1
  whylate treat apply cache-partition --cpus 1 --share 25 --others-bandwidth 50"))]
pub struct CachePartitionPlan {
    /// CPUs for which a part of the cache is reserved.
    #[serde(default = "CpuSelector::target")]
    pub cpus: CpuSelector,
    /// Size of the reserved part, in percent of the cache, rounded to whole ways.
    #[serde(default = "half")]
    #[schemars(extend("x-flag" = Flag::named("share")))]
    pub share_percent: u32,
    /// Share of the memory bandwidth that the other CPUs may use, in percent; by default unchanged.
    #[schemars(extend("x-flag" = Flag::named("others-bandwidth")))]
    pub others_bandwidth_percent: Option<u32>,
}

/// Keeps graphics devices powered and at their highest clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply gpu-power                        every device stays powered
  whylate treat apply gpu-power card0 --leave-clock"))]
pub struct GpuPowerPlan {
    /// Graphics devices: names (card0), PCI addresses, drivers, or all.
    #[serde(default = "all")]
    #[schemars(extend("x-flag" = Flag::positional("device")))]
    pub devices: Vec<String>,
    /// Whether the clock is fixed at the highest frequency that the driver offers.
    #[serde(default = "yes")]
    #[schemars(extend("x-flag" = Flag::off("leave-clock", "Leaves the clock as it is")))]
    pub fixed_clock: bool,
}

/// Sets the mode of transparent huge pages.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply thp never
  whylate treat apply thp madvise --defrag never"))]
pub struct ThpPlan {
    /// Mode: always, madvise or never.
    #[serde(default = "never")]
    #[schemars(extend("x-flag" = Flag::positional("mode")))]
    pub enabled: String,
    /// When memory is compacted to make huge pages: always, defer, defer+madvise, madvise, never.
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
            /// Whether to switch the feature on or off.
            #[serde(default)]
            #[schemars(extend("x-flag" = Flag::positional("state")))]
            pub enabled: bool,
        }

        impl Words for $name {}
    )+};
}

switches! {
    /// Switches the merging of identical pages (KSM) on or off. Pages that are already merged stay merged.
    KsmPlan, "ksm off";
    /// Switches automatic NUMA balancing on or off.
    NumaBalancingPlan, "numa-balancing off";
    /// Switches the kernel's lockup detectors on or off.
    WatchdogPlan, "watchdog off";
}

/// Sets the CPU time that real-time tasks may use in each period (real-time throttling).
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply rt-throttling            no limit: a real-time loop may take all of a CPU
  whylate treat apply rt-throttling 980ms      at most 980 ms of each period"))]
pub struct RtThrottlingPlan {
    /// CPU time in each period (`kernel.sched_rt_period_us`); by default without a limit.
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
    /// File below /sys or /proc; `{cpu}` in the path stands for each CPU of --cpus.
    #[schemars(extend("x-flag" = Flag::positional("path")))]
    pub path: String,
    /// Text to write into the file.
    #[schemars(extend("x-flag" = Flag::text("value")))]
    pub value: String,
    /// CPUs whose numbers replace `{cpu}` in the path.
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
    /// Name of the sysctl: vm.swappiness.
    #[schemars(extend("x-flag" = Flag::positional("key")))]
    pub key: String,
    /// Value to set.
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
    /// Name of the module: i915.
    #[schemars(extend("x-flag" = Flag::positional("module")))]
    pub module: String,
    /// Name of the parameter.
    #[schemars(extend("x-flag" = Flag::positional("parameter")))]
    pub parameter: String,
    /// Value to set.
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
                return Err(KeyError::new(key, "is out of range; give 1 to 99"));
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
