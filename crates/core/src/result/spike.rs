//! Spikes: moments above the threshold, with their causes.

use super::{Cause, HwlatSample};
use crate::units::CpuId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One moment above the threshold.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spike {
    /// The measured CPU.
    pub cpu: CpuId,
    /// When the task ran again.
    pub at_ns: u64,
    /// How late it was, or how long the gap was.
    pub latency_ns: u64,
    /// Number of the sample (timer, dispatch: period, missed ones included; stall: gap; roundtrip: round trip),
    /// from 0.
    pub sample: u64,
    /// Its cell, in lists of spikes of several cells.
    pub cell: Option<String>,
    /// The probe that saw it, joined to its series with a `/` if it has several.
    pub probe: Option<String>,
    /// The repeat that it belongs to, from 1.
    pub repeat: Option<u32>,
    /// Who did it.
    pub cause: Cause,
    /// The other contributors, largest share first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Cause>,
    /// Spikes of several CPUs at the same moment have the same number: one event, whose cause is not on one CPU alone.
    /// Absent for a spike that no other CPU had.
    pub event: Option<u64>,
    /// Records of what the kernel did that were lost in the spike's window: the cause may be another one.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub lost: u64,
    /// The sample as the hwlat tracer recorded it (tracer/hwlat only).
    pub hwlat: Option<HwlatSample>,
}

/// One of the wake-ups that led to a task's wake-up. Each was made by the thread that the next one is about.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WakeLink {
    /// The waker: the name of a thread, or of an interrupt, or a timer.
    pub by: String,
    /// The thread; absent if an interrupt or a timer did it.
    pub pid: Option<u32>,
    /// When, on CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// The CPU that did it.
    pub cpu: CpuId,
    /// How long before that the thread was woken itself; absent if that is too long ago to be known.
    pub took_ns: Option<u64>,
    /// How much of that time it ran; absent if it ran on after this wake-up, so that its time was not recorded yet.
    pub ran_ns: Option<u64>,
    /// The thread that had its CPU for most of the rest.
    pub behind: Option<String>,
}

impl Spike {
    /// A spike whose cause is not known, with nothing else known about it.
    pub fn unexplained(cpu: CpuId, at_ns: u64, latency_ns: u64) -> Self {
        Self {
            cpu,
            at_ns,
            latency_ns,
            sample: 0,
            cell: None,
            probe: None,
            repeat: None,
            cause: Cause::unattributed(),
            also: Vec::new(),
            event: None,
            lost: 0,
            hwlat: None,
        }
    }

    /// Adds the causes that were found, the largest share first.
    pub fn explain(&mut self, found: crate::record::SpikeCauses) {
        let mut causes = found.causes.into_iter();
        self.cause = causes.next().unwrap_or_else(Cause::unattributed);
        self.also = causes.collect();
        self.lost = found.lost;
    }
}
