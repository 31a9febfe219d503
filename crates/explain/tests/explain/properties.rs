//! For every trace: no panic, a timeline without gap or overlap, and no time that counts twice.

use crate::found::check;
use crate::script::Script;
use proptest::prelude::*;
use whylate_explain::{Export, Options, explain, export};

/// Threads that appear, with priorities; 0 is idle.
const TASKS: [&str; 5] = ["idle-0:120", "rt-7:10", "cyclictest-8:0", "low-9:120", "ktimers/1-3:98"];
const FLAGS: [&str; 8] = [".......", "d......", "dn.h1..", "d..h2.1", ".n..1..", "d...2..", "dnLs3.2", "x"];

fn task() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&TASKS[..])
}

fn event() -> impl Strategy<Value = String> {
    let function =
        || prop::sample::select(vec!["a", "b_c_d", "x_c_d", "__schedule", "irq_enter_rcu", "_raw_spin_lock"]);
    let caller =
        || prop::sample::select(vec!["a", "b_c_d", "sysvec_apic_timer_interrupt", "do_idle", "main"]);
    prop_oneof![
        4 => (task(), prop::sample::select(vec!["S", "R", "D", "X"]), task())
            .prop_map(|(from, state, to)| format!("switch {from} {state} > {to}")),
        3 => (task(), 0..3u32).prop_map(|(task, cpu)| format!("waking {task} {cpu}")),
        2 => (task(), 0..3u32).prop_map(|(task, cpu)| format!("wakeup {task} {cpu}")),
        1 => (task(), 0..3u32, 0..3u32).prop_map(|(task, from, to)| format!("migrate {task} {from} > {to}")),
        1 => task().prop_map(|task| format!("pi {task} > 3")),
        2 => (0..40_000u64).prop_map(|at| format!("timer_start {at}")),
        2 => (0..40_000u64).prop_map(|at| format!("expire {at}")),
        4 => (function(), caller()).prop_map(|(function, caller)| format!("fn {function} <- {caller}")),
        2 => prop::sample::select(vec![
            "vec local_timer", "vecx local_timer", "vec reschedule", "vecx reschedule", "irq 4 eth0", "irqx 4",
            "softirq 1", "softirqx 1", "irqs_off a <- b", "irqs_on a <- b", "preempt_off a <- b", "preempt_on a <- b",
            "csd f", "csdx f", "idle 2", "idle -", "lock", "lockx", "fault", "lost 3",
            "stack a sysvec_apic_timer_interrupt b c", "print hit latency threshold (900 > 100)",
            "print hit latency threshold (", "timerlat irq 1 300", "timerlat thread 1 5000",
            "gap 100 50000 0", "gap 100 3000 2", "hwlat 500 20", "hwlat 0 0",
        ]).prop_map(str::to_owned),
    ]
}

fn line() -> impl Strategy<Value = String> {
    (0..20_000u32, 0..3u32, task(), prop::sample::select(&FLAGS[..]), event()).prop_map(
        |(at, cpu, task, flags, event)| {
            let thread = task.rsplit_once(':').map_or(task, |(thread, _)| thread);
            format!("{at} {cpu} {thread} {flags} {event}")
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn every_explanation_is_whole(
        lines in prop::collection::vec(line(), 0..120),
        period_us in prop::option::of(1..5000u64),
        threshold_us in prop::option::of(0..500u64),
        top in 1..6usize,
    ) {
        let options = Options {
            task: None,
            period_ns: period_us.map(|us| us * 1000),
            threshold_ns: threshold_us.map(|us| us * 1000),
            what: None,
            is_virtual: None,
            top,
        };
        let mut script = Script::new(&lines.join("\n"));
        let result = explain(&mut script, &options).unwrap();
        prop_assert!(result.spikes.len() <= top);
        for spike in &result.spikes {
            check(spike);
            prop_assert!(spike.latency_ns > result.traces[0].threshold_ns);
            for cause in std::iter::once(&spike.cause).chain(&spike.also) {
                prop_assert!(cause.confidence.is_none_or(|confidence| (0.0..=1.0).contains(&confidence)));
                prop_assert!(cause.from_ns <= cause.to_ns);
            }
        }
        for form in [Export::Perfetto, Export::Text] {
            export(&mut script, &result.spikes, form).unwrap();
        }
    }
}
