//! Why activations of watched tasks took so long: from what the CPUs recorded meanwhile, and the wake-ups that led to
//! them.

mod habits;
mod neighbours;
mod quota;

use crate::causes::surroundings;
use habits::ThreadHabits;
use neighbours::Neighbours;
use std::collections::BTreeMap;
use whylate_bpf::BpfError;
use whylate_bpf::tasks::TaskWatch;
use whylate_core::recording::{Activation, Doing, Object, Recording, Segment, Stage, Wait, Waker};
use whylate_core::result::{Cause, WakeLink};
use whylate_core::{CpuId, Facts};
use whylate_explain::activation::{self, CHAIN_BEFORE_NS, Paths, convoy_from, looks_back};
pub use whylate_explain::activation::{Begins, Ends, Path, path_causes};
use whylate_explain::segments::Surroundings;
use whylate_host::HostRoot;

/// How many chains of wake-ups are put together at one look: all CPUs have to be read for them.
const CHAINS_MAX: usize = 16;

/// How many records of each CPU are read for them: if more happens in 100 ms, chains go back less far.
const CHAIN_RECORDS_MAX: u64 = 8_192;

/// How many records of all CPUs are read for paths of chains, and at most of one CPU: everything that a ring has.
const PATH_RECORDS_MAX: u64 = 1 << 19;
const PATH_RECORDS_CPU_MAX: u64 = 65_536;

/// The chains of some activations, one after another, and what the CPUs recorded meanwhile.
type Chains = (Vec<Vec<WakeLink>>, BTreeMap<CpuId, Recording>);

/// Why an activation took so long.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explained {
    /// Its causes, the largest share first.
    pub causes: Vec<Cause>,
    /// The wake-ups that led to it, the last one first; empty if a timer or an interrupt woke it at once.
    pub wakeups: Vec<WakeLink>,
    /// Records of its time that were lost.
    pub lost: u64,
}

impl Explained {
    /// Without rights only the stages of an activation are known.
    pub fn alone(host: &HostRoot, activation: &Activation) -> Self {
        let has_quota = quota::of_thread(host, activation.thread.pid).is_some();
        Self { causes: activation::explain_alone(activation, has_quota), ..Self::default() }
    }
}

/// Explains what a watch saw.
pub struct TaskExplainer {
    host: HostRoot,
    surroundings: Surroundings,
    threads: ThreadHabits,
}

/// A recording of which many short times are asked for.
struct Indexed {
    recording: Recording,
    /// For each segment, the latest end until then, and the earliest start from then on.
    ended_until_ns: Vec<u64>,
    begun_from_ns: Vec<u64>,
}

impl Indexed {
    fn of(recording: Recording) -> Self {
        let all = || recording.segments.iter();
        let latest = |latest_ns: &mut u64, segment: &Segment| {
            *latest_ns = segment.to_ns.max(*latest_ns);
            Some(*latest_ns)
        };
        let earliest = |earliest_ns: &mut u64, segment: &Segment| {
            *earliest_ns = segment.from_ns.min(*earliest_ns);
            Some(*earliest_ns)
        };
        let ended_until_ns = all().scan(0, latest).collect();
        let mut begun_from_ns: Vec<u64> = all().rev().scan(u64::MAX, earliest).collect();
        begun_from_ns.reverse();
        Self { recording, ended_until_ns, begun_from_ns }
    }

    /// As [`Recording::within`], without looking at every segment.
    fn within(&self, from_ns: u64, to_ns: u64) -> Recording {
        let first = self.ended_until_ns.partition_point(|at_ns| *at_ns < from_ns);
        let end = self.begun_from_ns.partition_point(|at_ns| *at_ns <= to_ns).max(first);
        self.recording.within_places(first..end, from_ns, to_ns)
    }
}

impl TaskExplainer {
    pub fn new(host: &HostRoot, facts: &Facts) -> Self {
        Self { host: host.clone(), surroundings: surroundings(host, facts), threads: ThreadHabits::default() }
    }

