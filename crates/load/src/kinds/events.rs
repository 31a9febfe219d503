//! Loads made of single acts: each thread does one after another, at a pace, and counts them.
//!
//! Flushes and barriers reach only CPUs that run the load's own process, so the load keeps a thread on each CPU to be
//! hit: an ordinary task that runs whenever no other task wants the CPU.

use super::memory::pace::Pacer;
use super::{LoadPlace, Work};
use crate::child::{LoadContext, LoadEvent, after, pin, pin_to};
use crate::error::LoadError;
use crate::protocol::{Message, Ready};
use crate::rates::report;
use crate::spec::check_pace;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use whylate_core::plan::Pace;
use whylate_core::{CpuId, CpuSelector, CpuSet, MonoTime, Warning, WarningCode};
use whylate_host::HostRoot;
use whylate_sys::clock;
use whylate_sys::schedule::allowed_of_this_thread;

/// The longest sleep without a look at the stop flag.
const SLEEP_NS_MAX: u64 = 20_000_000;

/// Something that one thread does again and again.
pub trait Act {
    /// How it is done, for people.
    fn describe(&self) -> String;
    /// What differs from the request.
    fn warnings(&self) -> Vec<Warning> {
        Vec::new()
    }
    /// Does it once, in well below a millisecond unless the kernel takes longer. Returns how many events that was.
    fn turn(&mut self) -> io::Result<u64>;
    /// The longest that one turn may take; one that takes longer hangs.
    fn turn_within(&self) -> Option<Duration> {
        None
    }
}

/// The plan of a load that is made of single acts.
pub trait Acts: Clone + Send + 'static {
    const NAME: &'static str;
    /// Whether one thread is the usual number: of the CPUs `others` it takes the first.
    const ONE_THREAD: bool = false;
    /// The longest that preparing may take.
    const PREPARED_WITHIN: Option<Duration> = None;
    fn unit(&self) -> &'static str;
    /// The keys that all of them have.
    fn keys(&self) -> Keys<'_>;
    /// Prepares the acts of one of `workers` threads, in that thread.
    fn act(&self, workers: usize) -> Result<Box<dyn Act>, LoadError>;
    /// Whether the machine has what it needs.
    fn check(&self) -> Result<(), LoadError> {
        Ok(())
    }
    /// The executable of its process; by default this one.
    fn program(&self) -> Result<Option<PathBuf>, LoadError> {
        Ok(None)
    }
}

/// What a plan of such a load says in addition to what it does.
pub struct Keys<'p> {
    pub cpus: &'p CpuSelector,
    /// Where threads of the load's process run so that the acts reach them; `None` for kinds that need none.
    pub victims: Option<&'p CpuSelector>,
    pub rate: Pace,
}

/// Single acts that interrupt CPUs, done by one thread on each of `cpus`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Events<P> {
    /// What they are, and how many.
    pub plan: P,
    pub cpus: CpuSet,
    /// Where threads of the load's process run so that the acts reach them; `None` for kinds that need none.
    pub victims: Option<CpuSet>,
}

impl<P: Acts> Events<P> {
    pub(crate) fn resolve(plan: &P, place: &LoadPlace<'_>) -> Result<Self, LoadError> {
        let keys = plan.keys();
        let victims = keys.victims.map(|victims| place.cpus("victims", victims)).transpose()?;
        let cpus = place.cpus("cpus", keys.cpus)?;
        let first = cpus.first().filter(|_| P::ONE_THREAD && *keys.cpus == CpuSelector::Others);
        Ok(Self { cpus: first.map_or(cpus, CpuSet::single), victims, plan: plan.clone() })
    }
}

impl<P: Acts> Work for Events<P> {
    fn unit(&self) -> &str {
        self.plan.unit()
    }

    fn cpus(&self) -> Option<&CpuSet> {
        Some(&self.cpus)
    }

    fn victims(&self) -> Option<&CpuSet> {
        self.victims.as_ref()
    }

    fn validate(&self) -> Result<(), LoadError> {
        if self.cpus.is_empty() || self.victims.as_ref().is_some_and(CpuSet::is_empty) {
            return Err(LoadError::NoCpus);
        }
        check_pace(self.plan.keys().rate)?;
        self.plan.check()
    }

