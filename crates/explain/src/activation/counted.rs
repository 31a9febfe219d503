//! Whether a task's own work took longer because it was more work, or because the same work was slower.
//!
//! The running time is instructions, times cycles for each instruction, times the time of a cycle. So the logarithms of the three
//! ratios to the thread's ordinary activations add up to that of the running time, and each is a share of what made it longer. A change
//! is named where its share is large.
//!
//! Interrupts in the running time are counted, too. Nothing is said where they are much of what is longer.

use crate::blame::piece::Piece;
use crate::confidence::{LEFT_OVER, LIKELY, POSSIBLE};
use crate::time;
use whylate_core::figure::{count, nanoseconds};
use whylate_core::recording::{Activation, UsualCounts};
use whylate_core::result::{Cause, CauseKind as Kind, CountedWork, OwnCounters, WorkChange};

/// An activation that ran for less than this many times the usual time is not longer than usual.
const LONGER_LEAST: f64 = 1.25;
/// A change that has this share of what is longer is named.
const SHARE_LEAST: f64 = 0.6;
/// Interrupts may have this part of the time by which the thread ran longer.
const INTERRUPTED_MAX: f64 = 0.25;
/// Misses for each instruction have risen if they are at least this many times the usual ones.
const MISSES_LEAST: f64 = 1.5;
/// A miss of the last cache takes at most about this many cycles, and misses have to explain this part of the additional ones.
const MISS_CYCLES: f64 = 300.0;
const MISSES_PART: f64 = 0.5;

/// Adds to the own work what the counters show of it, and what is different in ordinary activations.
pub(super) fn compare(causes: &mut [Cause], pieces: &[Piece<()>], activation: &Activation) {
    let Some(own) = causes.iter_mut().find(|cause| cause.kind == Kind::OwnWork) else { return };
    let counts = activation.counts;
    let Some(instructions) = counts.instructions.filter(|instructions| *instructions > 0) else { return };
    let here = CountedWork {
        run_ns: activation.running_ns(),
        instructions,
        cycles: counts.cycles,
        cache_misses: counts.cache_misses,
    };
    let habit = activation.usual;
    let usual = habit.as_ref().and_then(usual_work);
    let is_own = |piece: &&Piece<()>| piece.blame.kind == Some(Kind::OwnWork);
    let own_ns: u64 = pieces.iter().filter(is_own).map(|piece| time::between(piece.from, piece.to)).sum();
    let found = usual.and_then(|usual| change(&here, &usual, own_ns));
    if let (Some((change, _)), Some(usual)) = (found, usual) {
        own.evidence.push(sentence(change, &here, &usual));
    }
    own.counters = Some(OwnCounters {
        here,
        usual,
        activations: habit.map(|habit| habit.activations),
        change: found.map(|(change, _)| change),
        confidence: found.map(|(_, confidence)| confidence),
    });
}

fn usual_work(usual: &UsualCounts) -> Option<CountedWork> {
    let UsualCounts { counts, run_ns, .. } = usual;
    let instructions = counts.instructions.filter(|instructions| *instructions > 0)?;
    Some(CountedWork {
        run_ns: *run_ns,
        instructions,
        cycles: counts.cycles,
        cache_misses: counts.cache_misses,
    })
}

/// What made the thread run longer than usual, and how sure that is. `own_ns` of its running time was its own work.
fn change(here: &CountedWork, usual: &CountedWork, own_ns: u64) -> Option<(WorkChange, f64)> {
    let longer_ns = here.run_ns.saturating_sub(usual.run_ns) as f64;
    let longer = ratio(here.run_ns, usual.run_ns)?;
    let interrupted_ns = here.run_ns.saturating_sub(own_ns) as f64;
    if longer < LONGER_LEAST || interrupted_ns > longer_ns * INTERRUPTED_MAX {
        return None;
    }
    let share = |factor: f64| factor.ln() / longer.ln();
    let more = ratio(here.instructions, usual.instructions)?;
    if share(more) >= SHARE_LEAST {
        return Some((WorkChange::MoreInstructions, LIKELY));
    }
    let cycles = ratio(here.cycles?, usual.cycles?)?;
    if share(longer / cycles) >= SHARE_LEAST {
        return Some((WorkChange::SlowerCycles, POSSIBLE));
    }
    if share(cycles / more) < SHARE_LEAST {
        return None;
    }
    let has_missed = have_risen(here, usual, more).unwrap_or(false);
    Some(if has_missed {
        (WorkChange::MoreCacheMisses, POSSIBLE)
    } else {
        (WorkChange::MoreCycles, LEFT_OVER)
    })
}

