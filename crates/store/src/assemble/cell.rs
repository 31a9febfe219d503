//! The sums over the rows of one cell.

use super::Taken;
use super::causes::Causes;
use super::chains::ChainSums;
use super::hours::Hours;
use super::noise::NoiseData;
use super::shape::Shapes;
use super::triggers::Triggers;
use crate::info::RunInfo;
use crate::latency_records::Line;
use crate::tables::{RateKey, RowKey};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use whylate_core::order::InOrder;
use whylate_core::quantity::{AUDIT, LOST_NS, MAX_RECORD, OVERRUNS, SOURCES, TASK, THROTTLED, WAKEUPS_SEEN};
use whylate_core::record::{
    CounterRecord, GpuRecord, InterruptRecord, Interval, OwnRecord, RateRecord, SpikeCauses, SpikeRecord,
    TaskRecord,
};
use whylate_core::result::{
    AuditRecord, CellResult, ChainPath, ChainRecord, CpuResult, GpuResult, LateResponses, LateSum,
    LatencyRecord, Ledger, ProbeResult, RateResult, RepeatProbe, RepeatResult, Spike, ThrottledGaps,
    TriggerMoment, TriggerRecord,
};
use whylate_core::{CpuId, Nanos, SeriesName};
use whylate_stats::throttling::{Circumstances, Gaps, Throttling};
use whylate_stats::{Summary, join_parts, largest_of_each, number_events, repeat_probe};

/// A series on a CPU, in the order in which results list them: position in the plan, position among the cell's series
/// (a part comes after its whole), name, CPU.
type Place = (usize, usize, String, CpuId);

/// The data of one cell so far.
#[derive(Default)]
pub(super) struct CellData {
    /// Each probe on each CPU, over all repeats.
    probes: BTreeMap<Place, Summary>,
    /// The same for each repeat on its own.
    repeats: BTreeMap<(u32, Place), Summary>,
    /// Gaps of each probe that never sleeps, by CPU.
    gaps: BTreeMap<(String, CpuId), Gaps>,
    /// Names of the series in the order of their arrival.
    names: Vec<String>,
    /// The kernel's counts for each probe on each CPU.
    counters: BTreeMap<(String, CpuId), CounterRecord>,
    /// By load; the means are added at the end.
    rates: BTreeMap<String, RateResult>,
    /// By device and quantity; the means are added at the end.
    gpus: BTreeMap<(String, String), GpuResult>,
    /// Start and end of each probe in each repeat.
    spans: BTreeMap<(String, u32), (u64, u64)>,
    interrupts: BTreeMap<(CpuId, String), InterruptRecord>,
    /// Which task had the largest latency of each of the kernel's histograms.
    latency_records: BTreeMap<(CpuId, &'static str), LatencyRecord>,
    /// Facts about watched threads, by series.
    tasks: BTreeMap<(String, CpuId), TaskRecord>,
    /// What audits found, of each thread.
    audit: BTreeMap<(String, CpuId), Vec<AuditRecord>>,
    /// How many runs a thread had in each repeat.
    audited_runs: BTreeMap<(String, CpuId, u32), u64>,
    triggers: Triggers,
    chains: ChainSums,
    pub(super) causes: Causes,
    hours: Hours,
    /// The explained responses that missed their deadline, by series.
    late: BTreeMap<String, LateSum>,
    /// What the hypervisor and the firmware took of the samples of a series, by repeat.
    own: BTreeMap<(u32, String, CpuId), Vec<OwnRecord>>,
    noise: NoiseData,
}

impl CellData {
    pub(super) fn add_interval(&mut self, key: &RowKey, interval: &Interval, shapes: &Shapes) -> Taken {
        if key.is_noise_floor() {
            self.noise.add_interval(interval);
            return Ok(());
        }
        let first = (interval.start_ns, interval.end_ns);
        let probe = SeriesName::of(&key.probe).probe.to_owned();
        let (start_ns, end_ns) = self.spans.entry((probe, key.repeat)).or_insert(first);
        (*start_ns, *end_ns) = ((*start_ns).min(first.0), (*end_ns).max(first.1));
        let (whole, repeat) = self.summaries(key, interval.cpu, shapes)?;
        whole.add_interval(interval, Some(key.repeat)).map_err(|error| error.to_string())?;
        repeat.add_interval(interval, Some(key.repeat)).map_err(|error| error.to_string())
    }

