//! What a comparison says as a whole.

use whylate_core::WarningCode;
use whylate_core::plan::SeriesStatistic;
use whylate_core::result::{CompareOutcome, CompareResult, RunContrast};

/// The worst outcome of the statistic that decides; without a deciding statistic in common there is no conclusion.
pub fn conclude(result: &mut CompareResult, primary: Option<&SeriesStatistic>) {
    let deciding: Vec<&RunContrast> = result.contrasts.iter().filter(|it| it.comparison.primary).collect();
    let is = |outcome: CompareOutcome| {
        move |it: &&&RunContrast| CompareOutcome::from(it.comparison.outcome) == outcome
    };
    let count = |outcome: CompareOutcome| deciding.iter().filter(is(outcome)).count();
    let all = deciding.len();
    let cells = if all == 1 { "1 cell".to_owned() } else { format!("{all} cells") };
    let what = primary.map(|it| it.to_string()).unwrap_or_else(|| "the deciding statistic".to_owned());
    let (outcome, reason) = if result.contrasts.is_empty() {
        (CompareOutcome::Nothing, "the sides have no cell and probe in common".to_owned())
    } else if all == 0 {
        (CompareOutcome::CannotTell, format!("no cell has {what} on both sides; choose another --statistic"))
    } else if count(CompareOutcome::Worse) > 0 {
        (CompareOutcome::Worse, format!("{what} is worse in {} of {cells}", count(CompareOutcome::Worse)))
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
            format!("{what}: cannot tell in {} of {cells}", count(CompareOutcome::CannotTell)),
        )
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
