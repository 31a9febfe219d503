//! `pci-power`: keeps PCI devices and links awake.

use crate::change::{Change, Target};
use crate::kinds::writable;
use crate::planner::{Impossible, Planned, Planner, Surroundings};
use crate::reading::Reading;
use std::collections::BTreeSet;
use whylate_core::plan::PciPowerPlan;

const FOLDER: &str = "/sys/bus/pci/devices";
const LINKS: &str = "/sys/module/pcie_aspm/parameters/policy";
const ALL: &str = "all";

impl Planner for PciPowerPlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        let root = &surroundings.root;
        let mut changes = Vec::new();
        let is_all = self.devices.iter().any(|name| name == ALL);
        let mut unknown: BTreeSet<&String> = self.devices.iter().filter(|name| *name != ALL).collect();
        for address in root.list(FOLDER)? {
            let driver = root.link_name(&format!("{FOLDER}/{address}/driver"));
            let names = [Some(address.as_str()), driver.as_deref()];
            let is_it = |name: &String| names.contains(&Some(name.as_str()));
            let is_meant = is_all || self.devices.iter().any(is_it);
            unknown.retain(|name| !is_it(name));
            let path = format!("{FOLDER}/{address}/power/control");
            if is_meant && root.exists(&path) {
                writable(surroundings, &path)?;
                let effect = format!("{address} stays awake");
                changes.push(Change::required(Target::file(path), "on", effect));
            }
        }
        if let Some(name) = unknown.first() {
            let reason = format!("no PCI device has the address or driver `{name}`; `lspci -k` lists them");
            return Err(Impossible::new(reason));
        }
        if self.links && root.exists(LINKS) {
            writable(surroundings, LINKS)?;
            let effect = "PCI Express links stay awake (ASPM is off)";
            changes.push(Change::optional(
                Target::file_with(LINKS, Reading::Bracketed),
                "performance",
                effect,
            ));
        }
        if changes.is_empty() {
            return Err(Impossible::new("no PCI device here has power management"));
        }
        Ok(Planned::changes(changes))
    }
}