    /// Takes the explanation of a spike.
    pub(super) fn add_causes(&mut self, key: &RowKey, explained: SpikeCauses, shapes: &Shapes) -> Taken {
        let name = SeriesName::of(&key.probe);
        if name.is_of_user() && name.part.is_none() {
            // Intervals arrive before the causes of their time.
            let span = self.spans.get(&(name.probe.to_owned(), key.repeat));
            self.hours.add(name.probe, &key.probe, span.map_or(0, |span| span.0), &explained);
            if shapes.deadline_of(name).is_some_and(|deadline| explained.latency_ns > deadline.0) {
                let mut spike = Spike::unexplained(explained.cpu, explained.at_ns, explained.latency_ns);
                spike.explain(explained.clone());
                self.late.entry(key.probe.clone()).or_default().add(&spike);
            }
        }
        self.causes.add(key, explained, shapes.spikes_kept_of(name))
    }

    pub(super) fn add_spike(&mut self, key: &RowKey, spike: &SpikeRecord, shapes: &Shapes) -> Taken {
        if key.is_noise_floor() {
            return Ok(());
        }
        if SeriesName::of(&key.probe).facts().is_some_and(|facts| facts.counts_turns) {
            let gaps = self.gaps.entry((key.probe.clone(), spike.cpu)).or_default();
            gaps.add(key.repeat, spike.at_ns, spike.latency_ns, &shapes.scheduler);
        }
        let (whole, _) = self.summaries(key, spike.cpu, shapes)?;
        whole.add_spike(spike, Some(key.repeat)).map_err(|error| error.to_string())
    }

    /// The summaries of a probe on a CPU: over all repeats, and of this one.
    fn summaries(
        &mut self,
        key: &RowKey,
        cpu: CpuId,
        shapes: &Shapes,
    ) -> Result<(&mut Summary, &mut Summary), String> {
        let name = SeriesName::of(&key.probe);
        let shape =
            shapes.shape(name, cpu).ok_or_else(|| format!("this version knows no probe `{}`", key.probe))?;
        let nth = self.names.iter().position(|known| *known == key.probe).unwrap_or_else(|| {
            self.names.push(key.probe.clone());
            self.names.len() - 1
        });
        let place = (shapes.position(name), nth, key.probe.clone(), cpu);
        // A repeat keeps only figures: no spikes, and one point of the timeline.
        let new = || Summary::new(cpu, shape).of_series(name).with_spikes_kept(shapes.spikes_kept_of(name));
        let brief = || new().with_spikes_kept(0).with_timeline_points_max(1);
        let repeat = self.repeats.entry((key.repeat, place.clone())).or_insert_with(brief);
        Ok((self.probes.entry(place).or_insert_with(new), repeat))
    }

    pub(super) fn add_rate(&mut self, key: &RateKey, rate: RateRecord) -> Taken {
        if !rate.value.is_finite() {
            return Err(format!("a rate of `{}` is {}", key.load, rate.value));
        }
        let RateKey { load, unit, .. } = key.clone();
        let new = || RateResult { load, unit, mean: 0.0, series: Vec::new() };
        self.rates.entry(key.load.clone()).or_insert_with(new).series.push(rate);
        Ok(())
    }

    pub(super) fn add_gpu(&mut self, record: GpuRecord) -> Taken {
        let GpuRecord { device, quantity, at_ns, interval_ns, value } = record;
        if !value.is_finite() {
            return Err(format!("`{quantity}` of `{device}` is {value}"));
        }
        let new = || GpuResult { device: device.clone(), quantity: quantity.clone(), ..GpuResult::default() };
        let result = self.gpus.entry((device.clone(), quantity.clone())).or_insert_with(new);
        result.max = if result.series.is_empty() { value } else { result.max.max(value) };
        result.series.push(RateRecord { at_ns, interval_ns, value });
        Ok(())
    }

