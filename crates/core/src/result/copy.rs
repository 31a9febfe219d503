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

/// Rows of copies, with the memory that they are of.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CopyTable {
    /// The CPU that copied.
    pub cpu: CpuId,
    /// The frame of the budget, if one was asked for.
    pub frame: Option<Frame>,
    /// One for each pair of memory types and method.
    pub rows: Vec<CopyRow>,
    /// The memory that was used, and what timing says of it.
    #[serde(default)]
    pub memory: Vec<MemoryFacts>,
    /// Every way to get memory of a chosen type, and why it cannot be used here.
    #[serde(default)]
    pub backends: Vec<BackendFacts>,
    /// What was not measured, or is not what was asked for.
    #[serde(default)]
    pub warnings: Vec<Warning>,
}

/// A pair of memory types and a method.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CopyRow {
    /// The type asked for of the source.
    pub from: MemoryMode,
    /// The type asked for of the destination.
    pub to: MemoryMode,
    /// How.
    pub method: CopyMethod,
    /// The type asked for of the side that is not ordinary memory.
    pub requested: MemoryMode,
    /// What the page table says of it, where it can be read.
    pub mapped: Option<MemoryMode>,
    /// What timing shows of it; absent if its figures contradict each other. The rates are those of `requested` only
    /// if this agrees with it.
    pub effective: Option<MemoryMode>,
    /// The backend of that memory.
    pub backend: String,
    /// Its device; absent for ordinary memory.
    pub device: Option<String>,
    /// The rate for each size of a block, smallest first.
    pub blocks: Vec<CopyBlock>,
    /// The highest rate, and the block sizes at which it is reached and left.
    pub plateau: Option<Plateau>,
    /// What a frame costs, if one was asked for.
    pub frame: Option<FrameCost>,
}

/// One size of a block.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CopyBlock {
    /// Its size.
    pub bytes: u64,
    /// Bytes copied per second, the median of the trials. (What is moved is twice that: read and written.)
    pub bytes_per_s: f64,
    /// A quarter of the trials is below this.
    pub low_bytes_per_s: f64,
    /// A quarter of the trials is above this.
    pub high_bytes_per_s: f64,
    /// Time of one block, the median of the trials.
    pub block_ns: f64,
    /// How many trials there were.
    pub trials: u32,
}

/// The highest rate over block sizes.
#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plateau {
    /// The rate.
    pub bytes_per_s: f64,
    /// The smallest block within a tenth of it.
    pub from_bytes: u64,
    /// The largest block up to which the rate stays there; absent if it never falls.
    pub knee_bytes: Option<u64>,
}

/// What copying one frame costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FrameCost {
    /// Frames copied per second without a pause.
    pub frames_per_s: f64,
    /// The part of a frame's time that one copy takes; above 1 it does not fit.
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
    /// Where it is from.
    pub backend: String,
    /// Its device; absent for ordinary memory.
    pub device: Option<String>,
    /// What was asked for.
    pub requested: MemoryMode,
    /// What the page table says, where it can be read.
    pub mapped: Option<MemoryMode>,
    /// What timing shows.
    pub effective: Option<MemoryMode>,
    /// A repeated load.
    pub reread_ns: f64,
    /// The same of ordinary memory.
    pub reread_ordinary_ns: f64,
    /// A store and a load of the same bytes.
    pub store_load_ns: f64,
    /// The same of ordinary memory.
    pub store_load_ordinary_ns: f64,
    /// A store.
    pub store_ns: f64,
    /// The same of ordinary memory.
    pub store_ordinary_ns: f64,
    /// How many times as fast streaming loads are as plain ones.
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
    /// Its name.
    pub name: String,
    /// What it is.
    pub meaning: String,
    /// What it offers here.
    #[serde(default)]
    pub offers: Vec<BackendOffer>,
    /// Why it offers nothing, and what to do.
    pub reason: Option<String>,
}

/// Memory that a backend offers.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BackendOffer {
    /// The type that can be asked for.
    pub mode: MemoryMode,
    /// The device; absent for ordinary memory.
    pub device: Option<String>,
    /// Whether it is only used when its backend is named.
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
