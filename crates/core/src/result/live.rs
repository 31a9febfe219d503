//! The progress that a run reports while it goes on.

use super::super::CpuId;
use serde::{Deserialize, Serialize};

/// The socket in the directory of a running run: a line of JSON ([`LiveValue`]) twice a second for each program that
/// connects.
pub const LIVE_SOCKET: &str = "live.sock";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveValue {
    pub cell: String,
    /// The repeat, from 1.
    pub repeat: u32,
    /// What is being done: `noise floor`, `loads`, or the names of the probes.
    pub what: String,
    /// Repeats of cells that are done, and how many there are.
    pub done: u32,
    /// Repeats of cells in all.
    pub total: u32,
    /// Which part of the present measurement is done, in [0, 1].
    pub part: f64,
    pub cpus: Vec<LiveCpu>,
}

/// What the present probe measured so far on one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveCpu {
    pub cpu: CpuId,
    pub samples: u64,
    /// The largest one, in nanoseconds.
    pub max_ns: u64,
    /// The same if it is larger than the last one that was reported; otherwise 0.
    pub newest_max_ns: u64,
}
