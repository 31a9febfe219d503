//! Watched tasks, on this machine's kernel: planted causes are found. Where the kernel refuses BPF programs, the tests say
//! so.

#[path = "../../bpf/tests/support/mod.rs"]
mod support;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use support::unless_refused;
use whylate_bpf::tasks::{Activation, CounterEvents, Doing, Stage, TaskTarget, TaskWatch, Wait};
use whylate_core::result::{Cause, CauseKind};
use whylate_core::{CpuId, CpuSet, Facts};
use whylate_host::HostRoot;
use whylate_record::tasks::TaskExplainer;
use whylate_sys::schedule;
use whylate_sys::schedule::Scheduling;
use whylate_testing::{Need, skip};

/// An activation with its causes.
type Explained = (Activation, Vec<Cause>);

fn watch(target: &TaskTarget) -> Option<TaskWatch> {
    let cpus = schedule::allowed_of_this_thread().unwrap();
    unless_refused(TaskWatch::start(&HostRoot::real(), &cpus, target))
}

fn explainer() -> TaskExplainer {
    TaskExplainer::new(&HostRoot::real(), &Facts::default())
}

/// On a machine that is busy otherwise, a planted cause may need that long to show.
const PATIENCE: Duration = Duration::from_secs(30);

/// The tests want one CPU for themselves.
static CPU: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    CPU.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Follows until it has seen enough, and explains what took at least `least_ns`.
fn follow(watch: &mut TaskWatch, least_ns: u64, enough: impl Fn(&[Explained]) -> bool) -> Vec<Explained> {
    let (begin, mut all) = (Instant::now(), Vec::new());
    while begin.elapsed() < PATIENCE && !enough(&all) {
        std::thread::sleep(Duration::from_millis(20));
        let found = watch.poll().unwrap();
        let long: Vec<&Activation> = found.iter().filter(|it| it.response_ns() >= least_ns).collect();
        let causes = explainer().explain(watch, &long).unwrap();
        all.extend(long.into_iter().cloned().zip(causes.into_iter().map(|explained| explained.causes)));
    }
    all
}

