//! Answers to the questions of a plan: yes, no, or why neither.

use crate::compare::contrasted;
use crate::comparisons::{comparison_between, contrasts};
use std::collections::HashMap;
use whylate_core::figure;
use whylate_core::figure::counted;
use whylate_core::plan::{AnswerPlan, CellPlan, CellReference, Expected, Plan, SeriesStatistic, Share};
use whylate_core::result::{
    Answer, AnswerOutcome, CauseChange, CauseDifference, CellResult, Comparison, Outcome,
};

/// Answers the questions of the plan; without any, those that its cells ask.
///
/// `no` needs evidence too: the effect is smaller than what matters, or goes the other way. `unfinished`: see
/// [`so_far`].
pub fn answers(
    cells: &[CellResult],
    plan: &Plan,
    comparisons: &[Comparison],
    causes: &[CauseDifference],
    unfinished: Option<u32>,
) -> Vec<Answer> {
    let Some(primary) = plan.primary_statistic() else { return Vec::new() };
    let generated: Vec<AnswerPlan>;
    let questions = if plan.answer.is_empty() {
        generated = contrasts(plan)
            .into_iter()
            .map(|(baseline, cell)| question(&plan.cell[baseline], &plan.cell[cell], &primary))
            .collect();
        &generated
    } else {
        &plan.answer
    };
    let known = Known {
        planned: plan.cell.iter().map(|cell| (cell.name(), cell)).collect(),
        measured: cells.iter().map(|cell| (cell.name.as_str(), cell)).collect(),
        plan,
        comparisons,
        causes,
        unfinished,
    };
    questions.iter().map(|question| answer(question, &known, &primary)).collect()
}

/// The cells by name: a plan may have ten thousand.
struct Known<'a> {
    planned: HashMap<String, &'a CellPlan>,
    measured: HashMap<&'a str, &'a CellResult>,
    plan: &'a Plan,
    comparisons: &'a [Comparison],
    causes: &'a [CauseDifference],
    /// The planned repeats of each cell, for a run that has not ended.
    unfinished: Option<u32>,
}

/// Withdraws every verdict of a run that has not ended. The number of repeats was planned, and a test after each of
/// them would find differences by chance. `planned` are the repeats of each cell.
pub fn so_far(comparisons: &mut [Comparison], causes: &mut [CauseDifference], planned: u32) {
    for it in comparisons {
        it.outcome = Outcome::CannotTell;
        it.more_repeats = None;
        it.refused = Some(format!("so far {} of {planned} repeats are done", it.repeats));
    }
    for it in causes {
        it.change = CauseChange::CannotTell;
        it.more_repeats = None;
    }
}

impl<'a> Known<'a> {
    fn find(&self, reference: &CellReference) -> Option<&'a CellPlan> {
        match reference {
            CellReference::Name(name) => self.planned.get(name).copied(),
            CellReference::Parts(_) => reference.find(&self.plan.cell),
        }
    }
}

/// The question that two cells answer: about what the second has and the first lacks.
fn question(baseline: &CellPlan, cell: &CellPlan, primary: &SeriesStatistic) -> AnswerPlan {
    let more = |of: fn(&CellPlan) -> &Vec<String>| -> Vec<&str> {
        of(cell).iter().filter(|name| !of(baseline).contains(name)).map(String::as_str).collect()
    };
    let (loads, treatments) = (more(|cell| &cell.loads), more(|cell| &cell.treatments));
    let under = if baseline.loads.is_empty() {
        String::new()
    } else {
        format!(" under {}", baseline.loads.join(" and "))
    };
    let with = if baseline.treatments.is_empty() {
        String::new()
    } else {
        format!(" with {}", baseline.treatments.join(" and "))
    };
    let question = match (loads.is_empty(), treatments.is_empty()) {
        (false, true) => format!("Does {} raise {primary}{under}{with}?", loads.join(" and ")),
        (true, false) => format!("Does {} lower {primary}{under}{with}?", treatments.join(" and ")),
        _ => format!("Does {primary} differ between {} and {}?", baseline.name(), cell.name()),
    };
    let between = [CellReference::Name(baseline.name()), CellReference::Name(cell.name())];
    AnswerPlan { question, between, statistic: None, matters: None, expect: None }
}

