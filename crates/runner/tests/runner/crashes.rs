//! The process ends, or a step fails, at every single step of a run: nothing that was done is lost, and `resume` does
//! what is missing and nothing else.

use crate::mock::{Fault, MockMachine, PLAN, counts, experiment, folder, info, options};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::Ordering;
use whylate_core::Plan;
use whylate_core::result::RunState;
use whylate_runner::{Experiment, RunError, resume, run};
use whylate_store::{ExecutionState, RunInfo};

/// More steps than a run of two cells and two repeats has.
const STEPS_MAX: usize = 400;

fn undisturbed(experiment: &Experiment) -> Vec<String> {
    let folder = folder();
    let path = folder.path().join("run");
    let machine = MockMachine::default();
    run(experiment, &path, &options(), &machine, &mut machine.audience()).unwrap();
    counts(&path)
}

/// The repeats that are not done, in the order in which they should run.
fn missing(info: &RunInfo) -> Vec<String> {
    let is_done = |cell: &str, repeat| {
        info.newest_execution(cell, repeat).is_some_and(|it| it.state == ExecutionState::Done)
    };
    let all =
        (1..=info.plan.repeats).flat_map(|repeat| info.cells.iter().map(move |cell| (&cell.name, repeat)));
    all.filter(|(cell, repeat)| !is_done(cell, *repeat))
        .map(|(cell, repeat)| format!("{cell} {repeat}"))
        .collect()
}

/// Whether the planted fault happened; the run in `path` is what it left.
fn disturb(experiment: &Experiment, path: &Path, step: usize, fault: Fault) -> bool {
    let machine = MockMachine::failing_at(step, fault);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        run(experiment, path, &options(), &machine, &mut machine.audience())
    }));
    let happened = !machine.is_fault_left();
    assert_eq!(outcome.is_err(), happened && fault == Fault::Panic, "step {step}");
    assert_eq!(machine.record.loads_alive.load(Ordering::SeqCst), 0, "step {step}: a load was left running");
    happened
}

fn at_every_step(fault: Fault) {
    let experiment = experiment(PLAN);
    let expected = undisturbed(&experiment);
    let mut disturbed = 0;
    for step in 0..STEPS_MAX {
        let folder = folder();
        let path = folder.path().join("run");
        if !disturb(&experiment, &path, step, fault) {
            assert_eq!(counts(&path), expected);
            assert!(step > 30, "the run had only {step} steps");
            assert!(disturbed > 20, "only {disturbed} of {step} steps were disturbed");
            return;
        }
        let left = info(&path);
        let state = if fault == Fault::Panic { RunState::Running } else { left.state };
        assert_eq!(left.state, state, "step {step}");
        let todo = missing(&left);
        if left.state == RunState::Complete {
            // A step that has no error to answer with.
            assert!(todo.is_empty() && fault == Fault::Error, "step {step}");
            assert_eq!(counts(&path), expected, "step {step}");
            continue;
        }
        disturbed += 1;
        let machine = MockMachine::default();
        let prepare = |plan: Plan| -> Result<Experiment, RunError> {
            assert_eq!(plan, experiment.plan);
            Ok(experiment.clone())
        };
        let ended = resume(&path, &prepare, &machine, &mut machine.audience()).unwrap();
        assert_eq!((ended.state, ended.error), (RunState::Complete, None), "step {step}");
        assert_eq!(machine.repeats(), todo, "step {step}");
        assert_eq!(counts(&path), expected, "step {step}");
    }
    panic!("the run has more than {STEPS_MAX} steps");
}

#[test]
fn an_error_at_any_step_costs_one_repeat() {
    at_every_step(Fault::Error);
}

#[test]
fn the_end_of_the_process_at_any_step_costs_one_repeat() {
    // These panics are planned; their messages would only hide a real one.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload().downcast_ref::<String>().map_or("", String::as_str);
        if !text.starts_with("planted") {
            usual(panic);
        }
    }));
    at_every_step(Fault::Panic);
}