    fn program(&self) -> Result<Option<PathBuf>, LoadError> {
        self.plan.program()
    }

    fn run(&self, context: &mut LoadContext) -> Result<(), LoadError> {
        run(self, context)
    }
}

/// What the threads share.
#[derive(Debug, Default)]
struct EventCounts {
    stop: AtomicBool,
    events: AtomicU64,
    /// When the turn of each doer has to have ended; 0 between turns, and for those that may take any time.
    turns: Vec<AtomicU64>,
}

impl EventCounts {
    /// Whether a turn takes longer than it may.
    fn is_hung(&self) -> bool {
        let now = clock::now().0;
        self.turns.iter().map(|limit| limit.load(Relaxed)).any(|limit| limit != 0 && limit < now)
    }
}

/// What a thread says of its acts.
#[derive(Debug, Default)]
struct Details {
    how: String,
    warnings: Vec<Warning>,
}

/// The threads, and what lets them begin.
struct Crew {
    shared: Arc<EventCounts>,
    threads: Vec<(CpuId, JoinHandle<()>)>,
    starts: Vec<Sender<()>>,
}

fn run<P: Acts>(spec: &Events<P>, context: &mut LoadContext) -> Result<(), LoadError> {
    let (mut crew, details) = hire(spec, context)?;
    let done = prepare(&crew, spec, context).and_then(|is_ready| {
        if !is_ready {
            return Ok(());
        }
        for start in crew.starts.drain(..) {
            // The reporting loop notices a thread that has ended.
            let _ = start.send(());
        }
        let details = details.recv().unwrap_or_default();
        for warning in details.warnings {
            context.tell(&Message::Warning(warning));
        }
        work(&crew, spec, &details.how, context)
    });
    crew.shared.stop.store(true, Relaxed);
    crew.starts.clear();
    if crew.shared.is_hung() || matches!(done, Err(LoadError::Hung { .. })) {
        // Its threads cannot be waited for.
        return Err(LoadError::Hung { what: P::NAME });
    }
    for (cpu, thread) in crew.threads {
        if thread.join().is_err() {
            return Err(LoadError::Worker { cpu });
        }
    }
    done
}

fn hire<P: Acts>(spec: &Events<P>, context: &LoadContext) -> Result<(Crew, Receiver<Details>), LoadError> {
    let turns = spec.cpus.iter().map(|_| AtomicU64::new(0)).collect();
    let shared = Arc::new(EventCounts { turns, ..EventCounts::default() });
    let mut crew = Crew { shared, threads: Vec::new(), starts: Vec::new() };
    let (tell, details) = mpsc::channel();
    let doers = spec.cpus.iter().map(|cpu| (cpu, true));
    let all = doers.chain(spec.victims.iter().flat_map(CpuSet::iter).map(|cpu| (cpu, false)));
    for (index, (cpu, is_doer)) in all.enumerate() {
        let (start, started) = mpsc::channel();
        let worker = EventWorker {
            index,
            cpu,
            host: context.host.clone(),
            spec: spec.clone(),
            shared: Arc::clone(&crew.shared),
            sender: context.sender.clone(),
            details: tell.clone(),
            started,
        };
        let thread = thread::Builder::new()
            .name(format!("{}-{cpu}", if is_doer { P::NAME } else { "victim" }))
            .spawn(move || worker.run(is_doer))
            .map_err(LoadError::system("starting a thread of the load"))?;
        crew.threads.push((cpu, thread));
        crew.starts.push(start);
    }
    Ok((crew, details))
}

