//! The histograms probe: reads what the kernel counts at each stored interval, while other probes measure.

use super::{Kind, Place, Resolve};
use crate::error::ProbeError;
use crate::measure::{Batch, Elsewhere, Measuring, Observer, Outcome};
use std::collections::BTreeMap;
use std::time::Duration;
use whylate_bpf::{HistogramsConfig, HistogramsSnapshot, TaskFilter};
use whylate_core::plan::HistogramsPlan;
use whylate_core::record::Interval;
use whylate_core::result::{HistogramKind, KernelHistogram};
use whylate_core::{CpuId, Nanos, Warning, WarningCode};
use whylate_record::RecordError;
use whylate_record::histograms::LatencyHistograms;
use whylate_sys::clock;

/// How often the trace buffer, the clock and the observer are checked.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Resolve<HistogramsPlan> for HistogramsPlan {
    fn resolve(plan: &Self, _: &mut Place<'_>) -> Result<Self, ProbeError> {
        Ok(plan.clone())
    }
}

impl Kind for HistogramsPlan {
    fn name(&self) -> &'static str {
        "histograms"
    }

    fn series(&self) -> Vec<Option<String>> {
        self.kinds.iter().map(|kind| Some(kind.name().to_owned())).collect()
    }

    fn measure(&self, of: &Measuring<'_>, observer: &mut dyn Observer) -> Result<Outcome, ProbeError> {
        measure(self, of, observer)
    }
}

/// Counts until the duration is over or the observer ends it. A machine that cannot count them lacks only the histograms:
/// that is a warning.
fn measure(
    plan: &HistogramsPlan,
    of: &Measuring<'_>,
    observer: &mut dyn Observer,
) -> Result<Outcome, ProbeError> {
    let Measuring { host, spec, stored, .. } = *of;
    let _elsewhere = Elsewhere::move_to(&host.running, &spec.other_cpus);
    let config = HistogramsConfig {
        cpus: spec.cpus.clone(),
        kinds: plan.kinds.clone(),
        priority_min: plan.priority_min,
        priority_max: plan.priority_max,
        task: plan.task.clone().map(TaskFilter::Command),
    };
    let (histograms, warnings) = match LatencyHistograms::start(&host.settings, &config, plan.source, false) {
        Ok(started) => started,
        Err(error) => return Ok(Outcome { warnings: vec![not_counted(&error)], ..Outcome::default() }),
    };
    let start_ns = clock::now().0;
    observer.armed(std::process::id(), start_ns);
    let mut counting = Counting { histograms, before: BTreeMap::new(), start_ns, lost: 0 };
    let counted = counting.follow(spec.duration, stored, observer);
    let Counting { histograms, lost, .. } = counting;
    let ended = histograms.finish();
    let mut outcome = Outcome { warnings, stopped: counted?, broke: None };
    ended.map_err(|error| failed(&error))?;
    if lost > 0 {
        let text = format!(
            "in one repeat of a cell, {lost} wake-ups or events were lost and are missing from the kernel's histograms"
        );
        outcome.warnings.push(Warning::new(WarningCode::HistogramsLost, text));
    }
    Ok(outcome)
}

fn not_counted(error: &RecordError) -> Warning {
    Warning::new(WarningCode::NoHistograms, format!("the kernel's histograms are not available: {error}"))
}

fn failed(error: &RecordError) -> ProbeError {
    ProbeError::Failed(format!("histograms: {error}"))
}

/// What a histogram held when it was read last.
#[derive(Clone, Debug, Default)]
struct Before {
    samples: u64,
    sum_ns: u64,
    max_ns: u64,
    min_ns: Option<u64>,
    buckets: BTreeMap<u64, u64>,
}

struct Counting {
    histograms: LatencyHistograms,
    before: BTreeMap<(CpuId, HistogramKind), Before>,
    start_ns: u64,
    lost: u64,
}

impl Counting {
    /// Hands over each interval; whether it was ended early.
    fn follow(
        &mut self,
        duration: Nanos,
        stored: Nanos,
        observer: &mut dyn Observer,
    ) -> Result<bool, ProbeError> {
        let begin_ns = self.start_ns;
        let end_ns = begin_ns.saturating_add(duration.0);
        loop {
            std::thread::sleep(LOOK_EVERY);
            self.histograms.poll().map_err(|error| failed(&error))?;
            let now_ns = clock::now().0;
            let stopped = observer.should_stop();
            if stopped || now_ns >= end_ns || now_ns >= self.start_ns.saturating_add(stored.0) {
                let batch = self.batch(now_ns)?;
                observer.batch(batch).map_err(ProbeError::Observer)?;
            }
            if stopped || now_ns >= end_ns {
                return Ok(stopped);
            }
        }
    }

