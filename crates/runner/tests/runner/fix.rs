//! A search for treatments: what it measures is a run, each repeat with its treatments; killed anywhere, it goes on to the
//! same answer.

use crate::mock::{Fault, MockMachine, PLAN, experiment, facts, folder, info, options};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::Ordering;
use whylate_core::plan::{Plan, Share};
use whylate_core::result::{
    FixAnswer, FixArm, FixMode, FixOutcome, FixPhase, FixRegistration, FixResult, FixStep, RunResult,
    RunState,
};
use whylate_core::{Nanos, plan::TreatmentPlan};
use whylate_runner::{Adviser, Proposal, RunError, assemble, fix, prepare, resume, resume_fix};
use whylate_store::{Folder, RunInfo, fix_steps};
use whylate_testing::says;

/// Proposes the same three treatments, or nothing.
struct MockAdviser(Vec<FixArm>);

impl MockAdviser {
    fn new() -> Self {
        let arm = |(name, kind): (&str, &str)| {
            let text = format!("{{\"name\":\"{name}\",\"kind\":\"{kind}\"}}");
            let treatment: TreatmentPlan = serde_json::from_str(&text).unwrap();
            FixArm {
                treatment,
                reason: format!("{name} may help"),
                answers: vec!["irq".to_owned()],
                removes: Vec::new(),
                service: None,
            }
        };
        Self([("quiet", "irq-affinity"), ("awake", "idle"), ("calm", "ksm")].map(arm).to_vec())
    }
}

impl Adviser for MockAdviser {
    fn propose(
        &mut self,
        rules: &FixRegistration,
        measured: &RunResult,
        cell: &str,
    ) -> Result<Option<Proposal>, String> {
        let series = rules.goal.series.as_deref();
        assert!(measured.cells.iter().any(|it| it.name == cell) && series == Some("timer"));
        Ok(Some(Proposal { arms: self.0.clone(), ..Proposal::default() }))
    }
}

fn rules() -> FixRegistration {
    FixRegistration {
        mode: FixMode::Search,
        goal: "timer p99".parse().unwrap(),
        margin: Share(0.05),
        alpha: 0.05,
        seed: 7,
        budget: Nanos::from_secs(3_600),
        cell: None,
        causes: Vec::new(),
        arms: Vec::new(),
        left_out: Vec::new(),
        yes: Vec::new(),
        never: Vec::new(),
        keeps_goal: true,
        first: 0,
        begun: false,
    }
}

fn searched(path: &Path, machine: &MockMachine, rules: FixRegistration) -> Result<RunInfo, RunError> {
    let mut audience = machine.audience();
    fix(&experiment(PLAN), rules, path, &options(), machine, &mut audience, &mut MockAdviser::new())
}

fn resumed(path: &Path, machine: &MockMachine) -> Result<RunInfo, RunError> {
    let prepare = |plan: Plan| prepare(plan, facts(), false);
    resume_fix(path, &prepare, machine, &mut machine.audience(), &mut MockAdviser::new())
}

fn helped() -> MockMachine {
    MockMachine { helps: Some("awake"), ..MockMachine::default() }
}

fn answer(path: &Path) -> FixResult {
    assemble(path).unwrap().fix.unwrap()
}

/// What was measured for what, without how long it took.
fn course(path: &Path) -> Vec<(FixPhase, Vec<String>, u32, Option<f64>)> {
    let steps: Vec<FixStep> = fix_steps(&Folder::open(path).unwrap()).unwrap();
    steps.into_iter().map(|step| (step.phase, step.treatments, step.repeat, step.value)).collect()
}

