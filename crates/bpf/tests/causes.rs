//! What takes a CPU, on this machine's kernel. Where it refuses BPF programs, the tests say so.

#![cfg(feature = "bpf")]

mod support;

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use support::unless_refused;
use whylate_bpf::{Activities as _, Causes, HistogramsConfig, facilities};
use whylate_core::recording::{Activity, Recording, Segment, Sender};
use whylate_core::{CpuId, CpuSet};
use whylate_host::HostRoot;
use whylate_sys::disturb::mapping::ChangingPage;
use whylate_sys::schedule::Scheduling;
use whylate_sys::{clock, schedule};
use whylate_testing::{Need, skip};

/// Starts the recording of a CPU, without histograms, or says why the rest of the test is skipped. Ordinary threads count.
fn start(cpu: CpuId) -> Option<Causes> {
    start_from_priority(cpu, -40)
}

fn start_from_priority(cpu: CpuId, priority_min: i32) -> Option<Causes> {
    let cpus = CpuSet::from_iter([cpu]);
    let config = HistogramsConfig { kinds: Vec::new(), priority_min, ..HistogramsConfig::new(cpus.clone()) };
    unless_refused(Causes::start(&HostRoot::real(), &cpus, &config))
}

fn last_cpu() -> CpuId {
    schedule::allowed_of_this_thread().unwrap().iter().last().unwrap()
}

