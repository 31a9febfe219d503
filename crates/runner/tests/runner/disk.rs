//! The disk is full, or holds what a killed run left.

use crate::mock::{MockMachine, PLAN, counts, experiment, folder, info, options};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::Ordering;
use whylate_core::result::RunState;
use whylate_runner::{RunError, resume, run};
use whylate_store::{Execution, ExecutionState, StoreError};

/// Runs until the disk is full at `file`, from the second cell on.
fn run_into_full_disk(path: &Path, file: &'static str) -> RunError {
    let at = path.join(file);
    let fill = move |place: &str| {
        if place == "a+b: timer" {
            // The kernel itself answers "no space left" here.
            symlink("/dev/full", &at).unwrap();
        }
    };
    let machine = MockMachine { hook: Some(Box::new(fill)), ..MockMachine::default() };
    let outcome = run(&experiment(PLAN), path, &options(), &machine, &mut machine.audience());
    assert_eq!(machine.record.loads_alive.load(Ordering::SeqCst), 0, "a load was left running");
    assert_eq!(machine.repeats(), ["idle 1", "a+b 1"]);
    outcome.unwrap_err()
}

#[test]
fn a_full_disk_stops_the_run_and_what_was_there_is_readable() {
    for file in ["histograms/000002.parquet.tmp", "intervals/000002.parquet.tmp", "run.json.tmp"] {
        let folder = folder();
        let path = folder.path().join("run");
        let error = run_into_full_disk(&path, file);
        assert!(matches!(error, RunError::Store(StoreError::DiskFull { .. })), "{error}");
        let text = error.to_string();
        assert!(text.contains("the disk is full") && text.contains(file), "{text}");
        assert!(!text.contains('\n'), "{text}");
        assert_eq!(counts(&path)[0], "idle 1: timer=10 stall=10 None", "{file}");
        // There is space again.
        let machine = MockMachine::default();
        let ended = resume(&path, &|_| Ok(experiment(PLAN)), &machine, &mut machine.audience()).unwrap();
        assert_eq!((ended.state, ended.error), (RunState::Complete, None), "{file}");
        // When `run.json` did not fit, the second cell had been measured and stored.
        let again = usize::from(file == "run.json.tmp");
        assert_eq!(machine.repeats(), ["a+b 1", "idle 2", "a+b 2"][again..], "{file}");
    }
}

#[test]
fn a_full_disk_is_recorded_where_that_is_possible() {
    let folder = folder();
    let path = folder.path().join("run");
    run_into_full_disk(&path, "histograms/000002.parquet.tmp");
    let left = info(&path);
    assert_eq!(left.state, RunState::Interrupted);
    assert!(left.error.unwrap().contains("the disk is full"));
}

#[test]
fn a_killed_run_goes_on_where_it_was_and_never_overwrites() {
    let folder = folder();
    let path = folder.path().join("run");
    let machine = MockMachine::default();
    let mut left = run(&experiment(PLAN), &path, &options(), &machine, &mut machine.audience()).unwrap();
    let expected = counts(&path);
    // As SIGKILL in the last repeat leaves it: no end recorded, a segment half written.
    left.state = RunState::Running;
    left.restored = None;
    if let Some(Execution { state, .. }) = left.executions.last_mut() {
        *state = ExecutionState::Running;
    }
    fs::write(path.join("run.json"), serde_json::to_string(&left).unwrap()).unwrap();
    for table in ["histograms", "intervals", "spikes", "rates", "interrupts", "counters"] {
        let _ = fs::remove_file(path.join(table).join("000004.parquet"));
    }
    fs::write(path.join("histograms/000004.parquet.tmp"), "PAR1 and no mo").unwrap();
    let before = fs::read(path.join("histograms/000003.parquet")).unwrap();
    let machine = MockMachine::default();
    let ended = resume(&path, &|_| Ok(experiment(PLAN)), &machine, &mut machine.audience()).unwrap();
    assert_eq!((ended.state, ended.error, ended.restored), (RunState::Complete, None, Some(true)));
    assert_eq!(machine.repeats(), ["a+b 2"]);
    assert_eq!(ended.executions.last().map(|it| it.attempt), Some(2));
    assert_eq!(counts(&path), expected);
    assert_eq!(fs::read(path.join("histograms/000003.parquet")).unwrap(), before);
}
