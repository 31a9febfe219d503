//! Bounds every busy loop at real-time priority: a thread on another CPU ends the measurement, and then the process,
//! when the measuring threads do not end by themselves.

use crate::layout::Header;
use crate::spec::ProbeSpec;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use whylate_core::MonoTime;
use whylate_core::plan::Policy;
use whylate_sys::schedule::{self, Scheduling};
use whylate_sys::{clock, process};

/// How long after the end the measuring threads are asked again to stop, and how long after that the process is ended.
const GRACE: Duration = Duration::from_secs(2);

/// Exit status of a process that the watchdog ended.
pub(crate) const WATCHDOG_STATUS: i32 = 75;

/// Signals the watching thread that the measurement is over.
#[derive(Default)]
pub(super) struct Watchdog {
    is_done: Mutex<bool>,
    changed: Condvar,
}

/// Whether a watchdog is needed. This is so if the measuring threads can keep a CPU from all other tasks and there is a CPU
/// to watch them from. It is also so if they wait for each other: a stuck one must be released.
pub(super) fn is_needed(spec: &ProbeSpec) -> bool {
    spec.peer_cpu().is_some()
        || !spec.other_cpus.is_empty() && matches!(spec.policy, Policy::Fifo | Policy::Rr)
}

impl Watchdog {
    /// Sleeps until the measurement is over or overdue. If it is overdue, asks the threads to stop and calls `release`, which
    /// wakes threads that wait for each other.
    pub(super) fn watch(&self, header: Header<'_>, end: MonoTime, release: impl Fn()) {
        // A priority above every measuring thread. If the kernel refuses it, it also refused the measuring threads' priority.
        let _ = schedule::schedule_this_thread(Scheduling::Fifo(99));
        schedule::prefault_stack::<16>();
        let left = Duration::from_nanos(end.0.saturating_sub(clock::now().0)) + GRACE;
        if self.is_done_within(left) {
            return;
        }
        header.stop().store(1, Relaxed);
        release();
        if !self.is_done_within(GRACE) {
            process::exit_now(WATCHDOG_STATUS);
        }
    }

    pub(super) fn done(&self) {
        if let Ok(mut is_done) = self.is_done.lock() {
            *is_done = true;
            self.changed.notify_all();
        }
    }

    fn is_done_within(&self, time: Duration) -> bool {
        // A poisoned lock means that the other side panicked, and there is nothing left to watch.
        let Ok(guard) = self.is_done.lock() else { return true };
        self.changed
            .wait_timeout_while(guard, time, |is_done| !*is_done)
            .map_or(true, |(is_done, _)| *is_done)
    }
}
