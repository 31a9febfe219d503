//! Real tasks of this machine: affinity and stopping, each of a process that the test starts itself.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;
use whylate_core::CpuSet;
use whylate_core::plan::TreatmentKind;
use whylate_host::{HostRoot, facts};
use whylate_sys::ethtool::{self, Coalescing};
use whylate_sys::schedule::{ThreadScheduling, scheduling_of_thread, set_scheduling_of_thread};
use whylate_testing::{Need, says, skip};
use whylate_treat::{
    Change, EthernetSetting, Fate, Guard, Holder, Impossible, JournalPlace, Planned, Planner as _,
    Surroundings, Target, Task,
};

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
fn a_cpu_outside_the_group_of_a_task_is_refused_with_that_reason() {
    let state = tempfile::tempdir().unwrap();
    let (_sleeper, task) = Sleeper::start();
    let mut guard = guard(&state, "refused");
    // A CPU that test machines do not have is in no group.
    let change = Change::required(Target::Affinity { task }, "1000", "moves");
    let said = guard.apply("affinity", &[change]).unwrap_err().to_string();
    assert!(says("its-cgroup-allows-none", &said), "{said}");
}

#[test]
fn a_task_is_scheduled_otherwise_and_as_before() {
    if !rustix::process::geteuid().is_root() {
        skip(Need::Rights, "only root may give a thread a real-time priority, and its nice value back");
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
fn a_task_that_ended_needs_nothing_and_a_later_one_with_its_number_is_not_touched() {
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

/// A network interface of no network, removed with the test.
struct Interface(String);

impl Interface {
    /// `None` if this machine cannot make one.
    fn make() -> Option<Self> {
        let name = format!("wl{}", std::process::id());
        let ip = |what: &str| {
            let made = Command::new("ip").args(["tuntap", what, "dev", &name, "mode", "tap"]).output();
            made.is_ok_and(|output| output.status.success())
        };
        ip("add").then(|| Self(name.clone()))
    }
}

impl Drop for Interface {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["tuntap", "del", "dev", &self.0, "mode", "tap"]).output();
    }
}

fn place_of_killed(state: &Path) -> JournalPlace {
    JournalPlace::new(state, "killed")
}

fn holder() -> Holder {
    Holder::this_process("a test", None, false, &HostRoot::real())
}

/// Makes the changes in a process that is killed then.
fn killed(state: &tempfile::TempDir, changes: &[Change]) {
    let ended = Command::new(std::env::current_exe().unwrap())
        .args(["real::makes_changes_and_is_killed", "--exact"])
        .env("WHYLATE_TEST_STATE", state.path())
        .env("WHYLATE_TEST_CHANGES", serde_json::to_string(changes).unwrap())
        .output()
        .unwrap();
    assert_eq!(ended.status.signal(), Some(9), "{ended:?}");
}

#[test]
fn makes_changes_and_is_killed() {
    // Another test runs it in a process of its own.
    let Ok(state) = std::env::var("WHYLATE_TEST_STATE") else { return };
    let changes: Vec<Change> = serde_json::from_str(&std::env::var("WHYLATE_TEST_CHANGES").unwrap()).unwrap();
    let mut guard = Guard::begin(&place_of_killed(Path::new(&state)), &HostRoot::real(), holder()).unwrap();
    guard.apply("ethtool", &changes).unwrap();
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn an_interface_interrupts_otherwise_and_as_before_also_after_a_kill() {
    let Some(interface) = Interface::make() else {
        skip(Need::Rights, "no interface can be made here (root, ip, /dev/net/tun)");
        return;
    };
    let state = tempfile::tempdir().unwrap();
    let name = interface.0.as_str();
    let mine = Coalescing { receive_frames: 32, ..ethtool::coalescing(name).unwrap() };
    ethtool::set_coalescing(name, mine).unwrap();
    let plan = |section: &str| -> Result<Planned, Impossible> {
        let kind: TreatmentKind = serde_json::from_str(section).unwrap();
        kind.plan(&Surroundings::new(HostRoot::real(), &facts::collect(&HostRoot::real()).0, None))
    };
    let planned =
        plan(&format!("{{\"kind\":\"ethtool\",\"interfaces\":[\"{name}\"],\"delay\":\"0s\"}}")).unwrap();
    let target = Target::Ethernet { interface: name.to_owned(), setting: EthernetSetting::Coalescing };
    assert_eq!(planned.changes.iter().map(|it| &it.target).collect::<Vec<_>>(), [&target]);
    let mut first = guard(&state, "ethernet");
    first.apply("ethtool", &planned.changes).unwrap();
    assert_eq!(ethtool::coalescing(name).unwrap(), Coalescing { receive_frames: 1, ..mine });
    let report = first.undo();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(ethtool::coalescing(name).unwrap(), mine);
    drop(first);
    killed(&state, &planned.changes);
    assert_eq!(ethtool::coalescing(name).unwrap(), Coalescing { receive_frames: 1, ..mine });
    let next = Guard::begin(&place_of_killed(state.path()), &HostRoot::real(), holder()).unwrap();
    assert_eq!(next.recovered().outcomes.len(), 1, "{:?}", next.recovered());
    assert_eq!(ethtool::coalescing(name).unwrap(), mine);
    // An interface whose driver does not have that setting.
    let none = plan(&format!("{{\"kind\":\"ethtool\",\"interfaces\":[\"{name}\"],\"link_sleep\":false}}"));
    assert!(none.unwrap_err().reason.contains("Energy-Efficient Ethernet"));
    let lo = plan("{\"kind\":\"ethtool\",\"interfaces\":[\"lo\"],\"delay\":\"0s\"}");
    assert!(says("lo-its-driver-does", &lo.unwrap_err().reason));
    let missing = plan("{\"kind\":\"ethtool\",\"interfaces\":[\"eth77\"],\"delay\":\"0s\"}");
    assert!(says("there-no-interface-eth77", &missing.unwrap_err().reason));
}
