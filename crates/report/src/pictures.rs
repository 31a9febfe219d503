//! Pictures that every format can draw from the same data: bars of parts, and effects with their intervals.

use whylate_core::figure::nanoseconds;
use whylate_core::result::{CauseClass, OwnSamples};

/// Bars of parts, one below the other.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    pub(crate) rows: Vec<ShareRow>,
}

/// One bar.
#[derive(Debug)]
pub(crate) struct ShareRow {
    pub(crate) label: String,
    /// From left to right.
    pub(crate) parts: Vec<SharePart>,
    pub(crate) note: String,
}

#[derive(Debug)]
pub(crate) struct SharePart {
    pub(crate) class: CauseClass,
    /// Share of the whole bar, in [0, 1].
    pub(crate) share: f64,
    /// What it is, with its size.
    pub(crate) text: String,
}

impl Shares {
    /// The classes that appear, each once, in the order of the first bar that has them.
    pub(crate) fn classes(&self) -> Vec<CauseClass> {
        let mut classes = Vec::new();
        for part in self.rows.iter().flat_map(|row| &row.parts) {
            if !classes.contains(&part.class) {
                classes.push(part.class);
            }
        }
        classes
    }
}

/// What the causes of a class have in common, in a few words.
pub(crate) const fn class_name(class: CauseClass) -> &'static str {
    match class {
        CauseClass::Section => "IRQs or preemption disabled, locks, waits",
        CauseClass::Interrupt => "interrupts",
        CauseClass::Thread => "other threads",
        CauseClass::Idle => "own work, late timer, idle exit, low CPU frequency, page faults",
        CauseClass::Machine => "hypervisor, firmware, hardware",
        CauseClass::Scheduler => "throttling, quotas, timer slack",
        CauseClass::Unknown => "not explained",
    }
}

/// The character for a class where there are no colours.
pub(crate) fn class_fill(class: CauseClass) -> char {
    match class {
        CauseClass::Section => '█',
        CauseClass::Interrupt => '▓',
        CauseClass::Thread => '▒',
        CauseClass::Idle => '░',
        CauseClass::Machine => '#',
        CauseClass::Scheduler => '=',
        CauseClass::Unknown => '·',
    }
}

/// Functions under the functions that called them, each as wide as its part of the time.
#[derive(Debug, Default)]
pub(crate) struct Flame {
    pub(crate) title: String,
    pub(crate) calls: Vec<FlameCall>,
}

/// A call in a flame graph.
#[derive(Debug)]
pub(crate) struct FlameCall {
    pub(crate) depth: u64,
    /// Its place and its width, in [0, 1].
    pub(crate) from: f64,
    pub(crate) width: f64,
    pub(crate) function: String,
    pub(crate) times: String,
    /// Part of its time that is more than in an ordinary activation; `None` where ordinary activations are not known.
    pub(crate) more: Option<f64>,
}

impl Flame {
    pub(crate) fn new(title: String, samples: &OwnSamples) -> Self {
        let whole = samples.count.max(1) as f64;
        // Where the next call of each depth begins.
        let mut next: Vec<f64> = vec![0.0];
        let calls = samples.calls.iter().map(|call| {
            let (depth, width) = (call.depth as usize, call.samples as f64 / whole);
            next.truncate(depth + 1);
            let from = next.last().copied().unwrap_or_default();
            next.push(from);
            if let Some(after) = next.get_mut(depth) {
                *after = from + width;
            }
            let here = nanoseconds(call.ns);
            let times = match call.ordinary_ns {
                Some(ordinary_ns) => {
                    format!("at least {here}; in an ordinary activation {}", nanoseconds(ordinary_ns))
                }
                None => format!("at least {here}"),
            };
            let more = |ordinary_ns: u64| call.ns.saturating_sub(ordinary_ns) as f64 / call.ns.max(1) as f64;
            let function = call.function.clone();
            FlameCall { depth: call.depth, from, width, function, times, more: call.ordinary_ns.map(more) }
        });
        Self { title, calls: calls.collect() }
    }
}

/// Effects on one logarithmic axis of ratios, worst first.
#[derive(Debug, Default)]
pub(crate) struct Forest {
    pub(crate) rows: Vec<ForestRow>,
    /// The ratios that do not matter: from 1 / (1 + margin) to 1 + margin.
    pub(crate) margin: f64,
}

/// One effect.
#[derive(Debug)]
pub(crate) struct ForestRow {
    pub(crate) label: String,
    pub(crate) reading: crate::reading::Reading,
    pub(crate) ratio: f64,
    /// An end that is not bounded reaches the end of the axis.
    pub(crate) interval: Option<(Option<f64>, Option<f64>)>,
}

