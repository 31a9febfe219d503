//! Second pass: whether the examined task slept for a lock or a page fault, by the rules that hold in a window.

use crate::window::MARGIN_NS;
use whylate_core::CpuId;
use whylate_trace::event::{Event, EventKind};

/// At most this many events of the task are checked to find why it blocked.
pub(crate) const OWN_EVENTS_MAX: usize = 4096;

/// What an event of the task says about its next sleep.
#[derive(Clone, Copy, Debug)]
struct Sign {
    at_ns: u64,
    cpu: CpuId,
    /// Its number among the events of the task.
    nth: usize,
    is_so: bool,
}

/// The last sleep of a task.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SleepReason {
    events: usize,
    lock: Option<Sign>,
    fault: Option<Sign>,
    is_for_lock: bool,
    /// Where it had a page fault just before.
    faulted_on: Option<CpuId>,
}

impl SleepReason {
    /// Takes an event of the task `pid`.
    pub(crate) fn follow(&mut self, event: &Event, pid: u32) {
        self.events += 1;
        let nth = self.events;
        let sign = |is_so| Sign { at_ns: event.at_ns, cpu: event.cpu, nth, is_so };
        match event.kind {
            EventKind::LockWait { .. } => (self.lock, self.fault) = (Some(sign(true)), Some(sign(false))),
            EventKind::PriorityInherited { task, .. } if task.pid != pid => self.lock = Some(sign(true)),
            EventKind::LockWaitEnd { .. } => self.lock = Some(sign(false)),
            EventKind::Switch { next, .. } if next.pid == pid => self.lock = Some(sign(false)),
            EventKind::PageFault { .. } => self.fault = Some(sign(true)),
            EventKind::SyscallEnter { .. } => self.fault = Some(sign(false)),
            _ => {}
        }
    }

    /// The task leaves its CPU.
    pub(crate) fn begin(&mut self, at_ns: u64) {
        let events = self.events;
        let holds = |sign: &Sign| {
            let is_near = at_ns.saturating_sub(sign.at_ns) <= MARGIN_NS;
            sign.is_so && is_near && events.saturating_sub(sign.nth) < OWN_EVENTS_MAX
        };
        self.is_for_lock = self.lock.is_some_and(|sign| holds(&sign));
        self.faulted_on = self.fault.filter(holds).map(|sign| sign.cpu);
    }

    /// Whether a task that runs on `cpu` afterwards waited for a lock or a page fault.
    pub(crate) fn is_explained(&self, cpu: CpuId) -> bool {
        self.is_for_lock || self.faulted_on == Some(cpu)
    }
}
