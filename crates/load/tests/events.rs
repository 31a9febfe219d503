//! Loads of single acts really make what they promise: seen in /proc/interrupts and /proc/softirqs.

use std::sync::Mutex;
use std::time::{Duration, Instant};
use whylate_core::plan::{
    BarrierReach, BufferSource, EventPace, IpiPlan, IrqSource, IrqThreadPlan, PageattrPlan, SoftirqPlan,
    TlbPlan,
};
use whylate_core::{Bytes, CpuId, CpuSet, Nanos};
use whylate_host::HostRoot;
use whylate_host::interrupts::Counts;
use whylate_load::{Events, Load, LoadError, LoadOutcome, LoadSpec, LoadWork};
use whylate_sys::process::Launcher;
use whylate_sys::schedule::allowed_of_this_thread;
use whylate_testing::{Need, says, skip};

const CHILD: &str = env!("CARGO_BIN_EXE_whylate-load-child");
const READY: Duration = Duration::from_secs(20);

/// Last and first usable CPU; `None` when they are the same.
fn two_cpus() -> Option<(CpuId, CpuId)> {
    let cpus = allowed_of_this_thread().unwrap();
    let (last, first) = (cpus.last().unwrap(), cpus.first().unwrap());
    if last == first {
        skip(Need::Cpus, "there is only one usable CPU");
        return None;
    }
    Some((last, first))
}

fn start(work: LoadWork) -> Result<Load, LoadError> {
    let spec = LoadSpec { interval: Nanos::from_millis(50), ..LoadSpec::new(work) };
    let mut load = Load::start(&Launcher { program: CHILD.into() }, &spec)?;
    load.wait_ready(READY)?;
    Ok(load)
}

/// One load at a time: they would take the CPU from each other's threads.
static ALONE: Mutex<()> = Mutex::new(());

/// By how much the lines of these tests have to grow.
const ENOUGH: u64 = 2_000;

/// Runs the load until `line` has grown by [`ENOUGH`] on `cpu`, which without it takes more than twice as long; how many
/// events that took.
fn until_counted(work: LoadWork, line: &str, cpu: CpuId) -> f64 {
    let _alone = ALONE.lock();
    let read = || Counts::read(&HostRoot::real()).unwrap().of(line, cpu).unwrap_or(0);
    let before = read();
    let mut load = start(work).unwrap();
    let begin = Instant::now();
    // Long enough that a rate is reported, too.
    while read() - before < ENOUGH || begin.elapsed() < Duration::from_millis(500) {
        let grown = read() - before;
        assert!(begin.elapsed() < Duration::from_secs(60), "{line} on CPU {cpu} grew by {grown} only");
        std::thread::sleep(Duration::from_millis(20));
    }
    let (took, with_load) = (begin.elapsed(), read() - before);
    let outcome = load.stop().unwrap();
    let before = read();
    std::thread::sleep(took);
    let without = read() - before;
    assert!(without < with_load / 2, "{line} on CPU {cpu}: {with_load} with the load, {without} without");
    events(&outcome)
}

fn events(outcome: &LoadOutcome) -> f64 {
    outcome.rates.iter().map(|rate| rate.value * rate.interval_ns as f64 / 1e9).sum()
}

/// One thread on `cpu`, and one to be hit on `victim`.
fn acts<P>(plan: P, cpu: CpuId, victim: Option<CpuId>) -> Events<P> {
    Events { plan, cpus: CpuSet::single(cpu), victims: victim.map(CpuSet::single) }
}

#[test]
fn changed_mappings_shoot_down_translations_on_the_victim() {
    let Some((victim, doer)) = two_cpus() else { return };
    if cfg!(target_arch = "aarch64") {
        skip(Need::Machine("x86_64"), "arm64 flushes by broadcast instructions, without interrupts");
        return;
    }
    assert!(until_counted(LoadWork::Tlb(acts(TlbPlan::default(), doer, Some(victim))), "TLB", victim) > 0.0);
}

#[test]
fn barriers_call_a_function_on_the_victim() {
    let Some((victim, doer)) = two_cpus() else { return };
    for reach in [BarrierReach::Private, BarrierReach::Global] {
        let line = if cfg!(target_arch = "aarch64") { "IPI1" } else { "CAL" };
        let plan = IpiPlan { reach, ..IpiPlan::default() };
        assert!(until_counted(LoadWork::Ipi(acts(plan, doer, Some(victim))), line, victim) > 0.0);
    }
}

#[test]
fn packets_are_received_in_softirqs_of_their_cpu() {
    let cpu = allowed_of_this_thread().unwrap().last().unwrap();
    assert!(
        until_counted(LoadWork::Softirq(acts(SoftirqPlan::default(), cpu, None)), "softirq:NET_RX", cpu)
            > 0.0
    );
}

