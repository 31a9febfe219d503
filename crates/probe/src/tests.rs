//! The measuring threads themselves, in this process: what they count adds up, and they do nothing else.
//!
//! No test asserts a latency: machines that run tests are noisy.

use crate::child::{self, Failure, Message};
use crate::kinds::{DispatchSpec, ProbeKind, StallSpec, TimerSpec};
use crate::lane_reader::LaneReader;
use crate::layout::{Header, Lane, words_needed};
use crate::spec::ProbeSpec;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use whylate_core::plan::{DispatchSource, Policy, TimerMethod};
use whylate_core::quantity::{GAPS, LOST_NS, OVERRUNS};
use whylate_core::record::{Interval, SpikeRecord};
use whylate_core::{CpuSet, Cycles, MonoTime, Nanos};
use whylate_host::HostRoot;
use whylate_sys::counter::{Calibration, CounterKind};
use whylate_sys::schedule::{self, Scheduling};
use whylate_sys::shared::SharedWords;
use whylate_sys::{allocation, clock};
use whylate_testing::{Need, skip};

/// One test at a time: each wants the last CPU for itself.
pub(crate) static ALONE: Mutex<()> = Mutex::new(());

/// What one measurement on one CPU brought.
struct Measured {
    interval: Interval,
    spikes: Vec<SpikeRecord>,
    broke_ns: u64,
    page_faults: u64,
    allocations: u64,
    warnings: Vec<String>,
}

fn last_cpu() -> CpuSet {
    CpuSet::single(schedule::allowed_of_this_thread().unwrap().last().unwrap())
}

pub(crate) fn spec(kind: ProbeKind, duration: Nanos) -> ProbeSpec {
    let cpus = last_cpu();
    ProbeSpec {
        kind,
        other_cpus: schedule::allowed_of_this_thread().unwrap().difference(&cpus),
        cpus,
        policy: Policy::Fifo,
        priority: 80,
        warmup: Nanos::from_millis(20),
        duration,
        samples_max: None,
        strict: false,
        lock_memory: true,
        spikes_kept: 32,
        late_above: None,
        hold_cpu_dma_latency: true,
        trace_folder: None,
    }
}

pub(crate) fn timer(interval: Nanos, method: TimerMethod) -> ProbeKind {
    ProbeKind::Timer(TimerSpec { interval, distance: Nanos(0), method, break_above: None })
}

fn stall(threshold_cycles: u64, calibration: &Calibration) -> ProbeKind {
    ProbeKind::Stall(StallSpec {
        hardware_counter: true,
        multiplier: calibration.multiplier,
        threshold_cycles,
        break_above: None,
        working_set_bytes: 0,
    })
}

fn calibration() -> Calibration {
    CounterKind::Hardware.calibrate(Nanos::from_millis(20))
}

/// Runs the measuring threads of `spec` in this process, on a thread of its own so that the test's thread is not changed.
fn measure(spec: &ProbeSpec, calibration: Option<&Calibration>) -> Measured {
    let memory = SharedWords::create(words_needed(1)).unwrap();
    let warnings = Mutex::new(Vec::new());
    let send = |message: &Message| {
        if let Message::Warning(warning) = message {
            warnings.lock().unwrap().push(warning.code.clone());
        }
    };
    std::thread::scope(|scope| {
        scope
            .spawn(|| child::measure(&HostRoot::real(), spec, memory.words(), None, &send).unwrap())
            .join()
            .unwrap();
    });
    let lane = Lane::of(memory.words(), 0).unwrap();
    let (lane_spec, has_period) = (spec.lanes().remove(0), spec.period().is_some());
    let mut reader = LaneReader::new(lane_spec, has_period, spec.spikes_kept, 1_000_000);
    let anchor = calibration.map(|calibration| (CounterKind::Hardware.anchor(), *calibration));
    lane.drain(|record| reader.take(record, anchor.as_ref()));
    Measured {
        interval: reader.interval(&lane, calibration),
        spikes: reader.new_spikes(),
        broke_ns: Header::of(memory.words()).unwrap().broke_ns().load(Relaxed),
        page_faults: lane.page_faults().load(Relaxed),
        allocations: lane.allocations().load(Relaxed),
        warnings: warnings.into_inner().unwrap(),
    }
}

