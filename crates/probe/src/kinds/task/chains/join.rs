//! Which begin of a chain belongs to which end: by the value that both have, otherwise by the wake-ups that lead from one
//! to the other, otherwise by order.

use std::collections::{BTreeMap, VecDeque};
use whylate_bpf::tasks::Passed;
use whylate_core::order::InOrder;
use whylate_core::result::ChainRecord;
use whylate_record::tasks::Begins;
use whylate_stats::Histogram;

/// The most begins that wait for their ends; the oldest ones count as dropped.
const OPEN_MAX: usize = 1_024;
/// A begin waits for its end at least this long, and this many times the median.
const DROPPED_NS: u64 = 1_000_000_000;
const DROPPED_MEDIANS: u64 = 10;
/// Begins are kept for this long before the oldest one that waits: a thread that always has work is woken for earlier work only.
const BEGINS_KEPT_NS: u64 = 100_000_000;
/// Begins that ended recently are kept to recognise instances that are overtaken.
const SETTLED_NS: u64 = 60_000_000;

/// An instance of a chain that ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Instance {
    pub(super) begin: Passed,
    pub(super) end: Passed,
    /// Others overlapped with it, and neither a value nor wake-ups join begin and end.
    pub(super) is_uncertain: bool,
    pub(super) is_late: bool,
}

impl Instance {
    pub(super) fn latency_ns(&self) -> u64 {
        self.end.at_ns.saturating_sub(self.begin.at_ns)
    }
}

/// The begins of one chain that wait for their ends.
pub(super) struct Joiner {
    has_values: bool,
    deadline_ns: Option<u64>,
    /// In the order of time.
    open: VecDeque<Passed>,
    /// Threads and moments of the begins, also of those that ended; empty if values join them.
    begins: VecDeque<(u32, u64)>,
    /// When the one began that began last of those that ended.
    newest_ended_ns: u64,
    /// Passes until then may lack their records.
    gap_ns: u64,
    latencies: Histogram,
    /// Since the last stored interval.
    pub(super) record: ChainRecord,
}

impl Joiner {
    pub(super) fn new(name: &str, has_values: bool, deadline_ns: Option<u64>) -> Self {
        let record = ChainRecord { name: name.to_owned(), deadline_ns, ..ChainRecord::default() };
        Self {
            has_values,
            deadline_ns,
            open: VecDeque::new(),
            begins: VecDeque::new(),
            newest_ended_ns: 0,
            gap_ns: 0,
            latencies: Histogram::new(),
            record,
        }
    }

    /// A thread passed the first mark.
    pub(super) fn begin(&mut self, mut pass: Passed) {
        self.normalise(&mut pass);
        // A value that comes again belongs to a new instance.
        if pass.value.is_some() {
            let before = self.open.len();
            self.open.retain(|open| open.value != pass.value);
            self.record.dropped += (before - self.open.len()) as u64;
        }
        if self.open.len() >= OPEN_MAX {
            self.open.pop_front();
            self.record.dropped += 1;
        }
        if !self.has_values {
            self.begins.push_back((pass.thread, pass.at_ns));
        }
        self.open.push_back(pass);
    }

    /// Whether several begins may belong to that end.
    pub(super) fn is_ambiguous(&self, pass: &Passed) -> bool {
        !self.has_values && self.open.iter().filter(|open| open.at_ns <= pass.at_ns).count() > 1
    }

    /// The begins to which an end may belong, and earlier ones.
    pub(super) fn begins(&mut self) -> Begins {
        let oldest_ns = self.open.front().map_or(u64::MAX, |open| open.at_ns);
        while self.begins.front().is_some_and(|(_, at_ns)| at_ns.saturating_add(BEGINS_KEPT_NS) < oldest_ns) {
            self.begins.pop_front();
        }
        let mut all = Begins::new();
        for (thread, at_ns) in &self.begins {
            all.entry(*thread).or_default().push(*at_ns);
        }
        all
    }