/// Waits until every thread is ready; whether the load goes on.
fn prepare<P: Acts>(crew: &Crew, spec: &Events<P>, context: &mut LoadContext) -> Result<bool, LoadError> {
    let limit = P::PREPARED_WITHIN.map_or(u64::MAX, |within| within.as_nanos() as u64);
    let limit = after(clock::now(), limit);
    for _ in &crew.threads {
        match context.event_until(limit) {
            Some(LoadEvent::Ready) => {}
            Some(LoadEvent::Failed(error)) => return Err(error),
            Some(_) => return Ok(false),
            None => return Err(LoadError::Hung { what: P::NAME }),
        }
    }
    if let Some(victims) = &spec.victims {
        let text = format!(
            "{} reaches CPU {victims} only while the load's own thread runs on that CPU; a stall probe at real-time priority keeps this thread from running",
            P::NAME
        );
        context.tell(&Message::Warning(Warning::new(WarningCode::ReachesOwnProcessOnly, text)));
    }
    let others = allowed_of_this_thread().map(|allowed| allowed.difference(&spec.cpus)).unwrap_or_default();
    if !others.is_empty() {
        // Without it the report costs a thread some microseconds per interval, nothing more.
        let _ = pin(&context.host, &others);
    }
    Ok(true)
}

fn work<P: Acts>(
    crew: &Crew,
    spec: &Events<P>,
    how: &str,
    context: &mut LoadContext,
) -> Result<(), LoadError> {
    let hit = |victims: &CpuSet| format!(", with a victim thread on {}", each_of(victims));
    let victims = spec.victims.as_ref().map(hit).unwrap_or_default();
    let detail = format!("{how} on {}{victims}", each_of(&spec.cpus));
    let ready = Ready::now(std::process::id(), detail);
    let begin = MonoTime(ready.at_ns);
    if !context.tell(&Message::Ready(ready)) {
        return Ok(());
    }
    let ended = || crew.threads.iter().find(|(_, thread)| thread.is_finished()).map(|(cpu, _)| *cpu);
    let health = || match ended() {
        Some(cpu) => Err(LoadError::Worker { cpu }),
        None if crew.shared.is_hung() => Err(LoadError::Hung { what: P::NAME }),
        None => Ok(()),
    };
    report(context, begin, &|| crew.shared.events.load(Relaxed), &health)
}

/// `CPU 1`, `each of CPUs 1-3`.
fn each_of(cpus: &CpuSet) -> String {
    if cpus.len() == 1 { format!("CPU {cpus}") } else { format!("each of CPUs {cpus}") }
}

/// One thread.
struct EventWorker<P> {
    index: usize,
    cpu: CpuId,
    host: HostRoot,
    spec: Events<P>,
    shared: Arc<EventCounts>,
    /// Reports that the thread is ready, or why it cannot run.
    sender: Sender<LoadEvent>,
    details: Sender<Details>,
    /// Allows it to begin; closed if it must not.
    started: Receiver<()>,
}

impl<P: Acts> EventWorker<P> {
    fn run(self, is_doer: bool) {
        let outcome = if is_doer { self.act() } else { self.be_hit() };
        if let Err(error) = outcome {
            let _ = self.sender.send(LoadEvent::Failed(error));
        }
    }

    fn is_started(&self) -> bool {
        let _ = self.sender.send(LoadEvent::Ready);
        self.started.recv().is_ok()
    }

    fn act(&self) -> Result<(), LoadError> {
        pin_to(&self.host, self.cpu)?;
        let workers = self.spec.cpus.len();
        let mut act = self.spec.plan.act(workers)?;
        let _ = self.details.send(Details { how: act.describe(), warnings: act.warnings() });
        if !self.is_started() {
            return Ok(());
        }
        let within = act.turn_within();
        let mut pacer = Pacer::new(self.spec.plan.keys().rate, workers, clock::now());
        while !self.shared.stop.load(Relaxed) {
            let what = || format!("{} on CPU {}", P::NAME, self.cpu);
            let limit = &self.shared.turns[self.index];
            if let Some(within) = within {
                limit.store(after(clock::now(), within.as_nanos() as u64).0, Relaxed);
            }
            let done = act.turn().map_err(|error| LoadError::System { what: what(), source: error })?;
            limit.store(0, Relaxed);
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

    /// Runs on the CPU to be interrupted, so that it runs the load's address space.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_does_not_end_hangs() {
        let shared =
            EventCounts { turns: vec![AtomicU64::new(0), AtomicU64::new(0)], ..EventCounts::default() };
        assert!(!shared.is_hung());
        shared.turns[1].store(clock::now().0 + 60_000_000_000, Relaxed);
        assert!(!shared.is_hung());
        shared.turns[1].store(clock::now().0 - 1, Relaxed);
        assert!(shared.is_hung());
    }
}