fn histogram_count(interval: &Interval) -> u64 {
    interval.histogram.iter().map(|(_, count)| count).sum()
}

#[test]
fn every_period_is_a_sample_or_missed_whatever_wakes_the_task() {
    let _alone = ALONE.lock();
    for method in [TimerMethod::Nanosleep, TimerMethod::Timerfd, TimerMethod::PosixTimer] {
        let begin = Instant::now();
        let measured = measure(&spec(timer(Nanos::from_millis(1), method), Nanos::from_millis(300)), None);
        let interval = &measured.interval;
        // A task that is late at the very end misses periods beyond the end, or its last wake-up lies beyond the end.
        let periods = interval.samples + interval.get(OVERRUNS).unwrap();
        let most = begin.elapsed().as_millis() as u64 + 1;
        assert!((300..=most).contains(&periods), "{method:?}: {periods} of {most}");
        assert_eq!(histogram_count(interval), interval.samples, "{method:?}");
        assert!(interval.min_ns <= interval.max_ns);
        let largest = measured.spikes.iter().map(|spike| spike.latency_ns).max();
        assert_eq!(largest, interval.max_ns, "{method:?}");
        assert!(measured.spikes.len() <= 32);
    }
}

#[test]
fn as_many_spikes_are_kept_as_are_asked_for() {
    let _alone = ALONE.lock();
    let timer = timer(Nanos::from_millis(1), TimerMethod::Nanosleep);
    let spec = ProbeSpec { spikes_kept: 10_000, ..spec(timer, Nanos::from_millis(300)) };
    let measured = measure(&spec, None);
    assert_eq!(measured.spikes.len() as u64, measured.interval.samples);
    assert_eq!(measured.interval.spikes_dropped, 0);
}

fn dispatch(source: DispatchSource, interval: Nanos) -> ProbeKind {
    ProbeKind::Dispatch(DispatchSpec { source, interval, break_above: None, parts: false })
}

#[test]
fn every_interrupt_is_a_sample_or_missed_whatever_the_source() {
    let _alone = ALONE.lock();
    for source in [DispatchSource::Timerfd, DispatchSource::Nanosleep] {
        let kind = dispatch(source, Nanos::from_millis(1));
        let begin = Instant::now();
        let measured = measure(&spec(kind, Nanos::from_millis(300)), None);
        let interval = &measured.interval;
        let interrupts = interval.samples + interval.get(OVERRUNS).unwrap();
        let most = begin.elapsed().as_millis() as u64 + 1;
        assert!((300..=most).contains(&interrupts), "{source}: {interrupts} of {most}");
        assert_eq!(interval.series.as_deref(), Some(source.to_string().as_str()));
        assert_eq!(histogram_count(interval), interval.samples, "{source}");
        let largest = measured.spikes.iter().map(|spike| spike.latency_ns).max();
        assert_eq!(largest, interval.max_ns, "{source}");
    }
}

#[test]
fn a_device_that_is_not_there_is_unavailable() {
    let _alone = ALONE.lock();
    let spec = spec(dispatch(DispatchSource::Uio(99_999), Nanos::from_millis(1)), Nanos::from_millis(10));
    let memory = SharedWords::create(words_needed(1)).unwrap();
    let outcome = std::thread::scope(|scope| {
        scope
            .spawn(|| child::measure(&HostRoot::real(), &spec, memory.words(), None, &|_| {}))
            .join()
            .unwrap()
    });
    let Failure::Unavailable(reason) = outcome.unwrap_err() else { panic!("not a missing device") };
    assert!(reason.contains("/dev/uio99999"), "{reason}");
}