impl Forest {
    /// The largest ratio of the axis; the smallest is one divided by it.
    fn reach(&self) -> f64 {
        let ends = self.rows.iter().flat_map(|row| {
            let (low, high) = row.interval.unwrap_or_default();
            [Some(row.ratio), low, high].into_iter().flatten()
        });
        let ends = ends.map(|end| end.max(1.0 / end)).filter(|end| end.is_finite());
        ends.fold((1.0 + self.margin).max(1.25), f64::max).min(100.0) * 1.05
    }

    /// The place of a ratio on the axis, in [0, 1].
    pub(crate) fn place(&self, ratio: f64) -> f64 {
        let reach = self.reach().ln();
        ((ratio.ln() + reach) / (2.0 * reach)).clamp(0.0, 1.0)
    }

    pub(crate) fn ends(&self) -> (f64, f64) {
        (1.0 / self.reach(), self.reach())
    }
}

/// Machines next to each other; their charts have one scale.
#[derive(Debug, Default)]
pub(crate) struct Cards {
    pub(crate) cards: Vec<Card>,
    /// The smallest and the largest figure in ns, above 0 and different.
    pub(crate) range: (f64, f64),
}

/// One machine.
#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) address: String,
    pub(crate) name: String,
    /// The verdict of the newest run.
    pub(crate) sign: &'static str,
    pub(crate) state: &'static str,
    pub(crate) tone: crate::section::Tone,
    pub(crate) is_alarming: bool,
    /// How long ago it ran, and the moment.
    pub(crate) when: String,
    pub(crate) moment: String,
    pub(crate) about: String,
    pub(crate) alarms: Vec<String>,
    pub(crate) strips: Vec<Strip>,
}

/// A small chart of a series of runs.
#[derive(Debug)]
pub(crate) struct Strip {
    pub(crate) caption: String,
    /// The figures of the newest run.
    pub(crate) figures: String,
    /// Its description, for readers who cannot see it.
    pub(crate) label: String,
    /// p50, p99, p99.9 and the largest latency of each run.
    pub(crate) lines: [Vec<Option<u64>>; 4],
    pub(crate) limit_ns: Option<u64>,
    /// Which runs were above their limit.
    pub(crate) failed: Vec<bool>,
}

impl Cards {
    /// The place of a figure on the logarithmic axis, in [0, 1].
    pub(crate) fn place(&self, ns: f64) -> f64 {
        let (low, high) = self.range;
        ((ns.max(1.0) / low).ln() / (high / low).ln()).clamp(0.0, 1.0)
    }

    /// Powers of ten on the axis; if there are fewer than two, also their halves and fifths.
    pub(crate) fn ticks(&self) -> Vec<f64> {
        let (low, high) = self.range;
        let decades = (0..13).map(|power| 10f64.powi(power));
        let within = |ns: &f64| (low..=high).contains(ns);
        let tens: Vec<f64> = decades.clone().filter(within).collect();
        if tens.len() > 1 {
            return tens;
        }
        decades.flat_map(|ten| [ten, 2.0 * ten, 5.0 * ten]).filter(within).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_of_a_wall_have_one_logarithmic_axis_with_ticks() {
        let cards = |low, high| Cards { cards: Vec::new(), range: (low, high) };
        assert!((cards(1e3, 1e5).place(1e4) - 0.5).abs() < 1e-9);
        assert_eq!((cards(1e3, 1e5).place(0.0), cards(1e3, 1e5).place(1e9)), (0.0, 1.0));
        assert_eq!(cards(900.0, 200_000.0).ticks(), [1e3, 1e4, 1e5]);
        assert_eq!(cards(3e3, 3e4).ticks(), [5e3, 1e4, 2e4]);
    }

    #[test]
    fn no_effect_is_in_the_middle_and_every_end_is_on_the_axis() {
        let row = |ratio: f64| ForestRow {
            label: String::new(),
            reading: crate::reading::Reading::of(whylate_core::result::Outcome::Worse),
            ratio,
            interval: Some((Some(ratio / 2.0), None)),
        };
        let forest = Forest { rows: vec![row(8.0), row(1e9)], margin: 0.05 };
        assert!((forest.place(1.0) - 0.5).abs() < 1e-9);
        assert!(forest.place(4.0) > 0.5 && forest.place(0.5) < 0.5);
        assert_eq!((forest.place(1e9), forest.place(1e-9)), (1.0, 0.0));
    }
}
