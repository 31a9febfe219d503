//! One step of a search for the change that made something worse: whether a run resembles the good runs or the bad
//! ones.
//!
//! The limit is the geometric mean of the medians of both groups. Each repeat of the run is above it or not. The
//! [`evidence`] that most repeats are on one side decides. A run whose median is on the other side is misjudged with
//! the stated probability at most, however often the evidence is examined.

use crate::contrast::median;
use crate::search::evidence;
use whylate_core::figure::{counted, share};
use whylate_core::order::InOrder;
use whylate_core::result::{BISECT_FORMAT, BisectGroup, BisectOutcome, BisectResult};

/// The most repeats that a step asks for.
const REPEATS_MAX: u32 = 1_000;

/// Judges the repeats of a run by those of good and bad runs; smaller values are better. The groups have to differ by
/// more than `margin`.
pub fn bisect(
    good: &[f64],
    bad: &[f64],
    run: &[f64],
    margin: f64,
    error: f64,
) -> Result<BisectResult, String> {
    let middle = |values: &[f64]| {
        let mut values = values.to_vec();
        values.order_by(f64::total_cmp);
        median(&values)
    };
    let (Some(of_good), Some(of_bad)) = (middle(good), middle(bad)) else {
        return Err("the good runs or the bad runs have no complete repeat with the statistic".to_owned());
    };
    if of_bad <= of_good * (1.0 + margin) {
        return Err(format!(
            "the bad runs are not worse than the good runs by more than {}: the median is {of_bad:.0} for the bad \
             runs, and {of_good:.0} for the good runs (times in nanoseconds)",
            share(margin)
        ));
    }
    let limit = (of_good.max(1.0) * of_bad).sqrt();
    let group = |values: &[f64]| BisectGroup {
        repeats: values.len() as u32,
        above: values.iter().filter(|value| **value > limit).count() as u32,
    };
    let (run, good, bad) = (group(run), group(good), group(bad));
    let needed = 1.0 / error;
    let outcome = match run {
        BisectGroup { above, repeats } if evidence(above, repeats) >= needed => BisectOutcome::Bad,
        BisectGroup { above, repeats } if evidence(repeats - above, repeats) >= needed => BisectOutcome::Good,
        _ => BisectOutcome::CannotTell,
    };
    let mut result = BisectResult {
        format: BISECT_FORMAT.to_owned(),
        outcome,
        limit,
        error,
        run,
        good,
        bad,
        ..BisectResult::default()
    };
    result.sentence = sentence(&result);
    Ok(result)
}

fn sentence(result: &BisectResult) -> String {
    let of = |group: BisectGroup| format!("{} of {}", group.above, group.repeats);
    let counts = format!(
        "{} repeats are above the limit between good and bad (good runs: {}, bad runs: {})",
        of(result.run),
        of(result.good),
        of(result.bad)
    );
    match result.outcome {
        BisectOutcome::CannotTell => {
            format!(
                "cannot tell: {counts}; {} on one side of the limit would be enough",
                counted(more(result), "more repeat")
            )
        }
        known => format!("{known}: {counts}; the risk of error is at most {} %", result.error * 100.0),
    }
}

/// The least number of further repeats, if all of them fall on the side that has most.
fn more(result: &BisectResult) -> u32 {
    let BisectGroup { repeats, above } = result.run;
    let most = above.max(repeats - above);
    let is_enough = |more: &u32| evidence(most + more, repeats + more) >= 1.0 / result.error;
    (1..REPEATS_MAX).find(is_enough).unwrap_or(REPEATS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix;

    #[test]
    fn a_run_is_good_or_bad_or_neither() {
        let (good, bad) = (vec![90.0, 100.0, 110.0], vec![380.0, 400.0, 450.0]);
        let of = |run: &[f64]| bisect(&good, &bad, run, 0.1, 0.05).unwrap();
        let found = of(&[390.0; 7]);
        assert_eq!((found.outcome, found.limit), (BisectOutcome::Bad, 200.0));
        let expected = "bad: 7 of 7 repeats are above the limit between good and bad (good runs: 0 of 3, bad \
            runs: 3 of 3); the risk of error is at most 5 %";
        assert_eq!(found.sentence, expected);
        assert_eq!(of(&[120.0; 8]).outcome, BisectOutcome::Good);
        let open = of(&[120.0, 120.0, 500.0]);
        assert_eq!(open.outcome, BisectOutcome::CannotTell);
        assert!(
            open.sentence.contains("1 of 3 repeats") && open.sentence.contains("8 more"),
            "{}",
            open.sentence
        );
        assert_eq!(of(&[]).outcome, BisectOutcome::CannotTell);
        assert!(bisect(&bad, &good, &[1.0], 0.1, 0.05).unwrap_err().contains("not worse"));
        assert!(bisect(&good, &[], &[1.0], 0.1, 0.05).is_err());
    }

    /// The hardest run: its median is the limit itself.
    #[test]
    fn wrong_answers_are_as_rare_as_stated() {
        let mut random = SplitMix(3);
        let wrong = (0..4_000).filter(|_| {
            let mut run = Vec::new();
            // The evidence is examined after each repeat, and the first answer counts.
            (0..24).any(|_| {
                run.push(if random.unit() < 0.5 { 150.0 } else { 250.0 });
                bisect(&[100.0], &[400.0], &run, 0.1, 0.05).unwrap().outcome == BisectOutcome::Bad
            })
        });
        let wrong = wrong.count();
        assert!(wrong <= 200, "{wrong} of 4000");
    }
}
