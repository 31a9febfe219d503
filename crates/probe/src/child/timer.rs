//! The timer probe's thread: sleep until the next period, look at the clock, count how late it is.
//!
//! What it measures: from the moment for which the wake-up was asked to the first instruction after the sleep, timer
//! interrupt, wake-up and context switch included. What it does not: the time in which periods were missed altogether
//! (they are counted as overruns; the correction for them is made afterwards).

use super::{Usage, end_of};
use crate::layout::{Header, Lane, RingRecord, add};
use crate::spec::{ProbeKind, ProbeSpec};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use whylate_core::plan::TimerMethod;
use whylate_core::{MonoTime, Nanos};
use whylate_sys::clock;
use whylate_sys::posix_timer::PosixTimer;
use whylate_sys::timer_file;
use whylate_sys::tracing::BreakTracing;

/// What wakes the thread.
trait Wake {
    /// Returns at `next` or later: one system call.
    fn wait_until(&mut self, next: MonoTime);
}

struct Sleep;
impl Wake for Sleep {
    #[inline(always)]
    fn wait_until(&mut self, next: MonoTime) {
        clock::sleep_until(next);
    }
}

struct TimerFile(OwnedFd);
impl Wake for TimerFile {
    #[inline(always)]
    fn wait_until(&mut self, _: MonoTime) {
        timer_file::wait(&self.0);
    }
}

impl Wake for PosixTimer {
    #[inline(always)]
    fn wait_until(&mut self, _: MonoTime) {
        self.wait();
    }
}

/// Everything the thread needs while it measures.
pub(super) struct Timer<'a> {
    lane: Lane<'a>,
    header: Header<'a>,
    interval: Nanos,
    /// By how much this CPU's periods begin later than the common start.
    offset: Nanos,
    method: TimerMethod,
    break_above_ns: u64,
    warmup: Nanos,
    duration: Nanos,
    samples_max: u64,
    tracing: Option<BreakTracing>,
}

impl<'a> Timer<'a> {
    pub(super) fn new(spec: &ProbeSpec, index: usize, lane: Lane<'a>, header: Header<'a>) -> Self {
        let (interval, distance, method, break_above) = match spec.kind {
            ProbeKind::Timer { interval, distance, method, break_above } => {
                (interval, distance, method, break_above)
            }
            ProbeKind::Stall { .. } => (Nanos::from_millis(1), Nanos(0), TimerMethod::Nanosleep, None),
        };
        Self {
            lane,
            header,
            interval,
            offset: Nanos(distance.0 * index as u64),
            method,
            break_above_ns: break_above.map_or(u64::MAX, |limit| limit.0),
            warmup: spec.warmup,
            duration: spec.duration,
            samples_max: spec.samples_max.unwrap_or(u64::MAX),
            tracing: break_above.and_then(|_| BreakTracing::open(spec.trace_folder.as_deref())),
        }
    }

    /// Measures from `start` on; the warm-up lies before it.
    pub(super) fn measure(&mut self, start: MonoTime) -> Result<(), String> {
        let start = MonoTime(start.0 + self.offset.0);
        let warm_periods = self.warmup.0 / self.interval.0;
        let first = MonoTime(start.0 - warm_periods * self.interval.0);
        match self.method {
            TimerMethod::Nanosleep => self.both(&mut Sleep, first, start),
            TimerMethod::Timerfd => {
                let timer =
                    timer_file::start(first, self.interval).map_err(|error| format!("timerfd: {error}"))?;
                self.both(&mut TimerFile(timer), first, start);
            }
            TimerMethod::PosixTimer => {
                let mut timer = PosixTimer::start(first, self.interval)
                    .map_err(|error| format!("POSIX timer: {error}"))?;
                self.both(&mut timer, first, start);
            }
        }
        Ok(())
    }

    /// The warm-up, then the measurement.
    fn both<W: Wake>(&mut self, wake: &mut W, first: MonoTime, start: MonoTime) {
        let next = self.periods::<W, false>(wake, first, start);
        let usage = Usage::begin();
        self.lane.begin().store(start.0, Relaxed);
        self.periods::<W, true>(wake, next, end_of(start, self.duration));
        self.lane.end().store(clock::now().0, Relaxed);
        usage.end(&self.lane);
    }

    /// Runs the periods that begin before `end`; returns the begin of the next one.
    #[inline(never)]
    fn periods<W: Wake, const COUNTED: bool>(
        &mut self,
        wake: &mut W,
        first: MonoTime,
        end: MonoTime,
    ) -> MonoTime {
        let interval = self.interval.0;
        let mut next = first.0;
        let mut period = 0u64;
        while next < end.0 {
            wake.wait_until(MonoTime(next));
            let now = clock::now().0;
            if now < next {
                // A signal, or an expiry of a periodic timer that was counted as missed already.
                continue;
            }
            let latency = now - next;
            if COUNTED && self.count(now, latency, period) {
                break;
            }
            next += interval;
            period += 1;
            if next <= now {
                let missed = (now - next) / interval + 1;
                next += missed * interval;
                period += missed;
                if COUNTED {
                    add(self.lane.overruns(), missed);
                }
            }
            if self.header.stop().load(Relaxed) != 0 {
                break;
            }
        }
        MonoTime(next)
    }

    /// Counts one sample; whether it was the last.
    #[inline(always)]
    fn count(&mut self, now: u64, latency: u64, period: u64) -> bool {
        let lane = &self.lane;
        lane.count_nanos(latency);
        if latency < lane.interval_min_ns().load(Relaxed) {
            lane.interval_min_ns().store(latency, Relaxed);
        }
        let samples = lane.samples().load(Relaxed) + 1;
        lane.samples().store(samples, Relaxed);
        if latency >= lane.floor().load(Relaxed) || latency > self.break_above_ns {
            lane.push(RingRecord { at: now, value: latency, sample: period });
        }
        if latency > self.break_above_ns {
            self.break_off(latency);
            return true;
        }
        samples >= self.samples_max
    }

    /// Stops tracing first, so that the trace ends with the spike, then everything else.
    #[cold]
    fn break_off(&mut self, latency: u64) {
        if let Some(tracing) = &mut self.tracing {
            let limit = self.break_above_ns;
            tracing.mark_and_stop(&format!("hit latency threshold ({latency} ns > {limit} ns)\n"));
        }
        self.header.broke_ns().store(latency, Relaxed);
        self.header.stop().store(1, Relaxed);
    }
}
