//! What watched threads do in ordinary and in long activations, by the samples that are taken of these.

use std::collections::BTreeMap;
use std::sync::Arc;
use whylate_core::recording::{Activation, Doing, Habits, OwnSample, Profile, Stage};

/// The usual running time is the median of this number of runs; of fewer at first.
const RUNS_KEPT: usize = 64;
const RUNS_LEAST: usize = 8;
/// Samples are also taken of every run that is longer than this and than one and a half of the usual ones: these are not ordinary.
const LEAST_NS: u64 = 250_000;
/// The newest samples are kept.
const STACKS_MAX: usize = 400;
const THREADS_MAX: usize = 64;

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
            self.ordinary.add(&activation.samples, ran_ns, &mut self.habits, |it| &mut it.ordinary);
        } else if let Some(first) = activation.samples.first() {
            let sampled_ns = running(activation, first.at_ns);
            self.long.add(&activation.samples, sampled_ns, &mut self.habits, |it| &mut it.long);
        }
    }
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
        for sample in samples {
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
