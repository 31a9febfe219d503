//! What a watched thread does that a real-time thread should not.

use super::{CpuResult, ProbeResult};
use crate::CpuId;
use crate::quantity::{AUDIT, TASK};
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

words! {
    /// What an audit can find.
    pub enum AuditKind: "a finding of an audit" {
        /// A system call that takes memory from the kernel, gives it back, or changes its mapping.
        Memory = "memory",
        /// A system call for a file or a directory.
        File = "file",
        /// A read or write of a terminal.
        Terminal = "terminal",
        /// A write to a pipe, which sleeps while the pipe is full.
        Pipe = "pipe",
        /// A system call that starts a thread or a process.
        Process = "process",
        /// A call of `sched_yield`.
        Yield = "yield",
        /// A sleep for a relative time, not until a point in time.
        RelativeSleep = "relative-sleep",
        /// A sleep until a point in time of a clock that can be set.
        SettableClock = "settable-clock",
        /// A wait for a lock without priority inheritance that a lower-priority thread held.
        PlainLock = "plain-lock",
        /// A wake-up by a lower-priority thread.
        WokenByLower = "woken-by-lower",
        /// A page fault that needs no disk.
        MinorFault = "minor-fault",
        /// A page fault in which the thread sleeps: for a disk, or for a lock of the process's memory.
        MajorFault = "major-fault",
        /// The memory of the process is not locked.
        NotLocked = "not-locked",
        /// The thread has no real-time policy.
        NotRealTime = "not-real-time",
    }
}

impl AuditKind {
    /// What the thread does, in a few words.
    pub const fn what(self) -> &'static str {
        match self {
            Self::Memory => "changes its memory mappings",
            Self::File => "uses a file",
            Self::Terminal => "uses a terminal",
            Self::Pipe => "writes to a pipe",
            Self::Process => "starts a thread or a process",
            Self::Yield => "yields the CPU",
            Self::RelativeSleep => "sleeps for a relative time",
            Self::SettableClock => "sleeps until a time of day",
            Self::PlainLock => "waits for a lock of a lower-priority thread",
            Self::WokenByLower => "is woken by a lower-priority thread",
            Self::MinorFault => "has page faults",
            Self::MajorFault => "has page faults that sleep",
            Self::NotLocked => "memory is not locked",
            Self::NotRealTime => "no real-time policy",
        }
    }

    /// Why that makes a thread late, and what to do instead.
    pub const fn fix(self) -> &'static str {
        match self {
            Self::Memory => {
                "The call waits for the process's memory lock (mmap_lock), and new pages fault. Allocate before the loop; \
                 mallopt(M_TRIM_THRESHOLD, -1) and mallopt(M_MMAP_MAX, 0) keep malloc from calling the kernel."
            }
            Self::File => {
                "The call can wait for a disk. Give the data to an ordinary thread, through memory that both share."
            }
            Self::Terminal => {
                "A terminal can block its writer. Give messages to an ordinary thread, through memory that both share."
            }
            Self::Pipe => {
                "The write sleeps while the pipe is full. Open the pipe with O_NONBLOCK, and drop what does not fit."
            }
            Self::Process => {
                "The kernel copies mappings and takes locks during the call. Start all threads before the loop."
            }
            Self::Yield => {
                "The call gives the CPU only to threads of the same priority, and does not wait for an event. Wait for the event instead."
            }
            Self::RelativeSleep => {
                "The time between reading the clock and the sleep adds up over the periods. Use clock_nanosleep with TIMER_ABSTIME and \
                 CLOCK_MONOTONIC."
            }
            Self::SettableClock => {
                "NTP, or a person who sets the clock, shifts the wake-up. Use CLOCK_MONOTONIC."
            }
            Self::PlainLock => {
                "A thread with a priority between holder and waiter can delay the holder. Use a mutex with PTHREAD_PRIO_INHERIT."
            }
            Self::WokenByLower => {
                "The thread can start only after the waker gets a CPU. Raise the waker's priority, or let the thread wait directly for what the waker waits for."
            }
            Self::MinorFault => {
                "The kernel maps each page at the first access. Call mlockall(MCL_CURRENT | MCL_FUTURE), and touch memory before the loop."
            }
            Self::MajorFault => {
                "The thread waits for the disk, or for another thread that changes mappings. Call mlockall(MCL_CURRENT | MCL_FUTURE)."
            }
            Self::NotLocked => {
                "The kernel may reclaim pages, and the next access faults. Call mlockall(MCL_CURRENT | MCL_FUTURE)."
            }
            Self::NotRealTime => {
                "Every real-time thread preempts this thread, and ordinary threads share its CPU. Use SCHED_FIFO: `chrt -f -p 50 TID`."
            }
        }
    }

    /// The manual page, as `man` takes it.
    pub const fn manual(self) -> &'static str {
        match self {
            Self::Memory => "https://man7.org/linux/man-pages/man3/mallopt.3.html",
            Self::File | Self::Terminal => "https://man7.org/linux/man-pages/man2/write.2.html",
            Self::Pipe => "https://man7.org/linux/man-pages/man7/pipe.7.html",
            Self::Process => "https://man7.org/linux/man-pages/man3/pthread_create.3.html",
            Self::Yield => "https://man7.org/linux/man-pages/man2/sched_yield.2.html",
            Self::RelativeSleep | Self::SettableClock => {
                "https://man7.org/linux/man-pages/man2/clock_nanosleep.2.html"
            }
            Self::PlainLock => "https://man7.org/linux/man-pages/man3/pthread_mutexattr_setprotocol.3.html",
            Self::WokenByLower | Self::NotRealTime => "https://man7.org/linux/man-pages/man7/sched.7.html",
            Self::MinorFault | Self::MajorFault | Self::NotLocked => {
                "https://man7.org/linux/man-pages/man2/mlock.2.html"
            }
        }
    }

    /// Whether it is a property of the thread instead of something that it does.
    pub const fn is_state(self) -> bool {
        matches!(self, Self::NotLocked | Self::NotRealTime)
    }
}

