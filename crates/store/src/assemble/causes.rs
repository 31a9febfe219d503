//! The causes of a cell's spikes, what took the time of its loops, and the interrupts that other CPUs sent to its
//! CPUs.

use super::Taken;
use super::cell::busiest_first;
use crate::tables::{NOISE_FLOOR, RowKey};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use whylate_core::CpuId;
use whylate_core::order::InOrder;
use whylate_core::quantity::{LOST_NS, THROTTLED};
use whylate_core::record::{HwlatRecord, IpiRecord, SourceRecord, SpikeCauses};
use whylate_core::result::{Cause, CauseKind, CpuResult, HwlatSample, Ledger, SourceResult, Spike};
use whylate_stats::summary::keep_first;

/// A probe with its series, and a CPU.
type Place = (String, CpuId);
/// What distinguishes interrupts: CPU, function, caller, CPU and thread that sent it.
type Sent = (CpuId, String, Option<String>, Option<CpuId>, Option<String>);

/// What distinguishes sources of gaps: kind, actor, function.
type Who = (CauseKind, Option<String>, Option<String>);

/// The data of one cell so far.
#[derive(Default)]
pub(super) struct Causes {
    /// By the moment at which the spike ended.
    explained: BTreeMap<Place, BTreeMap<u64, SpikeCauses>>,
    /// By the moment of the sample, which is that of its spike.
    hwlat: BTreeMap<Place, BTreeMap<u64, HwlatSample>>,
    ipis: BTreeMap<Sent, IpiRecord>,
    sources: BTreeMap<Place, BTreeMap<Who, SourceResult>>,
    /// By repeat.
    ledgers: BTreeMap<u32, Ledger>,
}

impl Causes {
    /// Takes the explanation of a spike.
    pub(super) fn add(&mut self, key: &RowKey, spike: SpikeCauses, spikes_kept: usize) -> Taken {
        let known = self.explained.entry((key.probe.clone(), spike.cpu)).or_default();
        known.insert(spike.at_ns, spike);
        keep_largest(known, spikes_kept, |spike| spike.latency_ns);
        Ok(())
    }

    /// Takes a sample of the hwlat tracer; the number kept is the same as for explanations.
    pub(super) fn add_hwlat(&mut self, key: &RowKey, record: HwlatRecord, spikes_kept: usize) -> Taken {
        let HwlatRecord { cpu, at_ns, sample } = record;
        let known = self.hwlat.entry((key.probe.clone(), cpu)).or_default();
        known.insert(at_ns, sample);
        keep_largest(known, spikes_kept, |sample| sample.inner_ns.max(sample.outer_ns));
        Ok(())
    }

    /// Takes interrupts that other CPUs sent.
    pub(super) fn add_ipi(&mut self, key: &RowKey, record: IpiRecord) -> Taken {
        if !key.is_noise_floor() {
            let IpiRecord { cpu, function, caller, from_cpu, from_task, count, .. } = record.clone();
            let sent = (cpu, function, caller, from_cpu, from_task);
            let total = self.ipis.entry(sent).or_insert(IpiRecord { count: 0, ..record });
            total.count = total.count.saturating_add(count);
        }
        Ok(())
    }

    /// Takes the time that a source took from a loop.
    pub(super) fn add_source(&mut self, key: &RowKey, record: SourceRecord) -> Taken {
        if key.is_noise_floor() {
            return Ok(());
        }
        self.ledgers.entry(key.repeat).or_default().add(&key.probe, &record);
        let SourceRecord { cpu, kind, actor, function, gaps, total_ns, max_ns } = record;
        let of_place = self.sources.entry((key.probe.clone(), cpu)).or_default();
        let new = || SourceResult {
            kind,
            actor: actor.clone(),
            function: function.clone(),
            ..SourceResult::default()
        };
        let total = of_place.entry((kind, actor.clone(), function.clone())).or_insert_with(new);
        total.gaps = total.gaps.saturating_add(gaps);
        total.total_ns = total.total_ns.saturating_add(total_ns);
        total.max_ns = total.max_ns.max(max_ns);
        Ok(())
    }

