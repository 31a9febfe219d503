//! One planted cause each.

use crate::found::{explained, explained_with, only, periodic};
use crate::script::Script;
use whylate_core::result::{CauseKind, ExpectedFrom, ThresholdFrom};
use whylate_explain::{Options, TaskChoice, explain};
use whylate_testing::says;
use whylate_trace::facts::FactTask;

/// The steps that a reader of case 1 does by hand.
const CASE_1: &str = "
    218 5 cyclictest-390094 d...2.. fn _raw_spin_lock_irqsave <- __schedule
    219 5 cyclictest-390094 d...2.. fn __switch_to <- __schedule
    219.5 5 idle-0 d...2.. fn finish_task_switch.isra.0 <- __schedule
    376 5 idle-0 d...2.. fn __switch_to <- __schedule
    376.2 5 irq/45-n-489 d...2.. fn finish_task_switch.isra.0 <- __schedule
    379 5 irq/45-n-489 .....12 fn nvkm_pci_intr <- irq_forced_thread_fn
    379.5 5 irq/45-n-489 .....12 fn nvkm_mc_intr_unarm <- nvkm_pci_intr
    380 5 irq/45-n-489 .....12 fn gf100_mc_intr_unarm <- nvkm_pci_intr
    506 5 irq/45-n-489 d....12 fn irq_enter_rcu <- sysvec_apic_timer_interrupt
    530 5 irq/45-n-489 d...212 fn switch_mm_irqs_off <- __schedule
    531 5 cyclictest-390094 d...2.. fn finish_task_switch.isra.0 <- __schedule";

#[test]
fn functions_alone_name_the_driver_that_kept_interrupts_off() {
    let result = explained_with(CASE_1, &periodic("cyclictest", 200));
    assert_eq!(only(&result), (112, CauseKind::IrqsOff, "irq/45-n", "gf100_mc_intr_unarm"));
    let spike = &result.spikes[0];
    assert_eq!(spike.cause.callers[..2], ["nvkm_mc_intr_unarm", "nvkm_pci_intr"]);
    assert_eq!(spike.cause.pid, Some(489));
    assert!((spike.cause.share.unwrap() - 87.0 / 112.0).abs() < 0.001);
    assert_eq!((spike.cause.from_ns, spike.cause.to_ns), (Some(380_000), Some(506_000)));
    assert_eq!(spike.expected_from, ExpectedFrom::Period);
    assert!(result.warnings.iter().any(|warning| warning.code == "no-switches"));
}

#[test]
fn a_quiet_trace_has_no_spike() {
    assert!(
        explained_with(&CASE_1.replace("531 5", "510 5"), &periodic("cyclictest", 200)).spikes.is_empty()
    );
    assert!(explained("").spikes.is_empty());
}

/// A timer task on CPU 1 whose clock is 5000 us ahead of the trace's; `{late}` is what happens from 1000 us on.
fn timer_task(late: &str) -> String {
    format!(
        "100 1 idle-0 d..h1.. expire 5098
         500 1 cyclictest-7 ....... timer_start 6000
         510 1 cyclictest-7 d...2.. switch cyclictest-7:0 S > stalld-9:120
         {late}"
    )
}

const WOKEN: &str = "4010 1 stalld-9 d..h... vec local_timer
         4012 1 stalld-9 d..h... expire 9010
         4014 1 stalld-9 d..h1.. waking cyclictest-7:0 1
         4016 1 stalld-9 dn.h2.. wakeup cyclictest-7:0 1
         4020 1 stalld-9 dn.h... vecx local_timer
         4025 1 stalld-9 d...2.. switch stalld-9:120 R+ > cyclictest-7:0";

