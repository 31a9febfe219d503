//! Loads made of single acts: each thread does one after another, at a pace, and counts them.
//!
//! Flushes and barriers reach only CPUs that run the load's own process, so the load hosts a thread on each CPU that
//! shall be hit: an ordinary task that runs whenever nothing else wants the CPU.

mod acts;
mod interrupts;

use crate::child::{Context, Event, pin, pin_to};
use crate::error::LoadError;
use crate::memory::pace::Pacer;
use crate::protocol::{Message, Ready};
use crate::rates::report;
use crate::spec::{EventKind, EventSpec};
use acts::Act;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use whylate_core::{CpuId, CpuSet, MonoTime, Warning, WarningCode};
use whylate_host::HostRoot;
use whylate_sys::clock;
use whylate_sys::schedule::allowed_of_this_thread;

pub(crate) use acts::check_pageattr;
pub(crate) use interrupts::check_irq_source;

/// The longest sleep without a look at the stop flag.
const SLEEP_NS_MAX: u64 = 20_000_000;

/// What the threads share.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    events: AtomicU64,
}

/// The threads, and what lets them begin.
struct Crew {
    shared: Arc<Shared>,
    threads: Vec<(CpuId, JoinHandle<()>)>,
    starts: Vec<Sender<()>>,
}

/// Runs the load until the context says stop or its duration is over.
pub(crate) fn run<W: Write>(spec: &EventSpec, context: &mut Context<W>) -> Result<(), LoadError> {
    let (mut crew, details) = hire(spec, context)?;
    let done = prepare(&crew, spec, context).and_then(|is_ready| {
        if !is_ready {
            return Ok(());
        }
        for start in crew.starts.drain(..) {
            // A thread that is gone is found by the reporting loop.
            let _ = start.send(());
        }
        work(&crew, spec, &details.recv().unwrap_or_default(), context)
    });
    crew.shared.stop.store(true, Relaxed);
    crew.starts.clear();
    for (cpu, thread) in crew.threads {
        if thread.join().is_err() {
            return Err(LoadError::Worker { cpu });
        }
    }
    done
}

fn hire<W: Write>(spec: &EventSpec, context: &Context<W>) -> Result<(Crew, Receiver<String>), LoadError> {
    let shared = Arc::new(Shared::default());
    let mut crew = Crew { shared, threads: Vec::new(), starts: Vec::new() };
    let (tell, details) = mpsc::channel();
    let doers = spec.cpus.iter().map(|cpu| (cpu, true));
    for (cpu, is_doer) in doers.chain(spec.victims.iter().map(|cpu| (cpu, false))) {
        let (start, started) = mpsc::channel();
        let worker = Worker {
            cpu,
            host: context.host.clone(),
            spec: spec.clone(),
            shared: Arc::clone(&crew.shared),
            sender: context.sender.clone(),
            details: tell.clone(),
            started,
        };
        let thread = thread::Builder::new()
            .name(format!("{}-{cpu}", if is_doer { spec.kind.name() } else { "victim" }))
            .spawn(move || worker.run(is_doer))
            .map_err(LoadError::system("starting a thread of the load"))?;
        crew.threads.push((cpu, thread));
        crew.starts.push(start);
    }
    Ok((crew, details))
}

/// Waits until every thread is ready; whether the load shall go on.
fn prepare<W: Write>(crew: &Crew, spec: &EventSpec, context: &mut Context<W>) -> Result<bool, LoadError> {
    for _ in &crew.threads {
        match context.event_until(MonoTime(u64::MAX)) {
            Some(Event::Ready) => {}
            Some(Event::Failed(error)) => return Err(error),
            _ => return Ok(false),
        }
    }
    if spec.kind.needs_victims() {
        context.tell(&Message::Warning(Warning::new(WarningCode::ReachesOwnProcessOnly, format!(
                "{} reaches CPU {} only while a thread of the load runs there: a probe that never sleeps (stall) at \
                 real-time priority keeps that thread from running",
                spec.kind.name(),
                spec.victims
            ))));
    }
    let others = allowed_of_this_thread().map(|allowed| allowed.difference(&spec.cpus)).unwrap_or_default();
    if !others.is_empty() {
        // Without it the report costs a thread some microseconds per interval, nothing more.
        let _ = pin(&context.host, &others);
    }
    Ok(true)
}

