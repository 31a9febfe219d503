//! What an interval contains, and to which thread it belongs.

use super::lanes::{Lanes, OTHERS, Of, SERIES_MAX};
use super::lost;
use std::collections::BTreeMap;
use whylate_bpf::tasks::{Activation, Budget, Cut, Doing, Stage, Wait, Waker, Watched};
use whylate_core::quantity::{LOST_NS, OVERRUNS, POSSIBLY_LATE, UNSEEN, UNSEEN_MAX_NS, UNSEEN_WAITS};
use whylate_core::result::{Cause, CauseKind, HourResult};
use whylate_core::{CpuId, Nanos};
use whylate_record::tasks::Explained;
use whylate_stats::buckets::lower_edge;
use whylate_testing::says;

fn activation(pid: u32, command: &str, due_ns: u64, lengths: &[(u64, Doing)]) -> Activation {
    let mut at_ns = due_ns;
    let mut found = Activation { due_ns, woken_ns: due_ns, process: 7, ..Activation::default() };
    (found.thread.pid, found.thread.command) = (pid, command.to_owned());
    for (length_ns, what) in lengths {
        let (from_ns, to_ns) = (at_ns, at_ns + length_ns);
        found.stages.push(Stage { from_ns, to_ns, cpu: CpuId(1), what: what.clone() });
        at_ns = to_ns;
    }
    found
}

fn waking() -> Doing {
    Doing::Waking { previous: Default::default(), budget: Budget::Left }
}

fn preempted(command: &str) -> Doing {
    let mut by = Activation::default().thread;
    (by.pid, by.command) = (9, command.to_owned());
    Doing::Preempted { by, budget: Budget::Left }
}

#[test]
fn an_interval_holds_what_came_since_the_last_one() {
    let mut lanes = Lanes::new(0, Some(Nanos(50_000)), 2);
    let none = BTreeMap::new();
    for number in 0..4 {
        let stages =
            [(5_000, waking()), (20_000 + 10_000 * number, Doing::Running), (15_000, preempted("thief"))];
        let late = activation(5, "a/b", 1_000_000 * number, &stages);
        let wanted = lanes.add(&late, &none);
        assert!(wanted.contains(&Of::Response), "each is worse than the ones before");
        lanes.leave(Of::Response, lanes.last(), &late);
    }
    let batch = lanes.take(0, 4_000_000);
    let of = |series: &str| {
        batch.intervals.iter().find(|it| it.series.as_deref() == Some(series)).unwrap().clone()
    };
    assert_eq!((of("a:b").samples, of("a:b").get(OVERRUNS), of("a:b").max_ns), (4, Some(2), Some(70_000)));
    assert_eq!((of("a:b/wakeup").max_ns, of("a:b/period").samples), (Some(5_000), 3));
    assert_eq!(of("a:b/period").histogram.len(), 1);
    assert!(of("a:b/period").histogram[0].0 <= 1_000_000 && lower_edge(0) == 0);
    let (series, thief) = &batch.sources[0];
    assert_eq!((series.as_deref(), thief.actor.as_deref(), thief.gaps), (Some("a:b"), Some("thief"), 4));
    assert_eq!((thief.total_ns, of("a:b").get(LOST_NS)), (60_000, Some(80_000)));
    assert_eq!((batch.tasks[0].thread, batch.tasks[0].run_ns), (5, 140_000));
    let next = lanes.take(4_000_000, 5_000_000);
    assert!(next.intervals.iter().all(|interval| interval.samples == 0) && next.tasks.is_empty());
}

