//! The dispatch probe's thread: waits for an interrupt, looks at the clock, counts how late it runs.
//!
//! In: a source of interrupts at known or regular moments. Out: the time from the moment for which an interrupt was
//! programmed to the first instruction of the process that waited for it, and where the kernel tells, its parts
//! ([`super::dispatch_parts`]).

use super::dispatch_parts::Parts;
use super::grid::{Arrival, Grid, Observed, Programmed};
use super::recorder::Recorder;
use super::{Failure, Usage, end_of};
use crate::layout::{Header, Lane};
use crate::spec::{ProbeKind, ProbeSpec};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use whylate_core::plan::DispatchSource;
use whylate_core::{MonoTime, Nanos};
use whylate_sys::interrupt_source::InterruptSource;
use whylate_sys::{clock, schedule, timer_file};

/// Something to wait for.
trait Source {
    /// Waits for the next interrupt.
    fn wait(&mut self, next_ns: u64) -> Arrival;
    /// Makes ready for the next one, after the clock was read.
    #[inline(always)]
    fn ready(&mut self) {}
}

/// A timer of the thread's own, programmed anew each time.
struct Sleep;

impl Source for Sleep {
    #[inline(always)]
    fn wait(&mut self, next_ns: u64) -> Arrival {
        clock::sleep_until(MonoTime(next_ns));
        Arrival::AsDue
    }
}

struct TimerFile(OwnedFd);

impl Source for TimerFile {
    #[inline(always)]
    fn wait(&mut self, _: u64) -> Arrival {
        counted(timer_file::wait_counted(&self.0))
    }
}

impl Source for InterruptSource {
    #[inline(always)]
    fn wait(&mut self, _: u64) -> Arrival {
        counted(Self::wait(self))
    }
    #[inline(always)]
    fn ready(&mut self) {
        self.enable_again();
    }
}

#[inline(always)]
fn counted(interrupts: u64) -> Arrival {
    if interrupts == 0 { Arrival::Nothing } else { Arrival::Counted(interrupts) }
}

/// Everything the thread needs while it measures.
pub(super) struct Dispatch<'a> {
    recorder: Recorder<'a>,
    parts: Option<Parts<'a>>,
    source: DispatchSource,
    interval: Nanos,
    warmup: Nanos,
    duration: Nanos,
}

impl<'a> Dispatch<'a> {
    pub(super) fn new(
        spec: &ProbeSpec,
        lane: Lane<'a>,
        header: Header<'a>,
        parts: Option<Parts<'a>>,
    ) -> Self {
        let (source, interval, break_above) = match spec.kind {
            ProbeKind::Dispatch { source, interval, break_above, .. } => (source, interval, break_above),
            _ => (DispatchSource::Timerfd, Nanos::from_millis(1), None),
        };
        Self {
            recorder: Recorder::new(lane, header, break_above, spec),
            parts,
            source,
            interval,
            warmup: spec.warmup,
            duration: spec.duration,
        }
    }

    /// Measures from `start` on; the warm-up lies before it.
    pub(super) fn measure(&mut self, start: MonoTime) -> Result<(), Failure> {
        let interval = self.interval.0;
        let first = start.0 - self.warmup.0 / interval * interval;
        let frequency = 1_000_000_000 / interval.max(1);
        let lacking = |error: io::Error| Failure::Unavailable(format!("dispatch: {}: {error}", self.source));
        match self.source {
            DispatchSource::Nanosleep => {
                self.both(&mut Sleep, Programmed::new(first, interval), start);
            }
            DispatchSource::Timerfd => {
                let timer = timer_file::start(MonoTime(first), self.interval).map_err(lacking)?;
                self.both(&mut TimerFile(timer), Programmed::new(first, interval), start);
            }
            DispatchSource::Rtc => {
                // The kernel starts the timer within the call: at most that much too late is what is measured.
                let before = clock::now().0;
                let mut clock = InterruptSource::rtc_periodic(frequency).map_err(lacking)?;
                self.both(&mut clock, Programmed::new(before + interval, interval), start);
            }
            DispatchSource::RtcUpdate => {
                let mut clock = InterruptSource::rtc_update().map_err(lacking)?;
                self.both(&mut clock, Observed::new(interval), start);
            }
            DispatchSource::Hpet => {
                let mut timer = InterruptSource::hpet(frequency).map_err(lacking)?;
                self.both(&mut timer, Observed::new(interval), start);
            }
            DispatchSource::Uio(number) => {
                let mut device = InterruptSource::uio(number).map_err(lacking)?;
                self.both(&mut device, Observed::new(interval), start);
            }
        }
        Ok(())
    }

    /// The warm-up, then the measurement.
    fn both<S: Source, G: Grid>(&mut self, source: &mut S, mut grid: G, start: MonoTime) {
        self.interrupts::<S, G, false>(source, &mut grid, start.0);
        let usage = Usage::begin();
        self.recorder.lane.begin().store(start.0, Relaxed);
        self.interrupts::<S, G, true>(source, &mut grid, end_of(start, self.duration).0);
        self.recorder.lane.end().store(clock::now().0, Relaxed);
        usage.end(&self.recorder.lane);
        // Before the source is closed: a PREEMPT_RT kernel handles the clock's timer in a thread of priority 1, which
        // this thread has just preempted in the middle of its work; closing the clock waits, in a busy loop of the
        // kernel, for that thread to be done.
        let _ = schedule::schedule_this_thread(schedule::Scheduling::Other);
    }

    /// Takes the interrupts until `end_ns`.
    #[inline(never)]
    fn interrupts<S: Source, G: Grid, const COUNTED: bool>(
        &mut self,
        source: &mut S,
        grid: &mut G,
        end_ns: u64,
    ) {
        let mut number = 0u64;
        let mut now = clock::now().0;
        while now < end_ns && grid.next_ns() < end_ns && !self.recorder.is_stopped() {
            let arrival = source.wait(grid.next_ns());
            now = clock::now().0;
            let steps = self.parts.as_mut().and_then(Parts::last);
            let Some(late) = grid.take(now, arrival) else { continue };
            source.ready();
            if COUNTED {
                if let (Some(parts), Some(steps)) = (&self.parts, steps) {
                    parts.count(steps, G::IS_PROGRAMMED.then(|| now - late.by_ns), now);
                }
                if self.recorder.count(now, late.by_ns, number) {
                    break;
                }
                if late.interrupts > 1 {
                    self.recorder.miss(late.interrupts - 1);
                }
            }
            number += late.interrupts;
        }
    }
}
