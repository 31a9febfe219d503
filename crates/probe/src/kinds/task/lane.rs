//! The results of one watched thread: histograms, the worst activations, who took its time.

use super::lanes::OTHERS;
use crate::measure::{Batch, LatencyTotals, TaskLine, TaskSpike, TaskTotals};
use std::collections::{BTreeMap, VecDeque};
use whylate_bpf::tasks::{Activation, Budget, Doing, Doubt, Thread, Wait, Waker, Watched};
use whylate_core::quantity::{
    DOUBT_MAX_NS, DOUBTS, LATER_PERIODS, LOST_NS, OVERRUNS, POSSIBLY_LATE, Quantities, STARTUP_NS, UNSEEN,
    UNSEEN_MAX_NS, UNSEEN_WAITS,
};
use whylate_core::record::{Interval, SourceRecord, TaskRecord};
use whylate_core::recording::OWN;
use whylate_core::result::{Cause, CauseKind, HourResult};
use whylate_core::{CpuId, Nanos};
use whylate_stats::{Histogram, Largest};

/// This many thieves of one thread are counted separately; later ones are counted by kind alone.
const THIEVES_MAX: usize = 256;
/// Every wake-up takes this long: shorter waits for a CPU are not counted as stolen.
const THEFT_MIN_NS: u64 = 10_000;
/// Fewer responses have no typical length.
const TYPICAL_LEAST: u64 = 5;
/// The columns of the strip of a thread.
const STRIP: usize = 10;
/// This many thieves of one thread have totals of their own.
const NAMED_MAX: usize = 32;
/// The parts of a response that have a histogram.
pub(super) const PARTS: [&str; 5] = ["wakeup", "run", "preempted", "blocked", "period"];

type Thief = (CauseKind, Option<String>, Option<String>);

/// What responses of a thread usually take; `None` if too few are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Typical {
    pub(super) response_ns: Option<u64>,
    /// With the longest possible waits before them, where the wake-up is not known.
    pub(super) possible_ns: Option<u64>,
}

/// The results of one thread; histograms since the last stored interval, and over the whole time.
pub(super) struct Lane {
    pub(super) name: String,
    pub(super) home: CpuId,
    pub(super) thread: u32,
    pub(super) response: (Histogram, Histogram),
    /// Responses with the longest possible wait before them, where the wake-up is not known.
    possible: Histogram,
    pub(super) wakeup_all: Histogram,
    pub(super) period_all: Histogram,
    pub(super) parts: [Histogram; PARTS.len()],
    pub(super) record: TaskRecord,
    /// In the interval, and over the whole time.
    pub(super) missed: (u64, u64),
    /// Periods that began before the response to an earlier one had ended, in the interval.
    later_periods: u64,
    /// How long the thread's start took, in the interval.
    pub(super) startup_ns: u64,
    pub(super) lost_ns: u64,
    /// Sleeps that may have been in the middle of its work: over the whole time, and in the interval.
    pub(super) doubts: Doubt,
    doubts_now: (u64, u64),
    /// Gaps in what was seen of the thread, and the longest.
    unseen_now: (u64, u64),
    /// Possible waits before responses, and the responses that are late only with these waits, in the interval.
    waits_now: (u64, u64),
    pub(super) thieves: BTreeMap<Thief, SourceRecord>,
    pub(super) worst: [Largest<(u64, u64)>; 2],
    /// The same of responses of the present hour.
    hour: (u64, Largest<(u64, u64)>),
    kept_of_hour: usize,
    /// The one that was explained last, and the worst one: one that whylate itself made long gives way to any other.
    spikes: [Option<TaskSpike>; 2],
    by_whylate_ns: Option<u64>,
    /// Time and number since the start.
    totals: BTreeMap<(CauseKind, Option<String>), (u64, u64)>,
    pub(super) before_due_ns: Option<u64>,
    pub(super) last_due_ns: u64,
    /// Whether it slept for a time as an ordinary thread, whose timers the kernel may let expire later.
    pub(super) has_timer_slack: bool,
    pub(super) strip: VecDeque<u64>,
    /// Whether some of its results were already handed on under its name.
    pub(super) is_stored: bool,
}