#[test]
fn a_thread_that_ended_in_the_middle_of_work_longer_than_the_deadline_has_a_row() {
    let watched = Watched { process: 4, command: "control".to_owned(), priority: 80, ..Watched::default() };
    let threads = BTreeMap::from([(5, watched)]);
    let cut = |took_ns| {
        let mut lanes = Lanes::new(0, Some(Nanos(50_000)), 2);
        let (command, cpu) = ("control".to_owned(), CpuId(1));
        lanes.cut(&[Cut { thread: 5, command, cpu, at_ns: 900_000, took_ns }], &threads);
        lanes.take(0, 1_000_000)
    };
    assert!(cut(40_000).intervals.is_empty(), "it kept the deadline");
    let batch = cut(60_000);
    let row = &batch.intervals[0];
    assert_eq!((row.samples, row.get(UNSEEN), row.get(UNSEEN_MAX_NS)), (0, Some(1), Some(60_000)));
    assert_eq!((batch.tasks[0].thread, batch.tasks[0].process, batch.tasks[0].priority), (5, 4, 80));
}

#[test]
fn without_a_deadline_an_unended_activation_longer_than_all_others_is_a_gap() {
    let unseen = |took_ns| {
        let mut lanes = Lanes::new(0, None, 2);
        lanes.add(
            &activation(5, "control", 1_000_000, &[(10, waking()), (50_000, Doing::Running)]),
            &BTreeMap::new(),
        );
        let (command, cpu) = ("control".to_owned(), CpuId(1));
        lanes.cut(&[Cut { thread: 5, command, cpu, at_ns: 2_900_000, took_ns }], &BTreeMap::new());
        lanes.take(0, 3_000_000).intervals[0].get(UNSEEN_MAX_NS)
    };
    assert_eq!(unseen(900_000), None, "it merely ended");
    assert_eq!(unseen(1_800_000), Some(1_800_000));
}

#[test]
fn the_timer_slack_of_ordinary_threads_that_sleep_is_reported() {
    let mut lanes = Lanes::new(0, None, 1);
    let mut slept = |pid: u32, command: &str, priority: i32, waker: Waker, call: &str| {
        let mut found = activation(pid, command, 1_000_000, &[(5_000, waking()), (9, Doing::Running)]);
        (found.thread.priority, found.waker, found.slept) =
            (priority, waker, Wait::Work(Some(call.to_owned())));
        lanes.add(&found, &BTreeMap::new());
        lanes.timer_slack().map(|warning| warning.text)
    };
    assert_eq!(slept(5, "audio", 80, Waker::Timer, "clock_nanosleep"), None, "a real-time thread has none");
    assert_eq!(slept(6, "reader", -1, Waker::Interrupt, "read"), None, "no timer woke it");
    assert_eq!(
        slept(7, "looper", -1, Waker::Timer, "epoll_wait"),
        None,
        "it may be a timerfd, which has none"
    );
    let warning = slept(8, "logger", -1, Waker::Timer, "clock_nanosleep").unwrap();
    assert!(says("no-latency-here-logger", &warning), "{warning}");
}

#[test]
fn a_lower_priority_thread_that_had_the_cpu_at_the_wake_up_took_nothing() {
    let mut lanes = Lanes::new(0, None, 1);
    let other = |priority| {
        let mut thread = Activation::default().thread;
        (thread.pid, thread.priority, thread.command) = (9, priority, format!("of-{priority}"));
        thread
    };
    let woken_over = |priority| Doing::Waking { previous: other(priority), budget: Budget::Left };
    let behind = |priority| Doing::Preempted { by: other(priority), budget: Budget::Left };
    for (number, stage) in [woken_over(-1), woken_over(90), behind(-1), behind(90)].into_iter().enumerate() {
        let mut found =
            activation(5, "audio", 1_000_000 * number as u64, &[(30_000, stage), (9, Doing::Running)]);
        found.thread.priority = 80;
        if lanes.add(&found, &BTreeMap::new()).contains(&Of::Response) {
            lanes.leave(Of::Response, lanes.last(), &found);
        }
    }
    let mut ordinary = activation(5, "audio", 9_000_000, &[(40_000, woken_over(-1)), (9, Doing::Running)]);
    ordinary.thread.priority = -1;
    if lanes.add(&ordinary, &BTreeMap::new()).contains(&Of::Response) {
        lanes.leave(Of::Response, lanes.last(), &ordinary);
    }
    let batch = lanes.take(0, 10_000_000);
    let found: Vec<_> =
        batch.sources.iter().map(|(_, it)| (it.kind, it.actor.as_deref(), it.gaps, it.total_ns)).collect();
    let expected = [
        (CauseKind::Thread, Some("of--1"), 1, 40_000),
        (CauseKind::Thread, Some("of-90"), 2, 60_000),
        (CauseKind::Throttled, None, 1, 30_000),
    ];
    assert_eq!(found, expected);
}