fn answer(question: &AnswerPlan, known: &Known<'_>, primary: &SeriesStatistic) -> Answer {
    let plan = known.plan;
    let statistic = question.statistic.as_ref().unwrap_or(primary);
    let not_measured = |sentence: String| Answer {
        question: question.question.clone(),
        outcome: AnswerOutcome::NotMeasured,
        sentence,
        comparison: None,
        causes: Vec::new(),
    };
    let [Some(first), Some(second)] = question.between.each_ref().map(|it| known.find(it)) else {
        return not_measured("Not measured: the plan does not have the cells of this question.".to_owned());
    };
    let result = |cell: &CellPlan| known.measured.get(cell.name().as_str()).copied();
    let (Some(baseline), Some(cell)) = (result(first), result(second)) else {
        return not_measured("Not measured: the run does not have the cells of this question.".to_owned());
    };
    if let Some((skipped, reason)) =
        [baseline, cell].iter().find_map(|cell| Some((&cell.name, cell.skipped.as_ref()?)))
    {
        return not_measured(format!("Not measured: {skipped} did not run: {reason}."));
    }
    let matters = question.matters.unwrap_or(plan.margin);
    let is_asked = |it: &&Comparison| {
        (&it.baseline, &it.cell, it.statistic) == (&baseline.name, &cell.name, statistic.statistic)
            && statistic.is_of(&it.probe)
    };
    let listed = known.comparisons.iter().find(is_asked);
    let decided = listed.filter(|it| it.primary && statistic == primary && matters == plan.margin);
    let comparison = match decided {
        Some(comparison) => Some(comparison.clone()),
        None => comparison_between(baseline, cell, statistic, matters.0).map(|mut found| {
            if let Some(listed) = listed {
                found = not_surer_than(found, listed, matters.0 <= plan.margin.0);
            }
            if let Some(planned) = known.unfinished {
                so_far(std::slice::from_mut(&mut found), &mut [], planned);
            }
            found
        }),
    };
    let Some(comparison) = comparison else {
        return not_measured(format!(
            "Not measured: one of the two cells has no complete repeat with {statistic}."
        ));
    };
    let expected = question.expect.unwrap_or_else(|| expected(first, second));
    let outcome = match (comparison.outcome, expected) {
        (Outcome::CannotTell, _) => AnswerOutcome::CannotTell,
        (Outcome::Better, Expected::Lower | Expected::Different)
        | (Outcome::Worse, Expected::Higher | Expected::Different) => AnswerOutcome::Yes,
        _ => AnswerOutcome::No,
    };
    let running = known.measured.values().filter(|cell| cell.skipped.is_none()).count() as u64;
    let round_ns = plan.repeat_duration().0.saturating_mul(running);
    let sentence = sentence(outcome, &comparison, matters, round_ns);
    let mut causes = match [first, second].iter().all(|cell| plan.looks_for_causes(&cell.name())) {
        true => causes_between(baseline, cell, known.causes),
        false => Vec::new(),
    };
    if let Some(planned) = known.unfinished {
        so_far(&mut [], &mut causes, planned);
    }
    let is_shown = outcome == AnswerOutcome::CannotTell && is_shown_by_cause(&causes, expected);
    let sentence = match changes(&causes) {
        Some(changes) if is_shown => {
            let whole = sentence.replacen("Cannot", "cannot", 1);
            format!("By cause, yes: {} {changes}. By the statistic: {whole}", cell.name)
        }
        Some(changes) => format!("{sentence} By cause, {} {changes}.", cell.name),
        None => format!("{sentence}{}", unchanged(&causes, round_ns)),
    };
    causes.retain(CauseDifference::is_change);
    Answer { question: question.question.clone(), outcome, sentence, comparison: Some(comparison), causes }
}

