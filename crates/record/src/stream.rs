//! The events of a trace buffer while it records, read as they come.
//!
//! In: a buffer and the names of its events. Out: the events of all its CPUs since the last call, in the order of time.

use crate::RecordError;
use crate::buffer::Buffer;
use crate::pipe::{Pipe, page_layout};
use std::path::Path;
use whylate_core::CpuId;
use whylate_trace::event::{Event, EventKind};
use whylate_trace::parse::{BufferReader, EventFormat, PageLayout};
use whylate_trace::reader::Reader;

/// How many bytes of a CPU are read at once: the rest is read at the next call.
const READ_MAX: usize = 64 << 20;
/// How many task names and stacks are kept; if there are more, all are discarded at times.
const KEPT_MAX: usize = 1 << 16;

/// The rings of some CPUs of a buffer, and what their pages look like.
#[derive(Debug)]
pub(crate) struct Stream {
    pipes: Vec<(CpuId, Pipe)>,
    decoding: Decoding,
}

/// What the kernel's pages and records look like, and the reader of them.
#[derive(Debug)]
struct Decoding {
    layout: PageLayout,
    release: String,
    formats: Vec<EventFormat>,
    reader: BufferReader,
    /// How many stacks the reader has.
    stacks: usize,
}

impl Stream {
    /// Opens the rings of these CPUs; `events`, as `system/name`, are those that are understood.
    ///
    /// # Errors
    /// [`RecordError::Read`] when the kernel's descriptions or a ring cannot be read.
    pub(crate) fn open(buffer: &Buffer, cpus: &[CpuId], events: &[&str]) -> Result<Self, RecordError> {
        let decoding = Decoding::read(buffer.tracefs().top(), events)?;
        let open = |cpu: &CpuId| Ok((*cpu, Pipe::of_pages(buffer.folder(), *cpu)?));
        let pipes = cpus.iter().map(open).collect::<Result<_, RecordError>>()?;
        Ok(Self { pipes, decoding })
    }

    /// Gives the events since the last call to `take`.
    ///
    /// # Errors
    /// When a ring cannot be read or understood.
    pub(crate) fn read(&mut self, take: &mut dyn FnMut(&Event, &dyn Reader)) -> Result<(), RecordError> {
        let mut pages = Vec::with_capacity(self.pipes.len());
        for (cpu, pipe) in &mut self.pipes {
            pages.push((*cpu, read(pipe, self.decoding.layout.page_bytes)?));
        }
        self.decoding.events(pages, take)
    }
}

impl Decoding {
    fn read(top: &Path, events: &[&str]) -> Result<Self, RecordError> {
        let layout = page_layout(top)?;
        let mut formats = Vec::with_capacity(events.len());
        for event in events {
            let path = top.join("events").join(event).join("format");
            let text = std::fs::read_to_string(&path).map_err(RecordError::read(&path))?;
            let system = event.split('/').next().unwrap_or(event);
            let unfit = |error| RecordError::unfit(&path, &error);
            formats.push(EventFormat::parse(system, text).map_err(unfit)?);
        }
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let reader = BufferReader::live(layout, &release, formats.clone());
        Ok(Self { layout, release, reader, formats, stacks: 0 })
    }

    /// Gives what the pages of each CPU hold.
    fn events(
        &mut self,
        pages: Vec<(CpuId, Vec<u8>)>,
        take: &mut dyn FnMut(&Event, &dyn Reader),
    ) -> Result<(), RecordError> {
        if self.reader.names().len().max(self.stacks) > KEPT_MAX {
            self.reader = BufferReader::live(self.layout, &self.release, self.formats.clone());
            self.stacks = 0;
        }
        self.reader.refill(pages)?;
        while let Some(event) = self.reader.next()? {
            if let EventKind::Stack { frames } = event.kind {
                self.stacks = self.stacks.max(frames.0 as usize + 1);
            }
            take(&event, &self.reader);
        }
        Ok(())
    }
}

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

/// The CPUs that have a ring in the buffer of that folder.
pub(crate) fn cpus_of(folder: &Path) -> Result<Vec<CpuId>, RecordError> {
    let path = folder.join("per_cpu");
    let entries = std::fs::read_dir(&path).map_err(RecordError::read(&path))?;
    let number = |name: &str| name.strip_prefix("cpu")?.parse().ok().map(CpuId);
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut cpus: Vec<CpuId> = names.filter_map(|name| number(&name)).collect();
    cpus.sort_unstable();
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_come_in_parts_hold_the_same() {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces/raw-6.18-4k");
        let bytes = std::fs::read(top.join("cpu1.raw")).unwrap();
        let events = |parts: usize| {
            let known = ["sched/sched_switch", "sched/sched_waking", "timer/hrtimer_start"];
            let (mut decoding, mut events) = (Decoding::read(&top, &known).unwrap(), Vec::new());
            let pages = bytes.len() / decoding.layout.page_bytes;
            let part_bytes = pages.div_ceil(parts) * decoding.layout.page_bytes;
            for part in bytes.chunks(part_bytes) {
                let pages = vec![(CpuId(0), Vec::new()), (CpuId(1), part.to_vec())];
                let take = &mut |event: &Event, _: &dyn Reader| events.push((event.at_ns, event.kind));
                decoding.events(pages, take).unwrap();
            }
            events
        };
        let whole = events(1);
        let is_switch = |(_, kind): &(u64, EventKind)| matches!(kind, EventKind::Switch { .. });
        assert!(whole.iter().any(is_switch), "{} events", whole.len());
        assert_eq!(events(3), whole);
    }
}