    /// Which of the open begins wake-ups lead to, and whether surely: a thread that has work waiting is woken only for the
    /// earlier work, and the next begin of the same thread is taken.
    fn by_origin(&self, pass: &Passed, (thread, at_ns): (u32, u64)) -> Option<(usize, bool)> {
        let is_next = |open: &Passed| open.thread == thread && (at_ns..=pass.at_ns).contains(&open.at_ns);
        let nth = self.open.iter().position(is_next)?;
        Some((nth, self.open[nth].at_ns == at_ns))
    }

    /// A thread passed the second mark; the instance that ended, if one did. `origin`: the thread that passed the first
    /// mark, and when, to which the wake-ups lead back.
    pub(super) fn end(&mut self, mut pass: Passed, origin: Option<(u32, u64)>) -> Option<Instance> {
        self.normalise(&mut pass);
        let is_its = |open: &Passed| open.value == pass.value && open.at_ns <= pass.at_ns;
        let others = self.open.iter().filter(|open| open.value.is_none() && is_its(open)).count();
        let newest = || self.open.iter().rposition(is_its).map(|nth| (nth, others <= 1));
        let by_origin = origin.and_then(|origin| self.by_origin(&pass, origin));
        let Some((nth, is_sure)) = by_origin.or_else(newest) else {
            self.record.ends_alone += 1;
            return None;
        };
        let begin = self.open.remove(nth)?;
        let is_uncertain = pass.value.is_none() && !is_sure;
        let is_joined = begin.value.is_some() || by_origin.is_some_and(|(_, is_sure)| is_sure);
        let mut instance = Instance { begin, end: pass, is_uncertain, is_late: false };
        let began_ns = instance.begin.at_ns;
        self.record.overtaken += u64::from(is_joined && began_ns < self.newest_ended_ns);
        self.newest_ended_ns = self.newest_ended_ns.max(began_ns);
        self.record.uncertain += u64::from(is_uncertain);
        self.count(&mut instance);
        Some(instance)
    }

    /// Some passes until then have no records. Without values, a later end could join a begin whose own end is missing.
    pub(super) fn gap(&mut self, until_ns: u64) {
        self.gap_ns = until_ns;
        if !self.has_values {
            self.record.dropped += self.open.len() as u64;
            self.open.clear();
            self.begins.clear();
        }
    }

    /// Whether a pass can be joined: it came after all passes that have no records, or has a value.
    pub(super) fn is_joined(&self, pass: &Passed) -> bool {
        self.has_values || pass.at_ns > self.gap_ns
    }

    fn normalise(&self, pass: &mut Passed) {
        if !self.has_values {
            pass.value = None;
        }
    }

    fn count(&mut self, instance: &mut Instance) {
        instance.is_late = self.deadline_ns.is_some_and(|deadline_ns| instance.latency_ns() > deadline_ns);
        self.latencies.record(instance.latency_ns());
        self.record.instances += 1;
        self.record.late += u64::from(instance.is_late);
    }

    /// Counts begins as dropped whose end does not come any more.
    pub(super) fn forget(&mut self, now_ns: u64) {
        let usual_ns = self.latencies.quantile(0.5).unwrap_or(0).saturating_mul(DROPPED_MEDIANS);
        let wait_ns = usual_ns.max(DROPPED_NS).max(self.deadline_ns.unwrap_or(0).saturating_mul(2));
        let before = self.open.len();
        let newest_ns = self.newest_ended_ns;
        self.open.retain(|open| {
            open.at_ns >= newest_ns || open.at_ns.saturating_add(wait_ns + SETTLED_NS) > now_ns
        });
        self.record.dropped += (before - self.open.len()) as u64;
    }

    /// The instances that had not ended when the watch did, at `until_ns`, and were already late. What a newer instance has
    /// overtaken, its program has left, or whose end may have no record, is dropped.
    pub(super) fn unended(&mut self, until_ns: u64, has_program_ended: bool) -> Vec<Instance> {
        let Some(deadline_ns) = self.deadline_ns else { return Vec::new() };
        let mut open = std::mem::take(&mut self.open);
        open.retain(|open| open.at_ns.saturating_add(deadline_ns) < until_ns);
        let (given_up, newest_ns) = (open.len(), self.newest_ended_ns.max(self.gap_ns));
        open.retain(|open| open.at_ns >= newest_ns && !has_program_ended);
        self.record.dropped += (given_up - open.len()) as u64;
        let ended = open.into_iter().map(|begin| {
            let end = Passed { at_ns: until_ns, ..begin.clone() };
            Instance { begin, end, ..Instance::default() }
        });
        let mut ended: Vec<Instance> = ended.collect();
        ended.iter_mut().for_each(|instance| self.count(instance));
        ended
    }

