//! The rows of the ledger that a treatment may remove, so that its proof can rest on their late time.

use super::IRQ_THREAD;
use super::table::ROWS;
use crate::vocabulary;
use whylate_core::order::InOrder;
use whylate_core::plan::{SeriesStatistic, TreatmentKind};
use whylate_core::result::{CauseKind, CellResult, FixArm, FixCause, FixGoal, LedgerRow, lasting_name};
use whylate_stats::search::is_outside;

/// The most rows of an arm: those with the most late time.
const ROWS_MAX: usize = 16;

/// Fills in what each arm may remove in the series of the goal. An arm gets no rows if its rows together are less than
/// `least` of the late time that the hypervisor and the firmware did not take: their removal would not matter.
pub fn removes(arms: &mut [FixArm], cell: &CellResult, goal: &FixGoal, least: f64) {
    let Some(series) = goal.series.clone() else { return };
    let series = SeriesStatistic { series, statistic: goal.statistic };
    let is_known = |row: &&LedgerRow| {
        let is_named = row.kind.is_some_and(|kind| kind != CauseKind::Unattributed);
        is_named && !is_outside(row) && series.is_of(&row.probe)
    };
    let own = cell.ledger.iter().filter(|row| series.is_of(&row.probe) && !is_outside(row));
    let total: u64 = own.map(|row| row.total_ns).sum();
    for arm in arms {
        let mut rows: Vec<&LedgerRow> =
            cell.ledger.iter().filter(is_known).filter(|row| may_remove(arm, row)).collect();
        rows.order_by_key(|row| std::cmp::Reverse(row.total_ns));
        rows.truncate(ROWS_MAX);
        let sum: u64 = rows.iter().map(|row| row.total_ns).sum();
        if sum as f64 >= least * total as f64 && sum > 0 {
            arm.removes = rows.into_iter().map(LedgerRow::name).collect();
            arm.removes.order();
            arm.removes.dedup();
        }
    }
}

/// A treatment for one actor answers everything that this actor does: a cause may return under the name of another kind.
fn may_remove(arm: &FixArm, row: &LedgerRow) -> bool {
    let named = row.actor.as_deref().unwrap_or_default();
    let actor = vocabulary::preempting(named).unwrap_or(named);
    match &arm.treatment.kind {
        TreatmentKind::Affinity(plan) => actor == lasting_name(&plan.process),
        TreatmentKind::CpuQuota(plan) => actor == lasting_name(&plan.process),
        TreatmentKind::Priority(plan) if arm.treatment.name.starts_with("priority-") => {
            actor == lasting_name(&plan.thread)
        }
        TreatmentKind::IrqAffinity(plan) if !plan.interrupts.is_empty() => {
            plan.interrupts.iter().any(|line| {
                let thread = format!("{IRQ_THREAD}{line}-");
                actor.starts_with(&thread)
                    || actor.strip_prefix("irq ").is_some_and(|of| of.split(' ').next() == Some(line))
            })
        }
        _ => {
            let Some(of_row) = ROWS.iter().find(|of_row| of_row.id == arm.treatment.name) else {
                return false;
            };
            let kind = row.kind.map_or_else(String::new, |kind| kind.name().to_owned());
            of_row.answers(&FixCause { kind, actor: row.actor.clone(), spikes: 0, share: 0.0 })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_answer_the_rows_of_their_actor_or_kind() {
        let row = |kind, actor: &str, total_ns| LedgerRow {
            probe: "timer".to_owned(),
            kind: Some(kind),
            actor: Some(actor.to_owned()),
            total_ns,
            ..LedgerRow::default()
        };
        let ledger = vec![
            row(CauseKind::Steal, "", 9_000_000),
            row(CauseKind::Thread, "thief", 600),
            row(CauseKind::PreemptOff, "thief", 100),
            row(CauseKind::Lock, "logger (preempted by thief)", 80),
            row(CauseKind::Irq, "irq 4 (ttyS0)", 200),
            row(CauseKind::Thread, "kworker", 90),
            row(CauseKind::PageFault, "", 10),
            row(CauseKind::Unattributed, "", 100),
        ];
        let cell = CellResult { ledger, ..CellResult::default() };
        let arm = |text: &str| serde_json::from_str::<FixArm>(text).unwrap();
        let mut arms = [
            arm(r#"{"name":"affinity-thief","kind":"affinity","process":"thief","reason":"","answers":[]}"#),
            arm(
                r#"{"name":"irq-affinity-4","kind":"irq-affinity","interrupts":["4"],"reason":"","answers":[]}"#,
            ),
            arm(r#"{"name":"workqueue-mask","kind":"workqueue","reason":"","answers":[]}"#),
            arm(r#"{"name":"thp","kind":"thp","enabled":"never","reason":"","answers":[]}"#),
        ];
        let goal: FixGoal = "timer p99".parse().unwrap();
        removes(&mut arms, &cell, &goal, 0.05);
        let names = |nth: usize| arms[nth].removes.join(", ");
        assert_eq!(names(0), "lock: logger (preempted by thief), preempt off: thief, thread: thief");
        assert_eq!(names(1), "irq: irq 4 (ttyS0)");
        assert_eq!(names(2), "thread: kworker");
        assert_eq!(names(3), "", "a hundredth of the late time does not matter");
    }
}
