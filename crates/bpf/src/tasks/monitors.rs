//! Warnings of the kernel's runtime verification monitors of the family `rtapp` about watched threads.
//!
//! The monitors tell each warning by an event of their own; nothing is switched on or off here. Kernels before 6.17, and those
//! built without them, have no such event.

use super::build::Track;
use crate::events::{Event, event};
use whylate_core::CpuId;
use whylate_explain::activation::Activation;

/// A monitor of the kernel, in the order of the numbers that the programs give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KernelMonitor {
    /// A real-time thread slept in a way that lets threads of lower priority delay it.
    Sleep,
    /// A real-time thread touched memory that was not there.
    PageFault,
    /// A real-time thread was woken by a thread of lower priority, or by a softirq.
    Wakeup,
}

impl KernelMonitor {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Sleep, Self::PageFault, Self::Wakeup];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Sleep => "sleep",
            Self::PageFault => "pagefault",
            Self::Wakeup => "wakeup",
        }
    }

    pub(super) const fn event(self) -> Event {
        match self {
            Self::Sleep => event("warned_sleep", "error_sleep"),
            Self::PageFault => event("warned_pagefault", "error_pagefault"),
            Self::Wakeup => event("warned_wakeup", "error_wakeup"),
        }
    }
}

/// That a monitor warned of a watched thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonitorWarning {
    /// Which one.
    pub monitor: KernelMonitor,
    pub thread: u32,
    pub command: String,
    pub cpu: CpuId,
    /// When, on CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// The response of the activation in which that was; `None` where it was in none that was seen whole.
    pub response_ns: Option<u64>,
}

/// So many warnings of a thread wait for the end of its activation.
const WAITING_MAX: usize = 1_024;

impl Track {
    /// The warnings of which it is known now in which activation they were: one of those that `ended`, one that is still
    /// open (these stay), or none.
    pub(super) fn settle_warnings(&mut self, ended: &[&Activation]) -> Vec<MonitorWarning> {
        let open_ns = self.open.as_ref().map(|open| open.due_ns).filter(|_| self.warned.len() < WAITING_MAX);
        let is_settled = |one: &mut MonitorWarning| open_ns.is_none_or(|due_ns| one.at_ns < due_ns);
        let mut settled: Vec<MonitorWarning> = self.warned.extract_if(.., is_settled).collect();
        for one in &mut settled {
            let around = ended.iter().find(|it| it.due_ns <= one.at_ns && one.at_ns <= it.end_ns());
            one.response_ns = around.map(|it| it.response_ns());
        }
        settled
    }
}

#[cfg(all(test, feature = "bpf"))]
mod tests {
    use super::super::{TaskTarget, TaskWatch};
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::time::{Duration, Instant};
    use whylate_core::Facts;
    use whylate_host::HostRoot;
    use whylate_sys::schedule;
    use whylate_testing::{Need, skip};

    /// Few kernels have these monitors: an event of others that tells of a thread in the same way stands for theirs.
    #[test]
    fn the_program_of_a_monitor_tells_of_which_thread_it_warned_and_in_which_activation() {
        let cpus = schedule::allowed_of_this_thread().unwrap();
        let target = TaskTarget::Name("wl-warned".to_owned());
        let started = TaskWatch::start(&HostRoot::at("/"), &cpus, &target, &Facts::default());
        let Ok(mut watch) = started.inspect_err(|error| skip(Need::Rights, error)) else { return };
        if watch.has_monitors() {
            return skip(
                Need::Machine("a kernel without runtime monitors"),
                "this kernel has the monitors, and their programs are in use",
            );
        }
        let Event { function, .. } = KernelMonitor::PageFault.event();
        assert_eq!(watch.causes.attach(&[event(function, "sched_wakeup")]).unwrap(), None);
        static STOP: AtomicBool = AtomicBool::new(false);
        let work = || {
            while !STOP.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
            schedule::id_of_this_thread()
        };
        let thread = std::thread::Builder::new().name("wl-warned".to_owned()).spawn(work).unwrap();
        let (begin, mut warnings, mut responses) = (Instant::now(), Vec::new(), Vec::new());
        while warnings.len() < 20 && begin.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(20));
            responses.extend(watch.poll().unwrap().iter().map(Activation::response_ns));
            warnings.extend(watch.monitor_warnings());
        }
        STOP.store(true, SeqCst);
        let id = thread.join().unwrap();
        assert!(warnings.len() >= 20, "{warnings:?}");
        let is_right = |it: &MonitorWarning| {
            (it.monitor, it.thread, it.command.as_str()) == (KernelMonitor::PageFault, id, "wl-warned")
        };
        assert!(warnings.iter().all(is_right), "{warnings:?}");
        let inside: Vec<u64> = warnings.iter().filter_map(|it| it.response_ns).collect();
        assert!(inside.len() >= 15 && inside.iter().all(|it| responses.contains(it)), "{warnings:?}");
    }
}
