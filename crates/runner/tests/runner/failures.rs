//! What goes wrong in one repeat, and what the user stops, costs that repeat and nothing else.

use crate::mock::{Behaviour, MockMachine, PLAN, counts, experiment, folder, info, options};
use std::path::Path;
use std::sync::atomic::Ordering;
use whylate_core::Nanos;
use whylate_core::result::{RunEnd, RunState};
use whylate_runner::{RunError, resume, run};
use whylate_store::{ExecutionState, Reader, RunInfo, StoreError, assemble};

fn run_on(machine: &MockMachine, plan: &str, path: &Path) -> RunInfo {
    let info = run(&experiment(plan), path, &options(), machine, &mut machine.audience()).unwrap();
    assert_eq!(machine.record.loads_alive.load(Ordering::SeqCst), 0, "a load was left running");
    info
}

/// The error of each attempt; `-` when there is none.
fn errors(info: &RunInfo) -> Vec<(String, u32, String)> {
    let executions = info.executions.iter();
    executions
        .map(|it| (it.cell.clone(), it.repeat, it.error.clone().unwrap_or_else(|| "-".to_owned())))
        .collect()
}

fn expected(of: &[(&str, u32, &str)]) -> Vec<(String, u32, String)> {
    of.iter().map(|(cell, repeat, error)| ((*cell).to_owned(), *repeat, (*error).to_owned())).collect()
}

#[test]
fn a_load_that_dies_fails_its_repeats_and_the_other_cells_go_on() {
    let folder = folder();
    let path = folder.path().join("run");
    let machine = MockMachine { dying: Some(("b", "it had enough")), ..MockMachine::default() };
    let info = run_on(&machine, PLAN, &path);
    let died = "load `b` ended early: it had enough";
    let errors = errors(&info);
    assert_eq!(errors, expected(&[("idle", 1, "-"), ("a+b", 1, died), ("idle", 2, "-"), ("a+b", 2, died)]));
    assert_eq!((info.state, info.error.as_deref()), (RunState::Interrupted, Some("2 of 4 repeats failed")));
    // The load that did not die is stopped as well.
    assert_eq!(machine.log_of(&["stop "]), ["stop a", "stop b", "stop a", "stop b"]);
    let result = assemble(&Reader::open(&path).unwrap()).unwrap();
    assert!(result.cells[0].repeats.iter().all(|repeat| repeat.error.is_none()));
    assert!(result.cells[1].repeats.iter().all(|repeat| repeat.error.as_deref() == Some(died)));
}

#[test]
fn a_probe_that_cannot_measure_fails_its_repeats() {
    let folder = folder();
    let path = folder.path().join("run");
    let behaviours = vec![("idle: stall", Behaviour::Fails("no room for it"))];
    let machine = MockMachine { behaviours, ..MockMachine::default() };
    let info = run_on(&machine, PLAN, &path);
    let failed = "stall: no room for it";
    assert_eq!(
        errors(&info),
        expected(&[("idle", 1, failed), ("a+b", 1, "-"), ("idle", 2, failed), ("a+b", 2, "-")])
    );
    // What the other probe measured before is kept.
    assert_eq!(counts(&path)[0], format!("idle 1: timer=10 {:?}", Some(failed)));
}

#[test]
fn a_probe_that_fails_ends_the_others_of_its_group() {
    let plan = PLAN.replace("kind = \"timer\"", "kind = \"timer\"\ncpus = \"2\"");
    let behaviours =
        vec![("idle: timer", Behaviour::UntilStopped), ("idle: stall", Behaviour::Fails("no room for it"))];
    let machine = MockMachine { behaviours, together: 2, ..MockMachine::default() };
    let folder = folder();
    let info = run_on(&machine, &plan, &folder.path().join("run"));
    assert_eq!(info.executions[0].error.as_deref(), Some("stall: no room for it"));
}

#[test]
fn a_repeat_that_takes_too_long_is_ended() {
    let folder = folder();
    let path = folder.path().join("run");
    let behaviours = vec![("a+b: timer", Behaviour::UntilStopped)];
    let machine = MockMachine { behaviours, ..MockMachine::default() };
    let info = run_on(&machine, &PLAN.replace("repeats = 2", "repeats = 1\ntimeout = \"1s\""), &path);
    assert_eq!(
        errors(&info),
        expected(&[("idle", 1, "-"), ("a+b", 1, "the repeat took longer than 1s (`timeout` in the plan)")])
    );
    assert_eq!(machine.log_of(&["stop "]), ["stop a", "stop b"]);
}

#[test]
fn what_the_user_stops_is_kept_and_can_be_continued() {
    for stop_at in ["a+b 1: noise floor", "a+b 1: starting loads", "a+b 1: timer", "a+b 1: stall"] {
        let folder = folder();
        let path = folder.path().join("run");
        let machine = MockMachine {
            behaviours: vec![("a+b: timer", Behaviour::Normal), ("a+b: stall", Behaviour::UntilStopped)],
            ..MockMachine::default()
        };
        let mut audience = machine.audience();
        audience.stop_at = Some(stop_at);
        let info = run(&experiment(PLAN), &path, &options(), &machine, &mut audience).unwrap();
        assert_eq!((info.state, info.error.as_deref()), (RunState::Interrupted, Some("stopped by the user")));
        assert_eq!(
            errors(&info),
            expected(&[("idle", 1, "-"), ("a+b", 1, "stopped by the user")]),
            "{stop_at}"
        );
        assert_eq!(machine.record.loads_alive.load(Ordering::SeqCst), 0, "{stop_at}");
        let again = MockMachine::default();
        let info = resume(&path, &|_| Ok(experiment(PLAN)), &again, &mut again.audience()).unwrap();
        assert_eq!((info.state, info.error), (RunState::Complete, None), "{stop_at}");
        assert_eq!(again.repeats(), ["a+b 1", "idle 2", "a+b 2"], "{stop_at}");
    }
}