#[test]
fn interrupts_off_by_events() {
    let lines = timer_task(&format!(
        "900 1 stalld-9 d...... irqs_off _raw_spin_lock_irqsave <- stall_pci_readback
         4009 1 stalld-9 d...... irqs_on _raw_spin_unlock_irqrestore <- stall_pci_readback
         {WOKEN}"
    ));
    let result = explained(&lines);
    // The expected moment is 6000 - 5000 + 2: the smallest difference that was seen is 2 us too large.
    assert_eq!(only(&result), (3023, CauseKind::IrqsOff, "stalld", "stall_pci_readback"));
    assert_eq!(result.spikes[0].expected_from, ExpectedFrom::Timer);
    assert!(result.spikes[0].cause.confidence.unwrap() > 0.9);
    assert_eq!(result.spikes[0].cause.from_ns, Some(900_000));
}

#[test]
fn interrupts_off_by_the_stack_of_the_late_interrupt() {
    let stack = "4013 1 stalld-9 d..h... stack hrtimer_wakeup __hrtimer_run_queues hrtimer_interrupt \
        sysvec_apic_timer_interrupt asm_sysvec_apic_timer_interrupt stall_pci_readback stall_thread kthread";
    let functions = "900 1 stalld-9 ....... fn stall_thread <- kthread";
    let result = explained(&timer_task(&format!("{functions}\n{stack}\n{WOKEN}")));
    assert_eq!(only(&result), (3023, CauseKind::IrqsOff, "stalld", "stall_pci_readback"));
    assert_eq!(result.spikes[0].cause.callers, ["stall_thread", "kthread"]);
}

#[test]
fn a_late_timer_alone_is_not_blamed_on_the_thread() {
    let result = explained(&timer_task(WOKEN));
    assert_eq!(only(&result), (3023, CauseKind::Unattributed, "stalld", ""));
    assert!(result.warnings.iter().any(|warning| warning.code == "no-functions"));
}

#[test]
fn a_late_timer_in_user_mode_is_not_interrupts_off() {
    let result = explained(&timer_task(&format!(
        "600 1 stalld-9 d...... fn syscall_exit_to_user_mode <- do_syscall_64\n{WOKEN}"
    )));
    assert_eq!(only(&result).1, CauseKind::TimerLate);
}

#[test]
fn a_handler_that_runs_long_delays_the_timer() {
    let result = explained(&timer_task(&format!(
        "950 1 stalld-9 d..h... irq 45 nvkm\n4005 1 stalld-9 d..h... irqx 45\n{WOKEN}"
    )));
    assert_eq!(only(&result), (3023, CauseKind::Irq, "irq 45 (nvkm)", ""));
}

/// As in records of `perf sched`, where only the flags of events within show a tick.
#[test]
fn flags_of_two_interrupts_are_no_long_one() {
    let result = explained(
        "100 1 audio-7 d...2.. switch audio-7:19 S > stress-9:19
         1000 1 stress-9 d..h1.. waking audio-7:19 1
         1001 1 stress-9 dn.h2.. wakeup audio-7:19 1
         2000 1 stress-9 dn.h1.. waking other-55:120 0
         6000 1 stress-9 dn.h1.. waking other-55:120 0
         9000 1 stress-9 d...2.. switch stress-9:19 S > audio-7:19",
    );
    assert_eq!(only(&result), (8000, CauseKind::Thread, "stress", ""));
}

#[test]
fn a_function_that_another_cpu_sent() {
    let result = explained(&timer_task(&format!(
        "950 1 stalld-9 d..h... vec call_function
         951 1 stalld-9 d..h... csd do_flush_tlb_all
         4004 1 stalld-9 d..h... csdx do_flush_tlb_all
         4005 1 stalld-9 d..h... vecx call_function\n{WOKEN}"
    )));
    assert_eq!(only(&result), (3023, CauseKind::Ipi, "function-call IPI", "do_flush_tlb_all"));
}