impl Lane {
    pub(super) fn new(name: String, home: CpuId, thread: u32, worst: usize) -> Self {
        Self {
            name,
            home,
            thread,
            response: Default::default(),
            possible: Histogram::new(),
            wakeup_all: Histogram::new(),
            period_all: Histogram::new(),
            parts: Default::default(),
            record: TaskRecord::default(),
            missed: (0, 0),
            later_periods: 0,
            startup_ns: 0,
            lost_ns: 0,
            doubts: Doubt::default(),
            doubts_now: (0, 0),
            unseen_now: (0, 0),
            waits_now: (0, 0),
            thieves: BTreeMap::new(),
            worst: [Largest::new(worst), Largest::new(worst)],
            hour: (0, Largest::new(worst.min(HourResult::KEPT))),
            kept_of_hour: worst.min(HourResult::KEPT),
            spikes: [None, None],
            by_whylate_ns: None,
            totals: BTreeMap::new(),
            before_due_ns: None,
            last_due_ns: 0,
            has_timer_slack: false,
            strip: VecDeque::from([0]),
            is_stored: false,
        }
    }

    /// Whether it takes threads of that name; the lane of all others takes every name.
    pub(super) fn is_of(&self, command: &str) -> bool {
        self.name == OTHERS || self.name.split('#').next() == Some(command)
    }

    /// The medians of its responses, without and with the waits that are possible before them.
    pub(super) fn typical(&self) -> Typical {
        let median = |all: &Histogram| all.quantile(0.5).filter(|_| all.count() >= TYPICAL_LEAST);
        Typical { response_ns: median(&self.response.1), possible_ns: median(&self.possible) }
    }

    pub(super) fn take_over(&mut self, thread: u32) {
        self.thread = thread;
        self.before_due_ns = None;
    }

    /// Whether a response is among the worst so far, or among those of its hour.
    pub(super) fn is_worst(&mut self, response: (u64, u64), hour: u64) -> bool {
        if self.hour.0 != hour {
            self.hour = (hour, Largest::new(self.kept_of_hour));
        }
        let is_of_hour = self.hour.1.offer(response);
        self.worst[0].offer(response) || is_of_hour
    }

    /// Shows an explained response.
    pub(super) fn show(&mut self, spike: TaskSpike) {
        if is_by_whylate(&spike) {
            self.by_whylate_ns = self.by_whylate_ns.max(Some(spike.latency_ns));
        }
        let rank = |spike: &TaskSpike| (!is_by_whylate(spike), spike.latency_ns);
        if self.spikes[1].as_ref().is_none_or(|worst| rank(worst) < rank(&spike)) {
            self.spikes[1] = Some(spike.clone());
        }
        self.spikes[0] = Some(spike);
    }

    pub(super) fn doubt(&mut self, doubt: Doubt) {
        self.doubts_now = (self.doubts_now.0 + doubt.sleeps, self.doubts_now.1.max(doubt.longest_ns));
        self.doubts.sleeps += doubt.sleeps;
        self.doubts.longest_ns = self.doubts.longest_ns.max(doubt.longest_ns);
        self.doubts.calls.extend(doubt.calls);
    }

    /// The longest response of the watch; 0 without any.
    pub(super) fn longest_ns(&self) -> u64 {
        self.response.1.max().unwrap_or(0)
    }

    /// An activation of up to that length may not have been seen whole.
    pub(super) fn not_seen(&mut self, longest_ns: u64) {
        self.unseen_now = (self.unseen_now.0 + 1, self.unseen_now.1.max(longest_ns));
    }

    /// The same at the end of its thread, which may have no other activation.
    pub(super) fn cut(&mut self, thread: u32, took_ns: u64, known: Option<&Watched>) {
        self.not_seen(took_ns);
        if let Some(known) = known.filter(|_| self.record.command.is_empty()) {
            self.record.add(TaskRecord {
                cpu: self.home,
                thread,
                process: known.process,
                command: known.command.clone(),
                priority: known.priority,
                ..TaskRecord::default()
            });
        }
    }

