//! In which functions of its program a task's own work was, by the samples that were taken of it.

use crate::blame::piece::Piece;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};
use whylate_core::figure::{count, nanoseconds, share};
use whylate_core::order::InOrder;
use whylate_core::recording::{Activation, Frame, OWN, OwnSample, Profile};
use whylate_core::result::{Cause, CauseKind as Kind, OwnSamples, SampledCall, SampledFunction};

/// The fewest samples that name a function.
const SAMPLES_LEAST: usize = 3;
/// A function is named where at least this part of the samples was in it and in what it called.
const NAMED_LEAST: f64 = 0.5;
/// A function that was called has at least this part of the time by which its longest caller ran longer.
const LONGER_LEAST: f64 = 0.7;
/// A function is new if ordinary activations run it for at most this part of its time.
const NEW_MOST: f64 = 0.05;
/// With this number of samples, they name a function without those of other activations.
const SAMPLES_ENOUGH: usize = 8;
/// The fewest samples that name a function which is in all of them and never in ordinary activations.
const ONLY_HERE_LEAST: usize = 2;
/// The fewest samples of ordinary activations with which late ones are compared.
const ORDINARY_LEAST: usize = 30;
/// The fewest samples of a thread's long activations that name a function.
const LONG_LEAST: usize = 12;
/// The most functions that are kept.
const FUNCTIONS_MAX: usize = 24;
/// The most calls that are kept; calls in a smaller part of the samples are not.
const CALLS_MAX: usize = 96;
const CALLS_PART: usize = 50;
/// What Java needs for names of methods and their callers; its map has what was compiled until then.
const JAVA: &str = "start java with -XX:+PreserveFramePointer, and run `jcmd PID Compiler.perfmap` (JDK 17) \
                    during the watch, again whenever Java has compiled more";
/// A caller is named in the evidence if it is the caller in this part of a function's samples.
const CALLER_LEAST: f64 = 0.9;
/// The most callers that are named.
const CALLERS_MAX: usize = 6;

/// Adds to the own work in which functions it was, and what is different in ordinary activations.
pub(super) fn name(causes: &mut [Cause], pieces: &[Piece<()>], activation: &Activation) {
    let Some(own) = causes.iter_mut().find(|cause| cause.kind == Kind::OwnWork) else { return };
    let samples = OwnSample::spread(activation.samples.iter().filter(|it| is_of_own_work(it, pieces)));
    let Some(first) = samples.first() else { return };
    let habits = activation.habits.as_deref();
    let usual = habits.map(|it| &it.ordinary).filter(|it| it.stacks.len() >= ORDINARY_LEAST);
    let long = habits.map(|it| &it.long).filter(|it| it.stacks.len() >= LONG_LEAST);
    let own_pieces = pieces.iter().filter(|piece| piece.blame.kind == Some(Kind::OwnWork));
    let here = Sampled {
        stacks: samples.iter().map(|sample| &sample.stack[..]).collect(),
        ns: own_pieces.map(|piece| piece.to.saturating_sub(piece.from.max(first.at_ns))).sum(),
    };
    let functions = here.functions(usual);
    let from = nanoseconds(first.at_ns.saturating_sub(activation.due_ns));
    let of = format!("samples of the program (the first one {from} into the latency)");
    // Few samples are compared with those of other long activations.
    let long = long.filter(|_| here.stacks.len() < SAMPLES_ENOUGH);
    let long =
        long.map(|it| Sampled { stacks: it.stacks.iter().map(|it| &it[..]).collect(), ns: it.sampled_ns });
    let among = long.as_ref().and_then(|long| {
        let found = hottest(&long.functions(usual), long)?;
        // All code without names counts as one function, which says less than a name that the samples of this activation show.
        if !found.0.is_named && here.has_names() {
            return None;
        }
        here.stacks.iter().any(|stack| stack.contains(found.0)).then_some((long, found))
    });
    // What its own samples show says more than what its long activations have in common: where all of them show it and ordinary
    // activations never do, or where the common function called it and all of them show it, or ordinary activations run it anyway.
    let common = among.as_ref().map(|(_, found)| *found);
    let is_usual =
        |it: Weights| usual.zip(it.ordinary_ns).is_some_and(|(usual, ns)| ns * 2 >= usual.sampled_ns);
    let only_here = (here.stacks.len() >= ONLY_HERE_LEAST).then(|| hottest(&functions, &here)).flatten();
    let only_here = only_here.filter(|(frame, weights)| {
        let is_called = common.is_some_and(|(common, _)| here.calls(common, frame));
        match weights.all == here.stacks.len() {
            true => weights.ordinary_ns == Some(0) || is_called,
            false => is_called && weights.all >= SAMPLES_LEAST && common.is_some_and(|it| is_usual(it.1)),
        }
    });
    match among {
        Some((_, found)) if only_here.is_some_and(|it| it.0 != found.0) => {
            here.name(own, only_here.unwrap_or(found), &of, usual);
        }
        Some((long, found)) => {
            long.name(own, found, "samples of the thread's unusually long activations", usual);
        }
        None if here.stacks.len() >= SAMPLES_LEAST => {
            if let Some(found) = hottest(&functions, &here) {
                here.name(own, found, &of, usual);
            }
        }
        None => {}
    }
    let whole = samples.iter().filter(|sample| sample.is_whole).count();
    own.evidence.extend(missing(&here.stacks, whole * 2 > samples.len()));
    own.samples = Some(OwnSamples {
        count: samples.len() as u64,
        in_kernel: samples.iter().filter(|sample| sample.is_in_kernel).count() as u64,
        from_ns: first.at_ns,
        ordinary: usual.map(|it| it.stacks.len() as u64),
        functions: listed(functions),
        calls: calls(&here.stacks, here.ns, usual),
    });
}

