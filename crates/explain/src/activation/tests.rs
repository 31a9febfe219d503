//! Activations made by hand, with what the CPUs did meanwhile.

use super::*;
use crate::segments::{Segment, Thread};
use whylate_core::recording::{Budget, Object, Waker};
use whylate_testing::says;

const TASK: u32 = 5;

fn thread(pid: u32, priority: i32, command: &str) -> Thread {
    Thread { pid, priority, command: command.to_owned() }
}

fn stage(from_ns: u64, to_ns: u64, what: Doing) -> Stage {
    Stage { from_ns, to_ns, cpu: CpuId(1), what }
}

/// A real-time task of that priority that was due and woken at 1,000,000.
fn activation(priority: i32, stages: Vec<Stage>) -> Activation {
    let thread = thread(TASK, priority, "control");
    Activation { thread, process: 4, due_ns: 1_000_000, woken_ns: 1_000_000, stages, ..Activation::default() }
}

fn waking(previous: Thread) -> Doing {
    Doing::Waking { previous, budget: Budget::Left }
}

fn causes(activation: &Activation, segments: &[Segment]) -> Vec<Cause> {
    let recording = Recording { segments: segments.to_vec(), ..Recording::default() };
    let within = |_, from_ns, to_ns| recording.within(from_ns, to_ns);
    explain(activation, &within, &BTreeMap::new(), &Surroundings::default())
}

fn share(causes: &[Cause], kind: Kind) -> f64 {
    causes.iter().filter(|cause| cause.kind == kind).filter_map(|cause| cause.share).sum()
}

#[test]
fn a_slow_clock_has_the_time_that_it_added_to_the_work() {
    let stages = vec![stage(1_000_000, 2_000_000, Doing::Running)];
    let slow = Segment {
        from_ns: 500_000,
        to_ns: 1_800_000,
        what: Activity::SlowClock { khz: 500_000, highest_khz: 2_500_000 },
    };
    let softirq = Segment { from_ns: 1_300_000, to_ns: 1_400_000, what: Activity::Softirq { number: 3 } };
    let found = causes(&activation(40, stages), &[slow, softirq]);
    // 0.7 ms of own work at a fifth of the frequency would have taken 0.14 ms; the softirq is not own work.
    let shares = [Kind::SlowClock, Kind::OwnWork, Kind::Softirq].map(|kind| share(&found, kind));
    assert!((shares[0] - 0.56).abs() < 0.01 && (shares[1] - 0.34).abs() < 0.01, "{shares:?}");
    assert!((shares[2] - 0.1).abs() < 0.01, "{shares:?}");
    assert!(says("cpu-highest-frequency", &found[0].evidence[0]));
}

#[test]
fn own_work_is_what_no_interrupt_took() {
    let stages = vec![
        stage(1_000_000, 1_100_000, waking(thread(7, 50, "thief"))),
        stage(1_100_000, 2_000_000, Doing::Running),
    ];
    let softirq = Segment { from_ns: 1_500_000, to_ns: 1_700_000, what: Activity::Softirq { number: 3 } };
    let thief = Segment {
        from_ns: 900_000,
        to_ns: 1_100_000,
        what: Activity::Thread {
            thread: thread(7, 50, "thief"),
            process: 7,
            was_runnable: false,
            next_priority: 40,
        },
    };
    let found = causes(&activation(40, stages), &[thief, softirq]);
    assert_eq!(found[0].kind, Kind::OwnWork);
    let shares =
        [Kind::OwnWork, Kind::Softirq, Kind::Thread].map(|kind| (share(&found, kind) * 10.0).round());
    assert_eq!(shares, [7.0, 2.0, 1.0], "{found:#?}");
}

#[test]
fn a_lower_priority_thread_that_was_there_before_is_not_accused() {
    let of = |priority, previous: Thread| {
        let stages = vec![stage(1_000_000, 2_000_000, waking(previous))];
        causes(&activation(priority, stages), &[])
    };
    let kworker = || thread(9, -21, "kworker");
    assert!(of(40, kworker()).iter().all(|cause| cause.actor.is_none()), "{:?}", of(40, kworker()));
    let same = of(-21, kworker());
    assert_eq!((same[0].kind, same[0].actor.as_deref()), (Kind::Thread, Some("kworker")));
    assert!(same[0].confidence.unwrap() < 0.8);
}

#[test]
fn no_thread_is_accused_of_the_time_before_the_wake_up() {
    let stages = vec![stage(1_000_000, 2_000_000, waking(thread(9, 90, "irq/9")))];
    let late = Activation { woken_ns: 1_999_000, ..activation(40, stages) };
    let found = causes(&late, &[]);
    let accused: f64 =
        found.iter().filter(|cause| cause.actor.is_some()).filter_map(|cause| cause.share).sum();
    assert!(accused < 0.01, "{found:#?}");
}

