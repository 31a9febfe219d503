//! From the steps of a search to its answer.

use super::{Claim, ClaimEnd, Figure, Rules, Search, interval, removed_in};
use crate::comparisons::values_of;
use crate::contrast::median;
use crate::error::StatsError;
use std::collections::BTreeMap;
use whylate_core::SeriesName;
use whylate_core::figure::{between, counted, late_rate};
use whylate_core::order::InOrder;
use whylate_core::plan::{SeriesStatistic, Statistic};
use whylate_core::result::{
    CauseKind, CellResult, FIX_FORMAT, FixAnswer, FixArmResult, FixClaim, FixGoal, FixMode, FixOutcome,
    FixPhase, FixRegistration, FixRemoval, FixResult, FixStep, LedgerRow, RunState,
};

/// The statistics that must not become worse.
const GUARDED: [Statistic; 4] = [Statistic::Median, Statistic::P99, Statistic::P999, Statistic::Max];
const SHOWN: f64 = 0.05;

/// The goal's value in one repeat of a cell; `None` without such a statistic.
pub fn figure_of(cell: &CellResult, repeat: u32, goal: &FixGoal) -> Option<Figure> {
    figure(&alone(cell, repeat), goal)
}

/// The same including the gaps that the scheduler makes on purpose. They are no latency of the machine and are left
/// out when cells are compared, but the task feels them, and a treatment may end them.
pub fn felt_figure_of(cell: &CellResult, repeat: u32, goal: &FixGoal) -> Option<Figure> {
    let mut alone = alone(cell, repeat);
    alone.repeats.iter_mut().flat_map(|it| &mut it.probes).for_each(|probe| probe.throttled = None);
    figure(&alone, goal)
}

/// One repeat of the cell.
fn alone(cell: &CellResult, repeat: u32) -> CellResult {
    let repeats = cell.repeats.iter().filter(|it| it.repeat == repeat).cloned().collect();
    CellResult { rates: cell.rates.clone(), repeats, ..CellResult::default() }
}

fn figure(alone: &CellResult, goal: &FixGoal) -> Option<Figure> {
    let goal = SeriesStatistic { series: goal.series.clone()?, statistic: goal.statistic };
    let is_goal = |series: &str, statistic: Statistic| goal.statistic == statistic && goal.is_of(series);
    let values = values_of(alone, &is_goal);
    let mut figure = Figure { value: f64::NEG_INFINITY, ..Figure::default() };
    for ((series, statistic), observed) in values {
        let Some(one) = observed.first() else { continue };
        let is_judged = SeriesName::of(series).facts().is_some_and(|facts| !facts.companion);
        if is_goal(series, statistic) {
            figure.value = figure.value.max(one.value);
        } else if GUARDED.contains(&statistic) && is_judged {
            figure.others.insert(format!("{series} {statistic}"), one.value);
        }
    }
    figure.value.is_finite().then_some(figure)
}

/// The late time of one repeat by cause, for the goal's series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LateTimes {
    /// In ns per measured second, of each row of the ledger.
    pub causes: BTreeMap<String, f64>,
    /// All late time that neither the hypervisor nor the firmware took.
    pub own: f64,
}

/// The late time of one repeat; `None` if nothing was measured.
pub fn late_times(cell: &CellResult, repeat: u32, goal: &FixGoal) -> Option<LateTimes> {
    let goal = SeriesStatistic { series: goal.series.clone()?, statistic: goal.statistic };
    let repeat = cell.repeats.iter().find(|it| it.repeat == repeat)?;
    let own = repeat.probes.iter().filter(|it| goal.is_of(&it.probe));
    let measured_ns: u64 = own.map(|it| it.measured_ns).sum();
    let mut late = LateTimes::default();
    for row in repeat.ledger.iter().filter(|row| goal.is_of(&row.probe)) {
        let rate = row.total_ns as f64 * 1e9 / measured_ns as f64;
        *late.causes.entry(row.name()).or_default() += rate;
        late.own += if is_outside(row) { 0.0 } else { rate };
    }
    (measured_ns > 0).then_some(late)
}

