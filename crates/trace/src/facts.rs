//! What a trace states about its latency in addition to its events: the header of a latency tracer, and an analysis that a
//! tool made and printed.
//!
//! Filled by the readers, used by the explanation. Stacks, functions and stop markers are events.

use std::collections::BTreeSet;
use whylate_core::CpuId;

/// The facts in addition to the events; absent if the file does not state them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceFacts {
    /// `latency:` in the header of a latency tracer (`irqsoff`, `wakeup_rt`, …), nanoseconds.
    pub latency_ns: Option<u64>,
    /// `CPU#1` in the header: where that latency was.
    pub cpu: Option<CpuId>,
    /// `task: ls-64` in the header: who had the section, or who was woken.
    pub task: Option<FactTask>,
    /// `=> started at:`, a function without its offset.
    pub started_at: Option<String>,
    /// `=> ended at:`.
    pub ended_at: Option<String>,
    /// Preemption of the kernel: `desktop`, `preempt`, `preempt_rt`, `server`.
    pub preemption: Option<String>,
    /// The tracer's threshold (`tracing_thresh`, a report's command line), in nanoseconds.
    pub threshold_ns: Option<u64>,
    /// Analyses that the file itself prints (`## CPU 23 hit stop tracing, analyzing it ##` of rtla).
    pub analyses: Vec<Analysis>,
    /// Lines that are not empty, of a text.
    pub lines: u64,
    /// Those of them that are not trace lines.
    pub lines_skipped: u64,
    /// `#40/21352` in the header: how many entries the text was made of.
    pub entries: Option<u64>,
    /// Where the sender left lines out: the offsets of `...` or `[...]` in their place. Later ones of very many are not kept.
    pub omissions: BTreeSet<u64>,
}

impl TraceFacts {
    /// Whether the header states more entries than the `records` in the file; a stack is not an event of its own.
    pub fn is_short(&self, records: u64) -> bool {
        self.entries.is_some_and(|entries| records.saturating_add(entries / 10).saturating_add(3) < entries)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FactTask {
    pub command: String,
    pub pid: u32,
    /// Its real-time priority as tools print it (1 to 99); 0 for an ordinary task.
    pub rt_priority: u32,
}

/// The analysis of one latency that a tool printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Analysis {
    pub cpu: CpuId,
    /// The whole latency (`Thread latency:`, or `IRQ latency:` where the tool stopped there), nanoseconds.
    pub latency_ns: u64,
    /// Whether it is the thread's latency; otherwise it ends in the timer's interrupt.
    pub of_thread: bool,
    /// What it consists of, in the order of the text.
    pub parts: Vec<AnalysisPart>,
}

/// A part of an [`Analysis`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnalysisPart {
    pub what: AnalysisKind,
    /// How long; absent if it is only named (`Blocking thread: swapper/0:189`).
    pub duration_ns: Option<u64>,
    /// Functions of the stack that is printed with it, innermost first.
    pub stack: Vec<String>,
}

/// What took a part of an analysed latency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnalysisKind {
    /// `IRQ handler delay`; with `(exit from idle)` where the tool says so.
    TimerDelay {
        /// The CPU had to leave an idle state.
        from_idle: bool,
    },
    /// `Timerlat IRQ duration`.
    TimerHandler,
    /// `Blocking thread`: a sum, or a thread with its command and id.
    BlockingThread(Option<(String, u32)>),
    /// `Previous IRQ interference`: a part of the delay that follows, at most.
    PreviousIrq,
    /// `IRQ interference`; with the handler's name where it is a line of its own.
    Irq(Option<String>),
    /// `Softirq interference`.
    Softirq(Option<String>),
    /// `NMI interference`.
    Nmi,
    /// `Thread interference`.
    Thread(Option<(String, u32)>),
}