#[test]
fn the_treatment_that_helps_is_proved_in_a_run_that_can_be_read() {
    let folder = folder();
    let path = folder.path().join("fix");
    let machine = helped();
    let ended = searched(&path, &machine, rules()).unwrap();
    assert_eq!((ended.state, ended.restored), (RunState::Complete, Some(true)), "{:?}", ended.error);
    let found = answer(&path);
    assert_eq!(found.answer, FixAnswer::Proved, "{}", found.sentence);
    assert_eq!(found.recommended, ["awake"]);
    assert!(says("awake-lowers-timer-p99", &found.sentence), "{}", found.sentence);
    let outcome = |id: &str| found.results.iter().find(|it| it.id == id).unwrap().outcome;
    assert_eq!(outcome("awake"), FixOutcome::Proved);
    assert_ne!(outcome("calm"), FixOutcome::Proved);
    let claim = &found.claims[0];
    assert!((claim.ratio.unwrap() - 0.5).abs() < 1e-9 && claim.pairs.len() == 8, "{claim:?}");
    assert!(claim.evidence[7] >= claim.needed && claim.evidence[6] < claim.needed);
    // Registered before it was measured, and every repeat is one of the run.
    let info = info(&path);
    assert_eq!(info.fix.unwrap().arms.len(), 3);
    let run = assemble(&path).unwrap();
    assert!(run.comparisons.is_empty() && run.answers.is_empty());
    let repeats: usize = run.cells.iter().map(|cell| cell.repeats.len()).sum();
    assert_eq!(repeats, found.repeats as usize + 4, "two of each cell came first");
    assert!(run.cells.iter().all(|cell| cell.repeats.iter().all(|it| it.error.is_none())));
    assert_eq!(machine.record.treatments_in_force.load(Ordering::SeqCst), 0);
    let applied = machine.log_of(&["apply"]).len();
    assert_eq!(machine.log_of(&["undo"]).len(), applied);
    // It is a search, and complete.
    let prepare = |plan: Plan| prepare(plan, facts(), false);
    let as_run = resume(&path, &prepare, &machine, &mut machine.audience());
    assert!(matches!(as_run, Err(RunError::IsSearch(_))), "{as_run:?}");
    assert!(matches!(resumed(&path, &machine), Err(RunError::AlreadyComplete(_))));
}

#[test]
fn where_nothing_helps_nothing_is_claimed() {
    let folder = folder();
    let path = folder.path().join("fix");
    let ended = searched(&path, &MockMachine::default(), rules()).unwrap();
    assert_eq!(ended.state, RunState::Complete);
    let found = answer(&path);
    assert_eq!((found.answer, found.recommended.len()), (FixAnswer::NothingProved, 0), "{}", found.sentence);
}

#[test]
fn a_goal_that_is_met_and_a_budget_that_is_spent_end_it() {
    let folder = folder();
    let path = folder.path().join("met");
    let met = FixRegistration { goal: "timer max < 1us".parse().unwrap(), ..rules() };
    searched(&path, &MockMachine::default(), met).unwrap();
    assert_eq!(answer(&path).answer, FixAnswer::NothingNeeded);
    let path = folder.path().join("spent");
    searched(&path, &helped(), FixRegistration { budget: Nanos(1), ..rules() }).unwrap();
    let found = answer(&path);
    assert_eq!((found.answer, found.repeats), (FixAnswer::NothingProved, 1));
    assert!(found.sentence.ends_with("too short for another proof)"), "{}", found.sentence);
}

#[test]
fn killed_anywhere_it_goes_on_to_the_same_answer() {
    let whole = folder();
    let path = whole.path().join("fix");
    searched(&path, &helped(), rules()).unwrap();
    let expected = course(&path);
    for step in (1..700).step_by(53) {
        let folder = folder();
        let path = folder.path().join("fix");
        let machine = MockMachine { helps: Some("awake"), ..MockMachine::failing_at(step, Fault::Panic) };
        let killed = catch_unwind(AssertUnwindSafe(|| searched(&path, &machine, rules())));
        assert_eq!(machine.record.treatments_in_force.load(Ordering::SeqCst), 0, "step {step}");
        if machine.is_fault_left() {
            break;
        }
        if killed.is_err() {
            resumed(&path, &helped()).unwrap();
        }
        assert_eq!(answer(&path).answer, FixAnswer::Proved, "step {step}");
        if killed.is_err() {
            assert_eq!(course(&path), expected, "step {step}");
        }
    }
}

