//! The figures of a watch under way, for monitors: histograms of each thread, and who took its time.
//!
//! Attributes are bounded: at most 64 threads have points of their own, and 32 thieves of each of them.

use whylate_runner::{LatencyTotals, TaskLine};

pub(super) struct Figure<'t> {
    /// With dots, as OpenTelemetry has it; Prometheus has underscores and the unit behind it.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) unit: Unit,
    pub(super) points: Points<'t>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    One,
}

/// A point is its attributes and its value.
pub(super) enum Points<'t> {
    Histogram(Vec<(Attributes<'t>, &'t LatencyTotals)>),
    /// What only grows.
    Counter(Vec<(Attributes<'t>, f64)>),
    Gauge(Vec<(Attributes<'t>, f64)>),
}

pub(super) type Attributes<'t> = Vec<(&'static str, &'t str)>;

pub(super) const NANOSECONDS: f64 = 1e9;

/// All of them.
pub(super) fn figures(tasks: &[TaskLine]) -> [Figure<'_>; 6] {
    fn of(task: &TaskLine) -> Attributes<'_> {
        vec![("task", task.name.as_str())]
    }
    let histogram = |nth: usize| {
        Points::Histogram(tasks.iter().map(|task| (of(task), &task.totals.latencies[nth])).collect())
    };
    let largest = |task: &TaskLine| task.response.map_or(0.0, |it| it.max_ns as f64 / NANOSECONDS);
    let thieves = |value: fn(u64, u64) -> f64| {
        let points = tasks.iter().flat_map(|task| {
            task.totals.thieves.iter().map(move |(kind, actor, took_ns, number)| {
                let mut attributes = of(task);
                attributes.extend([("cause", kind.name()), ("actor", actor.as_deref().unwrap_or("other"))]);
                (attributes, value(*took_ns, *number))
            })
        });
        Points::Counter(points.collect())
    };
    let figure = |name, help, unit, points| Figure { name, help, unit, points };
    [
        figure(
            "whylate.task.response",
            "From being due or woken to the next sleep.",
            Unit::Seconds,
            histogram(0),
        ),
        figure("whylate.task.wakeup", "From being due or woken to running.", Unit::Seconds, histogram(1)),
        figure(
            "whylate.task.late",
            "Activations above the deadline.",
            Unit::One,
            Points::Counter(tasks.iter().map(|task| (of(task), task.missed as f64)).collect()),
        ),
        figure(
            "whylate.task.response.max",
            "The largest response since the begin.",
            Unit::Seconds,
            Points::Gauge(tasks.iter().map(|task| (of(task), largest(task))).collect()),
        ),
        figure(
            "whylate.task.lost",
            "Time that something took from the thread while it had something to do.",
            Unit::Seconds,
            thieves(|took_ns, _| took_ns as f64 / NANOSECONDS),
        ),
        figure(
            "whylate.task.losses",
            "How often something did so.",
            Unit::One,
            thieves(|_, number| number as f64),
        ),
    ]
}

#[cfg(test)]
pub(super) fn example() -> TaskLine {
    let native = whylate_stats::NativeBuckets { zeros: 0, buckets: vec![(-320, 3), (-319, 2), (-314, 1)] };
    let totals =
        LatencyTotals { buckets: vec![(1_000, 3), (2_000, 5)], native, count: 6, sum_ns: 4_500_000_000 };
    let thief = (whylate_core::result::CauseKind::Thread, Some("irq/31-\"eth0\"".to_owned()), 2_000_000, 4);
    TaskLine {
        name: "audio".to_owned(),
        missed: 2,
        totals: whylate_runner::TaskTotals {
            latencies: [totals, LatencyTotals::default()],
            thieves: vec![thief],
        },
        ..TaskLine::default()
    }
}
