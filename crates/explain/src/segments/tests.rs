//! Planted recordings: each cause is named first, and by its right kind.

use super::{Activity, Recording, Segment, Sender, Surroundings, Thread, Window, decompose};
use proptest::prelude::*;
use whylate_core::CpuId;
use whylate_core::recording::{FAIR_SERVER, GROUP_RUNTIME};
use whylate_core::result::{Cause, CauseKind};
use whylate_testing::says;

const OWN: u32 = 100;

fn window(is_timer: bool, to_ns: u64) -> Window {
    Window {
        cpu: CpuId(1),
        from_ns: 1_000_000,
        to_ns,
        is_timer,
        is_probe: true,
        process: OWN,
        thread: None,
        priority: 95,
    }
}

fn segment(from_ns: u64, to_ns: u64, what: Activity) -> Segment {
    Segment { from_ns, to_ns, what }
}

fn thread(pid: u32, priority: i32, command: &str) -> Thread {
    Thread { pid, priority, command: command.to_owned() }
}

fn ran(from_ns: u64, to_ns: u64, thread: Thread) -> Segment {
    let process = thread.pid;
    segment(from_ns, to_ns, Activity::Thread { thread, process, was_runnable: true, next_priority: 95 })
}

fn stack(names: &str) -> Vec<String> {
    names.split_ascii_whitespace().map(str::to_owned).collect()
}

fn timer(to_ns: u64, names: &str) -> Segment {
    segment(1_000_000, to_ns, Activity::Timer { pid: 101, process: OWN, stack: stack(names) })
}

fn wakeup(from_ns: u64, to_ns: u64, names: &str) -> Segment {
    let previous = thread(7, -21, "other");
    segment(from_ns, to_ns, Activity::Wakeup { pid: 101, process: OWN, previous, stack: stack(names) })
}

fn recording(segments: Vec<Segment>) -> Recording {
    Recording { segments, ..Recording::default() }
}

fn first(window: &Window, segments: Vec<Segment>) -> Cause {
    let causes = decompose(window, &recording(segments), &Surroundings::default());
    causes[0].clone()
}

#[test]
fn disabled_interrupts_are_named_by_what_the_late_interrupt_interrupted() {
    let segments = vec![
        timer(
            1_126_000,
            "hrtimer_wakeup hrtimer_interrupt asm_sysvec_apic_timer_interrupt unarm irq_handler",
        ),
        segment(1_125_000, 1_128_000, Activity::Vector { vector: 0xec }),
        ran(900_000, 1_150_000, thread(489, 49, "irq/45-nvkm")),
        wakeup(1_126_000, 1_150_000, ""),
    ];
    let cause = first(&window(true, 1_151_000), segments);
    assert_eq!((cause.kind, cause.function.as_deref()), (CauseKind::IrqsOff, Some("unarm")));
    assert_eq!((cause.actor.as_deref(), cause.pid), (Some("irq/45-nvkm"), Some(489)));
    assert_eq!(cause.callers, ["irq_handler"]);
    assert!((cause.share.unwrap() - 125.0 / 151.0).abs() < 1e-9, "{cause:?}");
}

#[test]
fn a_hypervisor_may_have_sent_a_late_interrupt_late() {
    let segments =
        vec![timer(1_126_000, "hrtimer_wakeup asm_sysvec_apic_timer_interrupt _raw_spin_unlock_irq unarm")];
    let confidence = |is_virtual: bool| {
        let surroundings = Surroundings { is_virtual, ..Surroundings::default() };
        let causes = decompose(&window(true, 1_126_000), &recording(segments.clone()), &surroundings);
        assert_eq!((causes[0].kind, causes[0].function.as_deref()), (CauseKind::IrqsOff, Some("unarm")));
        causes[0].confidence
    };
    assert_eq!((confidence(false), confidence(true)), (Some(0.97), Some(0.75)));
}

#[test]
fn a_lower_priority_thread_that_keeps_the_cpu_has_preemption_off() {
    let segments = vec![
        timer(1_003_000, ""),
        ran(900_000, 1_200_000, thread(7, -21, "other")),
        wakeup(
            1_003_000,
            1_200_000,
            "__schedule preempt_schedule_common preempt_schedule_thunk stall kthread",
        ),
    ];
    let cause = first(&window(true, 1_201_000), segments);
    assert_eq!((cause.kind, cause.function.as_deref()), (CauseKind::PreemptOff, Some("stall")));
    assert_eq!(cause.actor.as_deref(), Some("other"));
}

#[test]
fn a_thread_that_lowers_its_priority_as_it_leaves_ran_at_the_one_before() {
    let raised = |priority| {
        let previous = thread(7, priority, "raiser");
        let woken = Activity::Wakeup { pid: 101, process: OWN, previous, stack: Vec::new() };
        let segments = vec![
            timer(1_003_000, ""),
            ran(900_000, 9_200_000, thread(7, -21, "raiser")),
            segment(1_003_000, 9_200_000, woken),
        ];
        first(&window(true, 9_201_000), segments).kind
    };
    assert_eq!((raised(96), raised(-21)), (CauseKind::Thread, CauseKind::PreemptOff));
}

#[test]
fn a_lower_priority_thread_that_even_the_tick_cannot_interrupt_has_interrupts_off() {
    let kept = |vectors: &[u64]| {
        let mut segments = vec![
            timer(1_003_000, ""),
            ran(900_000, 61_100_000, thread(7, 50, "holder")),
            wakeup(1_003_000, 61_100_000, ""),
        ];
        let tick = |at_ns: &u64| segment(*at_ns, at_ns + 4_000, Activity::Vector { vector: 0xec });
        segments.extend(vectors.iter().map(tick));
        first(&window(true, 61_101_000), segments)
    };
    let silent = kept(&[61_000_000]);
    assert_eq!((silent.kind, silent.actor.as_deref()), (CauseKind::IrqsOff, Some("holder")));
    assert!(silent.confidence < Some(1.0), "{silent:?}");
    assert_eq!(kept(&[21_000_000, 41_000_000, 61_000_000]).kind, CauseKind::PreemptOff, "ticks came");
    assert_eq!(kept(&[]).kind, CauseKind::PreemptOff, "this kernel may not record interrupts");
}

