//! Samples of watched threads that run for longer than usual.
//!
//! The programs record for each CPU when the current run of its watched thread began, and how long such a run usually takes. The
//! sampling thread reads these records. When a run is late, it starts the clock of that CPU: each interrupt of the clock records the
//! watched thread's stack (`task_sample`), until the thread leaves the CPU. A clock that always runs, or one for each thread, would
//! take more time than all other programs together.
//!
//! Late runs are compared with ordinary ones. For that the clocks of the CPUs on which a thread was late also run for short times.

use crate::error::BpfError;
use crate::layout::{RUNS_SINCE_WORD, STATE_WORDS, USUAL_RUN_WORD};
use crate::object::Object;
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;
use whylate_core::{CpuId, CpuSet};
use whylate_sys::clock;
use whylate_sys::sample_clock::SampleClock;
use whylate_sys::schedule::{self, Scheduling};
use whylate_sys::shared::SharedWords;

const PROGRAM: &str = "task_sample";
const STATES: &str = "cpu_states";
/// From one sample to the next; in virtual machines, where an interrupt takes tens of microseconds.
const SAMPLE_EVERY_NS: u64 = 500_000;
const SAMPLE_EVERY_IN_GUESTS_NS: u64 = 1_000_000;
/// The first samples of a run are nearer by this factor, for this time: many late runs are hardly longer.
const FIRST_PART: u64 = 4;
const FIRST_NS: u64 = 1_000_000;
/// A shorter run is never late.
const SHORTEST_NS: u64 = 250_000;
/// The sampling thread looks for late runs this often.
const LOOK_NS: [u64; 2] = [500_000, 1_000_000];
/// The clock of a CPU pauses after this time.
const ENOUGH_NS: u64 = 100_000_000;
const PAUSE_NS: u64 = 1_000_000_000;

/// How long clocks run to sample ordinary runs, and how often: first each second, later less often. Where the limit is shorter, an
/// interrupt matters too much.
const ORDINARY_NS: u64 = 80_000_000;
const ORDINARY_EVERY_NS: u64 = 1_037_000_000;
const ORDINARY_LATER_NS: u64 = 16 * ORDINARY_EVERY_NS;
const ORDINARY_OFTEN: u32 = 30;
const ORDINARY_LIMIT_NS: u64 = 1_000_000;

