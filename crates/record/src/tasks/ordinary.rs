//! What watched threads do in their ordinary activations, by the few samples that are taken of these.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use whylate_core::recording::{Activation, Doing, Ordinary};

/// The running times from which the usual one is found, and how often it is found again.
const RUNS_KEPT: usize = 64;
const RUNS_LEAST: usize = 8;
/// Samples are also taken of every run that is longer than this and than one and a half of the usual ones: these are not ordinary.
const LEAST_NS: u64 = 250_000;
/// The newest samples are kept.
const STACKS_MAX: usize = 400;
const THREADS_MAX: usize = 64;

#[derive(Default)]
pub(super) struct Profiles(BTreeMap<u32, Profile>);

#[derive(Default)]
struct Profile {
    recent: VecDeque<u64>,
    /// Longer running times are not ordinary; 0 while that is not known.
    longest_ns: u64,
    runs: u64,
    ran_ns: u64,
    taken: usize,
    ordinary: Arc<Ordinary>,
}

impl Profiles {
    pub(super) fn note(&mut self, ended: &[Activation]) {
        for activation in ended {
            let thread = activation.thread.pid;
            if self.0.len() < THREADS_MAX || self.0.contains_key(&thread) {
                self.0.entry(thread).or_default().note(activation);
            }
        }
    }

    /// What a thread does in ordinary activations, as far as it is known.
    pub(super) fn of(&self, thread: u32) -> Option<Arc<Ordinary>> {
        let profile = self.0.get(&thread).filter(|it| !it.ordinary.stacks.is_empty())?;
        let ran_ns = profile.ran_ns / profile.runs.max(1);
        Some(Arc::new(Ordinary { ran_ns, ..(*profile.ordinary).clone() }))
    }
}

impl Profile {
    fn note(&mut self, activation: &Activation) {
        let running = activation.stages.iter().filter(|stage| matches!(stage.what, Doing::Running));
        let ran_ns: u64 = running.map(whylate_core::recording::Stage::length_ns).sum();
        if self.recent.len() == RUNS_KEPT {
            self.recent.clear();
        }
        self.recent.push_back(ran_ns);
        if self.recent.len() == if self.longest_ns == 0 { RUNS_LEAST } else { RUNS_KEPT } {
            let mut sorted: Vec<u64> = self.recent.iter().copied().collect();
            let (_, median, _) = sorted.select_nth_unstable(self.recent.len() / 2);
            self.longest_ns = (*median + *median / 2).max(LEAST_NS);
        }
        if ran_ns > self.longest_ns {
            return;
        }
        self.runs += 1;
        self.ran_ns += ran_ns;
        for sample in &activation.samples {
            let stacks = &mut Arc::make_mut(&mut self.ordinary).stacks;
            match stacks.get_mut(self.taken % STACKS_MAX) {
                Some(oldest) => oldest.clone_from(&sample.stack),
                None => stacks.push(sample.stack.clone()),
            }
            self.taken += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::CpuId;
    use whylate_core::recording::{Frame, OwnSample, Stage, Thread};

    fn activation(ran_ns: u64, function: Option<&str>) -> Activation {
        let frame = |name: &str| Frame { name: name.to_owned(), ..Frame::default() };
        let sample = |name: &str| OwnSample { stack: vec![frame(name)], ..OwnSample::default() };
        Activation {
            thread: Thread { pid: 7, ..Thread::default() },
            stages: vec![Stage { from_ns: 0, to_ns: ran_ns, cpu: CpuId(0), what: Doing::Running }],
            samples: function.map(sample).into_iter().collect(),
            ..Activation::default()
        }
    }

    #[test]
    fn only_activations_of_the_usual_length_are_ordinary() {
        let mut profiles = Profiles::default();
        profiles.note(&vec![activation(400_000, None); RUNS_LEAST]);
        assert_eq!(profiles.of(7), None, "no sample");
        profiles.note(&[activation(500_000, Some("update")), activation(900_000, Some("trim"))]);
        let ordinary = profiles.of(7).unwrap();
        assert_eq!(ordinary.stacks.iter().map(|it| it[0].name.as_str()).collect::<Vec<_>>(), ["update"]);
        assert_eq!(ordinary.ran_ns, 450_000);
        profiles.note(&vec![activation(450_000, Some("update")); STACKS_MAX + 5]);
        assert_eq!(profiles.of(7).unwrap().stacks.len(), STACKS_MAX);
    }
}
