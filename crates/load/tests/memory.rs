//! Memory loads as the runner sees them: real processes of the test binary's own child program.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use whylate_core::plan::{MemoryAccess, Pace};
use whylate_core::{Bytes, BytesPerSec, CpuSet, Nanos};
use whylate_load::{Load, LoadError, LoadSpec, LoadStatus, LoadWork, MemorySpec, StoppedBy};
use whylate_sys::process::Launcher;
use whylate_sys::schedule::allowed_of_this_thread;
use whylate_testing::says;

const CHILD: &str = env!("CARGO_BIN_EXE_whylate-load-child");
const READY: Duration = Duration::from_secs(20);

fn last_cpu() -> CpuSet {
    CpuSet::single(allowed_of_this_thread().unwrap().last().unwrap())
}

fn memory(access: MemoryAccess) -> MemorySpec {
    MemorySpec {
        cpus: last_cpu(),
        access,
        working_set: Bytes(1 << 20),
        huge_pages: false,
        node: None,
        pace: Pace::Full,
    }
}

fn spec(memory: MemorySpec) -> LoadSpec {
    LoadSpec { interval: Nanos::from_millis(50), ..LoadSpec::new(LoadWork::Memory(memory)) }
}

fn start(spec: &LoadSpec) -> Load {
    Load::start(&Launcher { program: CHILD.into() }, spec).unwrap()
}

/// Waits until `done`, at most ten seconds.
fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < limit, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn every_kind_runs_reports_and_stops() {
    let kinds = [
        MemoryAccess::Read,
        MemoryAccess::Write,
        MemoryAccess::Copy,
        MemoryAccess::Chase,
        MemoryAccess::NonTemporal,
    ];
    for access in kinds {
        let mut load = start(&spec(memory(access)));
        let ready = load.wait_ready(READY).unwrap();
        assert_eq!(ready.pid, load.pid());
        assert!(ready.detail.contains(access.name()), "{}", ready.detail);
        let mut rates = Vec::new();
        // On a busy machine a worker may not run at all in an interval.
        eventually("two rates, one of them above nothing", || {
            rates.extend(load.take_rates());
            rates.len() >= 2 && rates.iter().any(|rate| rate.value > 0.0)
        });
        assert_eq!(load.status(), LoadStatus::Running);
        let outcome = load.stop().unwrap();
        assert_eq!(outcome.stopped_by, StoppedBy::Request);
        assert_eq!(load.status(), LoadStatus::Finished);
        rates.extend(outcome.rates);
        assert!(rates.iter().all(|rate| rate.value >= 0.0), "{access:?}: {rates:?}");
        assert!(rates[0].at_ns - rates[0].interval_ns >= ready.at_ns);
        let adjoin = rates.windows(2).all(|pair| pair[1].at_ns - pair[1].interval_ns == pair[0].at_ns);
        assert!(adjoin, "the intervals leave no gap: {rates:?}");
    }
}

#[test]
fn a_rate_is_not_exceeded() {
    let pace = Pace::Rate(BytesPerSec(50e6));
    let spec = LoadSpec {
        duration: Some(Nanos::from_millis(500)),
        ..spec(MemorySpec { pace, ..memory(MemoryAccess::Copy) })
    };
    let mut load = start(&spec);
    load.wait_ready(READY).unwrap();
    eventually("the end of its duration", || load.status() == LoadStatus::Finished);
    let rates = load.stop().unwrap().rates;
    let time: u64 = rates.iter().map(|rate| rate.interval_ns).sum();
    let bytes: f64 = rates.iter().map(|rate| rate.value * rate.interval_ns as f64 / 1e9).sum();
    let mean = bytes * 1e9 / time as f64;
    assert!(mean > 0.0 && mean < 55e6, "{mean}");
}

#[test]
fn more_than_half_of_the_memory_is_refused_before_it_is_taken() {
    let working_set = Bytes(1 << 50);
    let mut load = start(&spec(MemorySpec { working_set, ..memory(MemoryAccess::Write) }));
    let error = load.wait_ready(READY).unwrap_err();
    assert!(matches!(error, LoadError::Reported(_)), "{error:?}");
    assert!(says("more-than-half-available-2", error.to_string()), "{error}");
    assert!(matches!(load.status(), LoadStatus::Died(reason) if reason == error.to_string()));
    assert_eq!(load.stop().unwrap_err().to_string(), error.to_string());
}

#[test]
fn a_missing_cpu_or_node_is_reported() {
    let cpus = "8000".parse().unwrap();
    let error =
        start(&spec(MemorySpec { cpus, ..memory(MemoryAccess::Read) })).wait_ready(READY).unwrap_err();
    assert!(error.to_string().contains("8000"), "{error}");
    let node = Some(1000);
    let error =
        start(&spec(MemorySpec { node, ..memory(MemoryAccess::Read) })).wait_ready(READY).unwrap_err();
    assert!(error.to_string().contains("NUMA node 1000"), "{error}");
}

#[test]
fn a_process_that_does_not_answer_is_killed() {
    let mut load = start(&spec(memory(MemoryAccess::Read)));
    load.wait_ready(READY).unwrap();
    let pid = rustix::process::Pid::from_raw(load.pid() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    assert_eq!(load.stop().unwrap().stopped_by, StoppedBy::Kill);
}

#[test]
fn a_process_that_is_killed_died() {
    let mut load = start(&spec(memory(MemoryAccess::Read)));
    load.wait_ready(READY).unwrap();
    let pid = rustix::process::Pid::from_raw(load.pid() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    eventually("its death", || matches!(load.status(), LoadStatus::Died(_)));
    let error = load.stop().unwrap_err().to_string();
    assert!(says("ended-early-signal-sigkill", &error), "{error}");
}

#[test]
fn an_unknown_program_and_a_wrong_request() {
    let error =
        Load::start(&Launcher { program: "/no/such/whylate".into() }, &spec(memory(MemoryAccess::Read)))
            .unwrap_err();
    assert!(error.to_string().starts_with("starting /no/such/whylate"), "{error}");
    let output = Command::new(CHILD).arg("internal-load").stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(says("request-that-cannot-read", String::from_utf8(output.stdout).unwrap()));
}
