//! The results of all watched threads, each in its lane.

use super::deadlines::KernelDeadlines;
use super::lane::{Lane, PARTS, Typical};
use super::{NAMED_MAX, spike};
use crate::measure::{Batch, TaskLine};
use std::collections::BTreeMap;
use whylate_bpf::tasks::{Activation, Cut, Doubt, Watched};
use whylate_core::plan::Chain;
use whylate_core::record::{SpikeCauses, SpikeRecord};
use whylate_core::result::{AuditRecord, Cause, ChainPart, HourResult};
use whylate_core::{CpuId, Nanos, Warning, WarningCode};
use whylate_record::tasks::Explained;

/// This many threads have a series of their own; all others share one series.
pub(super) const SERIES_MAX: usize = 64;
/// This many more threads get a series of their own when they are late.
const LATE_SERIES_MAX: usize = 192;
/// If more threads have a lane, those that have ended are forgotten.
const THREADS_MAX: usize = 16_384;
/// The most sleeping places of a thread that are named.
const DOUBT_CALLS: usize = 4;
/// Without a deadline, a thread that ends sooner after its wake-up than this has merely ended.
const END_NS: u64 = 1_000_000;
/// The series of all others.
pub(super) const OTHERS: &str = "others";

/// The two latencies of an activation; the worst of each are explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// From being due to the next sleep.
    Response,
    /// From being due to running.
    Wakeup,
}

/// An instance of a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChainSample {
    pub(super) begin_ns: u64,
    pub(super) at_ns: u64,
    /// Where it ended.
    pub(super) cpu: CpuId,
    pub(super) is_late: bool,
}

impl ChainSample {
    pub(super) fn latency_ns(&self) -> u64 {
        self.at_ns.saturating_sub(self.begin_ns)
    }
}

/// All threads.
pub(super) struct Lanes {
    begin_ns: u64,
    lanes: Vec<Lane>,
    of_thread: BTreeMap<u32, usize>,
    deadline: Option<Nanos>,
    kernel_deadlines: KernelDeadlines,
    worst: usize,
    spikes: Vec<SpikeRecord>,
    causes: Vec<SpikeCauses>,
    /// The chains that had an instance, by their number.
    chains: BTreeMap<usize, Lane>,
    activations: u64,
    /// Where the activation that was added last was counted.
    last_lane: usize,
}

/// Identifies an activation: its number, and the lane in which it was counted. Its thread may be in another lane when the
/// activation is explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    number: u64,
    lane: usize,
}

struct Seen<'s> {
    thread: u32,
    command: &'s str,
    cpu: CpuId,
    due_ns: u64,
}

impl<'s> Seen<'s> {
    fn of(activation: &'s Activation) -> Self {
        let cpu = activation.stages.last().map_or(CpuId(0), |stage| stage.cpu);
        Self {
            thread: activation.thread.pid,
            command: &activation.thread.command,
            cpu,
            due_ns: activation.due_ns,
        }
    }
}

impl Lanes {
    pub(super) fn new(begin_ns: u64, deadline: Option<Nanos>, worst: usize) -> Self {
        Self {
            begin_ns,
            lanes: Vec::new(),
            of_thread: BTreeMap::new(),
            deadline,
            kernel_deadlines: KernelDeadlines::default(),
            worst,
            spikes: Vec::new(),
            causes: Vec::new(),
            chains: BTreeMap::new(),
            activations: 0,
            last_lane: 0,
        }
    }

    /// The deadline of a response: the plan's, or else the kernel's.
    fn deadline_of(&mut self, activation: &Activation) -> Option<Nanos> {
        self.deadline.or_else(|| self.kernel_deadlines.of(&activation.thread))
    }

    /// Whether a response is longer than its deadline.
    fn is_missed(&mut self, activation: &Activation) -> bool {
        self.deadline_of(activation).is_some_and(|deadline| activation.response_ns() > deadline.0)
    }

