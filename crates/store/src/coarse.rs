//! Makes older rows coarser. A run with limited disk space keeps every sample, in longer intervals, and the largest
//! spikes of each of these.
//!
//! In: the rows of one merged segment. Out: the same counts, sums and extremes over intervals eight times as long.

use crate::tables::{Keyed, RowKey, Rows, Span, Spanned};
use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use whylate_core::CpuId;
use whylate_core::order::InOrder;
use whylate_core::record::{Interval, SourceRecord, SpikeRecord, TaskRecord};
use whylate_core::result::{AuditRecord, ChainPath, ChainRecord, TriggerMoment, TriggerRecord};

/// The number of shortest intervals that become one.
const FACTOR: u64 = 8;
/// The most spikes of each series that stay in each of the longer intervals.
const SPIKES_KEPT: usize = 20;

/// A merged segment and the number of times it was made coarser.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Merged {
    pub(crate) segment: u32,
    pub(crate) bytes: u64,
    pub(crate) level: u32,
    /// When its last interval ended.
    pub(crate) end_ns: u64,
}

impl Merged {
    /// A segment with these rows, as they were measured.
    pub(crate) fn new(segment: u32, bytes: u64, rows: &Rows) -> Self {
        let end_ns = rows.intervals.iter().map(|(_, one)| one.end_ns).max().unwrap_or(0);
        Self { segment, bytes, level: 0, end_ns }
    }
}

/// How much of a run stays as measured; all of it by default. The rest is made coarser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keeping {
    /// Bytes that its tables may take.
    pub bytes: Option<u64>,
    /// Nanoseconds for which an interval stays unchanged; after each doubling of that time it is made coarser once
    /// more.
    pub whole_ns: Option<u64>,
}

/// The disk space that a run may take, and what was lost for it.
#[derive(Debug, Default)]
pub(crate) struct Room {
    pub(crate) keeping: Keeping,
    pub(crate) merged: Vec<Merged>,
    /// Bytes of the segments that are not merged yet.
    pub(crate) single: u64,
    pub(crate) coarser: u64,
    pub(crate) spikes: u64,
}

/// Further levels bring nothing: an interval would be longer than days.
const LEVELS_MAX: u32 = 4;

impl Room {
    /// Adds a segment that holds all single ones so far.
    pub(crate) fn add(&mut self, merged: Merged) {
        self.merged.push(merged);
        self.single = 0;
    }

    /// The next segment to make coarser: one that is too old to stay unchanged; otherwise, if there is too little
    /// room, the oldest of the least coarse ones. The newest stays unchanged.
    pub(crate) fn next(&self) -> Option<usize> {
        let now_ns = self.merged.last()?.end_ns;
        let older = self.merged.len().saturating_sub(1);
        let candidates =
            || self.merged.iter().enumerate().take(older).filter(|(_, one)| one.level < LEVELS_MAX);
        let is_old = |one: &Merged| one.level < self.level_at(now_ns.saturating_sub(one.end_ns));
        let old = candidates().find(|(_, one)| is_old(one));
        let least = || candidates().min_by_key(|(nth, one)| (one.level, *nth)).filter(|_| self.is_full());
        old.or_else(least).map(|(nth, _)| nth)
    }

    /// How often rows of that age are made coarser.
    fn level_at(&self, age_ns: u64) -> u32 {
        let times = self.keeping.whole_ns.and_then(|whole_ns| age_ns.checked_div(whole_ns)).unwrap_or(0);
        times.checked_ilog2().map_or(0, |doublings| (doublings + 1).min(LEVELS_MAX))
    }

    fn is_full(&self) -> bool {
        let all = self.single + self.merged.iter().map(|one| one.bytes).sum::<u64>();
        self.keeping.bytes.is_some_and(|most| all > most)
    }

    /// The cost, in words for the user; `None` if nothing was lost.
    pub(crate) fn cost(&self) -> Option<String> {
        let spikes = match self.spikes {
            0 => String::new(),
            spikes => {
                format!(", and {spikes} of their spikes are left out ({SPIKES_KEPT} of each series are kept)")
            }
        };
        let more = if self.is_full() { "; the run still takes more space than allowed" } else { "" };
        (self.coarser > 0)
            .then(|| format!("up to {FACTOR} older intervals at a time were merged into one{spikes}{more}"))
    }
}

