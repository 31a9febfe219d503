//! The measuring process: the same binary, started with a hidden command.
//!
//! Its standard input is the shared memory; its arguments are the [`ProbeSpec`] as JSON, the process id of the runner
//! and, where the kernel tells the steps of a dispatch, the number of the file with their table. It prints [`Message`]s to
//! standard output, but none between arming and the end: in between the main thread sleeps, the measuring threads
//! make no system call but the measured one, and no thread ends (its stack would be unmapped, and every other CPU
//! of the process interrupted for it) before all have measured to the end.

mod dispatch;
mod dispatch_parts;
mod grid;
mod prepare;
mod recorder;
mod roundtrip;
mod stall;
mod timer;
mod watchdog;

pub(crate) use dispatch_parts::WHOLE_ONLY;

use crate::layout::{Header, Lane};
use crate::spec::{ProbeKind, ProbeSpec};
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
use whylate_sys::counter::{Hardware, KernelClock};
use whylate_sys::shared::SharedWords;
use whylate_sys::{allocation, clock, process, schedule};

/// What the measuring process tells the runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// Something is not as asked.
    Warning(Warning),
    /// It cannot measure.
    Failed(String),
    /// It cannot measure because the kernel refuses what was asked for explicitly.
    Unavailable(String),
    /// Every thread is ready; samples count from this moment on.
    Armed {
        /// CLOCK_MONOTONIC.
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
    let table = arguments.get(2).map(|number| dispatch_parts::table(number)).transpose();
    let table = table.map_err(|error| format!("cannot map the steps of dispatches: {error}"))?;
    measure(host, &spec, memory.words(), table.as_ref().map(SharedWords::words), &send)
}

fn send(message: &Message) {
    // A runner that is gone needs no messages; the kernel ends this process then.
    if let Ok(text) = serde_json::to_string(message) {
        let mut output = std::io::stdout().lock();
        let _ = writeln!(output, "{text}").and_then(|()| output.flush());
    }
}

/// What every measuring thread shares.
struct Team<'a> {
    host: &'a HostRoot,
    spec: &'a ProbeSpec,
    header: Header<'a>,
    /// Passed when each thread is set up (or has failed), when the start is set, and when all have ended.
    barrier: Barrier,
    warnings: Mutex<Vec<Warning>>,
    failure: Mutex<Option<Failure>>,
    /// Where the kernel writes the steps of dispatches.
    dispatch_table: Option<&'a [AtomicU64]>,
}