    /// What was counted since the last call.
    pub(super) fn take(&mut self) -> ChainRecord {
        let (name, deadline_ns) = (self.record.name.clone(), self.deadline_ns);
        std::mem::replace(&mut self.record, ChainRecord { name, deadline_ns, ..ChainRecord::default() })
    }
}

/// Puts passes of several rules in the order of time; a call that is both an end and a begin ends first.
pub(super) fn in_order(passes: &mut [Passed], is_end: &BTreeMap<u32, bool>) {
    passes.order_by_key(|pass| (pass.at_ns, !is_end.get(&pass.rule).copied().unwrap_or(false)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn pass(at_ms: u64, value: Option<i64>) -> Passed {
        Passed { at_ns: at_ms * MS, value, ..Passed::default() }
    }

    /// Begins (`true`) and ends with their values; the latencies of the ended ones in ms, and the record.
    fn joined(has_values: bool, all: &[(bool, u64, Option<i64>)]) -> (Vec<u64>, ChainRecord, Joiner) {
        let mut joiner = Joiner::new("frame", has_values, Some(20 * MS));
        let mut latencies = Vec::new();
        for (is_begin, at_ms, value) in all {
            match is_begin {
                true => joiner.begin(pass(*at_ms, *value)),
                false => {
                    latencies.extend(joiner.end(pass(*at_ms, *value), None).map(|it| it.latency_ns() / MS));
                }
            }
        }
        (latencies, joiner.record.clone(), joiner)
    }

    #[test]
    fn values_join_instances_that_overtake_each_other() {
        let all = [
            (true, 10, Some(1)),
            (true, 15, Some(2)),
            (false, 18, Some(2)),
            (true, 20, Some(3)),
            (false, 35, Some(1)),
            (false, 36, Some(3)),
            (false, 40, Some(9)),
        ];
        let (latencies, record, _) = joined(true, &all);
        assert_eq!(latencies, [3, 25, 16]);
        let counts = (record.instances, record.late, record.overtaken, record.ends_alone, record.uncertain);
        assert_eq!(counts, (3, 1, 1, 1, 0));
    }

    #[test]
    fn wake_ups_join_overlapping_instances_and_the_next_begin_of_a_busy_thread_is_taken() {
        let of = |thread, at_ms| Passed { thread, ..pass(at_ms, None) };
        let mut joiner = Joiner::new("frame", false, None);
        [of(1, 10), of(1, 20), of(1, 30)].into_iter().for_each(|begin| joiner.begin(begin));
        assert!(joiner.is_ambiguous(&pass(25, None)) && !joiner.is_ambiguous(&pass(15, None)));
        assert_eq!(joiner.begins(), [(1, vec![10 * MS, 20 * MS, 30 * MS])].into());
        let first = joiner.end(of(4, 40), Some((1, 10 * MS))).unwrap();
        assert_eq!((first.latency_ns(), first.is_uncertain), (30 * MS, false));
        let second = joiner.end(of(4, 41), Some((1, 10 * MS))).unwrap();
        assert_eq!((second.latency_ns(), second.is_uncertain), (21 * MS, true), "it was woken for the first");
        joiner.begin(of(1, 50));
        let last = joiner.end(of(4, 60), Some((9, 10 * MS))).unwrap();
        assert_eq!(
            (last.latency_ns(), last.is_uncertain),
            (10 * MS, true),
            "the newest: no other rule holds"
        );
        joiner.begin(of(1, 500));
        joiner.open.retain(|open| open.at_ns == 500 * MS);
        assert_eq!(joiner.begins(), [(1, vec![500 * MS])].into());
    }

    #[test]
    fn without_values_an_end_joins_the_newest_begin_and_overlaps_are_uncertain() {
        let all = [
            (true, 10, None),
            (false, 12, None),
            (true, 20, None),
            (true, 25, None),
            (false, 27, None),
            (false, 30, None),
        ];
        let (latencies, record, _) = joined(false, &all);
        assert_eq!((latencies, record.uncertain, record.overtaken), (vec![2, 2, 10], 1, 0));
        let (latencies, ..) = joined(false, &[(true, 10, Some(4)), (false, 12, Some(5))]);
        assert_eq!(latencies, [2], "only one side has values that join");
        let (latencies, record, _) = joined(false, &[(false, 5, None), (true, 10, None)]);
        assert_eq!((latencies.len(), record.ends_alone), (0, 1));
    }

    #[test]
    fn a_begin_whose_end_never_comes_is_dropped_but_not_too_early() {
        let all = [(true, 10, Some(1)), (true, 20, Some(2)), (false, 25, Some(2)), (true, 30, Some(3))];
        let (_, _, mut joiner) = joined(true, &all);
        joiner.forget(1_000 * MS);
        assert_eq!(joiner.record.dropped, 0);
        joiner.forget(1_200 * MS);
        assert_eq!(
            (joiner.record.dropped, joiner.open.len()),
            (1, 1),
            "no later instance than the third has ended"
        );
        joiner.begin(pass(1_300, Some(3)));
        assert_eq!((joiner.record.dropped, joiner.open.len()), (2, 1), "its value came again");
    }

    #[test]
    fn instances_that_have_not_ended_count_only_if_they_are_late() {
        let all = [(true, 10, Some(1)), (true, 25, Some(2))];
        let (_, _, mut joiner) = joined(true, &all);
        let unended = joiner.unended(40 * MS, false);
        assert_eq!(unended.iter().map(Instance::latency_ns).collect::<Vec<_>>(), [30 * MS]);
        assert_eq!((joiner.record.instances, joiner.record.late), (1, 1));
        let taken = joiner.take();
        assert!(joiner.record.is_empty() && taken.deadline_ns == joiner.record.deadline_ns);
        // The end of a newer one came, or the program ended.
        let (_, _, mut overtaken) = joined(true, &[all[0], all[1], (false, 26, Some(2))]);
        assert_eq!((overtaken.unended(40 * MS, false), overtaken.record.dropped), (Vec::new(), 1));
        let (_, _, mut left) = joined(true, &all);
        assert_eq!((left.unended(40 * MS, true), left.record.dropped), (Vec::new(), 1));
    }

    #[test]
    fn passes_without_records_make_no_long_instances() {
        let (_, _, mut joiner) = joined(false, &[(true, 10, None)]);
        joiner.gap(50 * MS);
        assert!(!joiner.is_joined(&pass(50, None)) && joiner.is_joined(&pass(51, None)));
        assert_eq!((joiner.end(pass(60, None), None), joiner.record.dropped), (None, 1));
        // With values, only instances that seem not to have ended are in doubt.
        let (_, _, mut with_values) = joined(true, &[(true, 10, Some(1)), (true, 12, Some(2))]);
        with_values.gap(20 * MS);
        assert!(with_values.is_joined(&pass(15, Some(2))));
        assert_eq!(with_values.end(pass(22, Some(2)), None).map(|it| it.latency_ns()), Some(10 * MS));
        assert_eq!((with_values.unended(200 * MS, false), with_values.record.dropped), (Vec::new(), 1));
    }

    #[test]
    fn begins_that_wait_are_bounded() {
        let mut joiner = Joiner::new("frame", true, None);
        (0..OPEN_MAX as i64 + 5).for_each(|nth| joiner.begin(pass(nth as u64, Some(nth))));
        assert_eq!((joiner.open.len(), joiner.record.dropped), (OPEN_MAX, 5));
    }

    #[test]
    fn passes_are_put_in_order_and_ends_come_first() {
        let mut passes =
            vec![Passed { rule: 1, ..pass(7, None) }, Passed { rule: 2, ..pass(7, None) }, pass(5, None)];
        in_order(&mut passes, &[(1, false), (2, true)].into());
        let rules: Vec<u32> = passes.iter().map(|it| it.rule).collect();
        assert_eq!(rules, [0, 2, 1]);
    }
}
