//! The scheduler and timer events of a trace from which latencies are counted.

use whylate_core::CpuId;
use whylate_trace::event::{Event, EventKind, Names, Task};

/// A task in a scheduler event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) pid: u32,
    /// The kernel's own number: 0 is the highest real-time priority.
    pub(super) priority: i32,
    pub(super) command: Box<str>,
}

impl Who {
    fn of(task: Task, names: &Names) -> Self {
        Self { pid: task.pid, priority: task.priority, command: names.text(task.command).into() }
    }
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) at_ns: u64,
    pub(super) cpu: CpuId,
    pub(super) pid: u32,
    pub(super) in_softirq: bool,
    pub(super) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A timer is armed; its expiry is on its own clock.
    Armed {
        timer: u64,
        expires_ns: u64,
    },
    Disarmed {
        timer: u64,
    },
    /// A timer's handler begins; the time is on the timer's clock.
    Expired {
        timer: u64,
        now_ns: u64,
    },
    Handled,
    Waking(Who),
    /// The scheduler has decided which task runs next.
    Switch {
        previous: Who,
        next: Who,
    },
    /// The kernel dropped events; how many, if it says so.
    Lost(Option<u64>),
}

impl Step {
    /// The step for an event; `None` for other events.
    pub(super) fn of(event: &Event, names: &Names) -> Option<Self> {
        let what = match event.kind {
            EventKind::TimerStart { timer, expires_ns, .. } => What::Armed { timer, expires_ns },
            EventKind::TimerCancel { timer } => What::Disarmed { timer },
            EventKind::TimerExpire { timer, now_ns, .. } => What::Expired { timer, now_ns },
            EventKind::TimerExpireExit { .. } => What::Handled,
            EventKind::Waking { task, .. } => What::Waking(Who::of(task, names)),
            EventKind::Switch { previous, next, .. } => {
                What::Switch { previous: Who::of(previous, names), next: Who::of(next, names) }
            }
            EventKind::Lost { events } => What::Lost(events),
            _ => return None,
        };
        let context = event.context;
        Some(Self {
            at_ns: event.at_ns,
            cpu: event.cpu,
            pid: event.pid.unwrap_or(0),
            in_softirq: context.softirq && !context.hard_irq,
            what,
        })
    }
}
