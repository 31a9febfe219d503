//! How two kinds of runs (two kernels, say) differ over many boards, with the board as the unit.
//!
//! Each board is compared only with itself: its effect is the difference between the means of the logarithms of its
//! runs' figures. The effects, one for each board, give the ratio and its interval (Student's t). So a board with
//! many runs counts no more than another, and boards that differ make the interval wider. Samples of boards are never
//! pooled.

use crate::contrast::{SIGNIFICANCE, holm, outcome, student};
use crate::moments::{mean, squares, variance};
use whylate_core::result::Outcome;

/// A board with fewer runs of one kind does not show how much its runs differ.
pub const RUNS_MIN: usize = 3;

/// The figures of a board's runs: positive ones, of each kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Board {
    pub name: String,
    /// A figure of each run of the first kind.
    pub first: Vec<f64>,
    /// A figure of each run of the second kind.
    pub second: Vec<f64>,
}

/// What all boards show.
#[derive(Clone, Debug, PartialEq)]
pub struct Meta {
    /// The second kind over the first one: the geometric mean over boards.
    pub ratio: f64,
    /// Its 95 % interval; `None` with one board.
    pub interval_95: Option<(f64, f64)>,
    /// What may be said of the ratio.
    pub outcome: Outcome,
    /// Two-sided p-value of "no difference".
    pub p_value: f64,
    /// The part of the spread of boards' ratios that their runs do not explain, from 0 to 1.
    pub heterogeneity: f64,
    /// The factor by which a typical board's ratio differs from the overall one, apart from the spread of its runs;
    /// 1: not at all.
    pub spread: f64,
    /// Each board that has enough runs.
    pub boards: Vec<BoardEffect>,
    /// Names of the boards that have too few.
    pub left_out: Vec<String>,
    /// How many boards of either kind were compared with each other, if none has both kinds of runs.
    pub apart: Option<(usize, usize)>,
}

/// What one board shows.
#[derive(Clone, Debug, PartialEq)]
pub struct BoardEffect {
    pub name: String,
    pub runs: (usize, usize),
    /// The second kind over the first one.
    pub ratio: f64,
    /// Its 95 % interval, by its own runs.
    pub interval_95: (f64, f64),
    /// Whether it differs from what the other boards show (Holm over all boards, 5 %).
    pub disagrees: bool,
}

/// A board's difference of means, and how well it is known.
struct Effect {
    name: String,
    runs: (usize, usize),
    difference: f64,
    /// Sum of squares of its runs around their means.
    squares: f64,
}

impl Effect {
    fn of(board: &Board) -> Option<Self> {
        let logs = |values: &[f64]| -> Vec<f64> {
            values.iter().filter(|value| **value > 0.0).map(|value| value.ln()).collect()
        };
        let (first, second) = (logs(&board.first), logs(&board.second));
        let is_enough = first.len().min(second.len()) >= RUNS_MIN;
        is_enough.then(|| Self {
            name: board.name.clone(),
            runs: (first.len(), second.len()),
            difference: mean(&second) - mean(&first),
            squares: squares(&first) + squares(&second),
        })
    }

    fn degrees(&self) -> usize {
        self.runs.0 + self.runs.1 - 2
    }

    /// The variance of its difference, if runs have the variance `of_runs`.
    fn variance(&self, of_runs: f64) -> f64 {
        of_runs * (1.0 / self.runs.0 as f64 + 1.0 / self.runs.1 as f64)
    }

    /// The variance of its difference, by its own runs.
    fn own_variance(&self) -> f64 {
        self.variance(self.squares / self.degrees() as f64).max(1e-18)
    }
}