    /// Counts an instance of a chain.
    pub(super) fn count_instance(&mut self, latency_ns: u64, is_late: bool) {
        self.response.0.record(latency_ns);
        self.response.1.record(latency_ns);
        self.missed.0 += u64::from(is_late);
        self.missed.1 += u64::from(is_late);
        if let Some(last) = self.strip.back_mut() {
            *last = (*last).max(latency_ns);
        }
    }

    pub(super) fn count(&mut self, activation: &Activation, deadline: Option<Nanos>) {
        let is_late = |response_ns: u64| deadline.is_some_and(|deadline| response_ns > deadline.0);
        let response_ns = activation.response_ns();
        // An activation that begins when the thread runs (at a mark, or without the kernel's programs) has no known wake-up.
        let wakeup_ns = activation.is_wakeup_seen().then(|| activation.wakeup_ns());
        self.last_due_ns = activation.due_ns;
        if let Some((from_ns, to_ns)) = activation.gap {
            self.not_seen(to_ns.saturating_sub(from_ns));
        }
        if let Some(wait_max_ns) = activation.wait_max_ns {
            let possible_ns = response_ns.saturating_add(wait_max_ns);
            self.not_seen(possible_ns);
            self.possible.record(possible_ns);
            self.waits_now.0 += 1;
            self.waits_now.1 += u64::from(is_late(possible_ns) && !is_late(response_ns));
        }
        let period_ns = self
            .before_due_ns
            .replace(activation.due_ns)
            .filter(|before| activation.gap.is_none() && *before <= activation.due_ns)
            .map(|before| activation.due_ns.saturating_sub(before));
        let (run_ns, preempted_ns, blocked_ns) =
            (activation.running_ns(), activation.preempted_ns(), activation.blocked_ns());
        self.response.0.record(response_ns);
        self.response.1.record(response_ns);
        wakeup_ns.into_iter().for_each(|wakeup_ns| self.wakeup_all.record(wakeup_ns));
        let blocked_part = (!activation.is_partial).then_some(blocked_ns);
        let parts = [wakeup_ns, Some(run_ns), Some(preempted_ns), blocked_part, period_ns];
        for (histogram, value) in self.parts.iter_mut().zip(parts) {
            value.into_iter().for_each(|value| histogram.record(value));
        }
        period_ns.into_iter().for_each(|period_ns| self.period_all.record(period_ns));
        self.missed.0 += u64::from(is_late(response_ns));
        self.missed.1 += u64::from(is_late(response_ns));
        self.later_periods += activation.later_periods;
        self.lost_ns += response_ns.saturating_sub(run_ns);
        if let Some(last) = self.strip.back_mut() {
            *last = (*last).max(response_ns);
        }
        let is_sleep = matches!(&activation.slept, Wait::Work(Some(call)) if call.ends_with("nanosleep"));
        self.has_timer_slack |=
            is_sleep && activation.waker == Waker::Timer && activation.thread.priority <= 0;
        let sleeps_in = match &activation.slept {
            Wait::Unknown | Wait::Work(None) => None,
            wait => Some(wait.describe().to_owned()),
        };
        let woken_by = match &activation.waker {
            Waker::Unknown => None,
            Waker::Timer => Some("timer".to_owned()),
            Waker::Interrupt => Some("an interrupt".to_owned()),
            Waker::Thread(_, command) => Some(command.clone()),
        };
        let counts = activation.counts;
        self.record.add(TaskRecord {
            cpu: self.home,
            series: None,
            thread: activation.thread.pid,
            process: activation.process,
            command: activation.thread.command.clone(),
            priority: activation.thread.priority,
            run_ns,
            preempted_ns,
            blocked_ns,
            quota_ns: activation.quota_ns(),
            migrations: activation.migrations,
            faults: activation.faults,
            counted: counts.instructions.map(|_| 1),
            instructions: counts.instructions,
            cycles: counts.instructions.and(counts.cycles),
            cache_misses: counts.instructions.and(counts.cache_misses),
            sleeps_in,
            woken_by,
        });
    }

