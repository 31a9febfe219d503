//! Treatments are applied before everything else of a repeat and undone after it, whatever happens between.

use crate::mock::{Fault, MockMachine, PLAN, experiment, folder, info, options};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use whylate_core::result::RunState;
use whylate_host::HostRoot;
use whylate_runner::{RunError, check_treatments, resume, run};
use whylate_treat::TreatError;

/// Most steps of a run of this plan.
const STEPS_MAX: usize = 400;

/// One cell without treatments and one with two, both under a load.
fn plan() -> String {
    let cells = "[[treatment]]\nname = \"quiet\"\nkind = \"irq-affinity\"\n[[treatment]]\nname = \"awake\"\nkind = \"idle\"\n[[cell]]\nloads = [\"a\"]\n[[cell]]\nloads = [\"a\"]\ntreatments = [\"quiet\", \"awake\"]\n";
    format!("{}{cells}", PLAN.split("[[cell]]").next().unwrap()).replace("repeats = 2", "repeats = 1")
}

#[test]
fn treatments_surround_everything_else_of_their_cell() {
    let folder = folder();
    let path = folder.path().join("run");
    let machine = MockMachine::default();
    let ended = run(&experiment(&plan()), &path, &options(), &machine, &mut machine.audience()).unwrap();
    assert_eq!((ended.state, ended.restored), (RunState::Complete, Some(true)));
    let log = machine.log_of(&["hold", "apply", "undo", "begin", "start", "stop"]);
    let expected = [
        "hold",
        "begin noise on 3",
        "start a",
        "begin timer on 3",
        "begin stall on 3",
        "stop a",
        "apply quiet (irq-affinity) on 3",
        "apply awake (idle) on 3",
        "begin noise on 3",
        "start a",
        "begin timer on 3",
        "begin stall on 3",
        "stop a",
        "undo awake",
        "undo quiet",
    ];
    assert_eq!(log, expected);
    let codes: Vec<&str> = ended.warnings.iter().map(|warning| warning.code.as_str()).collect();
    assert!(codes.contains(&"mock-hold") && codes.contains(&"mock-treatment"), "{codes:?}");
    let copy = std::fs::read_to_string(path.join("treatments.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> =
        copy.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "what was applied, and what was undone: {copy}");
    assert_eq!(lines[0]["cell"], "a+quiet+awake");
    assert_eq!(lines[0]["changes"][1]["treatment"], "awake");
    assert_eq!(lines[1]["changes"][0]["state"], "restored");
}

#[test]
fn a_run_without_treatments_holds_none() {
    let folder = folder();
    let machine = MockMachine::default();
    let path = folder.path().join("run");
    run(&experiment(PLAN), &path, &options(), &machine, &mut machine.audience()).unwrap();
    assert!(machine.log_of(&["hold"]).is_empty());
    assert!(!path.join("treatments.jsonl").exists());
}

#[test]
fn a_run_that_is_refused_leaves_no_directory() {
    let folder = folder();
    let machine = MockMachine::failing_at(0, Fault::Error);
    let path = folder.path().join("run");
    let outcome = run(&experiment(&plan()), &path, &options(), &machine, &mut machine.audience());
    assert!(matches!(outcome, Err(RunError::Treat(TreatError::Held { .. }))), "{outcome:?}");
    assert!(!path.exists());
}

const CHANGED_BY_OTHERS: &str = "/sys/mock is now `2` instead of `1`";

/// Steps of a run; at each, something fails or the process is gone: nothing may stay in force.
fn at_every_step(fault: Fault) -> Vec<String> {
    let experiment = experiment(&plan());
    let mut left_alone = Vec::new();
    for step in 1..STEPS_MAX {
        let folder = folder();
        let path = folder.path().join("run");
        let machine = MockMachine::failing_at(step, fault);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            run(&experiment, &path, &options(), &machine, &mut machine.audience())
        }));
        assert_eq!(machine.record.treatments_in_force.load(Ordering::SeqCst), 0, "step {step}");
        if machine.is_fault_left() {
            assert!(step > 20, "the run had only {step} steps");
            return left_alone;
        }
        assert_eq!(outcome.is_err(), fault == Fault::Panic, "step {step}");
        let ended = info(&path);
        if let Some(warning) = ended.warnings.iter().find(|it| it.code == "treatment-not-restored") {
            assert_eq!(ended.restored, Some(false), "step {step}");
            left_alone.push(warning.text.clone());
        }
        if !ended.is_complete() {
            let machine = MockMachine::default();
            let again = |_| Ok(experiment.clone());
            let resumed = resume(&path, &again, &machine, &mut machine.audience()).unwrap();
            assert_eq!(resumed.state, RunState::Complete, "step {step}");
            assert_eq!(machine.record.treatments_in_force.load(Ordering::SeqCst), 0, "step {step}");
        }
    }
    panic!("the run has more than {STEPS_MAX} steps");
}