/// Whether the hypervisor or the firmware took the time.
pub fn is_outside(row: &LedgerRow) -> bool {
    matches!(row.kind, Some(CauseKind::Steal | CauseKind::HostStall | CauseKind::Smi))
}

/// The search as its steps left it.
///
/// # Errors
/// [`StatsError::OtherSearch`] when a step does not follow from these rules.
pub fn replay(registration: &FixRegistration, steps: &[FixStep]) -> Result<Search, StatsError> {
    let rules = Rules {
        margin: registration.margin.0,
        alpha: registration.alpha,
        seed: registration.seed,
        below: registration.goal.below.map(|below| below.0 as f64),
        first: registration.first as usize,
        keeps_goal: registration.keeps_goal,
    };
    let removes = || registration.arms.iter().map(|arm| arm.removes.iter().cloned().collect()).collect();
    let mut search = match registration.mode {
        FixMode::Search => Search::by_cause(rules, removes()),
        FixMode::Verify => Search::of_whole_by_cause(rules, removes()),
        FixMode::Audit => Search::of_settings(rules, registration.arms.len()),
    };
    for (index, step) in steps.iter().enumerate() {
        let trial = search.next().ok_or(StatsError::OtherSearch(index + 1))?;
        if trial.phase != step.phase || names(registration, &trial.arms) != step.treatments {
            return Err(StatsError::OtherSearch(index + 1));
        }
        match (step.value, &step.error) {
            (Some(value), None) => {
                let (others, rates, costs) = (step.others.clone(), step.rates.clone(), step.costs.clone());
                search.take(&Figure { value, others, rates, causes: step.causes.clone(), costs });
            }
            (_, why) => failed(&mut search, registration, why.as_deref().unwrap_or("no value was measured")),
        }
    }
    Ok(search)
}

/// Tells a search that the trial of [`Search::next`] could not be measured.
pub fn failed(search: &mut Search, registration: &FixRegistration, why: &str) {
    // The message begins with what cannot be applied: `sysctl-3: cannot set …`.
    let is_to_blame =
        |arm: &usize| why.split(": ").any(|part| part == registration.arms[*arm].treatment.name);
    let arms = search.next().map(|trial| trial.arms).unwrap_or_default();
    match arms.into_iter().find(is_to_blame) {
        Some(arm) if registration.mode == FixMode::Audit => search.drop_setting(arm, why),
        _ => search.fail(why),
    }
}

fn names(registration: &FixRegistration, arms: &[usize]) -> Vec<String> {
    arms.iter().filter_map(|arm| Some(registration.arms.get(*arm)?.treatment.name.clone())).collect()
}

/// The result of a search. `state` is that of its run; a search that has ended shows what it proved until then.
pub fn answer(
    registration: &FixRegistration,
    steps: &[FixStep],
    state: RunState,
) -> Result<FixResult, StatsError> {
    let mut search = replay(registration, steps)?;
    let is_over = search.next().is_none();
    if !is_over && state == RunState::Complete {
        search.stop();
    }
    let claims: Vec<FixClaim> = search.claims().iter().map(|claim| shown(claim, registration)).collect();
    let mut recommended = names(registration, search.base());
    let results = results(&search, registration, &claims, &recommended);
    if registration.mode == FixMode::Audit {
        // That a setting is in use already is no reason to install it.
        let helps = |it: &&FixArmResult| it.outcome == FixOutcome::Helps;
        recommended = results.iter().filter(helps).map(|it| it.id.clone()).collect();
    }
    let mut result = FixResult {
        format: FIX_FORMAT.to_owned(),
        run: String::new(),
        state,
        answer: FixAnswer::Unfinished,
        sentence: String::new(),
        registration: registration.clone(),
        recommended,
        reached: None,
        results,
        claims,
        repeats: steps.len() as u32,
        took_ns: steps.iter().map(|step| step.took_ns).sum(),
        files: Vec::new(),
        by_hand: Vec::new(),
        restored: None,
        warnings: Vec::new(),
    };
    result.reached = reached(&result);
    (result.answer, result.sentence) = sentence(&result, is_over);
    Ok(result)
}

