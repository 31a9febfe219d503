//! Counts the latenesses of a task that is woken periodically, for the timer and the dispatch probe.

use crate::layout::{Header, add};
use crate::layout::{Lane, RingRecord};
use crate::spec::ProbeSpec;
use std::sync::atomic::Ordering::Relaxed;
use whylate_core::Nanos;
use whylate_sys::tracing::BreakTracing;

/// Where a thread's samples go, and when they shall end.
pub(crate) struct Recorder<'a> {
    pub(crate) lane: Lane<'a>,
    pub(crate) header: Header<'a>,
    break_above_ns: u64,
    samples_max: u64,
    tracing: Option<BreakTracing>,
}

impl<'a> Recorder<'a> {
    pub(crate) fn new(
        lane: Lane<'a>,
        header: Header<'a>,
        break_above: Option<Nanos>,
        spec: &ProbeSpec,
    ) -> Self {
        Self {
            lane,
            header,
            break_above_ns: break_above.map_or(u64::MAX, |limit| limit.0),
            samples_max: spec.samples_max.unwrap_or(u64::MAX),
            tracing: break_above.and_then(|_| BreakTracing::open(spec.trace_folder.as_deref())),
        }
    }

    /// Counts one sample; whether it was the last.
    #[inline(always)]
    pub(crate) fn count(&mut self, now: u64, latency: u64, period: u64) -> bool {
        let samples = self.lane.count_sample(latency);
        if latency >= self.lane.floor().load(Relaxed) || latency > self.break_above_ns {
            self.lane.push(RingRecord { at: now, value: latency, sample: period });
        }
        if latency > self.break_above_ns {
            self.break_off(latency);
            return true;
        }
        samples >= self.samples_max
    }

    /// Counts periods that were missed.
    #[inline(always)]
    pub(crate) fn miss(&self, periods: u64) {
        add(self.lane.overruns(), periods);
    }

    /// Whether the measurement shall end.
    #[inline(always)]
    pub(crate) fn is_stopped(&self) -> bool {
        self.header.stop().load(Relaxed) != 0
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
