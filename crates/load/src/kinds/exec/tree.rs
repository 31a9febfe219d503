//! Ends the command and all its descendants, politely first, and never waits for ever.

use crate::child::{LoadContext, LoadEvent, after};
use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};
use std::collections::BTreeMap;
use whylate_core::MonoTime;
use whylate_host::threads::Stat;
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

/// All processes that descend from this one and are still running. Everything that the command started is among them,
/// because a process that loses its parent becomes a child of this one.
fn descendants() -> Vec<Pid> {
    let mut parents = BTreeMap::new();
    let Ok(folder) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    for entry in folder.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // A process that has ended meanwhile is left out.
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        if let Some(parent) = living_parent(&stat) {
            parents.insert(pid, parent);
        }
    }
    below(getpid().as_raw_nonzero().get(), &parents).into_iter().filter_map(Pid::from_raw).collect()
}

/// The parent in a line of /proc/PID/stat; `None` for a zombie, which only waits to be reaped.
fn living_parent(stat: &str) -> Option<i32> {
    let stat = Stat::parse(stat)?;
    let parent = stat.field(4)?.parse().ok()?;
    (!matches!(stat.field(3)?, "Z" | "X")).then_some(parent)
}

/// Those whose chain of parents leads to `root`.
fn below(root: i32, parents: &BTreeMap<i32, i32>) -> Vec<i32> {
    let leads_to_root = |pid: &i32| {
        let mut at = *pid;
        // Bounded, since /proc may be inconsistent while processes start and end.
        for _ in 0..parents.len() {
            match parents.get(&at) {
                Some(parent) if *parent == root => return true,
                Some(parent) => at = *parent,
                None => return false,
            }
        }
        false
    };
    parents.keys().copied().filter(leads_to_root).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_lines_of_hostile_names() {
        assert_eq!(living_parent("12 (cat) S 7 12 12 0"), Some(7));
        assert_eq!(living_parent("12 (a) S 1 (b) R 9 12 12 0"), Some(9));
        assert_eq!(living_parent("12 (gone) Z 7 12 12 0"), None);
        assert_eq!(living_parent("torn"), None);
    }

    #[test]
    fn a_tree_is_followed_to_its_leaves() {
        let parents = BTreeMap::from([(2, 1), (10, 5), (11, 10), (12, 11), (13, 99), (20, 21), (21, 20)]);
        assert_eq!(below(5, &parents), [10, 11, 12]);
        assert_eq!(below(99, &parents), [13]);
        assert!(below(12, &parents).is_empty());
    }
}