    /// Takes the samples of activations, with which long ones are compared.
    pub fn note(&mut self, ended: &[Activation]) {
        self.threads.note(ended);
    }

    /// Why activations took so long. Call it soon after [`TaskWatch::poll`].
    pub fn explain(
        &self,
        watch: &mut TaskWatch,
        activations: &[&Activation],
    ) -> Result<Vec<Explained>, BpfError> {
        let named: Vec<Activation> = activations.iter().map(|one| self.with_names(watch, one)).collect();
        let watch = &*watch;
        let (wakeups, all) = self.wakeups(watch, activations)?;
        let mut from: BTreeMap<CpuId, u64> = BTreeMap::new();
        let stages =
            activations.iter().flat_map(|one| one.stages.iter().map(|stage| (stage, one.thread.priority)));
        for (stage, priority) in stages {
            let before_ns = looks_back(stage, priority).unwrap_or_default();
            let from_ns = stage.from_ns.saturating_sub(before_ns);
            let least = from.entry(stage.cpu).or_insert(from_ns);
            *least = (*least).min(from_ns);
        }
        let read = |(cpu, from_ns): (&CpuId, &u64)| Ok((*cpu, Indexed::of(watch.since(*cpu, *from_ns)?)));
        let recordings = from.iter().map(read).collect::<Result<BTreeMap<CpuId, Indexed>, BpfError>>()?;
        let within = |cpu: CpuId, from_ns: u64, to_ns: u64| {
            recordings.get(&cpu).map(|it| it.within(from_ns, to_ns)).unwrap_or_default()
        };
        let mut neighbours = Neighbours::new(&self.host);
        let explained = named.iter().zip(wakeups).map(|(activation, wakeups)| {
            let lost = |stage: &Stage| {
                recordings.get(&stage.cpu).map_or(0, |it| it.recording.lost_since(stage.from_ns))
            };
            let lost = activation.stages.iter().map(lost).sum();
            let quota = quota::of(&self.host, activation);
            let limited = quota.map(|quota| Surroundings { quota: Some(quota), ..self.surroundings.clone() });
            let surroundings = limited.as_ref().unwrap_or(&self.surroundings);
            let mut causes = activation::explain(activation, &within, &all, surroundings);
            neighbours.name(activation.thread.pid, &mut causes);
            if let Some(first) = causes.first_mut() {
                first.evidence.extend(activation::told(&wakeups));
            }
            Explained { causes, wakeups, lost }
        });
        Ok(explained.collect())
    }

    /// Where the time of instances of chains went, one after another. Call it soon after [`TaskWatch::poll`].
    pub fn paths(&self, watch: &TaskWatch, all: &[Ends]) -> Result<Vec<Path>, BpfError> {
        let Some(from_ns) = all.iter().map(|one| one.begin_ns).min() else { return Ok(Vec::new()) };
        let recordings = Self::recordings(watch, from_ns)?;
        let paths = Paths::new(&recordings, &self.surroundings);
        Ok(all.iter().map(|ends| paths.path(ends)).collect())
    }

    /// From which of the begins threads were woken, directly or by others, before they passed an end. Call it soon after
    /// [`TaskWatch::poll`].
    pub fn origins(
        &self,
        watch: &TaskWatch,
        ends: &[(u32, u64)],
        begins: &Begins,
    ) -> Result<Vec<Option<(u32, u64)>>, BpfError> {
        let oldest = begins.values().filter_map(|all| all.first()).min();
        let Some(from_ns) = oldest.filter(|_| !ends.is_empty()) else { return Ok(vec![None; ends.len()]) };
        let recordings = Self::recordings(watch, *from_ns)?;
        let paths = Paths::new(&recordings, &self.surroundings);
        Ok(ends.iter().map(|(thread, at_ns)| paths.origin(*thread, *at_ns, begins)).collect())
    }