/// Takes samples until it is dropped.
pub(super) struct Sampler {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Takes samples of threads that run without a sleep for longer than they usually do, and of all that do so for longer than
    /// `limit_ns`.
    ///
    /// # Errors
    /// When the kernel refuses the program.
    pub(super) fn start(
        object: &mut Object,
        cpus: &CpuSet,
        limit_ns: u64,
        is_guest: bool,
    ) -> Result<Self, BpfError> {
        let program = object.clock_program(PROGRAM)?;
        let most = cpus.iter().map(|cpu| cpu.0 as usize + 1).max().unwrap_or_default();
        let words = SharedWords::of_map(object.array_file(STATES)?, most * STATE_WORDS)
            .map_err(|error| BpfError::map(STATES, &error))?;
        let every_ns = if is_guest { SAMPLE_EVERY_IN_GUESTS_NS } else { SAMPLE_EVERY_NS };
        let mut clocks = Clocks {
            program,
            words,
            limit_ns,
            every_ns,
            cpus: cpus.clone(),
            clocks: BTreeMap::new(),
            ordinary: None,
            times: 0,
        };
        let is_over = Arc::new(AtomicBool::new(false));
        let stops = Arc::clone(&is_over);
        let every = Duration::from_nanos((limit_ns / 2).clamp(LOOK_NS[0], LOOK_NS[1]));
        let run = move || {
            // Where it would be behind the watched thread on its CPU, the scheduler has it run on another one at once.
            let _ = schedule::schedule_this_thread(Scheduling::Fifo(1));
            clocks.open();
            while !stops.load(Relaxed) {
                std::thread::sleep(every);
                clocks.look(clock::now().0);
            }
        };
        let thread = std::thread::Builder::new().name("whylate-samples".to_owned()).spawn(run);
        let thread = thread.map_err(|error| BpfError::program(PROGRAM, &error.to_string()))?;
        Ok(Self { is_over, thread: Some(thread) })
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Clocks {
    program: OwnedFd,
    words: SharedWords,
    limit_ns: u64,
    every_ns: u64,
    cpus: CpuSet,
    clocks: BTreeMap<CpuId, Clock>,
    /// From when to when ordinary runs are sampled: now or next.
    ordinary: Option<(u64, u64)>,
    times: u32,
}

struct Clock {
    /// `None` where the kernel gave none.
    clock: Option<SampleClock>,
    /// Since when it is on.
    on_ns: Option<u64>,
    paused_until_ns: u64,
    /// Whether its samples are as far from each other as after the first ones.
    is_slow: bool,
    /// Whether a thread was late on this CPU so far.
    was_late: bool,
}

impl Clocks {
    /// Opens all clocks before a thread is late: opening one takes so long that the samples of the first late run would be missing.
    fn open(&mut self) {
        for cpu in self.cpus.iter() {
            let clock = SampleClock::open(cpu, self.every_ns / FIRST_PART, self.program.as_fd()).ok();
            let clock = Clock { clock, on_ns: None, paused_until_ns: 0, is_slow: false, was_late: false };
            self.clocks.insert(cpu, clock);
        }
    }

    fn look(&mut self, now_ns: u64) {
        let is_ordinary = self.samples_ordinary(now_ns);
        for (cpu, clock) in &mut self.clocks {
            let word = |word: usize| self.words.words()[cpu.0 as usize * STATE_WORDS + word].load(Relaxed);
            let is_late = is_late(word(RUNS_SINCE_WORD), word(USUAL_RUN_WORD), self.limit_ns, now_ns);
            clock.was_late |= is_late;
            clock.turn(is_late, is_ordinary && clock.was_late, now_ns);
            clock.pace(self.every_ns, now_ns);
        }
    }

    /// Whether ordinary runs are sampled now.
    fn samples_ordinary(&mut self, now_ns: u64) -> bool {
        if self.limit_ns < ORDINARY_LIMIT_NS || !self.clocks.values().any(|clock| clock.was_late) {
            return false;
        }
        let (from_ns, to_ns) = *self.ordinary.get_or_insert((now_ns, now_ns + ORDINARY_NS));
        if now_ns >= to_ns {
            self.times += 1;
            let pause_ns = if self.times < ORDINARY_OFTEN { ORDINARY_EVERY_NS } else { ORDINARY_LATER_NS };
            let next_ns = now_ns + pause_ns - ORDINARY_NS;
            self.ordinary = Some((next_ns, next_ns + ORDINARY_NS));
        }
        (from_ns..to_ns).contains(&now_ns)
    }
}

impl Clock {
    fn turn(&mut self, is_late: bool, is_ordinary: bool, now_ns: u64) {
        let is_long = self.on_ns.is_some_and(|on_ns| now_ns > on_ns + ENOUGH_NS);
        if is_long {
            self.paused_until_ns = now_ns + PAUSE_NS;
        }
        let wanted = is_ordinary || is_late && now_ns >= self.paused_until_ns;
        let Some(clock) = self.clock.as_ref().filter(|_| wanted != self.on_ns.is_some()) else { return };
        // A CPU that has gone offline has no clock any more; it is tried again the next time.
        if clock.switch(wanted).is_ok() {
            self.on_ns = wanted.then_some(now_ns);
        } else {
            self.on_ns = None;
        }
    }

    /// Slows it down after the first samples, and makes it fast for the next time.
    fn pace(&mut self, every_ns: u64, now_ns: u64) {
        let is_slow = self.on_ns.is_some_and(|on_ns| now_ns >= on_ns + FIRST_NS);
        let Some(clock) = self.clock.as_ref().filter(|_| is_slow != self.is_slow) else { return };
        let period_ns = if is_slow { every_ns } else { every_ns / FIRST_PART };
        if clock.set_period(period_ns).is_ok() {
            self.is_slow = is_slow;
        }
    }
}

/// Whether a thread that runs since then, if any, and usually for so long, is late. A fifth of its runs are longer than usual, hardly any
/// by the half.
fn is_late(since_ns: u64, usual_ns: u64, limit_ns: u64, now_ns: u64) -> bool {
    let above_ns = if usual_ns == 0 { limit_ns } else { (usual_ns + usual_ns / 2).min(limit_ns) };
    since_ns > 0 && now_ns > since_ns + above_ns.max(SHORTEST_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_late_above_its_usual_run_and_above_the_limit() {
        let at = |since_ns, usual_ns, ran_ns| is_late(since_ns, usual_ns, 1_000_000, since_ns + ran_ns);
        assert!(!at(0, 0, 5_000_000), "no watched thread runs");
        assert!(!at(7, 0, 900_000) && at(7, 0, 1_000_001), "what it usually does is not known");
        assert!(at(7, 400_000, 600_001) && !at(7, 400_000, 600_000));
        assert!(at(7, 3_000_000, 1_000_001), "it is late above the limit, however long it usually runs");
        assert!(!at(7, 1_000, SHORTEST_NS));
    }
}
