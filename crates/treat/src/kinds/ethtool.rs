//! `ethtool`: when network interfaces interrupt, and whether their links sleep.

use crate::change::{Change, EthernetSetting, Target};
use crate::ethernet;
use crate::planner::{Impossible, Planned, Planner, Surroundings};
use whylate_core::plan::EthtoolPlan;

const FOLDER: &str = "/sys/class/net";
const ALL: &str = "all";

impl Planner for EthtoolPlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        if !surroundings.root.is_real() {
            return Err(Impossible::new("network drivers can be queried only on the running machine"));
        }
        let known = surroundings.root.list(FOLDER)?;
        let is_all = self.interfaces.iter().any(|name| name == ALL);
        if let Some(name) = self.interfaces.iter().find(|name| *name != ALL && !known.contains(name)) {
            let reason = format!("there is no interface `{name}`; choose from {}", known.join(", "));
            return Err(Impossible::new(reason));
        }
        let mut planned = Planned::default();
        let mut lacking = Vec::new();
        for name in known.iter().filter(|name| is_all && *name != "lo" || self.interfaces.contains(name)) {
            let target = |setting| Target::Ethernet { interface: name.clone(), setting };
            if let Some(delay) = self.delay {
                let us = u32::try_from(delay.0 / 1_000).unwrap_or(u32::MAX);
                match ethernet::delayed_by(name, us) {
                    Ok(new) => {
                        let effect = format!("interrupts of {name} come at most {delay} after a packet");
                        planned.changes.push(Change::required(
                            target(EthernetSetting::Coalescing),
                            new,
                            effect,
                        ));
                    }
                    Err(error) => {
                        lacking.push(format!(
                            "the driver of {name} does not report interrupt coalescing ({error})"
                        ));
                    }
                }
            }
            if let Some(sleeps) = self.link_sleep {
                let setting = target(EthernetSetting::LinkSleep);
                match ethernet::read(name, EthernetSetting::LinkSleep) {
                    Ok(_) => {
                        let may = if sleeps { "may" } else { "does not" };
                        let effect = format!("the link of {name} {may} sleep between packets");
                        planned.changes.push(Change::required(setting, ethernet::switch(sleeps), effect));
                    }
                    Err(error) => {
                        lacking.push(format!(
                            "the driver of {name} does not support Energy-Efficient Ethernet ({error})"
                        ));
                    }
                }
            }
        }
        match lacking.first() {
            Some(why) if planned.changes.is_empty() || !is_all => Err(Impossible::new(why.clone())),
            None if planned.changes.is_empty() => {
                Err(Impossible::new("this machine has no network interface except loopback"))
            }
            _ => Ok(planned),
        }
    }
}
