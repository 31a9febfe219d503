//! Latency histograms from a trace buffer of its own, if BPF programs are not possible.
//!
//! The kernel writes scheduler and timer events into a ring for each CPU; each call reads the new ones, sorts the
//! events of all CPUs by time, and counts. Events for which a ring had no room are counted as lost.

use super::counter::{Counter, kernel_priorities};
use super::step::Step;
use crate::RecordError;
use crate::buffer::Buffer;
use crate::recorder::cpu_mask;
use crate::stream::{self, Stream};
use std::collections::BTreeSet;
use std::path::Path;
use whylate_bpf::{HistogramsChange, HistogramsConfig, HistogramsSnapshot, TaskFilter};
use whylate_core::order::InOrder;
use whylate_core::result::HistogramKind;
use whylate_core::{CpuId, CpuSet};
use whylate_host::HostRoot;
use whylate_sys::clock;

/// Size of each CPU's ring.
const RING_KIB: u32 = 4096;

/// The events that latencies are counted from.
const EVENTS: [&str; 6] = [
    "sched/sched_switch",
    "sched/sched_waking",
    "timer/hrtimer_start",
    "timer/hrtimer_cancel",
    "timer/hrtimer_expire_entry",
    "timer/hrtimer_expire_exit",
];

/// Histograms that are counted here. Dropping them ends the recording and removes its buffer.
#[derive(Debug)]
pub(super) struct TraceHistograms {
    // Before the buffer: an open file would keep it busy.
    stream: Stream,
    counter: Counter,
    process: Option<u32>,
    /// Its threads at the last call.
    threads: BTreeSet<u32>,
    /// Events after the time up to which every CPU was read.
    later: Vec<Step>,
    buffer: Buffer,
}

impl TraceHistograms {
    /// Makes a buffer and begins to count.
    ///
    /// # Errors
    /// [`RecordError`], saying what the kernel lacks or refuses.
    pub(super) fn start(host: &HostRoot, config: &HistogramsConfig) -> Result<Self, RecordError> {
        let buffer = Buffer::create(host, "histograms")?;
        if let Some(event) = EVENTS.into_iter().find(|event| !buffer.tracefs().has_event(event)) {
            return Err(RecordError::Unavailable(format!("this kernel has no event {event}")));
        }
        buffer.set("trace_clock", "mono")?;
        buffer.set("buffer_size_kb", &RING_KIB.to_string())?;
        let online = stream::cpus_of(buffer.folder())?;
        // All CPUs: a task may be woken from a CPU that is not measured.
        buffer.set("tracing_cpumask", &cpu_mask(&online.iter().copied().collect()))?;
        let stream = Stream::open(&buffer, &online, &EVENTS)?;
        set_filters(&buffer, config)?;
        for event in EVENTS {
            buffer.set(&format!("events/{event}/enable"), "1")?;
        }
        buffer.set("tracing_on", "1")?;
        let process = match config.task {
            Some(TaskFilter::Pid(pid)) => Some(pid),
            _ => None,
        };
        let threads = process.map(threads_of).unwrap_or_default();
        let counter = Counter::new(config);
        Ok(Self { stream, counter, process, threads, later: Vec::new(), buffer })
    }

    /// Counts what has come since the last call.
    ///
    /// # Errors
    /// When the ring cannot be read or understood.
    pub(super) fn poll(&mut self) -> Result<(), RecordError> {
        let complete_to_ns = clock::now().0;
        if let Some(process) = self.process {
            // A thread that has ended since the last call still has events.
            let before = std::mem::replace(&mut self.threads, threads_of(process));
            self.counter.set_threads(&before | &self.threads);
        }
        let later = &mut self.later;
        self.stream.read(&mut |event, reader| later.extend(Step::of(event, reader.names())))?;
        self.later.order_by_key(|step| step.at_ns);
        let complete = self.later.partition_point(|step| step.at_ns <= complete_to_ns);
        for step in self.later.drain(..complete) {
            self.counter.take(&step);
        }
        Ok(())
    }

    pub(super) fn change(
        &mut self,
        change: HistogramsChange,
        kinds: &[HistogramKind],
        cpus: &CpuSet,
    ) -> Result<(), RecordError> {
        self.poll()?;
        self.counter.change(change, kinds, cpus);
        Ok(())
    }

    pub(super) fn enabled(&self) -> &BTreeSet<(CpuId, HistogramKind)> {
        self.counter.enabled()
    }

    pub(super) fn snapshot(&mut self) -> Result<HistogramsSnapshot, RecordError> {
        self.poll()?;
        Ok(self.counter.snapshot())
    }

    /// Ends the recording and removes its buffer.
    ///
    /// # Errors
    /// [`RecordError::LeftBehind`] when something could not be put back.
    pub(super) fn finish(self) -> Result<(), RecordError> {
        let Self { stream, buffer, .. } = self;
        drop(stream);
        buffer.remove()
    }
}

/// Makes the kernel drop events of priorities that are not counted.
fn set_filters(buffer: &Buffer, config: &HistogramsConfig) -> Result<(), RecordError> {
    let (min, max) = kernel_priorities(config);
    // The kernel's numbers end at 139; deadline tasks have -1.
    if min <= -1 && max >= 139 {
        return Ok(());
    }
    let (min, max) = (min.max(-1), max.min(139));
    let within = |field: &str| format!("({field} >= {min} && {field} <= {max})");
    buffer.set("events/sched/sched_waking/filter", &within("prio"))?;
    let either = format!("{} || {}", within("prev_prio"), within("next_prio"));
    buffer.set("events/sched/sched_switch/filter", &either)
}

/// The threads of a process; none when it has ended, and none if `process` is not the first thread of one.
pub(crate) fn threads_of(process: u32) -> BTreeSet<u32> {
    let folder = Path::new("/proc").join(process.to_string());
    let status = std::fs::read_to_string(folder.join("status")).unwrap_or_default();
    let leader = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    if leader != Some(process) {
        return BTreeSet::new();
    }
    let entries = std::fs::read_dir(folder.join("task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_sys::schedule;

    #[test]
    fn a_process_has_threads_and_a_thread_has_none() {
        let process = std::process::id();
        let own = schedule::id_of_this_thread();
        let threads = threads_of(process);
        assert!(threads.contains(&process) && threads.contains(&own), "{threads:?}");
        assert_eq!(threads_of(own).is_empty(), own != process);
    }
}
