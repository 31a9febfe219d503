//! Which activations explain a trigger: the recent ones are kept, and the longest of each thread is chosen.

use super::inbox::Come;
use crate::kinds::task::lane::Typical;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use whylate_bpf::tasks::{Activation, Doing, Stage};
use whylate_core::order::InOrder;
use whylate_core::result::{TriggerMoment, TriggerRecord, TriggerThread};

/// Activations that go on are looked at this long after the trigger.
const AT_LATEST_NS: u64 = 250_000_000;
/// The kernel's records of the moment have been read by then.
const AT_EARLIEST_NS: u64 = 60_000_000;
/// Activations are kept for this long in addition to the time before a trigger.
const KEPT_NS: u64 = 500_000_000;
/// The most activations that are kept, and the most stages of them.
const ACTIVATIONS_MAX: usize = 65_536;
const STAGES_MAX: usize = 1 << 20;
/// At most this many threads are explained.
const THREADS_MAX: usize = 8;
/// If more triggers were to be explained in a second, only the first of each second is.
const PER_SECOND_MAX: u32 = 20;
const SECOND_NS: u64 = 1_000_000_000;

/// Triggers that share an explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TriggerGroup {
    pub(super) first: Come,
    /// When the last of them came.
    until_ns: u64,
    others: Vec<usize>,
    count: u64,
}

impl TriggerGroup {
    /// The moment, without its threads. `given` are the triggers, as given.
    pub(super) fn moment(&self, given: &[String]) -> TriggerMoment {
        TriggerMoment {
            at_ns: self.first.at_ns,
            trigger: given[self.first.trigger].clone(),
            text: self.first.text.clone(),
            others: self.others.iter().map(|other| given[*other].clone()).collect(),
            count: self.count,
            threads: Vec::new(),
        }
    }
}

/// An activation that may explain a trigger.
#[derive(Clone, Debug)]
pub(super) struct MomentCandidate {
    pub(super) activation: Activation,
    /// The thread's series.
    pub(super) thread: String,
    pub(super) typical: Typical,
}

impl MomentCandidate {
    /// Its response without a wait that is only possible.
    fn certain_ns(&self) -> u64 {
        self.activation.response_ns().saturating_sub(self.activation.wait_max_ns.unwrap_or_default())
    }

    fn is_late(&self) -> bool {
        let is_above = |ns: u64, typical_ns: Option<u64>| {
            typical_ns.is_some_and(|typical_ns| ns as f64 > TriggerThread::LATE * typical_ns.max(1) as f64)
        };
        let Typical { response_ns, possible_ns } = self.typical;
        match response_ns {
            // One that hangs has no other to compare with.
            None => self.activation.is_unended,
            typical_ns => {
                is_above(self.certain_ns(), typical_ns)
                    || is_above(self.activation.response_ns(), possible_ns)
            }
        }
    }

    /// How much longer than usual it took. One that has not ended and has no other to compare with counts as a whole.
    fn excess_ns(&self) -> u64 {
        let usual_ns = match self.typical.response_ns {
            Some(typical_ns) => typical_ns,
            None if self.activation.is_unended => 0,
            None => u64::MAX,
        };
        self.certain_ns().saturating_sub(usual_ns)
    }

    /// How long it waited while one of these threads had its CPU.
    fn behind_ns(&self, threads: &BTreeSet<u32>) -> u64 {
        let is_behind = |stage: &&Stage| match &stage.what {
            Doing::Waking { previous: by, .. } | Doing::Preempted { by, .. } => threads.contains(&by.pid),
            Doing::Running | Doing::Unseen | Doing::Blocked { .. } => false,
        };
        self.activation.stages.iter().filter(is_behind).map(Stage::length_ns).sum()
    }

    /// What a moment says of it.
    pub(super) fn described(&self) -> TriggerThread {
        let is_unended = self.activation.is_unended;
        TriggerThread {
            thread: self.thread.clone(),
            due_ns: self.activation.due_ns,
            response_ns: self.activation.response_ns(),
            typical_ns: self.typical.response_ns,
            late: self.is_late(),
            unended: is_unended,
            // Without the kernel's programs some waits are not seen, also those of which the kernel counts nothing.
            wait_max_ns: { self.activation.wait_max_ns.or(self.activation.is_partial.then_some(0)) }
                .map(|ns| ns.min(self.activation.response_ns())),
            ..TriggerThread::default()
        }
    }
}

