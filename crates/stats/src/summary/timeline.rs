//! The values of a probe over time, in a bounded number of points.
//!
//! When there are too many points, neighbours are joined two by two, and later intervals are joined at once to points
//! of the same length. The largest value of a point stays exact. Its median becomes the mean of the joined medians,
//! weighted by samples: like the true median it lies between them, and it is meant only for drawing.

use crate::Histogram;
use whylate_core::record::Interval;
use whylate_core::result::TimelinePoint;

/// Points and how many intervals each of them holds.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    points: Vec<(TimelinePoint, usize)>,
    points_max: usize,
    /// How many intervals a point may hold.
    intervals_max: usize,
}

impl Timeline {
    pub(super) fn new(points_max: usize) -> Self {
        Self { points: Vec::new(), points_max: points_max.max(1), intervals_max: 1 }
    }

    /// Adds an interval; `histogram` is its own.
    pub(super) fn push(&mut self, interval: &Interval, histogram: &Histogram, repeat: Option<u32>) {
        let point = TimelinePoint {
            start_ns: interval.start_ns,
            end_ns: interval.end_ns,
            repeat,
            samples: interval.samples,
            p50_ns: histogram.quantile(0.5),
            max_ns: histogram.max(),
        };
        self.append((point, 1));
        if self.points.len() > self.points_max {
            self.thin();
        }
    }

    pub(super) fn into_points(self) -> Vec<TimelinePoint> {
        self.points.into_iter().map(|(point, _)| point).collect()
    }

    /// Joins the point to the last one if that has room and belongs to the same repeat.
    fn append(&mut self, (point, intervals): (TimelinePoint, usize)) {
        match self.points.last_mut() {
            Some((last, held)) if last.repeat == point.repeat && *held + intervals <= self.intervals_max => {
                *last = joined(*last, point);
                *held += intervals;
            }
            _ => self.points.push((point, intervals)),
        }
    }

    /// Halves the number of points; repeats stay apart, unless there are more repeats than points.
    fn thin(&mut self) {
        let intervals = self.points.iter().map(|(_, intervals)| intervals).sum::<usize>();
        while self.points.len() > self.points_max && self.intervals_max < 2 * intervals {
            self.intervals_max *= 2;
            for point in std::mem::take(&mut self.points) {
                self.append(point);
            }
        }
        if self.points.len() > self.points_max {
            self.points_max *= 2;
        }
    }
}

fn joined(a: TimelinePoint, b: TimelinePoint) -> TimelinePoint {
    let samples = a.samples.saturating_add(b.samples);
    let p50_ns = match (a.p50_ns, b.p50_ns) {
        (Some(first), Some(second)) => {
            let share = if samples == 0 { 0.5 } else { b.samples as f64 / samples as f64 };
            let mean = first as f64 + (second as f64 - first as f64) * share;
            Some((mean.round() as u64).clamp(first.min(second), first.max(second)))
        }
        (first, second) => first.or(second),
    };
    TimelinePoint {
        start_ns: a.start_ns.min(b.start_ns),
        end_ns: a.end_ns.max(b.end_ns),
        repeat: a.repeat,
        samples,
        p50_ns,
        max_ns: a.max_ns.max(b.max_ns),
    }
}
