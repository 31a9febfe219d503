//! Latency histograms from a trace buffer of its own: where BPF programs are not possible.
//!
//! The kernel writes scheduler and timer events into a ring for each CPU; each call reads what is there, sorts the events
//! of all CPUs by time, and counts. Events for which a ring had no room are counted as lost.

use super::counter::{Counter, kernel_priorities};
use super::step::Step;
use crate::RecordError;
use crate::buffer::Buffer;
use crate::pipe::{Pipe, page_layout};
use crate::recorder::cpu_mask;
use std::collections::BTreeSet;
use std::path::Path;
use whylate_bpf::{HistogramsChange, HistogramsConfig, HistogramsSnapshot, TaskFilter};
use whylate_core::result::HistogramKind;
use whylate_core::{CpuId, CpuSet};
use whylate_host::HostRoot;
use whylate_sys::clock;
use whylate_trace::parse::{BufferReader, EventFormat, PageLayout};
use whylate_trace::reader::Reader as _;

/// Size of each CPU's ring.
const RING_KIB: u32 = 4096;
/// At most this many bytes of a CPU are read at once: the rest is read at the next call.
const READ_MAX: usize = 64 << 20;
/// Task names that are kept; where there are more, all are discarded at times.
const NAMES_MAX: usize = 1 << 16;

/// The events that latencies are counted from.
const EVENTS: [&str; 6] = [
    "sched/sched_switch",
    "sched/sched_waking",
    "timer/hrtimer_start",
    "timer/hrtimer_cancel",
    "timer/hrtimer_expire_entry",
    "timer/hrtimer_expire_exit",
];

/// What the kernel's pages and records look like, and the reader of them.
#[derive(Debug)]
struct Decoding {
    layout: PageLayout,
    release: String,
    formats: Vec<EventFormat>,
    reader: BufferReader,
}

/// Histograms that are counted here. Dropping them ends the recording and removes its buffer.
#[derive(Debug)]
pub(super) struct TraceHistograms {
    // Before the buffer: an open file would keep it busy.
    pipes: Vec<(CpuId, Pipe)>,
    decoding: Decoding,
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
        let online = pipes_of(buffer.folder())?;
        // All CPUs: a task may be woken from a CPU that is not measured.
        buffer.set("tracing_cpumask", &cpu_mask(&online.iter().copied().collect()))?;
        let decoding = Decoding::read(buffer.tracefs().top())?;
        set_filters(&buffer, config)?;
        let open = |cpu| Ok((cpu, Pipe::of_pages(buffer.folder(), cpu)?));
        let pipes = online.into_iter().map(open).collect::<Result<_, RecordError>>()?;
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
        Ok(Self { pipes, decoding, counter, process, threads, later: Vec::new(), buffer })
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
        let mut pages = Vec::with_capacity(self.pipes.len());
        for (cpu, pipe) in &mut self.pipes {
            pages.push((*cpu, read(pipe, self.decoding.layout.page_bytes)?));
        }
        self.decoding.steps(pages, &mut self.later)?;
        self.later.sort_by_key(|step| step.at_ns);
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
        let Self { pipes, buffer, .. } = self;
        drop(pipes);
        buffer.remove()
    }
}

impl Decoding {
    fn read(top: &Path) -> Result<Self, RecordError> {
        let layout = page_layout(top)?;
        let mut formats = Vec::with_capacity(EVENTS.len());
        for event in EVENTS {
            let path = top.join("events").join(event).join("format");
            let text = std::fs::read_to_string(&path).map_err(RecordError::read(&path))?;
            let system = event.split('/').next().unwrap_or(event);
            let unfit = |error| RecordError::unfit(&path, &error);
            formats.push(EventFormat::parse(system, text).map_err(unfit)?);
        }
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let reader = BufferReader::live(layout, &release, formats.clone());
        Ok(Self { layout, release, reader, formats })
    }

    /// Adds what the pages of each CPU hold.
    fn steps(&mut self, pages: Vec<(CpuId, Vec<u8>)>, steps: &mut Vec<Step>) -> Result<(), RecordError> {
        if self.reader.names().len() > NAMES_MAX {
            self.reader = BufferReader::live(self.layout, &self.release, self.formats.clone());
        }
        self.reader.refill(pages)?;
        while let Some(event) = self.reader.next()? {
            steps.extend(Step::of(&event, self.reader.names()));
        }
        Ok(())
    }
}

/// The pages that are there.
fn read(pipe: &mut Pipe, page_bytes: usize) -> Result<Vec<u8>, RecordError> {
    let mut pages = Vec::new();
    let mut end = 0;
    while end < READ_MAX {
        pages.resize(end + page_bytes, 0);
        if !pipe.next_page(&mut pages[end..])? {
            break;
        }
        end += page_bytes;
    }
    pages.truncate(end);
    Ok(pages)
}

/// The CPUs that have a ring.
fn pipes_of(folder: &Path) -> Result<Vec<CpuId>, RecordError> {
    let path = folder.join("per_cpu");
    let entries = std::fs::read_dir(&path).map_err(RecordError::read(&path))?;
    let number = |name: &str| name.strip_prefix("cpu")?.parse().ok().map(CpuId);
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut cpus: Vec<CpuId> = names.filter_map(|name| number(&name)).collect();
    cpus.sort_unstable();
    Ok(cpus)
}

/// Has the kernel drop events of priorities that are not counted.
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
fn threads_of(process: u32) -> BTreeSet<u32> {
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
    use crate::histograms::step::What;
    use whylate_sys::schedule;

    #[test]
    fn pages_that_come_in_parts_hold_the_same() {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces/raw-6.18-4k");
        let bytes = std::fs::read(top.join("cpu1.raw")).unwrap();
        let steps = |parts: usize| {
            let (mut decoding, mut steps) = (Decoding::read(&top).unwrap(), Vec::new());
            let pages = bytes.len() / decoding.layout.page_bytes;
            let part_bytes = pages.div_ceil(parts) * decoding.layout.page_bytes;
            for part in bytes.chunks(part_bytes) {
                let quiet = (CpuId(0), Vec::new());
                decoding.steps(vec![quiet, (CpuId(1), part.to_vec())], &mut steps).unwrap();
            }
            steps
        };
        let whole = steps(1);
        assert!(whole.iter().any(|step| matches!(step.what, What::Switch { .. })), "{} steps", whole.len());
        assert_eq!(steps(3), whole);
    }

    #[test]
    fn a_process_has_threads_and_a_thread_has_none() {
        let process = std::process::id();
        let own = schedule::id_of_this_thread();
        let threads = threads_of(process);
        assert!(threads.contains(&process) && threads.contains(&own), "{threads:?}");
        assert_eq!(threads_of(own).is_empty(), own != process);
    }
}
