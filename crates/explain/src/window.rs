//! Second pass: the events around one spike.

use crate::find::late::Late;
use std::cell::OnceCell;
use std::collections::HashMap;
use whylate_core::CpuId;
use whylate_trace::event::{Context, Event, EventKind, Name, NoiseSource, Vector};
use whylate_trace::parse::ParseError;
use whylate_trace::reader::{Reader, Selection};

/// The most events of one window that are kept; of a longer one the later part. With all derived data they take some 300 MB.
const EVENTS_MAX: usize = 3 << 17;
/// The window begins at most this long before the expected moment, and twice the latency.
const BEFORE_NS: u64 = 20_000_000;
/// How much is read before the task's last switch away: what it did just before, which takes longer under heavy tracing.
pub(crate) const MARGIN_NS: u64 = 1_000_000;
/// How long before the window armed timers are remembered: a tick of 100 Hz.
const ARMED_BEFORE_NS: u64 = 10_000_000;
/// How much is read after the actual moment, for stacks that are recorded late.
const AFTER_NS: u64 = 1_000_000;
/// The part of the latency that is read in addition: CPUs that stood still go on one after the other.
const AFTER_PART: u64 = 32;
/// But no more than this.
const AFTER_PART_MAX_NS: u64 = 20_000_000;

/// Timers that are armed, and when each expires on its own clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct ArmedTimers {
    armed: HashMap<u64, u64>,
    /// The last cancelled timer of each CPU, with its expiry: some kernels record an expiring timer as cancelled just before
    /// it expires.
    cancelled: HashMap<CpuId, (u64, u64)>,
}

impl ArmedTimers {
    /// Follows the timers of an event. Returns by how many nanoseconds a known timer that expires is late.
    pub(crate) fn follow(&mut self, event: &Event) -> Option<u64> {
        match event.kind {
            EventKind::TimerStart { timer, expires_ns, .. } => {
                self.armed.insert(timer, expires_ns);
                None
            }
            EventKind::TimerCancel { timer } => {
                if let Some(expires_ns) = self.armed.remove(&timer) {
                    self.cancelled.insert(event.cpu, (timer, expires_ns));
                }
                None
            }
            EventKind::TimerExpire { timer, now_ns, .. } => {
                let cancelled = self.cancelled.remove(&event.cpu).filter(|(of, _)| *of == timer);
                let expires_ns = self.armed.remove(&timer).or(cancelled.map(|(_, expires_ns)| expires_ns));
                expires_ns.map(|expires_ns| now_ns.saturating_sub(expires_ns))
            }
            _ => None,
        }
    }
}

/// A part of the trace in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    /// In the order of time.
    pub(crate) events: Vec<Event>,
    pub(crate) from: u64,
    /// The end of the requested time.
    pub(crate) to: u64,
    /// The window was too long: its start is missing.
    pub(crate) truncated: bool,
    /// Events that were lost in it.
    pub(crate) lost: u64,
    /// Timers that were armed shortly before it and had not expired at its start.
    pub(crate) armed: ArmedTimers,
    /// Commands of the threads that its events name.
    pub(crate) commands: HashMap<u32, Name>,
    /// The places of the events of each CPU; built on first use, since the events do not change afterwards.
    pub(crate) by_cpu: OnceCell<HashMap<CpuId, Vec<u32>>>,
}

/// Reads the window of a spike.
pub(crate) fn read(reader: &mut dyn Reader, late: &Late) -> Result<Window, ParseError> {
    let most = late.latency_ns().saturating_mul(2).saturating_add(BEFORE_NS);
    let from = late.since_ns.max(late.expected_ns.saturating_sub(most)).min(late.expected_ns);
    let after = AFTER_NS + (late.latency_ns() / AFTER_PART).min(AFTER_PART_MAX_NS);
    let end = late.actual_ns.saturating_add(after);
    let from = from.saturating_sub(MARGIN_NS);
    reader.seek(Some(from.saturating_sub(ARMED_BEFORE_NS)), Selection::All)?;
    let mut window = Window { from, to: late.actual_ns, ..Window::default() };
    let ambiguous =
        reader.info().kernel.as_deref().is_some_and(|kernel| kernel == "2.6" || kernel.starts_with("2.6."));
    while let Some(mut event) = reader.next()? {
        // Old kernels show `s` in a softirq and also while a thread disables them.
        let context = &mut event.context;
        if ambiguous && context.softirq && !context.hard_irq {
            (context.softirq, context.preempt_depth) =
                (false, Some(context.preempt_depth.unwrap_or(0).max(1)));
        }
        if event.at_ns > end {
            break;
        }
        if event.at_ns < from {
            window.armed.follow(&event);
            continue;
        }
        if window.events.len() >= EVENTS_MAX {
            window.drop_first(EVENTS_MAX / 4);
        }
        window.take(event, late);
    }
    // Each noise becomes two events.
    let noises = window.events.iter().filter(|event| matches!(event.kind, EventKind::Noise { .. })).count();
    if window.events.len() + noises > EVENTS_MAX {
        window.drop_first(window.events.len() - EVENTS_MAX / 2);
    }
    window.unfold_noise();
    // In a text joined from several traces, time may go backwards.
    window.events.sort_by_key(|event| event.at_ns);
    Ok(window)
}

