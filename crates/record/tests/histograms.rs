//! Latency histograms from a trace buffer and, at the same time, from the BPF programs, on this machine's kernel: both
//! see the same wake-ups. Where the machine allows neither or only one, the test says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use whylate_bpf::{HistogramsConfig, HistogramsSnapshot, TaskFilter};
use whylate_core::MonoTime;
use whylate_core::result::{HistogramKind, HistogramSource};
use whylate_host::HostRoot;
use whylate_record::RecordError;
use whylate_record::histograms::LatencyHistograms;
use whylate_sys::{clock, schedule};
use whylate_testing::{Need, skip};
use whylate_treat::TreatError;

const SLEEPS: u64 = 2_000;

/// Starts counting, or says why not.
fn start(config: &HistogramsConfig, source: HistogramSource) -> Option<LatencyHistograms> {
    match LatencyHistograms::start(&HostRoot::real(), config, Some(source), false) {
        Ok((running, _)) => Some(running),
        Err(RecordError::Unavailable(reason)) => {
            skip(Need::Rights, reason);
            None
        }
        Err(RecordError::Bpf(error)) if error.is_unavailable() => {
            skip(Need::Rights, error);
            None
        }
        Err(RecordError::Journal(TreatError::Held { holder })) => {
            skip(Need::Rights, format!("{holder} counts"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn samples(snapshot: &HistogramsSnapshot, kind: HistogramKind) -> u64 {
    let all = snapshot.cpus.iter().flat_map(|cpu| &cpu.histograms);
    all.filter(|one| one.kind == kind).map(|one| one.samples).sum()
}

#[test]
fn a_trace_buffer_counts_what_the_programs_count() {
    let (tell, pid) = std::sync::mpsc::channel();
    let go = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&go);
    let sleeper = std::thread::spawn(move || {
        tell.send(schedule::id_of_this_thread()).unwrap();
        while !asked.load(SeqCst) {
            // Waiting this way is no wake-up.
            std::thread::yield_now();
        }
        for _ in 0..SLEEPS {
            clock::sleep_until(MonoTime(clock::now().0 + 100_000));
        }
    });
    let mut config = HistogramsConfig::new(schedule::allowed_of_this_thread().unwrap());
    (config.priority_min, config.priority_max) = (i32::MIN, i32::MAX);
    config.task = Some(TaskFilter::Pid(pid.recv().unwrap()));
    let trace = start(&config, HistogramSource::Tracefs);
    let bpf = start(&config, HistogramSource::Bpf);
    go.store(true, SeqCst);
    while !sleeper.is_finished() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    sleeper.join().unwrap();
    let mut seen = Vec::new();
    for mut running in [trace, bpf].into_iter().flatten() {
        let snapshot = running.read().unwrap();
        let counts = snapshot.counts;
        let measured = samples(&snapshot, HistogramKind::Wakeup)
            + samples(&snapshot, HistogramKind::SharedPriority)
            + counts.without_switch
            + counts.elsewhere;
        let source = running.source();
        running.finish().unwrap();
        if counts.lost > 0 {
            // A busy machine may lose events, and says so; then at most as many are counted as happened.
            assert!(counts.wakeups <= SLEEPS, "{source}: {counts:?}");
            continue;
        }
        // Some hosts hide what happens in the time of their own programs from BPF and perf: see METHODOLOGY.
        let hidden = SLEEPS.checked_sub(counts.wakeups).expect("no more than there were");
        let most = if source == HistogramSource::Tracefs { 0 } else { SLEEPS / 100 };
        assert!(hidden <= most, "{source}: {counts:?}");
        assert_eq!(measured, counts.wakeups, "{source}: {counts:?}");
        assert_eq!(samples(&snapshot, HistogramKind::MissedTimerOffsets), counts.wakeups, "{source}");
        seen.push(source);
    }
    eprintln!("counted by {seen:?}");
}