    pub(super) fn add_interrupt(&mut self, key: &RowKey, record: InterruptRecord) -> Taken {
        if !key.is_noise_floor() {
            let (place, count) = ((record.cpu, record.line.clone()), record.count);
            let total = self.interrupts.entry(place).or_insert(InterruptRecord { count: 0, ..record });
            total.count = total.count.saturating_add(count);
        }
        Ok(())
    }

    pub(super) fn add_task(&mut self, key: &RowKey, record: TaskRecord) -> Taken {
        self.tasks.entry((key.probe.clone(), record.cpu)).or_default().add(record);
        Ok(())
    }

    pub(super) fn add_audit(&mut self, key: &RowKey, record: AuditRecord) -> Taken {
        let runs = self.audited_runs.entry((key.probe.clone(), record.cpu, key.repeat)).or_default();
        *runs = record.of_runs.max(*runs);
        let found = self.audit.entry((key.probe.clone(), record.cpu)).or_default();
        match found.iter_mut().find(|known| known.identity() == record.identity()) {
            Some(known) => known.add(record),
            None => found.push(record),
        }
        Ok(())
    }

    pub(super) fn add_trigger(&mut self, key: &RowKey, record: &TriggerRecord) -> Taken {
        self.triggers.add(&key.probe, key.repeat, record);
        Ok(())
    }

    pub(super) fn add_moment(&mut self, key: &RowKey, moment: TriggerMoment) -> Taken {
        self.triggers.add_moment(&key.probe, moment);
        Ok(())
    }

    pub(super) fn add_chain(&mut self, key: &RowKey, record: &ChainRecord) -> Taken {
        self.chains.add(&key.probe, record);
        Ok(())
    }

    pub(super) fn add_path(&mut self, key: &RowKey, path: ChainPath) -> Taken {
        self.chains.add_path(&key.probe, path);
        Ok(())
    }

    pub(super) fn add_own(&mut self, key: &RowKey, record: OwnRecord) -> Taken {
        if !key.is_noise_floor() {
            self.own.entry((key.repeat, key.probe.clone(), record.cpu)).or_default().push(record);
        }
        Ok(())
    }

    /// The records of all repeats of a series on a CPU; `None` if they are missing for one repeat.
    fn own_of(&self, series: &str, cpu: CpuId) -> Option<Vec<OwnRecord>> {
        let is_its = |place: &&(u32, Place)| place.1.2 == series && place.1.3 == cpu;
        let of_repeat =
            |(repeat, _): &(u32, Place)| self.own.get(&(*repeat, series.to_owned(), cpu)).cloned();
        let all: Option<Vec<_>> = self.repeats.keys().filter(is_its).map(of_repeat).collect();
        all.map(Vec::into_iter).map(|all| all.flatten().collect())
    }

    pub(super) fn add_latency_record(&mut self, line: Line) -> Taken {
        let Line { cpu, kind, record, .. } = line;
        let known = self.latency_records.entry((cpu, kind.name())).or_insert_with(|| record.clone());
        if known.latency_ns < record.latency_ns {
            *known = record;
        }
        Ok(())
    }

    pub(super) fn add_counters(&mut self, key: &RowKey, record: &CounterRecord) -> Taken {
        let new = || CounterRecord { cpu: record.cpu, ..CounterRecord::default() };
        let total = match key.is_noise_floor() {
            true => &mut self.noise.counters,
            false => self.counters.entry((key.probe.clone(), record.cpu)).or_insert_with(new),
        };
        // A count that is missing in every repeat is missing in the cell.
        let add = |total: &mut Option<u64>, count: Option<u64>| {
            if let Some(count) = count {
                *total = Some(total.unwrap_or(0).saturating_add(count));
            }
        };
        add(&mut total.steal_ns, record.steal_ns);
        add(&mut total.smis, record.smis);
        add(&mut total.involuntary_switches, record.involuntary_switches);
        add(&mut total.page_faults, record.page_faults);
        add(&mut total.wakeups_seen, record.wakeups_seen);
        Ok(())
    }

    /// The kernel's counts, CPU by CPU.
    pub(super) fn counters(&self) -> Vec<CounterRecord> {
        self.counters.values().cloned().collect()
    }

    /// A sum over all probes and CPUs; absent if nothing was counted.
    fn counted(&self, of: impl Fn(&CounterRecord) -> Option<u64>) -> Option<u64> {
        self.counters.values().filter_map(of).reduce(u64::saturating_add)
    }