#[test]
fn an_error_at_any_step_leaves_nothing_in_force() {
    // How many steps there are before the undo depends on time: it may be met more than once, or not at all.
    let left_alone = at_every_step(Fault::Error);
    assert!(left_alone.iter().all(|text| text.contains(CHANGED_BY_OTHERS)), "{left_alone:?}");
}

#[test]
fn what_an_undo_leaves_alone_is_reported() {
    let folder = folder();
    let path = folder.path().join("run");
    let machine = MockMachine::default();
    machine.record.leaves_alone.store(true, Ordering::SeqCst);
    run(&experiment(&plan()), &path, &options(), &machine, &mut machine.audience()).unwrap();
    let ended = info(&path);
    assert_eq!(ended.restored, Some(false));
    let said = ended.warnings.iter().find(|it| it.code == "treatment-not-restored").unwrap();
    assert!(said.text.contains(CHANGED_BY_OTHERS), "{}", said.text);
}

#[test]
fn a_panic_at_any_step_leaves_nothing_in_force() {
    assert!(at_every_step(Fault::Panic).is_empty());
}

#[test]
fn an_optional_treatment_that_is_impossible_here_is_left_out_with_a_warning() {
    let machine = folder();
    let root = HostRoot::at(machine.path());
    let optional = plan().replace("kind = \"idle\"", "kind = \"idle\"\noptional = true");
    let optional = optional.replace("kind = \"irq-affinity\"", "kind = \"irq-affinity\"\noptional = true");
    let checked = check_treatments(experiment(&optional), &root).unwrap();
    assert!(checked.cells.iter().all(|cell| cell.loads.is_ok()));
    assert_eq!(checked.cells[1].without, ["quiet", "awake"]);
    let left_out = checked.warnings.iter().filter(|warning| warning.code == "treatment-left-out");
    assert_eq!(left_out.count(), 2, "{:?}", checked.warnings);
    let path = machine.path().join("run");
    let mock = MockMachine::default();
    run(&checked, &path, &options(), &mock, &mut mock.audience()).unwrap();
    assert!(mock.log_of(&["hold", "apply", "undo"]).is_empty(), "nothing is left to apply");
    assert_eq!(info(&path).cells[1].name, "a+quiet+awake");
    let required = check_treatments(experiment(&plan()), &root).unwrap();
    assert!(required.cells[1].loads.is_err(), "a treatment that is not optional skips its cell");
}

#[test]
fn a_run_with_a_shield_keeps_the_cpu_table_before_with_and_after_it() {
    let folder = folder();
    let path = folder.path().join("run");
    let machine = MockMachine::default();
    let shielded = plan().replace("kind = \"idle\"", "kind = \"shield\"");
    run(&experiment(&shielded), &path, &options(), &machine, &mut machine.audience()).unwrap();
    let tables = info(&path).cpu_tables;
    let moments: Vec<&str> = tables.iter().map(|table| table.at.as_str()).collect();
    assert_eq!(moments, ["before", "a+quiet+awake", "after"]);
    assert!(tables.iter().all(|table| !table.cpus.is_empty()));
    let without = folder.path().join("without");
    run(&experiment(&plan()), &without, &options(), &machine, &mut machine.audience()).unwrap();
    assert!(info(&without).cpu_tables.is_empty());
}
