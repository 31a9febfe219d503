//! Candidates: moments at which a task may have been late, before the reason is examined.

use whylate_core::CpuId;
use whylate_core::result::{ExpectedFrom, HwlatSample, LateTask, LateWhat};
use whylate_trace::event::{Name, NoiseSource};
use whylate_trace::reader::Reader;

/// Latencies from this length on are kept in addition to the worst one; shorter ones matter only if nothing is longer.
pub(crate) const KEPT_LEAST_NS: u64 = 10_000;

/// Tasks with this priority of the kernel's or above it are not real-time tasks.
pub(crate) const PRIORITY_NORMAL: i32 = 100;

/// Why a moment counts as late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LateKind {
    /// The task slept, and ran later than it should have.
    Wakeup,
    /// The task lost the CPU while it was runnable.
    Preempted {
        cpu: CpuId,
        /// The CPU went to a task of lower priority, or became idle.
        for_lesser: bool,
    },
    /// The task blocked in the middle of its work; the window shows whether that was a lock or a page fault.
    Blocked,
    /// The timerlat tracer's sample; with moment and latency of the one in its interrupt.
    Timerlat {
        /// `(at_ns, latency_ns)` of the sample in the interrupt.
        irq: Option<(u64, u64)>,
    },
    /// The hwlat tracer's sample: it looked with interrupts disabled.
    Hwlat(HwlatSample),
    NoiseGap {
        /// What interrupted it, as the tracer recorded it.
        interference: u32,
    },
    /// A line of the osnoise tracer's table: its largest noise, and how many noises there were of hardware, NMIs,
    /// interrupts, softirqs and threads.
    Noises { runtime_ns: u64, counts: [u64; 5] },
    /// One noise that the osnoise tracer attributed itself.
    Noise(NoiseSource),
    /// What the header of a wake-up tracer states, if its events are not in the trace.
    Header,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Late {
    pub(crate) pid: Option<u32>,
    pub(crate) command: Option<Name>,
    pub(crate) priority: Option<i32>,
    /// Where it ran at last.
    pub(crate) cpu: CpuId,
    pub(crate) expected_ns: u64,
    pub(crate) actual_ns: u64,
    pub(crate) from: ExpectedFrom,
    pub(crate) error_ns: u64,
    pub(crate) kind: LateKind,
    /// When the task last left the CPU: the window begins there, if that is not long ago.
    pub(crate) since_ns: u64,
    /// The trace shows that the scheduler stopped no real-time thread of the CPU meanwhile.
    pub(crate) unstopped: bool,
    /// The trace ends before the task runs.
    pub(crate) unended: bool,
    /// When a task that had blocked was woken.
    pub(crate) woken_ns: Option<u64>,
}

impl Late {
    /// A task about which nothing else is known was late on that CPU.
    pub(crate) fn new(
        cpu: CpuId,
        expected_ns: u64,
        actual_ns: u64,
        from: ExpectedFrom,
        kind: LateKind,
    ) -> Self {
        let (pid, command, priority, error_ns) = (None, None, None, 0);
        Self {
            pid,
            command,
            priority,
            cpu,
            expected_ns,
            actual_ns,
            from,
            error_ns,
            kind,
            since_ns: expected_ns,
            unstopped: false,
            unended: false,
            woken_ns: None,
        }
    }

    /// The last part of a wait in which the task blocked: from its wake-up to its run.
    pub(crate) fn end_ns(&self) -> u64 {
        self.woken_ns.map_or(0, |woken_ns| self.actual_ns.saturating_sub(woken_ns))
    }

    pub(crate) fn latency_ns(&self) -> u64 {
        self.actual_ns.saturating_sub(self.expected_ns)
    }

    /// Without an explanation.
    pub(crate) fn brief(&self, reader: &dyn Reader) -> LateTask {
        LateTask {
            task: match (self.command, self.kind) {
                (Some(name), _) => reader.names().text(name).to_owned(),
                (None, LateKind::Timerlat { .. }) => format!("timerlat/{}", self.cpu),
                (None, _) => String::new(),
            },
            pid: self.pid,
            priority: self.priority,
            cpu: self.cpu,
            what: self.kind.what(),
            latency_ns: self.latency_ns(),
            at_ns: self.actual_ns,
        }
    }
}

impl LateKind {
    pub(crate) fn what(self) -> LateWhat {
        match self {
            Self::Wakeup | Self::Header => LateWhat::Wakeup,
            Self::Preempted { .. } => LateWhat::Preempted,
            Self::Blocked => LateWhat::Blocked,
            _ => LateWhat::Sample,
        }
    }
}

/// The largest candidates, and the number of those above a threshold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Largest {
    lates: Vec<Late>,
    pub(crate) found: u64,
}

impl Largest {
    /// Keeps `late` when it is among the `top` largest, and counts it when it is above `least_ns`.
    pub(crate) fn push(&mut self, late: Late, top: usize, least_ns: u64) {
        let latency_ns = late.latency_ns();
        self.found += u64::from(latency_ns > least_ns);
        // Most are neither among the worst nor above the threshold.
        let is_lesser = |other: Option<&Late>| other.is_some_and(|other| other.latency_ns() >= latency_ns);
        if is_lesser(self.lates.first()) && latency_ns <= least_ns.min(KEPT_LEAST_NS)
            || self.lates.len() >= top && is_lesser(self.lates.last())
        {
            return;
        }
        let place = self.lates.partition_point(|other| other.latency_ns() >= late.latency_ns());
        let worth = late.latency_ns() > least_ns.min(KEPT_LEAST_NS) || place == 0;
        if place < top && worth {
            self.lates.insert(place, late);
            self.lates.truncate(top);
        }
    }

    /// Forgets those that ended before that moment.
    pub(crate) fn forget_before(&mut self, at_ns: u64, least_ns: u64) {
        self.lates.retain(|late| late.actual_ns >= at_ns);
        self.found = self.found.min(self.above(least_ns) as u64);
    }

    /// Forgets those that only a mark shows.
    pub(crate) fn forget_marked(&mut self, least_ns: u64) {
        let is_marked = |late: &Late| late.from == ExpectedFrom::Marker;
        let counted = |late: &&Late| is_marked(late) && late.latency_ns() > least_ns;
        let forgotten = self.lates.iter().filter(counted).count() as u64;
        self.lates.retain(|late| !is_marked(late));
        self.found = self.found.saturating_sub(forgotten);
    }

    /// How many of the kept ones are longer.
    pub(crate) fn above(&self, threshold_ns: u64) -> usize {
        self.lates.iter().filter(|late| late.latency_ns() > threshold_ns).count()
    }

    /// Takes the candidates out that ended at that moment.
    pub(crate) fn take_at(&mut self, actual_ns: u64, least_ns: u64) -> Option<Late> {
        let index = self.lates.iter().position(|late| late.actual_ns == actual_ns)?;
        let late = self.lates.remove(index);
        self.found = self.found.saturating_sub(u64::from(late.latency_ns() > least_ns));
        Some(late)
    }

    pub(crate) fn merge(&mut self, others: &Self, top: usize) {
        let found = self.found + others.found;
        for late in &others.lates {
            self.push(*late, top, 0);
        }
        self.found = found;
    }

    pub(crate) fn len(&self) -> usize {
        self.lates.len()
    }

    /// The largest latency.
    pub(crate) fn worst_ns(&self) -> u64 {
        self.lates.first().map_or(0, Late::latency_ns)
    }

    /// Largest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Late> {
        self.lates.iter()
    }
}