#[test]
fn the_task_that_the_header_names_is_looked_at_though_its_wakeup_is_missing() {
    let mut script = Script::new(
        "10 1 cat-228 d...2.. switch cat-228:120 S > idle-0:120
         30 1 idle-0 d...2.. waking cat-228:120 1
         60 1 idle-0 d...2.. switch idle-0:120 R > cat-228:120
         80 1 cat-228 d...2.. fn finish_task_switch <- __schedule",
    );
    let latest = explain(&mut script, &Options::default()).unwrap();
    assert_eq!(latest.traces[0].task.as_deref(), Some("cat-228"));
    script.info.tracer = Some("wakeup_rt".to_owned());
    script.info.facts.latency_ns = Some(5_000_000);
    script.info.facts.task =
        Some(FactTask { command: "irq/25-virtio0-".to_owned(), pid: 120, rt_priority: 50 });
    let result = explain(&mut script, &Options::default()).unwrap();
    assert_eq!(result.traces[0].task.as_deref(), Some("irq/25-virtio0-"));
    assert_ne!(result.traces[0].task_reason, latest.traces[0].task_reason);
    assert_eq!(result.spikes[0].latency_ns, 5_000_000);
}

/// The task is woken on time; `{late}` says why it runs at 4000 us.
fn woken(late: &str) -> String {
    timer_task(&format!(
        "1003 1 stalld-9 d..h1.. vec local_timer
         1004 1 stalld-9 d..h1.. expire 6001
         1006 1 stalld-9 d..h2.. waking cyclictest-7:0 1
         1010 1 stalld-9 dn.h1.. vecx local_timer
         {late}"
    ))
}

const RUN: &str = "4000 1 stalld-9 d...2.. switch stalld-9:120 R+ > cyclictest-7:0";

#[test]
fn preemption_off_by_the_depth_at_the_interrupt() {
    let result = explained(&woken(RUN));
    assert_eq!(only(&result), (2998, CauseKind::PreemptOff, "stalld", ""));
    assert!(result.warnings.iter().any(|warning| warning.code == "no-functions"));
}

#[test]
fn preemption_off_in_a_traced_function() {
    let result = explained(&woken(&format!(
        "1012 1 stalld-9 .n..1.. fn hold_lock <- stall_thread
         1013 1 stalld-9 .n..1.. fn delay_tsc <- hold_lock
         2500 1 stalld-9 .n..1.. fn delay_tsc <- hold_lock\n{RUN}"
    )));
    assert_eq!(only(&result), (2998, CauseKind::PreemptOff, "stalld", "hold_lock"));
    assert_eq!(result.spikes[0].cause.callers, ["stall_thread"]);
}

#[test]
fn a_thread_of_higher_priority() {
    let hog = woken(&RUN.replace("stalld-9:120 R+", "hog-9:0 S")).replace("stalld-9:120", "hog-9:0");
    let result = explained(&hog.replace("stalld", "hog").replace("cyclictest-7:0", "cyclictest-7:10"));
    assert_eq!((only(&result).1, only(&result).2), (CauseKind::Thread, "hog"));
}

#[test]
fn a_softirq_that_is_not_left() {
    let result = explained(&woken(&format!(
        "1015 1 stalld-9 .n.s... softirq 3\n3990 1 stalld-9 .n.s... softirqx 3\n{RUN}"
    )));
    assert_eq!(only(&result), (2998, CauseKind::Softirq, "NET_RX softirq", ""));
}

#[test]
fn an_interrupt_storm_counts_together() {
    let storm: Vec<String> = (0..20)
        .map(|index| {
            let at = 1100 + index * 140;
            format!("{at} 1 stalld-9 dn.h1.. irq 9 eth0\n{} 1 stalld-9 dn.h1.. irqx 9", at + 110)
        })
        .collect();
    let result = explained(&woken(&format!("{}\n{RUN}", storm.join("\n"))));
    assert_eq!((only(&result).1, only(&result).2), (CauseKind::Irq, "irq 9 (eth0)"));
    let share = result.spikes[0].cause.share.unwrap();
    assert!((0.7..0.76).contains(&share), "{share}");
    assert_eq!(result.spikes[0].also[0].kind, CauseKind::PreemptOff);
}