/// Judges several statistics at once: p-values are corrected by Holm, and a difference of up to `margin` (a share)
/// does not matter.
pub fn conclude<'a>(all: impl IntoIterator<Item = &'a mut Meta>, margin: f64) {
    let mut all: Vec<&mut Meta> = all.into_iter().collect();
    let mut p_values: Vec<f64> = all.iter().map(|meta| meta.p_value).collect();
    holm(&mut p_values);
    for (meta, p_value) in all.iter_mut().zip(p_values) {
        let (low, high) = (meta.interval_95.map(|it| it.0.ln()), meta.interval_95.map(|it| it.1.ln()));
        meta.p_value = p_value;
        meta.outcome = outcome(p_value, meta.ratio.ln(), (low, high), margin.ln_1p());
    }
}

/// Compares two kinds of runs over boards; [`conclude`] judges the result. `None` if no board has [`RUNS_MIN`] runs
/// of either kind.
pub fn meta(boards: &[Board]) -> Option<Meta> {
    let effects: Vec<Effect> = boards.iter().filter_map(Effect::of).collect();
    let is_left_out = |board: &&Board| !effects.iter().any(|effect| effect.name == board.name);
    let left_out = boards.iter().filter(is_left_out).map(|board| board.name.clone()).collect();
    let differences: Vec<f64> = effects.iter().map(|effect| effect.difference).collect();
    let (count, effect) = (effects.len(), (!differences.is_empty()).then(|| mean(&differences))?);
    let error = (count > 1).then(|| (variance(&differences) / count as f64).sqrt().max(1e-9));
    let half = error.map(|error| student::quantile(SIGNIFICANCE, count - 1) * error);
    let p_value = error.map_or(1.0, |error| student::two_sided(effect / error, count - 1));
    let bounds = half.map(|half| (effect - half, effect + half));
    let (heterogeneity, between) = heterogeneity(&effects, &differences);
    Some(Meta {
        ratio: effect.exp(),
        interval_95: bounds.map(|(low, high)| (low.exp(), high.exp())),
        outcome: Outcome::CannotTell,
        p_value,
        heterogeneity,
        spread: between.sqrt().exp(),
        boards: of_boards(&effects, &differences),
        left_out,
        apart: None,
    })
}

/// Compares boards that have only runs of the first kind with boards that have only runs of the second kind. It takes
/// the mean of the logarithms of each board's runs and applies Welch's test with the degrees of freedom of the
/// smaller group (no more are claimed than there are). The spread between boards makes the interval much wider than
/// that of [`meta`]. `None` if either kind has fewer than two boards with [`RUNS_MIN`] runs.
pub fn meta_apart(boards: &[Board]) -> Option<Meta> {
    let middles = |of: fn(&Board) -> (&Vec<f64>, &Vec<f64>)| -> Vec<f64> {
        let own = boards.iter().map(of).filter(|(_, other)| other.is_empty());
        let logs =
            own.map(|(own, _)| own.iter().filter(|it| **it > 0.0).map(|it| it.ln()).collect::<Vec<f64>>());
        logs.filter(|logs| logs.len() >= RUNS_MIN).map(|logs| mean(&logs)).collect()
    };
    let (first, second) = (middles(|it| (&it.first, &it.second)), middles(|it| (&it.second, &it.first)));
    let smaller = first.len().min(second.len());
    if smaller < 2 {
        return None;
    }
    let effect = mean(&second) - mean(&first);
    let of_mean = |values: &[f64]| variance(values) / values.len() as f64;
    let error = (of_mean(&first) + of_mean(&second)).sqrt().max(1e-9);
    let half = student::quantile(SIGNIFICANCE, smaller - 1) * error;
    let is_left_out = |board: &&Board| {
        (board.first.is_empty() != board.second.is_empty())
            && board.first.len().max(board.second.len()) < RUNS_MIN
    };
    Some(Meta {
        ratio: effect.exp(),
        interval_95: Some(((effect - half).exp(), (effect + half).exp())),
        outcome: Outcome::CannotTell,
        p_value: student::two_sided(effect / error, smaller - 1),
        heterogeneity: 0.0,
        spread: 1.0,
        boards: Vec::new(),
        left_out: boards.iter().filter(is_left_out).map(|board| board.name.clone()).collect(),
        apart: Some((first.len(), second.len())),
    })
}

