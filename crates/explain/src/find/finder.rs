//! First pass: every wake-up of every task, and which of them were late.
//!
//! In: the events of [`whylate_trace::reader::Selection::Wakeups`], or all events for traces without scheduler events, where
//! a change of the thread between two lines of a CPU is taken as a switch. Out: the largest late moments of each task. Memory
//! grows with the number of tasks, not with that of the events.

use crate::describe;
use crate::find::clock::Alignment;
use crate::find::late::{Largest, Late, LateKind, PRIORITY_NORMAL};
use crate::find::marker;
use crate::find::sleeps::SleepReason;
use crate::find::tasks::Tasks;
use crate::find::track::{Out, TaskTrack};
use crate::options::{Options, TaskChoice};
use crate::vocabulary::{self, Class};
use std::collections::{BTreeMap, HashMap};
use whylate_core::CpuId;
use whylate_core::result::ExpectedFrom;
use whylate_trace::event::{Event, EventKind, Name, Symbol, Task, TaskState};
use whylate_trace::reader::Reader;

/// One less than the number of events between two checks for too many late moments.
const LOOK_EACH: u64 = (1 << 16) - 1;

/// Tracing that records nothing for longer than this was probably off: a mark before it belongs to an earlier measurement.
const TRACING_OFF_NS: u64 = 10_000_000_000;

/// What a second pass counts, if the first one does not know the number of latencies.
#[derive(Clone, Debug)]
pub(crate) struct Again {
    /// The threshold, which is known only after a first pass.
    pub(crate) least_ns: u64,
    /// The threads of the first pass's subject.
    pub(crate) pids: Vec<u32>,
    /// Looks why they slept in the middle of their work.
    pub(crate) sleeps: bool,
}

/// The last event of a CPU.
#[derive(Clone, Copy, Debug)]
struct CpuTrack {
    pid: Option<u32>,
    command: Option<Name>,
    at_ns: u64,
    preempted: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) events: u64,
    /// All events of the trace, including those that were not selected.
    pub(crate) records: u64,
    /// Every event was selected.
    pub(crate) all: bool,
    /// The function with which a section tracer ends; searched if every event was selected.
    pub(crate) section_ended: bool,
    pub(crate) switches: u64,
    pub(crate) timer_starts: u64,
    pub(crate) wakeups: u64,
    pub(crate) functions: u64,
    pub(crate) samples: u64,
    pub(crate) timerlats: u64,
    pub(crate) gaps: u64,
    pub(crate) noises: u64,
    /// A thread of a noise tracer ran.
    pub(crate) workload: bool,
    pub(crate) lost: u64,
    pub(crate) last_ns: u64,
    /// CPUs with events, a bit each; those from 128 on are not kept.
    pub(crate) cpus: u128,
    /// The smallest time of an event.
    pub(crate) first_ns: Option<u64>,
    /// Tracing may have been off for a while.
    pub(crate) was_off: bool,
    /// Tasks that ran before another CPU woke them.
    pub(crate) skews: Skews,
    /// Events with an earlier time than the event before them, and the time over which they go back.
    pub(crate) back: u64,
    pub(crate) back_ns: Option<(u64, u64)>,
    before_ns: u64,
}

impl Seen {
    /// For how long the trace shows what happened.
    pub(crate) fn covered_ns(&self) -> Option<u64> {
        let covered_ns = self.last_ns.saturating_sub(self.first_ns?);
        (covered_ns > 0 && !self.was_off).then_some(covered_ns)
    }

    /// Takes the time of the next event.
    fn ordered(&mut self, at_ns: u64) {
        let before_ns = std::mem::replace(&mut self.before_ns, at_ns);
        if at_ns < before_ns {
            self.back += 1;
            let (from, to) = self.back_ns.unwrap_or((at_ns, before_ns));
            self.back_ns = Some((from.min(at_ns), to.max(before_ns)));
        }
    }
}

/// Wake-ups that are recorded after the run that they began: the clocks of the two CPUs differ.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Skews {
    pub(crate) count: u64,
    /// The largest difference, with the CPU that ran the task and the one that woke it.
    pub(crate) largest: Option<(u64, CpuId, CpuId)>,
}

/// A task that runs for longer was not woken for that run.
const SKEW_NS_MAX: u64 = 1_000_000;

