//! The moment that a recording was kept for, among all that is in it.

use crate::script::Script;
use whylate_core::result::{CauseKind, ExpectedFrom, ExplainResult};
use whylate_core::{CpuId, Warning};
use whylate_trace::explain::{KeptMoment, explain_kept};

/// A task whose timer expires at 1000 us, is kept from running by code with interrupts off, and runs at 4025 us; with
/// another, larger latency later on.
const LATE: &str = "
    100 1 whylate-7 d...... timer_start 1000
    110 1 whylate-7 d...2.. switch whylate-7:4 S > burner-9:120
    200 1 burner-9 d...... irqs_off _raw_spin_lock_irqsave <- stall_pci_readback
    4009 1 burner-9 d...... irqs_on _raw_spin_unlock_irqrestore <- stall_pci_readback
    4010 1 burner-9 d..h... vec local_timer
    4012 1 burner-9 d..h... expire 4012
    4014 1 burner-9 d..h1.. waking whylate-7:4 1
    4016 1 burner-9 dn.h2.. wakeup whylate-7:4 1
    4020 1 burner-9 dn.h... vecx local_timer
    4025 1 burner-9 d...2.. switch burner-9:120 R+ > whylate-7:4
    4030 1 whylate-7 d...... timer_start 5000
    4040 1 whylate-7 d...2.. switch whylate-7:4 S > burner-9:120
    4100 1 burner-9 d...... irqs_off _raw_spin_lock_irqsave <- another_stall
    14009 1 burner-9 d...... irqs_on _raw_spin_unlock_irqrestore <- another_stall
    14010 1 burner-9 d..h... vec local_timer
    14012 1 burner-9 d..h... expire 14012
    14014 1 burner-9 d..h1.. waking whylate-7:4 1
    14016 1 burner-9 dn.h2.. wakeup whylate-7:4 1
    14020 1 burner-9 dn.h... vecx local_timer
    14025 1 burner-9 d...2.. switch burner-9:120 R+ > whylate-7:4
    14030 1 whylate-7 d...... timer_start 15000";

/// What the probe measured: it reads the clock 2 us after it was given the CPU.
const MOMENT: KeptMoment =
    KeptMoment { task: None, cpu: CpuId(1), at_ns: 4_027_000, latency_ns: 3_027_000, sleeps: true };

fn explained(lines: &str, moment: &KeptMoment) -> ExplainResult {
    let mut script = Script::new(lines);
    script.info.clock = Some("mono".to_owned());
    explain_kept(&mut script, moment).unwrap()
}

#[test]
fn it_is_explained_from_the_expiry_of_its_own_timer() {
    let result = explained(LATE, &MOMENT);
    let [spike] = result.spikes.as_slice() else { panic!("{:#?}", result.spikes) };
    assert_eq!((spike.expected_from, spike.expected_ns), (ExpectedFrom::Timer, 1_000_000));
    assert_eq!((spike.actual_ns, spike.cause.kind), (4_025_000, CauseKind::IrqsOff));
    assert_eq!(spike.cause.function.as_deref(), Some("stall_pci_readback"));
    assert_eq!((result.traces[0].spikes_found, result.traces[0].threshold_ns), (1, 3_027_000));
}

#[test]
fn what_the_reader_noticed_is_told() {
    let mut script = Script::new(LATE);
    script.info.remarks = vec!["functions have no names".to_owned()];
    let result = explain_kept(&mut script, &MOMENT).unwrap();
    let told = |warning: &Warning| warning.code == "reader" && warning.text == "functions have no names";
    assert!(result.warnings.iter().any(told), "{:?}", result.warnings);
}

#[test]
fn without_its_timer_the_probe_says_when_it_should_have_run() {
    let lines: String = LATE
        .lines()
        .filter(|line| !line.contains("timer_start"))
        .fold(String::new(), |all, line| all + line + "\n");
    let result = explained(&lines, &MOMENT);
    let [spike] = result.spikes.as_slice() else { panic!("{:#?}", result.spikes) };
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
    let moment = KeptMoment {
        task: Some("whylate".to_owned()),
        cpu: CpuId(1),
        at_ns: 1_400_000,
        latency_ns: 400_000,
        sleeps: false,
    };
    let result = explained(lines, &moment);
    let [spike] = result.spikes.as_slice() else { panic!("{:#?}", result.spikes) };
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
    let moment = KeptMoment {
        task: Some("whylate".to_owned()),
        cpu: CpuId(1),
        at_ns: 999_987_000,
        latency_ns: 49_985_000,
        sleeps: false,
    };
    let result = explained(lines, &moment);
    assert_eq!(result.spikes[0].cause.kind, CauseKind::Throttled, "{:#?}", result.spikes);
    assert_eq!(result.spikes[0].task, "whylate");
}

#[test]
fn a_moment_that_is_not_in_the_trace_is_not_explained() {
    let moment = KeptMoment { at_ns: 10_000_000_000, ..MOMENT };
    let result = explained(LATE, &moment);
    assert!(result.spikes.is_empty(), "{:#?}", result.spikes);
}