impl Team<'_> {
    fn warn(&self, warning: Warning) {
        if let Ok(mut warnings) = self.warnings.lock() {
            whylate_core::warning::push_once(&mut warnings, warning);
        }
    }

    fn fail(&self, reason: impl Into<Failure>) {
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
    if spec.is_companion() {
        return Err("histograms are counted in the kernel, not in a process".to_owned().into());
    }
    if let ProbeKind::Tracer { plan } = &spec.kind {
        return Err(format!("the {} tracer measures in the kernel, not in a process", plan.tracer).into());
    }
    let too_short = || "the shared memory is too short".to_owned();
    let header = Header::of(words).ok_or_else(too_short)?;
    let lanes: Option<Vec<Lane<'_>>> = (0..spec.lanes().len()).map(|index| Lane::of(words, index)).collect();
    let lanes = lanes.ok_or_else(too_short)?;
    let roles = roles(spec);
    let team = Team {
        host,
        spec,
        header,
        barrier: Barrier::new(roles.len() + 1),
        warnings: Mutex::new(Vec::new()),
        failure: Mutex::new(None),
        dispatch_table,
    };
    let _request = prepare::process(&team);
    let exchange = roundtrip::Exchange::new(&team);
    let watchdog = watchdog::Watchdog::default();
    std::thread::scope(|scope| {
        for (cpu, role) in roles {
            let (team, lanes, exchange) = (&team, &lanes, exchange.as_ref());
            scope.spawn(move || thread(team, cpu, role, lanes, exchange));
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
                let release = move || exchange.into_iter().for_each(roundtrip::Exchange::release);
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

/// One measuring thread, from set-up to end.
fn thread<'a>(
    team: &'a Team<'a>,
    cpu: CpuId,
    role: Role,
    lanes: &'a [Lane<'a>],
    exchange: Option<&'a roundtrip::Exchange>,
) {
    let prepared = prepare::thread(team, cpu);
    if let Err(reason) = &prepared {
        team.fail(reason.clone());
    }
    let state = State::new(team, role, lanes, exchange);
    team.barrier.wait();
    team.barrier.wait();
    let start = MonoTime(team.header.start_ns().load(Acquire));
    if start.0 != 0
        && let Some(mut state) = state
        && let Err(reason) = state.measure(team, start)
    {
        team.fail(reason);
        team.header.stop().store(1, Relaxed);
    }
    // Back to an ordinary task, so that the end of the process disturbs nobody at real-time priority.
    let _ = schedule::schedule_this_thread(schedule::Scheduling::Other);
    team.barrier.wait();
}

/// What a measuring thread is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Measures into the lane of that number.
    Lane(usize),
    /// Asks, and measures into all lanes (roundtrip only).
    Ask,
    /// Answers (roundtrip only).
    Answer,
}

/// The threads, with their CPUs.
fn roles(spec: &ProbeSpec) -> Vec<(CpuId, Role)> {
    match spec.kind {
        ProbeKind::Roundtrip { pair, .. } => vec![(pair.from, Role::Ask), (pair.to, Role::Answer)],
        _ => spec.cpus.iter().enumerate().map(|(index, cpu)| (cpu, Role::Lane(index))).collect(),
    }
}

/// What one measuring thread needs while it measures, all allocated before.
enum State<'a> {
    Timer(timer::Timer<'a>),
    Stall(stall::Stall<'a>),
    Dispatch(dispatch::Dispatch<'a>),
    Asker(roundtrip::Asker<'a>),
    Answerer(&'a roundtrip::Exchange, Lane<'a>),
}

impl<'a> State<'a> {
    /// `None` when there is no lane for the thread, which [`measure`] has made sure of.
    fn new(
        team: &'a Team<'a>,
        role: Role,
        lanes: &'a [Lane<'a>],
        exchange: Option<&'a roundtrip::Exchange>,
    ) -> Option<Self> {
        let (spec, header) = (team.spec, team.header);
        Some(match role {
            Role::Ask => {
                lanes.iter().for_each(Lane::reset);
                Self::Asker(roundtrip::Asker::new(spec, exchange?, lanes, header))
            }
            Role::Answer => Self::Answerer(exchange?, *lanes.first()?),
            Role::Lane(index) => {
                let each = spec.lanes_of_thread();
                let lanes = lanes.get(index * each..(index + 1) * each)?;
                lanes.iter().for_each(Lane::reset);
                let (lane, part_lanes) = lanes.split_first()?;
                let lane = *lane;
                match &spec.kind {
                    ProbeKind::Timer { .. } => Self::Timer(timer::Timer::new(spec, index, lane, header)),
                    ProbeKind::Dispatch { .. } => {
                        let parts = dispatch_parts::Parts::new(team, part_lanes);
                        Self::Dispatch(dispatch::Dispatch::new(spec, lane, header, parts))
                    }
                    _ => Self::Stall(stall::Stall::new(spec, lane, header)),
                }
            }
        })
    }

    fn measure(&mut self, team: &Team<'_>, start: MonoTime) -> Result<(), Failure> {
        match self {
            Self::Timer(timer) => timer.measure(start)?,
            Self::Dispatch(dispatch) => dispatch.measure(start)?,
            Self::Stall(stall) if stall.reads_hardware() => stall.measure::<Hardware>(start),
            Self::Stall(stall) => stall.measure::<KernelClock>(start),
            Self::Asker(asker) if asker.reads_hardware() => asker.measure::<Hardware>(team, start),
            Self::Asker(asker) => asker.measure::<KernelClock>(team, start),
            Self::Answerer(exchange, lane) if exchange.hardware_counter => {
                exchange.answer::<Hardware>(team, lane);
            }
            Self::Answerer(exchange, lane) => exchange.answer::<KernelClock>(team, lane),
        }
        Ok(())
    }
}

/// The kernel's counters of this thread, taken when samples begin to count and when they cease to.
struct Usage {
    thread: schedule::ThreadUsage,
    allocations: u64,
}

impl Usage {
    fn begin() -> Self {
        Self {
            thread: schedule::usage_of_this_thread(),
            allocations: allocation::allocations_of_this_thread(),
        }
    }

    fn end(&self, lane: &Lane<'_>) {
        self.store([lane.page_faults(), lane.involuntary_switches(), lane.allocations()]);
    }

    /// The same for the thread that answers.
    fn end_of_peer(&self, lane: &Lane<'_>) {
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

/// The moment at which samples cease to count.
fn end_of(start: MonoTime, duration: Nanos) -> MonoTime {
    MonoTime(start.0.saturating_add(duration.0))
}