#[test]
fn the_counting_allocator_counts() {
    let before = allocation::allocations_of_this_thread();
    std::hint::black_box(Vec::<u8>::with_capacity(100));
    assert!(allocation::allocations_of_this_thread() > before);
}

#[test]
fn measuring_threads_allocate_nothing_and_take_no_page_fault() {
    let _alone = ALONE.lock();
    let calibration = calibration();
    let probes = [
        (timer(Nanos::from_micros(500), TimerMethod::Nanosleep), None),
        (timer(Nanos::from_micros(500), TimerMethod::Timerfd), None),
        (timer(Nanos::from_micros(500), TimerMethod::PosixTimer), None),
        (dispatch(DispatchSource::Timerfd, Nanos::from_micros(500)), None),
        (dispatch(DispatchSource::Nanosleep, Nanos::from_micros(500)), None),
        (stall(calibration.cycles(Nanos::from_micros(1)).0, &calibration), Some(&calibration)),
    ];
    for (kind, calibration) in probes {
        let measured = measure(&spec(kind.clone(), Nanos::from_millis(400)), calibration);
        assert!(measured.interval.samples > 0);
        assert_eq!(measured.allocations, 0, "{kind:?}");
        if measured.warnings.iter().any(|code| code == "no-memory-lock") {
            skip(Need::Rights, "page faults are not asserted where memory cannot be locked");
        } else {
            assert_eq!(measured.page_faults, 0, "{kind:?}");
        }
    }
}

#[test]
fn the_turns_of_the_loop_cover_the_whole_time() {
    let _alone = ALONE.lock();
    let calibration = calibration();
    let threshold = calibration.cycles(Nanos::from_micros(10)).0;
    let duration = Nanos::from_millis(300);
    let measured = measure(&spec(stall(threshold, &calibration), duration), Some(&calibration));
    let interval = &measured.interval;
    assert_eq!(histogram_count(interval), interval.samples);
    // Turns follow each other without a hole, so that their sum is the time; the end is looked for every 200 us.
    let share = interval.sum_ns as f64 / duration.0 as f64;
    assert!((0.99..1.5).contains(&share), "{share}");
    assert_eq!(interval.get(GAPS).unwrap(), measured.spikes.len() as u64);
    let lost: u64 = measured.spikes.iter().map(|spike| spike.latency_ns).sum();
    assert!(lost.abs_diff(interval.get(LOST_NS).unwrap()) <= measured.spikes.len() as u64 + 1);
}

#[test]
fn gaps_beyond_the_buffer_are_counted() {
    let _alone = ALONE.lock();
    let calibration = calibration();
    // Every turn is a gap: far more than the ring holds.
    let measured = measure(&spec(stall(1, &calibration), Nanos::from_millis(50)), Some(&calibration));
    let interval = &measured.interval;
    assert!(interval.spikes_dropped > 0);
    assert_eq!(interval.get(GAPS).unwrap(), measured.spikes.len() as u64 + interval.spikes_dropped);
    assert_eq!(interval.get(GAPS).unwrap(), interval.samples);
}