#[test]
fn a_guest_may_have_stood_still_while_no_tick_interrupted_a_thread() {
    let sure = |is_virtual: bool, ticks: &[u64]| {
        let mut segments = vec![ran(1_000_000, 401_000_000, thread(26, 99, "migration/1"))];
        let tick = |at_ns: &u64| segment(*at_ns, at_ns + 4_000, Activity::Vector { vector: 0xec });
        segments.extend(ticks.iter().map(tick));
        let surroundings = Surroundings { is_virtual, ..Surroundings::default() };
        let causes = decompose(&window(false, 401_001_000), &recording(segments), &surroundings);
        assert_eq!((causes[0].kind, causes[0].actor.as_deref()), (CauseKind::Thread, Some("migration/1")));
        causes[0].confidence
    };
    let ticks: Vec<u64> = (1..20).map(|tick| tick * 20_000_000).collect();
    assert_eq!((sure(false, &[]), sure(true, &ticks)), (Some(1.0), Some(1.0)));
    assert!(sure(true, &[]) < Some(0.9));
}

#[test]
fn a_higher_priority_thread_is_a_thread() {
    let segments = vec![
        timer(1_003_000, ""),
        ran(900_000, 1_200_000, thread(8, 98, "greater")),
        wakeup(1_003_000, 1_200_000, ""),
    ];
    let cause = first(&window(true, 1_201_000), segments);
    assert_eq!(
        (cause.kind, cause.actor.as_deref(), cause.pid),
        (CauseKind::Thread, Some("greater"), Some(8))
    );
}

#[test]
fn a_lower_priority_thread_that_is_chosen_after_the_wakeup_is_throttling() {
    let segments = vec![
        timer(1_003_000, ""),
        ran(900_000, 1_010_000, thread(8, 98, "greater")),
        ran(1_010_000, 50_000_000, thread(7, -21, "other")),
        wakeup(1_003_000, 50_000_000, ""),
    ];
    assert_eq!(first(&window(true, 50_001_000), segments).kind, CauseKind::Throttled);
}

/// The fair server of newer kernels chose the ordinary thread before the timer expired: its switch is before the window.
#[test]
fn throttling_that_goes_on_at_the_wakeup_is_named() {
    let left = |from_ns, to_ns, thread: Thread, next_priority| {
        segment(from_ns, to_ns, Activity::Thread { process: 7, thread, was_runnable: true, next_priority })
    };
    let first_of = |switches: &[Segment]| {
        let window = window(true, 31_000_000);
        let mut segments = switches.to_vec();
        segments.extend([timer(1_003_000, ""), wakeup(1_003_000, 31_000_000, "")]);
        let recording = Recording { segments, complete_from_ns: 0, lost: 0 };
        decompose(&window, &super::within_throttled(&recording, &window), &Surroundings::default()).remove(0)
    };
    let begins = left(100_000, 600_000, thread(8, 1, "loop"), -21);
    let ordinary = left(600_000, 30_990_000, thread(9, -21, "spinner"), 95);
    let named = first_of(&[begins.clone(), ordinary]);
    assert_eq!(named.kind, CauseKind::Throttled, "{named:?}");
    let gave_back = left(600_000, 700_000, thread(9, -21, "spinner"), 1);
    let slept = Activity::Thread {
        thread: thread(8, 1, "loop"),
        process: 7,
        was_runnable: false,
        next_priority: -21,
    };
    let again = [
        begins,
        gave_back,
        segment(700_000, 800_000, slept),
        left(800_000, 30_990_000, thread(9, -21, "spinner"), 95),
    ];
    let other = first_of(&again);
    assert_ne!(other.kind, CauseKind::Throttled, "a real-time thread came since: {other:?}");
}

#[test]
fn a_loop_that_gives_way_to_a_lower_priority_thread_is_throttled() {
    let own = Activity::Thread {
        thread: thread(101, 95, "probe"),
        process: OWN,
        was_runnable: true,
        next_priority: -21,
    };
    let segments = vec![segment(0, 1_001_000, own), ran(1_001_000, 50_000_000, thread(7, -21, "other"))];
    assert_eq!(first(&window(false, 50_001_000), segments).kind, CauseKind::Throttled);
}

/// Both exist from Linux 6.12 on with control groups for real-time threads. Only one of them leaves the CPU idle.
#[test]
fn a_cpu_that_is_idle_while_a_real_time_thread_is_runnable_is_not_the_fair_servers_work() {
    let own = Activity::Thread {
        thread: thread(101, 95, "probe"),
        process: OWN,
        was_runnable: true,
        next_priority: -21,
    };
    let by = |idle_ns: u64| {
        let segments = vec![
            segment(0, 1_001_000, own.clone()),
            ran(1_001_000, 40_000_000, thread(7, -21, "other")),
            segment(40_000_000, 40_000_000 + idle_ns, Activity::Idle { state: 0 }),
        ];
        let surroundings = Surroundings { throttler: Some(FAIR_SERVER), ..Surroundings::default() };
        let cause = decompose(&window(false, 50_001_000), &recording(segments), &surroundings).remove(0);
        assert_eq!(cause.kind, CauseKind::Throttled, "{cause:?}");
        cause.actor
    };
    assert_eq!([by(5_000_000), by(1_000)].map(Option::unwrap), [GROUP_RUNTIME, FAIR_SERVER]);
}

/// A real-time priority in the plan does not prove that the thread has it: it may still run as an ordinary one.
#[test]
fn an_ordinary_loop_that_waits_for_its_like_is_not_throttled() {
    let own = Activity::Thread {
        thread: thread(101, -21, "probe"),
        process: OWN,
        was_runnable: true,
        next_priority: -21,
    };
    let segments = vec![segment(0, 1_001_000, own), ran(1_001_000, 50_000_000, thread(7, -21, "other"))];
    let cause = first(&window(false, 50_001_000), segments);
    assert_eq!((cause.kind, cause.actor.as_deref()), (CauseKind::Thread, Some("other")), "{cause:?}");
}

