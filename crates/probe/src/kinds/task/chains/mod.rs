//! Chains: activities over several threads, from a mark in one thread to a mark in another.
//!
//! Programs in the kernel record each pass of a mark. Passes are joined to instances, whose latencies are a series of the
//! probe. The worst and the late instances are explained a moment after their end, when all CPUs have recorded what they did.

mod join;

use super::lanes::{ChainSample, Lanes};
use super::source::Source;
use crate::error::ProbeError;
use crate::measure::{Happened, Observer};
use join::{Instance, Joiner, in_order};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use whylate_bpf::tasks::{Passed, check_chain_mark};
use whylate_core::order::InOrder;
use whylate_core::plan::{Chain, ChainMark, TaskPlan};
use whylate_core::result::{Cause, ChainPath, ChainRecord};
use whylate_record::tasks::{Ends, path_causes};
use whylate_sys::clock;

/// What the CPUs did until the end of an instance is recorded by then.
const RIPE_NS: u64 = 60_000_000;
/// At most this many instances are explained at each look, the longest late ones first.
const AT_ONCE_MAX: usize = 8;
/// At most this many ends are followed back to their begins at each look.
const ORIGINS_MAX: usize = 256;
/// A chain without a deadline is assumed to take about this long.
const USUAL_NS: u64 = 200_000_000;
/// The kernel's records are kept for this long after an instance ended.
const LOOKED_AT_AFTER_NS: u64 = RIPE_NS + 140_000_000;

/// A thread and a moment.
type Pass = (u32, u64);

/// How the watch ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatchEnd {
    /// Passes until then are recorded.
    pub(super) at_ns: u64,
    pub(super) has_program_ended: bool,
}

/// The chains of a watch.
pub(super) struct ChainWatch {
    all: Vec<OneChain>,
    is_end: BTreeMap<u32, bool>,
    /// The number of the last pass of each rule, and how many passes have no record.
    last: BTreeMap<u32, u64>,
    unrecorded: u64,
    waiting: Vec<Unexplained>,
    /// Since the last stored interval.
    paths: Vec<ChainPath>,
    is_stored: bool,
}

struct OneChain {
    chain: Chain,
    /// For begin and end.
    rules: [u32; 2],
    joiner: Joiner,
    /// Passes since the first end to which several begins may belong, until the wake-ups before it are recorded.
    queued: VecDeque<Passed>,
}

/// An instance that is to be explained.
struct Unexplained {
    nth: usize,
    number: u64,
    instance: Instance,
}

fn parsed(plan: &TaskPlan) -> Result<Vec<Chain>, ProbeError> {
    plan.chains().map_err(|error| ProbeError::Failed(error.to_string()))
}

/// Checks that the marks of the chains are there.
pub(super) fn check(plan: &TaskPlan) -> Result<(), ProbeError> {
    for chain in parsed(plan)? {
        for (which, mark) in [("begin", &chain.begin), ("end", &chain.end)] {
            check_chain_mark(mark)
                .map_err(|why| ProbeError::Failed(format!("{which} of chain `{}`: {why}", chain.name)))?;
        }
    }
    Ok(())
}

/// How long the kernel's records have to be kept: a late instance lasted longer than its deadline.
pub(super) fn keep_ns(plan: &TaskPlan) -> u64 {
    let longest =
        plan.chains.iter().map(|chain| chain.deadline.map_or(USUAL_NS, |it| it.0).saturating_mul(4)).max();
    longest.map_or(0, |longest_ns| longest_ns.saturating_add(LOOKED_AT_AFTER_NS))
}

impl ChainWatch {
    /// Begins to record the passes of the marks; `None` without a chain.
    pub(super) fn start(plan: &TaskPlan, watch: &mut Source) -> Result<Option<Self>, ProbeError> {
        let mut chains = Self {
            all: Vec::new(),
            is_end: BTreeMap::new(),
            last: BTreeMap::new(),
            unrecorded: 0,
            waiting: Vec::new(),
            paths: Vec::new(),
            is_stored: false,
        };
        for chain in parsed(plan)? {
            let rules = [watch.pass(&chain.begin)?, watch.pass(&chain.end)?];
            chains.is_end.extend(rules.into_iter().zip([false, true]));
            let joiner = Joiner::new(&chain.name, chain.has_values(), chain.deadline.map(|it| it.0));
            chains.all.push(OneChain { chain, rules, joiner, queued: VecDeque::new() });
        }
        Ok(Some(chains).filter(|chains| !chains.all.is_empty()))
    }