impl Skews {
    /// A task that began to run at `ran` without a wake-up is woken by the CPU of `event`.
    fn take(&mut self, (ran_ns, ran_on): (u64, CpuId), event: &Event) {
        let skew_ns = event.at_ns.saturating_sub(ran_ns);
        if event.cpu == ran_on || skew_ns > SKEW_NS_MAX {
            return;
        }
        self.count += 1;
        if self.largest.is_none_or(|(largest, ..)| skew_ns > largest) {
            self.largest = Some((skew_ns, ran_on, event.cpu));
        }
    }
}

/// No kernel has more CPUs; a damaged trace may name more.
const CPUS_MAX: usize = 1 << 13;

/// Whether the scheduler stopped real-time threads of a CPU: one that could go on was taken off for a lesser one.
#[derive(Clone, Copy, Debug, Default)]
struct Stops {
    /// A real-time thread left the CPU.
    known: bool,
    /// From when on the last of them was stopped, and until when no real-time thread ran.
    last: Option<(u64, Option<u64>)>,
}

impl Stops {
    fn switched(&mut self, at_ns: u64, previous: Task, state: TaskState, next: Task) {
        let is_realtime = |task: Task| task.pid != 0 && task.priority < PRIORITY_NORMAL;
        if is_realtime(next) {
            if let Some((_, end @ None)) = &mut self.last {
                *end = Some(at_ns);
            }
        } else if is_realtime(previous) && state == TaskState::Runnable {
            self.last = Some((at_ns, None));
        }
        self.known |= is_realtime(previous);
    }

    /// Whether none was stopped at any time from that moment on.
    fn none_since(&self, from_ns: u64) -> bool {
        self.known && self.last.is_none_or(|(_, end_ns)| end_ns.is_some_and(|end_ns| end_ns < from_ns))
    }
}

pub(crate) type Samples = BTreeMap<u32, (Option<Name>, Largest)>;

/// The first pass.
pub(crate) struct Finder<'o> {
    pub(crate) options: &'o Options,
    /// Latencies above it are counted.
    pub(crate) least_ns: u64,
    /// In a second pass, the only threads to choose from.
    pub(crate) pinned: Option<Vec<u32>>,
    /// Their sleeps, in a second pass that looks for the reasons.
    sleeps: HashMap<u32, SleepReason>,
    /// Their sleeps in the middle of their work, above the threshold, that were neither for a lock nor for a page fault.
    pub(crate) left_out: u64,
    clock: Alignment,
    pub(crate) tasks: Tasks,
    cpus: HashMap<CpuId, CpuTrack>,
    /// By the number of the CPU; looked up at each switch, so no map.
    stops: Vec<Stops>,
    /// The timerlat sample in the interrupt whose thread sample has not come yet: sequence, moment, latency.
    pub(crate) timerlat_irq: HashMap<CpuId, (u32, u64, u64)>,
    /// The last sample of each CPU.
    pub(crate) last_sample: HashMap<CpuId, u64>,
    /// The largest gap of each CPU since its last line of the osnoise table.
    pub(crate) largest_gap_ns: HashMap<CpuId, u64>,
    /// Samples of the tracers, by the thread that took them.
    pub(crate) samples: Samples,
    /// Noises that the osnoise tracer attributed itself.
    pub(crate) noises: Samples,
    /// The thread that wrote the break marker.
    pub(crate) marked: Option<u32>,
    /// The threshold that it was measured against.
    pub(crate) marked_threshold_ns: Option<u64>,
    /// The latencies at which tracers stopped the trace: the smallest.
    pub(crate) stopped_at_ns: Option<u64>,
    /// The smallest sample of the hwlat tracer: each is above the tracer's own threshold.
    pub(crate) hwlat_least_ns: Option<u64>,
    pub(crate) seen: Seen,
    hints: Hints,
    by_lines: bool,
}

/// What a function's name means for the first pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Hint {
    #[default]
    Nothing,
    /// Its thread is preempted.
    Preempted,
    /// Its thread goes to sleep.
    Sleeps,
    /// A tracer of sections ends one.
    SectionEnds,
    /// A timer's function that wakes the thread that started the timer.
    WakesSleeper,
}

