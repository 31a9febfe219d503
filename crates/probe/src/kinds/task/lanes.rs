//! What each watched thread has brought: histograms, the worst activations, who took its time.

use crate::measure::{Batch, TaskLine};
use std::collections::{BTreeMap, VecDeque};
use whylate_bpf::tasks::{Activation, Doing, Wait, Waker, Watched};
use whylate_core::record::{Interval, SourceRecord, SpikeCauses, SpikeRecord, TaskRecord};
use whylate_core::result::{Cause, CauseKind};
use whylate_core::{CpuId, Nanos};
use whylate_stats::{Histogram, Largest};

/// So many threads have a series of their own; what the others did is in one series.
const SERIES_MAX: usize = 64;
/// The series of all others.
const OTHERS: &str = "others";
/// So many thieves of one thread are told apart: those that come later are counted by their kind alone.
const THIEVES_MAX: usize = 256;
/// Waits for a CPU below this are what every wake-up takes: nobody is said to have stolen them.
const THEFT_MIN_NS: u64 = 10_000;
/// The columns of the strip of a thread.
const STRIP: usize = 30;
/// The parts of a response that have a histogram.
const PARTS: [&str; 5] = ["wakeup", "run", "preempted", "blocked", "period"];

/// Kind, actor, function.
type Thief = (CauseKind, Option<String>, Option<String>);

/// The two latencies of an activation whose worst are explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// From being due to the next sleep.
    Response,
    /// From being due to running.
    Wakeup,
}

/// What one thread brought; histograms since the last stored interval, and over all of the time.
struct Lane {
    name: String,
    home: CpuId,
    thread: u32,
    response: (Histogram, Histogram),
    wakeup_all: Histogram,
    period_all: Histogram,
    parts: [Histogram; PARTS.len()],
    record: TaskRecord,
    /// In the interval, and over all of the time.
    missed: (u64, u64),
    lost_ns: u64,
    thieves: BTreeMap<Thief, SourceRecord>,
    worst: [Largest<(u64, u64)>; 2],
    worst_causes: Option<(u64, Vec<Cause>)>,
    before_due_ns: Option<u64>,
    strip: VecDeque<u64>,
}

/// All threads.
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    /// The lane of a thread.
    of_thread: BTreeMap<u32, usize>,
    deadline: Option<Nanos>,
    worst: usize,
    spikes: Vec<SpikeRecord>,
    causes: Vec<SpikeCauses>,
    activations: u64,
}

impl Lanes {
    pub(super) fn new(deadline: Option<Nanos>, worst: usize) -> Self {
        Self {
            lanes: Vec::new(),
            of_thread: BTreeMap::new(),
            deadline,
            worst,
            spikes: Vec::new(),
            causes: Vec::new(),
            activations: 0,
        }
    }

    /// Counts an activation; which of its latencies shall be explained.
    pub(super) fn add(&mut self, activation: &Activation, threads: &BTreeMap<u32, Watched>) -> Vec<Of> {
        let (deadline, number) = (self.deadline, self.activations);
        self.activations += 1;
        let lane = self.lane(activation, threads);
        let (response_ns, wakeup_ns) = (activation.response_ns(), activation.wakeup_ns());
        let is_missed = deadline.is_some_and(|deadline| response_ns > deadline.0);
        lane.count(activation, is_missed);
        let mut wanted = Vec::new();
        if lane.worst[0].offer((response_ns, number)) || is_missed {
            wanted.push(Of::Response);
        }
        if wakeup_ns > 0 && lane.worst[1].offer((wakeup_ns, number)) {
            wanted.push(Of::Wakeup);
        }
        wanted
    }

    /// The number of the activation that was added last.
    pub(super) fn last_number(&self) -> u64 {
        self.activations.saturating_sub(1)
    }

    /// Keeps one of the worst activations, or of its beginnings, with its causes.
    pub(super) fn explain(
        &mut self,
        of: Of,
        number: u64,
        activation: &Activation,
        causes: Vec<Cause>,
        lost: u64,
    ) {
        let Some(lane) = self.of_thread.get(&activation.thread.pid).and_then(|nth| self.lanes.get_mut(*nth))
        else {
            return;
        };
        let (at_ns, latency_ns) = (activation.end_ns(), activation.response_ns());
        let series = match of {
            Of::Response => lane.name.clone(),
            Of::Wakeup => format!("{}/{}", lane.name, PARTS[0]),
        };
        if of == Of::Response {
            lane.count_interrupts(activation, &causes);
            if lane.worst_causes.as_ref().is_none_or(|(worst_ns, _)| *worst_ns < latency_ns) {
                lane.worst_causes = Some((latency_ns, causes.clone()));
            }
        }
        let (cpu, series) = (lane.home, Some(series));
        self.spikes.push(SpikeRecord { cpu, series: series.clone(), at_ns, latency_ns, sample: number });
        self.causes.push(SpikeCauses { cpu, series, at_ns, latency_ns, causes, lost });
    }