/// The same rows in longer intervals, and how many spikes were left out.
pub(crate) fn coarser(rows: Rows) -> (Rows, u64) {
    let lengths = rows.intervals.iter().map(|(_, one)| one.end_ns.saturating_sub(one.start_ns));
    let longest_ns = lengths.filter(|length_ns| *length_ns > 0).max().unwrap_or(1).saturating_mul(FACTOR);
    let begin_ns = rows.intervals.iter().map(|(_, one)| one.start_ns).min().unwrap_or(0);
    let window = |at_ns: u64| at_ns.saturating_sub(begin_ns) / longest_ns;
    let before = rows.spikes.len();
    let spikes = largest(rows.spikes, &window);
    let kept: BTreeSet<(Arc<RowKey>, CpuId, u64)> =
        spikes.iter().map(|(key, spike)| (Arc::clone(key), spike.cpu, spike.at_ns)).collect();
    let mut causes = rows.causes;
    causes.retain(|(key, one)| kept.contains(&(Arc::clone(key), one.cpu, one.at_ns)));
    let left_out = (before - spikes.len()) as u64;
    let intervals = longer(rows.intervals, &window);
    let tasks = alike(rows.tasks, &window, |task| task.thread, TaskRecord::add);
    let source = |it: &SourceRecord| (it.cpu, it.kind.name(), it.actor.clone(), it.function.clone());
    let sources = alike(rows.sources, &window, source, |sum, later| add_source(sum, &later));
    let found = |it: &AuditRecord| (it.cpu, it.kind, it.call.clone(), it.object.clone());
    let audit = alike(rows.audit, &window, found, AuditRecord::add);
    let triggers = alike(
        rows.triggers,
        &window,
        |it| it.trigger.clone(),
        |sum: &mut TriggerRecord, later| sum.add(&later),
    );
    let moments = newest(rows.moments, &window);
    let chains =
        alike(rows.chains, &window, |it| it.name.clone(), |sum: &mut ChainRecord, later| sum.add(&later));
    let paths = longest(rows.paths, &window);
    let rows =
        Rows { intervals, tasks, sources, audit, triggers, moments, chains, paths, spikes, causes, ..rows };
    (rows, left_out)
}

/// Joins intervals of the same series that follow each other without a gap.
fn longer(
    mut intervals: Vec<Keyed<Interval, RowKey>>,
    window: &dyn Fn(u64) -> u64,
) -> Vec<Keyed<Interval, RowKey>> {
    intervals.order_by(|(a_key, a), (b_key, b)| (a_key, a.cpu, a.start_ns).cmp(&(b_key, b.cpu, b.start_ns)));
    let mut joined: Vec<Keyed<Interval, RowKey>> = Vec::new();
    for (key, next) in intervals {
        match joined.last_mut() {
            Some((known, last))
                if *known == key
                    && (last.cpu, &last.series) == (next.cpu, &next.series)
                    && last.quantities.can_join(&next.quantities)
                    && last.end_ns == next.start_ns
                    && window(last.start_ns) == window(next.start_ns) =>
            {
                join(last, next);
            }
            _ => joined.push((key, next)),
        }
    }
    // Readers expect them in the order of measurement.
    joined.order_by_key(|(_, one)| one.end_ns);
    joined
}

fn join(one: &mut Interval, next: Interval) {
    one.end_ns = next.end_ns;
    one.samples = one.samples.saturating_add(next.samples);
    one.sum_ns = one.sum_ns.saturating_add(next.sum_ns);
    one.min_ns = [one.min_ns, next.min_ns].into_iter().flatten().min();
    one.max_ns = one.max_ns.max(next.max_ns);
    one.quantities.merge(&next.quantities);
    one.spikes_dropped = one.spikes_dropped.saturating_add(next.spikes_dropped);
    let mut counts: BTreeMap<u64, u64> = one.histogram.iter().copied().collect();
    for (lower_ns, count) in next.histogram {
        let known = counts.entry(lower_ns).or_default();
        *known = known.saturating_add(count);
    }
    one.histogram = counts.into_iter().collect();
}

