//! What `whylate copy` prints: how fast bytes move from one type of memory to another, by which method.

use crate::copying::{CopyMethod, Frame, MemoryMode};
use crate::facts::Facts;
use crate::units::CpuId;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `format` of [`CopyResult`].
pub const COPY_FORMAT: &str = "whylate.copy/1";

/// A rate within this share of the highest one belongs to the plateau.
const PLATEAU_SHARE: f64 = 0.9;

/// What `whylate copy` prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CopyResult {
    /// [`COPY_FORMAT`].
    pub format: String,
    /// The machine.
    pub facts: Facts,
    /// The figures.
    #[serde(flatten)]
    pub table: CopyTable,
}

/// Measured copies, and the memory types that were used.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CopyTable {
    /// The CPU that copied.
    pub cpu: CpuId,
    /// The frame whose time budget matters, if a frame was given.
    pub frame: Option<Frame>,
    /// One row for each pair of memory types and method.
    pub rows: Vec<CopyRow>,
    /// The memory that was used, and the type that timing shows.
    #[serde(default)]
    pub memory: Vec<MemoryFacts>,
    /// Every backend for memory of a chosen type; unusable backends have a reason.
    #[serde(default)]
    pub backends: Vec<BackendFacts>,
    /// What was not measured, or differs from the request.
    #[serde(default)]
    pub warnings: Vec<Warning>,
}

/// A pair of memory types and a method.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CopyRow {
    /// The requested type of the source's memory.
    pub from: MemoryMode,
    /// The requested type of the destination's memory.
    pub to: MemoryMode,
    /// The copy method.
    pub method: CopyMethod,
    /// The requested type of the side that is not ordinary memory.
    pub requested: MemoryMode,
    /// The type in the page table, if it can be read.
    pub mapped: Option<MemoryMode>,
    /// The type that timing shows; absent if the timings contradict each other. The rates belong to the type
    /// `requested` only if both are the same.
    pub effective: Option<MemoryMode>,
    /// The backend of that memory.
    pub backend: String,
    /// The backend's device; absent for ordinary memory.
    pub device: Option<String>,
    /// The rate for each block size, smallest first.
    pub blocks: Vec<CopyBlock>,
    /// The highest rate, and the block sizes at which this rate begins and ends.
    pub plateau: Option<Plateau>,
    /// The cost of a frame, if a frame was given.
    pub frame: Option<FrameCost>,
}

/// One size of a block.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CopyBlock {
    /// Size of the block.
    pub bytes: u64,
    /// Bytes copied per second, the median of the trials. (Reads and writes together move twice as many bytes.)
    pub bytes_per_s: f64,
    /// A quarter of the trials is below this.
    pub low_bytes_per_s: f64,
    /// A quarter of the trials is above this.
    pub high_bytes_per_s: f64,
    /// Time of one block, the median of the trials.
    pub block_ns: f64,
    /// Number of trials.
    pub trials: u32,
}

/// The highest rate over block sizes.
#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plateau {
    /// The highest rate.
    pub bytes_per_s: f64,
    /// The smallest block with at least nine tenths of this rate.
    pub from_bytes: u64,
    /// The largest block up to which the rate stays within this tenth; absent if the rate never falls.
    pub knee_bytes: Option<u64>,
}

/// What copying one frame costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FrameCost {
    /// Frames copied per second without a pause.
    pub frames_per_s: f64,
    /// The part of a frame's time that one copy takes; above 1, the copy does not fit into this time.
    pub frame_time_share: f64,
    /// Frames per second of the paced copy.
    pub paced_frames_per_s: f64,
    /// The part of a CPU that the paced copy used, as the kernel counted it.
    pub cpu_share: f64,
}

