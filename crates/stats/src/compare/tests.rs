//! Equal runs raise no more alarms than promised; planted effects are found if the number of runs allows it.

use super::*;
use crate::random::SplitMix;
use whylate_core::plan::Statistic;
use whylate_core::result::{
    CellResult, CompareOutcome, CompareResult, Quantiles, RepeatProbe, RepeatResult, RunResult,
};

/// A run with one cell, whose repeats are spread around `p999_ns`.
fn run(random: &mut SplitMix, p999_ns: f64, between_runs: f64) -> RunValues {
    let noise = |random: &mut SplitMix| (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
    let of_run = p999_ns * (between_runs * noise(random)).exp();
    let repeat = |repeat: u32, random: &mut SplitMix| {
        let value = (of_run * (0.2 * noise(random)).exp()) as u64;
        let quantiles = Quantiles {
            p50_ns: 3_000,
            p99_ns: value / 2,
            p999_ns: value,
            max_ns: value * 3,
            ..Quantiles::default()
        };
        let probe =
            RepeatProbe { probe: "timer".to_owned(), quantiles: Some(quantiles), ..RepeatProbe::default() };
        RepeatResult { repeat, probes: vec![probe], ..RepeatResult::default() }
    };
    let cell = CellResult {
        name: "idle".to_owned(),
        repeats: (0..8).map(|nth| repeat(nth, random)).collect(),
        ..CellResult::default()
    };
    RunValues::of_run(&with_cell(cell), None, None)
}

fn with_cell(cell: CellResult) -> RunResult {
    let plan =
        "name = \"x\"\nduration = \"1s\"\n[target]\ncpus = \"0\"\n[[probe]]\nkind = \"timer\"\n[[cell]]\n";
    let plan =
        whylate_core::plan::Plan::parse(&whylate_core::plan::Source { name: "x", text: plan }, &[]).unwrap();
    RunResult {
        format: String::new(),
        run: String::new(),
        started_at: String::new(),
        state: whylate_core::result::RunState::Complete,
        error: None,
        plan,
        facts: whylate_core::Facts::default(),
        cells: vec![cell],
        answers: Vec::new(),
        comparisons: Vec::new(),
        cause_contrasts: Vec::new(),
        fix: None,
        copies: None,
        loaded_latency: Vec::new(),
        cpu_tables: Vec::new(),
        kernel_log: Vec::new(),
        verdict: whylate_core::result::Verdict::NoLimit,
        verdict_reason: String::new(),
        exposure: None,
        restored: None,
        warnings: Vec::new(),
    }
}

fn primary() -> SeriesStatistic {
    SeriesStatistic { series: "timer".to_owned(), statistic: Statistic::P999 }
}

fn outcome(baseline: &[RunValues], side: &[RunValues], history: &[RunValues]) -> Outcome {
    let primary = primary();
    let question = Question {
        baseline: ("A", baseline),
        side: ("B", side),
        history,
        primary: Some(&primary),
        margin: 0.05,
    };
    compare(&question).into_iter().find(|it| it.comparison.primary).unwrap().comparison.outcome
}

fn runs(random: &mut SplitMix, count: usize, p999_ns: f64) -> Vec<RunValues> {
    (0..count).map(|_| run(random, p999_ns, 0.3)).collect()
}

#[test]
fn single_runs_claim_nothing_whatever_the_difference() {
    let mut random = SplitMix(7);
    let (a, b) = (runs(&mut random, 1, 10_000.0), runs(&mut random, 1, 90_000.0));
    assert_eq!(outcome(&a, &b, &[]), Outcome::CannotTell);
    assert_eq!(outcome(&a, &b, &runs(&mut random, 4, 10_000.0)), Outcome::CannotTell);
    assert_eq!(outcome(&a, &b, &runs(&mut random, 5, 10_000.0)), Outcome::Worse);
    assert_eq!(basis(1, 1, 5), Basis::History(5));
}

#[test]
fn runs_that_are_alike_raise_few_alarms() {
    let mut random = SplitMix(11);
    let pairs = 1_000;
    for (runs_each, history, most) in [(1, 5, 70), (1, 20, 70), (4, 0, 60)] {
        let alarm = |random: &mut SplitMix| {
            let past = runs(random, history, 20_000.0);
            let (a, b) = (runs(random, runs_each, 20_000.0), runs(random, runs_each, 20_000.0));
            outcome(&a, &b, &past) != Outcome::CannotTell
        };
        let alarms = (0..pairs).filter(|_| alarm(&mut random)).count();
        assert!(alarms <= most, "{alarms} of {pairs} with {runs_each} runs and a history of {history}");
    }
}

#[test]
fn a_history_of_another_time_raises_few_alarms() {
    let mut random = SplitMix(17);
    // The machine was quiet then and is not now.
    let alarm = |random: &mut SplitMix| {
        let past: Vec<RunValues> = (0..10).map(|_| run(random, 20_000.0, 0.1)).collect();
        let (a, b) = (runs(random, 1, 60_000.0), runs(random, 1, 60_000.0));
        outcome(&a, &b, &past) != Outcome::CannotTell
    };
    let alarms = (0..500).filter(|_| alarm(&mut random)).count();
    assert!(alarms <= 35, "{alarms} of 500");
}

#[test]
fn planted_effects_are_found() {
    let mut random = SplitMix(13);
    let found = |runs_each: usize, history: usize, random: &mut SplitMix| {
        let past = runs(random, history, 20_000.0);
        let (a, b) = (runs(random, runs_each, 20_000.0), runs(random, runs_each, 100_000.0));
        outcome(&a, &b, &past) == Outcome::Worse
    };
    assert!((0..100).filter(|_| found(1, 8, &mut random)).count() > 80);
    assert!((0..100).filter(|_| found(5, 0, &mut random)).count() > 90);
}

#[test]
fn a_quantile_above_the_histogram_of_a_tool_is_not_compared() {
    use whylate_core::quantity::{ABOVE_HISTOGRAM, Quantities};
    use whylate_core::result::{CpuResult, MeasureResult, ProbeResult};
    let of = |above: u64| {
        let cpu = CpuResult {
            samples: 1_000,
            quantiles: Some(Quantiles { p99_ns: 400_000, max_ns: 4_000_000, ..Quantiles::default() }),
            quantities: Quantities::default().with(ABOVE_HISTOGRAM, Some(above).filter(|it| *it > 0)),
            ..CpuResult::default()
        };
        let probe = ProbeResult { probe: "timer".to_owned(), cpus: vec![cpu], ..ProbeResult::default() };
        let values = RunValues::of_measure(&MeasureResult { probe, ..MeasureResult::default() });
        [Statistic::Median, Statistic::P99, Statistic::P999, Statistic::Max].map(|statistic| {
            values.of_statistic("", &SeriesStatistic { series: "timer".to_owned(), statistic }).is_some()
        })
    };
    assert_eq!(of(0), [true; 4]);
    assert_eq!(of(1), [true; 4], "one of 1,000 is the largest, which is known");
    assert_eq!(of(14), [true, false, false, true]);
    assert_eq!(of(600), [false, false, false, true]);
}

#[test]
fn an_open_comparison_names_statistics_that_are_clear() {
    let mut random = SplitMix(13);
    let (a, b) = (runs(&mut random, 5, 20_000.0), runs(&mut random, 5, 100_000.0));
    let primary = primary();
    let question = Question {
        baseline: ("A", &a),
        side: ("B", &b),
        history: &[],
        primary: Some(&primary),
        margin: 0.05,
    };
    let mut contrasts = compare(&question);
    for contrast in &mut contrasts {
        let comparison = &mut contrast.comparison;
        comparison.outcome = match comparison.statistic {
            _ if comparison.primary => Outcome::CannotTell,
            Statistic::P99 => Outcome::Worse,
            _ => Outcome::Equivalent,
        };
    }
    let mut result = CompareResult { contrasts, ..CompareResult::default() };
    conclude(&mut result, Some(&primary), &[]);
    assert_eq!(result.outcome, CompareOutcome::CannotTell);
    let reason = &result.reason;
    assert!(
        reason.contains("timer p99 in idle is worse (") && reason.contains("--statistic 'timer p99' makes"),
        "{reason}"
    );
    for contrast in &mut result.contrasts {
        contrast.comparison.outcome = Outcome::CannotTell;
    }
    conclude(&mut result, Some(&primary), &[]);
    assert!(!result.reason.contains("--statistic"), "{}", result.reason);
    for contrast in &mut result.contrasts {
        contrast.comparison.outcome =
            if contrast.comparison.primary { Outcome::CannotTell } else { Outcome::Worse };
        contrast.comparison.refused = Some("a file lacks it".to_owned());
    }
    conclude(&mut result, Some(&primary), &[]);
    assert!(!result.reason.contains("--statistic"), "some result lacks it: {}", result.reason);
}

/// A measurement of CPUs with this many of 1,000 samples above the end of the histogram.
fn measured(above: &[u64], p999_ns: u64) -> RunValues {
    use whylate_core::quantity::{ABOVE_HISTOGRAM, Quantities};
    use whylate_core::result::{CpuResult, MeasureResult, ProbeResult};
    let cpu = |(cpu, above): (u32, &u64)| CpuResult {
        cpu: whylate_core::CpuId(cpu),
        samples: 1_000,
        quantiles: Some(Quantiles {
            p50_ns: 9_000,
            p99_ns: 20_000,
            p999_ns,
            max_ns: 900_000,
            ..Quantiles::default()
        }),
        quantities: Quantities::default().with(ABOVE_HISTOGRAM, Some(*above).filter(|it| *it > 0)),
        ..CpuResult::default()
    };
    let cpus = (0..).zip(above).map(cpu).collect();
    let probe = ProbeResult { probe: "timer".to_owned(), cpus, ..ProbeResult::default() };
    RunValues::of_measure(&MeasureResult { probe, ..MeasureResult::default() })
}

#[test]
fn a_file_without_the_deciding_statistic_leaves_the_outcome_open() {
    let concluded = |baseline: &[RunValues], side: &[RunValues]| {
        let primary = primary();
        let question = Question {
            baseline: ("A", baseline),
            side: ("B", side),
            history: &[],
            primary: Some(&primary),
            margin: 0.05,
        };
        let contrasts = compare(&question);
        let mut result = CompareResult { contrasts, ..CompareResult::default() };
        conclude(&mut result, Some(&primary), &lacking(&question));
        (result.outcome, result.reason)
    };
    let before: Vec<RunValues> = (0..8).map(|nth| measured(&[0], 100_000 + nth)).collect();
    let mut after: Vec<RunValues> = (0..8).map(|nth| measured(&[0], 50_000 + nth)).collect();
    assert_eq!(concluded(&before, &after).0, CompareOutcome::Better);
    for value in &mut after[..4] {
        *value = measured(&[5], 400_000);
    }
    let (outcome, reason) = concluded(&before, &after);
    assert_eq!(outcome, CompareOutcome::CannotTell);
    let why = "the p99.9 of 4 of 8 files on side B is above the end of their histogram";
    assert!(reason.contains(why), "{reason}");
    let (outcome, reason) = concluded(&after, &before);
    assert!(outcome == CompareOutcome::CannotTell && reason.contains("4 of 8 files on side A"), "{reason}");
    let none: Vec<RunValues> = (0..8).map(|_| measured(&[5], 400_000)).collect();
    // All of them are longer than all others, whatever their values.
    assert_eq!(concluded(&before, &none).0, CompareOutcome::Worse);
    assert_eq!(concluded(&none, &before).0, CompareOutcome::Better);
    let (outcome, reason) = concluded(&none, &none);
    assert!(outcome == CompareOutcome::CannotTell && reason.contains("8 of 8 files on side A"), "{reason}");
    // The CPU whose quantile is not known may be the worst.
    after[0] = measured(&[0, 5], 50_000);
    (1..4).for_each(|nth| after[nth] = measured(&[0, 0], 50_000));
    let (outcome, reason) = concluded(&before, &after);
    assert!(outcome == CompareOutcome::CannotTell && reason.contains("1 of 8 files on side B"), "{reason}");
    let mut runs: Vec<RunValues> = (0..8).map(|nth| measured(&[0], 50_000 + nth)).collect();
    runs[0] = RunValues::default();
    let (outcome, reason) = concluded(&before, &runs);
    assert!(
        outcome == CompareOutcome::CannotTell && reason.contains("missing in 1 of 8 results of side B"),
        "{reason}"
    );
}

#[test]
fn values_of_zero_are_compared_by_their_ranks_and_other_limits_not_at_all() {
    let run = |gaps: f64, limit_us: u64| {
        let probe = RepeatProbe {
            probe: "stall".to_owned(),
            measured_ns: 1_000_000_000,
            gaps_per_s: Some(gaps),
            ..RepeatProbe::default()
        };
        let spikes = RepeatProbe {
            probe: "timer".to_owned(),
            spikes_per_h: Some(gaps * 3_600.0),
            ..RepeatProbe::default()
        };
        let repeat = RepeatResult { probes: vec![probe, spikes], ..RepeatResult::default() };
        let cell = CellResult { name: "idle".to_owned(), repeats: vec![repeat], ..CellResult::default() };
        let mut run = with_cell(cell);
        run.plan.limit = Some(whylate_core::Nanos::from_micros(limit_us));
        RunValues::of_run(&run, None, None)
    };
    let runs = |gaps: [f64; 5], limit_us: u64| gaps.map(|gaps| run(gaps, limit_us));
    let found = |first: &[RunValues], second: &[RunValues], history: &[RunValues], statistic: Statistic| {
        let question =
            Question { baseline: ("A", first), side: ("B", second), history, primary: None, margin: 0.05 };
        let found = compare(&question).into_iter().find(|it| it.comparison.statistic == statistic);
        found.unwrap().comparison
    };
    let (few, many) = (runs([2.0, 0.0, 0.0, 0.0, 0.0], 100), runs([100.0, 101.0, 100.0, 100.0, 100.0], 100));
    for statistic in [Statistic::GapRate, Statistic::SpikeRate] {
        let worse = found(&few, &many, &[], statistic);
        assert_eq!((worse.outcome, worse.ratio), (Outcome::Worse, None), "{worse:?}");
        assert!((worse.p_value - 2.0 / 252.0).abs() < 1e-9, "{worse:?}");
        assert_eq!(found(&many, &few, &[], statistic).outcome, Outcome::Better);
        assert_eq!(found(&few, &few, &[], statistic).outcome, Outcome::CannotTell);
        assert_eq!(found(&few[..1], &many[..1], &few, statistic).outcome, Outcome::CannotTell);
    }
    let other = runs([100.0, 101.0, 100.0, 100.0, 100.0], 5_000);
    let refused = found(&few, &other, &[], Statistic::SpikeRate);
    assert_eq!(refused.outcome, Outcome::CannotTell);
    assert!(refused.refused.is_some_and(|why| why.contains("100 us") && why.contains("5.00 ms")));
    assert_eq!(found(&few, &other, &[], Statistic::GapRate).outcome, Outcome::Worse);
}
