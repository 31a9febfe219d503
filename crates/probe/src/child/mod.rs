//! The measuring process: the same binary, started with a hidden command.
//!
//! Its standard input is the shared memory. Its arguments are the [`ProbeSpec`] as JSON, the process id of the runner and, if
//! the kernel reports the steps of a dispatch, the file descriptor of their table. It prints [`Message`]s to standard output,
//! but none between arming and the end. In that time the main thread sleeps, and the measuring threads make only the measured
//! system call. No thread ends before all have measured to the end: its stack would be unmapped, which interrupts every other
//! CPU of the process.

pub(crate) mod prepare;
pub(crate) mod recorder;
mod watchdog;

use crate::kinds::roundtrip::Exchange;
use crate::kinds::{Station, dispatch_table};
use crate::layout::{Header, Lane};
use crate::spec::ProbeSpec;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::Write;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Barrier, Mutex};
use whylate_core::{CpuId, MonoTime, Nanos, Warning};
use whylate_host::HostRoot;
use whylate_sys::shared::SharedWords;
use whylate_sys::{allocation, clock, process, schedule};

/// What the measuring process reports to the runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// Something differs from the request.
    Warning(Warning),
    Failed(String),
    /// It cannot measure because the kernel refuses what was asked for explicitly.
    Unavailable(String),
    /// It has measured, but the result says nothing about the CPU.
    Void(String),
    /// Every thread is ready; samples count from this moment on.
    Armed {
        start_ns: u64,
    },
}

/// Entry point of the measuring process: `arguments` are those behind the hidden command.
pub fn main(host: &HostRoot, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let words: Vec<String> = arguments.map(|word| word.to_string_lossy().into_owned()).collect();
    match run(host, &words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            send(&match failure {
                Failure::Failed(reason) => Message::Failed(reason),
                Failure::Unavailable(reason) => Message::Unavailable(reason),
                Failure::Void(reason) => Message::Void(reason),
            });
            ExitCode::FAILURE
        }
    }
}

/// Why a measuring process cannot measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Failed(String),
    /// The kernel refuses what was asked for explicitly.
    Unavailable(String),
    /// The measured values say nothing about the CPU.
    Void(String),
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

fn run(host: &HostRoot, arguments: &[String]) -> Result<(), Failure> {
    let ([text, parent] | [text, parent, _]) = arguments else {
        return Err("the measuring process takes two or three arguments".to_owned().into());
    };
    let spec: ProbeSpec = serde_json::from_str(text).map_err(|error| format!("unreadable probe: {error}"))?;
    let parent = parent.parse().map_err(|error| format!("unreadable process id `{parent}`: {error}"))?;
    process::die_with_parent(parent).map_err(|error| error.to_string())?;
    let memory = std::io::stdin().as_fd().try_clone_to_owned().and_then(SharedWords::open);
    let memory = memory.map_err(|error| format!("cannot map the shared memory: {error}"))?;
    let table = arguments.get(2).map(|number| dispatch_table(number)).transpose();
    let table = table.map_err(|error| format!("cannot map the steps of dispatches: {error}"))?;
    measure(host, &spec, memory.words(), table.as_ref().map(SharedWords::words), &send)
}

fn send(message: &Message) {
    // If the runner is gone, it needs no messages, and the kernel ends this process.
    if let Ok(text) = serde_json::to_string(message) {
        let mut output = std::io::stdout().lock();
        let _ = writeln!(output, "{text}").and_then(|()| output.flush());
    }
}

/// What every measuring thread shares.
pub(crate) struct Team<'a> {
    host: &'a HostRoot,
    pub(crate) spec: &'a ProbeSpec,
    pub(crate) header: Header<'a>,
    /// Passed when each thread is set up or has failed, when the start is set, and when all have ended.
    barrier: Barrier,
    warnings: Mutex<Vec<Warning>>,
    failure: Mutex<Option<Failure>>,
    /// Where the kernel writes the steps of dispatches.
    pub(crate) dispatch_table: Option<&'a [AtomicU64]>,
}

impl Team<'_> {
    pub(crate) fn warn(&self, warning: Warning) {
        if let Ok(mut warnings) = self.warnings.lock() {
            whylate_core::warning::push_once(&mut warnings, warning);
        }
    }

    pub(crate) fn fail(&self, reason: impl Into<Failure>) {
        if let Ok(mut failure) = self.failure.lock() {
            failure.get_or_insert(reason.into());
        }
    }

    fn has_failed(&self) -> bool {
        self.failure.lock().map_or(true, |failure| failure.is_some())
    }
}

