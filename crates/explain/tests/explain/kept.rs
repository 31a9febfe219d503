//! The moment for which a recording was kept, among everything else in it.

use crate::script::Script;
use whylate_core::result::{CauseKind, ExpectedFrom, ExplainResult, ExplainedSpike};
use whylate_core::{CpuId, Warning};
use whylate_explain::{KeptMoment, Options, explain, explain_kept};

/// A task sleeps until `due` us; code with interrupts disabled, which `function` disables from `from` to `to` us, keeps its
/// timer and the task from running.
fn stalled(due: u64, function: &str, from: u64, to: u64) -> String {
    let [armed, asleep] = [from - 70, from - 60];
    let [entered, expired, waking, woken, left, ran] = [1, 3, 5, 7, 11, 16].map(|after| to + after);
    format!(
        "{armed} 1 whylate-7 d...... timer_start {due}
         {asleep} 1 whylate-7 d...2.. switch whylate-7:4 S > burner-9:120
         {from} 1 burner-9 d...... irqs_off _raw_spin_lock_irqsave <- {function}
         {to} 1 burner-9 d...... irqs_on _raw_spin_unlock_irqrestore <- {function}
         {entered} 1 burner-9 d..h... vec local_timer
         {expired} 1 burner-9 d..h... expire {expired}
         {waking} 1 burner-9 d..h1.. waking whylate-7:4 1
         {woken} 1 burner-9 dn.h2.. wakeup whylate-7:4 1
         {left} 1 burner-9 dn.h... vecx local_timer
         {ran} 1 burner-9 d...2.. switch burner-9:120 R+ > whylate-7:4\n"
    )
}

/// It should have run at 1000 us and runs at 4025 us; with another, larger latency later on.
fn late() -> String {
    let (first, second) =
        (stalled(1_000, "stall_pci_readback", 200, 4_009), stalled(5_000, "another_stall", 4_100, 14_009));
    format!("{first}{second}14030 1 whylate-7 d...... timer_start 15000")
}

/// The probe's measurement: it reads the clock 2 us after it got the CPU.
const MOMENT: KeptMoment = KeptMoment {
    task: None,
    cpu: CpuId(1),
    at_ns: 4_027_000,
    latency_ns: 3_027_000,
    unended: false,
    sleeps: true,
    is_virtual: None,
};

/// The measurement of a thread that never sleeps.
fn spinning(at_ns: u64, latency_ns: u64) -> KeptMoment {
    KeptMoment { task: Some("whylate".to_owned()), at_ns, latency_ns, sleeps: false, ..MOMENT }
}

fn only_spike(result: &ExplainResult) -> &ExplainedSpike {
    let [spike] = result.spikes.as_slice() else { panic!("{:#?}", result.spikes) };
    spike
}

fn explained(lines: &str, moment: &KeptMoment) -> ExplainResult {
    let mut script = Script::new(lines);
    script.info.clock = Some("mono".to_owned());
    explain_kept(&mut script, moment).unwrap()
}

#[test]
fn it_is_explained_from_the_expiry_of_its_own_timer() {
    let result = explained(&late(), &MOMENT);
    let spike = only_spike(&result);
    assert_eq!((spike.expected_from, spike.expected_ns), (ExpectedFrom::Timer, 1_000_000));
    assert_eq!((spike.actual_ns, spike.cause.kind), (4_025_000, CauseKind::IrqsOff));
    assert_eq!(spike.cause.function.as_deref(), Some("stall_pci_readback"));
    // Neither the probe's value nor the trace's is at or below it.
    assert_eq!((result.traces[0].spikes_found, result.traces[0].threshold_ns), (1, 3_024_999));
}

