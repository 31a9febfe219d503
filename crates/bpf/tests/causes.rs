//! What takes a CPU, on this machine's kernel. Where it refuses BPF programs, the tests say so.

#![cfg(feature = "bpf")]
#![allow(clippy::print_stderr, reason = "a skipped test says why")]

mod support;

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use support::unless_refused;
use whylate_bpf::segment::{Activity, Recording, Segment};
use whylate_bpf::{Causes, HistogramsConfig, facilities};
use whylate_core::{CpuId, CpuSet};
use whylate_sys::disturb::mapping::ChangingPage;
use whylate_sys::{clock, schedule};

/// Starts the recording of a CPU, without histograms, or says why the rest of the test is skipped.
fn start(cpu: CpuId) -> Option<Causes> {
    let cpus = CpuSet::from_iter([cpu]);
    let mut config = HistogramsConfig::new(cpus.clone());
    config.kinds.clear();
    unless_refused(Causes::start(&cpus, &config))
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
    // What the hypervisor takes is in the one and not in the other; interrupts may be, or not.
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
    let cannot = |name: &str| facilities().into_iter().any(|one| one.name == name && one.missing.is_some());
    if first == last || cannot("senders of interrupts") || cannot("TLB flushes by interrupts") {
        return eprintln!("skipped: one CPU, no events for senders, or flushes without interrupts");
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
    // The sibling has to be running at the moment for a flush to reach it: others may keep it waiting.
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
    let found = facilities();
    let mut names: Vec<&str> = found.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names.first(), Some(&"BPF programs"));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), found.len(), "{found:?}");
    assert!(found.len() > 1 || found[0].missing.is_some(), "{found:?}");
}