/// Functions recur millions of times: each is looked up by its symbol, and its name is read only if it was not the last one
/// in its slot.
struct Hints(Box<[(Option<Symbol>, Hint)]>);

impl Default for Hints {
    fn default() -> Self {
        Self(vec![(None, Hint::Nothing); 1 << 12].into_boxed_slice())
    }
}

impl Hints {
    fn of(&mut self, function: Symbol, reader: &dyn Reader) -> Hint {
        let number = match function {
            Symbol::Name(name) => u64::from(name.number()),
            Symbol::Address(address) => address,
        };
        let slot = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
        let slot = &mut self.0[slot as usize];
        if slot.0 != Some(function) {
            *slot = (Some(function), hint(function, reader));
        }
        slot.1
    }
}

fn hint(function: Symbol, reader: &dyn Reader) -> Hint {
    if describe::section_end(function, reader).is_some() {
        return Hint::SectionEnds;
    }
    let Some((name, _)) = reader.symbol(function) else { return Hint::Nothing };
    match vocabulary::class_of(name) {
        Class::Preemption => Hint::Preempted,
        Class::Dequeue => Hint::Sleeps,
        _ if vocabulary::wakes_a_sleeper(name) => Hint::WakesSleeper,
        _ => Hint::Nothing,
    }
}

impl<'o> Finder<'o> {
    /// `by_lines`: take a change of thread between two events of a CPU for a switch.
    pub(crate) fn new(
        options: &'o Options,
        reader: &dyn Reader,
        by_lines: bool,
        again: Option<&Again>,
    ) -> Self {
        let info = reader.info();
        let sleeping = again.filter(|again| again.sleeps).into_iter().flat_map(|again| &again.pids);
        Self {
            options,
            least_ns: again.map_or(options.least_ns(), |again| again.least_ns),
            pinned: again.map(|again| again.pids.clone()),
            sleeps: sleeping.map(|pid| (*pid, SleepReason::default())).collect(),
            left_out: 0,
            clock: Alignment::new(info.clock.as_deref(), info.resolution_ns),
            tasks: Tasks::default(),
            cpus: HashMap::new(),
            stops: Vec::new(),
            timerlat_irq: HashMap::new(),
            last_sample: HashMap::new(),
            largest_gap_ns: HashMap::new(),
            samples: Samples::new(),
            noises: Samples::new(),
            marked: None,
            marked_threshold_ns: None,
            stopped_at_ns: None,
            hwlat_least_ns: None,
            seen: Seen::default(),
            hints: Hints::default(),
            by_lines,
        }
    }