/// The newest claim about the recommended set.
fn whole(result: &FixResult) -> Option<&FixClaim> {
    let is_its = |claim: &&FixClaim| claim.candidate == result.recommended && !claim.candidate.is_empty();
    result.claims.iter().rev().find(is_its)
}

fn reached(result: &FixResult) -> Option<bool> {
    let below = result.registration.goal.below?.0 as f64;
    Some(whole(result)?.pairs.iter().all(|[_, with]| *with < below))
}

/// `lowers timer p99 by 23 %`, or what is removed and the statistic: `removes thread: thief (3.1 ms per s → 0 in 7 of
/// 7 pairs); timer p99 0.93 × (0.71 to 1.20): cannot tell yet`.
fn effect(claim: &FixClaim, goal: &FixGoal, margin: f64, still: &str) -> String {
    let by = claim.ratio.map_or(0.0, |ratio| (1.0 - ratio) * 100.0);
    let lowers = || format!("{still}lowers {} by {by:.0} %", goal.words());
    let Some(removal) = claim.removal.as_ref().filter(|it| it.proved) else { return lowers() };
    let verb = if removal.after_ns_per_s > 0.0 { "removes most of" } else { "removes" };
    let removed = format!("{still}{verb} {}", late_time(removal));
    if claim.lowers_goal == Some(true) {
        return format!("{} and {removed}", lowers());
    }
    let within = |end: Option<f64>| end.is_some_and(|end| end.ln().abs() <= margin.ln_1p());
    let is_same = within(claim.ratio_low) && within(claim.ratio_high);
    let word = if is_same { "no difference above the margin" } else { "cannot tell yet" };
    format!("{removed}; {}: {word}", ratio(claim, goal))
}

/// `thread: thief (late time 3.1 ms per s → 0, in 7 of 7 pairs)`.
fn late_time(removal: &FixRemoval) -> String {
    let causes = match &removal.causes[..] {
        [one] => one.clone(),
        [first, more @ ..] => format!("{first} and {}", counted(more.len(), "other cause")),
        [] => String::new(),
    };
    format!(
        "{causes} (late time {} → {}, in {} of {} pairs)",
        late_rate(removal.before_ns_per_s),
        late_rate(removal.after_ns_per_s),
        removal.removed_in,
        removal.tells_in
    )
}

/// `timer p99 0.93 × (0.71 to 1.20)`.
fn ratio(claim: &FixClaim, goal: &FixGoal) -> String {
    let times = |ratio: f64| format!("{ratio:.2}");
    let ends = between((claim.ratio_low, claim.ratio_high), times);
    format!("{} {} × ({ends})", goal.words(), times(claim.ratio.unwrap_or(1.0)))
}

/// Why a treatment that removes its cause is not proved: both figures, in one sentence.
fn goal_is_worse(claim: &FixClaim, goal: &FixGoal) -> Option<String> {
    let removal = claim.removal.as_ref()?;
    let rarer = format!("its cause is rarer: {}", late_time(removal));
    Some(format!("{rarer}, but the goal is worse: {}", ratio(claim, goal)))
}

fn sentence(result: &FixResult, is_over: bool) -> (FixAnswer, String) {
    let registration = &result.registration;
    let goal = &registration.goal;
    let is_open = !is_over && result.state != RunState::Complete;
    let whole = whole(result);
    let (answer, text) = match whole {
        _ if !registration.begun && result.state == RunState::Complete => {
            (FixAnswer::NothingNeeded, format!("the goal `{}` is met already", goal.words()))
        }
        _ if !registration.begun => (FixAnswer::Unfinished, "no treatment was tried yet".to_owned()),
        _ if registration.arms.is_empty() => {
            let text = match registration.mode {
                FixMode::Audit => "none of these settings can be tried while this machine runs",
                _ => "no treatment that can be tried here acts on the measured causes",
            };
            (FixAnswer::NothingToTry, text.to_owned())
        }
        _ if registration.mode == FixMode::Audit => (FixAnswer::Audited, audited(result)),
        Some(claim)
            if !result.recommended.is_empty()
                && (registration.mode != FixMode::Verify || claim.outcome == FixOutcome::Proved) =>
        {
            let against = match claim.control.as_slice() {
                [] => String::new(),
                control => format!(" (against {})", control.join(" + ")),
            };
            let still = if registration.mode == FixMode::Verify { "still " } else { "" };
            let names = result.recommended.join(" + ");
            let limit = match result.reached {
                Some(false) => ", but the limit is still exceeded",
                _ => "",
            };
            let text =
                format!("{names} {}{against}{limit}", effect(claim, goal, registration.margin.0, still));
            (FixAnswer::Proved, text)
        }
        _ if registration.mode == FixMode::Verify => verified(result, is_over),
        _ => {
            let tried = registration.arms.len();
            let text = format!(
                "no treatment is proved to lower {} ({tried} tried){}",
                goal.words(),
                worse_goals(result)
            );
            (FixAnswer::NothingProved, text)
        }
    };
    match answer {
        FixAnswer::Proved | FixAnswer::NothingProved | FixAnswer::Audited if is_open => {
            (FixAnswer::Unfinished, format!("the search is not over; so far: {text}"))
        }
        FixAnswer::NothingProved | FixAnswer::Audited if !is_over => {
            (answer, format!("{text} (the rest of the budget is too short for another proof)"))
        }
        _ => (answer, text),
    }
}