/// The nice values of ordinary threads are shares of the CPU, not priorities.
#[test]
fn an_ordinary_task_is_not_throttled_by_one_of_a_larger_nice_value() {
    let nicer = || thread(7, -36, "rustc");
    let own = |from_ns, to_ns| {
        let what = Activity::Thread {
            thread: thread(101, -21, "shell"),
            process: OWN,
            was_runnable: true,
            next_priority: -36,
        };
        segment(from_ns, to_ns, what)
    };
    let left = vec![own(0, 1_001_000), ran(1_001_000, 50_000_000, nicer())];
    let woken = vec![
        own(0, 900_000),
        timer(1_003_000, ""),
        ran(1_001_000, 50_000_000, nicer()),
        wakeup(1_003_000, 50_000_000, ""),
    ];
    for (is_timer, segments) in [(false, left), (true, woken)] {
        let cause = first(&window(is_timer, 50_001_000), segments);
        assert_eq!((cause.kind, cause.actor.as_deref()), (CauseKind::Thread, Some("rustc")), "{cause:?}");
    }
}

#[test]
fn a_function_is_the_interrupt_that_asked_for_it() {
    let sender = Some(Sender { cpu: CpuId(0), pid: 55, process: 54, command: "unmapper".to_owned() });
    let function = Activity::Function { function: "flush_tlb_func".to_owned(), sender };
    let segments = vec![
        segment(1_000_600, 1_001_000, function),
        segment(1_000_500, 1_001_200, Activity::Vector { vector: 0xfc }),
    ];
    // The time of entering and leaving the kernel belongs to it.
    let causes = decompose(&window(false, 1_002_000), &recording(segments), &Surroundings::default());
    assert_eq!(causes.len(), 1, "{causes:?}");
    assert_eq!((causes[0].kind, causes[0].function.as_deref()), (CauseKind::Ipi, Some("flush_tlb_func")));
    assert_eq!((causes[0].actor.as_deref(), causes[0].pid), (Some("unmapper"), Some(55)));
    assert_eq!(causes[0].share, Some(1.0));
}

#[test]
fn in_a_virtual_machine_delivering_an_interrupt_takes_longer() {
    let segments = vec![segment(1_005_000, 1_008_000, Activity::Vector { vector: 0xfd })];
    let guest = Surroundings { is_virtual: true, ..Surroundings::default() };
    let causes = decompose(&window(false, 1_012_000), &recording(segments.clone()), &guest);
    assert_eq!((causes.len(), causes[0].kind), (1, CauseKind::Ipi), "{causes:?}");
    assert!(causes[0].confidence < Some(1.0), "the hypervisor may have done something else: {causes:?}");
    let bare = decompose(&window(false, 1_012_000), &recording(segments), &Surroundings::default());
    assert_eq!(bare[0].kind, CauseKind::Ipi);
    assert!(bare.iter().any(|cause| cause.kind == CauseKind::Hardware), "{bare:?}");
}

#[test]
fn between_two_interrupts_the_nearer_one_is_left_or_entered() {
    let segments = vec![
        segment(1_010_000, 1_012_000, Activity::Vector { vector: 0xec }),
        segment(1_020_000, 1_022_000, Activity::Vector { vector: 0xfd }),
    ];
    let guest = Surroundings { is_virtual: true, ..Surroundings::default() };
    let causes = decompose(&window(false, 1_032_000), &recording(segments), &guest);
    let share = |kind| causes.iter().find(|cause| cause.kind == kind).and_then(|cause| cause.share).unwrap();
    assert!((share(CauseKind::Irq) + share(CauseKind::Ipi) - 1.0).abs() < 1e-9, "{causes:?}");
    assert!(share(CauseKind::Irq) >= 12.0 / 32.0 && share(CauseKind::Ipi) >= 12.0 / 32.0, "{causes:?}");
}

#[test]
fn another_thread_of_the_late_process_is_woken_for_itself() {
    let other =
        Activity::Timer { pid: 100, process: OWN, stack: stack("hrtimer_wakeup asm_sysvec_x elsewhere") };
    let segments = vec![
        timer(1_001_000, "hrtimer_wakeup hrtimer_interrupt asm_sysvec_apic_timer_interrupt"),
        segment(1_120_000, 1_120_500, other),
        ran(900_000, 1_150_000, thread(237, 50, "irq/30-plant")),
        wakeup(1_001_000, 1_150_000, ""),
    ];
    let late = Window { priority: 40, ..window(true, 1_151_000) };
    let cause = first(&late, segments);
    assert_eq!((cause.kind, cause.actor.as_deref()), (CauseKind::Thread, Some("irq/30-plant")));
}

#[test]
fn a_task_that_sets_its_timer_late_was_behind_the_thread_that_had_the_cpu() {
    let causes = |priority: i32| {
        let segments = vec![
            timer(3_001_000, "hrtimer_wakeup hrtimer_interrupt asm_sysvec_apic_timer_interrupt do_nanosleep"),
            ran(900_000, 3_000_000, thread(237, priority, "starver")),
        ];
        let late = Window { priority: 90, ..window(true, 3_002_000) };
        first(&late, segments)
    };
    let cause = causes(98);
    assert_eq!((cause.kind, cause.actor.as_deref()), (CauseKind::Thread, Some("starver")), "{cause:?}");
    assert_ne!(causes(40).kind, CauseKind::Thread, "the task would have preempted it");
}

#[test]
fn a_hypervisor_may_have_stopped_a_long_handler() {
    let confidence = |is_virtual: bool, length_ns: u64| {
        let to_ns = 1_000_000 + length_ns;
        // A short one before it is certain in any case.
        let segments = vec![
            segment(1_000_000, 1_010_000, Activity::Irq { line: 9 }),
            segment(1_020_000, to_ns, Activity::Irq { line: 9 }),
        ];
        let surroundings = Surroundings { is_virtual, ..Surroundings::default() };
        let causes = decompose(&window(false, to_ns), &recording(segments), &surroundings);
        assert_eq!(causes[0].kind, CauseKind::Irq, "{causes:?}");
        causes[0].confidence
    };
    assert_eq!(confidence(true, 400_000_000), Some(0.89));
    assert_eq!(confidence(true, 60_000), Some(0.97));
    assert_eq!(confidence(false, 400_000_000), Some(1.0));
}

