//! The load `memory`: traffic over a working set of random data.

use super::Pace;
use crate::cpus::CpuSelector;
use crate::plan::Size;
use crate::plan::flag::Flag;
use crate::plan::kinds::Words;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Memory traffic.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate load memory --working-set l3/2 --duration 10s
  whylate load memory --cpus 0,1 --working-set 64MiB --access read --rate 500MB/s
  whylate load memory --working-set l3*4 --access random-chase --json"))]
pub struct MemoryPlan {
    /// CPUs on which the load runs: one thread with its own buffer on each.
    #[serde(default = "CpuSelector::target")]
    pub cpus: CpuSelector,
    /// Size of each thread's buffer (`copy`: source and destination together).
    #[schemars(extend("x-flag" = Flag::by_default("llc/2")))]
    pub working_set: Size,
    /// Kind of traffic.
    #[serde(default)]
    pub access: MemoryAccess,
    /// NUMA node of the buffers; by default the node of the CPU.
    pub node: Option<u32>,
    /// Uses huge pages for the buffers.
    #[serde(default)]
    pub huge_pages: bool,
    /// Target rate: bytes per second over all CPUs (`500MB/s`) or a share of time (`25%`); by default as fast as
    /// possible.
    #[serde(default)]
    pub rate: Pace,
}

impl Words for MemoryPlan {}

words! {
    /// Kinds of memory traffic.
    #[derive(Default)]
    pub enum MemoryAccess: "a kind of memory traffic" {
        /// Reads the buffer from end to end.
        Read = "read",
        /// Writes the buffer from end to end.
        Write = "write",
        /// Copies one half of the working set to the other.
        #[default]
        Copy = "copy",
        /// Follows a random chain through all cache lines of the buffer.
        Chase = "random-chase" | "chase",
        /// Writes the buffer with stores that bypass the caches.
        NonTemporal = "non-temporal-write" | "nt-write",
    }
}