    /// The lane of the thread of an activation.
    fn lane(&mut self, activation: &Activation, threads: &BTreeMap<u32, Watched>) -> &mut Lane {
        let thread = activation.thread.pid;
        let nth = match self.of_thread.get(&thread) {
            Some(nth) => *nth,
            None => {
                let nth = self.new_lane(activation, threads);
                self.of_thread.insert(thread, nth);
                nth
            }
        };
        &mut self.lanes[nth]
    }

    /// A thread that begins anew after an end is the same to the user: it has the lane of one of its name that is gone.
    fn new_lane(&mut self, activation: &Activation, threads: &BTreeMap<u32, Watched>) -> usize {
        let command = plain(&activation.thread.command);
        let is_gone = |lane: &Lane| threads.get(&lane.thread).is_none_or(|thread| thread.is_gone);
        let of_name = |lane: &Lane| lane.name.split('#').next() == Some(command.as_str());
        if let Some(nth) = self.lanes.iter().position(|lane| of_name(lane) && is_gone(lane)) {
            self.lanes[nth].take_over(activation.thread.pid);
            return nth;
        }
        if let Some(nth) = self.lanes.iter().position(|lane| lane.name == OTHERS) {
            return nth;
        }
        let same = self.lanes.iter().filter(|lane| of_name(lane)).count();
        let name = match same {
            _ if self.lanes.len() + 1 >= SERIES_MAX => OTHERS.to_owned(),
            0 => command,
            more => format!("{command}#{}", more + 1),
        };
        let home = activation.stages.last().map_or(CpuId(0), |stage| stage.cpu);
        self.lanes.push(Lane::new(name, home, activation.thread.pid, self.worst));
        self.lanes.len() - 1
    }

    /// The largest of the worst wake-up latencies that are still kept of any thread: below it no stack is needed.
    pub(super) fn least_worst_wakeup_ns(&self) -> Option<u64> {
        self.lanes.iter().map(|lane| lane.worst[1].least().map(|(latency_ns, _)| *latency_ns)).min().flatten()
    }

    /// How the threads do so far.
    pub(super) fn lines(&mut self) -> Vec<TaskLine> {
        self.lanes.iter_mut().map(Lane::line).collect()
    }

    /// What came since the last call.
    pub(super) fn take(&mut self, start_ns: u64, end_ns: u64) -> Batch {
        let mut batch = Batch { start_ns, end_ns, ..Batch::default() };
        for lane in &mut self.lanes {
            lane.take(&mut batch);
        }
        batch.spikes = std::mem::take(&mut self.spikes);
        batch.causes = std::mem::take(&mut self.causes);
        batch
    }
}

/// A name without the sign that parts series from their parts.
fn plain(command: &str) -> String {
    let name: String =
        command.chars().map(|letter| if matches!(letter, '/' | '#') { ':' } else { letter }).collect();
    if name.is_empty() { "?".to_owned() } else { name }
}

impl Lane {
    fn new(name: String, home: CpuId, thread: u32, worst: usize) -> Self {
        Self {
            name,
            home,
            thread,
            response: Default::default(),
            wakeup_all: Histogram::new(),
            period_all: Histogram::new(),
            parts: Default::default(),
            record: TaskRecord::default(),
            missed: (0, 0),
            lost_ns: 0,
            thieves: BTreeMap::new(),
            worst: [Largest::new(worst), Largest::new(worst)],
            worst_causes: None,
            before_due_ns: None,
            strip: VecDeque::from([0]),
        }
    }

    fn take_over(&mut self, thread: u32) {
        self.thread = thread;
        self.before_due_ns = None;
    }