#[test]
fn the_measurements_own_interrupts_are_named_as_its_own() {
    let sender = Some(Sender { cpu: CpuId(0), pid: 55, process: 54, command: "reader".to_owned() });
    let read = Activity::Function { function: "__perf_event_read".to_owned(), sender };
    let segments = vec![segment(1_000_000, 1_002_000, read)];
    let own = Surroundings { own_process: 54, ..Surroundings::default() };
    let cause = &decompose(&window(false, 1_002_000), &recording(segments), &own)[0];
    assert_eq!((cause.kind, cause.actor.as_deref()), (CauseKind::Ipi, Some("whylate itself")));
    assert!(cause.evidence[0].contains("itself caused this call"), "{cause:?}");
}

#[test]
fn a_thread_of_this_program_that_ran_meanwhile_is_the_measurement_itself() {
    let runs = |pid: u32, from_ns: u64, to_ns: u64| {
        let activity = Activity::Thread {
            thread: thread(pid, -21, "whylate"),
            process: 54,
            was_runnable: true,
            next_priority: 95,
        };
        segment(from_ns, to_ns, activity)
    };
    let surroundings = Surroundings { own_process: 54, ..Surroundings::default() };
    // Two of its threads are one cause.
    let segments = vec![runs(54, 1_000_000, 1_400_000), runs(60, 1_400_000, 2_000_000)];
    let cause = &decompose(&window(false, 2_000_000), &recording(segments), &surroundings)[0];
    assert_eq!((cause.kind, cause.actor.as_deref()), (CauseKind::Thread, Some("whylate itself")));
    assert_eq!((cause.pid, cause.share), (Some(54), Some(1.0)), "{cause:?}");
}

#[test]
fn a_move_to_another_cpu_takes_what_comes_after_it() {
    let own = Activity::Thread {
        thread: thread(101, -21, "probe"),
        process: OWN,
        was_runnable: true,
        next_priority: 100,
    };
    let moved = Activity::Migration { pid: 101, process: OWN, to: CpuId(0) };
    let segments = vec![
        segment(0, 1_002_000, own),
        segment(1_003_000, 1_003_000, moved),
        ran(1_002_000, 1_004_000, thread(20, 100, "migration/1")),
        segment(1_004_000, 1_090_000, Activity::Idle { state: 1 }),
    ];
    let causes = decompose(&window(false, 1_060_000), &recording(segments), &Surroundings::default());
    assert_eq!(causes[0].kind, CauseKind::Migration, "{causes:?}");
    assert!(says("from-cpu-cpu", &causes[0].evidence[0]), "{causes:?}");
    assert!(
        causes.iter().all(|cause| cause.kind != CauseKind::Thread),
        "the mover belongs to the move: {causes:?}"
    );
}

#[test]
fn what_is_inside_wins() {
    let segments = vec![
        segment(1_020_000, 1_080_000, Activity::Irq { line: 45 }),
        segment(1_010_000, 1_090_000, Activity::Softirq { number: 3 }),
        ran(1_000_000, 1_100_000, thread(8, 98, "greater")),
    ];
    let causes = decompose(&window(false, 1_100_000), &recording(segments), &Surroundings::default());
    let kinds: Vec<(CauseKind, u64)> =
        causes.iter().map(|cause| (cause.kind, (cause.share.unwrap() * 100.0).round() as u64)).collect();
    assert_eq!(kinds, [(CauseKind::Irq, 60), (CauseKind::Softirq, 20), (CauseKind::Thread, 20)]);
    assert_eq!(causes[1].actor.as_deref(), Some("NET_RX softirq"));
}

#[test]
fn nothing_recorded_in_user_mode_is_hardware_unless_a_counter_shows_the_taker() {
    let whole = window(false, 1_100_000);
    let kind =
        |surroundings: &Surroundings| decompose(&whole, &recording(Vec::new()), surroundings)[0].clone();
    let bare = kind(&Surroundings::default());
    assert_eq!(bare.kind, CauseKind::Hardware);
    let stolen = kind(&Surroundings { steal_ns: Some(10_000_000), ..Surroundings::default() });
    assert_eq!(stolen.kind, CauseKind::Steal);
    let firmware = kind(&Surroundings { smis: Some(1), steal_ns: Some(1), ..Surroundings::default() });
    assert_eq!(firmware.kind, CauseKind::Smi);
    let guest = kind(&Surroundings { is_virtual: true, smis: Some(0), ..Surroundings::default() });
    assert_eq!(guest.kind, CauseKind::HostStall);
    assert!(guest.confidence < bare.confidence);
}

#[test]
fn the_other_thread_of_the_core_may_have_slowed_a_loop_down() {
    let siblings = [(CpuId(1), "5".parse().unwrap())].into();
    let gap = |surroundings: &Surroundings| {
        decompose(&window(false, 1_100_000), &recording(Vec::new()), surroundings)[0].clone()
    };
    let cause = gap(&Surroundings { siblings, ..Surroundings::default() });
    assert_eq!((cause.kind, cause.confidence), (CauseKind::Hardware, Some(0.75)));
    assert!(says("cpu-other-thread-core", &cause.evidence[0]), "{:?}", cause.evidence);
    let of_another = [(CpuId(0), "4".parse().unwrap())].into();
    let cause = gap(&Surroundings { siblings: of_another, ..Surroundings::default() });
    assert_eq!(cause.confidence, Some(0.95));
}

