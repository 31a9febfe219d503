//! The disk is full, or holds what a killed run left.

use crate::mock::{MockMachine, PLAN, counts, experiment, folder, info, options};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use whylate_core::result::RunState;
use whylate_runner::{RunError, resume, run};
use whylate_store::{ExecutionState, StoreError};
use whylate_testing::{Need, says, skip};

/// Runs until `spoil` has damaged the directory, in the second cell.
fn run_until(path: &Path, spoil: impl Fn() + Send + Sync + 'static) -> RunError {
    let at_second = move |place: &str| {
        if place == "a+b: timer" {
            spoil();
        }
    };
    let machine = MockMachine { hook: Some(Box::new(at_second)), ..MockMachine::default() };
    let outcome = run(&experiment(PLAN), path, &options(), &machine, &mut machine.audience());
    assert_eq!(machine.record.loads_alive.load(Ordering::SeqCst), 0, "a load was left running");
    assert_eq!(machine.repeats(), ["idle 1", "a+b 1"]);
    outcome.unwrap_err()
}

/// Continues the run in `path`; returns what it ran.
fn resumed(path: &Path) -> Vec<String> {
    let machine = MockMachine::default();
    let ended = resume(path, &|_| Ok(experiment(PLAN)), &machine, &mut machine.audience()).unwrap();
    assert_eq!((ended.state, ended.error), (RunState::Complete, None));
    machine.repeats()
}

#[test]
fn a_file_that_cannot_be_written_stops_the_run_and_what_was_there_is_readable() {
    for file in ["histograms/000002.parquet.tmp", "intervals/000002.parquet.tmp", "run.json.tmp"] {
        let folder = folder();
        let path = folder.path().join("run");
        let planted = path.join(file);
        let at = planted.clone();
        let error = run_until(&path, move || fs::create_dir_all(at.join("not empty")).unwrap());
        let text = error.to_string();
        assert!(text.contains("cannot remove") && text.contains(file) && !text.contains('\n'), "{text}");
        assert!(says("idle-timer-stall-none", &counts(&path)[0]), "{file}");
        fs::remove_dir_all(&planted).unwrap();
        assert_eq!(resumed(&path), ["a+b 1", "idle 2", "a+b 2"], "{file}");
    }
}

/// A disk of its own that is full; only root can have one.
#[test]
fn a_full_disk_ends_the_run_with_a_message_and_keeps_what_was_measured() {
    let folder = folder();
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(&disk).status();
    if !mounted.is_ok_and(|status| status.success()) {
        skip(Need::Rights, "no file system of its own can be mounted here");
        return;
    }
    let unmount = Unmount(disk.clone());
    let (path, filler) = (disk.join("run"), disk.join("filler"));
    let at = filler.clone();
    let error = run_until(&path, move || {
        let _ = fs::write(&at, vec![1; 2 << 20]);
    });
    assert!(matches!(error, RunError::Store(StoreError::DiskFull { .. })), "{error}");
    assert!(
        error.to_string().contains("the disk is full") && error.to_string().contains("--resume"),
        "{error}"
    );
    assert!(says("idle-timer-stall-none", &counts(&path)[0]));
    fs::remove_file(&filler).unwrap();
    assert_eq!(resumed(&path), ["a+b 1", "idle 2", "a+b 2"]);
    drop(unmount);
}

struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn what_ended_a_run_is_recorded_where_that_is_possible() {
    let folder = folder();
    let path = folder.path().join("run");
    let planted = path.join("histograms/000002.parquet.tmp/not empty");
    run_until(&path, move || fs::create_dir_all(&planted).unwrap());
    let left = info(&path);
    assert_eq!(left.state, RunState::Interrupted);
    assert!(left.error.unwrap().contains("cannot remove"));
}

/// Files and what is in them.
type Kept = Vec<(PathBuf, Vec<u8>)>;

#[test]
fn a_killed_run_goes_on_where_it_was_and_never_overwrites() {
    let folder = folder();
    let path = folder.path().join("run");
    // What is on the disk as the last repeat begins.
    let kept: Arc<Mutex<Kept>> = Arc::default();
    let (at, keep) = (path.clone(), Arc::clone(&kept));
    let at_last = move |place: &str| {
        if place == "a+b: timer" {
            let files = ["run.json", "manifest.jsonl"].map(|name| at.join(name)).into_iter();
            *keep.lock().unwrap() = files.map(|file| (file.clone(), fs::read(file).unwrap())).collect();
        }
    };
    let machine = MockMachine { hook: Some(Box::new(at_last)), ..MockMachine::default() };
    run(&experiment(PLAN), &path, &options(), &machine, &mut machine.audience()).unwrap();
    let expected = counts(&path);
    // As SIGKILL in the last repeat leaves it: no end recorded, a segment half written.
    kept.lock().unwrap().iter().for_each(|(file, bytes)| fs::write(file, bytes).unwrap());
    assert_eq!(info(&path).executions.last().map(|it| it.state), Some(ExecutionState::Running));
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