#[test]
fn who_took_the_time_of_an_explained_response_is_taken_from_its_causes() {
    let mut lanes = Lanes::new(0, None, 2);
    // Three had the CPU while it waited; the record names the last one.
    let late = activation(5, "audio", 0, &[(900_000, preempted("last")), (100_000, Doing::Running)]);
    assert!(lanes.add(&late, &BTreeMap::new()).contains(&Of::Response));
    let cause = |kind, actor: &str, share| Cause {
        actor: Some(actor.to_owned()),
        share: Some(share),
        ..Cause::new(kind)
    };
    let causes = vec![
        cause(CauseKind::Thread, "first", 0.6),
        cause(CauseKind::Softirq, "NET_RX softirq", 0.2),
        cause(CauseKind::Thread, "last", 0.1),
        cause(CauseKind::OwnWork, "", 0.1),
    ];
    lanes.explain(Of::Response, lanes.last(), &late, Explained { causes, ..Explained::default() });
    let batch = lanes.take(0, 1_000_000);
    let found: Vec<(&str, u64)> =
        batch.sources.iter().map(|(_, it)| (it.actor.as_deref().unwrap(), it.total_ns)).collect();
    assert_eq!(found, [("NET_RX softirq", 200_000), ("first", 600_000), ("last", 100_000)]);
}

#[test]
fn threads_of_one_name_have_lanes_of_their_own_and_one_that_returns_goes_on() {
    let mut lanes = Lanes::new(0, None, 1);
    let mut threads = BTreeMap::new();
    let add = |lanes: &mut Lanes, threads: &BTreeMap<u32, Watched>, pid| {
        lanes.add(&activation(pid, "audio", 10, &[(5, waking()), (9, Doing::Running)]), threads);
    };
    for pid in [1, 2] {
        threads.insert(pid, Watched::default());
        add(&mut lanes, &threads, pid);
    }
    threads.get_mut(&1).unwrap().is_gone = true;
    threads.insert(3, Watched::default());
    add(&mut lanes, &threads, 3);
    // A thread that was there before the other one ended, although its first activation comes later.
    threads.insert(3, Watched { is_gone: true, last_ns: 20, ..Watched::default() });
    threads.insert(4, Watched { first_ns: 19, ..Watched::default() });
    lanes.add(&activation(4, "audio", 30, &[(5, waking()), (9, Doing::Running)]), &threads);
    let found: Vec<(String, u64)> =
        lanes.lines().into_iter().map(|line| (line.name, line.activations)).collect();
    assert_eq!(found, [("audio".to_owned(), 2), ("audio#2".to_owned(), 1), ("audio#3".to_owned(), 1)]);
}

#[test]
fn threads_of_one_name_have_their_numbers_by_age_whichever_runs_first() {
    let known = |command: &str| Watched { command: command.to_owned(), ..Watched::default() };
    let threads: BTreeMap<u32, Watched> =
        [(4, "other"), (5, "audio"), (6, "audio"), (7, "audio")].map(|(pid, it)| (pid, known(it))).into();
    let mut lanes = Lanes::new(0, None, 1);
    for pid in [7, 5, 6] {
        lanes.add(&activation(pid, "audio", 10, &[(5, waking()), (9, Doing::Running)]), &threads);
    }
    let found: Vec<(String, u32)> = lanes.lines().into_iter().map(|line| (line.name, line.thread)).collect();
    assert_eq!(found, [("audio#3".to_owned(), 7), ("audio".to_owned(), 5), ("audio#2".to_owned(), 6)]);
}