    pub(crate) fn event(&mut self, event: &Event, reader: &dyn Reader) {
        self.seen.events += 1;
        let off_ns = event.at_ns.saturating_sub(self.seen.last_ns);
        if off_ns > TRACING_OFF_NS && self.seen.first_ns.is_some() {
            self.seen.was_off = true;
            self.tasks.values_mut().for_each(TaskTrack::forget_run);
            if !matches!(event.kind, EventKind::Print { .. }) {
                self.forget_mark();
            }
        }
        self.seen.last_ns = self.seen.last_ns.max(event.at_ns);
        self.seen.ordered(event.at_ns);
        self.seen.first_ns = Some(self.seen.first_ns.map_or(event.at_ns, |first| first.min(event.at_ns)));
        let cpu = 1u128.checked_shl(event.cpu.0).unwrap_or(0);
        let is_first_of_cpu = self.seen.cpus & cpu == 0;
        self.seen.cpus |= cpu;
        if self.tasks.is_full(self.seen.events & LOOK_EACH == 0) {
            self.drop_tasks(reader);
        }
        if self.by_lines {
            self.line(event, reader);
        }
        if !self.sleeps.is_empty() {
            self.follow_sleeps(event);
        }
        match event.kind {
            EventKind::Switch { previous, state, next } => {
                self.seen.switches += 1;
                self.switched(event, previous, state, next);
            }
            EventKind::Waking { task, .. } | EventKind::Wakeup { task, .. } => {
                self.seen.wakeups += 1;
                // It holds no lock, so no priority is inherited: this is its own.
                let known = (self.least_ns, self.seen.timer_starts > 0);
                let track = self.task(task.pid, Some(task.command), Some(task.priority));
                let unwoken = track.unwoken.take();
                // A task that has not run yet was asleep since before the trace.
                if track.out.is_some() || track.last_in.is_none() {
                    track.woken(event.at_ns, matches!(event.kind, EventKind::Wakeup { .. }), known);
                } else if let Some(ran) = unwoken {
                    self.seen.skews.take(ran, event);
                }
            }
            EventKind::TimerStart { function, expires_ns, .. } => {
                self.seen.timer_starts += 1;
                let sleeper = self.hints.of(function, reader) == Hint::WakesSleeper;
                if let Some(pid) = event.pid.filter(|pid| sleeper && *pid != 0 && !event.context.hard_irq) {
                    let track = self.task(pid, event.command, None);
                    (track.armed, track.has_timers) = (Some((expires_ns, event.at_ns)), true);
                }
            }
            EventKind::TimerExpire { now_ns, .. } => self.clock.observe(event.at_ns, now_ns),
            EventKind::Print { text } => self.print(event, reader.names().text(text)),
            EventKind::Timerlat { sequence, context, latency_ns } => {
                self.timerlat(event, sequence, context, latency_ns);
            }
            EventKind::Hwlat { .. }
            | EventKind::Osnoise(_)
            | EventKind::Noise { .. }
            | EventKind::NoiseGap { .. } => self.noise(event, reader),
            EventKind::Function { function, .. } | EventKind::GraphEntry { function, .. } => {
                self.seen.functions += 1;
                self.seen.section_ended |= self.hints.of(function, reader) == Hint::SectionEnds;
            }
            EventKind::GraphExit { function, .. } => {
                self.seen.section_ended |= self.hints.of(function, reader) == Hint::SectionEnds;
            }
            EventKind::Lost { events } => {
                self.seen.lost += events.unwrap_or(1);
                // What waited there before may have run there; if the buffer of this CPU begins here, every task may.
                for track in self.tasks.values_mut() {
                    if is_first_of_cpu || track.out.is_some_and(|out| out.cpu == event.cpu) {
                        track.forget_waits();
                    } else if track.out.is_none() {
                        track.forget_run();
                    }
                }
            }
            _ => {}
        }
    }

    /// Forgets a mark of an earlier measurement, whose threshold and latency say nothing about what follows.
    #[cold]
    fn forget_mark(&mut self) {
        let least_ns = self.least_ns;
        self.marked_threshold_ns = None;
        if let Some(pid) = self.marked.take() {
            self.task(pid, None, None).late.forget_marked(least_ns);
        }
    }

    fn follow_sleeps(&mut self, event: &Event) {
        if let Some(pid) = event.pid
            && let Some(sleep) = self.sleeps.get_mut(&pid)
        {
            sleep.follow(event, pid);
        }
        if let EventKind::Switch { previous, .. } = event.kind
            && let Some(sleep) = self.sleeps.get_mut(&previous.pid)
        {
            sleep.begin(event.at_ns);
        }
    }

    /// Drops tasks until they fit into memory.
    #[cold]
    fn drop_tasks(&mut self, reader: &dyn Reader) {
        let (marked, choice) = (self.marked, &self.options.task);
        while self.tasks.is_full(true) {
            self.tasks.drop_half(|pid, track| match choice {
                _ if marked == Some(pid) => true,
                Some(TaskChoice::Pid(wanted)) => *wanted == pid,
                Some(TaskChoice::Name(name)) => {
                    track.command.is_some_and(|command| reader.names().text(command) == name)
                }
                None => false,
            });
        }
    }

    fn task(&mut self, pid: u32, command: Option<Name>, priority: Option<i32>) -> &mut TaskTrack {
        let track = self.tasks.entry(pid);
        track.command = command.or(track.command);
        // It may have become a real-time task after its start, or stopped being one before its end. Earlier times are no
        // latencies of a real-time task.
        match (track.priority, priority) {
            (Some(PRIORITY_NORMAL..), Some(new @ ..PRIORITY_NORMAL)) => track.becomes_realtime(new),
            (Some(known), Some(new)) => track.priority = Some(known.min(new)),
            (known, new) => track.priority = known.or(new),
        }
        track
    }

