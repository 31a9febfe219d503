//! The histograms on this machine's kernel. Where it refuses BPF programs, the tests say so and check that alone.

#![cfg(feature = "bpf")]
#![allow(clippy::print_stderr, reason = "a skipped test says why")]

mod support;

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;
use support::unless_refused;
use whylate_bpf::{BpfError, Histograms, HistogramsChange, HistogramsConfig, HistogramsSnapshot, TaskFilter};
use whylate_core::result::{HistogramKind, KernelHistogram};
use whylate_core::{CpuId, CpuSet, MonoTime};
use whylate_sys::schedule::Scheduling;
use whylate_sys::{clock, schedule};

/// Starts histograms, or says why the rest of the test is skipped.
fn start(config: &HistogramsConfig) -> Option<Histograms> {
    unless_refused(Histograms::start(config))
}

/// All tasks, whatever their priority, but only that thread.
fn only(pid: u32, cpus: CpuSet) -> HistogramsConfig {
    let task = Some(TaskFilter::Pid(pid));
    HistogramsConfig { priority_min: i32::MIN, priority_max: i32::MAX, task, ..HistogramsConfig::new(cpus) }
}

fn allowed_cpus() -> CpuSet {
    schedule::allowed_of_this_thread().unwrap()
}

/// A thread that sends its id and sleeps `count` times when asked to.
struct Sleeper {
    pid: u32,
    go: std::sync::Arc<AtomicU32>,
    thread: std::thread::JoinHandle<()>,
}

impl Sleeper {
    fn start(count: u32) -> Self {
        let (sender, receiver) = std::sync::mpsc::channel();
        let go = std::sync::Arc::new(AtomicU32::new(0));
        let asked = go.clone();
        let thread = std::thread::spawn(move || {
            sender.send(schedule::id_of_this_thread()).unwrap();
            // Yielding wakes no thread, so that only the sleeps below count.
            while asked.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            for _ in 0..count {
                clock::sleep_until(MonoTime(clock::now().0 + 100_000));
            }
        });
        Self { pid: receiver.recv().unwrap(), go, thread }
    }

    fn finish(self) {
        self.go.store(1, SeqCst);
        self.thread.join().unwrap();
    }
}

fn histogram(snapshot: &HistogramsSnapshot, cpu: CpuId, kind: HistogramKind) -> &KernelHistogram {
    let cpu = snapshot.cpus.iter().find(|one| one.cpu == cpu).unwrap();
    cpu.histograms.iter().find(|one| one.kind == kind).unwrap()
}

fn samples(snapshot: &HistogramsSnapshot, kind: HistogramKind) -> u64 {
    snapshot.cpus.iter().map(|cpu| histogram(snapshot, cpu.cpu, kind).samples).sum()
}

#[test]
fn every_wakeup_is_counted_once_or_said_to_be_missing() {
    const SLEEPS: u32 = 2_000;
    let sleeper = Sleeper::start(SLEEPS);
    let Some(running) = start(&only(sleeper.pid, allowed_cpus())) else { return sleeper.finish() };
    sleeper.finish();
    let snapshot = running.read().unwrap();
    let counts = snapshot.counts;
    let known = counts.wakeups + counts.lost;
    // Some hosts hide events in the time of their own programs from BPF and perf: see METHODOLOGY.
    let hidden = u64::from(SLEEPS).checked_sub(known).expect("no more than there were");
    eprintln!("{hidden} of {SLEEPS} wake-ups are hidden from BPF programs");
    assert!(hidden <= u64::from(SLEEPS / 20), "{counts:?}");
    let measured =
        samples(&snapshot, HistogramKind::Wakeup) + samples(&snapshot, HistogramKind::SharedPriority);
    let elsewhere = counts.without_switch + counts.elsewhere + counts.lost;
    assert_eq!(measured + elsewhere, known, "{counts:?}");
    assert!(measured > 0, "{counts:?}");
    let offsets = samples(&snapshot, HistogramKind::MissedTimerOffsets);
    assert_eq!(offsets, counts.wakeups, "a timer ended each of these sleeps");
    for cpu in &snapshot.cpus {
        for one in &cpu.histograms {
            let counted: u64 = one.histogram.iter().map(|(_, count)| count).sum();
            assert_eq!(counted, one.samples, "{}", one.kind);
        }
    }
}