/// Whether cache misses can explain the cycles that are more than usual for these instructions.
fn have_risen(here: &CountedWork, usual: &CountedWork, more: f64) -> Option<bool> {
    let (misses, usual_misses) = (here.cache_misses? as f64, usual.cache_misses? as f64 * more);
    let additional = here.cycles? as f64 - usual.cycles? as f64 * more;
    let explained = (misses - usual_misses) * MISS_CYCLES;
    Some(misses >= usual_misses * MISSES_LEAST && explained >= additional * MISSES_PART)
}

fn ratio(here: u64, usual: u64) -> Option<f64> {
    (here > 0 && usual > 0).then(|| here as f64 / usual as f64)
}

fn sentence(change: WorkChange, here: &CountedWork, usual: &CountedWork) -> String {
    let compared = |unit: &str, of: fn(&CountedWork) -> u64| {
        format!("{}{unit}, usually {}", short(of(here)), short(of(usual)))
    };
    let cycles = || compared(" cycles", |work| work.cycles.unwrap_or_default());
    match change {
        WorkChange::MoreInstructions => {
            format!("the task did more work: {}", compared(" instructions", |work| work.instructions))
        }
        WorkChange::MoreCacheMisses => format!(
            "the task's instructions were slower, probably because of memory: {}",
            compared(" cache misses", |work| work.cache_misses.unwrap_or_default())
        ),
        WorkChange::MoreCycles => {
            let is_known = here.cache_misses.and(usual.cache_misses).is_some();
            let reason = if is_known {
                "cache misses do not explain this"
            } else {
                "memory or the other thread of the core may explain this"
            };
            format!("the task's instructions were slower: {}; {reason}", cycles())
        }
        WorkChange::SlowerCycles => format!(
            "each cycle took longer, because of a slower clock or a hypervisor: {}; the task ran {}, usually {}",
            cycles(),
            nanoseconds(here.run_ns),
            nanoseconds(usual.run_ns),
        ),
    }
}

