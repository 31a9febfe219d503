//! The rules of comparison on simulated machines: how often they make a false claim, and how often they find a real
//! difference.
//!
//! A slot is one repeat of one cell, in the order in which slots run; the machine's noise continues from slot to
//! slot. `benches/verdict_rules.sh` prints the table of `records/`; the tests run a short form.

#![allow(clippy::print_stdout, reason = "the table is the result")]

use whylate_core::plan::Order;
use whylate_core::result::Outcome;
use whylate_stats::contrast::{Observation, Study, holm, study};
use whylate_stats::order::{Slot, slots};
use whylate_stats::random::SplitMix;

const CELLS: usize = 3;
const REPEATS: u32 = 8;
const MARGIN: f64 = 0.05;
/// The cell whose statistics an effect multiplies, and the one that slows the slot after it.
const CHANGED: usize = 1;
const HEAVY: usize = 2;

/// Disturbances by the machine itself.
#[derive(Clone, Copy, Debug)]
enum Noise {
    Independent,
    /// First-order autoregression.
    Autoregression(f64),
    /// A busy or quiet state of the host.
    Bursts,
    LinearDrift,
    Thermal,
    /// Recurs with this period, as a multiple of the number of cells.
    Periodic(f64),
    /// The slot after a heavy cell is slower.
    CarryOver(f64),
}

const NOISES: [Noise; 9] = [
    Noise::Independent,
    Noise::Autoregression(0.5),
    Noise::Autoregression(0.9),
    Noise::Bursts,
    Noise::LinearDrift,
    Noise::Thermal,
    Noise::Periodic(1.0),
    Noise::Periodic(1.1),
    Noise::CarryOver(0.05),
];

/// A statistic of a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Figure {
    P99,
    Max,
}

fn normal(random: &mut SplitMix) -> f64 {
    (-2.0 * random.unit().ln()).sqrt() * (std::f64::consts::TAU * random.unit()).cos()
}

fn gumbel(random: &mut SplitMix) -> f64 {
    -(-random.unit().ln()).ln()
}

fn poisson(random: &mut SplitMix, mean: f64) -> u32 {
    let (least, mut product, mut count) = ((-mean).exp(), random.unit(), 0);
    while product > least {
        product *= random.unit();
        count += 1;
    }
    count
}

/// The level of each slot, and whether the host was busy in it.
fn levels(noise: Noise, order: &[Slot], random: &mut SplitMix) -> Vec<(f64, bool)> {
    let mut machine = MachineState { memory: normal(random), busy: random.unit() < 0.3 };
    let sign = if random.unit() < 0.5 { -1.0 } else { 1.0 };
    let phase = random.unit();
    let mut level = |slot: usize| {
        let share = slot as f64 / order.len() as f64;
        match noise {
            Noise::Independent => (0.05 * normal(random), false),
            Noise::Autoregression(factor) => (machine.autoregression(random, factor, 0.10), false),
            Noise::Bursts => (0.03 * normal(random), machine.is_busy(random)),
            Noise::LinearDrift => (0.03 * normal(random) + sign * 0.3 * share, false),
            Noise::Thermal => {
                let warm = 0.3 * (1.0 - (-share / 0.2).exp());
                (machine.autoregression(random, 0.5, 0.03) + warm, false)
            }
            Noise::Periodic(multiple) => {
                let turn = |slot: f64| (slot / (multiple * CELLS as f64) + phase).floor();
                let is_hit = turn(slot as f64) != turn(slot as f64 - 1.0);
                (0.05 * normal(random) + if is_hit { 0.15 } else { 0.0 }, false)
            }
            Noise::CarryOver(more) => {
                let follows = slot > 0 && order[slot - 1].cell == HEAVY;
                (0.05 * normal(random) + if follows { more } else { 0.0 }, false)
            }
        }
    };
    (0..order.len()).map(&mut level).collect()
}

/// The state that continues from slot to slot.
struct MachineState {
    memory: f64,
    busy: bool,
}

impl MachineState {
    fn autoregression(&mut self, random: &mut SplitMix, factor: f64, deviation: f64) -> f64 {
        let value = deviation * self.memory;
        self.memory = factor * self.memory + (1.0 - factor * factor).sqrt() * normal(random);
        value
    }

    fn is_busy(&mut self, random: &mut SplitMix) -> bool {
        if random.unit() < 1.0 / 6.0 {
            self.busy = random.unit() < 0.3;
        }
        self.busy
    }
}

/// The figure of a slot in nanoseconds, without an effect.
fn figure(figure: Figure, (level, busy): (f64, bool), random: &mut SplitMix) -> f64 {
    match figure {
        Figure::P99 => {
            let more = if busy { 0.3 } else { 0.0 };
            23e3 * (1.2 * level + 0.06 * normal(random) + more).exp()
        }
        Figure::Max => {
            let usual = 50e3 * (level + 0.12 * gumbel(random)).exp();
            let bursts = poisson(random, if busy { 5.0 } else { 0.2 });
            let burst = |random: &mut SplitMix| (50e3 * random.unit().powf(-1.0 / 1.1)).min(100e6);
            (0..bursts).map(|_| burst(random)).fold(usual, f64::max)
        }
    }
}