fn interrupts(source: IrqSource, cpu: CpuId) -> LoadWork {
    LoadWork::IrqThread(acts(IrqThreadPlan { source, ..IrqThreadPlan::default() }, cpu, None))
}

#[test]
fn timers_interrupt_their_cpu() {
    let cpu = allowed_of_this_thread().unwrap().last().unwrap();
    if cfg!(target_arch = "x86_64") {
        assert!(until_counted(interrupts(IrqSource::Timer, cpu), "LOC", cpu) > 0.0);
    }
}

#[test]
fn disk_reads_interrupt_some_cpu() {
    let cpu = allowed_of_this_thread().unwrap().last().unwrap();
    let all = || {
        let counts = Counts::read(&HostRoot::real()).unwrap();
        // The disk's interrupt may go to a CPU that is not this program's.
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
        let cpus: CpuSet = online.trim().parse().unwrap();
        let records = Counts::delta(&Counts::default(), &counts, &cpus);
        // Device lines have numbers.
        let devices = records.iter().filter(|record| record.line.parse::<u32>().is_ok());
        devices.map(|record| record.count).sum::<u64>()
    };
    let _alone = ALONE.lock();
    let before = all();
    match start(interrupts(IrqSource::Disk, cpu)) {
        Ok(mut load) => {
            std::thread::sleep(Duration::from_millis(500));
            let outcome = load.stop().unwrap();
            let reads: f64 =
                outcome.rates.iter().map(|rate| rate.value * rate.interval_ns as f64 / 1e9).sum();
            let interrupts = all() - before;
            assert!(
                reads > 0.0 && interrupts as f64 > reads / 20.0,
                "{interrupts} interrupts for {reads} reads"
            );
        }
        Err(LoadError::Unavailable(reason)) => skip(Need::Rights, reason),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_load_without_victims_is_refused() {
    let victims = Some(CpuSet::default());
    let spec = Events { victims, ..acts(TlbPlan::default(), CpuId(0), None) };
    assert!(matches!(LoadSpec::new(LoadWork::Tlb(spec)).validate(), Err(LoadError::NoCpus)));
}

fn secret(reuse: bool) -> LoadWork {
    let cpu = allowed_of_this_thread().unwrap().first().unwrap();
    let plan = PageattrPlan {
        source: BufferSource::Secretmem,
        size: Bytes(64 << 10),
        rate: EventPace::PerSecond(200.0),
        reuse,
        ..PageattrPlan::default()
    };
    LoadWork::Pageattr(acts(plan, cpu, None))
}

#[test]
fn new_secret_memory_flushes_the_other_cpu_and_used_memory_does_not() {
    let Some((victim, _)) = two_cpus() else { return };
    if cfg!(target_arch = "aarch64") {
        skip(Need::Machine("x86_64"), "arm64 flushes by broadcast instructions, without interrupts");
        return;
    }
    let _alone = ALONE.lock();
    let read = || Counts::read(&HostRoot::real()).unwrap().of("CAL", victim).unwrap_or(0);
    let counted_calls = || {
        let before = read();
        std::thread::sleep(Duration::from_secs(1));
        (read() - before) as f64
    };
    let calls = |reuse| {
        let mut load = start(secret(reuse))?;
        let calls = counted_calls();
        Ok((calls, events(&load.stop()?)))
    };
    // Other programs flush as well: their calls are subtracted, and a round with too many is repeated.
    let mut said = Vec::new();
    for _ in 0..5 {
        let others = counted_calls();
        let ((new, made), (kept, written)) = match calls(false).and_then(|new| Ok((new, calls(true)?))) {
            Ok(both) => both,
            Err(LoadError::Unavailable(reason)) => return skip(Need::Rights, reason),
            Err(error) => panic!("{error}"),
        };
        let (new, kept) = (new - others, kept - others);
        // Each of the 16 pages of a buffer is a flush; a machine that stands still makes fewer buffers.
        if new > 4.0 * made && made > 20.0 && kept < new / 4.0 && written > 20.0 {
            return;
        }
        said.push(format!(
            "{new} calls for {made} buffers, {kept} for {written} writes; {others} without the load"
        ));
    }
    panic!("{said:#?}");
}

#[test]
fn a_device_that_is_no_card_is_refused() {
    let plan = PageattrPlan { device: Some("/dev/null".into()), ..PageattrPlan::default() };
    let error = LoadSpec::new(LoadWork::Pageattr(acts(plan, CpuId(0), None))).validate().unwrap_err();
    assert!(matches!(error, LoadError::Unavailable(_)), "{error}");
    assert!(says("dev-null-makes-no", error.to_string()), "{error}");
}
