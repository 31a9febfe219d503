//! Counts how late a periodically woken task is, for the timer and the dispatch probe, and ends a measurement at the first
//! value above its break.

use crate::layout::{Header, add};
use crate::layout::{Lane, RingRecord};
use crate::spec::ProbeSpec;
use std::sync::atomic::Ordering::Relaxed;
use whylate_core::Nanos;
use whylate_sys::tracing::BreakTracing;

/// Where a thread's samples go, and when they end.
pub(crate) struct Recorder<'a> {
    pub(crate) lane: Lane<'a>,
    pub(crate) header: Header<'a>,
    break_off: BreakOff<'a>,
    samples_max: u64,
}

/// Ends everything at the first value above the break of a probe.
pub(crate) struct BreakOff<'a> {
    header: Header<'a>,
    /// The break; the largest number if there is none.
    pub(crate) above_ns: u64,
    tracing: Option<BreakTracing>,
}

impl<'a> BreakOff<'a> {
    pub(crate) fn new(header: Header<'a>, above: Option<Nanos>, spec: &ProbeSpec) -> Self {
        let tracing = above.and(spec.trace_folder.as_deref()).and_then(BreakTracing::open);
        Self { header, above_ns: above.map_or(u64::MAX, |limit| limit.0), tracing }
    }

    #[inline(always)]
    pub(crate) fn is_above(&self, value_ns: u64) -> bool {
        value_ns > self.above_ns
    }

    /// Stops tracing, so that the trace ends with the spike. This comes before the spike is reported: the reader of the
    /// report stops tracing too, and the trace would lack the marker.
    #[cold]
    pub(crate) fn mark(&mut self, value_ns: u64) {
        if let Some(tracing) = &mut self.tracing {
            let limit = self.above_ns;
            tracing.mark_and_stop(&format!("hit latency threshold ({value_ns} ns > {limit} ns)\n"));
        }
    }

    #[cold]
    pub(crate) fn now(&mut self, value_ns: u64) {
        self.header.broke_ns().store(value_ns, Relaxed);
        self.header.stop().store(1, Relaxed);
        // Only the first one counts, whatever follows before the loop checks.
        self.above_ns = u64::MAX;
    }
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
            break_off: BreakOff::new(header, break_above, spec),
            samples_max: spec.samples_max.unwrap_or(u64::MAX),
        }
    }

    /// Counts one sample; returns whether it was the last.
    #[inline(always)]
    pub(crate) fn count(&mut self, now: u64, latency: u64, period: u64) -> bool {
        let samples = self.lane.count_sample(latency);
        let is_broken = self.break_off.is_above(latency);
        if is_broken {
            self.break_off.mark(latency);
        }
        if latency >= self.lane.floor().load(Relaxed) || is_broken {
            self.lane.push(RingRecord { at: now, value: latency, sample: period });
        }
        if is_broken {
            self.break_off.now(latency);
            return true;
        }
        samples >= self.samples_max
    }

    #[inline(always)]
    pub(crate) fn miss(&self, periods: u64) {
        add(self.lane.overruns(), periods);
    }

    #[inline(always)]
    pub(crate) fn is_stopped(&self) -> bool {
        self.header.stop().load(Relaxed) != 0
    }
}