    /// The figures. `begun` are the repeats that have begun, without figures; `loads` are the names of the cell's
    /// loads, in order; `shown` is [`Self::shown`] of all cells. The caller fills in the names of the cell, its loads
    /// and its treatments.
    pub(super) fn finish(
        mut self,
        begun: impl Iterator<Item = RepeatResult>,
        info: &RunInfo,
        shapes: &Shapes,
        loads: &[String],
        shown: &BTreeSet<(String, CpuId)>,
    ) -> CellResult {
        let throttled = self.throttled(info, shapes, shown);
        let mut probes = self.finish_probes(shapes, &throttled);
        let (steal_ns, smis) = (self.counted(|it| it.steal_ns), self.counted(|it| it.smis));
        let rates = finish_rates(self.rates, loads);
        for probe in &mut probes {
            let spans = self.spans.iter().filter(|((name, _), _)| *name == probe.probe);
            probe.rates = rates_within(&rates, &spans.map(|(_, span)| *span).collect::<Vec<_>>());
        }
        let spikes = probes.iter().flat_map(|probe| probe.spikes.iter().cloned());
        let mut spikes = largest_of_each(spikes, shapes.spikes_kept);
        number_events(&mut spikes);
        let floor_cause = self.noise.max_ns().and_then(|max_ns| self.causes.of_noise_floor(max_ns));
        let mut ledgers = self.causes.take_ledgers();
        let spike = info.plan.spikes_above();
        let mut repeats = finish_repeats(self.repeats, self.own, begun, &throttled, spike);
        for repeat in &mut repeats {
            self.triggers.rate(repeat);
            repeat.ledger = ledgers.remove(&repeat.repeat).unwrap_or_default().finish();
        }
        CellResult {
            spikes,
            ledger: Ledger::sum(repeats.iter().filter(|it| it.error.is_none()).flat_map(|it| &it.ledger)),
            ipis: self.causes.into_ipis(),
            probes,
            repeats,
            rates,
            gpus: finish_gpus(self.gpus),
            interrupts: busiest_first(self.interrupts, |it| (it.cpu, it.count)),
            steal_ns,
            smis,
            noise_floor: self.noise.finish(info.noise_floor_threshold_ns, floor_cause),
            ..CellResult::default()
        }
    }

    /// The series and CPUs whose gaps show that the scheduler makes them.
    pub(super) fn shown(&self, info: &RunInfo, shapes: &Shapes) -> BTreeSet<(String, CpuId)> {
        let shows = |((name, cpu), gaps): &(&(String, CpuId), &Gaps)| {
            gaps.show(&self.circumstances(name, *cpu, info, shapes), &self.causes.of(name, *cpu))
        };
        self.gaps.iter().filter(shows).map(|(place, _)| place.clone()).collect()
    }

    /// The time that the scheduler took from each probe on each CPU.
    fn throttled(&mut self, info: &RunInfo, shapes: &Shapes, shown: &BTreeSet<(String, CpuId)>) -> Throttled {
        let gaps = std::mem::take(&mut self.gaps);
        let of_place = |((name, cpu), gaps): ((String, CpuId), Gaps)| {
            let circumstances = self.circumstances(&name, cpu, info, shapes);
            let place = (name, cpu);
            let found = gaps.finish(&circumstances, shown.contains(&place), &self.causes.of(&place.0, cpu));
            (place, found)
        };
        gaps.into_iter().map(of_place).collect()
    }

    fn circumstances(&self, name: &str, cpu: CpuId, info: &RunInfo, shapes: &Shapes) -> Circumstances {
        let series = SeriesName::of(name);
        let counters = self.counters.get(&(series.probe.to_owned(), cpu));
        let mut summaries = self.probes.iter().filter(|((_, _, known, on), _)| known == name && *on == cpu);
        Circumstances {
            measured: summaries.next().map(|(_, summary)| summary.measured()).unwrap_or_default(),
            realtime: shapes.is_realtime(series, cpu, info),
            involuntary_switches: counters.and_then(|counters| counters.involuntary_switches),
            ..shapes.scheduler
        }
    }

