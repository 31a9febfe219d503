//! Which way of copying stays within a frame's time and disturbs the neighbours least.

use crate::comparisons::comparison_between;
use whylate_core::figure;
use whylate_core::order::InOrder;
use whylate_core::plan::{CopyPlan, LoadKind, Plan, SeriesStatistic};
use whylate_core::result::{Answer, AnswerOutcome, CellResult, Comparison, CopyRow, CopyTable, Outcome};

/// A way of copying that fits, and the cell in which it disturbed.
struct Candidate<'r> {
    row: &'r CopyRow,
    cell: &'r CellResult,
    /// Compared with the cell without loads.
    cost: Comparison,
}

/// The answer; `None` for a plan that asks for no frame.
///
/// Two conditions hold for a choice: memory timing has shown that the row's memory has the requested type, and a cell
/// of the plan has the method as its only load. Two methods with no measurable difference are not chosen.
pub fn copy_choice(plan: &Plan, table: Option<&CopyTable>, cells: &[CellResult]) -> Option<Answer> {
    let frame = plan.copies.as_ref()?.frame?;
    let primary = plan.primary_statistic()?;
    let question = format!("Which method copies {frame} in time, and raises {primary} least?");
    let answer = |outcome, sentence: String, comparison| {
        Some(Answer { question: question.clone(), outcome, sentence, comparison, causes: Vec::new() })
    };
    let mut candidates = candidates(plan, table?, cells, &primary);
    candidates.order_by(|one, next| one.cost.cell_value.total_cmp(&next.cost.cell_value));
    let Some(best) = candidates.first() else {
        let sentence =
            "Not measured: no cell copies a frame in time on memory with a type that timing confirms.";
        return answer(AnswerOutcome::NotMeasured, sentence.to_owned(), None);
    };
    let share = best.row.frame.map(|cost| figure::share(cost.frame_time_share)).unwrap_or_default();
    let value = |candidate: &Candidate<'_>| figure::value(primary.statistic, candidate.cost.cell_value);
    let shown = format!(
        "{}: {share} of a frame's time, {primary} {} ({} without a copy)",
        best.row.name(),
        value(best),
        figure::value(primary.statistic, best.cost.baseline_value)
    );
    let Some(second) = candidates.get(1) else {
        return answer(
            AnswerOutcome::Yes,
            format!("{shown}; no other method qualifies."),
            Some(best.cost.clone()),
        );
    };
    // The next one, compared with the best one.
    let between = comparison_between(best.cell, second.cell, &primary, plan.margin.0);
    let next = format!("{} {}", second.row.name(), value(second));
    match between {
        Some(between) if between.outcome == Outcome::Worse => {
            answer(AnswerOutcome::Yes, format!("{shown}; next best: {next}."), Some(between))
        }
        between => {
            let same = candidates
                .iter()
                .filter(|it| it.cost.cell_value <= best.cost.cell_value * (1.0 + plan.margin.0));
            let same: Vec<String> = same.map(|it| it.row.name()).collect();
            let sentence = format!(
                "Cannot tell: {shown}; no difference from {next} is shown; methods within the margin: {}.",
                same.join(", ")
            );
            answer(AnswerOutcome::CannotTell, sentence, between)
        }
    }
}

