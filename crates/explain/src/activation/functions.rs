//! In which functions of its program a task's own work was, by the samples that were taken of it.

use crate::blame::piece::Piece;
use std::collections::{BTreeMap, BTreeSet};
use whylate_core::figure::{count, nanoseconds, share};
use whylate_core::recording::{Activation, Frame, OWN, OwnSample};
use whylate_core::result::{Cause, CauseKind as Kind, OwnSamples, SampledFunction};

/// The fewest samples that name a function.
const SAMPLES_LEAST: usize = 3;
/// A function is named where at least this part of the samples was in it and in what it called.
const NAMED_LEAST: f64 = 0.5;
/// The most functions that are kept.
const FUNCTIONS_MAX: usize = 24;
/// The most callers that are named.
const CALLERS_MAX: usize = 6;

/// Adds to the own work in which functions it was.
pub(super) fn name(causes: &mut [Cause], pieces: &[Piece<()>], activation: &Activation) {
    let Some(own) = causes.iter_mut().find(|cause| cause.kind == Kind::OwnWork) else { return };
    let samples: Vec<&OwnSample> =
        activation.samples.iter().filter(|sample| is_of_own_work(sample, pieces)).collect();
    let Some(first) = samples.first() else { return };
    let total = samples.len();
    let stacks: Vec<&[Frame]> = samples.iter().map(|sample| &sample.stack[..]).collect();
    let (named, within) = hottest(&stacks);
    let part = within as f64 / total as f64;
    let from = nanoseconds(first.at_ns.saturating_sub(activation.due_ns));
    if let [function, callers @ ..] = &named[..]
        && total >= SAMPLES_LEAST
        && part >= NAMED_LEAST
    {
        own.evidence.push(format!(
            "{} of {} samples of the program, {from} into the latency and later, were in {}",
            share(part),
            count(total as u64),
            function.name
        ));
        own.function = Some(function.name.clone());
        // Callers are stored with blanks between.
        let named = callers.iter().take(CALLERS_MAX).map(|frame| frame.name.replace(' ', "_"));
        own.callers = named.collect();
    }
    own.evidence.extend(missing(&stacks));
    own.samples = Some(OwnSamples {
        count: total as u64,
        in_kernel: samples.iter().filter(|sample| sample.is_in_kernel).count() as u64,
        from_ns: first.at_ns,
        functions: functions(&stacks),
    });
}

/// Names the interrupts of the clock that takes the samples: this program asked for them.
pub(super) fn name_clock(pieces: &mut [Piece<()>], activation: &Activation) {
    for sample in &activation.samples {
        // What the hypervisor adds before and after it is a piece of its own.
        let one = |piece: &&mut [Piece<()>]| piece.iter().any(|it| (it.from..=it.to).contains(&sample.at_ns));
        let mut interrupts =
            pieces.chunk_by_mut(|a, b| a.to == b.from && is_interrupt(a) && is_interrupt(b)).filter(one);
        for piece in interrupts.next().into_iter().flatten().filter(|piece| is_interrupt(piece)) {
            piece.blame.actor = Some(OWN.to_owned());
        }
    }
}

fn is_interrupt(piece: &Piece<()>) -> bool {
    piece.blame.kind == Some(Kind::Irq)
}

/// Whether a sample, which was taken in an interrupt, interrupted own work.
fn is_of_own_work(sample: &OwnSample, pieces: &[Piece<()>]) -> bool {
    let mut before = pieces.iter().rev().skip_while(|piece| piece.from > sample.at_ns);
    // In virtual machines the hypervisor has a part in the interrupt.
    let is_clock =
        |piece: &&Piece<()>| matches!(piece.blame.kind, Some(Kind::Irq | Kind::HostStall | Kind::Steal));
    before.find(|piece| !is_clock(piece)).is_some_and(|piece| piece.blame.kind == Some(Kind::OwnWork))
}