/// Stacks of samples, innermost function first, and the time over which they are spread.
struct Sampled<'a> {
    stacks: Vec<&'a [Frame]>,
    ns: u64,
}

impl Sampled<'_> {
    /// Whether most samples have the name of the function that ran.
    fn has_names(&self) -> bool {
        let named = self.stacks.iter().filter(|stack| stack.first().is_some_and(|frame| frame.is_named));
        named.count() * 2 > self.stacks.len()
    }

    /// Whether the first function has called the second one in each of the samples that show the second one.
    fn calls(&self, caller: &Frame, callee: &Frame) -> bool {
        let mut shown = self.stacks.iter().filter(|stack| stack.contains(callee));
        shown.all(|stack| order(stack, callee, caller) == Some(Ordering::Less))
    }

    fn name(&self, own: &mut Cause, (frame, weights): (&Frame, Weights), of: &str, usual: Option<&Profile>) {
        let callers = callers(frame, &self.stacks);
        let caller = sure_caller(frame, &self.stacks);
        let caller = caller.map(|it| format!(", called by {}", it.name)).unwrap_or_default();
        own.evidence.push(format!(
            "{} of {} {of} were in {}{caller}",
            share(weights.all as f64 / self.stacks.len() as f64),
            count(self.stacks.len() as u64),
            frame.name
        ));
        own.evidence.extend(usual.map(|usual| compared(frame, weights, usual)));
        own.function = Some(frame.name.clone());
        // Callers are stored with blanks between.
        own.callers = callers.iter().map(|frame| frame.name.replace(' ', "_")).collect();
    }
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

/// How much of the samples and of the time a function has.
#[derive(Clone, Copy, Debug, Default)]
struct Weights {
    /// Samples in the function itself, and with what it called.
    own: usize,
    all: usize,
    /// The time with what it called, here and in an ordinary activation.
    ns: u64,
    ordinary_ns: Option<u64>,
}

impl<'a> Sampled<'a> {
    fn functions(&self, usual: Option<&Profile>) -> BTreeMap<&'a Frame, Weights> {
        let ordinary = usual.map(|usual| (usual, counts(usual.stacks.iter().map(|stack| &stack[..]))));
        let weighed = |(frame, (own, all)): (&'a Frame, (usize, usize))| {
            let ordinary_ns = ordinary.as_ref().map(|(usual, counts)| {
                let (_, all) = counts.get(frame).copied().unwrap_or_default();
                part_of(usual.sampled_ns, all, usual.stacks.len())
            });
            (frame, Weights { own, all, ns: part_of(self.ns, all, self.stacks.len()), ordinary_ns })
        };
        counts(self.stacks.iter().copied()).into_iter().map(weighed).collect()
    }
}

