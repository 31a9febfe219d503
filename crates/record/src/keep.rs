//! Keeps the traces of the largest spikes while a probe goes on measuring.
//!
//! In: a ring that records, and the spikes as they become known, up to 50 ms after they happened, so the ring has to
//! hold that long. Out: a file for each of the largest. While a trace is saved nothing is recorded; spikes of that
//! time count as missed.

use super::error::RecordError;
use super::trace_dat::Saved;
use std::cmp::Reverse;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use whylate_core::order::InOrder;
use whylate_core::record::SpikeRecord;
use whylate_core::{CpuId, Nanos};
use whylate_sys::clock;

/// A recording that keeps the newest events; a trait so that tests can use one that records nothing.
pub trait Ring: fmt::Debug {
    /// Folder of the trace buffer, with `trace_marker` and `tracing_on`.
    fn folder(&self) -> &Path;
    /// Stops recording; what is in the ring stays.
    fn pause(&self) -> Result<(), RecordError>;
    /// Empties the ring and goes on.
    fn resume(&self) -> Result<(), RecordError>;
    /// Writes the content of the ring to a new file; pauses before.
    fn save(&self, path: &Path) -> Result<Saved, RecordError>;
    /// Ends the recording and restores everything.
    ///
    /// # Errors
    /// [`RecordError::LeftBehind`] when something could not be restored.
    fn finish(self: Box<Self>) -> Result<(), RecordError>;
}

/// The trace of one spike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub path: PathBuf,
    pub cpu: CpuId,
    /// When the task ran again, CLOCK_MONOTONIC, which is the trace's clock.
    pub at_ns: u64,
    pub latency_ns: u64,
}

/// The trace that was saved for new spikes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The spike whose trace was saved.
    pub spike: SpikeRecord,
    pub kept: Kept,
    /// The trace that was removed for it.
    pub removed: Option<Kept>,
}

/// Saves the trace of each spike that is among the largest.
#[derive(Debug)]
pub struct Keeper {
    ring: Box<dyn Ring>,
    above: Nanos,
    worst: usize,
    kept: Vec<Kept>,
    missed: u64,
    /// `None` while it is paused.
    recording_since_ns: Option<u64>,
}

impl Keeper {
    /// Keeps the traces of the `worst` largest latencies above `above`; `ring` records.
    pub fn new(ring: Box<dyn Ring>, above: Nanos, worst: usize) -> Self {
        let recording_since_ns = Some(clock::now().0);
        Self { ring, above, worst: worst.max(1), kept: Vec::new(), missed: 0, recording_since_ns }
    }

    /// Folder of the trace buffer, with `trace_marker` and `tracing_on`.
    pub fn folder(&self) -> &Path {
        self.ring.folder()
    }

    /// Empties the ring and records, if it was paused. New traces compete with those in `kept`.
    pub fn begin(&mut self, mut kept: Vec<Kept>) -> Result<(), RecordError> {
        kept.order_by_key(|kept| Reverse(kept.latency_ns));
        self.kept = kept;
        self.ring.resume()?;
        self.recording_since_ns = Some(clock::now().0);
        Ok(())
    }

    /// Pauses; the traces, largest latency first, and how many latencies above the limit came since the last call while
    /// a trace was being saved.
    pub fn pause(&mut self) -> Result<(Vec<Kept>, u64), RecordError> {
        self.recording_since_ns = None;
        self.ring.pause()?;
        Ok((std::mem::take(&mut self.kept), std::mem::take(&mut self.missed)))
    }

    /// Stops recording at once if one of these spikes is worth its trace, which [`Self::spikes`] then saves: any other
    /// work before that would push the moment out of the ring.
    pub fn hold(&self, spikes: &[SpikeRecord]) -> Result<(), RecordError> {
        let Some(since_ns) = self.recording_since_ns else { return Ok(()) };
        let late = spikes.iter().filter(|spike| spike.latency_ns > self.above.0 && spike.at_ns >= since_ns);
        self.largest(late).map_or(Ok(()), |_| self.ring.pause())
    }

