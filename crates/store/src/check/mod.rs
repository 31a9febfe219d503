//! Whether the rows of a run agree with each other: a file can be whole although its content is impossible.
//!
//! The counts of an interval are read while the measuring thread goes on. What it counts meanwhile may be in the sum
//! and the maximum of one interval and in the histogram of the next. These values are therefore compared over
//! neighbours, and over a whole attempt.

mod series;

use crate::damage::Damage;
use crate::info::RunInfo;
use crate::manifest::Part;
use crate::reader::Segment;
use crate::tables::{RateKey, RowKey, Rows, Span};
use series::{Series, check_interval};
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;
use whylate_core::order::InOrder;
use whylate_core::record::{Interval, SpikeCauses};
use whylate_core::{CpuId, SeriesName, WarningCode};

/// Nothing that is counted happens more than once per nanosecond; the clocks of the counts are not read at the same
/// moment.
const SLACK_NS: u64 = 1_000_000_000;

/// The facts about a run's rows so far.
pub(crate) struct Check<'i> {
    /// The attempts that `run.json` knows.
    known: HashSet<(&'i str, u32, u32)>,
    series: HashMap<(Arc<RowKey>, CpuId), Series>,
}

impl<'i> Check<'i> {
    pub(crate) fn new(info: &'i RunInfo) -> Self {
        let known = info.executions.iter().map(|it| (it.cell.as_str(), it.repeat, it.attempt));
        Self { known: known.collect(), series: HashMap::new() }
    }

    /// Removes impossible rows from a segment and says why.
    pub(crate) fn segment(&mut self, segment: &mut Segment) {
        let mut found = Found::default();
        let rows = &mut segment.rows;
        for key in
            rows.retain_attempts(|(cell, repeat, attempt)| self.known.contains(&(cell, repeat, attempt)))
        {
            let RowKey { cell, repeat, attempt, .. } = &key;
            found.add(
                &key,
                true,
                format!("`run.json` lists no attempt {attempt} of cell `{cell}`, repeat {repeat}"),
            );
        }
        self.check_intervals(rows, segment.number, &mut found);
        self.check_spikes(rows, &mut found);
        check_other(rows, &mut found);
        segment.damages.extend(found.into_damage(segment.number));
    }

    fn check_intervals(&mut self, rows: &mut Rows, number: u32, found: &mut Found) {
        rows.intervals.retain(|(key, interval)| {
            let known = self.series.entry((Arc::clone(key), interval.cpu)).or_default();
            let checked = check_interval(interval).and_then(|checked| known.add(interval, &checked, number));
            checked.map_err(|reason| found.add(key, true, at(interval.cpu, &reason))).is_ok()
        });
    }

    /// A spike is a sample that was counted before it was recorded.
    fn check_spikes(&self, rows: &mut Rows, found: &mut Found) {
        let mut seen = HashSet::new();
        rows.spikes.retain(|(key, spike)| {
            let max_ns = self.series.get(&(Arc::clone(key), spike.cpu)).map_or(0, Series::max_ns);
            let reason = if spike.latency_ns > max_ns.saturating_add(max_ns / 64 + 1) {
                format!("a spike of {} ns is above the maximum of {max_ns} ns", spike.latency_ns)
            } else if !seen.insert((Arc::clone(key), spike.cpu, spike.at_ns, spike.sample)) {
                format!("the spike at {} ns appears twice", spike.at_ns)
            } else {
                return true;
            };
            found.add(key, true, at(spike.cpu, &reason));
            false
        });
    }

    /// The problems that only the end of the run reveals.
    pub(crate) fn finish(self) -> impl Iterator<Item = Damage> {
        let mut damages = Vec::new();
        for ((key, cpu), series) in &self.series {
            let facts = SeriesName::of(&key.probe).facts();
            if let Err((number, reason)) = series.finish(facts.is_some_and(|facts| facts.companion)) {
                let mut found = Found::default();
                found.add(key, true, at(*cpu, &reason));
                damages.extend(found.into_damage(number));
            }
        }
        damages.order_by(|a, b| a.warning.text.cmp(&b.warning.text));
        damages.into_iter()
    }
}

fn at(cpu: CpuId, reason: &str) -> String {
    format!("CPU {cpu}: {reason}")
}