    /// Counts an activation; returns which of its latencies are to be explained.
    pub(super) fn add(&mut self, activation: &Activation, threads: &BTreeMap<u32, Watched>) -> Vec<Of> {
        let number = self.activations;
        let deadline = self.deadline_of(activation);
        let is_missed = deadline.is_some_and(|deadline| activation.response_ns() > deadline.0);
        self.activations += 1;
        self.last_lane = self.lane(&Seen::of(activation), threads);
        if is_missed
            && self.lanes[self.last_lane].name == OTHERS
            && self.lanes.len() < SERIES_MAX + LATE_SERIES_MAX
        {
            self.last_lane = self.own_lane(&Seen::of(activation));
        }
        let lane = &mut self.lanes[self.last_lane];
        let (response_ns, wakeup_ns) = (activation.response_ns(), activation.wakeup_ns());
        lane.count(activation, deadline);
        let mut wanted = Vec::new();
        let hour = activation.end_ns().saturating_sub(self.begin_ns) / HourResult::LENGTH_NS;
        if lane.is_worst((response_ns, number), hour) || is_missed {
            wanted.push(Of::Response);
        } else {
            lane.count_thieves(activation);
        }
        if wakeup_ns > 0 && lane.worst[1].offer((wakeup_ns, number)) {
            wanted.push(Of::Wakeup);
        }
        wanted
    }

    /// Counts the start of a thread, which is no response.
    pub(super) fn add_start(&mut self, start: &Activation, threads: &BTreeMap<u32, Watched>) {
        let lane = self.lane(&Seen::of(start), threads);
        self.lanes[lane].startup_ns += start.response_ns();
    }

    /// Counts an instance of the chain `nth`; returns its number if it is to be explained.
    pub(super) fn add_instance(&mut self, nth: usize, series: &str, instance: &ChainSample) -> Option<u64> {
        let number = self.activations;
        self.activations += 1;
        let (latency_ns, home) = (instance.latency_ns(), instance.cpu);
        let new = || Lane::new(series.to_owned(), home, 0, self.worst);
        let lane = self.chains.entry(nth).or_insert_with(new);
        lane.count_instance(latency_ns, instance.is_late);
        let hour = instance.at_ns.saturating_sub(self.begin_ns) / HourResult::LENGTH_NS;
        (lane.is_worst((latency_ns, number), hour) || instance.is_late).then_some(number)
    }

    /// Keeps an explained instance of the chain `nth`.
    pub(super) fn explain_instance(
        &mut self,
        nth: usize,
        number: u64,
        instance: &ChainSample,
        parts: &[ChainPart],
        causes: Vec<Cause>,
    ) {
        let Some(lane) = self.chains.get_mut(&nth) else { return };
        let (at_ns, latency_ns, cpu) = (instance.at_ns, instance.latency_ns(), lane.home);
        lane.show(spike::of_chain(instance.begin_ns, latency_ns, parts, causes.clone()));
        let series = Some(lane.name.clone());
        self.spikes.push(SpikeRecord {
            at_ns,
            latency_ns,
            sample: number,
            ..SpikeRecord::of(cpu, series.clone())
        });
        self.causes.push(SpikeCauses { cpu, series, at_ns, latency_ns, causes, lost: 0 });
    }

    /// Whether a response is the longest of its thread so far, or longer than its deadline.
    pub(super) fn is_longest(&mut self, activation: &Activation, threads: &BTreeMap<u32, Watched>) -> bool {
        let nth = self.lane(&Seen::of(activation), threads);
        let longest_ns = self.lanes[nth].response.1.max().unwrap_or_default();
        activation.response_ns() > longest_ns || self.is_missed(activation)
    }

    /// Whether its thread had no response yet.
    pub(super) fn is_first(&mut self, activation: &Activation, threads: &BTreeMap<u32, Watched>) -> bool {
        let nth = self.lane(&Seen::of(activation), threads);
        self.lanes[nth].response.1.count() == 0
    }

    /// Counts who took the time of a response that should have been explained and is not.
    pub(super) fn leave(&mut self, of: Of, counted: Counted, activation: &Activation) {
        if of == Of::Response {
            self.lanes[counted.lane].count_thieves(activation);
        }
    }