/// In how many stacks each function is: as the innermost one, and anywhere.
fn counts<'a>(stacks: impl Iterator<Item = &'a [Frame]>) -> BTreeMap<&'a Frame, (usize, usize)> {
    let mut all: BTreeMap<&Frame, (usize, usize)> = BTreeMap::new();
    for stack in stacks {
        if let Some(first) = stack.first() {
            all.entry(first).or_default().0 += 1;
        }
        // A function that calls itself is in the sample once.
        let each: BTreeSet<&Frame> = stack.iter().collect();
        each.into_iter().for_each(|frame| all.entry(frame).or_default().1 += 1);
    }
    all
}

fn part_of(ns: u64, part: usize, whole: usize) -> u64 {
    (ns as f64 * part as f64 / whole.max(1) as f64) as u64
}

/// The innermost function that has at least half of the time, with what it called. Where ordinary activations are known: the innermost
/// of those that, with what they called, ran longer than in these by the most time.
fn hottest<'a>(
    functions: &BTreeMap<&'a Frame, Weights>,
    Sampled { stacks, ns }: &Sampled<'a>,
) -> Option<(&'a Frame, Weights)> {
    let more_ns = |it: &Weights| it.ns.saturating_sub(it.ordinary_ns.unwrap_or_default());
    let most_ns = functions.values().map(more_ns).max()?;
    let is_compared = most_ns >= ns / 10 && functions.values().all(|it| it.ordinary_ns.is_some());
    let has_most = |it: &Weights| match is_compared {
        true => more_ns(it) as f64 >= most_ns as f64 * LONGER_LEAST,
        false => it.ns as f64 >= *ns as f64 * NAMED_LEAST,
    };
    let most: Vec<(&Frame, Weights)> =
        functions.iter().filter(|(_, it)| has_most(it)).map(|(frame, it)| (*frame, *it)).collect();
    let is_called_by = |callee: &Frame, caller: &Frame| {
        let orders = stacks.iter().filter_map(|stack| order(stack, callee, caller));
        orders.map(|order| order as i32).sum::<i32>() < 0
    };
    let fewest = |(_, it): &(&Frame, Weights)| (it.all, Reverse(it.own));
    // Stacks may lack callers, so that a function is in more samples than the one that called it.
    let calls_none =
        |(frame, _): &(&Frame, Weights)| !most.iter().any(|(other, _)| is_called_by(other, frame));
    let innermost = most.iter().copied().filter(calls_none).min_by_key(fewest)?;
    // A function that every activation calls says less than its caller that only these have.
    let is_new = |it: &Weights| it.ordinary_ns.unwrap_or_default() as f64 <= it.ns as f64 * NEW_MOST;
    if !is_compared || is_new(&innermost.1) {
        return Some(innermost);
    }
    let new = most.iter().copied().filter(|(frame, it)| is_new(it) && is_called_by(innermost.0, frame));
    Some(new.min_by_key(fewest).unwrap_or(innermost))
}

/// Where a function is in a stack, from the innermost one on.
fn place(stack: &[Frame], frame: &Frame) -> Option<usize> {
    stack.iter().position(|it| it == frame)
}

/// Which of two functions is further in; `None` if the stack lacks one of them.
fn order(stack: &[Frame], one: &Frame, other: &Frame) -> Option<Ordering> {
    Some(place(stack, one)?.cmp(&place(stack, other)?))
}

/// The functions that called this one in most samples.
fn callers<'a>(frame: &Frame, stacks: &[&'a [Frame]]) -> &'a [Frame] {
    let mut times: BTreeMap<&[Frame], usize> = BTreeMap::new();
    for stack in stacks {
        if let Some(at) = place(stack, frame) {
            *times.entry(&stack[at + 1..]).or_default() += 1;
        }
    }
    let most = times.into_iter().max_by_key(|(_, times)| *times).map_or(&[][..], |(callers, _)| callers);
    &most[..most.len().min(CALLERS_MAX)]
}

/// The function that called this one in nearly all samples of it.
fn sure_caller<'a>(frame: &Frame, stacks: &[&'a [Frame]]) -> Option<&'a Frame> {
    let outer = |stack: &&'a [Frame]| {
        let at = stack.iter().rposition(|it| it == frame)?;
        stack.get(at + 1)
    };
    let all = stacks.iter().filter(|stack| stack.contains(frame)).count();
    let first = stacks.iter().find_map(outer)?;
    let same = stacks.iter().filter_map(outer).filter(|it| *it == first).count();
    (same as f64 >= all as f64 * CALLER_LEAST).then_some(first)
}