#[test]
fn a_wait_for_a_first_cpu_is_no_late_timer() {
    let woken_by = Waker::Thread(9, "reader".to_owned());
    let stages = vec![
        stage(1_000_000, 1_600_000, waking(Thread::default())),
        Stage { cpu: CpuId(2), ..stage(1_600_000, 1_700_000, waking(thread(7, 90, "thief"))) },
        Stage { cpu: CpuId(2), ..stage(1_700_000, 1_800_000, Doing::Running) },
    ];
    let moved = Activation { waker: woken_by, ..activation(80, stages) };
    let first = causes(&moved, &[]).remove(0);
    assert_eq!((first.kind, first.share), (Kind::Unattributed, Some(0.75)));
    assert!(says("moved-another-one", &first.evidence[0]), "{:?}", first.evidence);
}

#[test]
fn who_took_the_cpu_is_blamed_even_without_a_recording_unless_it_had_no_right() {
    let preempted = |by: Thread, budget| {
        let stages = vec![
            stage(1_000_000, 1_100_000, Doing::Running),
            stage(1_100_000, 2_000_000, Doing::Preempted { by, budget }),
        ];
        causes(&activation(40, stages), &[]).remove(0)
    };
    let thief = preempted(thread(7, 50, "thief"), Budget::Left);
    assert_eq!((thief.kind, thief.actor.as_deref()), (Kind::Thread, Some("thief")));
    assert_eq!(preempted(thread(7, -21, "rustc"), Budget::Left).kind, Kind::Throttled);
    assert_eq!(preempted(thread(7, -21, "rustc"), Budget::Quota).kind, Kind::Quota);
    assert_eq!(preempted(thread(0, -21, "swapper"), Budget::Left).kind, Kind::Unattributed);
}

#[test]
fn held_by_is_not_released_by() {
    let blocked = |owner, waker| {
        let wait = Wait::Lock { address: 0x10, name: None, owner, inherits_priority: false };
        let stages = vec![stage(1_000_000, 2_000_000, Doing::Blocked { wait, waker })];
        causes(&activation(40, stages), &[]).remove(0)
    };
    let last = || Waker::Thread(8, "last".to_owned());
    let held = blocked(Some((7, "logger".to_owned())), Waker::Thread(7, "logger".to_owned()));
    assert_eq!((held.kind, held.actor.as_deref(), held.pid), (Kind::Lock, Some("logger"), Some(7)));
    assert!(held.confidence.unwrap() > 0.9);
    let handed_on = blocked(Some((7, "logger".to_owned())), last());
    assert_eq!(handed_on.actor.as_deref(), Some("logger"));
    assert!(
        handed_on.confidence.unwrap() < 0.7 && handed_on.evidence[0].contains("last (thread 8) released"),
        "{handed_on:?}"
    );
    let released = blocked(None, last());
    assert_eq!(released.actor.as_deref(), Some("last"));
    assert!(released.confidence.unwrap() <= 0.8 && released.evidence[0].contains("released"), "{released:?}");
    assert_eq!(blocked(None, Waker::Interrupt).actor, None);
}

fn ran(from_ns: u64, to_ns: u64, pid: u32, command: &str, was_runnable: bool) -> Segment {
    let thread = thread(pid, 10, command);
    Segment {
        from_ns,
        to_ns,
        what: Activity::Thread { thread, process: pid, was_runnable, next_priority: 20 },
    }
}

#[test]
fn a_lock_whose_holder_was_preempted_says_by_whom() {
    let wait = Wait::Lock {
        address: 0x10,
        name: None,
        owner: Some((7, "logger".to_owned())),
        inherits_priority: false,
    };
    let stages = vec![
        stage(1_000_000, 1_100_000, Doing::Running),
        stage(1_100_000, 2_000_000, Doing::Blocked { wait, waker: Waker::Thread(7, "logger".to_owned()) }),
    ];
    let of = |was_runnable, priority| {
        let segments = [
            ran(800_000, 900_000, 7, "logger", was_runnable),
            ran(900_000, 1_000_000, 8, "hog", true),
            ran(1_100_000, 1_900_000, 8, "hog", false),
            ran(1_900_000, 2_000_000, 7, "logger", true),
        ];
        causes(&activation(priority, stages.clone()), &segments).remove(0)
    };
    let inverted = of(true, 40);
    assert_eq!((inverted.kind, inverted.actor.as_deref()), (Kind::Lock, Some("logger (preempted by hog)")));
    assert_eq!(inverted.pid, Some(7));
    let names_hog =
        inverted.evidence.iter().any(|line| line.contains("hog (thread 8)") && line.contains("800 us"));
    assert!(names_hog, "{inverted:?}");
    let is_inversion = |cause: &Cause| cause.evidence.iter().any(|line| line.contains("priority inversion"));
    assert!(is_inversion(&inverted) && !is_inversion(&of(true, 5)), "hog has priority 10");
    assert_eq!(of(false, 40).actor.as_deref(), Some("logger"), "it slept by itself");
}