/// How many settings have which effect, and whether those that do not help can be removed together.
fn audited(result: &FixResult) -> String {
    let goal = result.registration.goal.words();
    let count = |outcome| result.results.iter().filter(|it| it.outcome == outcome).count();
    let [helps, same, harms] = [FixOutcome::Helps, FixOutcome::Equivalent, FixOutcome::Harms].map(count);
    let all = result.results.len();
    let text = format!(
        "{goal} with each of {all} settings: lower for {helps}, higher for {harms}, no difference above {} \
         for {same}; cannot tell for {}",
        result.registration.margin,
        all - helps - same - harms
    );
    let together = match result.claims.iter().find(|it| it.phase == FixPhase::Reduce).map(|it| it.outcome) {
        Some(FixOutcome::Proved) => "; removing all settings that do not help lowers the goal's value",
        Some(FixOutcome::Equivalent) => "; removing all settings that do not help makes no difference",
        Some(FixOutcome::Harms) => {
            "; removing all settings that do not help raises the goal's value: some of them replace each \
             other, so remove one at a time"
        }
        Some(_) => "; cannot tell whether all settings that do not help can be removed together",
        None => "",
    };
    text + together
}

/// The treatments that remove their cause while the goal is worse, each with both figures.
fn worse_goals(result: &FixResult) -> String {
    let is_so = |it: &&FixClaim| it.outcome == FixOutcome::Refused && !it.candidate.is_empty();
    let refused = result.claims.iter().filter(is_so);
    let of = |claim: &FixClaim| {
        let worse = goal_is_worse(claim, &result.registration.goal)?;
        let name = claim.candidate.join(" + ");
        (claim.refused.as_ref() == Some(&worse)).then(|| format!("; {name}: {worse}"))
    };
    refused.filter_map(of).collect()
}

/// How to report an earlier proof that was not reproduced: the effect is absent, or too little was measured.
fn verified(result: &FixResult, is_over: bool) -> (FixAnswer, String) {
    let names: Vec<&str> = result.registration.arms.iter().map(|it| it.treatment.name.as_str()).collect();
    let (names, goal) = (names.join(" + "), result.registration.goal.words());
    if is_over || result.claims.last().is_some_and(|claim| claim.outcome == FixOutcome::Refused) {
        let text = format!("{names} is no longer proved to lower {goal}{}", worse_goals(result));
        return (FixAnswer::NothingProved, text);
    }
    let pairs = result.claims.last().map_or(0, |claim| claim.pairs.len());
    let text = format!(
        "cannot tell whether {names} still lowers {goal}: too few pairs of repeats ({pairs}); give a larger \
         --budget"
    );
    (FixAnswer::Unfinished, text)
}