#[test]
fn no_planted_gap_is_lost() {
    const PLANTED: u64 = 20;
    const LENGTH_NS: u64 = 3_000_000;
    let _alone = ALONE.lock();
    let calibration = calibration();
    let threshold = calibration.cycles(Nanos::from_micros(100)).0;
    let mut spec = spec(stall(threshold, &calibration), Nanos::from_millis(600));
    (spec.policy, spec.priority) = (Policy::Fifo, 50);
    let cpus = spec.cpus.clone();
    let intruder = std::thread::spawn(move || {
        schedule::pin_this_thread(&cpus).unwrap();
        if schedule::schedule_this_thread(Scheduling::Fifo(90)).is_err() {
            return false;
        }
        // The measuring thread is ready within 100 ms and measures for 600 ms: all planted gaps fall into this time.
        clock::sleep_until(MonoTime(clock::now().0 + 120_000_000));
        for _ in 0..PLANTED {
            let end = clock::now().0 + LENGTH_NS;
            while clock::now().0 < end {}
            clock::sleep_until(MonoTime(clock::now().0 + 15_000_000));
        }
        true
    });
    let measured = measure(&spec, Some(&calibration));
    if !intruder.join().unwrap() || measured.warnings.iter().any(|code| code == "no-realtime-priority") {
        skip(Need::Rights, "planting needs the right to set real-time priorities");
        return;
    }
    let found = measured.spikes.iter().filter(|spike| spike.latency_ns >= LENGTH_NS).count() as u64;
    assert!(found >= PLANTED, "{found} of {PLANTED} planted gaps were seen: {:?}", measured.spikes);
}

/// Another task has the CPU from the warm-up until after the end.
#[test]
fn a_task_that_never_ran_while_it_was_to_be_measured_was_late_by_all_of_it() {
    const DURATION: Nanos = Nanos::from_millis(100);
    let _alone = ALONE.lock();
    let mut spec = spec(timer(Nanos::from_millis(1), TimerMethod::Nanosleep), DURATION);
    (spec.policy, spec.priority, spec.warmup) = (Policy::Fifo, 50, Nanos::from_millis(300));
    let mut found = Vec::new();
    // On a slow machine the thread may not be ready before the other task begins.
    for _ in 0..5 {
        let cpus = spec.cpus.clone();
        let intruder = std::thread::spawn(move || {
            schedule::pin_this_thread(&cpus).unwrap();
            if schedule::schedule_this_thread(Scheduling::Fifo(90)).is_err() {
                return false;
            }
            clock::sleep_until(MonoTime(clock::now().0 + 150_000_000));
            let end = clock::now().0 + 700_000_000;
            while clock::now().0 < end {}
            true
        });
        let measured = measure(&spec, None);
        if !intruder.join().unwrap() || measured.warnings.iter().any(|code| code == "no-realtime-priority") {
            skip(Need::Rights, "planting needs the right to set real-time priorities");
            return;
        }
        let interval = measured.interval;
        if interval.max_ns >= Some(DURATION.0) && interval.get(OVERRUNS) >= Some(99) {
            return;
        }
        found.push(interval);
    }
    panic!("{found:?}");
}

/// A real-time loop of a lower priority has the CPU when the measuring thread moves there, and for longer than the
/// measurement.
#[test]
fn a_loop_of_a_lower_priority_does_not_keep_a_thread_from_getting_ready() {
    let _alone = ALONE.lock();
    let spec = spec(timer(Nanos::from_millis(1), TimerMethod::Nanosleep), Nanos::from_millis(50));
    if spec.other_cpus.is_empty() {
        skip(Need::Cpus, "the loop would have the only CPU");
        return;
    }
    // Otherwise this thread might be woken on the loop's CPU, and wait there until the loop is over.
    schedule::pin_this_thread(&spec.other_cpus).unwrap();
    // On a busy machine the preparation may take longer than the loop.
    for _ in 0..5 {
        let (cpus, is_over) = (spec.cpus.clone(), AtomicBool::new(false));
        let (began, wait) = std::sync::mpsc::channel();
        let ended_first = std::thread::scope(|scope| {
            let is_over = &is_over;
            scope.spawn(move || {
                schedule::pin_this_thread(&cpus).unwrap();
                let may_be_realtime = schedule::schedule_this_thread(Scheduling::Fifo(1)).is_ok();
                began.send(may_be_realtime).unwrap();
                let end = clock::now().0 + 900_000_000;
                while may_be_realtime && clock::now().0 < end {}
                is_over.store(true, Relaxed);
            });
            wait.recv().unwrap().then(|| {
                measure(&spec, None);
                !is_over.load(Relaxed)
            })
        });
        match ended_first {
            Some(false) => {}
            Some(true) => return,
            None => {
                skip(Need::Rights, "planting needs the right to set real-time priorities");
                return;
            }
        }
    }
    panic!("the thread never got ready before the loop was over");
}

