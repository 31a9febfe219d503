//! What watched threads do in ordinary and in long activations, by the samples that are taken of these.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use whylate_core::recording::{Activation, Counts, Doing, Habits, OwnSample, Profile, Stage, UsualCounts};

/// The usual running time is the median of this number of runs; of fewer at first.
const RUNS_KEPT: usize = 64;
const RUNS_LEAST: usize = 8;
/// Samples are also taken of every run that is longer than this and than one and a half of the usual ones: these are not ordinary.
const LEAST_NS: u64 = 250_000;
/// The newest samples are kept.
const STACKS_MAX: usize = 400;
const THREADS_MAX: usize = 64;
/// The counters' usual figures are the medians of this number of ordinary activations; of fewer at first.
const COUNTS_KEPT: usize = 64;
const COUNTS_LEAST: usize = 8;

#[derive(Default)]
pub(super) struct ThreadHabits(BTreeMap<u32, OneThread>);

#[derive(Default)]
struct OneThread {
    recent: Vec<u64>,
    /// Longer running times are not ordinary; 0 while that is not known.
    longest_ns: u64,
    ordinary: Counted,
    long: Counted,
    habits: Arc<Habits>,
    /// What was counted in ordinary activations, with their running times; the newest ones.
    counts: VecDeque<(Counts, u64)>,
}

/// The number of activations and samples of a profile.
#[derive(Default)]
struct Counted {
    activations: u64,
    sampled_ns: u64,
    samples: usize,
}

impl ThreadHabits {
    pub(super) fn note(&mut self, ended: &[Activation]) {
        for activation in ended {
            let thread = activation.thread.pid;
            if self.0.len() < THREADS_MAX || self.0.contains_key(&thread) {
                self.0.entry(thread).or_default().note(activation);
            }
        }
    }

    /// What a thread does, as far as it is known.
    pub(super) fn of(&self, thread: u32) -> Option<Arc<Habits>> {
        let habits = &self.0.get(&thread)?.habits;
        (!habits.ordinary.stacks.is_empty() || !habits.long.stacks.is_empty()).then(|| Arc::clone(habits))
    }
}

impl ThreadHabits {
    /// What the counters show of its ordinary activations, if enough are known.
    pub(super) fn usual_counts(&self, thread: u32) -> Option<UsualCounts> {
        self.0.get(&thread)?.usual()
    }
}

impl OneThread {
    fn note(&mut self, activation: &Activation) {
        let ran_ns = running(activation, 0);
        self.recent.push(ran_ns);
        if self.recent.len() == if self.longest_ns == 0 { RUNS_LEAST } else { RUNS_KEPT } {
            let middle = self.recent.len() / 2;
            let (_, median, _) = self.recent.select_nth_unstable(middle);
            self.longest_ns = (*median + *median / 2).max(LEAST_NS);
            self.recent.clear();
        }
        if self.longest_ns == 0 {
            return;
        }
        if ran_ns <= self.longest_ns {
            if activation.counts.instructions.is_some() {
                self.counts.truncate(COUNTS_KEPT - 1);
                self.counts.push_front((activation.counts, ran_ns));
            }
            self.ordinary.add(&activation.samples, ran_ns, &mut self.habits, |it| &mut it.ordinary);
        } else if let Some(first) = activation.samples.first() {
            let sampled_ns = running(activation, first.at_ns);
            self.long.add(&activation.samples, sampled_ns, &mut self.habits, |it| &mut it.long);
        }
    }
}

impl OneThread {
    /// What the counters show of ordinary activations, if enough are known.
    fn usual(&self) -> Option<UsualCounts> {
        let of = |value: fn(&Counts) -> Option<u64>| {
            median(self.counts.iter().filter_map(|(counts, _)| value(counts)).collect())
        };
        let instructions = of(|counts| counts.instructions)?;
        Some(UsualCounts {
            counts: Counts {
                instructions: Some(instructions),
                cycles: of(|counts| counts.cycles),
                cache_misses: of(|counts| counts.cache_misses),
            },
            run_ns: median(self.counts.iter().map(|(_, run_ns)| *run_ns).collect())?,
            activations: self.counts.len() as u64,
        })
    }
}