/// The groups that wait for their explanation, and the activations that may explain them.
#[derive(Clone, Debug)]
pub(super) struct Moments {
    last_ns: u64,
    recent: VecDeque<Activation>,
    stages: usize,
    /// Activations that were dropped too early, because there were too many.
    pub(super) dropped: u64,
    waiting: Vec<TriggerGroup>,
    /// When the newest group began.
    newest_ns: Option<u64>,
    /// The second of the newest group, how many there were in it, and whether the second before had too many.
    second: (u64, u32, bool),
}

impl Moments {
    /// A trigger is explained at most this long after it came, with the time between two looks.
    pub(super) const LOOKED_AT_AFTER_NS: u64 = AT_LATEST_NS + 100_000_000;

    pub(super) fn new(last_ns: u64) -> Self {
        Self {
            last_ns,
            recent: VecDeque::new(),
            stages: 0,
            dropped: 0,
            waiting: Vec::new(),
            newest_ns: None,
            second: (0, 0, false),
        }
    }

    /// Keeps an activation for a while.
    pub(super) fn keep(&mut self, activation: Activation) {
        self.stages += activation.stages.len();
        self.recent.push_back(activation);
    }

    /// Forgets what is too old, or too much.
    pub(super) fn forget(&mut self, now_ns: u64) {
        let since_ns = now_ns.saturating_sub(self.last_ns + KEPT_NS);
        while let Some(oldest) = self.recent.front() {
            let is_old = oldest.end_ns() < since_ns;
            if !is_old && self.recent.len() <= ACTIVATIONS_MAX && self.stages <= STAGES_MAX {
                break;
            }
            self.dropped += u64::from(!is_old);
            self.stages -= oldest.stages.len();
            self.recent.pop_front();
        }
    }

    /// Takes a trigger that came, and counts it.
    pub(super) fn take(&mut self, come: Come, record: &mut TriggerRecord) {
        record.count += 1;
        let is_near = |first_ns: u64| come.at_ns.abs_diff(first_ns) < self.last_ns;
        if let Some(group) = self.waiting.iter_mut().find(|group| is_near(group.first.at_ns)) {
            group.count += 1;
            group.until_ns = group.until_ns.max(come.at_ns);
            if come.trigger != group.first.trigger && !group.others.contains(&come.trigger) {
                group.others.push(come.trigger);
            }
            record.shared += 1;
            return;
        }
        // The explanation is given already.
        if self.newest_ns.is_some_and(is_near) {
            record.shared += 1;
            return;
        }
        if self.is_storm(come.at_ns) {
            record.unexplained += 1;
            return;
        }
        self.newest_ns = self.newest_ns.max(Some(come.at_ns));
        self.waiting.push(TriggerGroup { until_ns: come.at_ns, first: come, others: Vec::new(), count: 1 });
    }

    /// Counts one that is to be explained; whether there are too many.
    fn is_storm(&mut self, at_ns: u64) -> bool {
        let second = at_ns / SECOND_NS;
        let (known, number, _) = self.second;
        if second != known {
            self.second = (second, 0, second == known + 1 && number > PER_SECOND_MAX);
        }
        self.second.1 += 1;
        let (_, number, was_storm) = self.second;
        number > if was_storm { 1 } else { PER_SECOND_MAX }
    }

    /// Whether a group waits for its explanation.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The groups that can be explained now: the activations of their moment have ended, or there was time enough.
    pub(super) fn ripe(
        &mut self,
        now_ns: u64,
        in_progress: &[Activation],
        is_over: bool,
    ) -> Vec<TriggerGroup> {
        let is_ripe = |group: &mut TriggerGroup| {
            let goes_on = |one: &Activation| one.is_unended && one.due_ns <= group.until_ns;
            let has_settled = now_ns >= group.until_ns + AT_EARLIEST_NS && !in_progress.iter().any(goes_on);
            is_over || has_settled || now_ns >= group.first.at_ns + AT_LATEST_NS
        };
        self.waiting.extract_if(.., is_ripe).collect()
    }

