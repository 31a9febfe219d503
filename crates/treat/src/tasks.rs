//! Threads and processes of the machine, each with what tells it from a later one of the same number.

use crate::change::Task;
use whylate_core::CpuSet;
use whylate_host::{HostError, HostRoot};

impl Task {
    /// The thread `tid` of process `pid`; `None` when there is none.
    ///
    /// # Errors
    /// As [`HostRoot::read`].
    pub fn find(root: &HostRoot, pid: u32, tid: u32) -> Result<Option<Self>, HostError> {
        let stat = root.read(&format!("/proc/{pid}/task/{tid}/stat"));
        // The kernel answers ESRCH when the thread ends while its file is read.
        let Some(stat) = stat.unwrap_or_default() else { return Ok(None) };
        Ok(Self::parse(pid, tid, &stat))
    }

    fn parse(pid: u32, tid: u32, stat: &str) -> Option<Self> {
        let (begin, end) = (stat.find('(')?, stat.rfind(')')?);
        let name = stat.get(begin + 1..end)?.to_owned();
        let start_ticks = field(stat, 22)?.parse().ok()?;
        Some(Self { pid, tid, start_ticks, name })
    }

    /// Whether this very thread is still there.
    pub fn is_alive(&self, root: &HostRoot) -> bool {
        matches!(Self::find(root, self.pid, self.tid), Ok(Some(now)) if now.start_ticks == self.start_ticks)
    }

    /// The CPUs that it may use (`Cpus_allowed_list`, which has those that are offline, too); `None` when it ended.
    pub fn affinity(&self, root: &HostRoot) -> Option<CpuSet> {
        let status = root.read(&format!("/proc/{}/task/{}/status", self.pid, self.tid)).ok()??;
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        line.trim().parse().ok()
    }

    /// Its state as one letter: `R`, `S`, `D`, `T`, …; `None` when it ended.
    pub fn state(&self, root: &HostRoot) -> Option<char> {
        let stat = root.read(&format!("/proc/{}/task/{}/stat", self.pid, self.tid)).ok()??;
        field(&stat, 3)?.chars().next()
    }

    /// Whether it is a thread of the kernel (`PF_KTHREAD`).
    pub fn is_kernel_thread(&self, root: &HostRoot) -> bool {
        const PF_KTHREAD: u64 = 0x0020_0000;
        self.flags(root).is_some_and(|flags| flags & PF_KTHREAD != 0)
    }

    /// Whether the kernel refuses to move it to other CPUs (`PF_NO_SETAFFINITY`).
    pub fn is_bound(&self, root: &HostRoot) -> bool {
        const PF_NO_SETAFFINITY: u64 = 0x0400_0000;
        self.flags(root).is_some_and(|flags| flags & PF_NO_SETAFFINITY != 0)
    }

    fn flags(&self, root: &HostRoot) -> Option<u64> {
        let stat = root.read(&format!("/proc/{}/task/{}/stat", self.pid, self.tid)).ok()??;
        field(&stat, 9)?.parse().ok()
    }
}

/// Field `number` of proc_pid_stat(5), from 3; the second is the name in brackets, which may hold anything.
fn field(stat: &str, number: usize) -> Option<&str> {
    stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().nth(number - 3)
}

/// The first thread of every process, by number. Those that end meanwhile are left out.
///
/// # Errors
/// As [`HostRoot::list`].
pub fn processes(root: &HostRoot) -> Result<Vec<Task>, HostError> {
    let pids = root.list_numbered("/proc", "")?;
    Ok(pids.into_iter().filter_map(|pid| Task::find(root, pid, pid).ok().flatten()).collect())
}

/// Every thread of a process, by number.
///
/// # Errors
/// As [`HostRoot::list`].
pub fn threads(root: &HostRoot, pid: u32) -> Result<Vec<Task>, HostError> {
    // A process that ended has no such folder, or one that answers ESRCH.
    let tids = root.list_numbered(&format!("/proc/{pid}/task"), "").unwrap_or_default();
    Ok(tids.into_iter().filter_map(|tid| Task::find(root, pid, tid).ok().flatten()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_thread_is_found_and_another_start_is_another_thread() {
        let root = HostRoot::real();
        let pid = std::process::id();
        let task = Task::find(&root, pid, pid).unwrap().unwrap();
        assert!(task.is_alive(&root));
        assert!(!task.is_kernel_thread(&root));
        assert!(!task.affinity(&root).unwrap().is_empty());
        assert!(!Task { start_ticks: task.start_ticks + 1, ..task.clone() }.is_alive(&root));
        assert!(processes(&root).unwrap().contains(&task));
        assert!(threads(&root, task.pid).unwrap().iter().any(|thread| thread.tid == task.tid));
    }

    #[test]
    fn names_may_hold_brackets() {
        let stat = "7 (a) (b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        let task = Task::parse(7, 7, stat).unwrap();
        assert_eq!((task.name.as_str(), task.start_ticks), ("a) (b", 4242));
        assert_eq!(field(stat, 3), Some("S"));
        assert_eq!(Task::parse(7, 7, "7 (a"), None);
        assert_eq!(Task::parse(7, 7, ")("), None);
    }
}
