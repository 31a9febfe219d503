//! Lessons of traces with planted causes: the first explanation of each case was wrong.

use crate::found::{explained, only};
use whylate_core::result::CauseKind;

/// A timer task on CPU 1 that sleeps from 510 us to 1000 us; the trace's clock is the timers' but for 2 us.
fn sleeping(rest: &str) -> String {
    format!(
        "100 1 idle-0 d..h1.. expire 98
         500 1 cyclictest-7 ....... timer_start 1000
         510 1 cyclictest-7 d...2.. switch cyclictest-7:19 S > idle-0:120
         512 1 idle-0 d...1.. idle 1
         {rest}"
    )
}

/// Its timer comes at `at` us on the idle CPU.
fn woken_at(at: u64) -> String {
    format!("{at}.1 1 idle-0 d..h1.. vec local_timer\n{}", expires_at(at))
}

/// The interrupt that has begun expires its timer at `at` us on the idle CPU.
fn expires_at(at: u64) -> String {
    format!(
        "{at}.2 1 idle-0 d..h1.. expire {at}
         {at}.3 1 idle-0 d..h2.. waking cyclictest-7:19 1
         {at}.6 1 idle-0 d..h1.. vecx local_timer
         {at}.7 1 idle-0 ....... idle -
         {at}.9 1 idle-0 d...2.. switch idle-0:120 R > cyclictest-7:19"
    )
}

/// It was woken in time, and sleeps again from 1210 us to 2000 us while `thread` (`command-pid:priority`) has its CPU.
fn asleep_behind(thread: &str, rest: &str) -> String {
    sleeping(&format!(
        "{}
         1200 1 cyclictest-7 ....... timer_start 2000
         1210 1 cyclictest-7 d...2.. switch cyclictest-7:19 S > {thread}
         {rest}",
        woken_at(1_001)
    ))
}

/// Its timer comes at `at` us while `thread` (`command-pid`) has its CPU.
fn found_by_timer(thread: &str, at: u64) -> String {
    format!(
        "{at}.2 1 {thread} d..h... vec local_timer
         {at}.3 1 {thread} d..h... expire {at}
         {at}.4 1 {thread} d..h... waking cyclictest-7:19 1
         {at}.6 1 {thread} d..h... vecx local_timer"
    )
}

#[test]
fn the_first_idle_state_is_not_left_for_milliseconds() {
    assert_eq!(only(&explained(&sleeping(&woken_at(1_300)))).1, CauseKind::IdleExit);
    assert_eq!(only(&explained(&sleeping(&woken_at(2_500)))).1, CauseKind::TimerLate);
}

/// CPU 0, with a timer that was due at 1100 us and came at `at`.
fn other_cpu(at: u64) -> String {
    format!(
        "600 0 stress-9 ....... timer_start 1100 2 hrtimer_wakeup
         605 0 stress-9 ....... fault
         {at}.2 0 stress-9 d..h1.. vec local_timer
         {at}.3 0 stress-9 d..h1.. expire {at} 2 hrtimer_wakeup
         {at}.4 0 stress-9 d..h1.. vecx local_timer"
    )
}

#[test]
fn a_machine_that_stands_still_differs_from_a_late_timer() {
    let stopped = explained(&sleeping(&format!("{}\n{}", woken_at(9_000), other_cpu(9_000))));
    assert_eq!(only(&stopped).1, CauseKind::Hardware);
    assert_eq!(stopped.spikes[0].cause.actor, None);
    // The other CPU's timer was on time; only this one's was late.
    let late = explained(&sleeping(&format!("{}\n{}", woken_at(9_000), other_cpu(1_101))));
    assert_eq!(only(&late).1, CauseKind::TimerLate);
    // A third CPU without a tick is idle all the time.
    let tickless = "505 2 idle-0 ....... idle 2";
    let stopped = explained(&sleeping(&format!("{}\n{}\n{tickless}", woken_at(9_000), other_cpu(9_000))));
    assert_eq!(only(&stopped).1, CauseKind::Hardware);
    // The longer they stood still, the later one may go on than the other.
    let stopped = explained(&sleeping(&format!("{}\n{}", woken_at(65_000), other_cpu(67_000))));
    assert_eq!(only(&stopped).1, CauseKind::Hardware);
    // Silence of another CPU alone proves nothing.
    let silent = explained(&sleeping(&format!("{}\n600 0 stress-9 ....... fault", woken_at(9_000))));
    assert_eq!(only(&silent).1, CauseKind::TimerLate);
}

/// CPU 1 is late by 8 ms at work in the kernel. The arguments are CPU 0's work meanwhile, and the stack of its interrupt. Its
/// timer was armed before the window.
fn stopped_at_work(other_thread: &str, other_stack: &str) -> String {
    format!(
        "400 0 {other_thread} ....... timer_start 6100 2 hrtimer_wakeup
         5700 1 cyclictest-7 ....... timer_start 6000
         5710 1 cyclictest-7 d...2.. switch cyclictest-7:19 S > server-8:120
         5715 1 server-8 ....... fault
         14000.2 0 {other_thread} d..h1.. vec local_timer
         14000.3 0 {other_thread} d..h1.. stack handler asm_sysvec_apic_timer_interrupt {other_stack}
         14000.4 0 {other_thread} d..h1.. expire 14000 2 hrtimer_wakeup
         14000.6 0 {other_thread} d..h1.. vecx local_timer
         14001.1 1 server-8 d..h1.. vec local_timer
         14001.2 1 server-8 d..h1.. stack handler asm_sysvec_apic_timer_interrupt walk_list ksys_read
         14001.3 1 server-8 d..h1.. expire 14001
         14001.4 1 server-8 dn.h2.. waking cyclictest-7:19 1
         14001.5 1 server-8 dn.h1.. vecx local_timer
         14001.9 1 server-8 d...2.. switch server-8:120 R > cyclictest-7:19"
    )
}