/// The function, and its callers behind it, in which with what it called at least half of the samples were, as far from the begin of the
/// program as possible; and how many these are. Where the stacks have no begin in common, the one that most of them end in.
fn hottest<'a>(stacks: &[&'a [Frame]]) -> (Vec<&'a Frame>, usize) {
    let mut path: Vec<&Frame> = Vec::new();
    let mut left: Vec<&[Frame]> = stacks.to_vec();
    let mut within = 0;
    loop {
        let next = |stack: &&'a [Frame]| stack.len().checked_sub(1 + path.len()).map(|at| &stack[at]);
        let Some((frame, times)) = most(left.iter().filter_map(next)) else { break };
        if (times as f64) < NAMED_LEAST * stacks.len() as f64 {
            break;
        }
        left.retain(|stack| next(stack) == Some(frame));
        path.insert(0, frame);
        within = times;
    }
    if !path.is_empty() {
        return (path, within);
    }
    let Some((frame, times)) = most(stacks.iter().filter_map(|stack| stack.first())) else {
        return (path, 0);
    };
    (vec![frame], times)
}

fn most<'a>(frames: impl Iterator<Item = &'a Frame>) -> Option<(&'a Frame, usize)> {
    let mut times: BTreeMap<&Frame, usize> = BTreeMap::new();
    frames.for_each(|frame| *times.entry(frame).or_default() += 1);
    times.into_iter().max_by_key(|(_, times)| *times)
}

fn functions(stacks: &[&[Frame]]) -> Vec<SampledFunction> {
    let mut all: BTreeMap<&Frame, (u64, u64)> = BTreeMap::new();
    for stack in stacks {
        if let Some(first) = stack.first() {
            all.entry(first).or_default().0 += 1;
        }
        // A function that calls itself is in the sample once.
        let each: BTreeSet<&Frame> = stack.iter().collect();
        each.into_iter().for_each(|frame| all.entry(frame).or_default().1 += 1);
    }
    let mut found: Vec<SampledFunction> = all
        .into_iter()
        .map(|(frame, (own, all))| {
            let (function, file) = (frame.name.clone(), frame.file.clone());
            SampledFunction { function, file, own, all }
        })
        .collect();
    found.sort_by_key(|it| std::cmp::Reverse((it.all, it.own)));
    found.truncate(FUNCTIONS_MAX);
    found
}