#[test]
fn a_task_that_is_kept_from_going_to_sleep_waits_for_no_timer() {
    // Late before, it is preempted in its work until after 1000 us, for which it is going to wait.
    let lines = "100 1 whylate-7 d...2.. switch whylate-7:4 R > irq/30-plant-9:1
         3900 1 irq/30-plant-9 d...2.. switch irq/30-plant-9:1 S > whylate-7:4
         3990 1 whylate-7 d...... timer_start 1000
         4000 1 whylate-7 d...2.. switch whylate-7:4 S > swapper-0:120
         4010 1 swapper-0 d..h... vec local_timer
         4012 1 swapper-0 d..h... expire 4012
         4014 1 swapper-0 d..h1.. waking whylate-7:4 1
         4016 1 swapper-0 dn.h2.. wakeup whylate-7:4 1
         4018 1 swapper-0 dn.h... vecx local_timer
         4025 1 swapper-0 d...2.. switch swapper-0:120 R > whylate-7:4
         4030 1 whylate-7 d...... timer_start 15000";
    let result = explained(lines, &MOMENT);
    let spike = only_spike(&result);
    assert_eq!((spike.expected_from, spike.expected_ns), (ExpectedFrom::Probe, 1_000_000));
    assert_eq!((spike.cause.kind, spike.cause.actor.as_deref()), (CauseKind::Thread, Some("irq/30-plant")));
    let own = spike.timeline.iter().find(|piece| piece.what.contains("still working"));
    assert_eq!(own.map(|piece| (piece.from_ns, piece.to_ns)), Some((3_900_000, 4_000_000)), "{spike:#?}");
    // If the trace shows most of the latency, the probe's value for the rest is used.
    let result = explained(lines, &KeptMoment { latency_ns: 40_000, ..MOMENT });
    let spike = only_spike(&result);
    assert_eq!((spike.expected_from, spike.expected_ns), (ExpectedFrom::Timer, 3_987_000));
}

#[test]
fn a_task_that_never_ran_again_is_named_and_its_latency_is_a_lower_bound() {
    let lines = "100 1 whylate-7 d...... timer_start 1000
         110 1 whylate-7 d...2.. switch whylate-7:4 S > hog-9:1
         1001 1 hog-9 d..h... vec local_timer
         1002 1 hog-9 d..h... expire 1002
         1003 1 hog-9 d..h1.. waking whylate-7:4 1
         1004 1 hog-9 d..h2.. wakeup whylate-7:4 1
         1006 1 hog-9 d..h... vecx local_timer
         9000 1 hog-9 d..h... vec local_timer
         9002 1 hog-9 d..h... vecx local_timer";
    let task = Some("whylate".to_owned());
    let result = explained(lines, &KeptMoment { task, unended: true, ..MOMENT });
    let spike = only_spike(&result);
    assert_eq!((spike.task.as_str(), spike.pid, spike.unended), ("whylate", Some(7), true));
    assert_eq!((spike.expected_ns, spike.latency_ns), (1_000_000, 3_027_000));
    assert_eq!((spike.cause.kind, spike.cause.actor.as_deref()), (CauseKind::Thread, Some("hog")));
    let evidence = &spike.cause.evidence;
    assert!(evidence.iter().any(|it| it.contains("before the end of the measurement")), "{evidence:?}");
}

/// A thread raises its own priority, which no event shows, and lowers it again.
#[test]
fn a_thread_that_the_kernel_does_not_ask_to_make_room_is_named_whatever_its_priority_is_before_and_after() {
    let lines = |ticks: &str| {
        format!(
            "100 1 whylate-7 d...... timer_start 1000
             110 1 whylate-7 d...2.. switch whylate-7:4 S > climber-9:120
             1001 1 climber-9 d..h... vec local_timer
             1002 1 climber-9 d..h... expire 1002
             1003 1 climber-9 d..h1.. waking whylate-7:4 1
             1004 1 climber-9 d..h2.. wakeup whylate-7:4 1
             1006 1 climber-9 d..h... vecx local_timer
             {ticks}
             4024 1 climber-9 d...2.. switch climber-9:120 R > whylate-7:4"
        )
    };
    let seen = explained(
        &lines("2500 1 climber-9 d..h... vec local_timer\n2504 1 climber-9 d..h... vecx local_timer"),
        &MOMENT,
    );
    let cause = &only_spike(&seen).cause;
    assert_eq!((cause.kind, cause.actor.as_deref()), (CauseKind::Thread, Some("climber")));
    assert!(cause.confidence.is_some_and(|sure| (0.5..0.7).contains(&sure)), "{cause:?}");
}

