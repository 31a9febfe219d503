//! Every thread of the machine: its name, its policy and the CPUs that it may use, from /proc/PID/task/TID.
//!
//! A thread that ends between listing and reading is left out. If /proc shows only a part (a container, the mount
//! option `hidepid`), only that part is here; [`Threads::kernel_visible`] says so.

use crate::{HostError, HostRoot};
use whylate_core::cpus::CpuSet;
use whylate_core::result::{ThreadKind, ThreadRow};

/// `PF_NO_SETAFFINITY` and `PF_KTHREAD` of include/linux/sched.h, as /proc/PID/stat shows them.
const PF_NO_SETAFFINITY: u64 = 0x0400_0000;
const PF_KTHREAD: u64 = 0x0020_0000;

/// All threads at about one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Threads {
    /// Sorted by process, then thread; `Pinned` or `Movable`.
    pub rows: Vec<ThreadRow>,
}

impl Threads {
    /// Reads every thread below /proc.
    pub fn read(root: &HostRoot) -> Result<Self, HostError> {
        let mut rows = Vec::new();
        for pid in root.list_numbered("/proc", "")? {
            let tasks = root.list_numbered(&format!("/proc/{pid}/task"), "").unwrap_or_default();
            rows.extend(tasks.into_iter().filter_map(|tid| read_thread(root, pid, tid)));
        }
        Ok(Self { rows })
    }

    /// Whether the kernel's own threads are among them: not so in a container.
    pub fn kernel_visible(&self) -> bool {
        self.rows.iter().any(|thread| thread.kernel)
    }

    /// Threads of that name; the kernel cuts names after 15 bytes.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a ThreadRow> {
        self.rows.iter().filter(move |thread| thread.name == name)
    }
}

/// One thread; `None` when it has ended, or when its files are in another form.
fn read_thread(root: &HostRoot, pid: u32, tid: u32) -> Option<ThreadRow> {
    let folder = format!("/proc/{pid}/task/{tid}");
    let stat = root.read(&format!("{folder}/stat")).ok()??;
    let status = root.read(&format!("{folder}/status")).ok()??;
    parse(pid, tid, &stat, &status)
}

fn parse(pid: u32, tid: u32, stat: &str, status: &str) -> Option<ThreadRow> {
    let stat = Stat::parse(stat)?;
    let flags = stat.number(9)?;
    Some(ThreadRow {
        pid,
        tid,
        name: stat.name.to_owned(),
        kind: if flags & PF_NO_SETAFFINITY == 0 { ThreadKind::Movable } else { ThreadKind::Pinned },
        kernel: flags & PF_KTHREAD != 0,
        policy: policy(stat.number(41).unwrap_or(0)).to_owned(),
        priority: stat
            .number(40)
            .filter(|&priority| priority > 0)
            .and_then(|priority| u32::try_from(priority).ok()),
        cpus: allowed_cpus(status)?,
    })
}

/// The text of a thread's stat, for [`Stat`]; `None` if there is no such thread.
pub fn stat(root: &HostRoot, pid: u32, tid: u32) -> Option<String> {
    root.read(&format!("/proc/{pid}/task/{tid}/stat")).ok()?
}

#[derive(Clone, Copy, Debug)]
pub struct Stat<'a> {
    /// The name, which may hold spaces and brackets itself.
    pub name: &'a str,
    after_name: &'a str,
}

impl<'a> Stat<'a> {
    /// `None` for a text in another form.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (begin, end) = (text.find('(')?, text.rfind(')')?);
        Some(Self { name: text.get(begin + 1..end)?, after_name: &text[end + 1..] })
    }

    /// A field by its number in proc_pid_stat(5), from 3.
    pub fn field(&self, number: usize) -> Option<&'a str> {
        self.after_name.split_ascii_whitespace().nth(number - 3)
    }

    pub fn number(&self, number: usize) -> Option<u64> {
        self.field(number)?.parse().ok()
    }

    /// Whether the thread has a CPU or waits for one.
    pub fn is_runnable(&self) -> bool {
        self.field(3) == Some("R")
    }
}

/// `Cpus_allowed_list` of the text of /proc/PID/status, which has those that are offline, too.
pub fn allowed_cpus(status: &str) -> Option<CpuSet> {
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.parse().ok()
}

/// Numbers of sched(7).
fn policy(number: u64) -> &'static str {
    match number {
        0 => "other",
        1 => "fifo",
        2 => "rr",
        3 => "batch",
        5 => "idle",
        6 => "deadline",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KTHREAD: &str = "23 (migration/1) S 2 0 0 0 -1 69238848 0 0 0 0 0 0 0 0 -100 0 1 0 21 0 0 0 0 0 0 0 0 0 0 \
                           2147483647 0 1 0 0 17 1 99 1 0 0 0 0 0 0 0 0 0 0 0";

    #[test]
    fn pinned_kernel_threads_and_strange_names() {
        let status = "Name:\tmigration/1\nCpus_allowed:\t2\nCpus_allowed_list:\t1\n";
        let thread = parse(23, 23, KTHREAD, status).unwrap();
        let expected = ThreadRow {
            pid: 23,
            tid: 23,
            name: "migration/1".to_owned(),
            kind: ThreadKind::Pinned,
            kernel: true,
            policy: "fifo".to_owned(),
            priority: Some(99),
            cpus: "1".parse().unwrap(),
        };
        assert_eq!(thread, expected);
        let stat = "7 (a) (b) c) S 1 7 7 0 -1 4194304 0 0";
        let thread = parse(7, 8, stat, "Cpus_allowed_list:\t0-3\n").unwrap();
        assert_eq!(
            (thread.name.as_str(), thread.kind, thread.kernel),
            ("a) (b) c", ThreadKind::Movable, false)
        );
        assert_eq!((thread.policy.as_str(), thread.priority), ("other", None));
        assert_eq!(parse(7, 8, stat, "Name:\tx\n"), None);
    }

    #[test]
    fn this_machine_has_this_thread() {
        let threads = Threads::read(&HostRoot::real()).unwrap();
        let pid = std::process::id();
        let own = threads.rows.iter().find(|thread| thread.tid == pid).unwrap();
        assert!(!own.kernel && own.pid == pid && !own.cpus.is_empty(), "{own:?}");
        assert!(threads.named(&own.name).count() > 0);
    }

    proptest! {
        #[test]
        fn no_text_panics(stat in "[0-9]{1,3} ?\\(?[a-z)( ]{0,8}\\)?( ?[0-9-]{1,12}){0,45}", status in "Cpus_allowed_list:\\PC{0,9}\n") {
            let _ = parse(1, 1, &stat, &status);
        }
    }
}
