//! What the kernel counts of one thread: context switches and page faults.
//!
//! The counters run from the thread's start; a measurement is the difference of two reads.

use crate::{HostError, HostRoot};

/// Counters of one thread since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCounters {
    /// Context switches because the thread waited (`voluntary_ctxt_switches`).
    pub voluntary_switches: u64,
    /// Context switches because something else took the CPU (`nonvoluntary_ctxt_switches`).
    pub involuntary_switches: u64,
    /// Page faults served without reading from disk (`minflt`).
    pub minor_faults: u64,
    /// Page faults that waited for a disk (`majflt`).
    pub major_faults: u64,
}

impl TaskCounters {
    /// Reads the counters of thread `tid` of process `pid`; `None` when there is no such thread.
    ///
    /// # Errors
    /// As [`HostRoot::read`], and [`HostError::Malformed`] when a counter is not where proc(5) puts it.
    pub fn read(root: &HostRoot, pid: u32, tid: u32) -> Result<Option<Self>, HostError> {
        let folder = format!("/proc/{pid}/task/{tid}");
        let status = root.read(&format!("{folder}/status"))?;
        let stat = root.read(&format!("{folder}/stat"))?;
        let (Some(status), Some(stat)) = (status, stat) else { return Ok(None) };
        match Self::parse(&status, &stat) {
            Some(counters) => Ok(Some(counters)),
            None => Err(HostError::Malformed {
                path: root.path(&folder),
                problem: "no counters of context switches or page faults in `status` and `stat`".to_owned(),
            }),
        }
    }

    /// Parses the texts of `status` and `stat`; `None` when a counter is missing.
    pub fn parse(status: &str, stat: &str) -> Option<Self> {
        let switches = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            line.strip_prefix(':')?.trim().parse().ok()
        };
        // The second field is the thread's name in brackets, which may itself hold spaces and brackets.
        let after_name = &stat[stat.rfind(')')? + 1..];
        // Fields 10 and 12 of proc(5), counted here from field 3.
        let fault = |field: usize| after_name.split_ascii_whitespace().nth(field - 3)?.parse().ok();
        Some(Self {
            voluntary_switches: switches("voluntary_ctxt_switches")?,
            involuntary_switches: switches("nonvoluntary_ctxt_switches")?,
            minor_faults: fault(10)?,
            major_faults: fault(12)?,
        })
    }

    /// What happened between two reads of the same thread.
    pub fn delta(before: &Self, after: &Self) -> Self {
        Self {
            voluntary_switches: after.voluntary_switches.saturating_sub(before.voluntary_switches),
            involuntary_switches: after.involuntary_switches.saturating_sub(before.involuntary_switches),
            minor_faults: after.minor_faults.saturating_sub(before.minor_faults),
            major_faults: after.major_faults.saturating_sub(before.major_faults),
        }
    }

    /// Page faults of both kinds.
    pub fn page_faults(&self) -> u64 {
        self.minor_faults.saturating_add(self.major_faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STATUS: &str = "Name:\tx\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t3\n";

    #[test]
    fn names_with_brackets_and_spaces_do_not_shift_the_fields() {
        let stat = "6625 (a) b (c) R 6613 6613 4783 0 -1 4194304 101 7 2 0 0 0 0 0 20 0 1 0 94692";
        let counters = TaskCounters::parse(STATUS, stat).unwrap();
        let expected = TaskCounters {
            voluntary_switches: 150,
            involuntary_switches: 3,
            minor_faults: 101,
            major_faults: 2,
        };
        assert_eq!(counters, expected);
        assert_eq!(TaskCounters::delta(&TaskCounters::default(), &counters), expected);
        assert_eq!(expected.page_faults(), 103);
        assert_eq!(TaskCounters::parse(STATUS, "6625 (a) R 1"), None);
        assert_eq!(TaskCounters::parse("", stat), None);
    }

    #[test]
    fn this_thread_counts_its_page_faults() {
        let root = HostRoot::real();
        let pid = std::process::id();
        let tid = whylate_sys::schedule::id_of_this_thread();
        let before = TaskCounters::read(&root, pid, tid).unwrap().unwrap();
        let touched = vec![1u8; 8 << 20];
        let after = TaskCounters::read(&root, pid, tid).unwrap().unwrap();
        assert_eq!(touched.iter().map(|&byte| u64::from(byte)).sum::<u64>(), 8 << 20);
        assert!(TaskCounters::delta(&before, &after).page_faults() > 0);
        assert_eq!(TaskCounters::read(&root, pid, u32::MAX).unwrap(), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(status in "\\PC*", stat in "[0-9]{1,3} \\([a-z)( ]{0,8}\\)?( ?[0-9-]{1,4}){0,14}\\PC{0,4}") {
            let _ = TaskCounters::parse(&status, &stat);
            let _ = TaskCounters::parse(STATUS, &stat);
        }
    }
}
