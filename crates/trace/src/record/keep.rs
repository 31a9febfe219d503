//! Keeps the traces of the largest spikes while a probe goes on measuring.
//!
//! Spikes are known up to 50 ms after they happened, so the ring has to hold that long. While a trace is saved
//! nothing is recorded; spikes of that time are counted as missed.

use super::error::RecordError;
use super::recorder::Recorder;
use std::fs;
use std::path::{Path, PathBuf};
use whylate_core::record::SpikeRecord;
use whylate_core::{CpuId, Nanos};
use whylate_sys::clock;

/// The trace of one spike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The file.
    pub path: PathBuf,
    /// The CPU that was late.
    pub cpu: CpuId,
    /// When the task ran again, CLOCK_MONOTONIC, which is the trace's clock.
    pub at_ns: u64,
    /// How late it was.
    pub latency_ns: u64,
    /// Events that the kernel overwrote or dropped before it was saved, per CPU; a ring always overwrites once it is
    /// full.
    pub lost: Vec<(CpuId, u64)>,
}

/// Saves the trace of each spike that is among the largest.
#[derive(Debug)]
pub struct Keeper {
    recorder: Recorder,
    above: Nanos,
    worst: usize,
    first_path: PathBuf,
    saved: usize,
    kept: Vec<Kept>,
    missed: u64,
    recording_since_ns: u64,
}

impl Keeper {
    /// Keeps the traces of the `worst` largest latencies above `above`: the first one as `first_path`, the others
    /// beside it with a number.
    pub fn new(recorder: Recorder, above: Nanos, worst: usize, first_path: PathBuf) -> Self {
        Self {
            recorder,
            above,
            worst: worst.max(1),
            first_path,
            saved: 0,
            kept: Vec::new(),
            missed: 0,
            recording_since_ns: clock::now().0,
        }
    }

    /// Folder of the trace buffer, with `trace_marker` and `tracing_on`.
    pub fn folder(&self) -> &Path {
        self.recorder.folder()
    }

    /// Looks at new spikes, and saves the trace when the largest of them is to be kept.
    ///
    /// # Errors
    /// [`RecordError`] when the trace cannot be saved.
    pub fn spikes(&mut self, spikes: &[SpikeRecord]) -> Result<(), RecordError> {
        let above = self.above.0;
        let late = spikes.iter().filter(|spike| spike.latency_ns > above);
        let (traced, untraced): (Vec<_>, Vec<_>) =
            late.partition(|spike| spike.at_ns >= self.recording_since_ns);
        let Some(largest) = traced.iter().max_by_key(|spike| spike.latency_ns) else {
            self.missed += untraced.len() as u64;
            return Ok(());
        };
        let is_full = self.kept.len() >= self.worst;
        if is_full && self.kept.last().is_some_and(|least| least.latency_ns >= largest.latency_ns) {
            return Ok(());
        }
        self.recorder.pause()?;
        let path = self.next_path();
        let saved = self.recorder.save(&path)?;
        self.missed += untraced.len() as u64;
        self.kept.push(Kept {
            path: saved.path,
            cpu: largest.cpu,
            at_ns: largest.at_ns,
            latency_ns: largest.latency_ns,
            lost: saved.lost,
        });
        self.kept.sort_by_key(|kept| std::cmp::Reverse(kept.latency_ns));
        if let Some(least) = self.kept.pop_if(|_| is_full) {
            let path = least.path;
            fs::remove_file(&path).map_err(|source| RecordError::Save { path, source })?;
        }
        self.recorder.resume()?;
        self.recording_since_ns = clock::now().0;
        Ok(())
    }

    /// Ends the recording: the traces, largest latency first, and how many latencies above the limit came while a
    /// trace was being saved.
    ///
    /// # Errors
    /// [`RecordError::LeftBehind`], or [`RecordError::Save`] when a trace cannot get its name; the buffer is removed
    /// all the same.
    pub fn finish(mut self) -> Result<(Vec<Kept>, u64), RecordError> {
        self.rename()?;
        self.recorder.finish()?;
        Ok((self.kept, self.missed))
    }

    /// Where the next trace is saved: while smaller ones make room for larger ones, under its number.
    fn next_path(&mut self) -> PathBuf {
        self.saved += 1;
        if self.worst == 1 { self.first_path.clone() } else { self.beside(&format!("saved-{}", self.saved)) }
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let stem = self.first_path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        self.first_path.with_file_name(format!("{stem}-{suffix}.dat"))
    }

    /// Gives the traces their names: the largest latency has the first one.
    fn rename(&mut self) -> Result<(), RecordError> {
        let names: Vec<PathBuf> = (1..=self.kept.len())
            .map(|rank| if rank == 1 { self.first_path.clone() } else { self.beside(&rank.to_string()) })
            .collect();
        for (kept, path) in self.kept.iter_mut().zip(names) {
            if path.exists() {
                // Ours already, or a file of somebody else: the trace keeps the name that it has.
                continue;
            }
            let failed = |source| RecordError::Save { path: path.clone(), source };
            fs::rename(&kept.path, &path).map_err(failed)?;
            kept.path = path;
        }
        Ok(())
    }
}
