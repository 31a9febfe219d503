//! Spikes: moments above the threshold, with their causes.

use super::{Cause, HwlatSample};
use crate::units::CpuId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One moment above the threshold.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spike {
    /// The measured CPU; of a watched thread, the CPU on which it ran first.
    pub cpu: CpuId,
    /// The CPU on which a watched thread was at the end of the spike, if it is not `cpu`.
    pub ended_on: Option<CpuId>,
    /// When the task ran again.
    pub at_ns: u64,
    /// How late the task was, or how long the gap was.
    pub latency_ns: u64,
    /// Number of the sample (timer, dispatch: period, missed ones included; stall: gap; roundtrip: round trip),
    /// from 0.
    pub sample: u64,
    /// The spike's cell, in lists of spikes of several cells.
    pub cell: Option<String>,
    /// The probe that saw the spike; if it has several series, `PROBE/SERIES`.
    pub probe: Option<String>,
    /// The spike's repeat, from 1.
    pub repeat: Option<u32>,
    /// The main cause.
    pub cause: Cause,
    /// The other causes, largest share first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Cause>,
    /// Number of the event: spikes of several CPUs at the same moment are one event, whose cause is not on one CPU
    /// alone. Absent for a spike on one CPU only.
    pub event: Option<u64>,
    /// Records of the kernel's activity that were lost during the spike: the cause may be another one.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub lost: u64,
    /// The sample as the hwlat tracer recorded it (tracer/hwlat only).
    pub hwlat: Option<HwlatSample>,
}

/// One wake-up of the chain that led to a task's wake-up. The next entry in the list woke the waker of this entry.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WakeLink {
    /// The waker: the name of a thread or an interrupt, or a timer.
    pub by: String,
    /// The waker's thread id; absent if an interrupt or a timer woke the task.
    pub pid: Option<u32>,
    /// Time of the wake-up, on CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// The CPU of the waker.
    pub cpu: CpuId,
    /// How long before this wake-up the waker itself was woken; absent if that is too long ago to be known.
    pub took_ns: Option<u64>,
    /// How much of `took_ns` the waker ran; absent if it still ran after this wake-up, and was not yet recorded.
    pub ran_ns: Option<u64>,
    /// The thread that had the waker's CPU for most of the rest.
    pub behind: Option<String>,
}

impl Spike {
    /// A spike whose cause is not known, with nothing else known about it.
    pub fn unexplained(cpu: CpuId, at_ns: u64, latency_ns: u64) -> Self {
        Self {
            cpu,
            ended_on: None,
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

    /// The CPU to show: a watched thread may have moved since its series began.
    pub fn shown_cpu(&self) -> CpuId {
        self.ended_on.unwrap_or(self.cpu)
    }

    /// Adds the causes that were found, the largest share first.
    pub fn explain(&mut self, found: crate::record::SpikeCauses) {
        let mut causes = found.causes.into_iter();
        self.cause = causes.next().unwrap_or_else(Cause::unattributed);
        self.also = causes.collect();
        self.lost = found.lost;
    }
}
