use super::*;
use crate::answers;
use whylate_core::CpuId;
use whylate_core::plan::Source;
use whylate_core::result::{
    AnswerOutcome, CauseChange, CauseDifference, NOT_EXPLAINED, OTHERS, Quantiles, RateResult, RepeatResult,
};
use whylate_testing::says;

fn plan(text: &str) -> Plan {
    let loads = ["a", "b"]
        .map(|name| format!("[[load]]\nname = \"{name}\"\nkind = \"exec\"\ncommand = [\"true\"]\n"));
    let treatments = ["t", "u"].map(|name| format!("[[treatment]]\nname = \"{name}\"\nkind = \"smt-off\"\n"));
    let head = "name = \"test\"\n";
    let probe = "[[probe]]\nkind = \"timer\"\n";
    let text = format!("{head}{text}\n{probe}{}{}", loads.concat(), treatments.concat());
    Plan::parse(&Source { name: "test.toml", text: &text }, &[]).unwrap()
}

const MATRIX: &str = "[matrix]\nloads = [[], [\"a\"]]\ntreatments = [[], [\"t\"]]\n";

fn named(plan: &Plan) -> Vec<(String, String)> {
    contrasts(plan).into_iter().map(|(a, b)| (plan.cell[a].name(), plan.cell[b].name())).collect()
}

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

/// A cell whose repeats have these p99.9 on CPU 1 and half of them on CPU 0.
fn cell(name: &str, values: &[u64]) -> CellResult {
    let probe = |cpu, p999_ns| RepeatProbe {
        probe: "timer".to_owned(),
        cpu: CpuId(cpu),
        samples: 1000,
        quantiles: Some(Quantiles {
            p50_ns: 1000,
            p99_ns: 2000,
            p999_ns,
            max_ns: 10 * p999_ns,
            ..Quantiles::default()
        }),
        ..RepeatProbe::default()
    };
    let repeat = |(index, value): (usize, &u64)| RepeatResult {
        repeat: index as u32 + 1,
        block: index as u32 / 2,
        probes: vec![probe(0, value / 2), probe(1, *value)],
        ..RepeatResult::default()
    };
    CellResult {
        name: name.to_owned(),
        repeats: values.iter().enumerate().map(repeat).collect(),
        ..CellResult::default()
    }
}

const LOW: [u64; 8] = [100, 104, 98, 101, 103, 99, 102, 97];
const HIGH: [u64; 8] = [200, 207, 198, 201, 203, 196, 205, 199];

#[test]
fn the_rate_of_triggers_is_compared_where_a_plan_asks_for_it() {
    let mut cell = cell("watch", &LOW);
    let probes = || RepeatProbe { probe: "task/control".to_owned(), ..RepeatProbe::default() };
    for (nth, repeat) in cell.repeats.iter_mut().enumerate() {
        repeat.probes = vec![RepeatProbe { triggers_per_h: Some(nth as f64), ..probes() }];
    }
    let found = |is_primary: bool| {
        let values = values_of(&cell, &|_, statistic| is_primary && statistic == Statistic::TriggerRate);
        let values = values.get(&("task/control", Statistic::TriggerRate));
        values.map(|all| all.iter().map(|one| one.value).collect::<Vec<f64>>())
    };
    assert_eq!((found(true), found(false)), (Some((0..8).map(f64::from).collect()), None));
}

#[test]
fn cells_are_compared_with_those_that_lack_one_thing() {
    let matrix = plan(MATRIX);
    let expected = pairs(&[("idle", "a"), ("idle", "t"), ("t", "a+t"), ("a", "a+t")]);
    let mut found = named(&matrix);
    found.sort();
    let mut sorted = expected;
    sorted.sort();
    assert_eq!(found, sorted);
    let both = plan("[[cell]]\n[[cell]]\nloads = [\"a\", \"b\"]\n[[cell]]\nname = \"twin\"\n");
    assert_eq!(named(&both), pairs(&[("idle", "a+b"), ("idle", "twin")]));
    let own = plan(&format!("baseline = \"t\"\n{MATRIX}"));
    assert_eq!(named(&own), pairs(&[("t", "idle"), ("t", "a"), ("t", "a+t")]));
}