    fn count(&mut self, activation: &Activation, is_missed: bool) {
        let (response_ns, wakeup_ns) = (activation.response_ns(), activation.wakeup_ns());
        let period_ns = self
            .before_due_ns
            .replace(activation.due_ns)
            .map(|before| activation.due_ns.saturating_sub(before));
        let (run_ns, preempted_ns, blocked_ns) =
            (activation.running_ns(), activation.preempted_ns(), activation.blocked_ns());
        self.response.0.record(response_ns);
        self.response.1.record(response_ns);
        self.wakeup_all.record(wakeup_ns);
        let parts = [Some(wakeup_ns), Some(run_ns), Some(preempted_ns), Some(blocked_ns), period_ns];
        for (histogram, value) in self.parts.iter_mut().zip(parts) {
            value.into_iter().for_each(|value| histogram.record(value));
        }
        period_ns.into_iter().for_each(|period_ns| self.period_all.record(period_ns));
        self.missed.0 += u64::from(is_missed);
        self.missed.1 += u64::from(is_missed);
        self.lost_ns += response_ns.saturating_sub(run_ns);
        if let Some(last) = self.strip.back_mut() {
            *last = (*last).max(response_ns);
        }
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
        self.record.add(TaskRecord {
            cpu: self.home,
            series: Some(self.name.clone()),
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
            sleeps_in,
            woken_by,
        });
        self.count_thieves(activation);
    }

