//! The intervals of one series on one CPU in one attempt.

use super::{Interval, SLACK_NS};
use whylate_core::quantity::{GAPS, LOST_NS, OVERRUNS};
use whylate_stats::buckets::{index_of, is_lower_edge, last_value, lower_edge};

/// The facts of an interval's histogram.
pub(super) struct Checked {
    /// The last bucket with samples, from 1; 0 without samples.
    top: usize,
    /// The sum of the samples lies between these.
    sum_min: u128,
    sum_max: u128,
}

pub(super) fn check_interval(interval: &Interval) -> Result<Checked, String> {
    let Interval { start_ns, end_ns, samples, min_ns, max_ns, histogram, .. } = interval;
    let length_ns = end_ns
        .checked_sub(*start_ns)
        .ok_or_else(|| format!("an interval ends at {end_ns} ns, before it begins at {start_ns} ns"))?;
    if let Some((edge, _)) = histogram.iter().find(|(edge, _)| !is_lower_edge(*edge)) {
        return Err(format!("{edge} ns is not the lower edge of a bucket"));
    }
    if let Some(pair) = histogram.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
        return Err(format!("the bucket from {} ns appears twice", pair[1].0));
    }
    let counted = histogram.iter().try_fold(0u64, |sum, (_, count)| sum.checked_add(*count));
    if counted != Some(*samples) || histogram.iter().any(|(_, count)| *count == 0) {
        return Err(format!("the histogram does not contain the {samples} samples of its interval"));
    }
    if *samples > length_ns.saturating_add(SLACK_NS) {
        return Err(format!("{samples} samples are too many for {length_ns} ns"));
    }
    let (first, last) = (histogram.first(), histogram.last());
    match (min_ns, max_ns, first) {
        (None, None, None) => {}
        (Some(min_ns), Some(max_ns), Some(_)) if index_of(*min_ns) <= index_of(*max_ns) => {}
        _ => return Err(format!("the range of {samples} samples contradicts their number or order")),
    }
    let weighed = |value: fn(usize) -> u64| {
        let products =
            histogram.iter().map(|(edge, count)| u128::from(value(index_of(*edge))) * u128::from(*count));
        products.sum()
    };
    Ok(Checked {
        top: last.map_or(0, |(edge, _)| index_of(*edge) + 1),
        sum_min: weighed(lower_edge),
        sum_max: weighed(last_value),
    })
}

/// The last bucket and that of the maximum, from 1, of one interval.
#[derive(Clone, Copy, Default)]
struct Extremes {
    top: usize,
    max: usize,
    segment: u32,
}

/// The facts about a series so far.
#[derive(Default)]
pub(super) struct Series {
    end_ns: u64,
    max_ns: u64,
    measured_ns: u64,
    periods: u64,
    lost_ns: u64,
    samples: u64,
    sum: u128,
    sum_min: u128,
    sum_max: u128,
    last: Extremes,
    /// The first interval whose maximum is in no histogram.
    problem: Option<(u32, String)>,
}

impl Series {
    /// The largest value so far.
    pub(super) fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// Adds the next interval, unless it cannot follow the ones before.
    pub(super) fn add(&mut self, interval: &Interval, checked: &Checked, segment: u32) -> Result<(), String> {
        let Interval { start_ns, end_ns, samples, .. } = *interval;
        if start_ns < self.end_ns {
            return Err(format!("an interval begins at {start_ns} ns, within the previous interval"));
        }
        let overflow = || "the counts of the intervals are too large to add up".to_owned();
        let measured_ns = self.measured_ns.checked_add(end_ns - start_ns).ok_or_else(overflow)?;
        let get = |quantity| interval.quantities.get(quantity);
        let missed = get(OVERRUNS).unwrap_or(0).max(get(GAPS).unwrap_or(0));
        let periods = missed.max(interval.spikes_dropped).checked_add(samples).ok_or_else(overflow)?;
        let periods = self.periods.checked_add(periods).ok_or_else(overflow)?;
        let lost_ns = self.lost_ns.checked_add(get(LOST_NS).unwrap_or(0)).ok_or_else(overflow)?;
        let possible = measured_ns.saturating_add(10 * SLACK_NS);
        // A loop cannot lose more time than there was; several watched threads may share a series.
        let is_loop = get(GAPS).is_some();
        if periods > possible.saturating_mul(2) || is_loop && lost_ns > possible {
            return Err(format!("{periods} samples and {lost_ns} ns lost are too much for {measured_ns} ns"));
        }
        (self.end_ns, self.measured_ns, self.periods, self.lost_ns) = (end_ns, measured_ns, periods, lost_ns);
        self.samples = self.samples.saturating_add(samples);
        self.sum += u128::from(interval.sum_ns);
        self.sum_min = self.sum_min.saturating_add(checked.sum_min);
        self.sum_max = self.sum_max.saturating_add(checked.sum_max);
        self.max_ns = self.max_ns.max(interval.max_ns.unwrap_or(0));
        let max = interval.max_ns.map_or(0, |max_ns| index_of(max_ns) + 1);
        self.check_extremes(Extremes { top: checked.top, max, segment });
        Ok(())
    }

    fn check_extremes(&mut self, now: Extremes) {
        let before = std::mem::replace(&mut self.last, now);
        let problem = if now.top > before.max.max(now.max) + 1 {
            Some((now.segment, "a maximum is below the range of its histogram"))
        } else if before.max > before.top.max(now.top) + 1 {
            Some((before.segment, "a maximum is above the range of its histogram"))
        } else {
            None
        };
        if self.problem.is_none() {
            self.problem = problem.map(|(segment, text)| (segment, text.to_owned()));
        }
    }

    /// The segment in which the intervals contradict each other, and how. `counts_go_on` while the kernel's counts
    /// are read for the last time: the sum may then have a few more samples.
    pub(super) fn finish(&self, counts_go_on: bool) -> Result<(), (u32, String)> {
        if let Some(problem) = self.problem.clone() {
            return Err(problem);
        }
        let segment = self.last.segment;
        if self.last.max > self.last.top + 1 {
            return Err((segment, "a maximum is above the range of its histogram".to_owned()));
        }
        // Lengths are rounded to nanoseconds.
        let more = if counts_go_on { 4 * u128::from(self.max_ns) } else { 0 };
        let slack = u128::from(self.samples) + more + self.sum_max / 256;
        if self.sum.saturating_add(slack) < self.sum_min || self.sum > self.sum_max.saturating_add(slack) {
            let text = format!(
                "the sum of {} ns does not fit the {} samples in the histogram",
                self.sum, self.samples
            );
            return Err((segment, text));
        }
        Ok(())
    }
}