    /// The largest of them, if it is worth its trace.
    fn largest<'s>(&self, spikes: impl IntoIterator<Item = &'s SpikeRecord>) -> Option<&'s SpikeRecord> {
        let largest = spikes.into_iter().max_by_key(|spike| spike.latency_ns)?;
        let is_full = self.kept.len() >= self.worst;
        let is_smaller = self.kept.last().is_some_and(|least| least.latency_ns >= largest.latency_ns);
        (!is_full || !is_smaller).then_some(largest)
    }

    /// Checks new spikes, and saves the trace if the largest of them is to be kept: as the file that `path` names,
    /// which must not exist.
    pub fn spikes(
        &mut self,
        spikes: &[SpikeRecord],
        path: &mut dyn FnMut(&SpikeRecord) -> PathBuf,
    ) -> Result<Option<Change>, RecordError> {
        let Some(since_ns) = self.recording_since_ns else { return Ok(None) };
        let above = self.above.0;
        let late = spikes.iter().filter(|spike| spike.latency_ns > above);
        let (traced, untraced): (Vec<_>, Vec<_>) = late.partition(|spike| spike.at_ns >= since_ns);
        self.missed += untraced.len() as u64;
        let Some(largest) = self.largest(traced) else { return Ok(None) };
        let is_full = self.kept.len() >= self.worst;
        self.ring.pause()?;
        let saved = self.ring.save(&path(largest))?;
        let SpikeRecord { cpu, at_ns, latency_ns, .. } = *largest;
        let kept = Kept { path: saved.path, cpu, at_ns, latency_ns };
        self.kept.push(kept.clone());
        self.kept.order_by_key(|kept| Reverse(kept.latency_ns));
        let removed = self.kept.pop_if(|_| is_full);
        if let Some(least) = &removed {
            fs::remove_file(&least.path).map_err(RecordError::save(&least.path))?;
        }
        self.ring.resume()?;
        self.recording_since_ns = Some(clock::now().0);
        Ok(Some(Change { spike: largest.clone(), kept, removed }))
    }

    /// Ends the recording: as [`Self::pause`], and the buffer is removed.
    pub fn finish(self) -> Result<(Vec<Kept>, u64), RecordError> {
        self.ring.finish()?;
        Ok((self.kept, self.missed))
    }
}

/// The command of this program's processes, as the kernel's events name them.
pub fn own_command() -> Option<String> {
    fs::read_to_string("/proc/self/comm").ok().map(|name| name.trim_end().to_owned())
}

/// Names for the traces of one recording: `first` for the largest latency, with a number appended for the others.
#[derive(Clone, Debug)]
pub struct RankedFiles {
    first: PathBuf,
    worst: usize,
    saved: usize,
}

impl RankedFiles {
    /// Names for up to `worst` traces.
    pub fn new(first: PathBuf, worst: usize) -> Self {
        Self { first, worst, saved: 0 }
    }

    /// Where the next trace is saved: under a number, until the ranks are known.
    pub fn next_path(&mut self) -> PathBuf {
        self.saved += 1;
        if self.worst <= 1 { self.first.clone() } else { self.sibling(&format!("saved-{}", self.saved)) }
    }

    fn sibling(&self, suffix: &str) -> PathBuf {
        let stem = self.first.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        self.first.with_file_name(format!("{stem}-{suffix}.dat"))
    }

    /// Renames the traces, which are in the order of their ranks.
    ///
    /// # Errors
    /// [`RecordError::Save`] when a trace cannot get its name.
    pub fn rename(&self, traces: &mut [Kept]) -> Result<(), RecordError> {
        for (index, kept) in traces.iter_mut().enumerate() {
            let path = if index == 0 { self.first.clone() } else { self.sibling(&(index + 1).to_string()) };
            if path.exists() {
                // Already has this name, or the name is taken: keep the old name.
                continue;
            }
            fs::rename(&kept.path, &path).map_err(RecordError::save(&path))?;
            kept.path = path;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
