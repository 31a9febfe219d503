//! The two threads of the round-trip probe, in this process: what they count adds up, and they do nothing else.

use crate::child;
use crate::kinds::{ProbeKind, RoundtripSpec};
use crate::layout::{Lane, words_needed};
use crate::spec::ProbeSpec;
use crate::tests::ALONE;
use std::sync::atomic::Ordering::Relaxed;
use whylate_core::plan::{CpuPair, Policy, RoundtripMethod};
use whylate_core::{CpuSet, Nanos};
use whylate_host::HostRoot;
use whylate_sys::counter::CounterKind;
use whylate_sys::schedule;
use whylate_sys::shared::SharedWords;
use whylate_testing::{Need, skip};

fn spec(pair: CpuPair, methods: &[RoundtripMethod]) -> ProbeSpec {
    ProbeSpec {
        kind: ProbeKind::Roundtrip(RoundtripSpec {
            pair,
            methods: methods.to_vec(),
            break_above: None,
            spin_ordinary: true,
            hardware_counter: true,
            multiplier: CounterKind::Hardware.calibrate(Nanos::from_millis(20)).multiplier,
            halves: true,
        }),
        other_cpus: CpuSet::default(),
        cpus: pair.cpus(),
        policy: Policy::Fifo,
        priority: 80,
        warmup: Nanos::from_millis(20),
        duration: Nanos::from_millis(600),
        samples_max: None,
        strict: false,
        lock_memory: true,
        spikes_kept: 32,
        late_above: None,
        hold_cpu_dma_latency: true,
        trace_folder: None,
    }
}

fn measure(spec: &ProbeSpec) -> SharedWords {
    let memory = SharedWords::create(words_needed(spec.lanes().len())).unwrap();
    std::thread::scope(|scope| {
        scope
            .spawn(|| child::measure(&HostRoot::real(), spec, memory.words(), None, &|_| {}).unwrap())
            .join()
            .unwrap();
    });
    memory
}

fn faults(memory: &SharedWords) -> (u64, u64) {
    let first = Lane::of(memory.words(), 0).unwrap();
    (first.page_faults().load(Relaxed), first.peer_page_faults().load(Relaxed))
}

/// Like [`measure`], repeated after a page fault: the kernel may have moved locked pages to make room.
fn measure_without_faults(spec: &ProbeSpec) -> SharedWords {
    let mut attempts = std::iter::repeat_with(|| measure(spec)).take(4);
    let memory = attempts.next().unwrap();
    if faults(&memory) == (0, 0) || schedule::lock_memory().is_err() {
        return memory;
    }
    attempts.find(|memory| faults(memory) == (0, 0)).unwrap_or(memory)
}

/// The first and the last usable CPU.
fn pair() -> CpuPair {
    let cpus = schedule::allowed_of_this_thread().unwrap();
    CpuPair { from: cpus.last().unwrap(), to: cpus.first().unwrap() }
}

fn count(lane: &Lane<'_>) -> u64 {
    lane.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum()
}

fn check(spec: &ProbeSpec, memory: &SharedWords) {
    for (method, lanes) in spec.lanes().chunks(3).zip((0usize..).step_by(3)) {
        let lane = |index| Lane::of(memory.words(), lanes + index).unwrap();
        let (whole, there, back) = (lane(0), lane(1), lane(2));
        let name = &method[0].series;
        let samples = count(&whole);
        assert!(samples > 0, "{name:?}");
        assert_eq!(whole.samples().load(Relaxed), samples);
        let disorder = whole.disorder().load(Relaxed);
        assert_eq!((count(&there), count(&back)), (samples - disorder, samples - disorder), "{name:?}");
        // The ways add up to the whole, but for rounding each to nanoseconds.
        if disorder == 0 {
            let ways = there.sum_ns().load(Relaxed) + back.sum_ns().load(Relaxed);
            assert!(ways.abs_diff(whole.sum_ns().load(Relaxed)) <= 2 * samples, "{name:?}");
        }
    }
    let first = Lane::of(memory.words(), 0).unwrap();
    assert_eq!((first.allocations().load(Relaxed), first.peer_allocations().load(Relaxed)), (0, 0));
    if schedule::lock_memory().is_ok() {
        assert_eq!(faults(memory), (0, 0));
    }
}

#[test]
fn every_method_counts_whole_round_trips_and_both_ways() {
    let _alone = ALONE.lock();
    if pair().is_one_cpu() {
        skip(Need::Cpus, "there is only one usable CPU");
        return;
    }
    let spec = spec(pair(), &RoundtripMethod::ALL);
    check(&spec, &measure_without_faults(&spec));
}

#[test]
fn methods_that_sleep_work_on_one_cpu() {
    let _alone = ALONE.lock();
    let pair = CpuPair { to: pair().from, ..pair() };
    let spec = spec(pair, &RoundtripMethod::ALL[1..]);
    check(&spec, &measure_without_faults(&spec));
}

#[test]
fn each_method_ends_after_the_number_of_samples_that_was_asked_for() {
    let _alone = ALONE.lock();
    let methods = [RoundtripMethod::Futex, RoundtripMethod::Pipe];
    let spec = ProbeSpec { samples_max: Some(50), duration: Nanos::from_secs(60), ..spec(pair(), &methods) };
    let memory = measure(&spec);
    for whole in [0, 3] {
        assert_eq!(count(&Lane::of(memory.words(), whole).unwrap()), 50);
    }
}