#[test]
fn a_waker_that_was_preempted_says_by_whom() {
    let of = |holder_moved: bool| {
        let wait = Wait::Inside { call: "futex".to_owned(), object: Object::Word(0x10, None) };
        let waker = Waker::Thread(7, "logger".to_owned());
        let other = Stage { cpu: CpuId(2), ..stage(900_000, 1_000_000, Doing::Running) };
        let stages = vec![
            other,
            stage(1_000_000, 1_100_000, Doing::Running),
            stage(1_100_000, 2_000_000, Doing::Blocked { wait, waker }),
        ];
        let here = vec![
            ran(800_000, 900_000, 7, "logger", true),
            ran(1_100_000, 1_900_000, 8, "hog", false),
            ran(1_900_000, 2_000_000, 7, "logger", true),
        ];
        let there = holder_moved.then(|| ran(910_000, 1_800_000, 7, "logger", false));
        let recordings = |cpu: CpuId, _: u64, _: u64| Recording {
            segments: if cpu == CpuId(2) { there.clone().into_iter().collect() } else { here.clone() },
            ..Recording::default()
        };
        explain(&activation(40, stages), &recordings, &BTreeMap::new(), &Surroundings::default()).remove(0)
    };
    let preempted = of(false);
    assert_eq!(
        (preempted.kind, preempted.actor.as_deref()),
        (Kind::Wait, Some("logger (preempted by hog)")),
        "{preempted:?}"
    );
    assert!(preempted.evidence.iter().any(|line| line.contains("hog (thread 8)")), "{preempted:?}");
    assert_eq!(of(true).actor.as_deref(), Some("logger"), "it ran on the other CPU meanwhile");
}

#[test]
fn the_stack_of_a_late_wake_up_is_kept_and_one_without_is_known_all_the_same() {
    let spinner = || thread(9, -21, "spinner");
    let ran = Activity::Thread { process: 9, thread: spinner(), was_runnable: true, next_priority: 40 };
    let ran = Segment { from_ns: 500_000, to_ns: 31_000_000, what: ran };
    let first = |stack: &[&str]| {
        let stack: Vec<String> = stack.iter().map(|name| (*name).to_owned()).collect();
        let woken = Activity::Wakeup { pid: TASK, process: 4, previous: spinner(), stack };
        let woken = Segment { from_ns: 1_000_000, to_ns: 31_000_000, what: woken };
        let stages = vec![stage(1_000_000, 31_000_000, waking(spinner()))];
        causes(&activation(40, stages), &[ran.clone(), woken]).remove(0)
    };
    let known = first(&["__schedule", "preempt_schedule", "stall", "kthread"]);
    assert_eq!((known.kind, known.function.as_deref()), (Kind::PreemptOff, Some("stall")), "{known:?}");
    let stages = vec![stage(1_000_000, 31_000_000, waking(spinner()))];
    let unknown = causes(&activation(40, stages), std::slice::from_ref(&ran)).remove(0);
    assert_eq!((unknown.kind, unknown.function), (Kind::PreemptOff, None));
}

#[test]
fn a_task_that_is_woken_while_others_are_throttled_waits_for_the_same() {
    woken_while_throttled(|thread| thread.pid);
    // The same where they are threads of its own process.
    woken_while_throttled(|_| 4);
}

fn woken_while_throttled(process: impl Fn(&Thread) -> u32) {
    let ran = |from_ns, to_ns, who: Thread, was_runnable, next_priority| Segment {
        from_ns,
        to_ns,
        what: Activity::Thread { process: process(&who), thread: who, was_runnable, next_priority },
    };
    let spinner = || thread(9, -21, "spinner");
    let first = |segments: &[Segment]| {
        let stages = vec![stage(1_000_000, 31_000_000, waking(spinner()))];
        let woken = Activity::Wakeup { pid: TASK, process: 4, previous: spinner(), stack: Vec::new() };
        let mut all = segments.to_vec();
        all.push(Segment { from_ns: 1_000_000, to_ns: 31_000_000, what: woken });
        let timer = Activity::Timer { pid: TASK, process: 4, stack: Vec::new() };
        all.push(Segment { from_ns: 1_000_000, to_ns: 1_000_000, what: timer });
        causes(&activation(40, stages), &all).remove(0)
    };
    let loops = |was_runnable| ran(100_000, 500_000, thread(8, 20, "loop"), was_runnable, -21);
    let waits = || ran(500_000, 31_000_000, spinner(), true, 40);
    let throttled = first(&[loops(true), waits()]);
    assert_eq!((throttled.kind, throttled.confidence), (Kind::Throttled, Some(STATED)), "{throttled:?}");
    // It slept, or it came again before the wake-up.
    let slept = first(&[loops(false), waits()]);
    assert_eq!((slept.kind, slept.actor.as_deref()), (Kind::PreemptOff, Some("spinner")), "{slept:?}");
    let again = [
        loops(true),
        ran(500_000, 700_000, spinner(), true, 20),
        ran(700_000, 800_000, thread(8, 20, "loop"), false, -21),
        ran(800_000, 31_000_000, spinner(), true, 40),
    ];
    assert_eq!(first(&again).kind, Kind::PreemptOff);
}

