//! The noise-floor check of a cell: the stall probe without load, next to the cell.

use std::collections::BTreeMap;
use whylate_core::CpuId;
use whylate_core::quantity::GAPS;
use whylate_core::record::{CounterRecord, Interval};
use whylate_core::result::{Cause, NoiseFloor};

/// The data of the check so far.
#[derive(Default)]
pub(super) struct NoiseData {
    /// How long each CPU was measured.
    durations: BTreeMap<CpuId, u64>,
    gaps: u64,
    max_ns: Option<u64>,
    /// The kernel's counts on all CPUs.
    pub(super) counters: CounterRecord,
}

impl NoiseData {
    pub(super) fn add_interval(&mut self, interval: &Interval) {
        let duration_ns = self.durations.entry(interval.cpu).or_default();
        *duration_ns = duration_ns.saturating_add(interval.end_ns.saturating_sub(interval.start_ns));
        if let Some(gaps) = interval.quantities.get(GAPS).filter(|gaps| *gaps > 0) {
            self.gaps = self.gaps.saturating_add(gaps);
            self.max_ns = self.max_ns.max(interval.max_ns);
        }
    }

    /// Its largest gap.
    pub(super) fn max_ns(&self) -> Option<u64> {
        self.max_ns
    }

    /// `None` if there was no check, or if its threshold is unknown. `cause` is that of the largest gap.
    pub(super) fn finish(&self, threshold_ns: Option<u64>, cause: Option<Cause>) -> Option<NoiseFloor> {
        Some(NoiseFloor {
            // The CPUs are measured at the same time.
            duration_ns: self.durations.values().copied().max()?,
            gaps: self.gaps,
            threshold_ns: threshold_ns?,
            max_ns: self.max_ns,
            steal_ns: self.counters.steal_ns,
            cause,
        })
    }
}