#[test]
fn a_latency_above_the_break_ends_the_run() {
    let folder = folder();
    let path = folder.path().join("run");
    let behaviours = vec![("a+b: timer", Behaviour::Breaks(Nanos(123_456)))];
    let machine = MockMachine { behaviours, ..MockMachine::default() };
    let mut audience = machine.audience();
    let info = run(&experiment(PLAN), &path, &options(), &machine, &mut audience).unwrap();
    assert_eq!(audience.spikes, 1);
    assert_eq!(info.state, RunState::Interrupted);
    let error = info.error.unwrap();
    assert!(error.starts_with("stopped: timer latency 123"), "{error}");
    let end = RunEnd::BrokeAbove { probe: "timer".to_owned(), latency_ns: 123_456, break_ns: None };
    assert_eq!(info.end, Some(end));
    assert_eq!(machine.repeats(), ["idle 1", "a+b 1"]);
    assert_eq!(machine.log_of(&["stop "]), ["stop a", "stop b"]);
}

#[test]
fn failed_attempts_that_were_repeated_with_success_are_not_counted_as_failed() {
    let folder = folder();
    let path = folder.path().join("run");
    let machine = MockMachine {
        behaviours: vec![("idle: timer", Behaviour::Fails("x")), ("a+b: timer", Behaviour::Fails("x"))],
        ..MockMachine::default()
    };
    let info = run_on(&machine, PLAN, &path);
    assert_eq!(info.error.as_deref(), Some("4 of 4 repeats failed"));
    let behaviours = vec![("a+b: timer", Behaviour::Fails("y"))];
    let again = MockMachine { behaviours, ..MockMachine::default() };
    let info = resume(&path, &|_| Ok(experiment(PLAN)), &again, &mut again.audience()).unwrap();
    assert_eq!((info.state, info.error.as_deref()), (RunState::Interrupted, Some("2 of 4 repeats failed")));
}

#[test]
fn an_occupied_place_is_left_alone() {
    let folder = folder();
    std::fs::write(folder.path().join("notes.txt"), "mine").unwrap();
    let machine = MockMachine::default();
    let outcome = run(&experiment(PLAN), folder.path(), &options(), &machine, &mut machine.audience());
    let error = outcome.unwrap_err();
    assert!(matches!(error, RunError::Store(StoreError::Occupied { .. })), "{error}");
    assert!(machine.log().is_empty(), "{:?}", machine.log());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_complete_run_is_not_continued() {
    let folder = folder();
    let path = folder.path().join("run");
    run_on(&MockMachine::default(), PLAN, &path);
    let before = info(&path);
    let machine = MockMachine::default();
    let outcome = resume(&path, &|_| Ok(experiment(PLAN)), &machine, &mut machine.audience());
    let error = outcome.unwrap_err();
    assert!(matches!(error, RunError::AlreadyComplete(_)), "{error}");
    assert!(machine.log().is_empty());
    assert_eq!(info(&path), before);
}

#[test]
fn a_run_continued_after_a_reboot_says_so() {
    let folder = folder();
    let path = folder.path().join("run");
    let machine = MockMachine { dying: Some(("b", "power cut")), ..MockMachine::default() };
    run_on(&machine, PLAN, &path);
    let mut rebooted = experiment(PLAN);
    rebooted.facts.kernel.boot_id = Some("another".to_owned());
    let again = MockMachine::default();
    let info = resume(&path, &|_| Ok(rebooted.clone()), &again, &mut again.audience()).unwrap();
    assert_eq!(info.state, RunState::Complete);
    assert_eq!(info.warnings.iter().filter(|it| it.code == "resumed-after-reboot").count(), 1);
    assert_eq!(info.executions.last().map(|it| (it.attempt, it.state)), Some((2, ExecutionState::Done)));
}

/// A message of the kernel's log stands with the repeat in which it came, and warns; one before the run does not.
#[test]
fn messages_of_the_kernel_stand_with_their_repeat() {
    use std::io::Write as _;
    let (folder, root) = (folder(), folder());
    std::fs::create_dir(root.path().join("dev")).unwrap();
    let log = root.path().join("dev/kmsg");
    std::fs::write(&log, "4,1,1000000,-;sched: RT throttling activated\n").unwrap();
    let write = move |at: &str| {
        if at.starts_with("a+b") {
            let mut file = std::fs::File::options().append(true).open(&log).unwrap();
            file.write_all(b"4,2,2000000,-;hrtimer: interrupt took 6663395 ns\n").unwrap();
        }
    };
    let machine = MockMachine {
        running: Some(whylate_host::HostRoot::at(root.path())),
        hook: Some(Box::new(write)),
        ..MockMachine::default()
    };
    let path = folder.path().join("run");
    run_on(&machine, PLAN, &path);
    let result = assemble(&Reader::open(&path).unwrap()).unwrap();
    let found: Vec<_> = result
        .kernel_log
        .iter()
        .map(|it| (it.cell.as_deref(), it.repeat, it.message.code.as_str(), it.message.figure_ns))
        .collect();
    let expected = |repeat| (Some("a+b"), Some(repeat), "hrtimer_interrupt", Some(6_663_395));
    assert_eq!(found, [expected(1), expected(2)]);
    let warned = result.warnings.iter().filter(|it| it.code == "kernel-log").count();
    assert_eq!(warned, 2, "{:?}", result.warnings);
}