/// If a hypervisor is known, it is a more likely cause of what happened below the kernel than the hardware.
#[test]
fn below_the_kernel_of_a_guest_is_its_host() {
    let kind = |is_virtual, lines: &str| {
        let options = Options { is_virtual: Some(is_virtual), ..Options::default() };
        let result = explain(&mut Script::new(lines), &options).unwrap();
        only_spike(&result).cause.kind
    };
    for lines in ["9000 0 hwlatd-9 d...... hwlat 4000 300", "9000 0 osnoise/0-9 ....... gap 8000 900 0"] {
        assert_eq!([true, false].map(|it| kind(it, lines)), [CauseKind::HostStall, CauseKind::Hardware]);
    }
}

#[test]
fn what_the_reader_noticed_is_reported() {
    let mut script = Script::new(&late());
    script.info.remarks = vec!["functions have no names".to_owned()];
    let result = explain_kept(&mut script, &MOMENT).unwrap();
    let is_noticed =
        |warning: &Warning| warning.code == "reader" && warning.text == "functions have no names";
    assert!(result.warnings.iter().any(is_noticed), "{:?}", result.warnings);
}

#[test]
fn without_its_timer_the_probe_says_when_it_should_have_run() {
    let lines: String = late()
        .lines()
        .filter(|line| !line.contains("timer_start"))
        .fold(String::new(), |all, line| all + line + "\n");
    let result = explained(&lines, &MOMENT);
    let spike = only_spike(&result);
    assert_eq!((spike.expected_from, spike.expected_ns), (ExpectedFrom::Probe, 1_000_000));
    assert_eq!((spike.actual_ns, spike.cause.kind), (4_027_000, CauseKind::IrqsOff));
    assert_eq!((spike.pid, spike.task.as_str()), (Some(7), "whylate"));
}

#[test]
fn what_interrupts_a_task_that_never_sleeps_took_its_time() {
    let lines = "
        500 1 swapper/1-0 d...2.. switch swapper/1-0:120 R > whylate-7:4
        1000 1 whylate-7 d..h... irq 24 eth0
        1390 1 whylate-7 d..h... irqx 24
        9000 1 whylate-7 d...2.. switch whylate-7:4 S > swapper/1-0:120";
    let result = explained(lines, &spinning(1_400_000, 400_000));
    let spike = only_spike(&result);
    assert_eq!((spike.expected_from, spike.cause.kind), (ExpectedFrom::Probe, CauseKind::Irq));
    assert!(spike.cause.actor.as_ref().is_some_and(|actor| actor.contains("eth0")), "{:?}", spike.cause);
    assert!(spike.cause.share.is_some_and(|share| share > 0.95));
}

#[test]
fn a_task_that_never_sleeps_may_be_throttled() {
    let lines = "
        500 1 swapper/1-0 d...2.. switch swapper/1-0:120 R > whylate-7:4
        950000 1 whylate-7 d...2.. switch whylate-7:4 R > swapper/1-0:120
        999990 1 swapper/1-0 d...2.. switch swapper/1-0:120 R > whylate-7:4
        1200000 1 whylate-7 d...2.. switch whylate-7:4 S > swapper/1-0:120";
    // By the trace's clock it runs again 3 us later than by the probe's.
    let result = explained(lines, &spinning(999_987_000, 49_985_000));
    let spike = only_spike(&result);
    assert_eq!((spike.cause.kind, spike.task.as_str()), (CauseKind::Throttled, "whylate"), "{spike:#?}");
}

#[test]
fn a_moment_that_is_not_in_the_trace_is_not_explained() {
    let moment = KeptMoment { at_ns: 10_000_000_000, ..MOMENT };
    let result = explained(&late(), &moment);
    assert!(result.spikes.is_empty(), "{:#?}", result.spikes);
}

#[test]
fn whether_it_was_a_guest_is_known_from_elsewhere() {
    // Nothing happens on any CPU while a timer is due.
    let silent: String = late()
        .lines()
        .filter(|line| !line.contains("irqs_o") && !line.contains("another_stall"))
        .take(8)
        .fold(
            "100 0 swapper/0-0 d..h... irq 24 eth0\n200 0 swapper/0-0 d..h... irqx 24\n".to_owned(),
            |all, line| all + line.trim() + "\n",
        );
    let lines = format!("{silent}5000 0 swapper/0-0 d..h... irq 24 eth0\n5010 0 swapper/0-0 d..h... irqx 24");
    let kind = |is_virtual| only_spike(&explained(&lines, &KeptMoment { is_virtual, ..MOMENT })).cause.kind;
    assert_eq!(kind(Some(true)), CauseKind::HostStall);
    assert_ne!(kind(Some(false)), CauseKind::HostStall);
    assert_eq!(kind(None), kind(Some(false)), "no name in it is a guest's");
}