#[test]
fn a_task_that_is_kept_from_going_to_sleep_waits_for_no_timer() {
    let leaves = |was_runnable: bool| Activity::Thread {
        thread: thread(101, 95, "probe"),
        process: OWN,
        was_runnable,
        next_priority: 98,
    };
    let causes = |was_runnable: bool| {
        let segments = vec![
            ran(900_000, 1_300_000, thread(489, 98, "irq/45-plant")),
            segment(1_040_000, 1_043_000, Activity::Vector { vector: 0xec }),
            segment(1_300_000, 1_340_000, leaves(was_runnable)),
            timer(1_344_000, ""),
            segment(1_342_000, 1_345_000, Activity::Vector { vector: 0xec }),
            ran(1_340_000, 1_350_000, thread(0, -21, "swapper/1")),
            wakeup(1_344_000, 1_350_000, ""),
        ];
        decompose(&window(true, 1_351_000), &recording(segments), &Surroundings::default())
    };
    let late = causes(false);
    assert_eq!((late[0].kind, late[0].actor.as_deref()), (CauseKind::Thread, Some("irq/45-plant")));
    let own = late.iter().find(|cause| cause.kind == CauseKind::Unattributed).expect("its own work");
    assert!(says("set-its-timer-when", &own.evidence[0]), "{own:?}");
    // Nothing shows that it slept only then.
    assert_eq!(causes(true)[0].kind, CauseKind::TimerLate);
    // Nothing woke it: its timer was already due when it armed it, and it did not sleep at all.
    let segments =
        vec![ran(900_000, 1_300_000, thread(489, 98, "plant")), segment(1_300_000, 1_340_000, leaves(false))];
    let awake = |lost: u64| {
        let recording = Recording { segments: segments.clone(), complete_from_ns: 0, lost };
        decompose(&window(true, 1_310_000), &recording, &Surroundings::default()).remove(0)
    };
    assert_eq!((awake(0).kind, awake(0).actor.as_deref()), (CauseKind::Thread, Some("plant")));
    assert_eq!(awake(1).kind, CauseKind::Unattributed, "its wake-up may be among what was lost");
}

#[test]
fn a_timer_whose_interrupt_is_late_while_others_are_handled_is_late_itself() {
    let named = |other: Option<(u64, u64)>, names: &str| {
        let mut segments = vec![
            timer(1_126_000, names),
            segment(1_125_000, 1_128_000, Activity::Vector { vector: 0xec }),
            ran(900_000, 1_150_000, thread(489, -21, "worker")),
            wakeup(1_126_000, 1_150_000, ""),
        ];
        segments.extend(other.map(|(from, to)| segment(from, to, Activity::Irq { line: 45 })));
        first(&window(true, 1_129_000), segments)
    };
    let cause = named(Some((1_040_000, 1_043_000)), "");
    assert_eq!((cause.kind, cause.actor, cause.pid), (CauseKind::TimerLate, None, None));
    assert_eq!(cause.confidence, Some(0.89));
    assert!(says("others-let-meanwhile-while", &cause.evidence[0]), "{:?}", cause.evidence);
    // Code that disables interrupts after that gets the rest of the time.
    let kept_off = "hrtimer_wakeup asm_sysvec_apic_timer_interrupt _raw_spin_unlock_irqrestore stall kthread";
    let cause = named(Some((1_010_000, 1_012_000)), kept_off);
    assert_eq!((cause.kind, cause.function.as_deref()), (CauseKind::IrqsOff, Some("stall")));
    assert_eq!((cause.actor.as_deref(), cause.confidence), (Some("worker"), Some(0.89)));
    assert_eq!(cause.from_ns, Some(1_012_000));
    // The interrupt right before it had waited with it.
    let silent = named(Some((1_121_000, 1_124_000)), "");
    assert_eq!((silent.kind, silent.confidence), (CauseKind::Unattributed, None));
    assert!(says("no-stack-shows-what", &silent.evidence[0]), "{:?}", silent.evidence);
    let user = named(None, "hrtimer_wakeup hrtimer_interrupt asm_sysvec_apic_timer_interrupt");
    assert_eq!((user.kind, user.actor, user.confidence), (CauseKind::TimerLate, None, Some(0.75)));
    assert!(user.evidence[0].contains("user mode of worker"), "{:?}", user.evidence);
    assert!(says("cpu-may-have-stood", &user.evidence[0]), "{:?}", user.evidence);
}

#[test]
fn a_thread_that_the_task_cannot_preempt_has_the_time_in_which_the_timer_was_late() {
    let named = |priority: i32| {
        let segments = vec![
            timer(1_124_000, ""),
            ran(900_000, 1_130_000, thread(7, priority, "irq/30-plant")),
            wakeup(1_124_000, 1_130_000, ""),
        ];
        first(&window(true, 1_131_000), segments)
    };
    let above = named(98);
    assert_eq!((above.kind, above.actor.as_deref()), (CauseKind::Thread, Some("irq/30-plant")));
    assert_eq!(named(90).kind, CauseKind::Unattributed, "a timely interrupt would have let the task run");
}

#[test]
fn a_softirq_does_not_hold_off_the_timer_so_it_is_less_sure_if_that_was_late() {
    let named = |woken_ns: u64, names: &str| {
        let segments = vec![
            timer(woken_ns, names),
            segment(1_000_000, 1_125_000, Activity::Softirq { number: 3 }),
            ran(900_000, 1_130_000, thread(7, -21, "other")),
            wakeup(woken_ns, 1_130_000, ""),
        ];
        first(&window(true, 1_131_000), segments)
    };
    let delayed = named(1_001_000, "");
    assert_eq!((delayed.kind, delayed.confidence), (CauseKind::Softirq, Some(1.0)));
    let silent = named(1_124_000, "");
    assert_eq!((silent.kind, silent.confidence), (CauseKind::Softirq, Some(0.75)));
    assert!(silent.evidence[0].contains("no stack tells why"), "{:?}", silent.evidence);
    let stacked = named(1_124_000, "hrtimer_wakeup asm_sysvec_apic_timer_interrupt net_rx_action");
    assert_eq!((stacked.kind, stacked.function.as_deref()), (CauseKind::Softirq, Some("net_rx_action")));
    assert_eq!((stacked.actor.as_deref(), stacked.confidence), (Some("NET_RX softirq"), Some(0.89)));
}

#[test]
fn losses_leave_the_unexplained_unattributed_and_lower_the_confidence() {
    let lost = Recording { lost: 1, ..Recording::default() };
    let causes = decompose(&window(false, 1_100_000), &lost, &Surroundings::default());
    assert_eq!(causes[0].kind, CauseKind::Unattributed);
    let part = segment(1_000_000, 1_100_000, Activity::Softirq { number: 3 });
    let lossy = Recording { segments: vec![part], lost: 1, ..Recording::default() };
    let cause = &decompose(&window(false, 1_100_000), &lossy, &Surroundings::default())[0];
    assert_eq!((cause.kind, cause.confidence), (CauseKind::Softirq, Some(0.5)));
}

