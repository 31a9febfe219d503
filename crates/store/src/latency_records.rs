//! Who was late in the largest latencies of the kernel's histograms: `latency-records.jsonl`, a line for each new
//! maximum.

use serde::{Deserialize, Serialize};
use std::path::Path;
use whylate_core::CpuId;
use whylate_core::result::{HistogramKind, LatencyRecord};

/// Its name in the run directory.
pub(crate) const FILE: &str = "latency-records.jsonl";

/// A line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) cell: String,
    pub(crate) repeat: u32,
    pub(crate) attempt: u32,
    pub(crate) cpu: CpuId,
    pub(crate) kind: HistogramKind,
    pub(crate) record: LatencyRecord,
}

impl Line {
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts are always JSON")
    }
}

/// The lines of a run; none where it has no such file. The last line of a killed run may be cut off: what cannot be
/// read is left out.
pub(crate) fn read(run: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(run.join(FILE)).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}