    /// What took the time that a probe lost on a CPU, largest first. Time without a known source is `unattributed`,
    /// except the time that the scheduler is known to have taken. Empty if sources were not recorded.
    pub(super) fn take_sources(&mut self, probe: &str, result: &CpuResult) -> Vec<SourceResult> {
        let Some(mut sources) = self.sources.remove(&(probe.to_owned(), result.cpu)) else {
            return Vec::new();
        };
        let of_kind = |kind: CauseKind| (kind, None, None);
        let take = |sources: &mut BTreeMap<Who, SourceResult>, kind| SourceResult {
            kind,
            ..sources.remove(&of_kind(kind)).unwrap_or_default()
        };
        let mut open = take(&mut sources, CauseKind::Unattributed);
        let known_ns = sources.values().map(|source| source.total_ns).fold(0, u64::saturating_add);
        open.total_ns = open.total_ns.max(result.get(LOST_NS).unwrap_or(0).saturating_sub(known_ns));
        let mut taken = take(&mut sources, CauseKind::Throttled);
        let throttled = result.get(THROTTLED).unwrap_or_default();
        let moved_ns = throttled.lost_ns.saturating_sub(taken.total_ns).min(open.total_ns);
        if moved_ns > 0 {
            taken.total_ns += moved_ns;
            taken.gaps = taken.gaps.max(throttled.gaps);
            // The largest gap is at least as long as the mean.
            taken.max_ns = taken.max_ns.max(taken.total_ns.div_ceil(taken.gaps.max(1)));
            open.total_ns -= moved_ns;
            open.gaps = open.gaps.saturating_sub(throttled.gaps);
            open.max_ns = open.max_ns.min(throttled.other_max_ns);
        }
        let both = [open, taken].into_iter().filter(|source| source.total_ns > 0);
        sources.extend(both.map(|source| (of_kind(source.kind), source)));
        let mut sources: Vec<SourceResult> = sources.into_values().collect();
        for source in &mut sources {
            source.mean_ns = source.total_ns as f64 / source.gaps.max(1) as f64;
        }
        sources.order_by_key(|source| Reverse(source.total_ns));
        sources
    }

    /// The ledgers of the repeats.
    pub(super) fn take_ledgers(&mut self) -> BTreeMap<u32, Ledger> {
        std::mem::take(&mut self.ledgers)
    }

    /// The cause of a series' gap that ended at a moment, if it is known.
    pub(super) fn of(&self, probe: &str, cpu: CpuId) -> impl Fn(u64) -> Option<CauseKind> + use<'_> {
        let known = self.explained.get(&(probe.to_owned(), cpu));
        move |at_ns| {
            let kind = known?.get(&at_ns)?.causes.first()?.kind;
            (kind != CauseKind::Unattributed).then_some(kind)
        }
    }

    /// Puts the causes into the spikes that were explained.
    pub(super) fn label(&self, spikes: &mut [Spike]) {
        for spike in spikes {
            let place = spike.probe.clone().map(|probe| (probe, spike.cpu));
            let Some(place) = place else { continue };
            spike.hwlat = self.hwlat.get(&place).and_then(|known| known.get(&spike.at_ns)).copied();
            let explained = self.explained.get(&place).and_then(|known| known.get(&spike.at_ns));
            if let Some(explained) = explained {
                spike.explain(explained.clone());
            }
        }
    }

    /// The main cause of the noise-floor check's longest gap, which was `max_ns` long.
    pub(super) fn of_noise_floor(&self, max_ns: u64) -> Option<Cause> {
        let of_check = self.explained.iter().filter(|((probe, _), _)| probe == NOISE_FLOOR);
        let mut gaps = of_check.flat_map(|(_, known)| known.values());
        let cause = gaps.find(|gap| gap.latency_ns == max_ns)?.causes.first()?;
        (cause.kind != CauseKind::Unattributed).then(|| cause.clone())
    }

    /// The interrupts, CPU by CPU, the most frequent first.
    pub(super) fn into_ipis(self) -> Vec<IpiRecord> {
        busiest_first(self.ipis, |it| (it.cpu, it.count))
    }
}