#[test]
fn a_page_fault_takes_the_time_that_nothing_else_took() {
    let fault = segment(1_010_000, 1_010_000, Activity::PageFault { pid: 101, address: 4096 });
    assert_eq!(first(&window(false, 1_100_000), vec![fault]).kind, CauseKind::PageFault);
}

#[test]
fn an_ordinary_thread_waits_for_the_slack_of_its_timer() {
    let due_ns = 1_050_000;
    let waited = |priority: i32| {
        let segments = vec![
            segment(due_ns, due_ns + 10_000, Activity::Timer { pid: 101, process: OWN, stack: stack("") }),
            segment(1_020_000, 1_030_000, Activity::Irq { line: 9 }),
            segment(500_000, due_ns + 15_000, Activity::Idle { state: 1 }),
            ran(400_000, due_ns + 20_000, thread(0, -21, "swapper/1")),
            wakeup(due_ns + 10_000, due_ns + 20_000, ""),
        ];
        let window = Window { priority, ..window(true, due_ns + 20_000) };
        decompose(&window, &recording(segments), &Surroundings::default())
    };
    let causes = waited(-1);
    let shares: Vec<_> = causes.iter().map(|cause| (cause.kind, cause.from_ns, cause.to_ns)).collect();
    assert_eq!(shares[0], (CauseKind::TimerSlack, Some(1_000_000), Some(due_ns)), "with the interrupt in it");
    assert_eq!(shares[1].0, CauseKind::IdleExit);
    assert_eq!((shares.len(), causes[0].confidence), (2, Some(1.0)), "{causes:#?}");
    assert!(says("us-after-moment", &causes[0].evidence[0]), "{:?}", causes[0].evidence);
    assert!(
        waited(95).iter().all(|cause| cause.kind != CauseKind::TimerSlack),
        "a real-time thread has none"
    );
}

#[test]
fn leaving_an_idle_state_is_named() {
    let segments = vec![
        timer(1_060_000, ""),
        segment(500_000, 1_065_000, Activity::Idle { state: 2 }),
        ran(400_000, 1_070_000, thread(0, -21, "swapper/1")),
        wakeup(1_060_000, 1_070_000, ""),
    ];
    let cause = first(&window(true, 1_071_000), segments);
    assert_eq!(cause.kind, CauseKind::IdleExit);
    assert!(cause.evidence[0].contains("idle state 2"), "{:?}", cause.evidence);
}

#[test]
fn no_idle_state_takes_milliseconds_to_leave() {
    let expired_ns = 9_000_000;
    let segments = vec![
        timer(expired_ns, ""),
        segment(500_000, expired_ns + 5_000, Activity::Idle { state: 1 }),
        ran(400_000, expired_ns + 10_000, thread(0, -21, "swapper/1")),
        wakeup(expired_ns, expired_ns + 10_000, ""),
    ];
    let window = window(true, expired_ns + 11_000);
    let cause = first(&window, segments.clone());
    assert_eq!((cause.kind, cause.confidence), (CauseKind::TimerLate, Some(0.75)));
    assert!(says("longer-than-any-idle", &cause.evidence[0]), "{:?}", cause.evidence);
    let stolen = Surroundings { steal_ns: Some(8_000_000), ..Surroundings::default() };
    assert_eq!(decompose(&window, &recording(segments.clone()), &stolen)[0].kind, CauseKind::Steal);
    // Other records cut it into pieces.
    let mut cut = segments.clone();
    cut.extend(
        (1..9)
            .map(|nth| segment(nth * 1_000_000, nth * 1_000_000, Activity::PageFault { pid: 7, address: 1 })),
    );
    assert_eq!(first(&window, cut).kind, CauseKind::TimerLate);
    // Interruptions are not idle time.
    let mut interrupted = segments;
    interrupted.push(segment(1_001_000, 8_900_000, Activity::Irq { line: 9 }));
    let causes = decompose(&window, &recording(interrupted), &Surroundings::default());
    let kinds: Vec<CauseKind> = causes.iter().map(|cause| cause.kind).collect();
    assert_eq!(kinds[..2], [CauseKind::Irq, CauseKind::IdleExit], "{causes:#?}");
}

#[test]
fn only_the_own_locks_count() {
    let wait = |process| segment(1_000_000, 1_090_000, Activity::Lock { pid: 101, process, flags: 32 });
    let cause = first(&window(false, 1_100_000), vec![wait(OWN)]);
    assert_eq!((cause.kind, cause.actor.as_deref()), (CauseKind::Lock, None), "its owner is not recorded");
    assert!(says("wait-for-mutex-recorded", &cause.evidence[0]));
    assert_ne!(first(&window(false, 1_100_000), vec![wait(OWN + 1)]).kind, CauseKind::Lock);
}

fn any_activity() -> impl Strategy<Value = Activity> {
    prop_oneof![
        (0u32..3).prop_map(|line| Activity::Irq { line }),
        prop_oneof![Just(0xecu32), Just(0xfb), Just(0xfd)].prop_map(|vector| Activity::Vector { vector }),
        (0u32..12).prop_map(|number| Activity::Softirq { number }),
        Just(Activity::Nmi { handler: "watchdog".to_owned() }),
        Just(Activity::Function { function: "flush".to_owned(), sender: None }),
        (0u32..3).prop_map(|state| Activity::Idle { state }),
        (0u32..200).prop_map(|address| Activity::PageFault { pid: 101, address: address.into() }),
        (prop_oneof![Just(OWN), Just(7u32), Just(0)], -30i32..99, any::<bool>(), -30i32..99).prop_map(
            |(pid, priority, was_runnable, next_priority)| Activity::Thread {
                thread: thread(pid, priority, "some"),
                process: pid,
                was_runnable,
                next_priority,
            }
        ),
        (any::<bool>()).prop_map(|own| Activity::Timer {
            pid: 101,
            process: if own { OWN } else { 3 },
            stack: stack("hrtimer_wakeup asm_sysvec_apic_timer_interrupt driver"),
        }),
        Just(Activity::Wakeup {
            pid: 101,
            process: OWN,
            previous: thread(7, -21, "other"),
            stack: stack("__schedule preempt_schedule stall"),
        }),
    ]
}