    /// Counts who had the CPU, or what the task waited for, in an activation that is not explained. If several threads had
    /// the CPU in one wait, the thread that the record names gets all of it.
    pub(super) fn count_thieves(&mut self, activation: &Activation) {
        for stage in activation.stages.iter().filter(|stage| stage.length_ns() > 0) {
            let took_ns = stage.length_ns();
            match &stage.what {
                Doing::Running | Doing::Unseen => {}
                Doing::Preempted { budget: Budget::Quota, .. }
                | Doing::Waking { budget: Budget::Quota, .. } => {
                    self.steal((CauseKind::Quota, None, None), took_ns);
                }
                Doing::Preempted { budget, .. } | Doing::Waking { budget, .. }
                    if budget.throttler().is_some() =>
                {
                    self.steal((CauseKind::Throttled, budget.throttler().map(str::to_owned), None), took_ns);
                }
                Doing::Preempted { by: other, .. } | Doing::Waking { previous: other, .. }
                    if other.pid == 0 || took_ns < THEFT_MIN_NS => {}
                Doing::Preempted { by: other, .. } if has_lower_priority(other, &activation.thread) => {
                    self.steal((CauseKind::Throttled, None, None), took_ns);
                }
                // An interrupt and the switch take the CPU from a lower-priority thread: the wake-up itself takes that time.
                Doing::Waking { previous: other, .. } if has_lower_priority(other, &activation.thread) => {}
                Doing::Preempted { by: other, .. } | Doing::Waking { previous: other, .. } => {
                    self.steal((CauseKind::Thread, Some(other.command.clone()), None), took_ns);
                }
                Doing::Blocked { wait, waker } => {
                    let released_by = match waker {
                        Waker::Thread(_, command) => Some(command.clone()),
                        _ => None,
                    };
                    match wait {
                        Wait::Lock { owner, .. } => {
                            let holder = owner.clone().map(|(_, command)| command).or(released_by);
                            self.steal((CauseKind::Lock, holder, None), took_ns);
                        }
                        Wait::Page => self.steal((CauseKind::PageFault, released_by, None), took_ns),
                        Wait::Kernel(call) => {
                            self.steal((CauseKind::Wait, released_by, call.clone()), took_ns);
                        }
                        // Between marks, a sleep to wait for work is in the middle of the work.
                        Wait::Inside { call, .. } => {
                            self.steal((CauseKind::Wait, released_by, Some(call.clone())), took_ns);
                        }
                        Wait::Work(call) => self.steal((CauseKind::Wait, released_by, call.clone()), took_ns),
                        Wait::Unknown => {}
                    }
                }
            }
        }
    }

    /// The same for an explained activation: each cause gets the time that it took.
    pub(super) fn count_causes(&mut self, activation: &Activation, causes: &[Cause]) {
        let is_known = |cause: &&Cause| !matches!(cause.kind, CauseKind::OwnWork | CauseKind::Unattributed);
        for cause in causes.iter().filter(is_known) {
            let took_ns = (cause.share.unwrap_or(0.0) * activation.response_ns() as f64) as u64;
            let is_interrupt =
                matches!(cause.kind, CauseKind::Irq | CauseKind::Softirq | CauseKind::Nmi | CauseKind::Ipi);
            if is_interrupt {
                self.lost_ns += took_ns;
            }
            if is_interrupt || took_ns >= THEFT_MIN_NS {
                self.steal((cause.kind, cause.actor.clone(), cause.function.clone()), took_ns);
            }
        }
    }

    fn steal(&mut self, thief: Thief, took_ns: u64) {
        let named = (thief.0, thief.1.clone());
        let is_named = self.totals.len() < NAMED_MAX || self.totals.contains_key(&named);
        let total = self.totals.entry(if is_named { named } else { (thief.0, None) }).or_default();
        *total = (total.0 + took_ns, total.1 + 1);
        let is_separate = self.thieves.len() < THIEVES_MAX || self.thieves.contains_key(&thief);
        let thief = if is_separate { thief } else { (thief.0, None, None) };
        let record = self.thieves.entry(thief).or_default();
        record.gaps += 1;
        record.total_ns += took_ns;
        record.max_ns = record.max_ns.max(took_ns);
    }