    /// Counts the instances that ended, and explains those for which there was time enough; all of them at
    /// the `end`.
    pub(super) fn look(
        &mut self,
        watch: &mut Source,
        lanes: &mut Lanes,
        observer: &mut dyn Observer,
        end: Option<WatchEnd>,
    ) -> Result<(), ProbeError> {
        let is_over = end.is_some();
        let now_ns = clock::now().0;
        let mut passes = watch.passed();
        in_order(&mut passes, &self.is_end);
        self.look_for_gaps(&passes);
        for pass in passes {
            self.take(pass);
        }
        let ripe_ns = if is_over { u64::MAX } else { now_ns.saturating_sub(RIPE_NS) };
        for nth in 0..self.all.len() {
            self.join(nth, ripe_ns, watch, lanes)?;
        }
        for (nth, one) in self.all.iter_mut().enumerate() {
            one.joiner.forget(now_ns);
            let unended =
                end.map(|end| one.joiner.unended(end.at_ns, end.has_program_ended)).unwrap_or_default();
            // What they wait for is not known before they end.
            for instance in unended {
                lanes.add_instance(nth, &one.chain.series(), &sample(&instance));
                one.joiner.record.unexplained += 1;
            }
        }
        let is_ripe = |it: &mut Unexplained| is_over || it.instance.end.at_ns + RIPE_NS <= now_ns;
        let mut ripe: Vec<Unexplained> = self.waiting.extract_if(.., is_ripe).collect();
        ripe.order_by_key(|it| Reverse((it.instance.is_late, it.instance.latency_ns())));
        for left in ripe.drain(ripe.len().min(AT_ONCE_MAX)..) {
            self.all[left.nth].joiner.record.unexplained += u64::from(left.instance.is_late);
        }
        self.explain(&ripe, watch, lanes, observer)
    }

    /// Looks for passes without a record by the numbers of those that have one.
    fn look_for_gaps(&mut self, passes: &[Passed]) {
        for one in &mut self.all {
            for rule in one.rules {
                let of_rule = || passes.iter().filter(|pass| pass.rule == rule);
                let Some(newest) = of_rule().max_by_key(|pass| pass.number) else { continue };
                let before = self.last.get(&rule).copied().unwrap_or(0);
                // A lower number may come later: time and number of a pass are not taken at once.
                self.last.insert(rule, before.max(newest.number));
                let missing = newest.number.saturating_sub(before).saturating_sub(of_rule().count() as u64);
                if missing > 0 {
                    self.unrecorded += missing;
                    one.joiner.gap(newest.at_ns);
                }
            }
        }
    }

    /// Passes that have no record, because too many came.
    pub(super) fn unrecorded(&self) -> u64 {
        self.unrecorded
    }

    fn take(&mut self, pass: Passed) {
        let Some(one) = self.all.iter_mut().find(|one| one.rules.contains(&pass.rule)) else { return };
        let mark = if pass.rule == one.rules[0] { &one.chain.begin } else { &one.chain.end };
        if is_by(mark, &pass) {
            one.queued.push_back(pass);
        }
    }

