//! Treatments of devices: network interfaces, and the power management of PCI.

use super::{Flag, KeyError, Words, all, yes};
use crate::cpus::CpuSelector;
use crate::units::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Moves the packet processing of network interfaces to given CPUs.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply network eth0 --cpus 0                 CPU 0 receives and sends (RPS, XPS)
  whylate treat apply network eth0 --cpus 0 --threaded on   a kernel thread polls"))]
pub struct NetworkPlan {
    /// Names of interfaces; by default all that have queues.
    #[serde(default = "all")]
    #[schemars(extend("x-flag" = Flag::positional("interface")))]
    pub interfaces: Vec<String>,
    /// CPUs that process the packets.
    #[serde(default = "CpuSelector::others")]
    pub cpus: CpuSelector,
    /// Whether the interface is polled in its own kernel threads (threaded NAPI); by default unchanged.
    pub threaded: Option<bool>,
}

/// Keeps PCI devices and their links awake.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply pci-power                              every device, and all links (ASPM)
  whylate treat apply pci-power 0000:01:00.0 --leave-links   one device"))]
pub struct PciPowerPlan {
    /// Devices: PCI addresses, drivers, or all.
    #[serde(default = "all")]
    #[schemars(extend("x-flag" = Flag::positional("device")))]
    pub devices: Vec<String>,
    /// Whether the links of PCI devices stay awake, too (ASPM policy `performance`, for the whole machine).
    #[serde(default = "yes")]
    #[schemars(extend("x-flag" = Flag::off("leave-links", "Leaves the power management of links (ASPM) as it is")))]
    pub links: bool,
}

/// Sets interrupt coalescing and Energy-Efficient Ethernet of network interfaces, as `ethtool` does.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate treat apply ethtool --delay 0s                     an immediate interrupt for each packet
  whylate treat apply ethtool eth0 --delay 500us             at most one interrupt per 500 us
  whylate treat apply ethtool eth0 --link-sleep off          no Energy-Efficient Ethernet
An interface whose driver does not report these settings is left out; if you named it, a warning
says so."))]
pub struct EthtoolPlan {
    /// Names of interfaces (eth0); by default all except the loopback.
    #[serde(default = "all")]
    #[schemars(extend("x-flag" = Flag::positional("interface")))]
    pub interfaces: Vec<String>,
    /// How long an interrupt may wait for more packets (fixed interrupt coalescing).
    pub delay: Option<Nanos>,
    /// Whether the link sleeps between packets (Energy-Efficient Ethernet).
    pub link_sleep: Option<bool>,
}

impl Words for EthtoolPlan {
    fn check(&self) -> Result<(), KeyError> {
        if self.delay.is_none() && self.link_sleep.is_none() {
            return Err(KeyError::new("", "sets nothing; give `delay` or `link_sleep`"));
        }
        if self.interfaces.is_empty() {
            return Err(KeyError::new("interfaces", "is empty; name interfaces, or leave it out for all"));
        }
        Ok(())
    }
}

impl Words for NetworkPlan {
    fn check(&self) -> Result<(), KeyError> {
        named("interfaces", &self.interfaces)
    }
}

impl Words for PciPowerPlan {
    fn check(&self) -> Result<(), KeyError> {
        named("devices", &self.devices)
    }
}

fn named(key: &'static str, names: &[String]) -> Result<(), KeyError> {
    let is_name = |name: &String| !name.is_empty() && !name.contains('/') && !name.starts_with('.');
    let message = "must list names of devices; leave it out for all";
    if !names.is_empty() && names.iter().all(is_name) { Ok(()) } else { Err(KeyError::new(key, message)) }
}