    /// What explains a group: for each thread what it was doing at the first trigger, if it was late by then, else its longest
    /// activation before that. If no thread was late by then, the longest activations up to the last trigger, as a whole.
    pub(super) fn candidates(
        &self,
        group: &TriggerGroup,
        in_progress: &[Activation],
        mut candidate: impl FnMut(Activation) -> MomentCandidate,
    ) -> Vec<MomentCandidate> {
        let at_ns = group.first.at_ns;
        let from_ns = at_ns.saturating_sub(self.last_ns);
        let all = || self.recent.iter().chain(in_progress).filter(|one| one.end_ns() >= from_ns);
        let before = || all().filter(|one| one.due_ns <= at_ns);
        let longest = of_each(before(), |one| one.end_ns().min(at_ns).saturating_sub(one.due_ns));
        let current = of_each(before().filter(|one| one.end_ns() >= at_ns), |one| one.due_ns);
        let mut by_then = |(pid, one): (u32, &Activation)| {
            let late = current.get(&pid).map(|one| candidate(one.until(at_ns)));
            late.filter(MomentCandidate::is_late).unwrap_or_else(|| candidate(one.until(at_ns)))
        };
        let found: Vec<MomentCandidate> = longest.into_iter().map(&mut by_then).collect();
        if found.iter().any(MomentCandidate::is_late) {
            return found;
        }
        let later = of_each(all().filter(|one| one.due_ns <= group.until_ns), Activation::response_ns);
        later.into_values().map(|one| candidate(one.clone())).collect()
    }
}

/// The activation of each thread that is largest in this.
fn of_each<'a>(
    all: impl Iterator<Item = &'a Activation>,
    size: impl Fn(&Activation) -> u64,
) -> BTreeMap<u32, &'a Activation> {
    let mut largest: BTreeMap<u32, &Activation> = BTreeMap::new();
    for one in all {
        let known = largest.entry(one.thread.pid).or_insert(one);
        if size(one) > size(known) {
            *known = one;
        }
    }
    largest
}

