//! The period of a task, from the moments at which it ran after a sleep.

const REMEMBERED: usize = 64;
/// Fewer intervals make no rhythm.
const LEAST: usize = 8;
/// The part of the intervals that must be near the median.
const REGULAR: f64 = 0.7;
/// How near: this part of the median, or [`NEAR_NS`] when that is more.
const NEAR: f64 = 0.05;
const NEAR_NS: u64 = 20_000;

/// The latest intervals between two wake-ups of one task.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rhythm {
    last_ns: Option<u64>,
    intervals: Vec<u64>,
    /// The same, ascending.
    sorted: Vec<u64>,
    next: usize,
}

impl Rhythm {
    /// The task ran again after a sleep.
    pub(crate) fn beat(&mut self, at_ns: u64) {
        let interval = self.last_ns.replace(at_ns).map(|last| at_ns.saturating_sub(last));
        let Some(interval) = interval else { return };
        if self.intervals.len() < REMEMBERED {
            self.intervals.push(interval);
        } else {
            let old = std::mem::replace(&mut self.intervals[self.next % REMEMBERED], interval);
            let place = self.sorted.partition_point(|known| *known < old);
            self.sorted.remove(place);
        }
        let place = self.sorted.partition_point(|known| *known < interval);
        self.sorted.insert(place, interval);
        self.next += 1;
    }

    /// The next run does not follow the last one.
    pub(crate) fn pause(&mut self) {
        self.last_ns = None;
    }

    /// Number of intervals that are known, up to [`REMEMBERED`].
    pub(crate) fn known(&self) -> usize {
        self.intervals.len()
    }

    /// The median interval; `None` without any.
    pub(crate) fn median_ns(&self) -> Option<u64> {
        self.sorted.get(self.sorted.len() / 2).copied()
    }

    /// The period; `None` if the intervals are few or irregular.
    pub(crate) fn period_ns(&self) -> Option<u64> {
        let median = self.median_ns().filter(|median| self.known() >= LEAST && *median > 0)?;
        let near = ((median as f64 * NEAR) as u64).max(NEAR_NS).min(median / 4);
        let until = |limit_ns: u64| self.sorted.partition_point(|interval| *interval <= limit_ns);
        let regular = until(median.saturating_add(near)) - until((median - near).saturating_sub(1));
        (regular as f64 >= REGULAR * self.known() as f64).then_some(median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rhythm(intervals: impl IntoIterator<Item = u64>) -> Rhythm {
        let mut rhythm = Rhythm::default();
        let mut at = 0;
        rhythm.beat(at);
        for interval in intervals {
            at += interval;
            rhythm.beat(at);
        }
        rhythm
    }

    #[test]
    fn late_moments_do_not_change_the_period() {
        let intervals =
            (0..40).map(|index| if index % 10 == 5 { 3_000_000 } else { 1_000_000 + index * 100 });
        assert_eq!(rhythm(intervals).period_ns().unwrap() / 10_000, 100);
    }

    #[test]
    fn few_or_irregular_intervals_have_no_period() {
        assert_eq!(rhythm([200_000; 5]).period_ns(), None);
        assert_eq!(rhythm((1..40).map(|index| index * 37_000)).period_ns(), None);
        assert_eq!(rhythm([]).median_ns(), None);
    }
}