    pub(super) fn line(&mut self) -> TaskLine {
        let line = TaskLine {
            name: self.name.clone(),
            thread: self.thread,
            priority: self.record.priority,
            response: self.response.1.quantiles(),
            wakeup: self.wakeup_all.quantiles(),
            activations: self.response.1.count(),
            missed: self.missed.1,
            period_ns: self.period_all.quantile(0.5),
            strip: self.strip.iter().copied().collect(),
            worst: self.spikes[1].as_ref().map(|spike| (spike.latency_ns, spike.causes.clone())),
            by_whylate_ns: self
                .by_whylate_ns
                .filter(|_| self.spikes[1].as_ref().is_some_and(|worst| !is_by_whylate(worst))),
            last_spike: self.spikes[0].clone(),
            worst_spike: self.spikes[1].clone(),
            totals: TaskTotals {
                latencies: [&self.response.1, &self.wakeup_all].map(totals),
                thieves: self
                    .totals
                    .iter()
                    .map(|((kind, actor), (took_ns, number))| (*kind, actor.clone(), *took_ns, *number))
                    .collect(),
            },
        };
        self.strip.push_back(0);
        if self.strip.len() > STRIP {
            self.strip.pop_front();
        }
        line
    }

    fn interval(&self, batch: &Batch, series: String, histogram: &Histogram) -> Interval {
        Interval {
            cpu: self.home,
            start_ns: batch.start_ns,
            end_ns: batch.end_ns,
            series: Some(series),
            samples: histogram.count(),
            sum_ns: u64::try_from(histogram.sum()).unwrap_or(u64::MAX),
            min_ns: histogram.min(),
            max_ns: histogram.max(),
            histogram: histogram.buckets().collect(),
            ..Interval::default()
        }
    }

    /// The latencies of a chain have no parts that each of them has.
    pub(super) fn take_chain(&mut self, batch: &mut Batch) {
        let response = std::mem::take(&mut self.response.0);
        let quantities = Quantities::default().with(OVERRUNS, std::mem::take(&mut self.missed.0));
        let interval = self.interval(batch, self.name.clone(), &response);
        batch.intervals.push(Interval { quantities, ..interval });
    }

    pub(super) fn take(&mut self, batch: &mut Batch) {
        self.is_stored = true;
        let cpu = self.home;
        let response = std::mem::take(&mut self.response.0);
        let response = self.interval(batch, self.name.clone(), &response);
        let (missed, lost_ns) = (std::mem::take(&mut self.missed.0), std::mem::take(&mut self.lost_ns));
        let later_periods = std::mem::take(&mut self.later_periods);
        let startup_ns = std::mem::take(&mut self.startup_ns);
        let (doubts, doubt_max_ns) = std::mem::take(&mut self.doubts_now);
        let (unseen, unseen_max_ns) = std::mem::take(&mut self.unseen_now);
        let (waits, possibly_late) = std::mem::take(&mut self.waits_now);
        let quantities = Quantities::default()
            .with(OVERRUNS, missed)
            .with(LATER_PERIODS, (later_periods > 0).then_some(later_periods))
            .with(LOST_NS, lost_ns)
            .with(STARTUP_NS, (startup_ns > 0).then_some(startup_ns))
            .with(DOUBTS, (doubts > 0).then_some(doubts))
            .with(DOUBT_MAX_NS, (doubts > 0).then_some(doubt_max_ns))
            .with(UNSEEN, (unseen > 0).then_some(unseen))
            .with(UNSEEN_MAX_NS, (unseen > 0).then_some(unseen_max_ns))
            .with(UNSEEN_WAITS, (waits > 0).then_some(waits))
            .with(POSSIBLY_LATE, (possibly_late > 0).then_some(possibly_late));
        batch.intervals.push(Interval { quantities, ..response });
        for (part, histogram) in PARTS.iter().zip(std::mem::take(&mut self.parts)) {
            batch.intervals.push(self.interval(batch, format!("{}/{part}", self.name), &histogram));
        }
        let fresh = TaskRecord { series: None, ..TaskRecord::default() };
        let record = std::mem::replace(&mut self.record, fresh);
        if !record.command.is_empty() {
            // The identity stays, for intervals without an activation.
            self.record.priority = record.priority;
            batch.tasks.push(TaskRecord { series: Some(self.name.clone()), ..record });
        }
        let named = |((kind, actor, function), record)| {
            (Some(self.name.clone()), SourceRecord { cpu, kind, actor, function, ..record })
        };
        batch.sources.extend(std::mem::take(&mut self.thieves).into_iter().map(named));
    }
}