/// Memory that was copied from and to.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryFacts {
    /// The backend of the memory.
    pub backend: String,
    /// The backend's device; absent for ordinary memory.
    pub device: Option<String>,
    /// The requested type.
    pub requested: MemoryMode,
    /// The type in the page table, if it can be read.
    pub mapped: Option<MemoryMode>,
    /// The type that timing shows.
    pub effective: Option<MemoryMode>,
    /// Time of a repeated load.
    pub reread_ns: f64,
    /// Time of a repeated load of ordinary memory.
    pub reread_ordinary_ns: f64,
    /// Time of a store and a load of the same bytes.
    pub store_load_ns: f64,
    /// Time of a store and a load of the same bytes in ordinary memory.
    pub store_load_ordinary_ns: f64,
    /// Time of a store.
    pub store_ns: f64,
    /// Time of a store to ordinary memory.
    pub store_ordinary_ns: f64,
    /// How many times faster streaming loads are than plain loads.
    pub streaming_gain: Option<f64>,
}

impl MemoryFacts {
    /// Whether timing shows what was asked for.
    pub fn is_proven(&self) -> bool {
        self.effective.is_some_and(|effective| effective.is_timed_as(self.requested))
    }
}

/// A way to get memory of a chosen type.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BackendFacts {
    /// The backend's name.
    pub name: String,
    /// What the backend is.
    pub meaning: String,
    /// The types of memory that the backend offers here.
    #[serde(default)]
    pub offers: Vec<BackendOffer>,
    /// Why the backend offers nothing, and what to do.
    pub reason: Option<String>,
}

/// Memory that a backend offers.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BackendOffer {
    /// The type that can be requested.
    pub mode: MemoryMode,
    /// The device; absent for ordinary memory.
    pub device: Option<String>,
    /// Whether this memory is used only if its backend is named.
    #[serde(default)]
    pub only_when_named: bool,
}

impl CopyRow {
    /// Whether timing shows the type that was asked for, so that the rates are those of that type.
    pub fn is_proven(&self) -> bool {
        self.effective.is_some_and(|effective| effective.is_timed_as(self.requested))
    }

    /// The row's name: `wc-wb/movntdqa`.
    pub fn name(&self) -> String {
        format!("{}-{}/{}", self.from, self.to, self.method)
    }
}

impl Plateau {
    /// The plateau of a row's rates, smallest block first; `None` without any.
    pub fn of(blocks: &[CopyBlock]) -> Option<Self> {
        let highest = blocks.iter().map(|block| block.bytes_per_s).max_by(f64::total_cmp)?;
        let is_on = |block: &&CopyBlock| block.bytes_per_s >= highest * PLATEAU_SHARE;
        let from = blocks.iter().position(|block| is_on(&block))?;
        let end = from + blocks[from..].iter().take_while(is_on).count();
        let knee_bytes = (end < blocks.len()).then(|| blocks[end - 1].bytes);
        Some(Self { bytes_per_s: highest, from_bytes: blocks[from].bytes, knee_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plateau(rates: &[(u64, f64)]) -> Option<Plateau> {
        let block = |(bytes, rate): &(u64, f64)| CopyBlock {
            bytes: *bytes,
            bytes_per_s: *rate,
            low_bytes_per_s: *rate,
            high_bytes_per_s: *rate,
            block_ns: 1.0,
            trials: 1,
        };
        Plateau::of(&rates.iter().map(block).collect::<Vec<_>>())
    }

    #[test]
    fn a_plateau_ends_where_the_rate_falls() {
        // The published rates of streaming loads from write-combining memory.
        let rates = [(256, 593.0), (512, 610.0), (4096, 629.0), (8192, 333.5), (16384, 333.5)];
        let found = plateau(&rates).unwrap();
        assert_eq!((found.bytes_per_s, found.from_bytes, found.knee_bytes), (629.0, 256, Some(4096)));
    }

    #[test]
    fn a_rate_that_rises_has_no_knee() {
        let rates = [(256, 2441.0), (512, 3814.0), (1024, 4069.0), (4096, 4695.0), (16384, 4694.0)];
        let found = plateau(&rates).unwrap();
        assert_eq!((found.from_bytes, found.knee_bytes), (4096, None));
        assert_eq!(plateau(&[]), None);
    }
}
