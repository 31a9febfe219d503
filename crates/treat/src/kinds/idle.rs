//! `idle`: how deep CPUs sleep.
//!
//! Each idle state that takes longer to leave than allowed is disabled, per CPU. `/dev/cpu_dma_latency`, which a
//! measuring process holds open unless the plan says otherwise, does the same for all CPUs while it is open.

use crate::change::{Change, Target};
use crate::kinds::required_file;
use crate::planner::{Impossible, Planned, Planner, Surroundings};
use whylate_core::plan::IdlePlan;
use whylate_core::{CpuId, Warning, WarningCode};

impl Planner for IdlePlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        let mut planned = Planned::default();
        let cpus = surroundings.resolve("cpus", &self.cpus)?;
        for cpu in cpus.iter() {
            planned.changes.extend(states(self, surroundings, cpu)?);
            planned.changes.extend(request(self, surroundings, cpu));
        }
        if planned.changes.is_empty() {
            let text = format!(
                "no idle state of CPU {cpus} takes longer to leave than {}: there is nothing to change",
                self.exit_latency_max
            );
            planned.warnings.push(Warning::new(WarningCode::IdleShallowAlready, text));
        }
        Ok(planned)
    }
}

fn states(plan: &IdlePlan, surroundings: &Surroundings, cpu: CpuId) -> Result<Vec<Change>, Impossible> {
    let root = &surroundings.root;
    let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle");
    let states = root.list_numbered(&folder, "state")?;
    if states.is_empty() {
        let reason = format!(
            "CPU {cpu} has no idle states in {folder}: no cpuidle driver is in use (because of `idle=` on the kernel command line, or in a virtual machine)"
        );
        return Err(Impossible::new(reason));
    }
    let mut changes = Vec::new();
    for state in states {
        let file = |name: &str| format!("{folder}/state{state}/{name}");
        let latency_us: u64 = root.read_number(&file("latency"))?.unwrap_or(0);
        if latency_us.saturating_mul(1_000) <= plan.exit_latency_max.0 {
            continue;
        }
        let name = root.read_trimmed(&file("name"))?.unwrap_or_default();
        required_file(surroundings, &file("disable"), "this kernel cannot disable idle states")?;
        let effect = format!("CPU {cpu} avoids idle state {name}, which takes {latency_us} us to leave");
        changes.push(Change::required(Target::file(file("disable")), "1", effect));
    }
    Ok(changes)
}

/// The same as a request, for idle drivers that ignore disabled states.
fn request(plan: &IdlePlan, surroundings: &Surroundings, cpu: CpuId) -> Option<Change> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us");
    let before = surroundings.root.read_trimmed(&path).ok()??;
    // 0 stands for no request here, and `n/a` for a latency of zero.
    let limit_us = plan.exit_latency_max.0 / 1_000;
    let is_stricter =
        before == "n/a" || before.parse::<u64>().is_ok_and(|before| before > 0 && before <= limit_us);
    if is_stricter {
        return None;
    }
    let wanted = if limit_us == 0 { "n/a".to_owned() } else { limit_us.to_string() };
    let effect = format!("CPU {cpu} must wake up within {} from any idle state", plan.exit_latency_max);
    Some(Change::optional(Target::file(path), wanted, effect))
}
