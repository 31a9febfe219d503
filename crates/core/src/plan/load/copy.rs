//! The load `copy`: frames copied from one type of memory to another.

use super::Pace;
use crate::copying::{CopyMethod, MemoryMode};
use crate::cpus::CpuSelector;
use crate::plan::Size;
use crate::plan::flag::Flag;
use crate::plan::kinds::{KeyError, Words};
use crate::units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Frames copied one after another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate load copy --cpus 1 --rate 187MB/s
  whylate load copy --cpus 0 --method avx2-nt --working-set llc*2 --rate 1GB/s
  whylate load copy --from wc --method movntdqa --backend dumb --json

187MB/s is the rate of 60 NV12 frames of 1920x1080 pixels per second. `whylate copy --backends`
lists the memory types of this machine, and `whylate copy` measures the rate of each method."))]
pub struct CopyPlan {
    /// CPUs on which the load runs: one thread with its own buffers on each.
    pub cpus: CpuSelector,
    /// Type of the source's memory.
    pub from: MemoryMode,
    /// Type of the destination's memory.
    pub to: MemoryMode,
    /// Method of copying.
    pub method: CopyMethod,
    /// Backend that provides memory of other types than `wb`; by default the first that has the type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Device file of the backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<PathBuf>,
    /// Size of a frame.
    pub frame: Size,
    /// Total size of both buffers, which are used in rotation, frame by frame; by default one frame each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_set: Option<Size>,
    /// Target rate: bytes copied per second over all CPUs (`187MB/s`) or a share of time (`25%`); by default as fast as
    /// possible.
    #[schemars(extend("x-flag" = Flag::by_default("full")))]
    pub rate: Pace,
}

impl Default for CopyPlan {
    fn default() -> Self {
        Self {
            cpus: CpuSelector::target(),
            from: MemoryMode::WriteBack,
            to: MemoryMode::WriteBack,
            method: CopyMethod::default(),
            backend: None,
            device: None,
            frame: Size::Absolute(Bytes(3_110_400)),
            working_set: None,
            rate: Pace::Full,
        }
    }
}

impl Words for CopyPlan {
    fn check(&self) -> Result<(), KeyError> {
        if self.device.is_some() && self.backend.is_none() {
            return Err(KeyError::new("device", "needs `backend`: the backend that the device belongs to"));
        }
        Ok(())
    }
}