#[test]
fn a_machine_that_stops_in_kernel_code_is_found_by_a_cpu_where_interrupts_are_on() {
    assert_eq!(only(&explained(&stopped_at_work("stress-9", ""))).1, CauseKind::Hardware);
    // Both in the kernel: one may have spun for a lock that the other one held.
    let both = explained(&stopped_at_work("stress-9", "fill_list ksys_write"));
    assert_eq!(only(&both), (8_001, CauseKind::IrqsOff, "server", "walk_list"));
}

#[test]
fn a_function_without_events_had_interrupts_off_where_the_own_timer_came_late() {
    // The timer came in time, and the interrupted thread was asked to reschedule; its tick was due at 2400 us.
    let behind = |tick: &str| {
        let rest = format!(
            "{}
             1400.1 1 server-8 ....... timer_start 2400 2 tick_sched_timer
             2001.9 1 server-8 .n..... fault
             9000.2 1 server-8 dn.h... vec local_timer
             {tick}
             9000.4 1 server-8 dn.h... vecx local_timer
             9001 1 server-8 d...2.. switch server-8:120 D > cyclictest-7:19",
            found_by_timer("server-8", 2_001)
        );
        explained(&asleep_behind("server-8:120", &rest))
    };
    let late = behind("9000.3 1 server-8 dn.h... expire 9000 2 tick_sched_timer");
    assert_eq!(only(&late).1, CauseKind::IrqsOff);
    assert_eq!(only(&late).2, "server");
    // Without a late timer nothing shows it.
    assert_eq!(only(&behind("")).1, CauseKind::PreemptOff);
}

#[test]
fn page_faults_do_not_mean_that_interrupts_were_off() {
    // Their events come from the entry of an exception, where interrupts are disabled.
    let result = explained(&sleeping(&format!(
        "{}
         1200 1 cyclictest-7 d...2.. switch cyclictest-7:19 R > server-9:9
         1210 1 server-9 d...... fault
         1420 1 server-9 d...... fault
         1600 1 server-9 d...2.. switch server-9:9 S > cyclictest-7:19",
        woken_at(1_001)
    )));
    assert_eq!(only(&result), (400, CauseKind::Thread, "server", ""));
}

#[test]
fn a_long_handler_of_a_timer_is_named_by_the_timers_events() {
    let result = explained(&sleeping(&format!(
        "900 1 idle-0 d..h1.. vec local_timer
         901 1 idle-0 d..h1.. expire 900 5 plant_hard_irq_stall
         3990 1 idle-0 d..h1.. expirex 5
         {}",
        expires_at(4_000)
    )));
    assert_eq!(only(&result).1, CauseKind::Irq);
    assert_eq!(result.spikes[0].cause.function.as_deref(), Some("plant_hard_irq_stall"));
}

#[test]
fn the_way_out_of_an_interrupt_belongs_to_no_thread() {
    // `irq_exit_rcu` is traced with an interrupt's flags, and is the last word before the thread goes on for long.
    let result = explained(&asleep_behind(
        "plant-9:1",
        &format!(
            "1220 1 plant-9 ....... fn plant_rt_thread_stall <- act
             2000.1 1 plant-9 d...... fn irq_enter_rcu <- sysvec_apic_timer_interrupt
             {}
             2000.7 1 plant-9 d..h... fn irq_exit_rcu <- sysvec_apic_timer_interrupt
             3000 1 plant-9 d...... fn irq_enter_rcu <- sysvec_apic_timer_interrupt
             3001 1 plant-9 d..h... vec local_timer
             3002 1 plant-9 d..h... vecx local_timer
             3003 1 plant-9 d..h... fn irq_exit_rcu <- sysvec_apic_timer_interrupt
             4000 1 plant-9 ....... fn schedule <- act
             4001 1 plant-9 d...2.. switch plant-9:1 S > cyclictest-7:19",
            found_by_timer("plant-9", 2_000)
        ),
    ));
    assert_eq!(only(&result), (2000, CauseKind::Thread, "plant", "plant_rt_thread_stall"));
}

#[test]
fn a_boosted_owner_has_its_inherited_priority() {
    let result = explained(&asleep_behind(
        "owner-9:98",
        &format!(
            "1220 1 owner-9 d...1.. pi owner-9:98 > 1
             {}
             4001 1 owner-9 d...2.. switch owner-9:98 S > cyclictest-7:19",
            found_by_timer("owner-9", 2_000)
        ),
    ));
    assert_eq!(only(&result), (2000, CauseKind::Thread, "owner", ""));
}
