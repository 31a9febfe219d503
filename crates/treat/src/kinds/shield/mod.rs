//! `shield`: CPUs without the tasks, interrupts and timers of others.
//!
//! In this order: it moves interrupts to the other CPUs, then the kernel's own work, and then processes: by an
//! isolated partition of cgroup v2, by cpusets of cgroup v1, or by the affinity of each thread. Warnings name what has
//! to stay: managed interrupts, and what only the boot line decides. Threads that the kernel pins to a CPU stay there,
//! too; `whylate cpus` lists them.
//!
//! A task that is meant to run on a shielded CPU enters the group [`whylate_host::shield::GROUP`]; the probes and
//! loads of whylate do so by themselves.

mod interrupts;
mod noise;
mod processes;

use crate::planner::{Impossible, Planned, Planner, Surroundings};
use whylate_core::plan::ShieldPlan;
use whylate_core::{CpuId, CpuSet, Warning, WarningCode};

/// The two sides of a shield.
struct Sides {
    shielded: CpuSet,
    /// Where everything else goes: the other online CPUs.
    others: CpuSet,
}

impl Planner for ShieldPlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        let sides = sides(self, surroundings)?;
        let mut planned = Planned::default();
        if !self.processes && !self.interrupts && !self.local_timer {
            return Err(Impossible::new(
                "nothing is shielded: switch on `processes`, `interrupts` or `local_timer`",
            ));
        }
        if sides.shielded.contains(CpuId(0)) {
            let text = "CPU 0 still runs work that the kernel always gives to the first CPU, even if CPU 0 is shielded";
            planned.warnings.push(Warning::new(WarningCode::Cpu0Shielded, text));
        }
        let mut add = |part: Planned| {
            planned.changes.extend(part.changes);
            planned.warnings.extend(part.warnings);
        };
        if self.interrupts {
            add(interrupts::plan(&sides, surroundings)?);
        }
        if self.local_timer {
            add(noise::timers(&sides, surroundings)?);
        }
        if self.processes {
            add(noise::work(&sides, surroundings)?);
            add(processes::plan(&sides, self.method, surroundings)?);
        }
        Ok(planned)
    }

    fn again(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        if !self.processes {
            return Ok(Planned::default());
        }
        let stragglers = processes::stragglers(&sides(self, surroundings)?, self.method, surroundings)?;
        Ok(Planned::changes(stragglers))
    }
}

fn sides(plan: &ShieldPlan, surroundings: &Surroundings) -> Result<Sides, Impossible> {
    let shielded = surroundings.resolve("cpus", &plan.cpus)?;
    let online = &surroundings.cpus.online;
    // Tasks are not moved to CPUs that were isolated before.
    let others = online.difference(&surroundings.cpus.isolated).difference(&shielded);
    let others = if others.is_empty() { online.difference(&shielded) } else { others };
    if others.is_empty() {
        let reason = format!(
            "cpus: {shielded} covers all online CPUs; leave at least one CPU to the rest of the system"
        );
        return Err(Impossible::wrong_request(reason));
    }
    Ok(Sides { shielded, others })
}

/// `cpus` without the shielded ones; the others if nothing is left.
fn without(cpus: &CpuSet, sides: &Sides) -> CpuSet {
    let left = cpus.difference(&sides.shielded);
    if left.is_empty() { sides.others.clone() } else { left }
}

/// `a, b and 3 more`.
fn listed(names: &[String]) -> String {
    const MAX: usize = 12;
    let shown = names.iter().take(MAX).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests;