    fn finish_probes(&mut self, shapes: &Shapes, throttled: &Throttled) -> Vec<ProbeResult> {
        let mut probes: Vec<ProbeResult> = Vec::new();
        let mut results: Vec<(String, CpuResult)> = Vec::new();
        for ((_, _, full_name, cpu), summary) in std::mem::take(&mut self.probes) {
            let name = SeriesName::of(&full_name);
            let (mut result, mut spikes) = summary.with_own(self.own_of(&full_name, cpu)).finish();
            let own = throttled.get(&(full_name.clone(), cpu));
            let throttled = own.and_then(|own| all_repeats(own, &result));
            result.quantities.set(THROTTLED, throttled);
            if name.facts().is_some_and(|facts| facts.keeps_largest) {
                let series = result.series.as_deref().unwrap_or_default();
                let record = self.latency_records.get(&(cpu, series)).cloned();
                result.quantities.set(MAX_RECORD, record);
            }
            let counters = self.counters.get(&(name.probe.to_owned(), cpu));
            result.quantities.set(WAKEUPS_SEEN, counters.and_then(|counters| counters.wakeups_seen));
            let found = self.audit.remove(&(full_name.clone(), cpu));
            let runs =
                self.audited_runs.range((full_name.clone(), cpu, 0)..=(full_name.clone(), cpu, u32::MAX));
            let of_runs = runs.map(|(_, runs)| runs).sum();
            result.quantities.set(AUDIT, found.map(|found| worst_first(found, of_runs)));
            result.quantities.set(TASK, self.tasks.remove(&(full_name.clone(), cpu)));
            if result.get(LOST_NS).is_some() {
                let sources = self.causes.take_sources(&full_name, &result);
                result.quantities.set(SOURCES, Some(sources).filter(|all| !all.is_empty()));
            }
            self.causes.label(&mut spikes);
            own.into_iter().for_each(|own| own.label(&mut spikes));
            match probes.iter_mut().find(|known| known.probe == name.probe) {
                Some(known) => known.spikes.extend(spikes),
                None => {
                    let probe = name.probe.to_owned();
                    probes.push(ProbeResult { probe, spikes, ..ProbeResult::default() });
                }
            }
            results.push((full_name, result));
        }
        for probe in &mut probes {
            probe.cpus =
                join_parts(results.extract_if(.., |(name, _)| SeriesName::of(name).probe == probe.probe));
            let kept = shapes.spikes_kept_in(&probe.probe);
            probe.spikes = largest_of_each(std::mem::take(&mut probe.spikes), kept);
            number_events(&mut probe.spikes);
            probe.hours = self.hours.take(&probe.probe);
            probe.late_responses = late_responses(&mut self.late, probe);
            let spans = self.spans.iter().filter(|((name, _), _)| *name == probe.probe);
            let measured_ns = spans.map(|(_, (start_ns, end_ns))| end_ns.saturating_sub(*start_ns)).sum();
            probe.triggers = self.triggers.take(&probe.probe, measured_ns);
            probe.chains = self.chains.take(&probe.probe, measured_ns, &probe.cpus);
        }
        probes
    }
}

/// The late responses of the series of a probe by cause.
fn late_responses(sums: &mut BTreeMap<String, LateSum>, probe: &ProbeResult) -> Vec<LateResponses> {
    let of_series = |(name, sum): (String, LateSum)| {
        let is_it = |cpu: &&CpuResult| cpu.series.as_deref() == SeriesName::of(&name).series;
        let late = probe.cpus.iter().filter(is_it).filter_map(|cpu| cpu.get(OVERRUNS)).sum();
        LateResponses::new(name, late, sum)
    };
    sums.extract_if(.., |name, _| SeriesName::of(name).probe == probe.probe).map(of_series).collect()
}

type Throttled = BTreeMap<(String, CpuId), Throttling>;

/// The time that the scheduler took in all repeats; the largest other gap may come from a repeat without throttling.
fn all_repeats(own: &Throttling, result: &CpuResult) -> Option<ThrottledGaps> {
    let without = |repeat: Option<u32>| repeat.is_some_and(|repeat| own.of_repeat(repeat).is_none());
    let others =
        result.timeline.iter().filter(|point| without(point.repeat)).filter_map(|point| point.max_ns);
    own.total().map(|sum| ThrottledGaps { other_max_ns: others.fold(sum.other_max_ns, u64::max), ..sum })
}

/// Each repeat that has begun, even without data.
/// Findings that are not allowed come first, then those that took the longest.
fn worst_first(mut found: Vec<AuditRecord>, of_runs: u64) -> Vec<AuditRecord> {
    found.iter_mut().for_each(|one| one.of_runs = of_runs);
    found.order_by_key(|one| (one.allowed, Reverse(one.longest_ns), Reverse(one.count)));
    found
}

fn finish_repeats(
    summaries: BTreeMap<(u32, Place), Summary>,
    mut own: BTreeMap<(u32, String, CpuId), Vec<OwnRecord>>,
    begun: impl Iterator<Item = RepeatResult>,
    throttled: &Throttled,
    spike: Nanos,
) -> Vec<RepeatResult> {
    let mut probes: BTreeMap<u32, Vec<RepeatProbe>> = BTreeMap::new();
    for ((repeat, (_, _, full_name, cpu)), summary) in summaries {
        let name = SeriesName::of(&full_name);
        if name.part.is_none() {
            let own = own.remove(&(repeat, full_name.clone(), cpu));
            let mut result = summary.with_own(own).finish().0;
            let own = throttled.get(&(full_name.clone(), cpu)).and_then(|own| own.of_repeat(repeat));
            result.quantities.set(THROTTLED, own);
            probes.entry(repeat).or_default().push(repeat_probe(name, &result, spike));
        }
    }
    begun
        .map(|repeat| RepeatResult { probes: probes.remove(&repeat.repeat).unwrap_or_default(), ..repeat })
        .collect()
}

/// The mean of a rate, with each record weighted by a time; `None` when the times are 0.
fn mean(rate: &RateResult, time: impl Fn(&RateRecord) -> u64) -> Option<f64> {
    let total: f64 = rate.series.iter().map(|record| time(record) as f64).sum();
    let amount: f64 = rate.series.iter().map(|record| record.value * time(record) as f64).sum();
    (total > 0.0).then(|| amount / total)
}

/// In the order of the cell's loads.
fn finish_rates(rates: BTreeMap<String, RateResult>, loads: &[String]) -> Vec<RateResult> {
    let mut rates: Vec<RateResult> = rates.into_values().collect();
    for rate in &mut rates {
        rate.mean = mean(rate, |record| record.interval_ns).unwrap_or(0.0);
    }
    rates.order_by_key(|rate| loads.iter().position(|load| *load == rate.load).unwrap_or(loads.len()));
    rates
}

fn finish_gpus(gpus: BTreeMap<(String, String), GpuResult>) -> Vec<GpuResult> {
    let mut gpus: Vec<GpuResult> = gpus.into_values().collect();
    for gpu in &mut gpus {
        gpu.mean = gpu.series.iter().map(|record| record.value).sum::<f64>() / gpu.series.len() as f64;
    }
    gpus
}

/// The mean of each load over the given spans of time; a rate that lies partly inside counts by that part.
fn rates_within(rates: &[RateResult], spans: &[(u64, u64)]) -> Vec<RateResult> {
    let overlap = |rate: &RateRecord| -> u64 {
        let start_ns = rate.at_ns.saturating_sub(rate.interval_ns);
        let inside = |&(from, to): &(u64, u64)| to.min(rate.at_ns).saturating_sub(from.max(start_ns));
        spans.iter().map(inside).fold(0, u64::saturating_add)
    };
    let within = |rate: &RateResult| {
        let (load, unit) = (rate.load.clone(), rate.unit.clone());
        Some(RateResult { load, mean: mean(rate, overlap)?, unit, series: Vec::new() })
    };
    rates.iter().filter_map(within).collect()
}

/// Records CPU by CPU, the largest count first. `order` gives CPU and count.
pub(super) fn busiest_first<K, R>(records: BTreeMap<K, R>, order: impl Fn(&R) -> (CpuId, u64)) -> Vec<R> {
    let mut records: Vec<R> = records.into_values().collect();
    records.order_by_key(|record| {
        let (cpu, count) = order(record);
        (cpu, Reverse(count))
    });
    records
}
