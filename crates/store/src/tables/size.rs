//! About how much memory rows take, so that they are stored in time.

use super::Rows;
use std::mem::size_of_val;
use whylate_core::result::Cause;

/// Rows that take more are stored at once. Storing takes about twice this memory in addition for a moment.
pub const FLUSH_BYTES: usize = 8 << 20;

impl Rows {
    /// About how much memory they take, in bytes.
    pub fn bytes(&self) -> usize {
        let buckets: usize = self.intervals.iter().map(|(_, interval)| interval.histogram.len()).sum();
        let texts = 64
            * (self.ipis.len()
                + self.sources.len()
                + self.interrupts.len()
                + self.tasks.len()
                + self.audit.len()
                + self.triggers.len()
                + self.chains.len()
                + self.gpus.len());
        let causes: usize = self.causes.iter().map(|(_, spike)| causes_bytes(&spike.causes)).sum();
        let moments: usize = self
            .moments
            .iter()
            .flat_map(|(_, it)| &it.threads)
            .map(|it| size_of_val(it) + causes_bytes(&it.causes))
            .sum();
        let parts = self.paths.iter().flat_map(|(_, path)| &path.parts);
        let paths: usize = parts.map(|part| size_of_val(part) + part.thread.len()).sum();
        size_of_val(&self.intervals[..])
            + 16 * buckets
            + size_of_val(&self.spikes[..])
            + size_of_val(&self.causes[..])
            + causes
            + size_of_val(&self.ipis[..])
            + size_of_val(&self.sources[..])
            + size_of_val(&self.interrupts[..])
            + texts
            + size_of_val(&self.own[..])
            + size_of_val(&self.counters[..])
            + size_of_val(&self.rates[..])
            + size_of_val(&self.tasks[..])
            + size_of_val(&self.audit[..])
            + size_of_val(&self.triggers[..])
            + size_of_val(&self.moments[..])
            + moments
            + size_of_val(&self.chains[..])
            + size_of_val(&self.paths[..])
            + paths
            + size_of_val(&self.gpus[..])
            + size_of_val(&self.hwlat[..])
    }
}

fn causes_bytes(causes: &[Cause]) -> usize {
    let text = |text: &String| size_of_val(text) + text.len();
    let texts = |cause: &Cause| -> usize {
        let names = cause.actor.iter().chain(&cause.function);
        names.chain(&cause.callers).chain(&cause.evidence).map(text).sum()
    };
    size_of_val(causes) + causes.iter().map(texts).sum::<usize>()
}
