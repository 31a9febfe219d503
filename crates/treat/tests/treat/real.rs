//! Real tasks of this machine: affinity and stopping, each of a process that the test starts itself.

use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;
use whylate_core::CpuSet;
use whylate_host::HostRoot;
use whylate_sys::schedule::{ThreadScheduling, scheduling_of_thread, set_scheduling_of_thread};
use whylate_treat::{Change, Fate, Guard, Holder, JournalPlace, Target, Task};

/// A process that sleeps, ended with the test. It is called as the program that treatments stop.
struct Sleeper {
    child: Child,
    _program: tempfile::TempDir,
}

impl Sleeper {
    fn start() -> (Self, Task) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("irqbalance");
        let sleep = ["/bin/sleep", "/usr/bin/sleep"].into_iter().find(|it| Path::new(it).exists()).unwrap();
        std::fs::copy(sleep, &program).unwrap();
        // A child that another test is just starting may hold the copy open for writing.
        let start = || Command::new(&program).arg("600").spawn();
        let child = (0..1000)
            .find_map(|_| start().inspect_err(|_| std::thread::sleep(Duration::from_millis(1))).ok())
            .unwrap();
        let pid = child.id();
        // Until it runs its own program it has the name of this one.
        let task = (0..1000)
            .find_map(|_| {
                std::thread::sleep(Duration::from_millis(1));
                Task::find(&HostRoot::real(), pid, pid).filter(|task| task.name == "irqbalance")
            })
            .unwrap();
        (Self { child, _program: folder }, task)
    }

    fn end(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Journals of one name exclude each other on one machine, wherever they are.
fn guard(state: &tempfile::TempDir, name: &str) -> Guard {
    let root = HostRoot::real();
    let place = JournalPlace::new(state.path(), &format!("{name}-{}", std::process::id()));
    Guard::begin(&place, &root, Holder::this_process("a test", None, false, &root)).unwrap()
}

fn one_cpu(task: &Task) -> (CpuSet, CpuSet) {
    let before = task.affinity(&HostRoot::real()).unwrap();
    let allowed = whylate_sys::schedule::allowed_of_this_thread().unwrap();
    (before, CpuSet::single(allowed.first().unwrap()))
}

#[test]
fn a_task_is_moved_and_moved_back() {
    let state = tempfile::tempdir().unwrap();
    let root = HostRoot::real();
    let (_sleeper, task) = Sleeper::start();
    let (before, one) = one_cpu(&task);
    let mut guard = guard(&state, "moved");
    let target = Target::Affinity { task: task.clone() };
    guard.apply("affinity", &[Change::required(target, one.to_string(), "moves")]).unwrap();
    assert_eq!(task.affinity(&root), Some(one));
    let report = guard.undo();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(task.affinity(&root), Some(before));
}

#[test]
fn a_task_is_scheduled_otherwise_and_as_before() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root may give a thread a real-time priority, and its nice value back");
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let (_sleeper, task) = Sleeper::start();
    let before = ThreadScheduling { policy: 3, priority: 0, nice: 11, reset_on_fork: true };
    set_scheduling_of_thread(task.tid, before).unwrap();
    for (text, policy, priority, nice) in
        [("fifo 7", 1, 7, 0), ("idle reset-on-fork", 5, 0, 0), ("other -3", 0, 0, -3)]
    {
        let mut guard = guard(&state, "scheduled");
        let target = Target::Scheduling { task: task.clone() };
        guard.apply("priority", &[Change::required(target, text, "schedules it otherwise")]).unwrap();
        let now = scheduling_of_thread(task.tid).unwrap();
        assert_eq!((now.policy, now.priority, now.nice), (policy, priority, nice), "{text}");
        let report = guard.undo();
        assert!(report.is_complete(), "{report:?}");
        assert_eq!(scheduling_of_thread(task.tid).unwrap(), before);
    }
}

#[test]
fn a_stopped_task_goes_on() {
    let state = tempfile::tempdir().unwrap();
    let root = HostRoot::real();
    let (_sleeper, task) = Sleeper::start();
    let mut guard = guard(&state, "stopped");
    let target = Target::Stopped { task: task.clone() };
    guard.apply("stop", &[Change::required(target, Target::STOPPED, "stops")]).unwrap();
    assert_eq!(task.state(&root), Some('T'));
    let report = guard.undo();
    assert!(report.is_complete(), "{report:?}");
    assert_ne!(task.state(&root), Some('T'));
}

#[test]
fn a_task_that_ended_needs_nothing_and_another_of_its_number_is_not_touched() {
    let state = tempfile::tempdir().unwrap();
    let (mut sleeper, task) = Sleeper::start();
    let (_, one) = one_cpu(&task);
    let mut guard = guard(&state, "ended");
    let affinity =
        |task: &Task| Change::required(Target::Affinity { task: task.clone() }, one.to_string(), "moves");
    let other = Task { start_ticks: task.start_ticks + 1, ..task.clone() };
    guard.apply("another", &[affinity(&other)]).unwrap();
    assert_eq!(guard.in_force().count(), 0, "another start is another task");
    guard.apply("affinity", &[affinity(&task)]).unwrap();
    sleeper.end();
    let report = guard.undo();
    assert!(report.is_complete());
    assert!(report.outcomes.iter().all(|outcome| outcome.fate == Fate::Ended), "{report:?}");
}