/// Measures with one thread per CPU, into `words`.
pub(crate) fn measure(
    host: &HostRoot,
    spec: &ProbeSpec,
    words: &[AtomicU64],
    dispatch_table: Option<&[AtomicU64]>,
    send: &(dyn Fn(&Message) + Sync),
) -> Result<(), Failure> {
    let too_short = || "the shared memory is too short".to_owned();
    let header = Header::of(words).ok_or_else(too_short)?;
    let lanes: Option<Vec<Lane<'_>>> = (0..spec.lanes().len()).map(|index| Lane::of(words, index)).collect();
    let lanes = lanes.ok_or_else(too_short)?;
    let threads = spec.threads();
    let team = Team {
        host,
        spec,
        header,
        barrier: Barrier::new(threads.len() + 1),
        warnings: Mutex::new(Vec::new()),
        failure: Mutex::new(None),
        dispatch_table,
    };
    let _request = prepare::process(&team);
    let exchange = spec.kind.as_kind().exchange(&team);
    let watchdog = watchdog::Watchdog::default();
    std::thread::scope(|scope| {
        for (index, cpu) in threads.into_iter().enumerate() {
            let (team, exchange) = (&team, exchange.as_ref());
            let lanes = lanes_of(spec, &lanes, index);
            scope.spawn(move || thread(cpu, &Station { team, index, lanes, exchange }));
        }
        team.barrier.wait();
        if let Ok(warnings) = team.warnings.lock() {
            warnings.iter().for_each(|warning| send(&Message::Warning(warning.clone())));
        }
        if !team.has_failed() {
            let start = start_of(&team);
            if watchdog::is_needed(spec) {
                let (watchdog, end) = (&watchdog, end_of(start, spec.duration));
                let exchange = exchange.as_ref();
                let release = move || exchange.into_iter().for_each(Exchange::release);
                scope.spawn(move || watchdog.watch(header, end, release));
            }
            send(&Message::Armed { start_ns: start.0 });
            header.start_ns().store(start.0, Release);
        }
        team.barrier.wait();
        team.barrier.wait();
        header.finished().store(1, Release);
        watchdog.done();
    });
    match team.failure.into_inner() {
        Ok(None) => Ok(()),
        Ok(Some(reason)) => Err(reason),
        Err(_) => Err("a measuring thread panicked".to_owned().into()),
    }
}

/// The common start: time for the message, the watchdog and the barrier, then the warm-up.
fn start_of(team: &Team<'_>) -> MonoTime {
    MonoTime(clock::now().0 + 20_000_000 + team.spec.warmup.0)
}

/// The lanes of one thread; two CPUs share theirs.
fn lanes_of<'a>(spec: &ProbeSpec, lanes: &'a [Lane<'a>], index: usize) -> &'a [Lane<'a>] {
    let each = spec.lanes_of_thread();
    if spec.peer_cpu().is_some() { lanes } else { lanes.get(index * each..(index + 1) * each).unwrap_or(&[]) }
}

/// One measuring thread, from set-up to end.
fn thread(cpu: CpuId, station: &Station<'_>) {
    let team = station.team;
    let is_peer = station.index > 0 && station.exchange.is_some();
    if let Some(lane) = station.lanes.first() {
        let (tid, born_ns) =
            if is_peer { (lane.peer_tid(), lane.peer_born_ns()) } else { (lane.tid(), lane.born_ns()) };
        born_ns.store(clock::now().0, Relaxed);
        tid.store(schedule::id_of_this_thread().into(), Release);
    }
    let prepared = prepare::thread(team, cpu);
    if let Err(reason) = &prepared {
        team.fail(reason.clone());
    }
    // The first of two CPUs takes the times.
    if !is_peer {
        station.lanes.iter().for_each(Lane::reset);
    }
    let worker = team.spec.kind.as_kind().worker(station);
    if worker.is_none() {
        team.fail(format!("the {} probe has no measuring process", team.spec.name()));
    }
    team.barrier.wait();
    team.barrier.wait();
    let start = MonoTime(team.header.start_ns().load(Acquire));
    if start.0 != 0
        && let Some(mut worker) = worker
        && let Err(reason) = worker.measure(team, start)
    {
        team.fail(reason);
        team.header.stop().store(1, Relaxed);
    }
    if let Some(lane) = station.lanes.first().filter(|_| !is_peer) {
        lane.done().store(1, Release);
    }
    if let Err(reason) = prepared.and_then(|()| prepare::unchanged(cpu)) {
        team.fail(reason);
    }
    // Makes the thread an ordinary task again, so that the end of the process disturbs no other task at real-time priority.
    // Moves it away, too: behind a real-time loop that never sleeps, an ordinary thread could not even end. A thread that a
    // shield confines stays.
    if !team.spec.other_cpus.is_empty() {
        let _ = schedule::pin_this_thread(&team.spec.other_cpus);
    }
    let _ = schedule::schedule_this_thread(schedule::Scheduling::Other);
    team.barrier.wait();
}

/// What a measuring thread does. Everything that it needs while it measures is allocated before.
pub(crate) trait Worker {
    /// Measures from `start` on; the warm-up lies before it.
    fn measure(&mut self, team: &Team<'_>, start: MonoTime) -> Result<(), Failure>;
}

/// The kernel's counters of this thread, read when samples begin to count and when they stop counting.
pub(crate) struct Usage {
    thread: schedule::ThreadUsage,
    allocations: u64,
}

impl Usage {
    pub(crate) fn begin() -> Self {
        Self {
            thread: schedule::usage_of_this_thread(),
            allocations: allocation::allocations_of_this_thread(),
        }
    }

    pub(crate) fn end(&self, lane: &Lane<'_>) {
        self.store([lane.page_faults(), lane.involuntary_switches(), lane.allocations()]);
    }

    /// The same for the answering thread.
    pub(crate) fn end_of_peer(&self, lane: &Lane<'_>) {
        self.store([lane.peer_page_faults(), lane.peer_involuntary_switches(), lane.peer_allocations()]);
    }

    fn store(&self, [page_faults, involuntary_switches, allocations]: [&AtomicU64; 3]) {
        let now = Self::begin();
        page_faults.store(now.thread.page_faults - self.thread.page_faults, Relaxed);
        let switches = now.thread.involuntary_switches - self.thread.involuntary_switches;
        involuntary_switches.store(switches, Relaxed);
        allocations.store(now.allocations - self.allocations, Relaxed);
    }
}

/// The moment at which samples stop counting.
pub(crate) fn end_of(start: MonoTime, duration: Nanos) -> MonoTime {
    MonoTime(start.0.saturating_add(duration.0))
}