fn work<W: Write>(
    crew: &Crew,
    spec: &EventSpec,
    how: &str,
    context: &mut Context<W>,
) -> Result<(), LoadError> {
    let begin = clock::now();
    let victims = if spec.victims.is_empty() {
        String::new()
    } else {
        format!(", with a thread to be hit on {}", each_of(&spec.victims))
    };
    let detail = format!("{how} on {}{victims}", each_of(&spec.cpus));
    let ready = Ready { pid: std::process::id(), at_ns: begin.0, detail };
    if !context.tell(&Message::Ready(ready)) {
        return Ok(());
    }
    let ended = || crew.threads.iter().find(|(_, thread)| thread.is_finished()).map(|(cpu, _)| *cpu);
    report(context, begin, &|| crew.shared.events.load(Relaxed), &ended)
}

/// `CPU 1`, `each of CPUs 1-3`.
fn each_of(cpus: &CpuSet) -> String {
    if cpus.len() == 1 { format!("CPU {cpus}") } else { format!("each of CPUs {cpus}") }
}

/// One thread.
struct Worker {
    cpu: CpuId,
    host: HostRoot,
    spec: EventSpec,
    shared: Arc<Shared>,
    /// Tells that the thread is ready, or why it cannot run.
    sender: Sender<Event>,
    /// Tells how it is done.
    details: Sender<String>,
    /// Lets it begin; closed when it must not.
    started: Receiver<()>,
}

impl Worker {
    fn run(self, is_doer: bool) {
        let outcome = if is_doer { self.act() } else { self.be_hit() };
        if let Err(error) = outcome {
            let _ = self.sender.send(Event::Failed(error));
        }
    }

    fn is_started(&self) -> bool {
        let _ = self.sender.send(Event::Ready);
        self.started.recv().is_ok()
    }

    fn act(&self) -> Result<(), LoadError> {
        pin_to(&self.host, self.cpu)?;
        let workers = self.spec.cpus.len();
        let mut act = make(self.spec.kind, &self.spec, workers)?;
        let _ = self.details.send(act.describe());
        if !self.is_started() {
            return Ok(());
        }
        let mut pacer = Pacer::new(self.spec.pace.as_pace(), workers, clock::now());
        while !self.shared.stop.load(Relaxed) {
            let what = || format!("{} on CPU {}", self.spec.kind.name(), self.cpu);
            let done = act.turn().map_err(|error| LoadError::System { what: what(), source: error })?;
            self.shared.events.fetch_add(done, Relaxed);
            let mut pause = pacer.pause_ns(clock::now(), done);
            while pause > 0 && !self.shared.stop.load(Relaxed) {
                let sleep = pause.min(SLEEP_NS_MAX);
                thread::sleep(Duration::from_nanos(sleep));
                pause -= sleep;
            }
        }
        Ok(())
    }

    /// Runs on the CPU that shall be hit, so that it runs the load's address space.
    fn be_hit(&self) -> Result<(), LoadError> {
        pin_to(&self.host, self.cpu)?;
        if self.is_started() {
            while !self.shared.stop.load(Relaxed) {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }
}

fn make(kind: EventKind, spec: &EventSpec, workers: usize) -> Result<Box<dyn Act>, LoadError> {
    match kind {
        EventKind::Tlb => acts::tlb(),
        EventKind::Ipi(reach) => acts::barrier(reach),
        EventKind::Pageattr => acts::buffers(),
        EventKind::Softirq => acts::packets(),
        EventKind::IrqThread(source) => interrupts::make(source, spec.pace, workers),
    }
}