#[test]
fn leaving_idle() {
    let result = explained(
        "100 1 idle-0 d..h1.. expire 5098
         500 1 cyclictest-7 ....... timer_start 6000
         510 1 cyclictest-7 d...2.. switch cyclictest-7:0 S > idle-0:120
         520 1 idle-0 d...1.. idle 4
         1350 1 idle-0 d..h1.. vec local_timer
         1351 1 idle-0 d..h1.. waking cyclictest-7:0 1
         1355 1 idle-0 dn.h1.. vecx local_timer
         1356 1 idle-0 dn..1.. idle -
         1360 1 idle-0 d...2.. switch idle-0:120 R > cyclictest-7:0",
    );
    assert_eq!(only(&result).1, CauseKind::IdleExit);
}

#[test]
fn lost_events_lower_the_confidence() {
    let sure = explained(&woken(RUN)).spikes[0].cause.confidence.unwrap();
    let lossy = explained(&woken(&format!(
        "1900 0 idle-0 d...2.. switch idle-0:120 R > ls-5:120\n2000 0 ls-5 ....... lost 17\n{RUN}"
    )));
    let spike = &lossy.spikes[0];
    assert!(spike.cause.confidence.unwrap() < sure && spike.lost == 17);
    assert!(
        spike.cause.evidence.iter().any(|line| line.contains("events around this latency were lost (17)"))
    );
    assert_eq!(lossy.traces[0].lost, 17);
    // The task may have run on its CPU meanwhile.
    let hole = explained(&woken(&format!("2000 1 stalld-9 ....... lost 17\n{RUN}")));
    assert_eq!((hole.spikes.len(), hole.answer), (0, whylate_core::result::ExplainAnswer::CannotTell));
}

#[test]
fn the_head_of_a_text_knows_how_many_events_were_lost() {
    let mut script = Script::new(&woken(&format!("2000 1 stalld-9 ....... lost 1\n{RUN}")));
    script.info.overwritten = Some(55_890);
    let result = explain(&mut script, &Options::default()).expect("a script can be read");
    assert_eq!(result.traces[0].lost, 55_890);
}

#[test]
fn the_break_marker_tells_the_latency() {
    let lines = "
        100 0 cyclictest-7 d...2.. switch cyclictest-7:0 S > stalld-9:120
        150 0 stalld-9 ....... fn stall_pci_readback <- stall_thread
        4000 0 stalld-9 d...... fn irq_enter_rcu <- sysvec_apic_timer_interrupt
        4010 0 stalld-9 d..h1.. wakeup cyclictest-7:0 0
        4050 0 stalld-9 d...2.. switch stalld-9:120 R > cyclictest-7:0
        4100 0 cyclictest-7 ....... print hit latency threshold (3500 > 2000)";
    // cyclictest's marker, and that of whylate's own probe, which says its unit.
    for lines in [lines.to_owned(), lines.replace("(3500 > 2000)", "(3500000 ns > 2000000 ns)")] {
        let result = explained(&lines);
        assert_eq!(only(&result), (3500, CauseKind::IrqsOff, "stalld", "stall_pci_readback"));
        assert_eq!(result.spikes[0].expected_from, ExpectedFrom::Marker);
        assert!(says("stopped-trace-because-late", &result.traces[0].task_reason));
        assert_eq!(result.traces[0].threshold_ns, 2_000_000);
    }
}

#[test]
fn what_was_late_before_the_first_break_was_not_measured() {
    // More of them than are kept, each longer.
    let before: String = (0..12)
        .map(|nth| {
            format!(
                "{} 0 cyclictest-7 d...2.. switch cyclictest-7:0 S > stalld-9:120
                 {} 0 stalld-9 d..h1.. wakeup cyclictest-7:0 0
                 {} 0 stalld-9 d...2.. switch stalld-9:120 R > cyclictest-7:0\n",
                100 + nth * 10_000,
                110 + nth * 10_000,
                9000 + nth * 10_000
            )
        })
        .collect();
    let result = explained(&format!(
        "{before}
         209100 0 cyclictest-7 d...2.. switch cyclictest-7:0 S > stalld-9:120
         213500 0 stalld-9 d..h1.. wakeup cyclictest-7:0 0
         214050 0 stalld-9 d...2.. switch stalld-9:120 R > cyclictest-7:0
         214100 0 cyclictest-7 ....... print hit latency threshold (3500 > 2000)"
    ));
    assert_eq!(only(&result).0, 3500);
    assert_eq!(result.traces[0].spikes_found, 1);
}