fn compared(frame: &Frame, weights: Weights, usual: &Profile) -> String {
    let (name, here) = (&frame.name, nanoseconds(weights.ns));
    let number = count(usual.stacks.len() as u64);
    match weights.ordinary_ns {
        Some(ordinary_ns) if ordinary_ns > 0 => format!(
            "{name} ran for at least {here}; ordinary activations run for {}, of which {name} takes about {}",
            nanoseconds(usual.sampled_ns),
            nanoseconds(ordinary_ns)
        ),
        _ => format!(
            "{name} ran for at least {here}; samples of ordinary activations never show {name} (samples: {number})"
        ),
    }
}

fn listed(functions: BTreeMap<&Frame, Weights>) -> Vec<SampledFunction> {
    let listed = |(frame, it): (&Frame, Weights)| SampledFunction {
        function: frame.name.clone(),
        file: frame.file.clone(),
        own: it.own as u64,
        all: it.all as u64,
        ns: Some(it.ns),
        ordinary_ns: it.ordinary_ns,
    };
    let mut found: Vec<SampledFunction> = functions.into_iter().map(listed).collect();
    found.order_by_key(|it| Reverse((it.all, it.own)));
    found.truncate(FUNCTIONS_MAX);
    found
}

/// The calls of all stacks as a tree.
fn calls(stacks: &[&[Frame]], sampled_ns: u64, usual: Option<&Profile>) -> Vec<SampledCall> {
    let ordinary: Vec<&[Frame]> = usual.iter().flat_map(|it| &it.stacks).map(|stack| &stack[..]).collect();
    let time = |here: usize| part_of(sampled_ns, here, stacks.len());
    let ordinary_time = |here: usize| usual.map(|it| part_of(it.sampled_ns, here, it.stacks.len()));
    let least = stacks.len().div_ceil(CALLS_PART);
    let mut all = Vec::new();
    // Each call that is still to be listed: its depth, and the stacks that contain it, here and in ordinary activations.
    let mut left = vec![(0, stacks.to_vec(), ordinary)];
    while let Some((depth, here, ordinary)) = left.pop() {
        if let Some(frame) = here.first().filter(|_| depth > 0).map(|stack| &stack[stack.len() - depth]) {
            all.push(SampledCall {
                depth: depth as u64 - 1,
                function: frame.name.clone(),
                samples: here.len() as u64,
                ns: time(here.len()),
                ordinary_ns: ordinary_time(ordinary.len()),
            });
        }
        let next = |stack: &'_ [Frame]| stack.len().checked_sub(depth + 1);
        let mut below: BTreeMap<&Frame, Vec<&[Frame]>> = BTreeMap::new();
        for stack in here {
            next(stack).into_iter().for_each(|at| below.entry(&stack[at]).or_default().push(stack));
        }
        let mut below: Vec<_> = below.into_iter().filter(|(_, within)| within.len() >= least).collect();
        below.order_by_key(|(_, within)| within.len());
        for (frame, within) in below {
            let has = |stack: &&&[Frame]| next(stack).is_some_and(|at| &stack[at] == frame);
            let usually = ordinary.iter().filter(has).copied().collect();
            left.push((depth + 1, within, usually));
        }
    }
    all.truncate(CALLS_MAX);
    all
}