/// The part of the variance of differences that runs do not explain, and that variance.
fn heterogeneity(effects: &[Effect], differences: &[f64]) -> (f64, f64) {
    if effects.len() < 2 {
        return (0.0, 0.0);
    }
    let degrees: usize = effects.iter().map(Effect::degrees).sum();
    let of_runs = effects.iter().map(|effect| effect.squares).sum::<f64>() / degrees as f64;
    let within = mean(&effects.iter().map(|effect| effect.variance(of_runs)).collect::<Vec<_>>());
    let all = variance(differences);
    let between = (all - within).max(0.0);
    (if all > 0.0 { between / all } else { 0.0 }, between)
}

fn of_boards(effects: &[Effect], differences: &[f64]) -> Vec<BoardEffect> {
    let mut p_values: Vec<f64> =
        effects.iter().enumerate().map(|(at, effect)| disagreement(effect, at, differences)).collect();
    holm(&mut p_values);
    let of = |(effect, p_value): (&Effect, f64)| {
        let half = student::quantile(SIGNIFICANCE, effect.degrees()) * effect.own_variance().sqrt();
        BoardEffect {
            name: effect.name.clone(),
            runs: effect.runs,
            ratio: effect.difference.exp(),
            interval_95: ((effect.difference - half).exp(), (effect.difference + half).exp()),
            disagrees: p_value <= SIGNIFICANCE,
        }
    };
    effects.iter().zip(p_values).map(of).collect()
}