#[test]
fn a_thread_that_runs_another_program_has_its_name() {
    let mut lanes = Lanes::new(0, None, 1);
    let threads: BTreeMap<u32, Watched> = [5, 6].map(|pid| (pid, Watched::default())).into();
    let add = |lanes: &mut Lanes, pid, command, due_ns| {
        let activation = activation(pid, command, due_ns, &[(5, waking()), (9, Doing::Running)]);
        for of in lanes.add(&activation, &threads) {
            lanes.explain(of, lanes.last(), &activation, Explained::default());
        }
    };
    add(&mut lanes, 5, "sh", 100);
    add(&mut lanes, 5, "player", 200);
    add(&mut lanes, 6, "sh", 300);
    let named = |lanes: &mut Lanes| -> Vec<(String, u64)> {
        lanes.lines().into_iter().map(|line| (line.name, line.activations)).collect()
    };
    assert_eq!(named(&mut lanes), [("player".to_owned(), 2), ("sh".to_owned(), 1)]);
    let batch = lanes.take(0, 1_000);
    let player = |series: &Option<String>| matches!(series.as_deref(), Some("player" | "player/wakeup"));
    let (spikes, causes) = (batch.spikes.iter(), batch.causes.iter());
    assert!(spikes.filter(|it| it.at_ns < 300).all(|it| player(&it.series)), "{:?}", batch.spikes);
    assert!(causes.filter(|it| it.at_ns < 300).all(|it| player(&it.series)), "{:?}", batch.causes);
    assert_eq!(batch.tasks[0].series.as_deref(), Some("player"));
    // What is stored keeps its name.
    add(&mut lanes, 5, "decoder", 2_000);
    add(&mut lanes, 5, "player", 3_000);
    let now = [("player".to_owned(), 3), ("sh".to_owned(), 1), ("decoder".to_owned(), 1)];
    assert_eq!(named(&mut lanes), now);
}

#[test]
fn a_spike_is_in_the_series_that_counts_it_although_its_thread_runs_another_program_since() {
    let mut lanes = Lanes::new(0, None, 1);
    let mut threads: BTreeMap<u32, Watched> = [5, 6].map(|pid| (pid, Watched::default())).into();
    let of = |pid, command, run_ns| activation(pid, command, 10, &[(5, waking()), (run_ns, Doing::Running)]);
    lanes.add(&of(5, "player", 9), &threads);
    threads.get_mut(&5).unwrap().is_gone = true;
    // The shell's activation is explained only after the program that it became has run.
    let shell = of(6, "sh", 900);
    assert!(lanes.add(&shell, &threads).contains(&Of::Response));
    let counted = lanes.last();
    lanes.add(&of(6, "player", 7), &threads);
    lanes.explain(Of::Response, counted, &shell, Explained::default());
    let batch = lanes.take(0, 1_000);
    for spike in &batch.spikes {
        let counted = batch.intervals.iter().find(|it| it.series == spike.series).unwrap();
        assert!(counted.max_ns >= Some(spike.latency_ns), "{spike:?} {counted:?}");
    }
    assert_eq!(batch.spikes[0].series.as_deref(), Some("sh"));
}

#[test]
fn very_many_threads_share_a_series_and_none_is_dropped() {
    let mut lanes = Lanes::new(0, None, 1);
    let threads: BTreeMap<u32, Watched> = (1..=10_000).map(|pid| (pid, Watched::default())).collect();
    for pid in 1..=10_000 {
        lanes.add(&activation(pid, &format!("t{pid}"), 10, &[(5, waking()), (9, Doing::Running)]), &threads);
    }
    let lines = lanes.lines();
    assert_eq!(lines.len(), SERIES_MAX);
    assert_eq!(lines.iter().map(|line| line.activations).sum::<u64>(), 10_000);
    assert_eq!(lines.last().unwrap().name, OTHERS);
}