/// The comparison for an answer. The table has the same one with a p-value that is corrected for all its comparisons, and the answer
/// claims no more than the table does.
fn not_surer_than(found: Comparison, listed: &Comparison, is_as_strict: bool) -> Comparison {
    let is_surer = match found.outcome {
        Outcome::Better | Outcome::Worse => true,
        // With a larger margin, the effect may be known to be smaller than this margin.
        Outcome::Equivalent => is_as_strict,
        Outcome::CannotTell => false,
    };
    let p_value = found.p_value.max(listed.p_value);
    if listed.outcome != Outcome::CannotTell || !is_surer {
        return Comparison { p_value, ..found };
    }
    let Comparison { more_repeats, refused, outcome, .. } = listed.clone();
    Comparison { p_value, more_repeats, refused, outcome, ..found }
}

/// The causes of the two cells. Cells that the plan does not compare are compared here.
fn causes_between(
    baseline: &CellResult,
    cell: &CellResult,
    causes: &[CauseDifference],
) -> Vec<CauseDifference> {
    let is_own = |it: &&CauseDifference| it.side == cell.name && it.baseline.as_ref() == Some(&baseline.name);
    let known: Vec<CauseDifference> = causes.iter().filter(is_own).cloned().collect();
    if known.is_empty() { contrasted(&[(baseline, cell)]) } else { known }
}

/// Whether causes change, all of them as expected.
fn is_shown_by_cause(causes: &[CauseDifference], expected: Expected) -> bool {
    let is_expected = |change: CauseChange| match expected {
        Expected::Higher => matches!(change, CauseChange::New | CauseChange::More),
        Expected::Lower => matches!(change, CauseChange::Gone | CauseChange::Less),
        Expected::Different => true,
    };
    let mut changed = causes.iter().filter(|it| it.is_change());
    changed.clone().any(CauseDifference::is_named) && changed.all(|it| is_expected(it.change))
}

/// What the second cell adds and removes; `None` where that is nothing.
fn changes(causes: &[CauseDifference]) -> Option<String> {
    let one = |it: &CauseDifference| format!("{} {} (late time {} per s)", it.verb(), it.cause, it.rates());
    let changed: Vec<String> = causes.iter().filter(|it| it.is_change()).map(one).collect();
    (!changed.is_empty()).then(|| changed.join(" and "))
}

/// Says that no cause changes, or how many more repeats would decide about the cause that is nearest to a claim.
fn unchanged(causes: &[CauseDifference], round_ns: u64) -> String {
    let open = causes.iter().filter(|it| it.change == CauseChange::CannotTell);
    let named = open.clone().filter(|it| it.is_named());
    match named.filter_map(|it| Some((it.more_repeats?, &it.cause))).min() {
        _ if causes.is_empty() => String::new(),
        Some((more, cause)) => {
            let time = figure::nanoseconds(round_ns.saturating_mul(u64::from(more)));
            format!(
                " By cause, no change is shown; {cause} is too rare. About {}, taking {time}, would tell.",
                counted(more, "more repeat")
            )
        }
        None if open.clone().count() == 0 => " By cause, nothing changes.".to_owned(),
        None => match open.map(largest_possible).max_by(|(a, _), (b, _)| a.total_cmp(b)) {
            Some((most, cause)) if most.is_finite() => format!(
                " By cause, no change is shown; any change of the late time is below {} per s ({cause}).",
                figure::nanoseconds(most as u64)
            ),
            _ => " By cause, no change is shown: too few repeats for an interval.".to_owned(),
        },
    }
}

/// How much a cause may have changed, in ns per s; infinite where the repeats do not bound it.
fn largest_possible(cause: &CauseDifference) -> (f64, &str) {
    let ends = cause.difference_low.zip(cause.difference_high);
    (ends.map_or(f64::INFINITY, |(low, high)| low.abs().max(high.abs())), &cause.cause)
}