#[test]
fn a_mark_of_an_earlier_measurement_is_not_the_threshold() {
    let result = explained(
        "50 0 old-5 ....... print hit latency threshold (12 > 1)
         3600000000 0 app-7 d...2.. switch app-7:10 S > idle-0:120
         3600000500 0 idle-0 d..h1.. waking app-7:10 0
         3600000800 0 idle-0 d...2.. switch idle-0:120 R > app-7:10",
    );
    let trace = &result.traces[0];
    assert_eq!((trace.threshold_ns, trace.threshold_from), (100_000, ThresholdFrom::Default));
    assert_eq!((result.spikes[0].task.as_str(), only(&result).0), ("app", 300));
    assert_eq!(trace.covered_ns, None, "tracing was off meanwhile");
}

#[test]
fn a_threshold_of_a_mark_counts_all_latencies_above_it() {
    // The mark's threshold is known only after latencies that are too short for the default one.
    let lines: String = (0..12)
        .map(|nth| {
            let at = 1000 + nth * 1000;
            format!(
                "{} 0 app-7 d...2.. switch app-7:10 S > idle-0:120
                 {} 0 idle-0 d..h1.. waking app-7:10 0
                 {} 0 idle-0 d...2.. switch idle-0:120 R > app-7:10\n",
                at,
                at + 500,
                at + 504
            )
        })
        .collect();
    let mark = "100 0 meter-9 ....... print hit latency threshold (12 > 1)";
    for top in [3, 100] {
        let task = Some(TaskChoice::Name("app".to_owned()));
        let result =
            explained_with(&format!("{mark}\n{lines}"), &Options { task, top, ..Options::default() });
        assert_eq!((result.traces[0].spikes_found, result.spikes.len()), (12, top.min(12)), "{result:#?}");
        assert_eq!(result.traces[0].threshold_from, ThresholdFrom::Marker);
    }
}

#[test]
fn tracers_that_measure_themselves() {
    let timerlat = explained(
        "4000 0 stalld-9 d..h... timerlat irq 7 2970
         4100 0 timerlat/0-20 ....... timerlat thread 7 3070
         4120 0 timerlat/0-20 ....1.. stack timerlat_irq hrtimer_interrupt sysvec_apic_timer_interrupt \
            stall_pci_readback stall_thread",
    );
    assert_eq!(only(&timerlat), (3070, CauseKind::IrqsOff, "stalld", "stall_pci_readback"));
    let hwlat = explained("9000 0 hwlatd-9 d...... hwlat 4000 300");
    assert_eq!(only(&hwlat).1, CauseKind::Hardware);
    let gap = explained("9000 0 osnoise/0-9 ....... gap 8000 900 0");
    assert_eq!((only(&gap).0, only(&gap).1), (900, CauseKind::Hardware));
    let quiet = explained("9000 0 osnoise/0-9 ....... gap 8000 90 0");
    assert!(quiet.spikes.is_empty());
}

#[test]
fn the_largest_are_shown_and_all_are_counted() {
    let sample = |index: u64| {
        format!("{} 0 osnoise/0-9 ....... gap {} {} 0", index * 5000, index * 5000 - 900, 200 + index)
    };
    let lines: Vec<String> = (1..30).map(sample).collect();
    let result = explained_with(&lines.join("\n"), &Options { top: 3, ..Options::default() });
    let latencies: Vec<u64> = result.spikes.iter().map(|spike| spike.latency_ns / 1000).collect();
    assert_eq!(latencies, [229, 228, 227]);
    assert_eq!(result.traces[0].spikes_found, 29);
}