/// Only the time after the other threads is that of the last one.
#[test]
fn the_last_of_several_threads_is_not_accused_of_the_time_of_the_others() {
    let ran = |from_ns, to_ns, who: Thread| Segment {
        from_ns,
        to_ns,
        what: Activity::Thread { process: who.pid, thread: who, was_runnable: false, next_priority: 0 },
    };
    let last = || thread(7, 99, "last");
    let stages = vec![stage(1_000_000, 10_000_000, waking(last()))];
    let found = causes(&activation(40, stages), &[ran(7_000_000, 9_000_000, thread(9, 20, "other"))]);
    let of_last: f64 =
        found.iter().filter(|it| it.actor.as_deref() == Some("last")).filter_map(|it| it.share).sum();
    assert!((of_last - 1.0 / 9.0).abs() < 0.01, "{found:#?}");
}

#[test]
fn stages_alone_give_causes_of_the_whole_response_without_an_actor() {
    let by = Thread::default();
    let one = activation(
        0,
        vec![
            stage(1_000_000, 1_100_000, Doing::Running),
            stage(1_100_000, 1_200_000, Doing::Preempted { by, budget: Budget::Left }),
        ],
    );
    let causes = explain_alone(&one, false);
    let shares: f64 = causes.iter().filter_map(|cause| cause.share).sum();
    assert!((shares - 1.0).abs() < 1e-9 && causes.len() == 2, "{causes:?}");
    assert!(causes.iter().any(|cause| cause.kind == Kind::Thread), "{causes:?}");
    let limited = explain_alone(&one, true);
    assert!(limited.iter().any(|cause| cause.kind == Kind::Unattributed), "{limited:?}");
    assert!(causes.iter().all(|cause| cause.actor.is_none() && cause.confidence.is_none_or(|it| it < 0.9)));
}

#[test]
fn a_wait_with_timeouts_is_of_the_thread_that_ends_the_last_one() {
    let word = |address| Wait::Inside { call: "futex".to_owned(), object: Object::Word(address, None) };
    let slept =
        |from_ns, to_ns, address, waker| stage(from_ns, to_ns, Doing::Blocked { wait: word(address), waker });
    let burner = || Waker::Thread(9, "burner".to_owned());
    let tries = |last| {
        vec![
            slept(1_000_000, 6_000_000, 0x100, Waker::Timer),
            slept(6_000_000, 8_000_000, last, burner()),
            stage(8_000_000, 8_100_000, Doing::Running),
        ]
    };
    let found = causes(&activation(40, tries(0x108)), &[]);
    assert_eq!((found[0].kind, found[0].actor.as_deref()), (Kind::Wait, Some("burner")));
    assert!(share(&found, Kind::Wait) > 0.9 && found[0].confidence < Some(0.8), "{found:#?}");
    let other = causes(&activation(40, tries(0x900)), &[]);
    assert_eq!((other[0].kind, other[0].actor.as_deref()), (Kind::Wait, None));
}

#[test]
fn a_word_or_a_waker_of_a_runtime_is_said() {
    let evidence = |object, waker| {
        let wait = Wait::Inside { call: "futex".to_owned(), object };
        let stages = vec![
            stage(1_000_000, 6_000_000, Doing::Blocked { wait, waker }),
            stage(6_000_000, 6_100_000, Doing::Running),
        ];
        causes(&activation(40, stages), &[])[0].evidence.join("; ")
    };
    let word = |name: &str| Object::Word(0x108, Some(name.to_owned()));
    let by = |name: &str| Waker::Thread(9, name.to_owned());
    let python = evidence(word("_PyRuntime of libpython3.11.so.1.0"), by("hog"));
    assert!(python.contains("GIL") && python.contains("until hog woke it"), "{python}");
    assert!(evidence(Object::Word(0x108, None), by("VM Thread")).contains("safepoint"));
    assert!(evidence(Object::Word(0x108, None), by("GC Thread#1")).contains("collector"));
    assert!(evidence(word("runtime.sched of control"), by("control")).contains("Go's runtime"));
    let own = evidence(word("log_lock of control"), by("logger"));
    assert!(own.contains("(in log_lock of control)") && !own.contains("runtime"), "{own}");
}