#[test]
fn one_statistic_decides_and_the_others_are_exploratory() {
    let plan = plan(MATRIX);
    let cells = [cell("idle", &LOW), cell("a", &HIGH), cell("t", &LOW), cell("a+t", &LOW)];
    let found = comparisons(&cells, &plan);
    let primary: Vec<&Comparison> = found.iter().filter(|it| it.primary).collect();
    assert_eq!(primary.len(), 4);
    assert!(primary.iter().all(|it| it.statistic == Statistic::P999));
    let outcome = |a: &str, b: &str| {
        primary.iter().find(|it| it.baseline == a && it.cell == b).map(|it| it.outcome).unwrap()
    };
    assert_eq!(outcome("idle", "a"), Outcome::Worse);
    assert_eq!(outcome("a", "a+t"), Outcome::Better);
    assert_eq!(outcome("idle", "t"), Outcome::Equivalent);
    let worse = primary.iter().find(|it| it.cell == "a").unwrap();
    assert_eq!((worse.baseline_value, worse.unit.as_str(), worse.repeats), (100.5, "ns", 8));
    let (ratio, low, high) = (worse.ratio.unwrap(), worse.ratio_low.unwrap(), worse.ratio_high.unwrap());
    assert!((1.9..2.1).contains(&ratio) && 1.8 < low && low < ratio && ratio < high && high < 2.2);
}

#[test]
fn incomplete_repeats_and_skipped_cells_do_not_count() {
    let plan = plan(MATRIX);
    let mut cells = [cell("idle", &LOW), cell("a", &HIGH), cell("t", &LOW), cell("a+t", &LOW)];
    for repeat in &mut cells[1].repeats {
        repeat.error = Some("cut off".to_owned());
    }
    cells[3].skipped = Some("no SMT".to_owned());
    let found = comparisons(&cells, &plan);
    assert!(found.iter().all(|it| it.cell == "t" && it.baseline == "idle"), "{found:?}");
    let answers = answers(&cells, &plan, &found, &[], None);
    let by_question = |text: &str| answers.iter().find(|it| it.question.contains(text)).unwrap();
    assert_eq!(by_question("a raise").outcome, AnswerOutcome::NotMeasured);
    assert!(by_question("t lower timer p99.9 under a").sentence.contains("no SMT"));
}

#[test]
fn few_repeats_cannot_tell() {
    let plan = plan("[[cell]]\n[[cell]]\nloads = [\"a\"]\n");
    let cells = [cell("idle", &LOW[..2]), cell("a", &HIGH[..2])];
    let found = comparisons(&cells, &plan);
    assert!(found.iter().all(|it| it.outcome == Outcome::CannotTell), "{found:?}");
    let sentence = answers(&cells, &plan, &found, &[], None).remove(0).sentence;
    // Two cells, three repeats more, 61.1 s each.
    assert!(says("needs-at-least-more", &sentence), "{sentence}");
}

#[test]
fn better_is_refused_where_the_load_did_less() {
    let plan = plan(MATRIX);
    let rates = |mean: f64| vec![RateResult { load: "a".to_owned(), mean, ..RateResult::default() }];
    let mut cells = [cell("idle", &LOW), cell("a", &HIGH), cell("t", &LOW), cell("a+t", &LOW)];
    cells[1].rates = rates(100.0);
    cells[3].rates = rates(80.0);
    let found = comparisons(&cells, &plan);
    let refused = found.iter().find(|it| it.primary && it.baseline == "a").unwrap();
    assert_eq!(refused.outcome, Outcome::CannotTell);
    assert_eq!(refused.refused.as_deref(), Some("the rate of load a was 20 % lower than in a"));
    let answers = answers(&cells, &plan, &found, &[], None);
    let answer = answers.iter().find(|it| it.question == "Does t lower timer p99.9 under a?").unwrap();
    assert_eq!(answer.outcome, AnswerOutcome::CannotTell);
    assert!(answer.sentence.contains("20 % lower"), "{}", answer.sentence);
}