    /// Joins the passes of one chain, up to the first end after `ripe_ns` to which several begins may belong.
    fn join(
        &mut self,
        nth: usize,
        ripe_ns: u64,
        watch: &Source,
        lanes: &mut Lanes,
    ) -> Result<(), ProbeError> {
        let mut known = None;
        while let Some(pass) = self.all[nth].queued.front() {
            let one = &self.all[nth];
            let is_begin = pass.rule == one.rules[0];
            let mut origin = None;
            if !is_begin && one.joiner.is_joined(pass) && one.joiner.is_ambiguous(pass) {
                if pass.at_ns > ripe_ns {
                    break;
                }
                let end = (pass.thread, pass.at_ns);
                if known.is_none() {
                    known = Some(self.origins(nth, ripe_ns, watch)?);
                }
                origin = known.as_ref().and_then(|known| known.get(&end).copied());
            }
            let one = &mut self.all[nth];
            let Some(pass) = one.queued.pop_front().filter(|pass| one.joiner.is_joined(pass)) else {
                continue;
            };
            if is_begin {
                one.joiner.begin(pass);
            } else if let Some(instance) = one.joiner.end(pass, origin)
                && let Some(number) = lanes.add_instance(nth, &one.chain.series(), &sample(&instance))
            {
                self.waiting.push(Unexplained { nth, number, instance });
            }
        }
        Ok(())
    }

    /// The begins to which the wake-ups lead back from the queued ends until `ripe_ns`.
    fn origins(
        &mut self,
        nth: usize,
        ripe_ns: u64,
        watch: &Source,
    ) -> Result<BTreeMap<Pass, Pass>, ProbeError> {
        let one = &mut self.all[nth];
        let mut begins = one.joiner.begins();
        let mut ends = Vec::new();
        for pass in one.queued.iter().take_while(|pass| pass.at_ns <= ripe_ns) {
            if pass.rule == one.rules[0] {
                begins.entry(pass.thread).or_default().push(pass.at_ns);
            } else if ends.len() < ORIGINS_MAX {
                ends.push((pass.thread, pass.at_ns));
            }
        }
        let found = watch.origins(&ends, &begins)?;
        Ok(ends.into_iter().zip(found).filter_map(|(end, origin)| Some((end, origin?))).collect())
    }

    fn explain(
        &mut self,
        ripe: &[Unexplained],
        watch: &Source,
        lanes: &mut Lanes,
        observer: &mut dyn Observer,
    ) -> Result<(), ProbeError> {
        let ends: Vec<Ends> = ripe.iter().map(|it| ends(&it.instance)).collect();
        for (Unexplained { nth, number, instance }, path) in ripe.iter().zip(watch.paths(&ends)?) {
            let causes = path_causes(&path, instance.is_uncertain);
            if instance.is_late {
                observer.happened(Happened::Late {
                    thread: self.all[*nth].chain.series(),
                    pid: instance.end.thread,
                    at_ns: instance.end.at_ns,
                    latency_ns: instance.latency_ns(),
                    is_unended: false,
                    cause: causes.first().map(Cause::sentence),
                });
            }
            lanes.explain_instance(*nth, *number, &sample(instance), &path.parts, causes);
            self.paths.push(ChainPath {
                name: self.all[*nth].chain.name.clone(),
                at_ns: instance.end.at_ns,
                latency_ns: instance.latency_ns(),
                is_whole: path.is_whole,
                parts: path.parts,
            });
        }
        Ok(())
    }

    /// What came since the last call. The first time, each chain has a record, also without an instance.
    pub(super) fn take_records(&mut self) -> (Vec<ChainRecord>, Vec<ChainPath>) {
        let mut records: Vec<ChainRecord> = self.all.iter_mut().map(|one| one.joiner.take()).collect();
        if std::mem::replace(&mut self.is_stored, true) {
            records.retain(|record| !record.is_empty());
        }
        (records, std::mem::take(&mut self.paths))
    }
}

fn is_by(mark: &ChainMark, pass: &Passed) -> bool {
    mark.thread.as_ref().is_none_or(|thread| *thread == pass.command)
}

fn ends(instance: &Instance) -> Ends {
    let Instance { begin, end, .. } = instance;
    Ends {
        begin_ns: begin.at_ns,
        begin_thread: begin.thread,
        end_ns: end.at_ns,
        end_thread: end.thread,
        end_command: end.command.clone(),
        end_cpu: end.cpu,
    }
}

fn sample(instance: &Instance) -> ChainSample {
    let Instance { begin, end, is_late, .. } = instance;
    ChainSample { begin_ns: begin.at_ns, at_ns: end.at_ns, cpu: end.cpu, is_late: *is_late }
}