/// Runs a thread of that name until the returned value is dropped.
struct Running {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    fn start(name: &str, cpu: CpuId, priority: Option<u32>, mut turn: impl FnMut() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let work = move || {
            schedule::pin_this_thread(&CpuSet::from_iter([cpu])).unwrap();
            if let Some(priority) = priority {
                schedule::schedule_this_thread(Scheduling::Fifo(priority)).unwrap();
            }
            while !asked.load(SeqCst) {
                turn();
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work).unwrap();
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn spin(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn last_cpu() -> CpuId {
    schedule::allowed_of_this_thread().unwrap().iter().last().unwrap()
}

/// The shares of a response add up, and at most 1 % is left without a name.
fn assert_whole(explained: &[Explained]) {
    for (activation, causes) in explained {
        let (unnamed, named): (Vec<&Cause>, Vec<&Cause>) =
            causes.iter().partition(|cause| cause.kind == CauseKind::Unattributed);
        let sum = |causes: &[&Cause]| causes.iter().filter_map(|cause| cause.share).sum::<f64>();
        // Why a timer's interrupt was late is only known if a stack was kept.
        let late_ns = activation.woken_ns - activation.due_ns;
        // A thread that has a CPU leaves no record there until it gives it up; a thread that waited for it may have
        // been moved before.
        let is_wait = |stage: &Stage| matches!(stage.what, Doing::Waking { .. });
        let moved = activation.stages.windows(2).filter(|pair| pair.iter().all(is_wait));
        // Some guests do not show every switch.
        let is_unseen = |stage: &&Stage| matches!(stage.what, Doing::Unseen);
        let unseen_ns: u64 = activation.stages.iter().filter(is_unseen).map(Stage::length_ns).sum();
        let pending_ns = late_ns + unseen_ns + moved.map(|pair| pair[0].length_ns()).sum::<u64>();
        let pending = pending_ns as f64 / activation.response_ns() as f64;
        // Contributors below 1 % are left out, and those after the eighth.
        assert!((0.5..1.000_001).contains(&(sum(&named) + pending).min(1.0)), "{activation:?} {causes:#?}");
        assert!(sum(&named) < 1.000_001, "{activation:?} {causes:#?}");
        assert!(sum(&unnamed) <= 0.01 + pending, "{activation:?} {causes:#?}");
        let mut at_ns = activation.due_ns;
        for stage in &activation.stages {
            assert!(stage.from_ns == at_ns && stage.to_ns >= at_ns, "{activation:#?}");
            at_ns = stage.to_ns;
        }
    }
}

fn find(causes: &[Cause], kind: CauseKind) -> Option<&Cause> {
    causes.iter().find(|cause| cause.kind == kind)
}

/// Clocks in place of counters, which most virtual machines do not have: each counts nanoseconds.
#[test]
fn counters_count_what_a_task_runs_and_what_others_run_in_between_is_not_counted() {
    let _alone = alone();
    let (cpu_clock, dummy) = ((1, 0), (1, 9));
    let (cpus, target) =
        (schedule::allowed_of_this_thread().unwrap(), TaskTarget::Name("wl-counted".to_owned()));
    let clocks = CounterEvents([cpu_clock, cpu_clock, dummy]);
    let started = TaskWatch::start_keeping(&HostRoot::real(), &cpus, &target, 0, false, clocks);
    let Some(mut watch) = unless_refused(started) else { return };
    assert_eq!(watch.missing_counters(), None);
    watch.divide_own_work().unwrap();
    let _thief = Running::start("wl-thief", last_cpu(), Some(20), || {
        spin(Duration::from_micros(700));
        std::thread::sleep(Duration::from_millis(2));
    });
    let _task = Running::start("wl-counted", last_cpu(), Some(10), || {
        spin(Duration::from_millis(3));
        std::thread::sleep(Duration::from_millis(3));
    });
    let found = follow(&mut watch, 500_000, |all| all.len() > 40);
    assert!(found.iter().filter(|(one, _)| one.preempted_ns() > 500_000).count() > 10, "{}", found.len());
    for (one, _) in &found {
        let (ran_ns, counts) = (one.running_ns(), one.counts);
        let counted_ns = counts.instructions.unwrap_or_else(|| panic!("not counted: {one:#?}"));
        assert!(counted_ns.abs_diff(ran_ns) < ran_ns / 20 + 20_000, "{counted_ns} of {ran_ns}: {one:#?}");
        assert_eq!((counts.cycles.is_some(), counts.cache_misses), (true, Some(0)));
    }
}

#[test]
fn a_task_that_works_between_sleeps_has_its_own_work_as_the_cause() {
    let _alone = alone();
    let Some(mut watch) = watch(&TaskTarget::Name("wl-plain".to_owned())) else { return };
    let _task = Running::start("wl-plain", last_cpu(), None, || {
        spin(Duration::from_millis(2));
        std::thread::sleep(Duration::from_millis(3));
    });
    let found = follow(&mut watch, 1_000_000, |found| found.len() > 50);
    assert!(found.len() > 50, "{}", found.len());
    assert_whole(&found);
    let mut disturbed = Vec::new();
    for (activation, causes) in &found {
        let own = find(causes, CauseKind::OwnWork).and_then(|cause| cause.share).unwrap_or(0.0);
        let running = activation.running_ns() as f64 / activation.response_ns() as f64;
        assert!(own <= running + 1e-6, "{activation:#?} {causes:#?}");
        if own <= running * 0.8 {
            disturbed.push((activation, causes));
        }
    }
    // Interrupts and the host take more than that from a few activations of a busy machine.
    assert!(disturbed.len() * 5 < found.len(), "{} of {}: {disturbed:#?}", disturbed.len(), found.len());
    let (activation, _) = &found[found.len() / 2];
    assert_eq!(activation.slept, Wait::Work(Some("clock_nanosleep".to_owned())));
    assert!(activation.wakeup_ns() < activation.response_ns(), "{activation:?}");
    assert_eq!(watch.losses().records, 0);
}

#[test]
fn a_thread_of_higher_priority_that_preempts_is_named_with_its_time() {
    let _alone = alone();
    let cpu = last_cpu();
    let Some(mut watch) = watch(&TaskTarget::Name("wl-victim".to_owned())) else { return };
    let _task = Running::start("wl-victim", cpu, None, || {
        spin(Duration::from_millis(6));
        std::thread::sleep(Duration::from_millis(4));
    });
    let _thief = Running::start("wl-thief", cpu, Some(30), || {
        spin(Duration::from_millis(3));
        std::thread::sleep(Duration::from_millis(23));
    });
    let hit = |(activation, _): &&Explained| {
        activation.stages.iter().any(|stage| {
            matches!(&stage.what, Doing::Preempted { by, .. } if by.command == "wl-thief" && stage.length_ns() > 2_000_000)
        })
    };
    let found = follow(&mut watch, 1_000_000, |found| found.iter().filter(hit).count() > 10);
    assert_whole(&found);
    let hits: Vec<&Explained> = found.iter().filter(hit).collect();
    assert!(hits.len() > 10, "{} of {}", hits.len(), found.len());
    for (activation, causes) in &hits {
        let by_thief =
            |stage: &&Stage| matches!(&stage.what, Doing::Preempted { by, .. } if by.command == "wl-thief");
        let preempted_ns: u64 = activation.stages.iter().filter(by_thief).map(Stage::length_ns).sum();
        let thief = causes.iter().find(|cause| cause.actor.as_deref() == Some("wl-thief"));
        let thief = thief.unwrap_or_else(|| panic!("{activation:#?} {causes:#?}"));
        assert_eq!(thief.kind, CauseKind::Thread);
        // Interrupts, and a host that stops the CPU, have their part of that time.
        let took_ns = thief.share.unwrap() * activation.response_ns() as f64;
        assert!(took_ns > 0.3 * preempted_ns as f64, "{took_ns} of {preempted_ns}: {causes:#?}");
    }
}

#[test]
fn a_lock_without_a_known_owner_names_the_thread_that_released_it_with_little_confidence() {
    let _alone = alone();
    let cpu = last_cpu();
    let Some(mut watch) = watch(&TaskTarget::Name("wl-waiter".to_owned())) else { return };
    let lock = Arc::new(Mutex::new(()));
    let (own, other) = (Arc::clone(&lock), lock);
    let _holder = Running::start("wl-holder", CpuId(0), None, move || {
        let held = other.lock().unwrap();
        spin(Duration::from_millis(3));
        drop(held);
        std::thread::sleep(Duration::from_millis(9));
    });
    let _task = Running::start("wl-waiter", cpu, None, move || {
        drop(own.lock().unwrap());
        std::thread::sleep(Duration::from_millis(2));
    });
    // On a busy machine it may also wait for a lock of the kernel, for example that of its memory.
    let is_of_kernel =
        |cause: &&Cause| cause.evidence.iter().any(|line| line.starts_with("the wait for the "));
    let of_lock = |(_, causes): &'_ Explained| {
        find(causes, CauseKind::Lock).filter(|cause| !is_of_kernel(cause)).cloned()
    };
    let named = |found: &[Explained]| -> Vec<Cause> {
        found.iter().filter_map(of_lock).filter(|cause| cause.actor.is_some()).collect()
    };
    let found = follow(&mut watch, 500_000, |found| named(found).len() > 10);
    assert_whole(&found);
    assert!(named(&found).len() > 10, "{} of {}", named(&found).len(), found.len());
    for cause in named(&found) {
        assert_eq!(cause.actor.as_deref(), Some("wl-holder"));
        assert!(cause.confidence.unwrap() <= 0.8, "{cause:?}");
    }
    // Some guests do not show every event to the programs: no thread is named if an interrupt seems to have ended the
    // wait.
    let unnamed = |one: &&Explained| of_lock(one).filter(|cause| cause.actor.is_none());
    for cause in found.iter().filter_map(|one| unnamed(&one)) {
        assert!(cause.confidence.unwrap() <= 0.8, "{cause:?}");
        assert!(
            cause.evidence.iter().any(|line| line.contains("the lock's holder is not known")),
            "{cause:?}"
        );
    }
}

/// A shell and everything that it starts; ended when this is dropped.
struct Shell(Child);

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_a_watched_thread_starts_is_watched_from_its_first_moment() {
    let _alone = alone();
    let Some(mut watch) = watch(&TaskTarget::Children) else { return };
    let own = schedule::id_of_this_thread();
    watch.follow_children(own, true).unwrap();
    let script = "for i in 1 2 3 4 5; do sleep 0.02; done";
    let _shell = Shell(Command::new("/bin/sh").args(["-c", script]).spawn().unwrap());
    watch.follow_children(own, false).unwrap();
    let begin = Instant::now();
    let found = follow(&mut watch, 0, |_| begin.elapsed() > Duration::from_secs(2));
    assert!(found.iter().any(|(activation, _)| activation.thread.command == "sh"), "{found:?}");
    let names: Vec<&str> = watch.threads().values().map(|thread| thread.command.as_str()).collect();
    assert_eq!(names.iter().filter(|name| **name == "sleep").count(), 5, "{names:?}");
    assert!(watch.threads().values().all(|thread| thread.command != "tasks"), "{:?}", watch.threads());
    let ended = watch.threads().values().filter(|thread| thread.is_gone).count();
    assert!(ended >= 5, "{:?}", watch.threads());
}

#[test]
fn priorities_are_watched_without_being_listed() {
    let _alone = alone();
    let Some(mut watch) = watch(&TaskTarget::Priorities(41, 42)) else { return };
    // Threads of the watching process are never watched by their priority.
    let shell = |priority: u32| {
        let mut child = None;
        Running::start(&format!("wl-{priority}"), last_cpu(), Some(priority), move || {
            let script = "while :; do sleep 0.001; done";
            let start = || Shell(Command::new("/bin/sh").args(["-c", script]).spawn().unwrap());
            child.get_or_insert_with(start);
            std::thread::sleep(Duration::from_millis(1));
        })
    };
    let (_inside, _outside) = (shell(41), shell(43));
    let of = |found: &[Explained], priority: i32| {
        found.iter().filter(|(activation, _)| activation.thread.priority == priority).count()
    };
    let found = follow(&mut watch, 0, |found| of(found, 41) > 100);
    assert!(of(&found, 41) > 100 && of(&found, 43) == 0, "{found:?}");
    assert!(found.iter().all(|(activation, _)| !activation.thread.command.starts_with("wl-")), "{found:?}");
}

/// A thread that takes a byte from one socket and gives it to the next.
fn passing_on(name: &str, mut from: UnixStream, mut to: UnixStream) -> Running {
    from.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    Running::start(name, last_cpu(), None, move || {
        let mut byte = [0];
        if from.read_exact(&mut byte).is_ok() {
            spin(Duration::from_millis(1));
            // At the end of the test, the last one is no longer read.
            _ = to.write_all(&byte);
        }
    })
}

#[test]
fn a_wake_up_is_followed_back_to_the_timer_that_began_it() {
    let _alone = alone();
    let Some(mut watch) = watch(&TaskTarget::Name("wl-last".to_owned())) else { return };
    let [(mut begin, second), (third, last), (end, _kept)] = [(); 3].map(|()| UnixStream::pair().unwrap());
    let _beginning = Running::start("wl-begin", last_cpu(), None, move || {
        std::thread::sleep(Duration::from_millis(10));
        _ = begin.write_all(b"x");
    });
    let _middle = passing_on("wl-middle", second, third);
    let _last = passing_on("wl-last", last, end);
    let (since, mut seen) = (Instant::now(), Vec::new());
    let expected = ["wl-middle", "wl-begin"];
    while since.elapsed() < PATIENCE && seen.is_empty() {
        std::thread::sleep(Duration::from_millis(50));
        let found = watch.poll().unwrap();
        let explained = explainer().explain(&mut watch, &found.iter().collect::<Vec<_>>()).unwrap();
        seen.extend(explained.into_iter().filter(|it| {
            let names: Vec<&str> = it.wakeups.iter().map(|link| link.by.as_str()).collect();
            names.len() == 3 && names[..2] == expected && names[2].starts_with("a timer")
        }));
    }
    let Some(explained) = seen.first() else { panic!("no chain back to the timer within {PATIENCE:?}") };
    let links = &explained.wakeups;
    assert!(links.windows(2).all(|pair| pair[0].at_ns > pair[1].at_ns), "{links:?}");
    // It spun for a millisecond before it passed the byte on.
    assert!(links[0].took_ns >= Some(900_000), "{links:?}");
    assert!(
        explained.causes[0].evidence.iter().any(|it| it.starts_with("woken by wl-middle (")),
        "{explained:?}"
    );
}

/// A shell that has trace_marker open as file 3. If tracefs is not mounted, only the shell has it.
fn marking_shell(turns: &str) -> Shell {
    let folder = "/sys/kernel/tracing";
    let mounted = format!("test -e {folder}/trace_marker || mount -t tracefs tracefs {folder} || exit");
    let script = format!("{mounted}; exec 3>{folder}/trace_marker && {turns}");
    Shell(Command::new("unshare").args(["--mount", "/bin/sh", "-c", &script]).spawn().unwrap())
}

#[test]
fn texts_for_trace_marker_say_where_an_activation_begins_and_ends() {
    let _alone = alone();
    // The same texts in other files are no marks, nor are others in this one.
    let turns = "while :; do echo 'control: end' >/dev/null; echo 'control: begin 7' >&3; \
                 echo 'control: end' >/dev/null; sleep 0.005; echo 'another' >&3; echo 'control: end' >&3; \
                 echo 'control: begin' >/dev/null; sleep 0.02; done";
    let mut shell = marking_shell(turns);
    let (open, begun) = (format!("/proc/{}/fd/3", shell.0.id()), Instant::now());
    while std::fs::symlink_metadata(&open).is_err()
        && shell.0.try_wait().unwrap().is_none()
        && begun.elapsed() < PATIENCE
    {
        std::thread::sleep(Duration::from_millis(10));
    }
    if shell.0.try_wait().unwrap().is_some() {
        return skip(
            Need::Rights,
            "this machine has no tracefs, or does not allow writing into trace_marker",
        );
    }
    let Some(mut watch) = watch(&TaskTarget::Process(shell.0.id())) else { return };
    let marks = ["marker:control: begin", "marker:control: end"].map(|mark| mark.parse().unwrap());
    if unless_refused(watch.mark(&marks)).is_none() {
        return;
    }
    let seen = follow(&mut watch, 0, |all| all.len() >= 20);
    assert!(seen.len() >= 20, "{} activations", seen.len());
    assert_whole(&seen);
    for (activation, _) in &seen {
        assert_eq!((activation.thread.pid, activation.process), (shell.0.id(), shell.0.id()));
        assert!(activation.response_ns() >= 5_000_000, "the first sleep is within: {activation:#?}");
    }
    let is_outside = |pair: &[Explained]| pair[1].0.due_ns >= pair[0].0.end_ns() + 20_000_000;
    assert!(seen.windows(2).all(is_outside), "the second sleep is outside: {seen:#?}");
    // It does not always have to wait for the thread that sleeps: on a busy machine that may be over before.
    let waits: Vec<&Cause> = seen.iter().filter_map(|(_, causes)| find(causes, CauseKind::Wait)).collect();
    assert!(waits.iter().any(|wait| wait.function.as_deref() == Some("wait4")), "{waits:#?}");
    assert_eq!(watch.losses().unread_texts, 0);
}

/// The C library of this process, by its map.
fn library() -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    paths.into_iter().find(|path| path.contains("libc.so")).map(str::to_owned)
}

#[test]
fn marks_say_where_an_activation_begins_and_ends() {
    let _alone = alone();
    let Some(library) = library() else {
        return skip(Need::Machine("a system with a shared C library"), "no C library is mapped");
    };
    let Some(mut watch) = watch(&TaskTarget::Name("wl-marked".to_owned())) else { return };
    let mark = |function: &str| format!("{library}:{function}").parse().unwrap();
    if unless_refused(watch.mark(&[mark("clock_nanosleep"), mark("sched_yield")])).is_none() {
        return;
    }
    let _marked = Running::start("wl-marked", last_cpu(), Some(50), || {
        std::thread::sleep(Duration::from_millis(6));
        spin(Duration::from_millis(2));
        std::thread::yield_now();
        // This is outside.
        spin(Duration::from_millis(3));
    });
    let seen = follow(&mut watch, 0, |all| all.len() >= 20);
    assert!(seen.len() >= 20, "{} activations", seen.len());
    assert_whole(&seen);
    for (activation, causes) in &seen {
        assert!(
            activation.blocked_ns() >= 5_500_000 && activation.running_ns() >= 1_900_000,
            "{activation:#?}"
        );
        assert!(matches!(activation.stages[0].what, Doing::Running), "{activation:#?}");
        let slept = find(causes, CauseKind::Wait).unwrap();
        assert_eq!(slept.function.as_deref(), Some("clock_nanosleep"), "{causes:#?}");
    }
    // On a busy machine one may take longer, but not all can have the three milliseconds in them.
    let shortest = seen.iter().map(|(activation, _)| activation.response_ns()).min().unwrap();
    assert!(shortest < 11_000_000, "{shortest}");
}
