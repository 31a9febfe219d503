//! `smt-off`: cores to themselves, by switching their other threads off.
//!
//! One by one, also for the whole machine: the kernel's own switch for all of them (`smt/control`) would, when it is
//! switched on again, bring up threads that were off before.

use crate::change::{Change, Target};
use crate::kinds::offline;
use crate::planner::{Impossible, Planned, Planner, Surroundings};
use whylate_core::plan::SmtOffPlan;
use whylate_core::{CpuId, CpuSet, Warning, WarningCode};
use whylate_host::HostError;

const CONTROL: &str = "/sys/devices/system/cpu/smt/control";

impl Planner for SmtOffPlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        let keep = match &self.cpus {
            Some(cpus) => surroundings.resolve("cpus", cpus)?,
            None => first_threads(surroundings)?,
        };
        let mut off = CpuSet::default();
        for cpu in keep.iter() {
            off = off.union(&siblings(surroundings, cpu)?.difference(&CpuSet::single(cpu)));
        }
        off = off.intersection(&surroundings.cpus.online);
        if let Some(cpu) = off.intersection(&keep).first() {
            return Err(Impossible::new(format!(
                "cpus: CPU {cpu} is a sibling of another CPU in the list; name only one CPU of each core"
            )));
        }
        if off.is_empty() {
            return nothing_to_do(surroundings, &keep);
        }
        offline::check(surroundings, &off)?;
        let mut changes = offline::preparation(surroundings, &off)?;
        changes.extend(off.iter().map(|cpu| {
            let effect = format!("CPU {cpu} is offline, so its sibling has the core alone");
            Change::required(Target::file(offline::online_path(cpu)), "0", effect)
        }));
        Ok(Planned::changes(changes))
    }
}

/// There is no second thread: the core has only one, or it is off already.
fn nothing_to_do(surroundings: &Surroundings, keep: &CpuSet) -> Result<Planned, Impossible> {
    match surroundings.root.read_trimmed(CONTROL)?.as_deref() {
        Some("off" | "forceoff") => {
            let text = "SMT is off already: there is nothing to change";
            Ok(Planned {
                changes: Vec::new(),
                warnings: vec![Warning::new(WarningCode::SmtOffAlready, text)],
            })
        }
        _ => Err(Impossible::new(format!(
            "the cores of CPU {keep} have one hardware thread each: there is no SMT here"
        ))),
    }
}

/// The logical CPUs of the core of `cpu`, itself included.
fn siblings(surroundings: &Surroundings, cpu: CpuId) -> Result<CpuSet, HostError> {
    let folder = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
    for name in ["core_cpus_list", "thread_siblings_list"] {
        if let Some(cpus) = surroundings.root.read_cpus(&format!("{folder}/{name}"))? {
            return Ok(cpus);
        }
    }
    Ok(CpuSet::single(cpu))
}

/// One CPU of each core: the target if the core has one, otherwise the first.
fn first_threads(surroundings: &Surroundings) -> Result<CpuSet, HostError> {
    let mut first = Vec::new();
    let mut seen = CpuSet::default();
    let target = surroundings.target.clone().unwrap_or_default();
    for cpu in target.iter().chain(surroundings.cpus.online.iter()) {
        if !seen.contains(cpu) {
            seen = seen.union(&siblings(surroundings, cpu)?).union(&CpuSet::single(cpu));
            first.push(cpu);
        }
    }
    Ok(first.into_iter().collect())
}