/// P-value of "this board is one of the others": the others show how much boards differ, its own runs how well it is
/// known.
fn disagreement(effect: &Effect, at: usize, differences: &[f64]) -> f64 {
    let mut others = differences.to_vec();
    others.remove(at);
    if others.len() < 2 {
        return 1.0;
    }
    let spread = variance(&others);
    // The spread of the others includes the spread of their runs.
    let all = spread.max(effect.own_variance()) + spread / others.len() as f64;
    student::two_sided((effect.difference - mean(&others)) / all.sqrt().max(1e-9), others.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix;

    /// About normal: the sum of twelve uniform numbers.
    fn normal(random: &mut SplitMix) -> f64 {
        (0..12).map(|_| random.unit()).sum::<f64>() - 6.0
    }

    /// Boards of very different levels and spreads; `ratio` of board `n`, with 3 to 9 runs of either kind.
    fn farm(seed: u64, count: u64, ratio: impl Fn(u64) -> f64) -> Vec<Board> {
        let mut random = SplitMix(seed);
        let board = |number: u64| {
            let level = 10_000.0 * (1.0 + number as f64);
            let spread = 0.02 + 0.01 * (number % 7) as f64;
            let mut runs = |level: f64, count: u64| -> Vec<f64> {
                (0..count).map(|_| level * (spread * normal(&mut random)).exp()).collect()
            };
            let first = runs(level, 3 + number % 7);
            let second = runs(level * ratio(number), 3 + (number + 3) % 7);
            Board { name: format!("board-{number}"), first, second }
        };
        (0..count).map(board).collect()
    }

    fn concluded(boards: &[Board], margin: f64) -> Meta {
        let mut found = meta(boards).unwrap();
        conclude([&mut found], margin);
        found
    }

    #[test]
    fn only_differences_on_all_boards_are_found() {
        let (mut wrong, mut covered, mut accused) = (0, 0, 0);
        for seed in 0..300 {
            let found = concluded(&farm(seed, 12, |_| 1.0), 0.0);
            wrong += usize::from(matches!(found.outcome, Outcome::Better | Outcome::Worse));
            accused += usize::from(found.boards.iter().any(|board| board.disagrees));
            let found = concluded(&farm(seed, 12, |_| 1.3), 0.05);
            assert_eq!(found.outcome, Outcome::Worse, "{seed}: {found:?}");
            let (low, high) = found.interval_95.unwrap();
            covered += usize::from((low..=high).contains(&1.3));
        }
        // 5 % of 300 are expected; 8 % would happen once in a hundred such tests.
        assert!(wrong <= 26 && accused <= 26, "{wrong} and {accused} of 300");
        assert!(covered >= 274, "{covered} of 300");
    }

    #[test]
    fn boards_that_disagree_are_named() {
        for seed in 0..50 {
            let found = concluded(&farm(seed, 20, |number| if number == 4 { 2.0 } else { 0.8 }), 0.05);
            let names: Vec<&str> =
                found.boards.iter().filter(|it| it.disagrees).map(|it| it.name.as_str()).collect();
            assert!(names.contains(&"board-4"), "{seed}: {found:?}");
            assert!(found.heterogeneity > 0.5, "{seed}: {found:?}");
        }
    }

    #[test]
    fn boards_that_differ_make_the_interval_wider() {
        let width = |found: &Meta| found.interval_95.map(|(low, high)| (high / low).ln()).unwrap();
        let alike = concluded(&farm(1, 20, |_| 1.1), 0.05);
        let varied = concluded(&farm(1, 20, |number| if number % 2 == 0 { 0.9 } else { 1.3 }), 0.05);
        assert!(width(&varied) > 2.0 * width(&alike), "{alike:?}\n{varied:?}");
        assert!(varied.spread > 1.1 && alike.spread < 1.05, "{} {}", varied.spread, alike.spread);
    }

    #[test]
    fn boards_with_too_few_runs_are_left_out_and_listed() {
        let mut boards = farm(1, 3, |_| 1.0);
        boards[1].second.truncate(2);
        let found = concluded(&boards, 0.05);
        assert_eq!((found.boards.len(), found.left_out), (2, vec!["board-1".to_owned()]));
        let one = concluded(&boards[..1], 0.05);
        assert_eq!((one.interval_95, one.outcome), (None, Outcome::CannotTell));
        assert_eq!(meta(&boards[1..2]), None);
    }

    /// Boards that differ by about a tenth, each with runs of only one kind.
    fn apart(random: &mut SplitMix, counts: (usize, usize), ratio: f64) -> Vec<Board> {
        let mut board = |index: usize, factor: f64| {
            let level = factor * 1000.0 * (0.1 * normal(random)).exp();
            let runs = (0..5).map(|_| level * (0.03 * normal(random)).exp()).collect();
            let (first, second) = if index < counts.0 { (runs, Vec::new()) } else { (Vec::new(), runs) };
            Board { name: format!("board-{index}"), first, second }
        };
        (0..counts.0 + counts.1)
            .map(|index| board(index, if index < counts.0 { 1.0 } else { ratio }))
            .collect()
    }

    #[test]
    fn equal_groups_of_boards_seem_to_differ_in_at_most_five_percent() {
        let mut random = SplitMix(11);
        let is_alarm = |_: &usize| meta_apart(&apart(&mut random, (12, 5), 1.0)).unwrap().p_value <= 0.05;
        let alarms = (0..400).filter(is_alarm).count();
        // At most 20 are expected; 33 is three standard deviations more.
        assert!(alarms <= 33, "{alarms} of 400");
    }

    #[test]
    fn groups_of_boards_that_differ_are_distinguished() {
        let mut random = SplitMix(5);
        let found = meta_apart(&apart(&mut random, (15, 12), 1.5)).unwrap();
        let (low, high) = found.interval_95.unwrap();
        assert!(low < 1.5 && 1.5 < high && low > 1.1 && found.p_value < 0.01, "{found:?}");
        assert_eq!((found.apart, found.boards.len()), (Some((15, 12)), 0));
        assert_eq!(meta_apart(&apart(&mut random, (15, 1), 1.5)), None);
    }
}