/// Joins the rows of a series that are alike, in each window.
fn alike<R, I: Ord>(
    rows: Vec<Keyed<Spanned<R>, RowKey>>,
    window: &dyn Fn(u64) -> u64,
    identity: impl Fn(&R) -> I,
    add: impl Fn(&mut R, R),
) -> Vec<Keyed<Spanned<R>, RowKey>> {
    let mut joined: BTreeMap<(u64, Arc<RowKey>, I), Spanned<R>> = BTreeMap::new();
    for (key, row) in rows {
        match joined.entry((window(row.span.start_ns), key, identity(&row.record))) {
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                known.span = around(known.span, row.span);
                add(&mut known.record, row.record);
            }
            Entry::Vacant(place) => drop(place.insert(row)),
        }
    }
    joined.into_iter().map(|((_, key, _), row)| (key, row)).collect()
}

fn add_source(sum: &mut SourceRecord, later: &SourceRecord) {
    sum.gaps = sum.gaps.saturating_add(later.gaps);
    sum.total_ns = sum.total_ns.saturating_add(later.total_ns);
    sum.max_ns = sum.max_ns.max(later.max_ns);
}

fn around(one: Span, other: Span) -> Span {
    Span { start_ns: one.start_ns.min(other.start_ns), end_ns: one.end_ns.max(other.end_ns) }
}

/// The newest moments of each trigger in each window, in the order of time.
fn newest(
    mut moments: Vec<Keyed<TriggerMoment, RowKey>>,
    window: &dyn Fn(u64) -> u64,
) -> Vec<Keyed<TriggerMoment, RowKey>> {
    moments.order_by_key(|(_, moment)| Reverse(moment.at_ns));
    let mut numbers: BTreeMap<(u64, Arc<RowKey>, String), usize> = BTreeMap::new();
    moments.retain(|(key, moment)| {
        let place = (window(moment.at_ns), Arc::clone(key), moment.trigger.clone());
        let number = numbers.entry(place).or_default();
        *number += 1;
        *number <= SPIKES_KEPT
    });
    moments.reverse();
    moments
}

/// The longest explained instances of each chain in each window, in the order of time.
fn longest(
    mut paths: Vec<Keyed<ChainPath, RowKey>>,
    window: &dyn Fn(u64) -> u64,
) -> Vec<Keyed<ChainPath, RowKey>> {
    paths.order_by_key(|(_, path)| Reverse(path.latency_ns));
    let mut numbers: BTreeMap<(u64, Arc<RowKey>, String), usize> = BTreeMap::new();
    paths.retain(|(key, path)| {
        let number = numbers.entry((window(path.at_ns), Arc::clone(key), path.name.clone())).or_default();
        *number += 1;
        *number <= SPIKES_KEPT
    });
    paths.order_by_key(|(_, path)| path.at_ns);
    paths
}

/// The largest rows of each series in each window, in the order of time.
fn largest(
    mut spikes: Vec<Keyed<SpikeRecord, RowKey>>,
    window: &dyn Fn(u64) -> u64,
) -> Vec<Keyed<SpikeRecord, RowKey>> {
    spikes.order_by_key(|(_, spike)| Reverse(spike.latency_ns));
    let mut numbers: BTreeMap<(u64, Arc<RowKey>), usize> = BTreeMap::new();
    spikes.retain(|(key, spike)| {
        let number = numbers.entry((window(spike.at_ns), Arc::clone(key))).or_default();
        *number += 1;
        *number <= SPIKES_KEPT
    });
    spikes.order_by_key(|(_, spike)| spike.at_ns);
    spikes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_made_coarser_once_more_with_each_doubling_of_their_age() {
        let whole = |whole_ns| Room { keeping: Keeping { bytes: None, whole_ns }, ..Room::default() };
        let levels = |room: &Room| [0, 9, 10, 19, 20, 40, 79, 80, 10_000].map(|age_ns| room.level_at(age_ns));
        assert_eq!(levels(&whole(Some(10))), [0, 0, 1, 1, 2, 3, 3, 4, 4]);
        assert_eq!(levels(&whole(None)), [0; 9]);
        let merged = |end_ns, level| Merged { segment: 1, bytes: 1, level, end_ns };
        let mut room = whole(Some(10));
        room.merged = vec![merged(5, 1), merged(14, 0), merged(16, 0), merged(25, 0)];
        assert_eq!(room.next(), Some(0), "two times as old as what stays");
        room.merged[0].level = 2;
        assert_eq!(room.next(), Some(1));
        room.merged[1].level = 1;
        assert_eq!(room.next(), None, "there is room enough");
        room.keeping.bytes = Some(3);
        assert_eq!(room.next(), Some(2), "the least coarse one");
    }
}