/// Spins on a CPU for that long, three times; returns its thread id and the CPU time that it used.
fn spin(cpu: CpuId, time: Duration) -> (u32, u64) {
    std::thread::spawn(move || {
        schedule::pin_this_thread(&CpuSet::from_iter([cpu])).unwrap();
        let before = clock::thread_cpu_time();
        for _ in 0..3 {
            let begin = Instant::now();
            while begin.elapsed() < time {
                std::hint::spin_loop();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        (schedule::id_of_this_thread(), clock::thread_cpu_time().0 - before.0)
    })
    .join()
    .unwrap()
}

#[test]
fn a_thread_is_recorded_for_as_long_as_it_ran() {
    let cpu = last_cpu();
    let Some(causes) = start(cpu) else { return };
    let begin_ns = clock::now().0;
    let (pid, used_ns) = spin(cpu, Duration::from_millis(5));
    let recording = causes.since(cpu, begin_ns).unwrap().within(begin_ns, clock::now().0);
    let is_own =
        |segment: &&Segment| matches!(&segment.what, Activity::Thread { thread, .. } if thread.pid == pid);
    let recorded_ns: u64 =
        recording.segments.iter().filter(is_own).map(|segment| segment.to_ns - segment.from_ns).sum();
    // Hypervisor steal is in one of the two times and not in the other; interrupts may be in either.
    assert!(recorded_ns * 10 > used_ns * 9, "ran for {used_ns} ns, recorded {recorded_ns} ns");
    for segment in &recording.segments {
        assert!(segment.from_ns <= segment.to_ns, "{segment:?}");
    }
    let timers = recording
        .segments
        .iter()
        .filter(|segment| matches!(segment.what, Activity::Vector { vector: 0xec } | Activity::Irq { .. }));
    assert!(timers.count() > 0, "no timer interrupt in {} segments", recording.segments.len());
}

/// The functions that were called on a CPU, with their callers.
fn called(recording: &Recording) -> Vec<(&str, Option<&Sender>)> {
    let called = recording.segments.iter().filter_map(|segment| match &segment.what {
        Activity::Called { function, sender } => Some((function.as_str(), sender.as_ref())),
        _ => None,
    });
    called.collect()
}

#[test]
fn work_items_and_timers_are_recorded_by_their_functions() {
    let cpu = last_cpu();
    let Some(causes) = start(cpu) else { return };
    let begin_ns = clock::now().0;
    // Each write queues a work item on each CPU and waits for all of them.
    let own = std::thread::spawn(|| {
        for _ in 0..200 {
            std::fs::write("/proc/sys/vm/stat_refresh", "1").ok()?;
        }
        Some(schedule::id_of_this_thread())
    });
    let Some(own) = own.join().unwrap() else {
        return skip(Need::Rights, "vm.stat_refresh cannot be written");
    };
    spin(cpu, Duration::from_millis(30));
    let recording = causes.since(cpu, begin_ns).unwrap();
    let found = called(&recording);
    let work: Vec<_> = found.iter().filter(|(function, _)| *function == "refresh_vm_stats").collect();
    assert!(!work.is_empty(), "{found:?}");
    for (_, sender) in work {
        assert!(sender.is_none_or(|sender| sender.pid == own), "{sender:?}, not {own}");
    }
    assert!(found.iter().any(|(function, _)| function.starts_with("tick_")), "no tick in {found:?}");
}

/// Spins on a CPU until that moment; returns its thread id and when it had the CPU.
fn take_turns(cpu: CpuId, until_ns: u64) -> (u32, Vec<(u64, u64)>) {
    const PAUSE_NS: u64 = 100_000;
    schedule::pin_this_thread(&CpuSet::from_iter([cpu])).unwrap();
    let mut now_ns = clock::now().0;
    let mut turns = vec![(now_ns, now_ns)];
    while now_ns < until_ns {
        now_ns = clock::now().0;
        match turns.last_mut() {
            Some((_, end_ns)) if now_ns - *end_ns < PAUSE_NS => *end_ns = now_ns,
            _ => turns.push((now_ns, now_ns)),
        }
    }
    (schedule::id_of_this_thread(), turns)
}

#[test]
fn a_thread_without_waiters_is_recorded_from_its_switch_on() {
    let cpu = last_cpu();
    let Some(causes) = start_from_priority(cpu, 1) else { return };
    let begin_ns = clock::now().0;
    let end_ns = begin_ns + 400_000_000;
    let spinning: Vec<_> = (0..2).map(|_| std::thread::spawn(move || take_turns(cpu, end_ns))).collect();
    let waking = std::thread::spawn(move || {
        schedule::pin_this_thread(&CpuSet::from_iter([cpu])).unwrap();
        let is_allowed = schedule::schedule_this_thread(Scheduling::Fifo(50)).is_ok();
        while is_allowed && clock::now().0 < end_ns {
            std::thread::sleep(Duration::from_millis(7));
        }
        is_allowed
    });
    let spun: Vec<(u32, Vec<(u64, u64)>)> = spinning.into_iter().map(|one| one.join().unwrap()).collect();
    if !waking.join().unwrap() {
        return skip(Need::Rights, "no right to real-time priorities");
    }
    let recording = causes.since(cpu, begin_ns).unwrap();
    let [(first, of_first), (second, of_second)] = spun.try_into().unwrap();
    let (mut recorded_ns, mut wrong_ns) = (0, 0);
    for segment in &recording.segments {
        let others_turns = match &segment.what {
            Activity::Thread { thread, .. } if thread.pid == first => &of_second,
            Activity::Thread { thread, .. } if thread.pid == second => &of_first,
            _ => continue,
        };
        recorded_ns += segment.to_ns - segment.from_ns;
        let shared = |(from_ns, to_ns): &(u64, u64)| {
            segment.to_ns.min(*to_ns).saturating_sub(segment.from_ns.max(*from_ns))
        };
        wrong_ns += others_turns.iter().map(shared).sum::<u64>();
    }
    assert!(recorded_ns > 0, "{} segments", recording.segments.len());
    assert!(wrong_ns * 20 <= recorded_ns, "the other one ran in {wrong_ns} ns of {recorded_ns} ns");
}

#[test]
fn wake_ups_are_counted_from_the_moment_on_from_which_samples_count() {
    let cpu = last_cpu();
    let cpus = CpuSet::from_iter([cpu]);
    let Some(mut causes) = start(cpu) else { return };
    let mut counted = |start_ns| {
        causes.watch_process(&cpus, std::process::id(), start_ns).unwrap();
        spin(cpu, Duration::from_millis(1));
        causes.wakeups(cpu).unwrap()
    };
    assert_eq!(counted(clock::now().0 + 3_600_000_000_000), Some(0), "this is the warm-up");
    assert!(counted(clock::now().0) >= Some(2));
}

#[test]
fn a_cpu_that_is_not_watched_has_nothing() {
    let Some(causes) = start(last_cpu()) else { return };
    assert_eq!(causes.since(CpuId(8_000), 0).unwrap(), Recording::default());
}

#[test]
#[cfg(target_arch = "x86_64")]
fn flushes_are_counted_by_function_and_sender() {
    let allowed = schedule::allowed_of_this_thread().unwrap();
    let (first, last) = (allowed.iter().next().unwrap(), last_cpu());
    let cannot = |name: &str| {
        facilities(&HostRoot::real()).into_iter().any(|one| one.name == name && one.missing.is_some())
    };
    if first == last || cannot("senders of interrupts") || cannot("TLB flushes by interrupts") {
        return skip(Need::Rights, "one CPU, no events for senders, or flushes without interrupts");
    }
    let Some(mut causes) = start(last) else { return };
    causes.ipis().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (ready, is_ready) = mpsc::channel();
    let ends = stop.clone();
    let sibling = std::thread::spawn(move || {
        schedule::pin_this_thread(&CpuSet::from_iter([last])).unwrap();
        ready.send(()).unwrap();
        while !ends.load(SeqCst) {
            std::hint::spin_loop();
        }
    });
    is_ready.recv().unwrap();
    schedule::pin_this_thread(&CpuSet::from_iter([first])).unwrap();
    let mut page = ChangingPage::new().unwrap();
    let begin = Instant::now();
    let mut flushes = 0;
    // A flush reaches the sibling only while it runs, and other threads may keep it waiting.
    while flushes == 0 && begin.elapsed() < Duration::from_secs(30) {
        for _ in 0..50 {
            page.change().unwrap();
        }
        let of_flushes = |record: &whylate_core::record::IpiRecord| {
            record.cpu == last && record.from_cpu == Some(first) && record.function.contains("flush_tlb")
        };
        let records = causes.ipis().unwrap();
        let own: Vec<_> = records.into_iter().filter(of_flushes).collect();
        assert!(own.iter().all(|record| record.caller.is_some() && record.from_task.is_some()), "{own:?}");
        flushes += own.iter().map(|record| record.count).sum::<u64>();
    }
    stop.store(true, SeqCst);
    sibling.join().unwrap();
    assert!(flushes > 0, "none of the flushes was seen");
}

#[test]
fn facilities_are_tried_and_named_once() {
    let found = facilities(&HostRoot::real());
    let mut names: Vec<&str> = found.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names.first(), Some(&"BPF programs"));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), found.len(), "{found:?}");
    assert!(found.len() > 1 || found[0].missing.is_some(), "{found:?}");
}