/// When a CPU has four times the number of spikes that a result has, the smaller half is discarded.
fn keep_largest<V>(known: &mut BTreeMap<u64, V>, spikes_kept: usize, latency_ns: impl Fn(&V) -> u64) {
    if known.len() > 4 * spikes_kept {
        keep_first(known, 2 * spikes_kept, |at_ns, spike| (Reverse(latency_ns(spike)), *at_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::quantity::Quantities;
    use whylate_core::result::ThrottledGaps;
    use whylate_stats::summary::SPIKES_KEPT;

    const KEPT_MAX: usize = 4 * SPIKES_KEPT;

    #[test]
    fn time_taken_by_the_scheduler_is_a_separate_source_and_all_sources_add_up() {
        let mut causes = Causes::default();
        let key = RowKey { cell: "idle".into(), repeat: 1, attempt: 1, probe: "stall".into() };
        let source = SourceRecord { kind: CauseKind::Irq, gaps: 10, total_ns: 1_000, ..Default::default() };
        causes.add_source(&key, source).unwrap();
        let throttled = ThrottledGaps { gaps: 2, lost_ns: 7_000, other_max_ns: 500 };
        let quantities = Quantities::default().with(LOST_NS, 10_000).with(THROTTLED, throttled);
        let result = CpuResult { quantities, ..CpuResult::default() };
        let found = causes.take_sources("stall", &result);
        let taken: Vec<_> = found.iter().map(|source| (source.kind, source.gaps, source.total_ns)).collect();
        let expected = [
            (CauseKind::Throttled, 2, 7_000),
            (CauseKind::Unattributed, 0, 2_000),
            (CauseKind::Irq, 10, 1_000),
        ];
        assert_eq!(taken, expected);
        assert_eq!(found[0].max_ns, 3_500, "at least the mean");
    }

    #[test]
    fn the_largest_gap_of_the_noise_floor_has_its_cause() {
        let mut causes = Causes::default();
        let mut add = |probe: &str, at_ns: u64, latency_ns: u64, kind: CauseKind| {
            let key = RowKey { cell: "idle".into(), repeat: 1, attempt: 1, probe: probe.into() };
            let spike =
                SpikeCauses { at_ns, latency_ns, causes: vec![Cause::new(kind)], ..SpikeCauses::default() };
            causes.add(&key, spike, SPIKES_KEPT).unwrap();
        };
        add("stall", 1, 900, CauseKind::Irq);
        add(NOISE_FLOOR, 2, 900, CauseKind::Thread);
        add(NOISE_FLOOR, 3, 700, CauseKind::Unattributed);
        let kind = |max_ns| causes.of_noise_floor(max_ns).map(|cause| cause.kind);
        assert_eq!([900, 700, 800].map(kind), [Some(CauseKind::Thread), None, None]);
    }

    #[test]
    fn explanations_of_the_largest_spikes_are_kept() {
        let mut causes = Causes::default();
        let key = RowKey { cell: "idle".into(), repeat: 1, attempt: 1, probe: "timer".into() };
        for at_ns in 0..10_000 {
            let latency_ns = at_ns * 7_919 % 10_007;
            causes
                .add(&key, SpikeCauses { at_ns, latency_ns, ..SpikeCauses::default() }, SPIKES_KEPT)
                .unwrap();
        }
        let known = &causes.explained[&("timer".to_owned(), CpuId(0))];
        assert!(known.len() <= KEPT_MAX);
        let mut largest: Vec<u64> = (0..10_000u64).map(|at_ns| at_ns * 7_919 % 10_007).collect();
        largest.sort_unstable_by_key(|latency_ns| Reverse(*latency_ns));
        for latency_ns in &largest[..SPIKES_KEPT] {
            assert!(known.values().any(|spike| spike.latency_ns == *latency_ns), "{latency_ns}");
        }
    }

    #[test]
    fn among_equal_spikes_the_ones_in_a_result_are_kept() {
        let mut causes = Causes::default();
        let key = RowKey { cell: "idle".into(), repeat: 1, attempt: 1, probe: "timer".into() };
        // A throttled task sees hundreds of spikes of the same length.
        for at_ns in (0..1_000).rev() {
            let spike = SpikeCauses { at_ns, latency_ns: 50_000_000, ..SpikeCauses::default() };
            causes.add(&key, spike, SPIKES_KEPT).unwrap();
        }
        let known = &causes.explained[&("timer".to_owned(), CpuId(0))];
        assert!((KEPT_MAX / 2..=KEPT_MAX).contains(&known.len()), "{}", known.len());
        assert!((0..SPIKES_KEPT as u64).all(|at_ns| known.contains_key(&at_ns)), "ties are kept by time");
    }
}