#[test]
fn a_late_thread_among_very_many_has_a_row_of_its_own() {
    let mut lanes = Lanes::new(0, Some(Nanos(100)), 1);
    let threads: BTreeMap<u32, Watched> = (1..=500).map(|pid| (pid, Watched::default())).collect();
    for pid in 1..=500 {
        let works_ns = if pid == 400 { 900 } else { 9 };
        lanes.add(&activation(pid, "worker", 10, &[(5, waking()), (works_ns, Doing::Running)]), &threads);
    }
    let lines = lanes.lines();
    let late: Vec<_> =
        lines.iter().filter(|line| line.missed > 0).map(|line| (line.name.as_str(), line.thread)).collect();
    assert_eq!(late, [("worker#400", 400)]);
    assert_eq!(lines.iter().map(|line| line.activations).sum::<u64>(), 500);
}

#[test]
fn responses_that_are_late_only_with_their_possible_waits_are_counted_apart() {
    let mut lanes = Lanes::new(0, Some(Nanos(50_000)), 1);
    for (number, (works_ns, wait_max_ns)) in
        [(60_000, 9_000), (20_000, 40_000), (20_000, 10)].iter().enumerate()
    {
        let one = activation(5, "audio", 1_000_000 * number as u64, &[(*works_ns, Doing::Running)]);
        lanes.add(&Activation { wait_max_ns: Some(*wait_max_ns), ..one }, &BTreeMap::new());
    }
    let batch = lanes.take(0, 4_000_000);
    let row = batch.intervals.iter().find(|it| it.series.as_deref() == Some("audio")).unwrap();
    assert_eq!((row.get(OVERRUNS), row.get(POSSIBLY_LATE)), (Some(1), Some(1)));
    assert_eq!((row.get(UNSEEN), row.get(UNSEEN_WAITS)), (Some(3), Some(3)));
    assert_eq!(row.get(UNSEEN_MAX_NS), Some(69_000));
}

#[test]
fn only_what_was_lost_is_named() {
    let lost_of = |records, events| {
        lost(&[
            (records, ["record was lost", "records were lost"]),
            (events, ["event was missed", "events were missed"]),
        ])
    };
    assert_eq!(lost_of(0, 0), None);
    assert_eq!(lost_of(0, 3).as_deref(), Some("watched tasks: 3 events were missed"));
    assert_eq!(lost_of(2, 1).as_deref(), Some("watched tasks: 2 records were lost, 1 event was missed"));
}

#[test]
fn each_hour_has_its_worst_whatever_was_before() {
    let mut lanes = Lanes::new(0, None, 1);
    let none = BTreeMap::new();
    let hour = HourResult::LENGTH_NS;
    let mut is_wanted = |due_ns, length_ns| {
        let one = activation(5, "audio", due_ns, &[(length_ns, Doing::Running)]);
        lanes.add(&one, &none).contains(&Of::Response)
    };
    assert!(is_wanted(10, 900));
    assert!(!is_wanted(2_000, 500));
    assert!(is_wanted(hour, 500), "the first of its hour");
    assert!(!is_wanted(hour + 1_000, 400));
    assert!(is_wanted(hour + 2_000, 600));
}

#[test]
fn of_very_many_late_activations_the_worst_and_a_sample_of_the_others_are_explained() {
    let divided = |count: usize| {
        let mut wanted: Vec<usize> = (0..count).collect();
        let left = super::leave(&mut wanted);
        assert_eq!(wanted.len() + left.len(), count);
        wanted
    };
    assert_eq!(divided(64).len(), 64);
    for count in [65, 88, 500, 10_000] {
        let explained = divided(count);
        assert!((50..=64).contains(&explained.len()), "{}", explained.len());
        assert!(explained[..40].iter().copied().eq(0..40));
        assert!(*explained.last().unwrap() > 40 + (count - 40) * 9 / 10);
    }
}