proptest! {
    #[test]
    fn shares_are_parts_of_the_window(
        parts in prop::collection::vec((0u64..3_000_000, 0u64..500_000, any_activity()), 0..12),
        is_timer in any::<bool>(),
        length_ns in 0u64..1_000_000,
    ) {
        let segments = parts.into_iter().map(|(from_ns, length, what)| segment(from_ns, from_ns + length, what));
        let whole = window(is_timer, 1_000_000 + length_ns);
        let causes = decompose(&whole, &recording(segments.collect()), &Surroundings::default());
        prop_assert!(!causes.is_empty());
        let shares: f64 = causes.iter().filter_map(|cause| cause.share).sum();
        prop_assert!(shares <= 1.0 + 1e-9, "{shares}");
        for cause in &causes {
            if let (Some(from_ns), Some(to_ns)) = (cause.from_ns, cause.to_ns) {
                prop_assert!(whole.from_ns <= from_ns && from_ns <= to_ns && to_ns <= whole.to_ns);
            }
            let claims = cause.kind != CauseKind::Unattributed;
            prop_assert_eq!(claims, cause.confidence.is_some());
            prop_assert!(!claims || !cause.evidence.is_empty());
        }
    }
}

fn softirq(from_ns: u64, to_ns: u64) -> Segment {
    segment(from_ns, to_ns, Activity::Softirq { number: 3 })
}

#[test]
fn a_window_has_what_reaches_into_it() {
    let segments = vec![softirq(0, 9), softirq(5, 10), softirq(12, 14), softirq(20, 21), softirq(0, 30)];
    let within = Recording { segments, ..Recording::default() }.within(10, 19);
    assert_eq!(within.segments, [softirq(5, 10), softirq(12, 14), softirq(0, 30)]);
    assert_eq!(within.lost, 0);
}

#[test]
fn a_window_whose_start_is_gone_says_so() {
    let recording = Recording { complete_from_ns: 10, ..Recording::default() };
    assert_eq!((recording.within(9, 20).lost, recording.within(10, 20).lost), (1, 0));
}

fn called(from_ns: u64, to_ns: u64, function: &str, sender: Option<(u32, &str)>) -> Segment {
    let sender =
        sender.map(|(pid, name)| Sender { cpu: CpuId(0), pid, process: pid, command: name.to_owned() });
    segment(from_ns, to_ns, Activity::Called { function: function.to_owned(), sender })
}

#[test]
fn a_worker_is_named_by_the_work_item_that_took_most_of_its_turn() {
    let named = |items: Vec<Segment>| {
        let worker = ran(1_010_000, 1_050_000, thread(31, -21, "kworker/1:0"));
        let segments = std::iter::once(worker).chain(items).collect();
        let cause = first(&window(false, 1_055_000), segments);
        assert_eq!((cause.kind, cause.actor.as_deref()), (CauseKind::Thread, Some("kworker/1:0")));
        (cause.function, cause.evidence)
    };
    let (function, evidence) = named(vec![
        called(1_011_000, 1_016_000, "vmstat_update", None),
        called(1_017_000, 1_049_000, "clocksource_watchdog_work", Some((77, "chrony"))),
    ]);
    assert_eq!(function.as_deref(), Some("clocksource_watchdog_work"));
    assert!(says("a-work-item-and-who-queued-it", &evidence[0]));
    let (function, _) = named(vec![called(1_011_000, 1_016_000, "vmstat_update", None)]);
    assert_eq!(function, None, "an eighth of the time");
    let tick = segment(1_012_000, 1_047_000, Activity::Vector { vector: 0xec });
    let worker = ran(1_000_000, 1_055_000, thread(31, -21, "kworker/1:0"));
    let of_tick = vec![tick, called(1_013_000, 1_046_000, "tick_nohz_handler", None), worker];
    let cause = first(&window(false, 1_055_000), of_tick);
    assert_eq!((cause.kind, cause.function.as_deref()), (CauseKind::Irq, Some("tick_nohz_handler")));
    assert!(cause.evidence.iter().all(|line| !line.contains("work item")), "{:?}", cause.evidence);
}

#[test]
fn a_softirq_of_timers_is_named_by_the_function_of_the_timer() {
    let softirq = segment(1_010_000, 1_050_000, Activity::Softirq { number: 1 });
    let item = called(1_012_000, 1_049_000, "neigh_timer_handler", Some((0, "swapper")));
    let cause = first(&window(false, 1_055_000), vec![item, softirq]);
    assert_eq!((cause.kind, cause.function.as_deref()), (CauseKind::Softirq, Some("neigh_timer_handler")));
    assert!(says("a-timer-set-by-the-idle-task", &cause.evidence[0]));
}

#[test]
fn interrupts_that_come_together_with_the_timer_waited_as_it_did() {
    let stack = "hrtimer_wakeup hrtimer_interrupt asm_sysvec_apic_timer_interrupt spin unlock";
    // The timer's handler takes long before it wakes the thread.
    let segments = |ipi_ns: u64| {
        vec![
            segment(ipi_ns, ipi_ns + 20_000, Activity::Vector { vector: 0xfb }),
            timer(8_900_000, stack),
            segment(8_100_000, 9_000_000, Activity::Vector { vector: 0xec }),
            ran(900_000, 9_050_000, thread(31, -21, "spinner")),
            wakeup(8_900_000, 9_050_000, ""),
        ]
    };
    let window = window(true, 9_050_000);
    assert_eq!(first(&window, segments(8_079_000)).kind, CauseKind::IrqsOff);
    assert_eq!(first(&window, segments(4_000_000)).kind, CauseKind::TimerLate);
}

