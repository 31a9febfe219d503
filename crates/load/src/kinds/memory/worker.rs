//! One thread of a memory load: pinned, with a buffer of its own, counting what it moves.

use super::MemorySpec;
use super::pace::Pacer;
use super::traffic::{Traffic, Way};
use crate::child::{LoadEvent, pin_to};
use crate::error::LoadError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::Duration;
use whylate_copy::Random;
use whylate_core::CpuId;
use whylate_host::HostRoot;
use whylate_sys::clock;
use whylate_sys::memory::Buffer;

/// The longest sleep without a look at the stop flag.
const SLEEP_NS_MAX: u64 = 20_000_000;

/// A counter on cache lines of its own (two, since x86 fetches them in pairs).
#[repr(align(128))]
#[derive(Debug, Default)]
struct PaddedCounter(AtomicU64);

/// What the workers and the reporting thread share.
#[derive(Debug)]
pub(crate) struct MemoryState {
    stop: AtomicBool,
    /// Index into `ways`: which one the workers use from their next turn on.
    way: AtomicUsize,
    ways: Vec<Way>,
    counters: Vec<PaddedCounter>,
}

impl MemoryState {
    pub(crate) fn new(ways: Vec<Way>, workers: usize) -> Self {
        let counters = (0..workers).map(|_| PaddedCounter::default()).collect();
        Self { stop: AtomicBool::new(false), way: AtomicUsize::new(0), ways, counters }
    }

    /// Bytes moved by all workers so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.counters.iter().map(|counter| counter.0.load(Relaxed)).sum()
    }

    pub(crate) fn ways(&self) -> &[Way] {
        &self.ways
    }

    pub(crate) fn way(&self) -> Way {
        self.ways[self.way.load(Relaxed)]
    }

    /// Changes the way; `index` is one of [`MemoryState::ways`].
    pub(crate) fn select(&self, index: usize) {
        self.way.store(index.min(self.ways.len() - 1), Relaxed);
    }

    /// Ends the workers, within the time of a turn or a sleep.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Relaxed);
    }
}

/// One thread.
pub(crate) struct MemoryWorker {
    pub(crate) cpu: CpuId,
    pub(crate) host: HostRoot,
    pub(crate) index: usize,
    pub(crate) spec: MemorySpec,
    pub(crate) shared: Arc<MemoryState>,
    /// Reports that the buffer is ready, or why there is none.
    pub(crate) sender: Sender<LoadEvent>,
    /// Allows the traffic to begin; closed if it must not.
    pub(crate) start: Receiver<()>,
}

impl MemoryWorker {
    /// The whole life of the thread.
    pub(crate) fn run(self) {
        if let Err(error) = self.prepare_and_move() {
            let _ = self.sender.send(LoadEvent::Failed(error));
        }
    }

    fn prepare_and_move(&self) -> Result<(), LoadError> {
        pin_to(&self.host, self.cpu)?;
        let spec = &self.spec;
        let bytes = spec.working_set.0 as usize;
        let mut buffer = Buffer::allocate(bytes, spec.huge_pages, spec.node)
            .map_err(|source| LoadError::Buffer { cpu: self.cpu, source })?;
        let huge_pages = buffer.huge_pages().clone();
        let mut random = Random::new(clock::now().0 ^ u64::from(self.cpu.0).rotate_left(32));
        // A specification that was checked has room for the walk.
        let Some(traffic) = Traffic::new(spec.access, &mut buffer, &mut random) else {
            return Err(LoadError::Worker { cpu: self.cpu });
        };
        let _ = self.sender.send(LoadEvent::Prepared(huge_pages));
        if self.start.recv().is_ok() {
            self.move_bytes(traffic);
        }
        Ok(())
    }

    /// Traffic, until the stop flag is set.
    fn move_bytes(&self, mut traffic: Traffic<'_>) {
        let counter = &self.shared.counters[self.index].0;
        let mut pacer = Pacer::new(self.spec.pace, self.shared.counters.len(), clock::now());
        let payload = match traffic {
            // A step may take 100 ns and counts 8 bytes: keeps the turn well below a millisecond.
            Traffic::Chase(_) => pacer.turn_bytes().min(16 << 10),
            _ => pacer.turn_bytes(),
        };
        let mut total = 0;
        while !self.shared.stop.load(Relaxed) {
            let moved = traffic.turn(self.shared.way(), payload);
            total += moved;
            counter.store(total, Relaxed);
            let mut pause = pacer.pause_ns(clock::now(), moved);
            while pause > 0 && !self.shared.stop.load(Relaxed) {
                let sleep = pause.min(SLEEP_NS_MAX);
                thread::sleep(Duration::from_nanos(sleep));
                pause -= sleep;
            }
        }
    }
}
