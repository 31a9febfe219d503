//! `network`: which CPUs do the packet work of network interfaces.

use crate::change::{Change, Target};
use crate::kinds::switches::on_off;
use crate::kinds::writable;
use crate::planner::{Impossible, Planned, Planner, Surroundings};
use crate::reading::Reading;
use whylate_core::CpuSet;
use whylate_core::plan::NetworkPlan;

const FOLDER: &str = "/sys/class/net";
const ALL: &str = "all";

impl Planner for NetworkPlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        let cpus = surroundings.resolve("cpus", &self.cpus)?;
        let known = surroundings.root.list(FOLDER)?;
        let mut changes = Vec::new();
        for name in self.interfaces.iter().filter(|name| *name != ALL) {
            if !known.contains(name) {
                let reason = format!("there is no interface `{name}`; choose from {}", known.join(", "));
                return Err(Impossible::new(reason));
            }
        }
        let is_all = self.interfaces.iter().any(|name| name == ALL);
        for name in known.iter().filter(|name| is_all && *name != "lo" || self.interfaces.contains(name)) {
            changes.extend(of_interface(self, name, &cpus, surroundings)?);
        }
        if changes.is_empty() {
            return Err(Impossible::new("no interface has queues whose CPUs can be chosen"));
        }
        Ok(Planned::changes(changes))
    }
}

fn of_interface(
    plan: &NetworkPlan,
    name: &str,
    cpus: &CpuSet,
    surroundings: &Surroundings,
) -> Result<Vec<Change>, Impossible> {
    let root = &surroundings.root;
    let queues = root.list(&format!("{FOLDER}/{name}/queues"))?;
    let mut changes = Vec::new();
    for queue in queues {
        let (file, does) =
            if queue.starts_with("rx-") { ("rps_cpus", "received") } else { ("xps_cpus", "sent") };
        let path = format!("{FOLDER}/{name}/queues/{queue}/{file}");
        // A single queue has no choice of its sender; the kernel refuses to read the file.
        if root.read(&path).is_ok_and(|text| text.is_some()) {
            writable(surroundings, &path)?;
            let effect = format!("packets of {name} {queue} are {does} by CPU {cpus}");
            changes.push(Change::optional(
                Target::file_with(path, Reading::CpuMask),
                cpus.to_string(),
                effect,
            ));
        }
    }
    if let Some(threaded) = plan.threaded {
        let path = format!("{FOLDER}/{name}/threaded");
        if root.exists(&path) {
            writable(surroundings, &path)?;
            changes.push(Change::optional(
                Target::file(path),
                on_off(threaded),
                format!("{name} is polled in a {}", if threaded { "thread" } else { "softirq" }),
            ));
        }
    }
    Ok(changes)
}
