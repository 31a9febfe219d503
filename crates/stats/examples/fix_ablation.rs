//! How many repeats a search takes until it proves the cure: guided by causes, unguided, and with random draws; for
//! `benches/fix_ablation.py`, which adds Optuna. The machine is simulated (WORLD is `quantile`, `maximum` or
//! `planted`), or each repeat is drawn from the repeats of a real one (WORLD is a file that
//! `benches/fix_arms_guest.py` made).
//!
//!     cargo run --release -p whylate-stats --example fix_ablation -- guided|whole WORLD SEARCHES
//!     cargo run --release -p whylate-stats --example fix_ablation -- random WORLD SEARCHES DRAWS
//!     cargo run --release -p whylate-stats --example fix_ablation -- serve WORLD
//!
//! `serve` reads `new SEED`, `measure ARM` and `confirm ARM CLAIM` and answers each with a line: the number of arms and the
//! cures, what the machine shows, or `proved` or `futile` with the repeats that it took.

#![allow(clippy::print_stdout, reason = "its output is what it is for")]

#[path = "../tests/simulated/mod.rs"]
mod simulated;

use simulated::Machine;
use std::io::BufRead as _;
use whylate_stats::random::SplitMix;
use whylate_stats::search::{Figure, Rules, Search};

const ARMS: usize = 12;
const MARGIN: f64 = 0.05;
const ALPHA: f64 = 0.05;
/// A search that needs more repeats is given up.
const BUDGET: u32 = 400;
/// How often the cure is among the treatments that answer the causes; in the lab 188 of 190 causes are named first.
const NAMED: f64 = 0.95;

/// A search of a machine, with its seed: repeats until the proof.
type OneSearch = Box<dyn Fn(World, u64) -> Option<u32>>;

/// One machine: the arms that cure, and how many of the first arms answer the causes.
struct World {
    machine: Source,
    arms: usize,
    good: Vec<usize>,
    first: usize,
}

/// Where values come from.
enum Source {
    Simulated(Machine),
    /// Values without an arm, and with each.
    Measured {
        random: SplitMix,
        plain: Vec<f64>,
        arms: Vec<Vec<f64>>,
        measured: u32,
    },
}

impl Source {
    fn measure(&mut self, chosen: &[usize]) -> Figure {
        match self {
            Self::Simulated(machine) => machine.measure(chosen),
            Self::Measured { random, plain, arms, measured } => {
                *measured += 1;
                let values = match chosen {
                    [] => plain,
                    [arm] => &arms[*arm],
                    _ => unreachable!("a search ends at its first proof"),
                };
                Figure { value: values[random.below(values.len() as u64) as usize], ..Figure::default() }
            }
        }
    }

    fn measured(&self) -> u32 {
        match self {
            Self::Simulated(machine) => machine.measured,
            Self::Measured { measured, .. } => *measured,
        }
    }
}

/// The machine of a file: `first N`, `cures NAME…`, and a line of values for `none` and for each arm.
fn measured(path: &str, seed: u64) -> World {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut lines: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        lines.extend(words.next().map(|first| (first, words.collect())));
    }
    let take = |name: &str| lines.iter().find(|(first, _)| *first == name).map(|(_, words)| words.clone());
    let numbers =
        |words: &[&str]| -> Vec<f64> { words.iter().map(|word| word.parse().expect("a number")).collect() };
    let cures = take("cures").expect("cures");
    // A treatment that could not be applied has no values.
    let is_arm = |(name, values): &&(&str, Vec<&str>)| {
        !["first", "cures", "none"].contains(name) && !values.is_empty()
    };
    let arms: Vec<&(&str, Vec<&str>)> = lines.iter().filter(is_arm).collect();
    World {
        good: (0..arms.len()).filter(|arm| cures.contains(&arms[*arm].0)).collect(),
        first: take("first").expect("first")[0].parse().expect("a number"),
        arms: arms.len(),
        machine: Source::Measured {
            random: SplitMix(seed),
            plain: numbers(&take("none").expect("none")),
            arms: arms.iter().map(|(_, values)| numbers(values)).collect(),
            measured: 0,
        },
    }
}

fn world(name: &str, seed: u64) -> World {
    if name.contains('/') {
        return measured(name, seed);
    }
    let (effect, spread) = match name {
        // A 0.99 quantile of a quiet machine, a maximum, and what the lab plants.
        "quantile" => (0.77f64.ln(), 0.15),
        "maximum" => (0.5f64.ln(), 0.5),
        "planted" => (0.1f64.ln(), 0.5),
        other => panic!("no such world: {other}; quantile, maximum, planted, or a path with a `/`"),
    };
    let mut random = SplitMix(seed ^ 0x5eed);
    // The number that the table of causes usually names: a line and all lines; a thread's place and priority and a
    // shield; …
    let first = 2 + random.below(4) as usize;
    let good = if random.unit() < NAMED {
        random.below(first as u64) as usize
    } else {
        first + random.below((ARMS - first) as u64) as usize
    };
    let mut effects = vec![0.0; ARMS];
    effects[good] = effect;
    let machine = Source::Simulated(Machine::new(seed, spread, effects));
    World { machine, arms: ARMS, good: vec![good], first }
}