/// A guest's CPU 1 on which python3 goes on although the task is woken; CPU 0 is silent. The middle has the CPU's own timers.
fn kept_the_cpu(middle: &str) -> String {
    format!(
        "90 0 swapper/0-0 d..h... irq 24 eth0
         95 0 swapper/0-0 d..h... irqx 24
         100 1 whylate-7 d...... timer_start 1000
         110 1 whylate-7 d...2.. switch whylate-7:4 S > python3-9:120
         1001 1 python3-9 d..h... vec local_timer
         1002 1 python3-9 d..h... expire 1002
         1003 1 python3-9 d..h1.. waking whylate-7:4 1
         1004 1 python3-9 dn.h2.. wakeup whylate-7:4 1
         1006 1 python3-9 dn.h... vecx local_timer
         {middle}
         4024 1 python3-9 d...2.. switch python3-9:120 R > whylate-7:4
         5000 0 swapper/0-0 d..h... irq 24 eth0
         5010 0 swapper/0-0 d..h... irqx 24"
    )
}

#[test]
fn a_guest_in_whose_silence_no_timer_was_late_was_not_stopped() {
    let tick = |due: u64, came: u64| {
        format!(
            "1005 1 python3-9 dn.h... timer_start {due} 2 tick_nohz_handler
             {came} 1 python3-9 dn.h... vec local_timer
             {came}.5 1 python3-9 dn.h... expire {came} 2 tick_nohz_handler
             {came}.9 1 python3-9 dn.h... vecx local_timer"
        )
    };
    let cause = |middle: &str, is_virtual| {
        let moment = KeptMoment { is_virtual: Some(is_virtual), ..MOMENT };
        only_spike(&explained(&kept_the_cpu(middle), &moment)).cause.clone()
    };
    for middle in [tick(2_500, 2_502), String::new()] {
        let seen = cause(&middle, true);
        assert_eq!((seen.kind, seen.actor.as_deref()), (CauseKind::PreemptOff, Some("python3")), "{seen:?}");
        assert!(seen.confidence <= Some(0.5), "{seen:?}");
        let other = cause(&middle, false);
        assert_eq!((seen.kind, seen.confidence), (other.kind, other.confidence), "bare metal");
    }
    // The tick was due early in the silence, and came only at its end.
    assert_eq!(cause(&tick(1_500, 3_900), true).kind, CauseKind::HostStall);
}

#[test]
fn a_guest_that_takes_page_faults_while_its_timer_is_late_was_not_stopped() {
    let faults: String =
        (1..10).map(|at| format!("{} 1 burner-9 ....... fault\n", 1_000 + at * 300)).collect();
    let lines = format!(
        "90 0 swapper/0-0 d..h... irq 24 eth0
         95 0 swapper/0-0 d..h... irqx 24
         100 1 whylate-7 d...... timer_start 1000
         110 1 whylate-7 d...2.. switch whylate-7:4 S > burner-9:120
         {faults}
         4001 1 burner-9 d..h... vec local_timer
         4002 1 burner-9 d..h... expire 4002
         4003 1 burner-9 d..h1.. waking whylate-7:4 1
         4004 1 burner-9 dn.h2.. wakeup whylate-7:4 1
         4006 1 burner-9 dn.h... vecx local_timer
         4024 1 burner-9 d...2.. switch burner-9:120 R > whylate-7:4
         5000 0 swapper/0-0 d..h... irq 24 eth0
         5010 0 swapper/0-0 d..h... irqx 24"
    );
    let result = explained(&lines, &KeptMoment { is_virtual: Some(true), ..MOMENT });
    assert_eq!(only_spike(&result).cause.kind, CauseKind::TimerLate, "{result:#?}");
}