fn shown(claim: &Claim, registration: &FixRegistration) -> FixClaim {
    let margin = registration.margin.0;
    let mut effects = claim.effects();
    let (low, high) = interval(&effects, SHOWN);
    effects.order_by(f64::total_cmp);
    let middle = |mut effects: Vec<f64>| {
        effects.order_by(f64::total_cmp);
        median(&effects).map_or(1.0, f64::exp)
    };
    let others = claim
        .others()
        .into_iter()
        .chain(claim.costs())
        .map(|(name, effects)| (name.to_owned(), middle(effects)));
    let rates = claim.rates().into_iter().map(|(name, rate)| (format!("rate of {name}"), rate));
    let within = |end: Option<f64>| end.is_some_and(|end| end.abs() <= margin.ln_1p());
    let outcome = match &claim.end {
        ClaimEnd::Proved if claim.phase == FixPhase::Without => FixOutcome::Helps,
        ClaimEnd::Proved => FixOutcome::Proved,
        ClaimEnd::Worse => FixOutcome::Harms,
        ClaimEnd::Equal => FixOutcome::Equivalent,
        ClaimEnd::Refused(_) | ClaimEnd::GoalWorse => FixOutcome::Refused,
        _ if low.is_some_and(|low| low > margin.ln_1p()) => FixOutcome::Harms,
        _ if within(low) && within(high) => FixOutcome::Equivalent,
        _ => FixOutcome::CannotTell,
    };
    let goal_evidence = claim.evidence(margin);
    let is_lower = goal_evidence.last().is_some_and(|it| *it >= claim.needed);
    let mut shown = FixClaim {
        lowers_goal: (claim.end == ClaimEnd::Proved).then_some(is_lower),
        removal: removal_of(claim),
        phase: claim.phase,
        control: names(registration, &claim.control),
        candidate: names(registration, &claim.candidate),
        pairs: claim.pairs.iter().map(|[control, it]| [control.value, it.value]).collect(),
        evidence: goal_evidence,
        needed: claim.needed,
        outcome,
        ratio: median(&effects).map(f64::exp),
        ratio_low: low.map(f64::exp),
        ratio_high: high.map(f64::exp),
        others: others.chain(rates).collect(),
        refused: match &claim.end {
            ClaimEnd::Refused(why) => Some(why.clone()),
            _ => None,
        },
    };
    if claim.end == ClaimEnd::GoalWorse {
        shown.refused = goal_is_worse(&shown, &registration.goal);
    }
    shown
}

/// What the pairs show for the causes that the treatments answer, if they answer any.
fn removal_of(claim: &Claim) -> Option<FixRemoval> {
    let late = claim.late();
    let (removed_in, tells_in) = removed_in(&late);
    let side = |side: usize| {
        let mut rates: Vec<f64> = late.iter().map(|pair| pair[side]).collect();
        rates.order_by(f64::total_cmp);
        median(&rates).unwrap_or_default()
    };
    (!claim.causes.is_empty()).then(|| FixRemoval {
        causes: claim.causes.iter().cloned().collect(),
        proved: claim.is_removed(),
        evidence: claim.removal(),
        removed_in,
        tells_in,
        before_ns_per_s: side(0),
        after_ns_per_s: side(1),
        pairs: late.clone(),
    })
}

/// Why a claim is not proved: the evidence of each way, and what is needed.
fn unproved(claim: &FixClaim) -> Option<String> {
    let of = |evidence: &[f64]| format!("{:.1}", evidence.last().copied().unwrap_or_default());
    let by_cause = claim.removal.as_ref().map(|it| format!(", {} by its cause", of(&it.evidence)));
    let (pairs, needed) = (claim.pairs.len(), claim.needed);
    (claim.outcome == FixOutcome::CannotTell && !claim.evidence.is_empty()).then(|| {
        let by_goal = of(&claim.evidence);
        let pairs = if pairs == 1 { "1 pair".to_owned() } else { format!("{pairs} pairs") };
        let by_cause = by_cause.unwrap_or_default();
        format!("evidence after {pairs} is {by_goal} by the goal{by_cause}; {needed:.0} is needed")
    })
}