    /// A switch that only the threads of the lines show.
    fn line(&mut self, event: &Event, reader: &dyn Reader) {
        let before = self.cpus.get(&event.cpu).copied();
        let mut preempted = before.is_some_and(|before| before.preempted);
        if let (Some(before), Some(pid)) = (before, event.pid)
            && before.pid.is_some_and(|old| old != pid)
        {
            let state = if preempted { TaskState::Runnable } else { TaskState::Blocked('S') };
            let out = Out { at_ns: before.at_ns, state, cpu: event.cpu, for_lesser: false };
            self.leave(before.pid.unwrap_or(0), before.command, None, out);
            self.enter(event.at_ns, event.cpu, pid, event.command, None);
            preempted = false;
        }
        if let EventKind::Function { function, .. } = event.kind {
            match self.hints.of(function, reader) {
                Hint::Preempted => preempted = true,
                Hint::Sleeps => preempted = false,
                _ => {}
            }
        }
        let (mut pid, mut command) = (event.pid, event.command);
        if let EventKind::Switch { next, .. } = event.kind {
            (pid, command) = (Some(next.pid), Some(next.command));
        }
        self.cpus.insert(event.cpu, CpuTrack { pid, command, at_ns: event.at_ns, preempted });
    }

    fn switched(&mut self, event: &Event, previous: Task, state: TaskState, next: Task) {
        let for_lesser = next.pid == 0 || next.priority > previous.priority;
        let out = Out { at_ns: event.at_ns, state, cpu: event.cpu, for_lesser };
        let own = Some(previous.priority).filter(|_| state != TaskState::Runnable);
        self.leave(previous.pid, Some(previous.command), own, out);
        self.enter(event.at_ns, event.cpu, next.pid, Some(next.command), Some(next.priority));
        let cpu = event.cpu.0 as usize;
        if cpu >= self.stops.len() && cpu < CPUS_MAX {
            self.stops.resize_with(cpu + 1, Stops::default);
        }
        if let Some(stops) = self.stops.get_mut(cpu) {
            stops.switched(event.at_ns, previous, state, next);
        }
    }

    /// How late a task is at the end of the trace that was woken and has not run since.
    pub(crate) fn waiting(&self, pid: u32, track: &TaskTrack) -> Option<Late> {
        let (out, last_ns) = (track.out?, self.seen.last_ns);
        let woken_ns = track.waits_since_ns()?;
        let timers = self.seen.timer_starts > 0;
        let late = track.late(pid, out.cpu, last_ns, out, &self.clock, self.options, timers)?;
        let stops = self.stops.get(out.cpu.0 as usize).copied().unwrap_or_default();
        let (unstopped, unended) = (stops.none_since(late.expected_ns), true);
        // After a sleep in its work, the wait begins with the wake-up.
        let late = match late.kind {
            LateKind::Blocked => {
                let (from, kind) = (ExpectedFrom::Wakeup, LateKind::Wakeup);
                Late { expected_ns: woken_ns, from, kind, woken_ns: None, ..late }
            }
            _ => late,
        };
        (late.kind == LateKind::Wakeup).then_some(Late { unstopped, unended, ..late })
    }

    /// `priority` is the task's own.
    fn leave(&mut self, pid: u32, command: Option<Name>, priority: Option<i32>, out: Out) {
        if pid != 0 {
            let (least_ns, by_lines, timers) = (self.least_ns, self.by_lines, self.seen.timer_starts > 0);
            let track = self.task(pid, command, priority);
            // It was preempted, and went on unseen.
            let preempted =
                track.out.filter(|out| out.state == TaskState::Runnable).map(|out| (out.at_ns, true));
            if let Some((woken_ns, _)) = track.wake.or(preempted).filter(|_| !by_lines) {
                track.ran_unseen(woken_ns, out.at_ns, least_ns, timers);
                track.armed = track.armed.filter(|(_, armed_ns)| *armed_ns > woken_ns);
            }
            track.ends(out.at_ns, out.state);
            track.out = Some(out);
            track.wake = None;
            track.unwoken = None;
        }
    }