#[test]
fn what_was_proved_is_looked_at_again() {
    let folder = folder();
    let arms = MockAdviser::new().0;
    let arm = arms.into_iter().find(|arm| arm.treatment.name == "awake").unwrap();
    let rules = FixRegistration {
        mode: FixMode::Verify,
        cell: Some("a+b".to_owned()),
        arms: vec![arm],
        first: 0,
        begun: true,
        ..rules()
    };
    let path = folder.path().join("holds");
    searched(&path, &helped(), rules.clone()).unwrap();
    let found = answer(&path);
    assert_eq!((found.answer, found.repeats), (FixAnswer::Proved, 14), "{}", found.sentence);
    assert!(found.sentence.contains("awake still lowers"), "{}", found.sentence);
    // Too little was measured: neither a proof nor its absence.
    let path = folder.path().join("short");
    searched(&path, &helped(), FixRegistration { budget: Nanos(1), ..rules.clone() }).unwrap();
    let found = answer(&path);
    assert_eq!(found.answer, FixAnswer::Unfinished, "{}", found.sentence);
    assert!(says("cannot-tell-whether-awake", &found.sentence), "{}", found.sentence);
    let path = folder.path().join("over");
    searched(&path, &MockMachine::default(), rules).unwrap();
    let found = answer(&path);
    assert_eq!(found.answer, FixAnswer::NothingProved);
    assert!(says("not-shown-lower-timer", &found.sentence), "{}", found.sentence);
}

#[test]
fn settings_that_are_used_are_looked_at_one_by_one() {
    let folder = folder();
    let path = folder.path().join("audit");
    let rules = FixRegistration { mode: FixMode::Audit, ..rules() };
    let machine = helped();
    let ended = searched(&path, &machine, rules.clone()).unwrap();
    assert_eq!((ended.state, ended.restored), (RunState::Complete, Some(true)), "{:?}", ended.error);
    let found = answer(&path);
    assert_eq!(found.answer, FixAnswer::Audited, "{}", found.sentence);
    let outcome = |id: &str| found.results.iter().find(|it| it.id == id).unwrap().outcome;
    assert_eq!(
        ["quiet", "awake", "calm"].map(outcome),
        [FixOutcome::Equivalent, FixOutcome::Helps, FixOutcome::Equivalent]
    );
    assert_eq!(found.recommended, ["awake"], "{:?}", found.claims);
    let expected = "timer p99 with each of 3 settings: lower for 1, higher for 0, no difference above 5% for 2; \
        cannot tell for 0; removing all settings that do not help makes no difference";
    assert_eq!(found.sentence, expected);
    let cells = assemble(&path).unwrap().cells;
    let names: Vec<&str> =
        cells.iter().map(|cell| cell.name.as_str()).filter(|name| name.contains("all")).collect();
    assert!(names.contains(&"a+b+all") && names.contains(&"a+b+all-awake"), "{names:?}");
    // Killed, it goes on to the same answer.
    let expected = course(&path);
    for step in (60..400).step_by(97) {
        let path = folder.path().join(format!("killed-{step}"));
        let machine = MockMachine { helps: Some("awake"), ..MockMachine::failing_at(step, Fault::Panic) };
        if catch_unwind(AssertUnwindSafe(|| searched(&path, &machine, rules.clone()))).is_err() {
            resumed(&path, &helped()).unwrap();
            assert_eq!(course(&path), expected, "step {step}");
        }
    }
}

#[test]
fn steps_of_other_rules_are_refused() {
    let folder = folder();
    let path = folder.path().join("fix");
    let stopped = MockMachine::failing_at(400, Fault::Panic);
    let _ = catch_unwind(AssertUnwindSafe(|| searched(&path, &stopped, rules())));
    let file = path.join("fix.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.lines().count() > 3);
    std::fs::write(&file, text.replacen("\"calm\"", "\"quiet\"", 1).replacen("screen", "confirm", 1))
        .unwrap();
    let refused = resumed(&path, &helped());
    assert!(matches!(refused, Err(RunError::Search(_))), "{refused:?}");
}
