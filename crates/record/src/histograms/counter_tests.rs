use super::*;

fn who(pid: u32, priority: i32) -> Who {
    Who { pid, priority: PRIORITY_TOP - priority, command: format!("task{pid}").into() }
}

fn step(at_ns: u64, what: What) -> Step {
    Step { at_ns, cpu: CpuId(1), pid: 0, in_softirq: false, what }
}

fn counter() -> Counter {
    Counter::new(&HistogramsConfig::new(CpuSet::single(CpuId(1))))
}

fn idle() -> Who {
    Who { pid: 0, priority: 120, command: "swapper/1".into() }
}

fn switch(at_ns: u64, previous: Who, next: Who) -> Step {
    step(at_ns, What::Switch { previous, next })
}

/// A timer for 1,000 ns that expires at 1,400; its task is woken at 1,500 and runs at 1,900.
fn one_wakeup(counter: &mut Counter) {
    counter.take(&step(100, What::Armed { timer: 7, expires_ns: 1_000 }));
    counter.take(&step(1_400, What::Expired { timer: 7, now_ns: 1_390 }));
    counter.take(&step(1_500, What::Waking(who(42, 80))));
    counter.take(&step(1_600, What::Handled));
    counter.take(&switch(1_900, idle(), who(42, 80)));
}

fn of(counter: &Counter, kind: HistogramKind) -> KernelHistogram {
    counter.histogram(CpuId(1), kind)
}

#[test]
fn a_wakeup_by_a_timer_is_in_each_histogram_with_its_parts() {
    let mut counter = counter();
    one_wakeup(&mut counter);
    let latency = |kind| of(&counter, kind).max_record.map(|record| record.latency_ns);
    assert_eq!(latency(HistogramKind::MissedTimerOffsets), Some(500));
    assert_eq!(latency(HistogramKind::Wakeup), Some(400));
    assert_eq!(latency(HistogramKind::TimerAndWakeup), Some(900));
    assert_eq!(latency(HistogramKind::TimerWakeupSwitch), Some(900));
    assert_eq!(latency(HistogramKind::SharedPriority), None);
    let record = of(&counter, HistogramKind::TimerWakeupSwitch).max_record.unwrap();
    assert_eq!((record.timer_offset_ns, record.wakeup_ns, record.switch_ns), (Some(500), Some(400), None));
    assert_eq!((record.pid, record.priority, record.previous_priority), (42, 80, -21));
    assert_eq!((record.at_ns, record.previous_command.as_str()), (1_900, "swapper/1"));
    assert_eq!(counter.counts, WakeupCounts { wakeups: 1, ..WakeupCounts::default() });
}

#[test]
fn a_timer_that_is_cancelled_just_before_it_expires_has_an_expiry() {
    let mut counter = counter();
    let late = |counter: &Counter| of(counter, HistogramKind::MissedTimerOffsets).samples;
    for (timer, cancelled) in [(7, 7), (8, 9)] {
        counter.take(&step(100, What::Armed { timer: cancelled, expires_ns: 1_000 }));
        counter.take(&step(1_390, What::Disarmed { timer: cancelled }));
        counter.take(&step(1_400, What::Expired { timer, now_ns: 1_390 }));
        counter.take(&step(1_500, What::Waking(who(42, 80))));
        counter.take(&step(1_600, What::Handled));
    }
    assert_eq!(late(&counter), 1, "of another timer nothing is known");
}

#[test]
fn a_timer_that_is_set_in_the_past_is_late_from_then_on() {
    let mut counter = counter();
    counter.take(&step(1_300, What::Armed { timer: 7, expires_ns: 1_000 }));
    counter.take(&step(1_400, What::Expired { timer: 7, now_ns: 1_390 }));
    counter.take(&step(1_500, What::Waking(who(42, 80))));
    assert_eq!(of(&counter, HistogramKind::MissedTimerOffsets).quantiles.unwrap().max_ns, 200);
}

#[test]
fn a_timer_of_another_clock_is_brought_to_the_monotonic_one() {
    let mut counter = counter();
    let apart = 1_700_000_000_000_000_000;
    counter.take(&step(100, What::Armed { timer: 7, expires_ns: apart + 1_000 }));
    counter.take(&step(1_400, What::Expired { timer: 7, now_ns: apart + 1_400 }));
    counter.take(&step(1_500, What::Waking(who(42, 80))));
    assert_eq!(of(&counter, HistogramKind::MissedTimerOffsets).quantiles.unwrap().max_ns, 500);
}