    /// `priority` is the task's own, or a higher one that it inherited.
    fn enter(&mut self, at_ns: u64, cpu: CpuId, pid: u32, command: Option<Name>, priority: Option<i32>) {
        if pid == 0 {
            return;
        }
        let (options, timers) = (self.options, self.seen.timer_starts > 0);
        let least_ns = self.least_ns;
        let explained = self.sleeps.get(&pid).map(|sleep| sleep.is_explained(cpu));
        let mut is_left_out = false;
        let clock = std::mem::take(&mut self.clock);
        let stops = self.stops.get(cpu.0 as usize).copied().unwrap_or_default();
        let track = self.task(pid, command, None);
        let ordinary = track.no_longer_realtime(priority);
        let known = |late: Late| Late {
            unstopped: stops.none_since(late.expected_ns),
            priority: ordinary.or(late.priority),
            ..late
        };
        let out = track.out.take();
        if priority.is_some() {
            track.begins(at_ns, out.is_none_or(|out| out.state != TaskState::Runnable));
        }
        if let Some(out) = out {
            let slept = out.state != TaskState::Runnable;
            track.unwoken = (slept && track.wake.is_none()).then_some((at_ns, cpu));
            if slept {
                track.wakeups += 1;
                track.rhythm.beat(at_ns);
            }
            match track.late(pid, cpu, at_ns, out, &clock, options, timers).map(known) {
                Some(late) if ordinary.is_some() && !matches!(late.kind, LateKind::Preempted { .. }) => {}
                // The second pass counts each latency once: a sleep with its end, or only its end.
                Some(late) => match explained.filter(|_| late.kind == LateKind::Blocked) {
                    Some(true) => track.add(late, options, least_ns),
                    Some(false) => {
                        is_left_out = late.latency_ns() > least_ns;
                        track.add_wait(late, options, least_ns);
                    }
                    None => {
                        track.add(late, options, least_ns);
                        track.add_wait(late, options, least_ns);
                    }
                },
                None => track.unknown += u64::from(slept),
            }
            if slept {
                track.armed = None;
            }
        } else if let Some((wake, _)) = track.wake {
            track.wakeups += 1;
            let since_ns = track.armed.map_or(wake, |(_, armed_ns)| armed_ns.min(wake));
            let woken = Out { at_ns: since_ns, state: TaskState::Blocked('S'), cpu, for_lesser: false };
            let late = track.late(pid, cpu, at_ns, woken, &clock, options, false);
            if let Some(late) = late.map(known).filter(|_| ordinary.is_none()) {
                track.add(late, options, least_ns);
            }
        }
        track.last_in = Some((at_ns, cpu, out.map_or(0, |out| out.at_ns)));
        track.wake = None;
        self.left_out += u64::from(is_left_out);
        self.clock = clock;
    }

    /// A break marker states how late its thread was; a tracer states that it stopped the trace.
    fn print(&mut self, event: &Event, text: &str) {
        if marker::is_stop(text) {
            let latency_ns = self.last_sample.get(&event.cpu).copied();
            self.stopped_at_ns = latency_ns.into_iter().chain(self.stopped_at_ns).min();
        }
        let (Some((latency_ns, threshold_ns)), Some(pid)) = (marker::read(text), event.pid) else { return };
        let is_first = self.marked.replace(pid).is_none();
        self.marked_threshold_ns = threshold_ns.or(Some(latency_ns.saturating_sub(1)));
        let (options, least_ns) = (self.options, self.least_ns);
        let track = self.task(pid, event.command, None);
        let (actual_ns, cpu, since_ns) = track.last_in.unwrap_or((event.at_ns, event.cpu, 0));
        let expected_ns = actual_ns.saturating_sub(latency_ns);
        let known = track.late.take_at(actual_ns, least_ns);
        let better = known.filter(|late| late.from == ExpectedFrom::Timer || options.period_ns.is_some());
        let late = better.unwrap_or(Late {
            pid: Some(pid),
            command: track.command,
            priority: track.priority,
            // The thread read the clock between its switch and the marker.
            error_ns: event.at_ns.saturating_sub(actual_ns),
            since_ns,
            ..Late::new(cpu, expected_ns, actual_ns, ExpectedFrom::Marker, LateKind::Wakeup)
        });
        let command = track.command;
        // Longer ones would displace it.
        for track in self.tasks.values_mut().filter(|track| is_first && track.command == command) {
            track.forget_before(late.expected_ns, least_ns);
        }
        self.task(pid, None, None).late.push(late, options.top, least_ns);
    }
}