impl Window {
    /// The places of the events of a CPU, ascending.
    pub(crate) fn own(&self, cpu: CpuId) -> &[u32] {
        let by_cpu = self.by_cpu.get_or_init(|| {
            let mut by_cpu: HashMap<CpuId, Vec<u32>> = HashMap::new();
            for (place, event) in self.events.iter().enumerate() {
                by_cpu.entry(event.cpu).or_default().push(place as u32);
            }
            by_cpu
        });
        by_cpu.get(&cpu).map_or(&[], |own| own)
    }

    /// The events of a CPU among the first `end` of all, the latest first.
    pub(crate) fn own_before(&self, cpu: CpuId, end: usize) -> impl Iterator<Item = &Event> {
        let places = self.own(cpu);
        let until = places.partition_point(|place| (*place as usize) < end);
        places[..until].iter().rev().map(|place| &self.events[*place as usize])
    }

    /// The events of a CPU from that moment on.
    pub(crate) fn own_since(&self, cpu: CpuId, at_ns: u64) -> impl Iterator<Item = &Event> {
        let places = self.own(cpu);
        let first = places.partition_point(|place| self.events[*place as usize].at_ns < at_ns);
        places[first..].iter().map(|place| &self.events[*place as usize])
    }

    fn drop_first(&mut self, count: usize) {
        self.events.drain(..count);
        self.truncated = true;
    }

    fn take(&mut self, event: Event, late: &Late) {
        if let (EventKind::Lost { events }, true) = (event.kind, event.at_ns <= late.actual_ns) {
            self.lost += events.unwrap_or(1);
        }
        if let Some((pid, command)) = event.pid.zip(event.command) {
            self.commands.entry(pid).or_insert(command);
        }
        // The names of lines are cut short in some formats; those of scheduler events are not.
        match event.kind {
            EventKind::Switch { previous, next, .. } => {
                self.commands.extend([previous, next].map(|task| (task.pid, task.command)));
            }
            EventKind::Waking { task, .. }
            | EventKind::Wakeup { task, .. }
            | EventKind::Migrate { task, .. } => {
                self.commands.insert(task.pid, task.command);
            }
            _ => {}
        }
        self.events.push(event);
    }

    /// The osnoise tracer records noise when it ends: its start becomes an event of its own.
    fn unfold_noise(&mut self) {
        let before = self.events.len();
        for index in 0..before {
            let event = self.events[index];
            let EventKind::Noise { source, start_ns, .. } = event.kind else { continue };
            let (pid, kind) = match source {
                NoiseSource::Irq { name, .. } => {
                    (event.pid, EventKind::VectorEntry { vector: Vector::Other(name) })
                }
                NoiseSource::Softirq { vector } => (event.pid, EventKind::SoftirqEntry { vector }),
                // From here on it ran.
                NoiseSource::Thread { pid, command } => {
                    (Some(pid), EventKind::Other { system: None, name: command })
                }
                NoiseSource::Nmi => continue,
            };
            // The flags are those at the end; those at the start of the thread are unknown.
            let begins = matches!(kind, EventKind::VectorEntry { .. } | EventKind::SoftirqEntry { .. });
            let context = if begins { event.context } else { Context::default() };
            if start_ns < event.at_ns {
                self.events.push(Event { at_ns: start_ns, pid, kind, context, ..event });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_trace::event::Symbol;

    #[test]
    fn a_timer_that_is_cancelled_just_before_it_expires_is_known() {
        let mut timers = ArmedTimers::default();
        let mut follow = |cpu: u32, kind: EventKind| {
            let (cpu, context) = (CpuId(cpu), Context::default());
            timers.follow(&Event { at_ns: 0, cpu, pid: None, command: None, context, offset: 0, kind })
        };
        let function = Symbol::Address(9);
        for (cancelled_on, late_ns) in [(0, Some(40)), (1, None)] {
            follow(0, EventKind::TimerStart { timer: 7, function, expires_ns: 100 });
            follow(cancelled_on, EventKind::TimerCancel { timer: 7 });
            assert_eq!(follow(0, EventKind::TimerExpire { timer: 7, function, now_ns: 140 }), late_ns);
            assert_eq!(follow(0, EventKind::TimerExpire { timer: 7, function, now_ns: 140 }), None, "over");
        }
    }
}