    /// The series in which an activation was counted.
    pub(super) fn name(&self, counted: Counted) -> &str {
        &self.lanes[counted.lane].name
    }

    /// The activation that was added last.
    pub(super) fn last(&self) -> Counted {
        Counted { number: self.activations.saturating_sub(1), lane: self.last_lane }
    }

    /// The name of an activation's thread, and the medians of its responses if it had some.
    pub(super) fn typical(
        &mut self,
        activation: &Activation,
        threads: &BTreeMap<u32, Watched>,
    ) -> (String, Typical) {
        let lane = self.lane(&Seen::of(activation), threads);
        let lane = &self.lanes[lane];
        match lane.name == OTHERS {
            // Their median is that of many threads.
            true => (plain(&activation.thread.command), Typical::default()),
            false => (lane.name.clone(), lane.typical()),
        }
    }

    /// Keeps one of the worst activations, or its wake-up, with its causes.
    pub(super) fn explain(
        &mut self,
        of: Of,
        counted: Counted,
        activation: &Activation,
        explained: Explained,
    ) {
        let Explained { mut causes, wakeups, lost } = explained;
        if let Some(first) = causes.first_mut().filter(|_| activation.is_unended) {
            first.evidence.push("the activation had not ended when the watch ended".to_owned());
        }
        let lane = &mut self.lanes[counted.lane];
        let (at_ns, latency_ns) = (activation.end_ns(), activation.response_ns());
        let series = match of {
            Of::Response => lane.name.clone(),
            Of::Wakeup => format!("{}/{}", lane.name, PARTS[0]),
        };
        if of == Of::Response {
            lane.count_causes(activation, &causes);
            lane.show(spike::explained(activation, causes.clone(), wakeups));
        }
        let (cpu, series) = (lane.home, Some(series));
        self.spikes.push(SpikeRecord {
            at_ns,
            latency_ns,
            sample: counted.number,
            ended_on: activation.stages.last().map(|stage| stage.cpu).filter(|ended_on| *ended_on != cpu),
            ..SpikeRecord::of(cpu, series.clone())
        });
        self.causes.push(SpikeCauses { cpu, series, at_ns, latency_ns, causes, lost });
    }