    fn batch(&mut self, now_ns: u64) -> Result<Batch, ProbeError> {
        let HistogramsSnapshot { cpus, counts } = self.histograms.read().map_err(|error| failed(&error))?;
        self.lost = counts.lost;
        let mut records = Vec::new();
        let mut intervals = Vec::new();
        for (cpu, one) in cpus.iter().flat_map(|cpu| cpu.histograms.iter().map(move |one| (cpu.cpu, one))) {
            let before = self.before.entry((cpu, one.kind)).or_default();
            let interval = difference(cpu, one, before, (self.start_ns, now_ns));
            let is_new = interval.max_ns.is_some_and(|max_ns| max_ns > before.max_ns);
            records.extend(one.max_record.clone().filter(|_| is_new).map(|record| (cpu, one.kind, record)));
            intervals.push(interval);
            *before = held(one);
        }
        let batch = Batch {
            start_ns: self.start_ns,
            end_ns: now_ns,
            intervals,
            latency_records: records,
            ..Batch::default()
        };
        self.start_ns = now_ns;
        Ok(batch)
    }
}

fn sum_of(one: &KernelHistogram) -> u64 {
    one.quantiles.as_ref().map_or(0, |figures| (figures.mean_ns * one.samples as f64).round() as u64)
}

fn held(one: &KernelHistogram) -> Before {
    Before {
        samples: one.samples,
        sum_ns: sum_of(one),
        max_ns: one.quantiles.as_ref().map_or(0, |figures| figures.max_ns),
        min_ns: one.quantiles.as_ref().map(|figures| figures.min_ns),
        buckets: one.histogram.iter().copied().collect(),
    }
}

/// What came since the histogram was last read. New extremes are exact; otherwise they are the lower edges of their buckets,
/// but never below the smallest value ever counted.
fn difference(cpu: CpuId, one: &KernelHistogram, before: &Before, span: (u64, u64)) -> Interval {
    let histogram: Vec<(u64, u64)> = one
        .histogram
        .iter()
        .map(|(edge, count)| (*edge, count - before.buckets.get(edge).copied().unwrap_or(0)))
        .filter(|(_, count)| *count > 0)
        .collect();
    let figures = one.quantiles.as_ref();
    let new_max = figures.map(|figures| figures.max_ns).filter(|max_ns| *max_ns > before.max_ns);
    let new_min = figures
        .map(|figures| figures.min_ns)
        .filter(|min_ns| before.min_ns.is_none_or(|before_ns| *min_ns < before_ns));
    let edge = |row: Option<&(u64, u64)>| row.map(|(edge, _)| *edge);
    let ever_ns = figures.map_or(0, |figures| figures.min_ns);
    let smallest = edge(histogram.first()).map(|edge| edge.max(ever_ns));
    let largest = edge(histogram.last()).map(|edge| edge.max(ever_ns));
    let is_empty = histogram.is_empty();
    Interval {
        cpu,
        start_ns: span.0,
        end_ns: span.1,
        series: Some(one.kind.name().to_owned()),
        samples: one.samples - before.samples,
        sum_ns: sum_of(one).saturating_sub(before.sum_ns),
        min_ns: new_min.or(smallest).filter(|_| !is_empty),
        max_ns: new_max.or(largest).filter(|_| !is_empty),
        histogram,
        ..Interval::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_stats::Histogram;

    fn histogram(values: &[u64]) -> KernelHistogram {
        let mut counted = Histogram::new();
        values.iter().for_each(|value| counted.record(*value));
        KernelHistogram {
            kind: HistogramKind::Wakeup,
            samples: counted.count(),
            quantiles: counted.quantiles(),
            max_record: None,
            histogram: counted.buckets().collect(),
        }
    }

    #[test]
    fn intervals_add_up_to_the_whole_with_exact_extremes() {
        let values = [5_001, 70_003, 1_207, 9_000_017, 333_333];
        let mut before = Before::default();
        let mut whole = Histogram::new();
        for end in 1..=values.len() {
            let now = histogram(&values[..end]);
            let interval = difference(CpuId(0), &now, &before, (end as u64, end as u64 + 1));
            assert_eq!((interval.samples, interval.sum_ns), (1, values[end - 1]));
            whole.merge(&Histogram::from_interval(&interval).unwrap());
            before = held(&now);
        }
        assert_eq!((whole.min(), whole.max()), (Some(1_207), Some(9_000_017)));
        assert_eq!(whole.count(), 5);
        let nothing = difference(CpuId(0), &histogram(&values), &before, (9, 10));
        assert_eq!((nothing.samples, nothing.min_ns, nothing.max_ns), (0, None, None));
    }

    #[test]
    fn values_of_one_bucket_are_never_below_the_smallest_of_all() {
        let values = [1_000_050, 1_000_060, 1_000_055];
        let mut before = Before::default();
        let mut extremes = Vec::new();
        for end in 1..=values.len() {
            let now = histogram(&values[..end]);
            assert_eq!(now.histogram.len(), 1, "one bucket");
            let interval = difference(CpuId(0), &now, &before, (0, 1));
            extremes.push((interval.min_ns.unwrap(), interval.max_ns.unwrap()));
            before = held(&now);
        }
        assert_eq!(extremes, [(1_000_050, 1_000_050), (1_000_050, 1_000_060), (1_000_050, 1_000_050)]);
    }
}
