//! A simulated machine, for tests of searches and for comparisons of searches.

use std::collections::BTreeMap;
use whylate_stats::random::SplitMix;
use whylate_stats::search::Figure;

/// A machine whose values depend on the values before: a first-order autoregression of their logarithms.
pub(crate) struct Machine {
    random: SplitMix,
    state: f64,
    spread: f64,
    /// Logarithms of the effect of each arm alone.
    pub(crate) effects: Vec<f64>,
    /// Repeats so far.
    pub(crate) measured: u32,
}

impl Machine {
    /// A machine with this spread of the logarithms.
    pub(crate) fn new(seed: u64, spread: f64, effects: Vec<f64>) -> Self {
        Self { random: SplitMix(seed), state: 0.0, spread, effects, measured: 0 }
    }

    fn normal(&mut self) -> f64 {
        let (a, b) = (self.random.unit(), self.random.unit());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }

    /// One repeat with these arms.
    pub(crate) fn measure(&mut self, arms: &[usize]) -> Figure {
        self.measured += 1;
        let innovation = self.normal() * (1.0f64 - 0.25).sqrt();
        self.state = 0.5 * self.state + innovation;
        let effect: f64 = arms.iter().map(|arm| self.effects[*arm]).sum();
        let other = 0.1 * self.normal();
        Figure {
            value: (10.0 + effect + self.spread * self.state).exp(),
            others: BTreeMap::from([("timer p50".to_owned(), (8.0 + other).exp())]),
            ..Figure::default()
        }
    }
}