fn median(mut values: Vec<u64>) -> Option<u64> {
    let middle = values.len() / 2;
    (values.len() >= COUNTS_LEAST).then(|| *values.select_nth_unstable(middle).1)
}

impl Counted {
    fn add(
        &mut self,
        samples: &[OwnSample],
        sampled_ns: u64,
        habits: &mut Arc<Habits>,
        profile: impl Fn(&mut Habits) -> &mut Profile,
    ) {
        self.activations += 1;
        self.sampled_ns += sampled_ns;
        if samples.is_empty() {
            return;
        }
        let profile = profile(Arc::make_mut(habits));
        profile.sampled_ns = self.sampled_ns / self.activations;
        for sample in OwnSample::spread(samples.iter()) {
            match profile.stacks.get_mut(self.samples % STACKS_MAX) {
                Some(oldest) => oldest.clone_from(&sample.stack),
                None => profile.stacks.push(sample.stack.clone()),
            }
            self.samples += 1;
        }
    }
}

/// How long the thread of an activation ran from a moment on.
fn running(activation: &Activation, from_ns: u64) -> u64 {
    let running = activation.stages.iter().filter(|stage| matches!(stage.what, Doing::Running));
    running.map(|stage: &Stage| stage.to_ns.saturating_sub(stage.from_ns.max(from_ns))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::CpuId;
    use whylate_core::recording::{Frame, Thread};

    fn activation(ran_ns: u64, function: Option<&str>) -> Activation {
        let frame = |name: &str| Frame { name: name.to_owned(), ..Frame::default() };
        let sample =
            |name: &str| OwnSample { at_ns: 200_000, stack: vec![frame(name)], ..OwnSample::default() };
        Activation {
            thread: Thread { pid: 7, ..Thread::default() },
            stages: vec![Stage { from_ns: 0, to_ns: ran_ns, cpu: CpuId(0), what: Doing::Running }],
            samples: function.map(sample).into_iter().collect(),
            ..Activation::default()
        }
    }

    #[test]
    fn the_usual_counts_are_medians_of_activations_that_run_no_longer_than_usual() {
        let counted = |nth: u64, ran_ns: u64, cycles: Option<u64>| Activation {
            counts: Counts { instructions: Some(1_000 + nth), cycles, cache_misses: None },
            ..activation(ran_ns, None)
        };
        let mut threads = ThreadHabits::default();
        threads.note(&(0..RUNS_LEAST as u64).map(|nth| counted(nth, 400_000, None)).collect::<Vec<_>>());
        assert_eq!(threads.usual_counts(7), None, "one activation is too few");
        let long = counted(9_000_000, 900_000, Some(1));
        let some: Vec<Activation> = (0..10).map(|nth| counted(nth, 400_000 + nth, Some(50 * nth))).collect();
        threads.note(&[vec![long.clone(), long], some].concat());
        let usual = threads.usual_counts(7).unwrap();
        let counts = Counts { instructions: Some(1_005), cycles: Some(250), cache_misses: None };
        assert_eq!((usual.counts, usual.run_ns, usual.activations), (counts, 400_004, 11));
    }

    fn names(profile: &Profile) -> Vec<&str> {
        profile.stacks.iter().map(|stack| stack[0].name.as_str()).collect()
    }

    #[test]
    fn only_activations_of_the_usual_length_are_ordinary() {
        let mut threads = ThreadHabits::default();
        threads.note(&vec![activation(400_000, None); RUNS_LEAST]);
        assert_eq!(threads.of(7), None, "no sample");
        threads.note(&[activation(500_000, Some("update")), activation(900_000, Some("trim"))]);
        let habits = threads.of(7).unwrap();
        assert_eq!((names(&habits.ordinary), habits.ordinary.sampled_ns), (vec!["update"], 450_000));
        assert_eq!((names(&habits.long), habits.long.sampled_ns), (vec!["trim"], 700_000));
        threads.note(&vec![activation(450_000, Some("update")); STACKS_MAX + 5]);
        assert_eq!(threads.of(7).unwrap().ordinary.stacks.len(), STACKS_MAX);
        assert_eq!(threads.of(8), None);
    }
}
