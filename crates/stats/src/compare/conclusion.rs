//! What a comparison says as a whole.

use super::RUNS_PERMUTED_MIN;
use super::values::is_cell_of_cpu;
use crate::contrast::SIGNIFICANCE;
use whylate_core::WarningCode;
use whylate_core::plan::{SeriesStatistic, Statistic};
use whylate_core::result::{CompareOutcome, CompareResult, Outcome, RunContrast};

/// The statistics that a comparison may be decided by instead.
const QUANTILES: [Statistic; 4] = [Statistic::P99, Statistic::P999, Statistic::Median, Statistic::Max];

/// The worst outcome of the statistic that decides; without a deciding statistic in common there is no conclusion.
/// `lacking` says which results lack it: apart from a regression elsewhere, they leave the outcome open.
pub fn conclude(result: &mut CompareResult, primary: Option<&SeriesStatistic>, lacking: &[String]) {
    let deciding: Vec<&RunContrast> = result.contrasts.iter().filter(|it| it.comparison.primary).collect();
    let is = |outcome: CompareOutcome| {
        move |it: &&&RunContrast| CompareOutcome::from(it.comparison.outcome) == outcome
    };
    let count = |outcome: CompareOutcome| deciding.iter().filter(is(outcome)).count();
    let all = deciding.len();
    let all_better = count(CompareOutcome::Better) > 0 && count(CompareOutcome::CannotTell) == 0;
    let runs = deciding.iter().map(|it| it.values[0].len().min(it.values[1].len())).min().unwrap_or_default();
    let cells = if all == 1 { "1 cell".to_owned() } else { format!("{all} cells") };
    let what = primary.map(|it| it.to_string()).unwrap_or_else(|| "the deciding statistic".to_owned());
    let (outcome, reason) = if result.contrasts.is_empty() {
        (CompareOutcome::Nothing, "the sides have no cell and probe in common".to_owned())
    } else if all == 0 {
        let why = match lacking.is_empty() {
            true => format!("no cell has {what} on both sides"),
            false => format!("{what}: {}", lacking.join("; ")),
        };
        (CompareOutcome::CannotTell, format!("{why}; choose another --statistic"))
    } else if count(CompareOutcome::Worse) > 0 {
        (CompareOutcome::Worse, format!("{what} is worse in {} of {cells}", count(CompareOutcome::Worse)))
    } else if !(lacking.is_empty() || all_better) {
        (CompareOutcome::CannotTell, format!("{what}: cannot tell, because {}", lacking.join("; ")))
    } else if count(CompareOutcome::Equivalent) == all {
        (
            CompareOutcome::Equivalent,
            format!("{what}: no difference above {:.0} % in {cells}", result.margin * 100.0),
        )
    } else if count(CompareOutcome::Better) > 0 && count(CompareOutcome::CannotTell) == 0 {
        (CompareOutcome::Better, format!("{what} is better in {} of {cells}", count(CompareOutcome::Better)))
    } else {
        (
            CompareOutcome::CannotTell,
            format!(
                "{what}: cannot tell in {} of {cells}{}",
                count(CompareOutcome::CannotTell),
                too_few(runs, all)
            ),
        )
    };
    let reason = match outcome {
        CompareOutcome::CannotTell | CompareOutcome::Better | CompareOutcome::Equivalent => {
            format!("{reason}{}", decided_by_others(result, outcome))
        }
        _ => reason,
    };
    let incomplete =
        result.warnings.iter().filter(|it| it.code == WarningCode::ComparedIncomplete.name()).count();
    let reason = match incomplete {
        0 => reason,
        1 => format!("{reason}; one run is incomplete"),
        more => format!("{reason}; {more} runs are incomplete"),
    };
    (result.outcome, result.reason) = (outcome, reason);
}

/// The most statistics that the reason names.
const NAMED: usize = 3;

/// The statistics that are worse or better, but do not decide: `; timer p99 is worse 4.02 × and does not decide (…)`.
fn decided_by_others(result: &CompareResult, outcome: CompareOutcome) -> String {
    // A statistic that some result lacks cannot decide either, nor one of a single CPU.
    let can_decide = |it: &RunContrast| {
        let of_results = |other: &&RunContrast| {
            let (own, other_one) = (&it.comparison, &other.comparison);
            !is_cell_of_cpu(&other.of_cell)
                && (&own.probe, own.statistic) == (&other_one.probe, other_one.statistic)
        };
        let mut all = result.contrasts.iter().filter(of_results).peekable();
        all.peek().is_some() && all.all(|other| other.comparison.refused.is_none())
    };
    let is_clear = |it: &&RunContrast| {
        let comparison = &it.comparison;
        let is_better = comparison.outcome == Outcome::Better && outcome == CompareOutcome::CannotTell;
        let is_decided = comparison.outcome == Outcome::Worse || is_better;
        is_decided
            && !comparison.primary
            && comparison.ratio.is_some()
            && QUANTILES.contains(&comparison.statistic)
            && can_decide(it)
    };
    let described = |it: &RunContrast| {
        let comparison = &it.comparison;
        let word = if comparison.outcome == Outcome::Worse { "worse" } else { "better" };
        let ratio = comparison.ratio.unwrap_or_default();
        let cell = if it.of_cell.is_empty() { String::new() } else { format!(" in {}", it.of_cell) };
        let bound = match it.above_histogram {
            [0, 0] => "",
            [0, _] => "at least ",
            _ => "at most ",
        };
        format!("{} {}{cell} is {word} ({bound}{ratio:.2} ×)", comparison.probe, comparison.statistic)
    };
    let clear: Vec<&RunContrast> = result.contrasts.iter().filter(is_clear).collect();
    let Some(first) = clear.first() else { return String::new() };
    let named: Vec<String> = clear.iter().take(NAMED).map(|it| described(it)).collect();
    format!(
        "; {}, but does not decide: for the next comparison, --statistic '{} {}' makes it decide",
        named.join(", "),
        first.comparison.probe,
        first.comparison.statistic
    )
}

/// If no difference of any size can be shown in that number of cells: how many runs of each side can show one.
fn too_few(runs: usize, cells: usize) -> String {
    // The correction for several cells (Holm) multiplies the smallest p-value by their number.
    let shows = |runs: &usize| least_p(*runs) * cells as f64 <= SIGNIFICANCE;
    if runs < RUNS_PERMUTED_MIN || shows(&runs) {
        return String::new();
    }
    let enough = (runs + 1..).find(shows).unwrap_or(runs);
    format!("; {runs} runs of each side cannot show a difference in {cells} cells, {enough} can")
}

/// The smallest p-value that this number of runs on each side can have: the two most extreme ways to divide them, among all ways.
fn least_p(runs: usize) -> f64 {
    let ways: f64 = (1..=runs).map(|nth| (runs + nth) as f64 / nth as f64).product();
    2.0 / ways
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_cells_need_more_runs() {
        assert!((least_p(4) - 2.0 / 70.0).abs() < 1e-12 && (least_p(5) - 2.0 / 252.0).abs() < 1e-12);
        assert_eq!(too_few(4, 1), "");
        assert_eq!(too_few(4, 2), "; 4 runs of each side cannot show a difference in 2 cells, 5 can");
        // As in the help of `compare`.
        assert_eq!([too_few(5, 6), too_few(6, 23)], ["", ""]);
        assert!(too_few(5, 7).ends_with("6 can") && too_few(6, 24).ends_with("7 can"));
        assert_eq!(too_few(1, 2), "", "single runs need a history");
    }
}