/// `12.1 M`, `340 k`, `950`.
fn short(number: u64) -> String {
    let scaled = |unit: f64, name: &str| {
        let value = number as f64 / unit;
        let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
        format!("{value:.digits$} {name}")
    };
    match number {
        0..10_000 => count(number),
        10_000..1_000_000 => scaled(1e3, "k"),
        1_000_000..1_000_000_000 => scaled(1e6, "M"),
        _ => scaled(1e9, "G"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blame::piece::Blame;
    use crate::confidence::RECORDED;
    use whylate_core::CpuId;
    use whylate_core::recording::{Counts, Doing, Stage};

    /// Usually: 3.0 M instructions and 2.4 M cycles in 1 ms, with 2,000 misses.
    fn usual() -> UsualCounts {
        let counts =
            Counts { instructions: Some(3_000_000), cycles: Some(2_400_000), cache_misses: Some(2_000) };
        UsualCounts { counts, run_ns: 1_000_000, activations: 64 }
    }

    /// An activation that ran so long, of which interrupts took some, with these counts.
    fn explained(run_ns: u64, interrupts_ns: u64, counts: Counts, usual: Option<UsualCounts>) -> Cause {
        let activation = Activation {
            stages: vec![Stage { from_ns: 0, to_ns: run_ns, cpu: CpuId(0), what: Doing::Running }],
            counts,
            usual,
            ..Activation::default()
        };
        let piece = |kind, from, to| Piece {
            from,
            to,
            began: from,
            blame: Blame::new(kind, RECORDED, "it had the CPU"),
            detail: (),
        };
        let pieces = [
            piece(Kind::OwnWork, 0, run_ns - interrupts_ns),
            piece(Kind::Irq, run_ns - interrupts_ns, run_ns),
        ];
        let mut causes = crate::segments::causes_of(&pieces, run_ns, 0);
        compare(&mut causes, &pieces, &activation);
        causes.into_iter().find(|cause| cause.kind == Kind::OwnWork).unwrap()
    }

    fn counts(instructions: u64, cycles: u64, cache_misses: u64) -> Counts {
        let [instructions, cycles, cache_misses] = [instructions, cycles, cache_misses].map(Some);
        Counts { instructions, cycles, cache_misses }
    }

    fn change_of(run_ns: u64, counts: Counts) -> Option<WorkChange> {
        let counters = explained(run_ns, 0, counts, Some(usual())).counters.unwrap();
        let is_sure = counters.change != Some(WorkChange::MoreInstructions)
            && counters.confidence.is_some_and(|confidence| confidence > 0.6);
        assert!(!is_sure, "{counters:?}");
        counters.change
    }

    #[test]
    fn more_instructions_are_more_work() {
        let cause = explained(4_100_000, 0, counts(12_100_000, 9_900_000, 9_000), Some(usual()));
        let last = cause.evidence.last().unwrap();
        assert!(["12.1 M", "3.00 M"].iter().all(|figure| last.contains(figure)), "{last}");
        let counters = cause.counters.unwrap();
        assert_eq!(counters.change, Some(WorkChange::MoreInstructions));
        assert_eq!((counters.activations, counters.usual.unwrap().run_ns), (Some(64), 1_000_000));
        // They are enough where nothing else is counted.
        let alone = Counts { instructions: Some(9_000_000), ..Counts::default() };
        assert_eq!(change_of(3_000_000, alone), Some(WorkChange::MoreInstructions));
        assert_eq!(change_of(3_000_000, Counts { instructions: Some(3_100_000), ..Counts::default() }), None);
    }

    #[test]
    fn more_cycles_for_the_same_instructions_are_memory_only_if_misses_can_explain_them() {
        assert_eq!(
            change_of(3_000_000, counts(3_050_000, 7_300_000, 42_000)),
            Some(WorkChange::MoreCacheMisses)
        );
        // Twice the misses, which take at most a fifth of the additional cycles.
        assert_eq!(change_of(3_000_000, counts(3_050_000, 7_300_000, 4_100)), Some(WorkChange::MoreCycles));
        let unknown = Counts { cache_misses: None, ..counts(3_050_000, 7_300_000, 0) };
        assert_eq!(change_of(3_000_000, unknown), Some(WorkChange::MoreCycles));
    }

    #[test]
    fn more_time_for_the_same_cycles_is_a_slower_clock_or_the_host() {
        let slower = counts(3_010_000, 2_450_000, 2_100);
        assert_eq!(change_of(2_200_000, slower), Some(WorkChange::SlowerCycles));
        let cause = explained(2_200_000, 0, slower, Some(usual()));
        let last = cause.evidence.last().unwrap();
        let figures = ["2.45 M", "2.40 M", "2.20 ms", "1.00 ms"];
        assert!(figures.iter().all(|figure| last.contains(figure)), "{last}");
    }

    #[test]
    fn nothing_is_said_of_ordinary_runs_of_interrupts_and_of_several_changes() {
        assert_eq!(change_of(1_200_000, counts(3_600_000, 2_900_000, 2_400)), None, "it is hardly longer");
        assert_eq!(
            change_of(4_000_000, counts(6_000_000, 9_600_000, 4_000)),
            None,
            "twice as much, and twice as slow"
        );
        let counters = explained(3_000_000, 1_000_000, counts(9_000_000, 7_200_000, 6_000), Some(usual()));
        let counters = counters.counters.unwrap();
        assert_eq!((counters.change, counters.here.instructions), (None, 9_000_000));
        let unknown = explained(3_000_000, 0, counts(9_000_000, 7_200_000, 6_000), None).counters.unwrap();
        assert_eq!((unknown.change, unknown.usual), (None, None));
        assert_eq!(explained(3_000_000, 0, Counts::default(), Some(usual())).counters, None);
    }

    #[test]
    fn large_numbers_have_three_digits() {
        assert_eq!([950, 34_000, 3_000_000, 12_100_000].map(short), ["950", "34.0 k", "3.00 M", "12.1 M"]);
    }
}
