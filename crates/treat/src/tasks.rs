//! Threads and processes of the machine, each with what distinguishes it from a later one with the same number.

use crate::change::Task;
use whylate_core::CpuSet;
use whylate_core::result::ThreadRow;
use whylate_host::HostRoot;
use whylate_host::threads::{Stat, allowed_cpus};

impl Task {
    /// The thread `tid` of process `pid`; `None` when there is none.
    pub fn find(root: &HostRoot, pid: u32, tid: u32) -> Option<Self> {
        Self::parse(pid, tid, &read(root, pid, tid, "stat")?)
    }

    /// The thread of a row; `None` when it has ended since.
    pub fn of(root: &HostRoot, row: &ThreadRow) -> Option<Self> {
        Self::find(root, row.pid, row.tid)
    }

    fn parse(pid: u32, tid: u32, stat: &str) -> Option<Self> {
        let stat = Stat::parse(stat)?;
        Some(Self { pid, tid, start_ticks: stat.number(22)?, name: stat.name.to_owned() })
    }

    /// Whether this very thread still exists.
    pub fn is_alive(&self, root: &HostRoot) -> bool {
        Self::find(root, self.pid, self.tid).is_some_and(|now| now.start_ticks == self.start_ticks)
    }

    /// The CPUs that it may use (`Cpus_allowed_list`, which has those that are offline, too); `None` when it ended.
    pub fn affinity(&self, root: &HostRoot) -> Option<CpuSet> {
        allowed_cpus(&read(root, self.pid, self.tid, "status")?)
    }

    /// Its state as one letter: `R`, `S`, `D`, `T`, …; `None` when it ended.
    pub fn state(&self, root: &HostRoot) -> Option<char> {
        Stat::parse(&read(root, self.pid, self.tid, "stat")?)?.field(3)?.chars().next()
    }
}

/// A file of a thread; `None` when it has ended, also while the file was read (ESRCH).
fn read(root: &HostRoot, pid: u32, tid: u32, file: &str) -> Option<String> {
    root.read(&format!("/proc/{pid}/task/{tid}/{file}")).ok()?
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_host::threads::Threads;

    #[test]
    fn this_thread_is_found_and_another_start_is_another_thread() {
        let root = HostRoot::real();
        let pid = std::process::id();
        let task = Task::find(&root, pid, pid).unwrap();
        assert!(task.is_alive(&root));
        assert!(!task.affinity(&root).unwrap().is_empty());
        assert!(!Task { start_ticks: task.start_ticks + 1, ..task.clone() }.is_alive(&root));
        let threads = Threads::read(&root).unwrap();
        assert!(threads.rows.iter().any(|row| Task::of(&root, row).as_ref() == Some(&task)));
    }

    #[test]
    fn names_may_hold_brackets() {
        let stat = "7 (a) (b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        let task = Task::parse(7, 7, stat).unwrap();
        assert_eq!((task.name.as_str(), task.start_ticks), ("a) (b", 4242));
        assert_eq!(Stat::parse(stat).unwrap().field(3), Some("S"));
        assert_eq!(Task::parse(7, 7, "7 (a"), None);
        assert_eq!(Task::parse(7, 7, ")("), None);
    }
}