#[test]
fn the_kernel_sees_no_more_than_the_task_does() {
    const ROUNDS: u32 = 1_000;
    let cpus = allowed_cpus();
    let cpu = cpus.iter().last().unwrap();
    let own = CpuSet::from_iter([cpu]);
    schedule::pin_this_thread(&own).unwrap();
    // Above the ordinary tasks of this machine; if BPF is refused, this is refused, too.
    let _ = schedule::schedule_this_thread(Scheduling::Fifo(50));
    let pid = schedule::id_of_this_thread();
    let mut config = only(pid, own);
    config.kinds = vec![HistogramKind::TimerWakeupSwitch];
    let own = config.cpus.clone();
    let Some(mut running) = start(&config) else { return };
    let (mut seen, mut agrees) = (0, 0);
    for _ in 0..ROUNDS {
        running.change(HistogramsChange::Reset, &config.kinds, &own).unwrap();
        let expected_ns = clock::now().0 + 200_000;
        clock::sleep_until(MonoTime(expected_ns));
        let late_ns = clock::now().0 - expected_ns;
        let snapshot = running.read().unwrap();
        let one = histogram(&snapshot, cpu, HistogramKind::TimerWakeupSwitch);
        // A wake-up that waited for another task of the same priority is kept apart.
        let Some(record) = &one.max_record else { continue };
        seen += 1;
        assert_eq!(one.samples, 1);
        let parts = [record.timer_offset_ns, record.wakeup_ns, record.switch_ns];
        assert_eq!(parts.into_iter().flatten().sum::<u64>(), record.latency_ns, "the parts are the whole");
        assert_eq!((record.pid, record.syscall.as_deref()), (pid, Some("clock_nanosleep")));
        agrees += u32::from(record.latency_ns <= late_ns);
    }
    assert!(seen > ROUNDS / 2, "only {seen} of {ROUNDS} wake-ups were seen");
    assert!(f64::from(agrees) >= 0.999 * f64::from(seen), "{agrees} of {seen}");
}

#[test]
fn kinds_are_switched_and_reset_while_running() {
    let sleeper = Sleeper::start(200);
    let cpus = allowed_cpus();
    let Some(mut running) = start(&only(sleeper.pid, cpus.clone())) else { return sleeper.finish() };
    running.change(HistogramsChange::Disable, &[HistogramKind::MissedTimerOffsets], &cpus).unwrap();
    assert!(!running.enabled().any(|(_, kind)| kind == HistogramKind::MissedTimerOffsets));
    sleeper.finish();
    running.change(HistogramsChange::Enable, &[HistogramKind::MissedTimerOffsets], &cpus).unwrap();
    let snapshot = running.read().unwrap();
    assert_eq!(samples(&snapshot, HistogramKind::MissedTimerOffsets), 0, "it was off");
    assert!(snapshot.counts.wakeups > 0);
    running.change(HistogramsChange::Reset, &HistogramKind::ALL, &cpus).unwrap();
    let empty = running.read().unwrap();
    for one in empty.cpus.iter().flat_map(|cpu| &cpu.histograms) {
        assert_eq!((one.samples, one.quantiles, &one.max_record), (0, None, &None), "{}", one.kind);
    }
}

#[test]
fn a_name_without_a_task_counts_nothing() {
    let mut config = only(0, allowed_cpus());
    config.task = Some(TaskFilter::Command("no such task".to_owned()));
    let Some(running) = start(&config) else { return };
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(running.read().unwrap().counts.wakeups, 0);
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let beyond = HistogramsConfig::new(CpuSet::from_iter([CpuId(8_191)]));
    let error = Histograms::start(&beyond).err().unwrap();
    assert!(matches!(error, BpfError::NoSuchCpu { .. }), "{error}");
    let mut nothing = HistogramsConfig::new(allowed_cpus());
    nothing.kinds.clear();
    let error = Histograms::start(&nothing).err().unwrap();
    let refused = matches!(error, BpfError::Refused { .. } | BpfError::NoTypeInformation(_));
    assert!(refused || matches!(error, BpfError::Nothing), "{error}");
}