/// A finding of an audit: what one thread did, how often, and the longest case.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditRecord {
    /// The CPU under which the thread is listed.
    pub cpu: CpuId,
    /// The thread's series.
    pub series: Option<String>,
    /// The kind of finding.
    pub kind: AuditKind,
    /// The system call.
    pub call: Option<String>,
    /// The file, or the name of the other thread.
    pub object: Option<String>,
    /// How often the thread did this.
    pub count: u64,
    /// The runs of the thread, from wake-up to sleep, in which the thread did this.
    pub runs: u64,
    /// All runs of the thread so far.
    pub of_runs: u64,
    /// The time that this took in all.
    pub took_ns: u64,
    /// The longest time that this took once; for page faults without a switch between them, their mean.
    pub longest_ns: u64,
    /// The program's functions in the call that took longest, innermost first: `log_line <- update <- loop`.
    pub place: Option<String>,
    /// Whether the user allowed the finding.
    pub allowed: bool,
}

impl AuditRecord {
    /// A finding that did not happen yet.
    pub const fn new(kind: AuditKind) -> Self {
        Self {
            cpu: CpuId(0),
            series: None,
            kind,
            call: None,
            object: None,
            count: 0,
            runs: 0,
            of_runs: 0,
            took_ns: 0,
            longest_ns: 0,
            place: None,
            allowed: false,
        }
    }

    /// What tells findings of one thread apart.
    pub fn identity(&self) -> (AuditKind, Option<&str>, Option<&str>) {
        (self.kind, self.call.as_deref(), self.object.as_deref())
    }

    /// Adds what a later interval says of the same finding.
    pub fn add(&mut self, later: Self) {
        if later.longest_ns > self.longest_ns || self.place.is_none() {
            self.place = later.place.or_else(|| self.place.take());
        }
        self.count = self.count.saturating_add(later.count);
        self.runs = self.runs.saturating_add(later.runs);
        self.of_runs = self.of_runs.max(later.of_runs);
        self.took_ns = self.took_ns.saturating_add(later.took_ns);
        self.longest_ns = self.longest_ns.max(later.longest_ns);
    }

    /// Whether one of these words names it: its kind, or its system call.
    pub fn is_named(&self, words: &[String]) -> bool {
        words.iter().any(|word| word == self.kind.name() || Some(word) == self.call.as_ref())
    }
}

/// The findings about the threads that an audit is for.
#[derive(Debug, Default)]
pub struct AuditFindings<'r> {
    /// Each with its thread.
    pub findings: Vec<(&'r str, &'r AuditRecord)>,
    /// Ordinary threads that are left out, because other threads are real-time threads.
    pub left_out: usize,
}

/// What the audit of a probe found; `None` if it had no audit. If real-time threads were watched, ordinary ones are not audited.
pub fn audited(probe: &ProbeResult) -> Option<AuditFindings<'_>> {
    let is_real_time = |cpu: &CpuResult| cpu.quantities.of(TASK).is_some_and(|task| task.priority > 0);
    let has_real_time = probe.cpus.iter().any(is_real_time);
    let all = || probe.cpus.iter().filter_map(|cpu| Some((cpu, cpu.quantities.of(AUDIT)?)));
    let is_meant = |cpu: &CpuResult| !has_real_time || is_real_time(cpu);
    let findings = all()
        .filter(|(cpu, _)| is_meant(cpu))
        .flat_map(|(cpu, found)| found.iter().map(|one| (cpu.series.as_deref().unwrap_or_default(), one)));
    let left_out = all().filter(|(cpu, _)| !is_meant(cpu)).count();
    all().next().is_some().then(|| AuditFindings { findings: findings.collect(), left_out })
}

impl Default for AuditRecord {
    fn default() -> Self {
        Self::new(AuditKind::Memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_add_up_and_the_place_is_that_of_the_longest() {
        let of = |longest_ns, place: Option<&str>| AuditRecord {
            count: 2,
            runs: 1,
            of_runs: 10,
            took_ns: 30,
            longest_ns,
            place: place.map(str::to_owned),
            ..AuditRecord::new(AuditKind::File)
        };
        let mut sum = of(20, Some("first"));
        sum.add(of(25, Some("second")));
        sum.add(of(25, None));
        assert_eq!((sum.count, sum.runs, sum.of_runs, sum.took_ns, sum.longest_ns), (6, 3, 10, 90, 25));
        assert_eq!(sum.place.as_deref(), Some("second"));
    }

    #[test]
    fn a_finding_is_allowed_by_its_kind_or_its_call() {
        let one = AuditRecord { call: Some("write".to_owned()), ..AuditRecord::new(AuditKind::File) };
        let words = |word: &str| [word.to_owned()];
        assert!(one.is_named(&words("write")) && one.is_named(&words("file")));
        assert!(!one.is_named(&words("open")) && !one.is_named(&[]));
    }
}