fn results(
    search: &Search,
    registration: &FixRegistration,
    claims: &[FixClaim],
    recommended: &[String],
) -> Vec<FixArmResult> {
    let of_arm = |(arm, state): (&whylate_core::result::FixArm, &super::ArmState)| {
        let id = &arm.treatment.name;
        let claim = claims.iter().find(|claim| claim.tells_of(id));
        let outcome = match claim.map(|claim| claim.outcome) {
            _ if state.failed.is_some() => FixOutcome::Failed,
            Some(FixOutcome::Proved) if !recommended.contains(id) => FixOutcome::NotNeeded,
            Some(outcome) => outcome,
            None if registration.mode == FixMode::Verify => {
                claims.last().map_or(FixOutcome::NotConfirmed, |claim| claim.outcome)
            }
            None if registration.mode == FixMode::Search && !state.is_measured => FixOutcome::NotTried,
            None => FixOutcome::NotConfirmed,
        };
        // A verification has one claim, about all treatments.
        let whole = || claims.last().filter(|_| registration.mode == FixMode::Verify);
        let why = claim.or_else(whole).and_then(|claim| claim.refused.clone().or_else(|| unproved(claim)));
        FixArmResult {
            id: id.clone(),
            outcome,
            why: state.failed.clone().or(why),
            screened: state.screened.clone(),
            rounds: state.rounds,
        }
    };
    registration.arms.iter().zip(search.arms()).map(of_arm).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::result::{Quantiles, RepeatProbe, RepeatResult, ThrottledGaps};

    /// A search of one arm that answers one cause; `measured` gives the goal's value and the late time of the cause with and without it.
    fn answered(goal: &str, mode: FixMode, measured: impl Fn(bool, usize) -> (f64, f64)) -> FixResult {
        found(&rules(goal, mode), measured)
    }

    fn rules(goal: &str, mode: FixMode) -> FixRegistration {
        let text = r#"{"name":"move","kind":"ksm","reason":"","answers":[],"removes":["thread: thief"]}"#;
        FixRegistration {
            mode,
            goal: goal.parse().unwrap(),
            margin: whylate_core::plan::Share(0.05),
            alpha: 0.05,
            seed: 3,
            budget: whylate_core::Nanos(0),
            cell: None,
            causes: Vec::new(),
            arms: vec![serde_json::from_str(text).unwrap()],
            first: 1,
            left_out: Vec::new(),
            yes: Vec::new(),
            never: Vec::new(),
            keeps_goal: true,
            begun: true,
        }
    }

    /// A search that ends after at most this number of repeats.
    fn stopped(
        registration: &FixRegistration,
        repeats: usize,
        measured: impl Fn(bool, usize) -> (f64, f64),
    ) -> Vec<FixStep> {
        let mut steps: Vec<FixStep> = Vec::new();
        while let Some(trial) = replay(registration, &steps).unwrap().next().filter(|_| steps.len() < repeats)
        {
            let (value, late) = measured(!trial.arms.is_empty(), steps.len());
            steps.push(FixStep {
                phase: trial.phase,
                treatments: names(registration, &trial.arms),
                cell: String::new(),
                repeat: 1,
                value: Some(value),
                others: BTreeMap::new(),
                rates: BTreeMap::new(),
                causes: BTreeMap::from([("thread: thief".to_owned(), late)]),
                costs: BTreeMap::new(),
                error: None,
                took_ns: 1,
            });
        }
        steps
    }

    fn found(registration: &FixRegistration, measured: impl Fn(bool, usize) -> (f64, f64)) -> FixResult {
        let steps = stopped(registration, usize::MAX, measured);
        answer(registration, &steps, RunState::Complete).unwrap()
    }

    /// A maximum that the host makes, whatever the arm does.
    fn noise(nth: usize) -> f64 {
        [90e3, 400e3, 150e3, 2e6, 110e3, 700e3, 95e3][nth % 7]
    }

    #[test]
    fn an_arm_that_removes_its_cause_is_proved_and_the_goal_is_shown_unchanged() {
        let late = |is_treated: bool| if is_treated { 0.0 } else { 3e6 };
        let found = answered("timer max", FixMode::Search, |is_treated, nth| (noise(nth), late(is_treated)));
        let claim = &found.claims[0];
        let removal = claim.removal.as_ref().unwrap();
        assert_eq!(
            (found.answer, claim.outcome, claim.lowers_goal),
            (FixAnswer::Proved, FixOutcome::Proved, Some(false))
        );
        assert_eq!(
            (removal.proved, removal.removed_in, removal.tells_in, claim.pairs.len()),
            (true, 7, 7, 7)
        );
        assert_eq!((removal.before_ns_per_s, removal.after_ns_per_s), (3e6, 0.0));
        assert_eq!((found.recommended.as_slice(), found.reached), (&["move".to_owned()][..], None));
        assert!(whylate_testing::says("removes-its-cause", &found.sentence), "{}", found.sentence);
        let still = answered("timer max", FixMode::Verify, |is_treated, nth| (noise(nth), late(is_treated)));
        assert!(
            still.answer == FixAnswer::Proved && still.sentence.contains("still removes"),
            "{}",
            still.sentence
        );
    }

    #[test]
    fn only_measured_values_reach_a_limit() {
        let late = |is_treated: bool| if is_treated { 0.0 } else { 3e6 };
        let found =
            answered("timer max < 100us", FixMode::Search, |is_treated, nth| (noise(nth), late(is_treated)));
        assert_eq!((found.answer, found.reached), (FixAnswer::Proved, Some(false)), "{}", found.sentence);
        assert!(
            whylate_testing::says("removes-its-cause-limit-not-kept", &found.sentence),
            "{}",
            found.sentence
        );
        let kept = answered("timer max < 100us", FixMode::Search, |is_treated, nth| {
            (if is_treated { 60e3 } else { noise(nth) }, late(is_treated))
        });
        assert_eq!((kept.answer, kept.reached), (FixAnswer::Proved, Some(true)));
    }

    #[test]
    fn an_arm_that_leaves_its_cause_or_raises_the_goal_is_not_proved() {
        let kept = answered("timer max", FixMode::Search, |_, nth| (noise(nth), 3e6 + nth as f64));
        assert_eq!(
            (kept.answer, kept.claims[0].removal.as_ref().unwrap().proved),
            (FixAnswer::NothingProved, false)
        );
        let raised = answered(
            "timer max",
            FixMode::Search,
            |is_treated, _| {
                if is_treated { (2e6, 0.0) } else { (1e5, 3e6) }
            },
        );
        assert_eq!(
            (raised.answer, raised.claims[0].outcome),
            (FixAnswer::NothingProved, FixOutcome::Refused)
        );
    }

    /// Removes its cause; the goal is 25 % larger in two of three pairs, which no evidence shows.
    fn worse_goal(is_treated: bool, nth: usize) -> (f64, f64) {
        let value = if nth / 2 % 3 == 2 { 90e3 } else { 125e3 };
        if is_treated { (value, 0.0) } else { (100e3, 3e6) }
    }

    #[test]
    fn an_arm_that_removes_its_cause_is_not_proved_while_the_goal_is_worse() {
        let refused = answered("timer p99", FixMode::Search, worse_goal);
        let claim = &refused.claims[0];
        assert_eq!(
            (refused.answer, claim.outcome, claim.lowers_goal, claim.pairs.len()),
            (FixAnswer::NothingProved, FixOutcome::Refused, None, 24)
        );
        assert!(refused.recommended.is_empty() && claim.removal.as_ref().unwrap().proved);
        let why = refused.results[0].why.as_ref().unwrap();
        assert!(whylate_testing::says("cause-rarer-goal-worse", why), "{why}");
        assert_eq!(claim.refused.as_ref(), Some(why));
        assert!(refused.sentence.ends_with(why), "{}", refused.sentence);
        // A search that ends before it can tell proves as little.
        let rules = rules("timer p99", FixMode::Search);
        let early = answer(&rules, &stopped(&rules, 20, worse_goal), RunState::Complete).unwrap();
        assert_eq!((early.claims[0].outcome, early.claims[0].pairs.len()), (FixOutcome::Refused, 10));
        let verified = answered("timer p99", FixMode::Verify, worse_goal);
        assert_eq!(verified.answer, FixAnswer::NothingProved);
        assert!(verified.sentence.contains("timer p99 1.25"), "{}", verified.sentence);
        assert!(verified.results[0].why.as_ref().is_some_and(|why| verified.sentence.ends_with(why)));
    }

    #[test]
    fn a_treatment_that_is_not_proved_says_how_much_evidence_is_missing() {
        let kept = answered("timer max", FixMode::Search, |_, nth| (noise(nth), 3e6 + nth as f64));
        let [result] = &kept.results[..] else { panic!("{:?}", kept.results) };
        assert_eq!((result.outcome, kept.claims[0].refused.as_ref()), (FixOutcome::CannotTell, None));
        assert!(whylate_testing::says("evidence-of-each-way", result.why.as_ref().unwrap()));
    }

    #[test]
    fn a_goal_that_is_credibly_worse_is_not_proved_within_the_margin() {
        // The cause is absent from the first pairs, so that the pairs are enough for an interval.
        let slightly = |is_treated: bool, nth: usize| {
            let late = if is_treated || nth < 8 { 0.0 } else { 3e6 };
            (if is_treated { 103e3 } else { 100e3 }, late)
        };
        let refused = answered("timer p99", FixMode::Search, slightly);
        assert_eq!(
            (refused.answer, refused.claims[0].outcome),
            (FixAnswer::NothingProved, FixOutcome::Refused)
        );
        assert!(refused.claims[0].ratio_low.is_some_and(|low| low > 1.0), "{:?}", refused.claims[0]);
    }

    #[test]
    fn a_search_of_an_earlier_version_keeps_its_rules() {
        let rules = FixRegistration { keeps_goal: false, ..rules("timer p99", FixMode::Search) };
        let text = serde_json::to_string(&rules).unwrap();
        assert!(!text.contains("keeps_goal"), "{text}");
        let proved = found(&serde_json::from_str(&text).unwrap(), worse_goal);
        assert_eq!((proved.answer, proved.claims[0].pairs.len()), (FixAnswer::Proved, 7));
    }

    #[test]
    fn late_time_of_a_repeat_leaves_out_what_the_host_took() {
        let row = |kind, total_ns| LedgerRow {
            probe: "timer".to_owned(),
            kind: Some(kind),
            total_ns,
            ..LedgerRow::default()
        };
        let probe =
            RepeatProbe { probe: "timer".to_owned(), measured_ns: 2_000_000_000, ..RepeatProbe::default() };
        let ledger = vec![row(CauseKind::Thread, 6_000), row(CauseKind::Steal, 1_000_000)];
        let repeat = RepeatResult { repeat: 1, probes: vec![probe], ledger, ..RepeatResult::default() };
        let cell = CellResult { repeats: vec![repeat], ..CellResult::default() };
        let late = late_times(&cell, 1, &"timer p99".parse().unwrap()).unwrap();
        let thread = late.causes["waited for a CPU (another thread had it)"];
        assert_eq!((late.own, thread, late.causes.len()), (3_000.0, 3_000.0, 2));
        assert_eq!(late_times(&cell, 2, &"timer p99".parse().unwrap()), None);
    }

    #[test]
    fn a_search_counts_what_the_scheduler_takes() {
        let throttled = ThrottledGaps { gaps: 2, lost_ns: 100_000_000, other_max_ns: 3_000_000 };
        let probe = RepeatProbe {
            probe: "stall".to_owned(),
            quantiles: Some(Quantiles { max_ns: 50_000_000, ..Quantiles::default() }),
            lost_share: Some(0.06),
            throttled: Some(throttled),
            measured_ns: 2_000_000_000,
            ..RepeatProbe::default()
        };
        let repeat = RepeatResult { repeat: 1, probes: vec![probe], ..RepeatResult::default() };
        let cell = CellResult { repeats: vec![repeat], ..CellResult::default() };
        let goal = |statistic| FixGoal { series: Some("stall".into()), statistic, below: None };
        let values = |statistic| {
            let goal = goal(statistic);
            [felt_figure_of(&cell, 1, &goal), figure_of(&cell, 1, &goal)].map(|it| it.unwrap().value)
        };
        assert_eq!(values(Statistic::Max), [50e6, 3e6]);
        let [felt, others] = values(Statistic::LostShare);
        assert!((felt - 0.06).abs() < 1e-9 && (others - 0.01).abs() < 1e-9, "{felt} {others}");
        assert_eq!(felt_figure_of(&cell, 2, &goal(Statistic::Max)), None);
    }
}