/// Repeats until the first proof; `None` if another arm is proved, or none.
fn searched(mut world: World, seed: u64, is_guided: bool) -> Option<u32> {
    let first = if is_guided { world.first } else { 0 };
    let mut search = Search::new(
        Rules { margin: MARGIN, alpha: ALPHA, seed, below: None, first, keeps_goal: true },
        world.arms,
    );
    while let Some(trial) = search.next() {
        let figure = world.machine.measure(&trial.arms);
        search.take(&figure);
        match search.base() {
            [arm, ..] => return world.good.contains(arm).then(|| world.machine.measured()),
            [] if world.machine.measured() >= BUDGET => return None,
            [] => {}
        }
    }
    None
}

/// Compares an arm with the baseline by the rules of a search; `claim` is the number of the claim, from 1.
fn is_confirmed(machine: &mut Source, arm: usize, claim: u32, seed: u64) -> bool {
    let rules = Rules {
        margin: MARGIN,
        alpha: ALPHA / 2f64.powi(claim as i32 - 1),
        seed,
        below: None,
        first: 0,
        keeps_goal: true,
    };
    let mut search = Search::new(rules, 1);
    while let Some(trial) = search.next() {
        let arms: Vec<usize> = trial.arms.iter().map(|_| arm).collect();
        let figure = machine.measure(&arms);
        search.take(&figure);
        if !search.base().is_empty() {
            return true;
        }
    }
    false
}

/// Draws arms at random, then confirms them, the best mean first.
fn drawn(mut world: World, seed: u64, draws: u32) -> Option<u32> {
    let mut random = SplitMix(seed ^ 0xd1ce);
    let mut sums = vec![(0.0, 0u32); world.arms];
    for _ in 0..draws {
        let arm = random.below(world.arms as u64) as usize;
        sums[arm].0 += world.machine.measure(&[arm]).value.ln();
        sums[arm].1 += 1;
    }
    let mean = |arm: &usize| sums[*arm].0 / f64::from(sums[*arm].1);
    let mut order: Vec<usize> = (0..world.arms).filter(|arm| sums[*arm].1 > 0).collect();
    order.sort_by(|a, b| mean(a).total_cmp(&mean(b)));
    for (claim, arm) in (1..).zip(order) {
        if is_confirmed(&mut world.machine, arm, claim, seed) {
            return world.good.contains(&arm).then(|| world.machine.measured());
        }
        if world.machine.measured() >= BUDGET {
            return None;
        }
    }
    None
}

fn serve(name: &str) {
    let mut now = world(name, 0);
    let mut seed = 0;
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        let number =
            |index: usize| words[index].parse::<u64>().unwrap_or_else(|_| panic!("no number: {line}"));
        match words[0] {
            "new" => {
                seed = number(1);
                now = world(name, seed);
                let good: Vec<String> = now.good.iter().map(usize::to_string).collect();
                println!("{} {}", now.arms, good.join(" "));
            }
            "measure" => println!("{}", now.machine.measure(&[number(1) as usize]).value),
            "confirm" => {
                let is_proved = is_confirmed(&mut now.machine, number(1) as usize, number(2) as u32, seed);
                println!("{} {}", if is_proved { "proved" } else { "futile" }, now.machine.measured());
            }
            other => panic!("no such request: {other}"),
        }
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u32>().unwrap_or_else(|_| panic!("no number: {text}"));
    let (name, searches, one): (&str, &str, OneSearch) = match words[..] {
        ["serve", name] => return serve(name),
        ["guided", name, searches] => (name, searches, Box::new(|world, seed| searched(world, seed, true))),
        ["whole", name, searches] => (name, searches, Box::new(|world, seed| searched(world, seed, false))),
        ["random", name, searches, draws] => {
            let draws = number(draws);
            (name, searches, Box::new(move |world, seed| drawn(world, seed, draws)))
        }
        _ => panic!("guided|whole WORLD SEARCHES, random WORLD SEARCHES DRAWS, or serve WORLD"),
    };
    for seed in 1..=u64::from(number(searches)) {
        match one(world(name, seed), seed) {
            Some(repeats) => println!("{repeats}"),
            None => println!("none"),
        }
    }
}