fn check_other(rows: &mut Rows, found: &mut Found) {
    rows.causes.retain(|(key, spike)| keep(found, key, causes_problem(spike)));
    let mut seen = HashSet::new();
    rows.rates.retain(|(key, rate)| {
        let RateKey { cell, repeat, attempt, .. } = key.as_ref().clone();
        let is_possible = rate.value.is_finite() && rate.value >= 0.0 && rate.interval_ns <= rate.at_ns;
        let problem = if !is_possible {
            Some(format!("load `{}` has a rate of {} over {} ns", key.load, rate.value, rate.interval_ns))
        } else {
            twice(&mut seen, (Arc::clone(key), rate.at_ns))
                .map(|twice| format!("load `{}`: {twice}", key.load))
        };
        keep(found, &RowKey { cell, repeat, attempt, probe: String::new() }, problem)
    });
    let mut seen = HashSet::new();
    rows.interrupts.retain(|(key, row)| {
        let place = (Arc::clone(key), row.record.cpu, row.record.line.clone(), row.span.start_ns);
        let problem = count_problem(row.span, Some(row.record.count)).or_else(|| twice(&mut seen, place));
        keep(found, key, problem)
    });
    rows.ipis.retain(|(key, row)| keep(found, key, count_problem(row.span, Some(row.record.count))));
    rows.counters.retain(|(key, row)| keep(found, key, count_problem(row.span, row.record.steal_ns)));
}

/// Whether a row has no problem.
fn keep(found: &mut Found, key: &RowKey, problem: Option<String>) -> bool {
    problem.map(|reason| found.add(key, false, reason)).is_none()
}

fn twice<T: Eq + Hash>(seen: &mut HashSet<T>, place: T) -> Option<String> {
    (!seen.insert(place)).then(|| "a row appears twice".to_owned())
}

fn causes_problem(spike: &SpikeCauses) -> Option<String> {
    let is_share = |share: Option<f64>| share.is_none_or(|share| (0.0..=1.0).contains(&share));
    let is_possible = |cause: &whylate_core::result::Cause| {
        is_share(cause.share)
            && is_share(cause.confidence)
            && cause.from_ns.zip(cause.to_ns).is_none_or(|(from_ns, to_ns)| from_ns <= to_ns)
    };
    (!spike.causes.iter().all(is_possible))
        .then(|| format!("a cause of the spike at {} ns has an impossible share or time", spike.at_ns))
}

fn count_problem(span: Span, count: Option<u64>) -> Option<String> {
    let Some(length_ns) = span.end_ns.checked_sub(span.start_ns) else {
        return Some(format!("a row ends at {} ns, before it begins", span.end_ns));
    };
    let count = count.filter(|count| *count > length_ns.saturating_add(10 * SLACK_NS))?;
    Some(format!("a count of {count} is too large for {length_ns} ns"))
}

/// The impossible rows of a segment.
#[derive(Default)]
struct Found {
    count: usize,
    first: Option<String>,
    of: Vec<Part>,
    loses_samples: bool,
}

impl Found {
    fn add(&mut self, key: &RowKey, loses_samples: bool, reason: String) {
        self.count += 1;
        self.first.get_or_insert(reason);
        self.loses_samples |= loses_samples;
        let RowKey { cell, repeat, attempt, probe } = key.clone();
        let is_its = |part: &&mut Part| part.cell == cell && (part.repeat, part.attempt) == (repeat, attempt);
        match self.of.iter_mut().find(is_its) {
            Some(part) if probe.is_empty() || part.probes.contains(&probe) => {}
            Some(part) => part.probes.push(probe),
            None => {
                let probes = if probe.is_empty() { Vec::new() } else { vec![probe] };
                self.of.push(Part { cell, repeat, attempt, probes, ..Part::default() });
            }
        }
    }

    fn into_damage(self, number: u32) -> Option<Damage> {
        let Self { count, first, of, loses_samples } = self;
        let text = format!(
            "segment {number}: impossible rows: {count}; the first belongs to {}: {}",
            of.first()?,
            first.unwrap_or_default()
        );
        Some(Damage { of, loses_samples, ..Damage::of_run(WarningCode::ContradictoryRows, text) })
    }
}