#[test]
fn a_guest_that_idles_in_hlt_for_longer_than_its_host_takes_to_wake_it_was_stalled() {
    let kind = |late_us: u64, what: Activity, is_virtual: bool| {
        let woken_ns = 1_000_000 + late_us * 1_000;
        let segments = vec![
            segment(900_000, woken_ns, what),
            timer(woken_ns, ""),
            wakeup(woken_ns, woken_ns + 5_000, ""),
        ];
        let surroundings = Surroundings { is_virtual, ..Surroundings::default() };
        decompose(&window(true, woken_ns + 5_000), &recording(segments), &surroundings)[0].kind
    };
    let halted = || {
        let (thread, process) = (thread(0, -21, "swapper"), 0);
        Activity::Thread { thread, process, was_runnable: true, next_priority: 95 }
    };
    assert_eq!(kind(80, halted(), true), CauseKind::IdleExit);
    assert_eq!(kind(500, halted(), true), CauseKind::HostStall);
    assert_eq!(kind(500, Activity::Idle { state: 0 }, true), CauseKind::HostStall, "it polls");
    assert_eq!(kind(500, Activity::Idle { state: 2 }, true), CauseKind::IdleExit);
    assert_eq!(kind(500, halted(), false), CauseKind::IdleExit);
}

#[test]
fn an_idle_cpu_that_takes_interrupts_all_the_time_does_not_run_a_throttled_task() {
    let kind = |interrupts: u64| {
        let (woken_ns, late_ns) = (1_000_000, 50_000_000);
        let to_ns = woken_ns + late_ns;
        let idle = Activity::Thread {
            thread: thread(0, -21, "swapper"),
            process: 0,
            was_runnable: true,
            next_priority: 95,
        };
        let mut segments =
            vec![timer(woken_ns, ""), segment(900_000, to_ns, idle), wakeup(woken_ns, to_ns, "")];
        let each_ns = late_ns / (interrupts + 1);
        segments.extend((1..=interrupts).map(|nth| {
            let from_ns = woken_ns + nth * each_ns;
            segment(from_ns, from_ns + 3_000, Activity::Vector { vector: 0xec })
        }));
        let surroundings = Surroundings { is_virtual: true, ..Surroundings::default() };
        decompose(&window(true, to_ns), &recording(segments), &surroundings)[0].kind
    };
    assert_eq!(kind(200), CauseKind::Throttled);
    assert_eq!(kind(1), CauseKind::HostStall);
}

#[test]
fn a_timer_interrupt_of_a_guest_is_long_by_a_function_or_by_its_host() {
    let kind = |function: Option<&str>, is_virtual: bool| {
        let mut segments = vec![segment(1_010_000, 4_010_000, Activity::Vector { vector: 0xec })];
        segments.extend(function.map(|function| called(1_020_000, 4_000_000, function, None)));
        let surroundings = Surroundings { is_virtual, ..Surroundings::default() };
        decompose(&window(false, 4_020_000), &recording(segments), &surroundings)[0].kind
    };
    assert_eq!(kind(Some("driver_poll"), true), CauseKind::Irq);
    assert_eq!(kind(Some("hrtimer_wakeup"), true), CauseKind::HostStall);
    assert_eq!(kind(None, true), CauseKind::HostStall);
    assert_eq!(kind(Some("tick_nohz_handler"), true), CauseKind::HostStall);
    assert_eq!(kind(None, false), CauseKind::Irq);
}

#[test]
fn the_whole_interrupt_counts_where_something_else_cuts_it() {
    let kind = |end_ns: u64| {
        let segments = vec![
            segment(1_002_000, end_ns, Activity::Vector { vector: 0xec }),
            segment(1_014_000, 1_016_000, Activity::Nmi { handler: "perf_event_nmi_handler".to_owned() }),
            called(1_003_000, end_ns - 1_000, "hrtimer_wakeup", None),
        ];
        let surroundings = Surroundings { is_virtual: true, ..Surroundings::default() };
        decompose(&window(true, end_ns + 1_000), &recording(segments), &surroundings)[0].kind
    };
    assert_eq!(kind(1_030_000), CauseKind::HostStall);
    assert_eq!(kind(1_020_000), CauseKind::Irq);
}

#[test]
fn a_guest_whose_task_had_the_cpu_and_did_nothing_for_long_was_stalled() {
    let kind = |length_ns: u64, is_virtual: bool, is_probe: bool| {
        let to_ns = 1_000_000 + length_ns;
        let mut segments = vec![ran(990_000, to_ns + 3_000, thread(101, 95, "probe"))];
        if let Activity::Thread { process, .. } = &mut segments[0].what {
            *process = OWN;
        }
        let surroundings = Surroundings { is_virtual, ..Surroundings::default() };
        let window = Window { is_probe, ..window(true, to_ns) };
        decompose(&window, &recording(segments), &surroundings)[0].kind
    };
    assert_eq!(kind(2_000_000, true, true), CauseKind::HostStall);
    assert_eq!(kind(2_000_000, true, false), CauseKind::Unattributed, "a task's own work");
    assert_eq!(kind(2_000_000, false, true), CauseKind::Unattributed);
    assert_eq!(kind(100_000, true, true), CauseKind::Unattributed, "a slow machine");
}

/// With a cost that grows with the square of their number this takes minutes.
#[test]
fn a_window_of_a_hundred_thousand_segments_is_explained() {
    let mut segments = Vec::new();
    for nth in 0..25_000_u64 {
        let at_ns = 1_000_000 + nth * 100_000;
        segments.push(called(at_ns + 61_000, at_ns + 70_000, "nf_conntrack_tcp_packet", None));
        segments.push(segment(at_ns + 60_000, at_ns + 80_000, Activity::Softirq { number: 3 }));
        segments.push(segment(at_ns + 58_000, at_ns + 82_000, Activity::Vector { vector: 0xec }));
        segments.push(ran(at_ns, at_ns + 90_000, thread(7, 99, "hog")));
    }
    let end_ns = 1_000_000 + 25_000 * 100_000;
    let causes = decompose(&window(false, end_ns), &recording(segments), &Surroundings::default());
    let shares: f64 = causes.iter().filter_map(|cause| cause.share).sum();
    assert!(shares > 0.8 && shares <= 1.000_001, "{shares}");
    assert_eq!(causes[0].actor.as_deref(), Some("hog"), "{:?}", causes[0]);
}