/// What keeps functions or callers from being named, in one line.
fn missing(stacks: &[&[Frame]], are_whole: bool) -> Option<String> {
    let half = stacks.len().div_ceil(2);
    if stacks.iter().filter(|stack| stack.is_empty()).count() >= half {
        return Some(
            "functions are not known: the program's stacks could not be read, or the program had ended"
                .to_owned(),
        );
    }
    let innermost = stacks.iter().filter_map(|stack| stack.first());
    let unnamed: Vec<&Frame> = innermost.filter(|frame| !frame.is_named).collect();
    if let Some(frame) = unnamed.first().filter(|_| unnamed.len() >= half) {
        return Some(match frame.file.as_str() {
            "Java" => format!("methods have no names: {JAVA}"),
            "Node.js" => "functions have no names: start node with --perf-basic-prof".to_owned(),
            "memory" => "functions that were compiled at run time have no names: their compiler wrote no \
                         /tmp/perf-PID.map, or wrote it later"
                .to_owned(),
            file => format!(
                "{file} has no symbols for the sampled addresses: build it without strip and -s, or install its \
                 debug symbols"
            ),
        });
    }
    let is_python = |stack: &&&[Frame]| stack.iter().any(|frame| frame.name.starts_with("_PyEval_EvalFrame"));
    let has_names = stacks.iter().any(|stack| stack.iter().any(|frame| frame.name.starts_with("py::")));
    if !has_names && stacks.iter().filter(is_python).count() >= half {
        return Some(
            "functions of Python have no names: start Python 3.12 or newer with -X perf (or PYTHONPERFSUPPORT=1)"
                .to_owned(),
        );
    }
    if are_whole {
        return None;
    }
    let library = |stack: &&&[Frame]| {
        stack.len() > 1 && stack[0].file.contains(".so") && stack[0].file != stack[1].file
    };
    if let Some([first, ..]) =
        stacks.iter().find(library).filter(|_| stacks.iter().filter(library).count() >= half)
    {
        return Some(format!(
            "the function that called into {} may be missing from the callers: most libraries are built \
             without frame pointers",
            first.file
        ));
    }
    let alone = stacks.iter().filter(|stack| stack.len() == 1).count();
    let is_java = stacks.iter().filter_map(|stack| stack.first()).any(|frame| frame.file == "Java");
    (alone >= half).then(|| match is_java {
        true => format!("callers are not known: {JAVA}"),
        false => "callers are not known, because the program has no frame pointers: build it with \
         -fno-omit-frame-pointer"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blame::piece::Blame;
    use crate::confidence::RECORDED;
    use std::sync::Arc;
    use whylate_core::CpuId;
    use whylate_core::recording::{Doing, Habits, Stage};

    /// Stacks as `inner outer`, once a microsecond; a name with `+` is none.
    fn explained(stacks: &[&str]) -> Cause {
        compared_with(stacks, None)
    }

    fn compared_with(stacks: &[&str], habits: Option<Habits>) -> Cause {
        let frame = |name: &str| Frame {
            name: name.to_owned(),
            is_named: !name.contains('+'),
            file: if name == "sin" { "libm.so.6" } else { "control" }.to_owned(),
        };
        let sample = |(nth, stack): (usize, &&str)| OwnSample {
            at_ns: 1_000 * (1 + nth as u64),
            is_in_kernel: nth == 0,
            stack: stack.split_whitespace().map(frame).collect(),
            is_whole: false,
        };
        let to_ns = 100_000;
        let activation = Activation {
            stages: vec![Stage { from_ns: 0, to_ns, cpu: CpuId(0), what: Doing::Running }],
            samples: stacks.iter().enumerate().map(sample).collect(),
            habits: habits.map(Arc::new),
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
    fn the_function_is_named_that_ran_longer_than_in_ordinary_activations() {
        let stack = |text: &str| -> Vec<Frame> {
            let frame =
                |name: &str| Frame { name: name.to_owned(), is_named: true, file: "control".to_owned() };
            text.split_whitespace().map(frame).collect()
        };
        let ordinary = Profile {
            stacks: [vec![stack("update loop main"); 30], vec![stack("log loop main"); 10]].concat(),
            sampled_ns: 40_000,
        };
        let habits = Habits { ordinary: ordinary.clone(), ..Habits::default() };
        let here = [["update loop main"; 4].as_slice(), &["trim free loop main"; 3]].concat();
        let cause = compared_with(&here, Some(habits.clone()));
        assert_eq!(cause.function.as_deref(), Some("trim"), "update always runs for 30 us");
        assert_eq!(cause.callers, ["free", "loop", "main"]);
        let samples = cause.samples.unwrap();
        let of = |name: &str| samples.functions.iter().find(|it| it.function == name).unwrap();
        assert_eq!(
            (samples.ordinary, of("update").ordinary_ns, of("trim").ordinary_ns),
            (Some(40), Some(30_000), Some(0))
        );
        assert_eq!((of("trim").ns, of("main").ns), (Some(42_428), Some(99_000)));
        let calls: Vec<_> =
            samples.calls.iter().map(|it| (it.depth, it.function.as_str(), it.samples)).collect();
        assert_eq!(calls, [(0, "main", 7), (1, "loop", 7), (2, "update", 4), (2, "free", 3), (3, "trim", 3)]);
        assert_eq!(samples.calls[2].ordinary_ns, Some(30_000));
        // Both call `spin`; only the late one plans.
        let spins = Profile { stacks: vec![stack("spin update loop main"); 40], sampled_ns: 40_000 };
        let late = [["spin plan loop main"; 6].as_slice(), &["spin update loop main"; 2]].concat();
        let late = compared_with(&late, Some(Habits { ordinary: spins, ..Habits::default() }));
        assert_eq!(
            (late.function.as_deref(), &late.callers[..]),
            (Some("plan"), &["loop".to_owned(), "main".to_owned()][..])
        );
        let few = Profile { stacks: ordinary.stacks[..20].to_vec(), ..ordinary };
        let few = Habits { ordinary: few, ..Habits::default() };
        assert_eq!(compared_with(&here, Some(few)).function.as_deref(), Some("update"));
        let long = Profile { stacks: vec![stack("trim free loop main"); 12], sampled_ns: 40_000 };
        let cause = compared_with(&here[6..], Some(Habits { long, ..habits.clone() }));
        assert_eq!(cause.function.as_deref(), Some("trim"), "one sample of its own says little");
        let kinds = [stack("trim free loop main"), stack("write log loop main"), stack("plan loop main")];
        let long = Profile { stacks: kinds.iter().cycle().take(12).cloned().collect(), sampled_ns: 400_000 };
        let own = |count: usize| {
            let cause = compared_with(
                &vec!["plan loop main"; count],
                Some(Habits { long: long.clone(), ..habits.clone() }),
            );
            cause.function
        };
        assert_eq!(own(2).as_deref(), Some("plan"), "its other long activations did something else");
        assert_ne!(own(1).as_deref(), Some("plan"), "one sample says little");
        let alone = Habits { long: long.clone(), ..Habits::default() };
        let deeper = compared_with(&["plan loop main"; 2], Some(alone));
        assert_eq!(deeper.function.as_deref(), Some("plan"), "the long ones have only its callers in common");
        let three_of_four = [["write log loop main"; 3].as_slice(), &["loop main"]].concat();
        let most = compared_with(&three_of_four, Some(Habits { long: long.clone(), ..habits.clone() }));
        assert_eq!(
            most.function.as_deref(),
            Some("write"),
            "ordinary activations also run loop all the time"
        );
        let mut compiled = stack("code+1 loop main");
        compiled[0].is_named = false;
        let long = Profile { stacks: vec![compiled; 12], sampled_ns: 40_000 };
        let habits = Habits { long, ..habits };
        let named = compared_with(&["plan code+1 loop main"; 3], Some(habits.clone()));
        assert_eq!(named.function.as_deref(), Some("plan"), "code without names is no function");
        let unnamed = compared_with(&["code+1 loop main"; 3], Some(habits));
        assert_eq!(unnamed.function.as_deref(), Some("code+1"));
    }

    #[test]
    fn few_samples_and_no_common_function_name_none() {
        assert_eq!(explained(&["update loop", "update loop"]).function, None);
        let scattered = explained(&["a", "b", "c", "d"]);
        assert_eq!((scattered.function, scattered.samples.unwrap().count), (None, 4));
        assert_eq!(explained(&[]).samples, None);
    }

    #[test]
    fn stacks_without_callers_do_not_make_a_caller_the_function() {
        let cause = explained(&["plan cycle main", "plan", "plan cycle main", "plan cycle main", "plan"]);
        assert_eq!(cause.function.as_deref(), Some("plan"));
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
    fn programs_of_run_time_compilers_and_interpreters_are_asked_for_their_names() {
        let said = |name: &str, is_named: bool, file: &str| {
            let frame = Frame { name: name.to_owned(), is_named, file: file.to_owned() };
            let stack = [frame];
            missing(&[&stack, &stack, &stack], false).unwrap()
        };
        assert!(said("code that Java compiled", false, "Java").contains("Compiler.perfmap"));
        assert!(said("void Rt.plan()", true, "Java").starts_with("callers are not known: start java with"));
        assert!(said("code that Node.js compiled", false, "Node.js").contains("--perf-basic-prof"));
        assert!(said("code that was compiled at run time", false, "memory").contains("/tmp/perf-PID.map"));
        assert!(said("_PyEval_EvalFrameDefault", true, "python3.12").contains("-X perf"));
        assert!(said("control+0x12", false, "control").contains("debug symbols"));
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
