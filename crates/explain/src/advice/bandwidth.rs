//! Finds programs that could be slowed down, and loads of the plan that could be paced: they take memory bandwidth if
//! hardware is to blame, or the CPU of an ordinary task.

use super::{Situation, arm, caused_reason, own_weight};
use whylate_core::plan::{CpuQuotaPlan, TreatmentKind};
use whylate_core::result::{CauseKind, CellResult, FixArm, FixCause, FixLeftOut};
use whylate_core::units::BytesPerSec;
use whylate_core::{BusyProgram, Plan, figure};

/// A program that reads less than this from memory does not make others wait.
const BYTES_PER_S_MIN: f64 = 200e6;
/// The least quota that is tried, and its steps.
const PERCENT_STEP: f64 = 5.0;

/// A load of the measured cell that moves memory and could do so more slowly.
#[derive(Clone, Debug, PartialEq)]
pub struct Paced {
    pub name: String,
    pub bytes_per_s: f64,
}

impl Paced {
    pub fn of(plan: &Plan, cell: &CellResult) -> Vec<Self> {
        let is_paced = |name: &str| {
            let load = plan.load.iter().find(|load| load.name == name);
            load.is_some_and(|load| load.kind.without_rate().is_some())
        };
        let of_cell = cell.rates.iter().filter(|rate| rate.unit == "bytes_per_s" && is_paced(&rate.load));
        of_cell.map(|rate| Self { name: rate.load.clone(), bytes_per_s: rate.mean }).collect()
    }
}

fn hardware<'a>(situation: &Situation<'a>) -> Option<&'a FixCause> {
    situation.causes.iter().find(|cause| cause.kind == CauseKind::Hardware.name() && cause.spikes > 0)
}

/// The cause in which an ordinary program has the CPU that an ordinary task waits for.
fn thread<'a>(program: &BusyProgram, situation: &Situation<'a>) -> Option<&'a FixCause> {
    let is_its = |cause: &&FixCause| {
        let is_thread = cause.kind == CauseKind::Thread.name() && cause.spikes > 0;
        is_thread && cause.actor.as_ref() == Some(&program.name)
    };
    situation.causes.iter().find(is_its)
}

/// Whether the programs that keep CPUs busy are needed.
pub fn asks_who_is_busy(causes: &[FixCause]) -> bool {
    let kinds = [CauseKind::Hardware, CauseKind::Thread];
    causes.iter().any(|cause| cause.spikes > 0 && kinds.iter().any(|kind| kind.name() == cause.kind))
}

/// Proposes half of what each program uses now, for those that may take the bandwidth and those that have the CPU.
pub(super) fn quotas(situation: &Situation<'_>) -> Vec<(f64, FixArm)> {
    let is_loud = |it: &BusyProgram| it.bytes_per_s.is_none_or(|rate| rate >= BYTES_PER_S_MIN);
    let of = |program: &BusyProgram| {
        let used = program.cpus * 100.0;
        let percent = ((used / 2.0 / PERCENT_STEP).round() * PERCENT_STEP).max(PERCENT_STEP) as u32;
        let (cause, takes) = match (thread(program, situation), program.bytes_per_s) {
            (Some(cause), _) => (cause, String::new()),
            (None, _) if !is_loud(program) => return None,
            (None, Some(rate)) => {
                (hardware(situation)?, format!(" and reads {} from memory", BytesPerSec(rate)))
            }
            (None, None) => {
                let takes = " and may take memory bandwidth, which this machine does not count";
                (hardware(situation)?, takes.to_owned())
            }
        };
        let reason = format!(
            "{}; {} uses {used:.0} % of a CPU{takes}",
            caused_reason(&[cause], situation.causes),
            program.name
        );
        let plan = CpuQuotaPlan { process: program.name.clone(), percent };
        let id = format!("quota-{}", program.name);
        // Comes after treatments that do not slow the program down.
        let weight = own_weight(cause) - 1.0;
        Some((weight, arm(&id, TreatmentKind::CpuQuota(plan), reason, vec![cause.kind.clone()])))
    };
    situation.busy.iter().filter_map(of).collect()
}

/// Loads are part of the measurement, so a search does not change them: the advice goes to the author of the plan.
pub(super) fn pacing(situation: &Situation<'_>) -> Vec<FixLeftOut> {
    let Some(cause) = hardware(situation) else { return Vec::new() };
    let of = |load: &Paced| {
        let half = BytesPerSec(load.bytes_per_s / 2.0).to_string().replace(' ', "");
        FixLeftOut {
            id: format!("load-pacing-{}", load.name),
            reason: caused_reason(&[cause], situation.causes),
            why: format!(
                "the plan's load `{}` ran and moved {}; measure again with `rate = \"{half}\"`. If this \
                 lowers the latencies, let the program that the load represents move data more slowly",
                load.name,
                figure::rate(load.bytes_per_s, "bytes_per_s")
            ),
        }
    };
    situation.paced.iter().map(of).collect()
}