/// Whether that thread has a lower priority than the task. Ordinary threads are equal.
fn has_lower_priority(other: &Thread, task: &Thread) -> bool {
    task.priority > 0 && other.priority < task.priority
}

/// Whether this program took more of the time than anything else.
fn is_by_whylate(spike: &TaskSpike) -> bool {
    spike.causes.first().is_some_and(|cause| cause.actor.as_deref() == Some(OWN))
}

/// A histogram with upper edges from 1 us to 5 s.
fn totals(histogram: &Histogram) -> LatencyTotals {
    let edges = (3..10).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)));
    let mut buckets: Vec<(u64, u64)> = edges.map(|edge_ns| (edge_ns, 0)).collect();
    for (lower_ns, count) in histogram.buckets() {
        if let Some((_, sum)) = buckets.iter_mut().find(|(edge_ns, _)| lower_ns <= *edge_ns) {
            *sum += count;
        }
    }
    let mut so_far = 0;
    for (_, count) in &mut buckets {
        so_far += *count;
        *count = so_far;
    }
    let sum_ns = u64::try_from(histogram.sum()).unwrap_or(u64::MAX);
    LatencyTotals { buckets, count: histogram.count(), sum_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buckets_of_monitors_are_cumulative_and_count_every_sample() {
        let mut histogram = Histogram::new();
        [900, 1_500, 1_500, 40_000, 9_000_000_000].into_iter().for_each(|ns| histogram.record(ns));
        let totals = totals(&histogram);
        let at = |edge_ns| totals.buckets.iter().find(|(edge, _)| *edge == edge_ns).unwrap().1;
        assert_eq!((at(1_000), at(2_000), at(20_000), at(50_000), at(5_000_000_000)), (1, 3, 3, 4, 4));
        assert_eq!((totals.count, totals.sum_ns), (5, 9_000_043_900));
    }

    #[test]
    fn what_whylate_made_long_gives_way_to_work_of_the_thread() {
        let mut lane = Lane::new("audio".to_owned(), CpuId(0), 7, 5);
        let spike = |latency_ns, kind, actor: Option<&str>| TaskSpike {
            latency_ns,
            causes: vec![Cause { actor: actor.map(str::to_owned), ..Cause::new(kind) }],
            ..TaskSpike::default()
        };
        let worst = |lane: &mut Lane| (lane.line().worst.map(|it| it.0), lane.line().by_whylate_ns);
        lane.show(spike(9_000, CauseKind::Thread, Some(OWN)));
        assert_eq!(worst(&mut lane), (Some(9_000), None));
        lane.show(spike(5_000, CauseKind::OwnWork, None));
        lane.show(spike(8_000, CauseKind::Thread, Some(OWN)));
        lane.show(spike(4_000, CauseKind::OwnWork, None));
        assert_eq!(worst(&mut lane), (Some(5_000), Some(9_000)));
        assert_eq!(lane.line().last_spike.map(|it| it.latency_ns), Some(4_000));
        lane.show(spike(10_000, CauseKind::Thread, Some("thief")));
        assert_eq!(worst(&mut lane), (Some(10_000), Some(9_000)));
    }

    #[test]
    fn very_many_thieves_have_one_total_besides_those_that_are_named() {
        let mut lane = Lane::new("audio".to_owned(), CpuId(0), 7, 5);
        (0..100).for_each(|nth| lane.steal((CauseKind::Thread, Some(format!("t{nth}")), None), 10));
        let line = lane.line();
        assert_eq!(line.totals.thieves.len(), NAMED_MAX + 1);
        assert_eq!(line.totals.thieves.iter().map(|it| it.2).sum::<u64>(), 1_000);
    }
}