/// What keeps functions or callers from being named, in one line.
fn missing(stacks: &[&[Frame]]) -> Option<String> {
    let half = stacks.len().div_ceil(2);
    if stacks.iter().filter(|stack| stack.is_empty()).count() >= half {
        return Some("the stacks of the program could not be read, or the program had ended".to_owned());
    }
    let innermost = stacks.iter().filter_map(|stack| stack.first());
    let unnamed: Vec<&Frame> = innermost.filter(|frame| !frame.is_named).collect();
    if let Some(frame) = unnamed.first().filter(|_| unnamed.len() >= half) {
        return Some(format!(
            "{} has no symbols for these addresses: build it without strip and -s, or install its debug symbols",
            frame.file
        ));
    }
    let library = |stack: &&&[Frame]| {
        stack.len() > 1 && stack[0].file.contains(".so") && stack[0].file != stack[1].file
    };
    if let Some([first, ..]) =
        stacks.iter().find(library).filter(|_| stacks.iter().filter(library).count() >= half)
    {
        return Some(format!(
            "the function that called into {} may be missing here: most libraries are built without frame pointers",
            first.file
        ));
    }
    let alone = stacks.iter().filter(|stack| stack.len() == 1).count();
    (alone >= half).then(|| {
        "its callers are not known: the program was built without frame pointers (-fno-omit-frame-pointer)".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blame::piece::Blame;
    use crate::confidence::RECORDED;
    use whylate_core::CpuId;
    use whylate_core::recording::{Doing, Stage};

    /// Stacks as `inner outer`, once a microsecond; a name with `+` is none.
    fn explained(stacks: &[&str]) -> Cause {
        let frame = |name: &str| Frame {
            name: name.to_owned(),
            is_named: !name.contains('+'),
            file: if name == "sin" { "libm.so.6" } else { "control" }.to_owned(),
        };
        let sample = |(nth, stack): (usize, &&str)| OwnSample {
            at_ns: 1_000 * (1 + nth as u64),
            is_in_kernel: nth == 0,
            stack: stack.split_whitespace().map(frame).collect(),
        };
        let to_ns = 100_000;
        let activation = Activation {
            stages: vec![Stage { from_ns: 0, to_ns, cpu: CpuId(0), what: Doing::Running }],
            samples: stacks.iter().enumerate().map(sample).collect(),
            ..Activation::default()
        };
        let blame = Blame::new(Kind::OwnWork, RECORDED, "it had the CPU");
        let pieces = [Piece { from: 0, to: to_ns, began: 0, blame, detail: () }];
        let mut causes = crate::segments::causes_of(&pieces, to_ns, 0);
        name(&mut causes, &pieces, &activation);
        causes.remove(0)
    }

    #[test]
    fn the_function_is_named_that_has_half_of_the_samples_with_what_it_called() {
        let cause =
            explained(&["sin update loop main", "cos update loop main", "update loop main", "log loop main"]);
        assert_eq!(cause.function.as_deref(), Some("update"));
        assert_eq!(cause.callers, ["loop", "main"]);
        let samples = cause.samples.unwrap();
        assert_eq!((samples.count, samples.in_kernel, samples.from_ns), (4, 1, 1_000));
        let of =
            |name: &str| samples.functions.iter().find(|it| it.function == name).map(|it| (it.own, it.all));
        assert_eq!([of("main"), of("update"), of("sin")], [Some((0, 4)), Some((1, 3)), Some((1, 1))]);
    }

    #[test]
    fn few_samples_and_no_common_function_name_none() {
        assert_eq!(explained(&["update loop", "update loop"]).function, None);
        let scattered = explained(&["a", "b", "c", "d"]);
        assert_eq!((scattered.function, scattered.samples.unwrap().count), (None, 4));
        assert_eq!(explained(&[]).samples, None);
    }

    #[test]
    fn what_is_missing_is_said_in_one_line() {
        let lines = |stacks: &[&str]| explained(stacks).evidence.len() - explained(&[]).evidence.len();
        assert_eq!(lines(&["update main", "update main", "update main"]), 1);
        assert_eq!(lines(&["update", "update", "update"]), 2, "no callers");
        assert_eq!(lines(&["control+0x12 main", "control+0x14 main", "control+0x18 main"]), 2, "no names");
        assert_eq!(lines(&["sin update main", "sin update main", "update main"]), 2, "a library");
        assert_eq!(lines(&["", "", ""]), 1, "no stacks");
    }

    #[test]
    fn a_sample_counts_for_what_its_interrupt_interrupted_and_the_interrupt_is_of_this_program() {
        let piece = |kind, from, to| Piece {
            from,
            to,
            began: from,
            blame: Blame::new(kind, RECORDED, ""),
            detail: (),
        };
        let mut pieces = vec![
            piece(Kind::OwnWork, 0, 40),
            piece(Kind::Irq, 40, 50),
            piece(Kind::Irq, 50, 55),
            piece(Kind::HostStall, 55, 60),
            piece(Kind::Softirq, 60, 80),
            piece(Kind::Irq, 80, 90),
            piece(Kind::OwnWork, 90, 100),
        ];
        let at = |at_ns| OwnSample { at_ns, ..OwnSample::default() };
        let found = [52, 58, 85, 95].map(|at_ns| is_of_own_work(&at(at_ns), &pieces));
        assert_eq!(found, [true, true, false, true]);
        let activation = Activation { samples: vec![at(52), at(95)], ..Activation::default() };
        name_clock(&mut pieces, &activation);
        let actors: Vec<_> = pieces.iter().map(|piece| piece.blame.actor.as_deref()).collect();
        assert_eq!(actors, [None, Some(OWN), Some(OWN), None, None, None, None]);
    }

    #[test]
    fn a_function_that_calls_itself_is_counted_once_a_sample() {
        let samples = explained(&["walk walk walk main", "walk main", "walk main"]).samples.unwrap();
        let walk = samples.functions.iter().find(|it| it.function == "walk").unwrap();
        assert_eq!((walk.own, walk.all), (3, 3));
    }
}