fn candidates<'r>(
    plan: &Plan,
    table: &'r CopyTable,
    cells: &'r [CellResult],
    primary: &SeriesStatistic,
) -> Vec<Candidate<'r>> {
    let Some(idle) = cells.iter().find(|cell| cell.loads.is_empty() && cell.treatments.is_empty()) else {
        return Vec::new();
    };
    let copy_of = |cell: &CellResult| {
        let [load] = cell.loads.as_slice() else { return None };
        let LoadKind::Copy(load) = &plan.load(load)?.kind else { return None };
        Some(load.clone())
    };
    // The memory, size and buffers of the first such cell: other values would compare something else.
    let Some(first) = cells.iter().find_map(copy_of) else { return Vec::new() };
    let candidate = |cell: &'r CellResult| {
        let load = copy_of(cell)?;
        let CopyPlan { from, to, method, .. } = load;
        let alike = CopyPlan {
            from,
            to,
            method,
            backend: load.backend.clone(),
            device: load.device.clone(),
            ..first.clone()
        };
        (alike == load).then_some(())?;
        let is_it = |row: &&CopyRow| {
            let is_same = (row.from, row.to, row.method) == (load.from, load.to, load.method);
            // What another backend's memory of that type shows does not apply to the load's memory.
            is_same && load.backend.as_ref().is_none_or(|backend| *backend == row.backend)
        };
        let fits = |row: &&CopyRow| row.frame.is_some_and(|cost| cost.frame_time_share <= 1.0);
        let row = table.rows.iter().find(|row| is_it(row) && fits(row) && row.is_proven())?;
        let cost = comparison_between(idle, cell, primary, plan.margin.0)?;
        Some(Candidate { row, cell, cost })
    };
    cells.iter().filter(|cell| cell.treatments.is_empty()).filter_map(candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::plan::{Source, builtin};
    use whylate_core::result::{FrameCost, Quantiles, RepeatProbe, RepeatResult};
    use whylate_core::{CopyMethod, CpuId, MemoryMode};

    fn plan() -> Plan {
        let text = builtin::find("cache-modes").unwrap().text;
        Plan::parse(&Source { name: "cache-modes", text }, &[]).unwrap()
    }

    fn row(method: CopyMethod, share: f64, effective: MemoryMode) -> CopyRow {
        let (frames_per_s, paced_frames_per_s) = (60.0 / share, 60.0);
        CopyRow {
            from: MemoryMode::WriteBack,
            to: MemoryMode::WriteBack,
            method,
            requested: MemoryMode::WriteBack,
            mapped: None,
            effective: Some(effective),
            backend: "anonymous".to_owned(),
            device: None,
            blocks: Vec::new(),
            plateau: None,
            frame: Some(FrameCost {
                frames_per_s,
                frame_time_share: share,
                paced_frames_per_s,
                cpu_share: share,
            }),
        }
    }

    /// A cell whose first passes take about `pass` ns, in eight repeats.
    fn cell(name: &str, pass: u64) -> CellResult {
        let repeat = |index: u32| RepeatResult {
            repeat: index + 1,
            block: index,
            probes: vec![RepeatProbe {
                probe: "access/first".to_owned(),
                cpu: CpuId(1),
                samples: 1000,
                quantiles: Some(Quantiles { p50_ns: pass + u64::from(index % 3), ..Quantiles::default() }),
                ..RepeatProbe::default()
            }],
            ..RepeatResult::default()
        };
        let loads = if name == "idle" { Vec::new() } else { vec![name.to_owned()] };
        CellResult {
            name: name.to_owned(),
            loads,
            repeats: (0..8).map(repeat).collect(),
            ..CellResult::default()
        }
    }

    fn choice(rows: Vec<CopyRow>, cells: &[CellResult]) -> Answer {
        let table = CopyTable { rows, ..CopyTable::default() };
        copy_choice(&plan(), Some(&table), cells).unwrap()
    }

    const WB: MemoryMode = MemoryMode::WriteBack;

    #[test]
    fn the_cheapest_that_fits_is_chosen() {
        // It costs less on another CPU, which does not compare the methods.
        let elsewhere = cell("neighbour-memcpy", 1050);
        let cells = [
            cell("idle", 1000),
            cell("memcpy", 3000),
            cell("non-temporal", 1500),
            cell("flushed", 1100),
            elsewhere,
        ];
        let rows = vec![
            row(CopyMethod::Memcpy, 0.02, WB),
            row(CopyMethod::Sse2Nt, 0.01, WB),
            // It would disturb the neighbours least, but takes longer than a frame.
            row(CopyMethod::Clflushopt, 1.2, WB),
        ];
        let answer = choice(rows, &cells);
        assert_eq!(answer.outcome, AnswerOutcome::Yes);
        assert!(answer.sentence.starts_with("wb-wb/sse2-nt: 1.00 %"), "{}", answer.sentence);
    }

    #[test]
    fn methods_that_cost_the_same_are_not_ranked() {
        let cells = [cell("idle", 1000), cell("memcpy", 3001), cell("non-temporal", 3000)];
        let answer =
            choice(vec![row(CopyMethod::Memcpy, 0.02, WB), row(CopyMethod::Sse2Nt, 0.01, WB)], &cells);
        assert_eq!(answer.outcome, AnswerOutcome::CannotTell);
        assert!(
            answer.sentence.contains("memcpy") && answer.sentence.contains("sse2-nt"),
            "{}",
            answer.sentence
        );
    }

    #[test]
    fn rows_of_another_backend_prove_nothing() {
        let mut plan = plan();
        let LoadKind::Copy(load) = &mut plan.load[0].kind else { panic!() };
        load.backend = Some("dumb".to_owned());
        let table = CopyTable { rows: vec![row(CopyMethod::Memcpy, 0.02, WB)], ..CopyTable::default() };
        let cells = [cell("idle", 1000), cell("memcpy", 1100)];
        let answer = copy_choice(&plan, Some(&table), &cells).unwrap();
        assert_eq!(answer.outcome, AnswerOutcome::NotMeasured);
    }

    #[test]
    fn methods_that_do_not_fit_or_are_not_proven_are_never_chosen() {
        let cells = [cell("idle", 1000), cell("memcpy", 1000)];
        for row in [row(CopyMethod::Memcpy, 1.5, WB), row(CopyMethod::Memcpy, 0.5, MemoryMode::Uncached)] {
            assert_eq!(choice(vec![row], &cells).outcome, AnswerOutcome::NotMeasured);
        }
        assert!(copy_choice(&Plan::named("other"), Some(&CopyTable::default()), &cells).is_none());
    }
}
