//! Activities over several threads, and where the time of their instances went.

use super::Quantiles;
use crate::units::CpuId;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

words! {
    /// What a part of a chain's instance was.
    #[derive(Default)]
    pub enum ChainDoing: "a part of a chain" {
        /// The thread ran.
        Running = "runs",
        /// The thread was woken and did not have the CPU yet.
        Runnable = "waits_for_cpu",
        /// Another thread took the CPU from it.
        Preempted = "preempted",
        /// An interrupt or a softirq had the CPU.
        Interrupted = "interrupted",
        /// The thread slept until its timer expired.
        Timer = "waits_for_timer",
        /// The thread slept until an interrupt woke it.
        Interrupt = "waits_for_interrupt",
        /// The thread slept until another thread woke it.
        Thread = "waits_for_thread",
        /// Not recorded.
        #[default]
        Unknown = "unknown",
    }
}

/// What came of a chain in an interval.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChainRecord {
    /// Name of the chain.
    pub name: String,
    /// The deadline of an instance; absent if none was given.
    pub deadline_ns: Option<u64>,
    /// Number of instances that ended, and of those above the deadline that had not ended at the end of the watch.
    pub instances: u64,
    /// Instances above the deadline.
    pub late: u64,
    /// Begins whose end never came.
    pub dropped: u64,
    /// Instances that ended after one that began later.
    pub overtaken: u64,
    /// Ends without a begin.
    pub ends_alone: u64,
    /// Instances that overlapped with others, with neither a value nor wake-ups to join begin and end: their latencies are
    /// uncertain.
    pub uncertain: u64,
    /// Late instances that are not explained, because too many came.
    pub unexplained: u64,
}

impl ChainRecord {
    /// Adds what a later interval says of the same chain.
    pub fn add(&mut self, later: &Self) {
        self.deadline_ns = later.deadline_ns.or(self.deadline_ns);
        for (sum, more) in [
            (&mut self.instances, later.instances),
            (&mut self.late, later.late),
            (&mut self.dropped, later.dropped),
            (&mut self.overtaken, later.overtaken),
            (&mut self.ends_alone, later.ends_alone),
            (&mut self.uncertain, later.uncertain),
            (&mut self.unexplained, later.unexplained),
        ] {
            *sum = sum.saturating_add(more);
        }
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        let Self { instances, late, dropped, overtaken, ends_alone, uncertain, unexplained, .. } = *self;
        [instances, late, dropped, overtaken, ends_alone, uncertain, unexplained]
            .iter()
            .all(|count| *count == 0)
    }
}

/// Where the time of an instance of a chain went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChainPath {
    /// Name of the chain.
    pub name: String,
    /// When the instance ended.
    pub at_ns: u64,
    pub latency_ns: u64,
    /// Whether the wake-ups lead back to the thread that began it.
    pub is_whole: bool,
    /// The parts, one after another without a gap, from begin to end.
    pub parts: Vec<ChainPart>,
}

/// A part of an instance: what the thread did that the end waited for.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChainPart {
    /// Name of the thread.
    pub thread: String,
    /// Thread id.
    pub pid: u32,
    /// The CPU on which the thread ran or waited; absent if not known.
    pub cpu: Option<CpuId>,
    pub what: ChainDoing,
    pub from_ns: u64,
    pub to_ns: u64,
    /// The thread that had the CPU or woke the thread, the interrupt, or the timer; absent if not known.
    pub by: Option<String>,
    /// Thread id of `by`, if that is a thread.
    pub by_pid: Option<u32>,
}

impl ChainPart {
    pub fn length_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }

    /// What it did, in words: `preempted by make`.
    pub fn sentence(&self) -> String {
        let by = |word: &str| self.by.as_ref().map(|by| format!("{word}{by}")).unwrap_or_default();
        match self.what {
            ChainDoing::Running => "ran".to_owned(),
            ChainDoing::Runnable => format!("waited for the CPU{}", by(" behind ")),
            ChainDoing::Preempted => format!("preempted{}", by(" by ")),
            ChainDoing::Interrupted => format!("interrupted{}", by(" by ")),
            ChainDoing::Timer => format!("slept until its timer expired{}", by(": ")),
            ChainDoing::Interrupt => format!("slept until an interrupt woke it{}", by(": ")),
            ChainDoing::Thread => format!("slept{}", by(" until woken by ")),
            ChainDoing::Unknown => "not recorded".to_owned(),
        }
    }
}

/// The figures of a chain.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChainResult {
    #[serde(flatten)]
    pub record: ChainRecord,
    /// Number of instances per second of the watch.
    pub per_s: f64,
    /// Quantiles of the latencies; absent without instances.
    #[serde(flatten)]
    pub quantiles: Option<Quantiles>,
    /// Latency of the instance of `worst`; absent if no instance is explained.
    pub worst_ns: Option<u64>,
    /// When the instance of `worst` ended.
    pub worst_at_ns: Option<u64>,
    /// Where the time of the longest explained instance went, from begin to end.
    pub worst: Vec<ChainPart>,
}

impl ChainResult {
    /// Takes an explained instance.
    pub fn explain(&mut self, path: ChainPath) {
        if self.worst_ns.is_none_or(|worst_ns| path.latency_ns > worst_ns) {
            (self.worst_ns, self.worst_at_ns) = (Some(path.latency_ns), Some(path.at_ns));
            self.worst = path.parts;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_add_up_and_the_longest_explained_instance_is_kept() {
        let record = |instances, late, deadline_ns| ChainRecord {
            name: "frame".to_owned(),
            instances,
            late,
            deadline_ns,
            ..ChainRecord::default()
        };
        let mut sum = record(5, 1, Some(20));
        sum.add(&record(3, 0, None));
        assert_eq!(sum, record(8, 1, Some(20)));
        assert!(!sum.is_empty() && record(0, 0, Some(20)).is_empty());
        let mut result = ChainResult::default();
        for (latency_ns, thread) in [(10, "a"), (30, "b"), (20, "c")] {
            let part = ChainPart { thread: thread.to_owned(), ..ChainPart::default() };
            result.explain(ChainPath { latency_ns, parts: vec![part], ..ChainPath::default() });
        }
        assert_eq!((result.worst_ns, result.worst[0].thread.as_str()), (Some(30), "b"));
    }

    #[test]
    fn a_part_is_a_sentence() {
        let part = |what, by: Option<&str>| {
            ChainPart { what, by: by.map(str::to_owned), ..ChainPart::default() }.sentence()
        };
        assert_eq!(part(ChainDoing::Preempted, Some("make")), "preempted by make");
        assert_eq!(part(ChainDoing::Runnable, None), "waited for the CPU");
        assert!(part(ChainDoing::Thread, Some("logger")).ends_with("by logger"));
    }
}