    /// Who had the CPU, or what the task waited for, while it had something to do.
    fn count_thieves(&mut self, activation: &Activation) {
        for stage in activation.stages.iter().filter(|stage| stage.length_ns() > 0) {
            let took_ns = stage.length_ns();
            match &stage.what {
                Doing::Running => {}
                Doing::Preempted { out_of_quota: true, .. } | Doing::Waking { out_of_quota: true, .. } => {
                    self.steal((CauseKind::Quota, None, None), took_ns);
                }
                Doing::Preempted { by: other, .. } | Doing::Waking { previous: other, .. } => {
                    if other.pid != 0 && took_ns >= THEFT_MIN_NS {
                        self.steal((CauseKind::Thread, Some(other.command.clone()), None), took_ns);
                    }
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
                        Wait::Page => self.steal((CauseKind::PageFault, None, None), took_ns),
                        Wait::Kernel(call) => self.steal((CauseKind::Wait, None, call.clone()), took_ns),
                        Wait::Work(_) | Wait::Unknown => {}
                    }
                }
            }
        }
    }

    /// Interrupts are known of the activations that are explained.
    fn count_interrupts(&mut self, activation: &Activation, causes: &[Cause]) {
        let is_interrupt = |kind: CauseKind| {
            matches!(kind, CauseKind::Irq | CauseKind::Softirq | CauseKind::Nmi | CauseKind::Ipi)
        };
        for cause in causes.iter().filter(|cause| is_interrupt(cause.kind)) {
            let took_ns = (cause.share.unwrap_or(0.0) * activation.response_ns() as f64) as u64;
            self.lost_ns += took_ns;
            self.steal((cause.kind, cause.actor.clone(), cause.function.clone()), took_ns);
        }
    }

    fn steal(&mut self, thief: Thief, took_ns: u64) {
        let is_told = self.thieves.len() < THIEVES_MAX || self.thieves.contains_key(&thief);
        let thief = if is_told { thief } else { (thief.0, None, None) };
        let record = self.thieves.entry(thief).or_default();
        record.gaps += 1;
        record.total_ns += took_ns;
        record.max_ns = record.max_ns.max(took_ns);
    }

    fn line(&mut self) -> TaskLine {
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
            worst: self.worst_causes.clone(),
        };
        self.strip.push_back(0);
        if self.strip.len() > STRIP {
            self.strip.pop_front();
        }
        line
    }

    fn take(&mut self, batch: &mut Batch) {
        let (start_ns, end_ns, cpu) = (batch.start_ns, batch.end_ns, self.home);
        let interval = |series: String, histogram: Histogram| Interval {
            cpu,
            start_ns,
            end_ns,
            series: Some(series),
            samples: histogram.count(),
            sum_ns: u64::try_from(histogram.sum()).unwrap_or(u64::MAX),
            min_ns: histogram.min(),
            max_ns: histogram.max(),
            histogram: histogram.buckets().collect(),
            ..Interval::default()
        };
        let response = interval(self.name.clone(), std::mem::take(&mut self.response.0));
        let (missed, lost_ns) = (std::mem::take(&mut self.missed.0), std::mem::take(&mut self.lost_ns));
        batch.intervals.push(Interval { overruns: Some(missed), lost_ns: Some(lost_ns), ..response });
        for (part, histogram) in PARTS.iter().zip(&mut self.parts) {
            batch.intervals.push(interval(format!("{}/{part}", self.name), std::mem::take(histogram)));
        }
        let fresh = TaskRecord { series: None, ..TaskRecord::default() };
        let record = std::mem::replace(&mut self.record, fresh);
        if !record.command.is_empty() {
            // Who it is stays, for intervals without an activation.
            self.record.priority = record.priority;
            batch.tasks.push(record);
        }
        let named = |((kind, actor, function), record)| {
            (self.name.clone(), SourceRecord { cpu, kind, actor, function, ..record })
        };
        batch.sources.extend(std::mem::take(&mut self.thieves).into_iter().map(named));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_bpf::tasks::Stage;
    use whylate_stats::buckets::lower_edge;

    fn activation(pid: u32, command: &str, due_ns: u64, lengths: &[(u64, Doing)]) -> Activation {
        let mut at_ns = due_ns;
        let mut found = Activation { due_ns, woken_ns: due_ns, process: 7, ..Activation::default() };
        (found.thread.pid, found.thread.command) = (pid, command.to_owned());
        for (length_ns, what) in lengths {
            let (from_ns, to_ns) = (at_ns, at_ns + length_ns);
            found.stages.push(Stage { from_ns, to_ns, cpu: CpuId(1), what: what.clone() });
            at_ns = to_ns;
        }
        found
    }

    fn waking() -> Doing {
        Doing::Waking { previous: Default::default(), out_of_quota: false }
    }

    fn preempted(command: &str) -> Doing {
        let mut by = Activation::default().thread;
        (by.pid, by.command) = (9, command.to_owned());
        Doing::Preempted { by, out_of_quota: false }
    }

    #[test]
    fn an_interval_holds_what_came_since_the_last_one() {
        let mut lanes = Lanes::new(Some(Nanos(50_000)), 2);
        let none = BTreeMap::new();
        for number in 0..4 {
            let stages =
                [(5_000, waking()), (20_000 + 10_000 * number, Doing::Running), (15_000, preempted("thief"))];
            let wanted = lanes.add(&activation(5, "a/b", 1_000_000 * number, &stages), &none);
            assert!(wanted.contains(&Of::Response), "each is worse than the ones before");
        }
        let batch = lanes.take(0, 4_000_000);
        let of = |series: &str| {
            batch.intervals.iter().find(|it| it.series.as_deref() == Some(series)).unwrap().clone()
        };
        assert_eq!((of("a:b").samples, of("a:b").overruns, of("a:b").max_ns), (4, Some(2), Some(70_000)));
        assert_eq!((of("a:b/wakeup").max_ns, of("a:b/period").samples), (Some(5_000), 3));
        assert_eq!(of("a:b/period").histogram.len(), 1);
        assert!(of("a:b/period").histogram[0].0 <= 1_000_000 && lower_edge(0) == 0);
        let (series, thief) = &batch.sources[0];
        assert_eq!((series.as_str(), thief.actor.as_deref(), thief.gaps), ("a:b", Some("thief"), 4));
        assert_eq!((thief.total_ns, of("a:b").lost_ns), (60_000, Some(80_000)));
        assert_eq!((batch.tasks[0].thread, batch.tasks[0].run_ns), (5, 140_000));
        let next = lanes.take(4_000_000, 5_000_000);
        assert!(next.intervals.iter().all(|interval| interval.samples == 0) && next.tasks.is_empty());
    }

    #[test]
    fn threads_of_one_name_are_told_apart_and_one_that_returns_goes_on() {
        let mut lanes = Lanes::new(None, 1);
        let mut threads = BTreeMap::new();
        let add = |lanes: &mut Lanes, threads: &BTreeMap<u32, Watched>, pid| {
            lanes.add(&activation(pid, "audio", 10, &[(5, waking()), (9, Doing::Running)]), threads);
        };
        for pid in [1, 2] {
            threads.insert(pid, Watched::default());
            add(&mut lanes, &threads, pid);
        }
        threads.get_mut(&1).unwrap().is_gone = true;
        threads.insert(3, Watched::default());
        add(&mut lanes, &threads, 3);
        let told: Vec<(String, u64)> =
            lanes.lines().into_iter().map(|line| (line.name, line.activations)).collect();
        assert_eq!(told, [("audio".to_owned(), 2), ("audio#2".to_owned(), 1)]);
    }

    #[test]
    fn very_many_threads_share_a_series_and_none_is_dropped() {
        let mut lanes = Lanes::new(None, 1);
        let threads: BTreeMap<u32, Watched> = (1..=10_000).map(|pid| (pid, Watched::default())).collect();
        for pid in 1..=10_000 {
            lanes.add(
                &activation(pid, &format!("t{pid}"), 10, &[(5, waking()), (9, Doing::Running)]),
                &threads,
            );
        }
        let lines = lanes.lines();
        assert_eq!(lines.len(), SERIES_MAX);
        assert_eq!(lines.iter().map(|line| line.activations).sum::<u64>(), 10_000);
        assert_eq!(lines.last().unwrap().name, OTHERS);
    }
}
