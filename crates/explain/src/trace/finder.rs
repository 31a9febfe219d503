//! First pass: every wake-up of every task, and which of them were late.
//!
//! In go the events of [`whylate_trace::reader::Selection::Wakeups`] (or all, for traces without scheduler events: there a
//! change of the thread between two lines of a CPU is taken for a switch); out come, for each task, its largest late
//! moments. Memory grows with the number of tasks, not with that of the events.

use super::Options;
use super::clock::Alignment;
use super::late::{Largest, Late, LateKind};
use super::marker;
use super::rhythm::Rhythm;
use crate::vocabulary::{self, Class};
use std::collections::{BTreeMap, HashMap};
use whylate_core::CpuId;
use whylate_core::result::{ExpectedFrom, LateWhat};
use whylate_trace::event::{Event, EventKind, Name, Task, TaskState};
use whylate_trace::reader::Reader;

/// How much earlier than its timer a task may be woken and still count as woken by it.
const TIMER_SLACK_NS: u64 = 2_000;
/// Tasks with this priority of the kernel's or above it are no real-time tasks.
pub(super) const PRIORITY_NORMAL: i32 = 100;
/// An interval this many times the given period says that the task does not run at that period.
const PERIOD_MISFIT: u64 = 3;

/// What is known of a task, from all of the trace so far.
#[derive(Clone, Debug, Default)]
pub(super) struct TaskTrack {
    pub(super) command: Option<Name>,
    pub(super) priority: Option<i32>,
    pub(super) rhythm: Rhythm,
    /// From its timer or its wake-up to its run.
    pub(super) late: Largest,
    /// Times that another had its CPU though it could run, as a real-time task.
    pub(super) preempted: Largest,
    /// The same as an ordinary task, which shares its CPU with whoever there is.
    pub(super) shared: Largest,
    /// Times that it blocked in the middle of its work.
    pub(super) blocked: Largest,
    pub(super) wakeups: u64,
    /// Wake-ups of which nothing tells when they should have been.
    pub(super) unknown: u64,
    /// Wake-ups whose moment rests on the task's own rhythm alone.
    pub(super) inferred: u64,
    out: Option<Out>,
    wake: Option<u64>,
    armed: Option<(u64, u64)>,
    last_in: Option<(u64, CpuId, u64)>,
}

/// How a task left the CPU.
#[derive(Clone, Copy, Debug)]
struct Out {
    at_ns: u64,
    state: TaskState,
    cpu: CpuId,
    for_lesser: bool,
}

/// The last event of a CPU.
#[derive(Clone, Copy, Debug)]
struct CpuTrack {
    pid: Option<u32>,
    command: Option<Name>,
    at_ns: u64,
    preempted: bool,
}

/// Which events the trace had.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) events: u64,
    pub(super) switches: u64,
    pub(super) timer_starts: u64,
    pub(super) wakeups: u64,
    pub(super) functions: u64,
    pub(super) samples: u64,
    pub(super) timerlats: u64,
    pub(super) gaps: u64,
    pub(super) noises: u64,
    pub(super) lost: u64,
    pub(super) last_ns: u64,
}

/// Samples by thread.
type Samples = BTreeMap<u32, (Option<Name>, Largest)>;

/// The first pass.
pub(super) struct Finder<'o> {
    pub(super) options: &'o Options,
    clock: Alignment,
    pub(super) tasks: BTreeMap<u32, TaskTrack>,
    cpus: HashMap<CpuId, CpuTrack>,
    /// The timerlat sample in the interrupt of which the thread's has not come: sequence, moment, latency.
    pub(super) timerlat_irq: HashMap<CpuId, (u32, u64, u64)>,
    /// The last sample of each CPU.
    pub(super) last_sample: HashMap<CpuId, u64>,
    /// Samples of the tracers, by the thread that took them.
    pub(super) samples: Samples,
    /// Noises that the osnoise tracer attributed itself.
    pub(super) noises: Samples,
    /// The thread that wrote the break marker.
    pub(super) marked: Option<u32>,
    /// The threshold that it was measured against.
    pub(super) marked_threshold_ns: Option<u64>,
    /// The latencies at which tracers stopped the trace: the smallest.
    pub(super) stopped_at_ns: Option<u64>,
    /// The smallest sample of the hwlat tracer: each is above the tracer's own threshold.
    pub(super) hwlat_least_ns: Option<u64>,
    pub(super) seen: Seen,
    by_lines: bool,
}

impl<'o> Finder<'o> {
    /// `by_lines`: take a change of thread between two events of a CPU for a switch.
    pub(super) fn new(options: &'o Options, reader: &dyn Reader, by_lines: bool) -> Self {
        let info = reader.info();
        Self {
            options,
            clock: Alignment::new(info.clock.as_deref(), info.resolution_ns),
            tasks: BTreeMap::new(),
            cpus: HashMap::new(),
            timerlat_irq: HashMap::new(),
            last_sample: HashMap::new(),
            samples: Samples::new(),
            noises: Samples::new(),
            marked: None,
            marked_threshold_ns: None,
            stopped_at_ns: None,
            hwlat_least_ns: None,
            seen: Seen::default(),
            by_lines,
        }
    }