/// Those that are explained: late ones first, and of these the one with the most time above its thread's median. A ratio would
/// prefer a helper thread whose median is a few microseconds. While another of these threads has the CPU, that one is the late one.
pub(super) fn choose(mut candidates: Vec<MomentCandidate>) -> Vec<MomentCandidate> {
    let threads: BTreeSet<u32> = candidates.iter().map(|one| one.activation.thread.pid).collect();
    candidates.order_by_key(|one| {
        let own_ns = one.excess_ns().saturating_sub(one.behind_ns(&threads));
        Reverse((one.described().late, own_ns, one.activation.response_ns()))
    });
    candidates.truncate(THREADS_MAX);
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_bpf::tasks::{Budget, Thread};
    use whylate_core::CpuId;

    const MS: u64 = 1_000_000;

    fn come(at_ms: u64, trigger: usize) -> Come {
        Come { at_ns: at_ms * MS, trigger, text: None }
    }

    fn activation(pid: u32, from_ms: u64, to_ms: u64) -> Activation {
        let stage = Stage { from_ns: from_ms * MS, to_ns: to_ms * MS, cpu: CpuId(0), what: Doing::Running };
        let thread = Thread { pid, priority: 40, command: "control".to_owned() };
        Activation { thread, due_ns: from_ms * MS, stages: vec![stage], ..Activation::default() }
    }

    fn moments(last_ms: u64, all: &[Come]) -> (Moments, Vec<TriggerRecord>) {
        let (mut moments, mut records) = (Moments::new(last_ms * MS), vec![TriggerRecord::default(); 2]);
        for one in all {
            moments.take(one.clone(), &mut records[one.trigger]);
        }
        (moments, records)
    }

    #[test]
    fn triggers_that_are_close_share_an_explanation() {
        let (mut moments, records) =
            moments(50, &[come(1_000, 0), come(1_020, 1), come(1_049, 0), come(1_050, 0)]);
        let counts = |record: &TriggerRecord| (record.count, record.shared, record.unexplained);
        assert_eq!((counts(&records[0]), counts(&records[1])), ((3, 1, 0), (1, 1, 0)));
        let given = ["a".to_owned(), "b".to_owned()];
        let ripe = moments.ripe(1_109 * MS, &[], false);
        let found: Vec<_> = ripe.iter().map(|it| it.moment(&given)).map(|it| (it.count, it.others)).collect();
        assert_eq!(found, [(3, vec!["b".to_owned()])], "the second one is too young");
        let mut record = TriggerRecord::default();
        moments.take(come(1_051, 0), &mut record);
        assert_eq!(moments.ripe(1_111 * MS, &[], false)[0].count, 2);
        moments.take(come(1_080, 0), &mut record);
        assert_eq!((counts(&record), moments.is_waiting()), ((2, 2, 0), false), "explained already");
    }

    #[test]
    fn a_group_waits_for_activations_that_go_on_but_not_for_long() {
        let (mut moments, _) = moments(50, &[come(1_000, 0)]);
        let open = Activation { is_unended: true, ..activation(7, 990, 1_100) };
        assert!(moments.ripe(1_100 * MS, std::slice::from_ref(&open), false).is_empty());
        let later = Activation { due_ns: 1_010 * MS, ..open.clone() };
        let ripe = |moments: &Moments, open: &Activation, now_ms| {
            moments.clone().ripe(now_ms * MS, std::slice::from_ref(open), false).len()
        };
        assert_eq!([ripe(&moments, &later, 1_100), ripe(&moments, &open, 1_250)], [1, 1]);
        assert_eq!(moments.ripe(1_001 * MS, &[], true).len(), 1);
    }

    #[test]
    fn the_longest_activation_of_each_thread_in_the_time_is_chosen() {
        let (mut moments, _) = moments(50, &[come(1_000, 0)]);
        let all =
            [(7, 900, 949), (7, 951, 952), (7, 960, 970), (7, 1_001, 1_090), (8, 940, 950), (9, 990, 1_040)];
        all.into_iter().for_each(|(pid, from_ms, to_ms)| moments.keep(activation(pid, from_ms, to_ms)));
        let open = Activation { is_unended: true, ..activation(8, 999, 1_200) };
        let group = moments.ripe(0, &[], true).remove(0);
        let of = |response_ms: u64| {
            let candidate = move |activation| MomentCandidate {
                activation,
                thread: "control".to_owned(),
                typical: Typical { response_ns: Some(response_ms * MS), possible_ns: None },
            };
            let found = moments.candidates(&group, std::slice::from_ref(&open), candidate);
            let part = |it: MomentCandidate| {
                (it.activation.thread.pid, it.activation.due_ns / MS, it.activation.response_ns() / MS)
            };
            found.into_iter().map(part).collect::<Vec<_>>()
        };
        // None was late by then: what followed counts.
        assert_eq!(of(40), [(7, 960, 10), (8, 999, 201), (9, 990, 50)]);
        // What they had done by then; one of them was late at that moment, and had been longer before.
        assert_eq!(of(6), [(7, 960, 10), (8, 940, 10), (9, 990, 10)]);
        assert_eq!(of(1), [(7, 960, 10), (8, 940, 10), (9, 990, 10)]);
    }

    #[test]
    fn what_a_thread_did_at_the_trigger_explains_it_if_it_was_late_by_then() {
        let (mut moments, _) = moments(50, &[come(1_000, 0), come(1_020, 0)]);
        // A longer one before, the one that triggers, and a still longer one with the next trigger.
        let all = [(7, 960, 975), (7, 991, 1_004), (7, 1_005, 1_030)];
        all.into_iter().for_each(|(pid, from_ms, to_ms)| moments.keep(activation(pid, from_ms, to_ms)));
        let group = moments.ripe(0, &[], true).remove(0);
        let candidate = |activation| MomentCandidate {
            activation,
            thread: "control".to_owned(),
            typical: Typical { response_ns: Some(MS), possible_ns: None },
        };
        let found = moments.candidates(&group, &[], candidate);
        let parts: Vec<_> = found.iter().map(|it| (it.activation.due_ns / MS, it.described())).collect();
        assert_eq!(
            (parts.len(), parts[0].0, parts[0].1.response_ns, parts[0].1.late),
            (1, 991, 9 * MS, true)
        );
    }

    #[test]
    fn waits_that_are_only_possible_are_compared_with_such_waits() {
        let described = |certain_ms: u64, wait_ms: u64| {
            let activation =
                Activation { wait_max_ns: Some(wait_ms * MS), ..activation(7, 500, 500 + certain_ms) };
            let typical = Typical { response_ns: Some(MS), possible_ns: Some(5 * MS) };
            let candidate = MomentCandidate {
                activation: activation.with_longest_wait(),
                thread: "audio".to_owned(),
                typical,
            };
            candidate.described()
        };
        let late = |certain_ms, wait_ms| described(certain_ms, wait_ms).late;
        assert_eq!((late(1, 4), late(2, 0), late(2, 4), late(1, 7)), (false, true, true, true));
        let said = described(1, 4);
        assert_eq!((said.response_ns, said.typical_ns), (5 * MS, Some(MS)));
    }

    #[test]
    fn the_one_with_the_most_time_above_its_median_comes_first() {
        let candidate = |pid: u32, took_ms, typical_ms: Option<u64>| MomentCandidate {
            activation: activation(pid, 0, took_ms),
            thread: format!("t{pid}"),
            typical: Typical { response_ns: typical_ms.map(|ms| ms * MS), possible_ns: None },
        };
        let hangs = MomentCandidate {
            activation: Activation { is_unended: true, ..activation(4, 0, 90) },
            ..candidate(4, 90, None)
        };
        let helper = candidate(5, 1, Some(0));
        let all =
            vec![candidate(1, 10, Some(9)), helper, candidate(2, 4, Some(1)), candidate(3, 100, None), hangs];
        let found: Vec<_> =
            choose(all).iter().map(MomentCandidate::described).map(|it| (it.thread, it.late)).collect();
        let of = |name: &str, late| (name.to_owned(), late);
        assert_eq!(found, [of("t4", true), of("t2", true), of("t5", true), of("t1", false), of("t3", false)]);
        let mut behind = candidate(6, 9, Some(1));
        let by = Thread { pid: 2, priority: 50, command: "planner".to_owned() };
        behind.activation.stages[0].what = Doing::Preempted { by, budget: Budget::Left };
        let first = choose(vec![behind, candidate(2, 4, Some(1))]).remove(0);
        assert_eq!(first.thread, "t2", "the other one waited for it");
        assert_eq!(choose((0..20).map(|pid| candidate(pid, 1, Some(1))).collect()).len(), THREADS_MAX);
    }

    #[test]
    fn a_storm_is_counted_and_the_first_of_each_second_is_explained() {
        let all: Vec<Come> = (0..1_000).map(|nth| come(10_000 + 3 * nth, 0)).collect();
        let (mut moments, records) = moments(2, &all);
        let TriggerRecord { count, shared, unexplained, .. } = records[0];
        let ripe = moments.ripe(u64::MAX / 2, &[], false);
        // 20 in the first second, and one in each of the two after it.
        assert_eq!((count, shared, unexplained, ripe.len()), (1_000, 0, 978, 22));
        let seconds: Vec<u64> = ripe[20..].iter().map(|it| it.first.at_ns / MS).collect();
        assert_eq!(seconds, [11_002, 12_001]);
        let (mut quiet, mut record) = (Moments::new(2 * MS), TriggerRecord::default());
        (0..20).for_each(|nth| quiet.take(come(5_000 + 4 * nth, 0), &mut record));
        assert_eq!((record.unexplained, quiet.ripe(u64::MAX / 2, &[], false).len()), (0, 20));
    }

    #[test]
    fn old_activations_are_forgotten_and_dropped_ones_counted() {
        let mut moments = Moments::new(50 * MS);
        (0..1_000).for_each(|nth| moments.keep(activation(7, nth, nth + 1)));
        moments.forget(1_000 * MS);
        assert_eq!((moments.recent.len(), moments.dropped), (551, 0));
        (0..ACTIVATIONS_MAX as u64).for_each(|_| moments.keep(activation(7, 1_000, 1_001)));
        moments.forget(1_001 * MS);
        assert_eq!(
            (moments.recent.len(), moments.stages, moments.dropped),
            (ACTIVATIONS_MAX, ACTIVATIONS_MAX, 550)
        );
    }
}