#[test]
fn an_answer_says_which_cause_is_too_rare_and_names_no_sum() {
    let plan = plan(&format!("causes = true\n{MATRIX}"));
    let cells = [cell("idle", &LOW), cell("a", &HIGH), cell("t", &LOW), cell("a+t", &LOW)];
    let cause = |name: &str, change: CauseChange, more: Option<u32>| CauseDifference {
        side: "a".to_owned(),
        baseline: Some("idle".to_owned()),
        probe: "timer".to_owned(),
        cause: name.to_owned(),
        change,
        more_repeats: more,
        p_value: 1.0,
        baseline_share: 0.0,
        share: 0.5,
        baseline_ns_per_s: 0.0,
        ns_per_s: 1e6,
        difference_low: None,
        difference_high: None,
        baseline_per_s: 0.0,
        per_s: 1.0,
        baseline_max_ns: 0,
        max_ns: 1_000_000,
        blocks_larger: 1,
        blocks: 4,
    };
    let found = comparisons(&cells, &plan);
    let sentence = |causes: &[CauseDifference]| {
        let all = answers(&cells, &plan, &found, causes, None);
        let answer = all.iter().find(|it| it.question == "Does a raise timer p99.9?").unwrap();
        let by_cause = answer.sentence.rsplit_once(". By cause").map(|(_, rest)| rest.to_owned());
        by_cause.unwrap_or_default()
    };
    let starts = |change: CauseChange| {
        let cells = [cell("idle", &LOW[..2]), cell("a", &HIGH[..2])];
        let all = answers(&cells, &plan, &[], &[cause("thread: thief", change, None)], None);
        let answer = all.iter().find(|it| it.question == "Does a raise timer p99.9?").unwrap();
        assert_eq!(answer.outcome, AnswerOutcome::CannotTell);
        answer.sentence.starts_with("By cause, yes")
    };
    assert_eq!([CauseChange::New, CauseChange::More, CauseChange::Gone].map(starts), [true, true, false]);
    let sums = [OTHERS, NOT_EXPLAINED].map(|name| cause(name, CauseChange::CannotTell, Some(1)));
    let named = cause("thread: thief", CauseChange::CannotTell, Some(7));
    assert!(says("no-change-is-shown-too-rare", sentence(&[sums.to_vec(), vec![named]].concat())));
    assert!(says("no-change-is-shown", sentence(&sums)));
    let within = |low: f64, high: f64| CauseDifference {
        difference_low: Some(low),
        difference_high: Some(high),
        ..cause("thread: thief", CauseChange::CannotTell, None)
    };
    let bounded = [within(-2e5, 1e5), within(-1e6, 3e6)];
    assert!(sentence(&bounded).contains("3.00 ms per s"), "{}", sentence(&bounded));
    assert!(says("no-change-is-shown-below", sentence(&bounded)));
    assert!(!sentence(&[bounded.to_vec(), sums.to_vec()].concat()).contains("3.00 ms"));
    assert!(says("nothing-changes", sentence(&[cause("thread: thief", CauseChange::Same, None)])));
}

#[test]
fn a_run_that_has_not_ended_has_no_verdict() {
    let plan = plan(MATRIX);
    let cells = [cell("idle", &LOW), cell("a", &HIGH), cell("t", &LOW), cell("a+t", &LOW)];
    let mut found = comparisons(&cells, &plan);
    assert!(found.iter().any(|it| it.outcome == Outcome::Worse));
    crate::so_far(&mut found, &mut [], 8);
    let repeats = LOW.len();
    for it in &found {
        let reason = format!("so far {repeats} of 8 repeats are done");
        assert_eq!((it.outcome, it.refused.as_ref()), (Outcome::CannotTell, Some(&reason)));
    }
    for answer in answers(&cells, &plan, &found, &[], Some(8)) {
        assert_eq!(answer.outcome, AnswerOutcome::CannotTell, "{}", answer.sentence);
        assert!(answer.sentence.contains("so far"), "{}", answer.sentence);
    }
}

#[test]
fn questions_are_answered_by_their_contrast() {
    let question =
        "[[answer]]\nquestion = \"Does t help?\"\nbetween = [[\"a\"], [\"a\", \"t\"]]\nmatters = \"10%\"\n";
    let plan = plan(&format!("{question}{MATRIX}"));
    let answered = |values: &[u64]| {
        let cells = [cell("idle", &LOW), cell("a", &HIGH), cell("t", &LOW), cell("a+t", values)];
        answers(&cells, &plan, &comparisons(&cells, &plan), &[], None).remove(0)
    };
    let yes = answered(&LOW);
    assert_eq!(yes.outcome, AnswerOutcome::Yes, "{}", yes.sentence);
    assert!(says("yes-timer-p99-ns", &yes.sentence), "{}", yes.sentence);
    assert_eq!(answered(&HIGH).outcome, AnswerOutcome::No);
    let worse: Vec<u64> = HIGH.iter().map(|value| value * 2).collect();
    assert!(answered(&worse).sentence.starts_with("No, the change goes"));
    let mixed = [100, 400, 90, 380, 120, 350, 100, 420];
    assert_eq!(answered(&mixed).outcome, AnswerOutcome::CannotTell);
}

#[test]
fn values_of_zero_are_compared_without_a_ratio() {
    let plan = plan("primary = \"timer max\"\n[[cell]]\n[[cell]]\nloads = [\"a\"]\n");
    let cells = [cell("idle", &[0; 8]), cell("a", &HIGH)];
    let found = comparisons(&cells, &plan);
    let primary = found.iter().find(|it| it.primary).unwrap();
    assert_eq!((primary.outcome, primary.ratio), (Outcome::Worse, None));
}
