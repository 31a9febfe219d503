//! Ends the command and all its descendants, politely first, and never waits for ever.

use crate::child::{LoadContext, LoadEvent, after};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use whylate_core::MonoTime;
use whylate_host::family;
use whylate_sys::clock;

/// Time between SIGTERM and SIGKILL.
const GRACE_NS: u64 = 2_000_000_000;
/// Time after SIGKILL in which everything must be gone.
const KILL_NS: u64 = 2_000_000_000;
/// Time between two looks for processes that were handed over meanwhile.
const LOOK_NS: u64 = 20_000_000;

/// Ends the group of `leader` and all descendants of this process; returns those that survive even SIGKILL.
pub(super) fn end(leader: Pid, context: &LoadContext) -> Vec<Pid> {
    // An error means that the process has already ended.
    let _ = kill_process_group(leader, Signal::TERM);
    signal_each(Signal::TERM);
    let grace = after(clock::now(), GRACE_NS);
    let limit = after(grace, KILL_NS);
    loop {
        let left = descendants();
        if left.is_empty() {
            return left;
        }
        let now = clock::now();
        if now >= limit {
            return left;
        }
        if now >= grace {
            let _ = kill_process_group(leader, Signal::KILL);
            signal_each(Signal::KILL);
        }
        wait_a_little(context, after(now, LOOK_NS));
    }
}

/// Until `moment`, or until a child has ended, so that the last one's end is seen at once.
fn wait_a_little(context: &LoadContext, moment: MonoTime) {
    while let Some(event) = context.event_until(moment) {
        if let LoadEvent::Matched { .. } | LoadEvent::OutputEnded(_) = event {
            // What the command prints while it is being ended is kept in the file; it does not count as a rate of the
            // load.
            continue;
        }
        if let LoadEvent::Exited { .. } | LoadEvent::Childless = event {
            return;
        }
    }
}

fn signal_each(signal: Signal) {
    for pid in descendants() {
        let _ = kill_process(pid, signal);
    }
}

/// Everything that the command started is among them, because a process that loses its parent becomes a child of this one.
fn descendants() -> Vec<Pid> {
    let all = family::descendants(std::process::id());
    all.into_iter().filter_map(|pid| Pid::from_raw(pid as i32)).collect()
}