#[test]
fn the_first_latency_above_the_break_ends_everything() {
    let _alone = ALONE.lock();
    let kind = ProbeKind::Timer(TimerSpec {
        interval: Nanos::from_millis(1),
        distance: Nanos(0),
        method: TimerMethod::Nanosleep,
        break_above: Some(Nanos(1)),
    });
    let measured = measure(&spec(kind, Nanos::from_secs(30)), None);
    assert_eq!(measured.interval.samples, 1);
    assert_eq!(Some(measured.broke_ns), measured.interval.max_ns);
    assert_eq!(measured.spikes.len(), 1);
}

#[test]
fn the_first_gap_above_the_break_ends_everything() {
    let _alone = ALONE.lock();
    let mut kind = stall(u64::MAX, &calibration());
    if let ProbeKind::Stall(stall) = &mut kind {
        // Below the threshold, so that only the break makes a record; each CPU has such a gap within a second.
        stall.break_above = Some(Nanos::from_micros(3));
    }
    let measured = measure(&spec(kind, Nanos::from_secs(30)), None);
    assert!(measured.broke_ns > 3_000, "{}", measured.broke_ns);
    assert_eq!(measured.spikes.len(), 1);
}

#[test]
fn it_ends_after_the_number_of_samples_that_was_asked_for() {
    let _alone = ALONE.lock();
    let mut spec = spec(timer(Nanos::from_micros(500), TimerMethod::Nanosleep), Nanos::from_secs(30));
    spec.samples_max = Some(123);
    assert_eq!(measure(&spec, None).interval.samples, 123);
}

#[test]
fn a_working_set_is_walked_without_losing_a_turn() {
    let _alone = ALONE.lock();
    let calibration = calibration();
    let mut kind = stall(calibration.cycles(Nanos::from_micros(10)).0, &calibration);
    if let ProbeKind::Stall(StallSpec { working_set_bytes, .. }) = &mut kind {
        *working_set_bytes = 256 << 10;
    }
    let measured = measure(&spec(kind, Nanos::from_millis(100)), Some(&calibration));
    assert_eq!(histogram_count(&measured.interval), measured.interval.samples);
    assert_eq!(measured.allocations, 0);
}

#[test]
fn a_pinned_deadline_task_is_refused_with_the_way_out() {
    let _alone = ALONE.lock();
    let mut spec = spec(timer(Nanos::from_millis(1), TimerMethod::Nanosleep), Nanos::from_millis(10));
    spec.policy = Policy::Deadline;
    let memory = SharedWords::create(words_needed(1)).unwrap();
    let outcome = std::thread::scope(|scope| {
        scope
            .spawn(|| child::measure(&HostRoot::real(), &spec, memory.words(), None, &|_| {}))
            .join()
            .unwrap()
    });
    // A pinned deadline task is refused with more than one CPU; on a machine with one it may be admitted.
    if spec.other_cpus.is_empty() {
        skip(
            Need::Machine("a kernel that refuses pinned deadline tasks"),
            "with one CPU the kernel takes a pinned deadline task",
        );
    } else {
        let Failure::Unavailable(reason) = outcome.unwrap_err() else {
            panic!("not a refusal of the kernel")
        };
        assert!(reason.contains("SCHED_DEADLINE") && reason.contains("--policy fifo"), "{reason}");
    }
}

#[test]
fn cycles_are_converted_as_the_calibration_says() {
    let calibration = calibration();
    let micros = calibration.cycles(Nanos::from_micros(1));
    assert!(calibration.nanos(micros).0.abs_diff(1_000) <= 1, "{calibration:?}");
    assert_eq!(calibration.nanos(Cycles(0)), Nanos(0));
}