/// Rounded to the buckets of a histogram of 1/128.
fn bucketed(nanoseconds: f64) -> f64 {
    let width = 2f64.powf(nanoseconds.log2().floor() - 7.0);
    (nanoseconds / width).floor() * width + width / 2.0
}

/// Shares of the runs, in percent.
#[derive(Clone, Copy, Debug, Default)]
struct Rates {
    /// Runs with a claim about a cell that has no effect.
    false_claims: f64,
    /// Runs that called the changed cell worse.
    found: f64,
    /// Runs that called it equivalent.
    equivalent: f64,
    /// Runs whose interval holds the true effect.
    covered: f64,
}

/// The studies of one run: each other cell against the first.
fn one_run(noise: Noise, statistic: Figure, effect: f64, seed: u64, random: &mut SplitMix) -> Vec<Study> {
    let order = slots(CELLS, REPEATS, Order::Shuffled, seed);
    let levels = levels(noise, &order, random);
    let mut value = |(slot, level): (&Slot, &(f64, bool))| {
        let own = if slot.cell == CHANGED { effect } else { 1.0 };
        bucketed(figure(statistic, *level, random) * own).ln()
    };
    let values: Vec<f64> = order.iter().zip(&levels).map(&mut value).collect();
    let group = |cell: usize| -> Vec<Observation> {
        let of_cell = order.iter().zip(&values).filter(|(slot, _)| slot.cell == cell);
        of_cell.map(|(slot, value)| Observation { block: slot.block, value: *value }).collect()
    };
    (1..CELLS).map(|cell| study(&group(0), &group(cell)).expect("there are blocks")).collect()
}

fn simulate(noise: Noise, statistic: Figure, effect: f64, runs: u32) -> Rates {
    let mut random = SplitMix(effect.to_bits() ^ u64::from(runs));
    let mut rates = Rates::default();
    let share = 100.0 / f64::from(runs);
    for run in 0..runs {
        let studies = one_run(noise, statistic, effect, u64::from(run) << 8, &mut random);
        let mut p_values: Vec<f64> = studies.iter().map(|study| study.p_value).collect();
        holm(&mut p_values);
        let outcome = |(study, p_value): (&Study, &f64)| study.outcome(*p_value, CELLS - 1, MARGIN.ln_1p());
        let outcomes: Vec<Outcome> = studies.iter().zip(&p_values).map(outcome).collect();
        let unchanged = usize::from(effect != 1.0);
        let is_claim = |outcome: &Outcome| matches!(outcome, Outcome::Better | Outcome::Worse);
        let (low, high) = studies[0].interval_95;
        let is_covered = low.is_none_or(|low| low <= effect.ln() + 1e-9)
            && high.is_none_or(|high| high >= effect.ln() - 1e-9);
        rates.false_claims += if outcomes[unchanged..].iter().any(is_claim) { share } else { 0.0 };
        rates.found += if outcomes[0] == Outcome::Worse { share } else { 0.0 };
        rates.equivalent += if outcomes[0] == Outcome::Equivalent { share } else { 0.0 };
        rates.covered += if is_covered { share } else { 0.0 };
    }
    rates
}

fn runs() -> u32 {
    std::env::var("WHYLATE_SIMULATED_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(150)
}

/// How far a share of that number of runs may be from `percent` by chance: three standard errors.
fn slack(percent: f64, runs: u32) -> f64 {
    3.0 * (percent * (100.0 - percent) / f64::from(runs)).sqrt()
}

#[test]
fn nothing_is_claimed_without_a_difference() {
    let runs = runs();
    for statistic in [Figure::P99, Figure::Max] {
        for noise in NOISES {
            let null = simulate(noise, statistic, 1.0, runs);
            println!("{statistic:?}, {noise:?}, no effect: {null:.1?}");
            assert!(null.false_claims <= 5.0 + slack(5.0, runs), "{noise:?} {statistic:?}: {null:?}");
            assert!(null.covered >= 95.0 - slack(95.0, runs), "{noise:?} {statistic:?}: {null:?}");
        }
    }
}

#[test]
fn real_differences_are_found() {
    let runs = runs();
    for (statistic, effect, found_min) in [(Figure::P99, 1.3, 85.0), (Figure::Max, 2.0, 75.0)] {
        for noise in NOISES {
            let changed = simulate(noise, statistic, effect, runs);
            println!("{statistic:?}, {noise:?}, {effect} times: {changed:.1?}");
            assert!(changed.covered >= 95.0 - slack(95.0, runs), "{noise:?} {statistic:?}: {changed:?}");
            if matches!(noise, Noise::Autoregression(0.5)) {
                assert!(changed.found >= found_min - slack(found_min, runs), "{statistic:?}: {changed:?}");
            }
        }
    }
}

#[test]
fn equivalent_is_not_a_guess() {
    let runs = runs();
    for noise in NOISES {
        let at_margin = simulate(noise, Figure::P99, 1.0 + MARGIN, runs);
        println!("P99, {noise:?}, at the margin: {at_margin:.1?}");
        assert!(at_margin.equivalent <= 5.0 + slack(5.0, runs), "{noise:?}: {at_margin:?}");
    }
}