    /// The next activation of each thread does not follow the previous one by a period.
    pub(super) fn break_periods(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.before_due_ns = None);
    }

    fn lane(&mut self, seen: &Seen<'_>, threads: &BTreeMap<u32, Watched>) -> usize {
        let thread = seen.thread;
        let command = plain(seen.command);
        let known = self.of_thread.get(&thread).copied();
        if let Some(nth) = known.filter(|nth| self.lanes[*nth].is_of(&command)) {
            return nth;
        }
        let nth = self.new_lane(seen, threads, known);
        if self.of_thread.len() > THREADS_MAX {
            self.of_thread.retain(|thread, _| threads.get(thread).is_some_and(|it| !it.is_gone));
        }
        self.of_thread.insert(thread, nth);
        nth
    }

    /// A lane of its own for a thread that was among the others; with its id if its name is taken.
    fn own_lane(&mut self, seen: &Seen<'_>) -> usize {
        let command = plain(seen.command);
        let is_given = self.lanes.iter().any(|lane| lane.name == command);
        let name = if is_given { format!("{command}#{}", seen.thread) } else { command };
        self.lanes.push(Lane::new(name, seen.cpu, seen.thread, self.worst));
        let nth = self.lanes.len() - 1;
        self.of_thread.insert(seen.thread, nth);
        nth
    }

    /// A restarted thread is the same to the user: it takes the lane of a thread of its name that is gone. A thread that runs
    /// another program, or got a name, keeps its lane `before` under the new name, unless results under the old name are
    /// already stored.
    fn new_lane(
        &mut self,
        seen: &Seen<'_>,
        threads: &BTreeMap<u32, Watched>,
        before: Option<usize>,
    ) -> usize {
        let (command, thread) = (plain(seen.command), seen.thread);
        // Not if this thread was there before the other one ended: activations are counted up to a second late.
        let first_ns = threads.get(&thread).map_or(seen.due_ns, |it| it.first_ns);
        let ended_ns = |lane: &Lane| match threads.get(&lane.thread) {
            Some(it) => it.is_gone.then_some(it.last_ns),
            None => Some(lane.last_due_ns),
        };
        let is_free = |lane: &Lane| {
            lane.thread == thread || ended_ns(lane).is_some_and(|ended_ns| ended_ns <= first_ns)
        };
        if let Some(nth) = self.lanes.iter().position(|lane| lane.is_of(&command) && is_free(lane)) {
            self.lanes[nth].take_over(thread);
            return nth;
        }
        if let Some(nth) = self.lanes.iter().position(|lane| lane.name == OTHERS) {
            return nth;
        }
        let numbered = |number: usize| match number {
            1 => command.clone(),
            _ => format!("{command}#{number}"),
        };
        // In the order in which they were started, whichever runs first, so that the next watch of the program gives them the
        // same names.
        let is_older = |id: u32, it: &Watched| id < thread && !it.is_gone && plain(&it.command) == command;
        let place = 1 + threads.iter().filter(|(id, it)| is_older(**id, it)).count();
        let is_new = |name: &String| self.lanes.iter().all(|lane| lane.name != *name);
        let own = std::iter::once(place).chain(1..SERIES_MAX).map(numbered).find(is_new);
        let name = own.filter(|_| self.lanes.len() + 1 < SERIES_MAX).unwrap_or_else(|| OTHERS.to_owned());
        if let Some(nth) = before.filter(|nth| !self.lanes[*nth].is_stored) {
            self.rename(nth, &name);
            return nth;
        }
        self.lanes.push(Lane::new(name, seen.cpu, thread, self.worst));
        self.lanes.len() - 1
    }

    /// Renames a lane without stored results, and its results that wait to be stored.
    fn rename(&mut self, nth: usize, name: &str) {
        let old = std::mem::replace(&mut self.lanes[nth].name, name.to_owned());
        let renamed = |series: &str| match series.strip_prefix(&old)? {
            "" => Some(name.to_owned()),
            part => part.starts_with('/').then(|| format!("{name}{part}")),
        };
        let spikes = self.spikes.iter_mut().map(|spike| &mut spike.series);
        for series in spikes.chain(self.causes.iter_mut().map(|spike| &mut spike.series)) {
            if let Some(new) = series.as_deref().and_then(renamed) {
                *series = Some(new);
            }
        }
    }

    /// The smallest wake-up latency that a thread keeps among its worst: no stack is needed below it.
    pub(super) fn least_worst_wakeup_ns(&self) -> Option<u64> {
        self.lanes.iter().map(|lane| lane.worst[1].least().map(|(latency_ns, _)| *latency_ns)).min().flatten()
    }

    /// Threads whose timers may expire later than requested; their latencies do not include this.
    pub(super) fn timer_slack(&self) -> Option<Warning> {
        let lanes = self.lanes.iter().filter(|lane| lane.has_timer_slack);
        let names: Vec<&str> = lanes.map(|lane| lane.name.as_str()).collect();
        let (first, others) = names.split_at(names.len().min(NAMED_MAX));
        let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
        let text = format!(
            "watched tasks: the kernel may wake ordinary threads late by their timer slack (50 us unless \
             changed); this delay is not part of the latencies of {}{more}",
            first.join(", ")
        );
        (!names.is_empty()).then(|| Warning::new(WarningCode::TimerSlack, text))
    }

    /// Takes the sleeps that may have been in the middle of the threads' work.
    pub(super) fn doubt(&mut self, doubts: Vec<(u32, Doubt)>) {
        for (thread, doubt) in doubts {
            if let Some(nth) = self.of_thread.get(&thread) {
                self.lanes[*nth].doubt(doubt);
            }
        }
    }

    /// Takes the activations whose end was not seen: none that is longer than the deadline passes, nor, without a deadline, one that
    /// is longer than the longest of its thread.
    pub(super) fn cut(&mut self, cuts: &[Cut], threads: &BTreeMap<u32, Watched>) {
        for cut in cuts {
            let lane = self.of_thread.get(&cut.thread).map(|nth| self.lanes[*nth].longest_ns());
            let least_ns = self.deadline.map_or_else(|| lane.unwrap_or(0).max(END_NS), |deadline| deadline.0);
            if cut.took_ns <= least_ns {
                continue;
            }
            let Cut { thread, command, cpu, at_ns, took_ns } = cut;
            let seen = Seen { thread: *thread, command, cpu: *cpu, due_ns: at_ns.saturating_sub(*took_ns) };
            let nth = self.lane(&seen, threads);
            self.lanes[nth].cut(*thread, *took_ns, threads.get(thread));
        }
    }

    /// The threads whose activations are uncertain.
    pub(super) fn in_doubt(&self) -> Option<Warning> {
        let lanes: Vec<&Lane> = self.lanes.iter().filter(|lane| lane.doubts.sleeps > 0).collect();
        let described = |lane: &&Lane| {
            let calls: Vec<&str> = lane.doubts.calls.iter().map(String::as_str).take(DOUBT_CALLS).collect();
            // Without the programs in the kernel the calls are not known.
            let places =
                if calls.is_empty() { "sleeps".to_owned() } else { format!("in {}", calls.join(", ")) };
            format!("{} ({} {places})", lane.name, lane.doubts.sleeps)
        };
        let named: Vec<String> = lanes.iter().take(NAMED_MAX).map(described).collect();
        let more = lanes.len() - named.len();
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let text = format!(
            "watched tasks: whylate cannot tell which sleeps of these threads wait for work, so their \
             latencies may begin or end in the middle of the work: {}{more}",
            named.join(", ")
        );
        // Without the programs in the kernel, only the number of pieces can be chosen.
        let is_partial = lanes.iter().all(|lane| lane.doubts.calls.is_empty());
        let fix = "run as root, so that whylate sees what each sleep waits for; or count each wake-up as one piece of work \
                   (--per-wakeup)";
        (!lanes.is_empty()).then(|| match is_partial {
            true => Warning::with_fix(WarningCode::ActivationsUncertain, text, fix),
            false => Warning::new(WarningCode::ActivationsUncertain, text),
        })
    }

    /// The state of the threads so far.
    pub(super) fn lines(&mut self) -> Vec<TaskLine> {
        self.chains.values_mut().chain(&mut self.lanes).map(Lane::line).collect()
    }

    /// Lists findings of an audit under the series of their threads; those of threads without an activation are left out.
    pub(super) fn place(&self, found: Vec<(u32, AuditRecord)>, allow: &[String]) -> Vec<AuditRecord> {
        let placed = |(thread, record): (u32, AuditRecord)| {
            let lane = &self.lanes[*self.of_thread.get(&thread)?];
            let allowed = record.is_named(allow);
            Some(AuditRecord { cpu: lane.home, series: Some(lane.name.clone()), allowed, ..record })
        };
        found.into_iter().filter_map(placed).collect()
    }

    /// What came since the last call.
    pub(super) fn take(&mut self, start_ns: u64, end_ns: u64) -> Batch {
        let mut batch = Batch { start_ns, end_ns, ..Batch::default() };
        for lane in &mut self.lanes {
            lane.take(&mut batch);
        }
        self.chains.values_mut().for_each(|lane| lane.take_chain(&mut batch));
        batch.spikes = std::mem::take(&mut self.spikes);
        batch.causes = std::mem::take(&mut self.causes);
        batch
    }
}

/// A name without the character that separates a series from its parts.
fn plain(command: &str) -> String {
    let name: String =
        command.chars().map(|letter| if matches!(letter, '/' | '#') { ':' } else { letter }).collect();
    if name.is_empty() {
        return "?".to_owned();
    }
    // A series with this name has the latencies of a chain.
    Chain::of_series(&name).map_or(name.clone(), |rest| format!("chain:{rest}"))
}