#[test]
fn an_interrupt_in_a_softirq_does_not_end_its_handler() {
    let mut counter = counter();
    let in_softirq = |at_ns, what| Step { in_softirq: true, pid: 5, ..step(at_ns, what) };
    counter.take(&step(100, What::Armed { timer: 7, expires_ns: 1_000 }));
    counter.take(&in_softirq(1_400, What::Expired { timer: 7, now_ns: 1_400 }));
    // A timer that was armed before anything was recorded, in a hard interrupt.
    counter.take(&step(1_410, What::Expired { timer: 8, now_ns: 1_410 }));
    counter.take(&step(1_420, What::Handled));
    counter.take(&in_softirq(1_500, What::Waking(who(42, 80))));
    assert_eq!(of(&counter, HistogramKind::MissedTimerOffsets).quantiles.unwrap().max_ns, 500);
    counter.take(&in_softirq(1_600, What::Handled));
    counter.take(&in_softirq(1_700, What::Waking(who(43, 80))));
    assert_eq!(of(&counter, HistogramKind::MissedTimerOffsets).samples, 1, "the handler is over");
}

#[test]
fn waiting_for_equal_priority_is_no_latency_of_the_kernel() {
    let mut counter = counter();
    counter.take(&step(1_500, What::Waking(who(42, 80))));
    counter.take(&switch(1_900, who(9, 80), who(42, 80)));
    assert_eq!(of(&counter, HistogramKind::SharedPriority).samples, 1);
    assert_eq!(of(&counter, HistogramKind::Wakeup).samples, 0);
}

#[test]
fn wake_ups_without_a_switch_are_counted_separately() {
    let mut counter = counter();
    counter.take(&step(1_500, What::Waking(who(42, 80))));
    counter.take(&switch(1_600, who(42, 80), idle()));
    counter.take(&switch(1_700, idle(), who(42, 80)));
    assert_eq!(counter.counts.without_switch, 1);
    assert_eq!(of(&counter, HistogramKind::Wakeup).samples, 0);
}

#[test]
fn a_loss_ends_what_was_begun_and_is_counted() {
    let mut counter = counter();
    counter.take(&step(100, What::Armed { timer: 7, expires_ns: 1_000 }));
    counter.take(&step(1_500, What::Waking(who(42, 80))));
    counter.take(&step(1_600, What::Lost(Some(3))));
    counter.take(&switch(9_000, idle(), who(42, 80)));
    counter.take(&step(9_100, What::Expired { timer: 7, now_ns: 9_100 }));
    counter.take(&step(9_200, What::Waking(who(43, 80))));
    assert_eq!(counter.counts.lost, 4, "three events and one wake-up");
    for kind in HistogramKind::ALL {
        assert_eq!(of(&counter, kind).samples, 0, "{kind}");
    }
}

#[test]
fn only_tasks_that_pass_the_filter_count() {
    let mut config = HistogramsConfig::new(CpuSet::single(CpuId(1)));
    config.task = Some(TaskFilter::Command("task43".to_owned()));
    let mut counter = Counter::new(&config);
    for pid in [42, 43] {
        counter.take(&step(1_500, What::Waking(who(pid, 80))));
        counter.take(&switch(1_900, idle(), who(pid, 80)));
    }
    counter.take(&step(2_500, What::Waking(who(43, -20))));
    assert_eq!(counter.counts.wakeups, 1);
    assert_eq!(of(&counter, HistogramKind::Wakeup).max_record.unwrap().pid, 43);
}

#[test]
fn kinds_are_switched_and_reset_per_cpu() {
    let mut counter = counter();
    let other = CpuSet::single(CpuId(2));
    one_wakeup(&mut counter);
    counter.change(HistogramsChange::Reset, &[HistogramKind::Wakeup], &other);
    assert_eq!(of(&counter, HistogramKind::Wakeup).samples, 1);
    counter.change(HistogramsChange::Reset, &[HistogramKind::Wakeup], &CpuSet::single(CpuId(1)));
    assert_eq!(of(&counter, HistogramKind::Wakeup).samples, 0);
    assert_eq!(of(&counter, HistogramKind::TimerAndWakeup).samples, 1);
    counter.change(HistogramsChange::Disable, &HistogramKind::ALL, &CpuSet::single(CpuId(1)));
    one_wakeup(&mut counter);
    assert_eq!(counter.snapshot().cpus[0].histograms, [], "what is off is not shown");
    assert_eq!(counter.counts.elsewhere, 1);
}