    /// What all CPUs recorded since then, as far as it is kept.
    fn recordings(watch: &TaskWatch, from_ns: u64) -> Result<BTreeMap<CpuId, Recording>, BpfError> {
        let most = (PATH_RECORDS_MAX / watch.cpus().len().max(1) as u64).min(PATH_RECORDS_CPU_MAX);
        let read = |cpu| Ok((cpu, watch.newest_since(cpu, from_ns, most)?));
        watch.cpus().iter().map(read).collect()
    }

    /// The activation with the names of the files for which it slept, as far as they are still open, and of the variables.
    fn with_names(&self, watch: &mut TaskWatch, activation: &Activation) -> Activation {
        let mut named = activation.clone();
        named.habits = self.threads.of(activation.thread.pid);
        named.usual = self.threads.usual_counts(activation.thread.pid);
        for stage in &mut named.stages {
            let Doing::Blocked { wait, .. } = &mut stage.what else { continue };
            let object = match wait {
                Wait::Lock { address, name, .. } => {
                    *name = watch.variable(activation.process, *address);
                    continue;
                }
                Wait::Inside { object, .. } => object,
                _ => continue,
            };
            match object {
                Object::File(number, name) => {
                    let path = format!("/proc/{}/fd/{number}", activation.process);
                    *name = self.host.read_link(&path);
                }
                Object::Word(address, name) => *name = watch.variable(activation.process, *address),
                Object::Unknown => {}
            }
        }
        named
    }

    /// The chains of wake-ups of activations, if a thread began them, and everything that the CPUs recorded then; only
    /// of the first ones if there are many.
    fn wakeups(&self, watch: &TaskWatch, activations: &[&Activation]) -> Result<Chains, BpfError> {
        let has_chain = |one: &Activation| matches!(one.waker, Waker::Thread(..));
        let begin = |one: &Activation| {
            let chain_ns = has_chain(one).then(|| one.woken_ns.saturating_sub(CHAIN_BEFORE_NS));
            chain_ns.or_else(|| convoy_from(one))
        };
        let wanted = activations.iter().filter_map(|one| Some((*one, begin(one)?)));
        let wanted: Vec<(&Activation, u64)> = wanted.take(CHAINS_MAX).collect();
        let Some(from_ns) = wanted.iter().map(|(_, from_ns)| *from_ns).min() else {
            return Ok((vec![Vec::new(); activations.len()], BTreeMap::new()));
        };
        let read = |cpu| Ok((cpu, watch.newest_since(cpu, from_ns, CHAIN_RECORDS_MAX)?));
        let recordings =
            watch.cpus().iter().map(read).collect::<Result<BTreeMap<CpuId, Recording>, BpfError>>()?;
        let of = |one: &&Activation| {
            let is_wanted = wanted.iter().any(|(it, _)| has_chain(it) && std::ptr::eq(*it, *one));
            if is_wanted { activation::chain(one, &recordings, &self.surroundings) } else { Vec::new() }
        };
        Ok((activations.iter().map(of).collect(), recordings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::recording::Activity;

    #[test]
    fn a_short_time_is_cut_out_as_by_looking_at_every_segment() {
        let mut random = 7_u64;
        let mut some = |most: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % most
        };
        let segment = |from_ns: u64, length_ns: u64| Segment {
            from_ns,
            to_ns: from_ns + length_ns,
            what: Activity::Softirq { number: 1 },
        };
        let mut segments: Vec<Segment> = (0..500).map(|nth| segment(nth * 10, some(60))).collect();
        segments.push(segment(0, 5_000));
        segments.sort_by_key(|it| it.to_ns);
        // Not quite in the order of their ends.
        segments.swap(100, 104);
        let recording = Recording { segments, complete_from_ns: 300, lost: 2 };
        let indexed = Indexed::of(recording.clone());
        for _ in 0..200 {
            let (from_ns, length_ns) = (some(5_200), some(90));
            let found = indexed.within(from_ns, from_ns + length_ns);
            assert_eq!(found, recording.within(from_ns, from_ns + length_ns));
        }
    }
}