/// A treatment more should help, a load more should hurt.
fn expected(baseline: &CellPlan, cell: &CellPlan) -> Expected {
    let has_more = |of: fn(&CellPlan) -> &Vec<String>| of(cell).len() > of(baseline).len();
    match (has_more(|cell| &cell.loads), has_more(|cell| &cell.treatments)) {
        (true, false) => Expected::Higher,
        (false, true) => Expected::Lower,
        _ => Expected::Different,
    }
}

/// With fewer repeats no comparison can decide: two blocks of two repeats of each cell can be ordered in 36 ways, and
/// 2 of them are as extreme as the most extreme one.
const REPEATS_MIN: u32 = 5;

/// `round_ns` is how long one repeat of all cells takes.
fn sentence(outcome: AnswerOutcome, comparison: &Comparison, matters: Share, round_ns: u64) -> String {
    let Comparison { probe, statistic, .. } = comparison;
    let time = |repeats: u32| figure::nanoseconds(round_ns.saturating_mul(u64::from(repeats)));
    let more_repeats = |more: u32| format!("{}, taking {}", counted(more, "more repeat"), time(more));
    let [before, after] =
        [comparison.baseline_value, comparison.cell_value].map(|it| figure::value(*statistic, it));
    let ratio = comparison.ratio.map(|ratio| {
        let ends = (comparison.ratio_low, comparison.ratio_high);
        let interval = figure::between(ends, |end| format!("{end:.2}"));
        format!(" ({ratio:.2} times repeat by repeat, 95 % interval: {interval})")
    });
    let change = format!("{probe} {statistic} {before} -> {after}{}", ratio.unwrap_or_default());
    match (outcome, comparison.outcome) {
        (AnswerOutcome::Yes, _) => format!("Yes: {change}."),
        (AnswerOutcome::No, Outcome::Equivalent) => {
            format!("No: any effect is below {matters}: {change}.")
        }
        (AnswerOutcome::No, _) => format!("No, the change goes in the opposite direction: {change}."),
        _ => {
            let why = match (&comparison.refused, comparison.more_repeats) {
                (Some(reason), _) => format!("; {reason}"),
                (None, _) if comparison.repeats < REPEATS_MIN => {
                    let least = REPEATS_MIN - comparison.repeats;
                    format!("; an answer needs at least {}", more_repeats(least))
                }
                (None, Some(more)) => {
                    format!("; about {}, would tell", more_repeats(more))
                }
                (None, None) => String::new(),
            };
            format!("Cannot tell after {}: {change}{why}.", counted(comparison.repeats, "repeat"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_not_surer_than_the_same_comparison_in_the_table() {
        let comparison = |outcome, p_value| {
            let text = r#"{"cell":"b","baseline":"a","probe":"timer","statistic":"p99","unit":"ns","primary":true,"repeats":5,
                "baseline_value":2,"cell_value":1,"ratio":0.5,"ratio_low":0.4,"ratio_high":0.6,"p_value":1,"outcome":"better"}"#;
            Comparison { outcome, p_value, ..serde_json::from_str(text).unwrap() }
        };
        let found = || comparison(Outcome::Better, 0.028);
        let open = not_surer_than(found(), &comparison(Outcome::CannotTell, 0.056), true);
        assert_eq!((open.outcome, open.p_value, open.ratio), (Outcome::CannotTell, 0.056, Some(0.5)));
        let same = not_surer_than(found(), &comparison(Outcome::Better, 0.04), true);
        assert_eq!((same.outcome, same.p_value), (Outcome::Better, 0.04));
        let equivalent = |is_as_strict| {
            let found = comparison(Outcome::Equivalent, 1.0);
            not_surer_than(found, &comparison(Outcome::CannotTell, 1.0), is_as_strict).outcome
        };
        assert_eq!([true, false].map(equivalent), [Outcome::CannotTell, Outcome::Equivalent]);
    }
}