    /// Takes the next event.
    pub(super) fn event(&mut self, event: &Event, reader: &dyn Reader) {
        self.seen.events += 1;
        self.seen.last_ns = self.seen.last_ns.max(event.at_ns);
        if self.by_lines {
            self.line(event, reader);
        }
        match event.kind {
            EventKind::Switch { previous, state, next } => {
                self.seen.switches += 1;
                self.switched(event, previous, state, next);
            }
            EventKind::Waking { task, .. } | EventKind::Wakeup { task, .. } => {
                self.seen.wakeups += 1;
                // It holds no lock, so no priority is inherited: this is its own.
                let track = self.task(task.pid, Some(task.command), Some(task.priority));
                // A task that has not run yet was asleep since before the trace.
                if track.out.is_some() || track.last_in.is_none() {
                    track.wake.get_or_insert(event.at_ns);
                }
            }
            EventKind::TimerStart { function, expires_ns, .. } => {
                self.seen.timer_starts += 1;
                let sleeper =
                    reader.symbol(function).is_some_and(|(name, _)| vocabulary::wakes_a_sleeper(name));
                if let Some(pid) = event.pid.filter(|pid| sleeper && *pid != 0 && !event.context.hard_irq) {
                    self.task(pid, event.command, None).armed = Some((expires_ns, event.at_ns));
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
            | EventKind::NoiseGap { .. } => self.noise(event),
            EventKind::Function { .. } | EventKind::GraphEntry { .. } => self.seen.functions += 1,
            EventKind::Lost { events } => self.seen.lost += events.unwrap_or(1),
            _ => {}
        }
    }

    fn task(&mut self, pid: u32, command: Option<Name>, priority: Option<i32>) -> &mut TaskTrack {
        let track = self.tasks.entry(pid).or_default();
        track.command = command.or(track.command);
        // It may have become a real-time task after its start, and ceased to be one before its end. What was before is no
        // latency of a real-time task.
        match (track.priority, priority) {
            (Some(PRIORITY_NORMAL..), Some(new @ ..PRIORITY_NORMAL)) => track.becomes_realtime(new),
            (Some(known), Some(new)) => track.priority = Some(known.min(new)),
            (known, new) => track.priority = known.or(new),
        }
        track
    }

    /// A switch, where only the threads of the lines tell it.
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
        if let EventKind::Function { function, .. } = event.kind
            && let Some((name, _)) = reader.symbol(function)
        {
            match vocabulary::class_of(name) {
                Class::Preemption => preempted = true,
                Class::Dequeue => preempted = false,
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
        self.enter(event.at_ns, event.cpu, next.pid, Some(next.command), None);
    }

    /// `priority` is the task's own.
    fn leave(&mut self, pid: u32, command: Option<Name>, priority: Option<i32>, out: Out) {
        if pid != 0 {
            let track = self.task(pid, command, priority);
            track.out = Some(out);
            track.wake = None;
        }
    }

    fn enter(&mut self, at_ns: u64, cpu: CpuId, pid: u32, command: Option<Name>, priority: Option<i32>) {
        if pid == 0 {
            return;
        }
        let (options, timers) = (self.options, self.seen.timer_starts > 0);
        let clock = std::mem::take(&mut self.clock);
        let track = self.task(pid, command, priority);
        let out = track.out.take();
        if let Some(out) = out {
            let slept = out.state != TaskState::Runnable;
            if slept {
                track.wakeups += 1;
                track.rhythm.beat(at_ns);
            }
            match track.late(pid, cpu, at_ns, out, &clock, options, timers) {
                Some(late) => track.add(late, options),
                None => track.unknown += u64::from(slept),
            }
            if slept {
                track.armed = None;
            }
        } else if let Some(wake) = track.wake {
            track.wakeups += 1;
            let woken = Out { at_ns: wake, state: TaskState::Blocked('S'), cpu, for_lesser: false };
            let late = track.late(pid, cpu, at_ns, woken, &clock, options, false);
            if let Some(late) = late {
                track.add(late, options);
            }
        }
        track.last_in = Some((at_ns, cpu, out.map_or(0, |out| out.at_ns)));
        track.wake = None;
        self.clock = clock;
    }

    /// A break marker says how late its thread was; a tracer says that it stopped the trace.
    fn print(&mut self, event: &Event, text: &str) {
        if marker::is_stop(text) {
            let latency_ns = self.last_sample.get(&event.cpu).copied();
            self.stopped_at_ns = latency_ns.into_iter().chain(self.stopped_at_ns).min();
        }
        let (Some((latency_ns, threshold_ns)), Some(pid)) = (marker::read(text), event.pid) else { return };
        let is_first = self.marked.replace(pid).is_none();
        self.marked_threshold_ns = threshold_ns.or(Some(latency_ns.saturating_sub(1)));
        let options = self.options;
        let track = self.task(pid, event.command, None);
        let (actual_ns, cpu, since_ns) = track.last_in.unwrap_or((event.at_ns, event.cpu, 0));
        let expected_ns = actual_ns.saturating_sub(latency_ns);
        let known = track.late.take_at(actual_ns, options.least_ns());
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
        // Those that were longer would keep it out.
        for track in self.tasks.values_mut().filter(|track| is_first && track.command == command) {
            track.forget_before(late.expected_ns);
        }
        self.task(pid, None, None).late.push(late, options.top, options.least_ns());
    }
}

impl TaskTrack {
    /// Forgets what it was late by as an ordinary task.
    fn becomes_realtime(&mut self, priority: i32) {
        let Self { command, out, wake, armed, last_in, .. } = *self;
        *self = Self { command, priority: Some(priority), out, wake, armed, last_in, ..Self::default() };
    }

    /// Forgets what ended before that moment: a task that stops at the first latency above its limit had none before.
    fn forget_before(&mut self, at_ns: u64) {
        for list in [&mut self.late, &mut self.preempted, &mut self.shared, &mut self.blocked] {
            list.forget_before(at_ns);
        }
    }

    fn add(&mut self, late: Late, options: &Options) {
        let list = match late.kind {
            LateKind::Blocked => &mut self.blocked,
            LateKind::Preempted { .. } if late.priority.is_some_and(|own| own < PRIORITY_NORMAL) => {
                &mut self.preempted
            }
            LateKind::Preempted { .. } => &mut self.shared,
            _ => &mut self.late,
        };
        list.push(late, options.top, options.least_ns());
        self.inferred += u64::from(late.from == ExpectedFrom::Period && options.period_ns.is_none());
    }

    /// When it was woken and has not run since.
    pub(super) fn waits_since_ns(&self) -> Option<u64> {
        self.wake.filter(|_| self.out.is_some() || self.last_in.is_none())
    }

    /// How late the task is that runs at `actual_ns` again after it left the CPU; `None` when nothing tells.
    #[allow(clippy::too_many_arguments, reason = "the moment and all that is known of it")]
    fn late(
        &self,
        pid: u32,
        cpu: CpuId,
        actual_ns: u64,
        out: Out,
        clock: &Alignment,
        options: &Options,
        timers: bool,
    ) -> Option<Late> {
        let Out { at_ns: out_ns, state, .. } = out;
        let late = |expected_ns, from, error_ns, kind| Late {
            pid: Some(pid),
            command: self.command,
            priority: self.priority,
            error_ns,
            since_ns: out_ns,
            ..Late::new(cpu, expected_ns, actual_ns, from, kind)
        };
        let realtime = self.priority.is_some_and(|priority| priority < PRIORITY_NORMAL);
        if state == TaskState::Runnable {
            let kind = LateKind::Preempted { cpu: out.cpu, for_lesser: out.for_lesser };
            return Some(late(out_ns, ExpectedFrom::Interrupted, 0, kind));
        }
        let blocked = matches!(state, TaskState::Blocked('D')) || (timers && self.armed.is_none());
        let woken = self.wake.unwrap_or(actual_ns);
        if let Some((expires_ns, armed_ns)) = self.armed
            && let Some((expected, error)) = clock.to_trace(expires_ns, armed_ns)
            && expected <= woken.saturating_add(TIMER_SLACK_NS + error)
        {
            let expected = expected.clamp(out_ns, actual_ns);
            return Some(late(expected, ExpectedFrom::Timer, error, LateKind::Wakeup));
        }
        // Its timer is on another CPU: this sleep is part of its work.
        if blocked && (realtime || options.what == Some(LateWhat::Blocked)) {
            return Some(late(out_ns, ExpectedFrom::Interrupted, 0, LateKind::Blocked));
        }
        if self.armed.is_none()
            && let Some(period) = self.period_ns(options)
            && let expected = out_ns.saturating_add(period)
            && expected <= woken
        {
            return Some(late(expected, ExpectedFrom::Period, 0, LateKind::Wakeup));
        }
        Some(late(self.wake?, ExpectedFrom::Wakeup, 0, LateKind::Wakeup))
    }

    /// The period to add to the moment at which the task went to sleep: given, or its rhythm's.
    fn period_ns(&self, options: &Options) -> Option<u64> {
        let Some(given) = options.period_ns else { return self.rhythm.period_ns() };
        let enough = self.rhythm.known() >= 8;
        let misfit =
            self.rhythm.median_ns().is_some_and(|median| median > given.saturating_mul(PERIOD_MISFIT));
        let normal = self.priority.is_some_and(|priority| priority >= PRIORITY_NORMAL);
        let fits = !enough || !misfit;
        (fits && !normal).then_some(given)
    }
}
