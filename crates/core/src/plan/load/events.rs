//! Loads that are made of single acts: flushes, barriers, buffers, packets, interrupts.

use super::EventPace;
use crate::cpus::CpuSelector;
use crate::plan::kinds::{KeyError, Words};
use crate::units::Bytes;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Changes of memory mappings; each change flushes the TLB of every CPU that runs the same process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate load tlb --victims 1
  whylate load tlb --cpus 0,2 --victims 1 --rate 10000/s --duration 1m --json

A flush reaches only CPUs that run the same process, so the load also runs a busy thread, of
ordinary priority, on each CPU of --victims."))]
pub struct TlbPlan {
    /// CPUs on which mappings are changed, one thread on each.
    pub cpus: CpuSelector,
    /// CPUs to disturb: the load also runs threads on these CPUs, because a flush reaches only CPUs that run the same
    /// process.
    pub victims: CpuSelector,
    /// Flushes per second over all CPUs (`1000/s`), or a share of time (`25%`); by default as fast as possible.
    pub rate: EventPace,
}

/// Memory barriers, for which the kernel interrupts other CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate load ipi --victims 1
  whylate load ipi --reach global --rate 1000/s --json

A barrier reaches only CPUs that run the same process (private) or a process that has registered
for barriers (global), so the load also runs a busy thread, of ordinary priority, on each CPU of
--victims."))]
pub struct IpiPlan {
    /// CPUs that issue the barriers, one thread on each.
    pub cpus: CpuSelector,
    /// CPUs to disturb: the load also runs threads on these CPUs, which the barriers interrupt.
    pub victims: CpuSelector,
    /// Threads that a barrier reaches.
    pub reach: BarrierReach,
    /// Barriers per second over all CPUs (`1000/s`), or a share of time (`25%`); by default as fast as possible.
    pub rate: EventPace,
}

/// Buffers that the kernel takes out of its cached mapping, which flushes the TLB of every CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate load pageattr --cpus 0
  whylate load pageattr --rate 100/s --json
  whylate load pageattr --source secretmem --size 64KiB --rate 1000/s
  whylate load pageattr --source secretmem --size 64KiB --rate 1000/s --reuse

With --reuse the load writes the same buffer every time, which causes no flushes. The load refuses a
graphics device whose driver maps buffers cached; `modprobe vgem` makes a device that works."))]
pub struct PageattrPlan {
    /// CPUs on which buffers are allocated, one thread on each.
    pub cpus: CpuSelector,
    /// Source of the buffers.
    pub source: BufferSource,
    /// Node of the graphics device; by default the first one that maps buffers write-combining.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<PathBuf>,
    /// Size of a buffer.
    pub size: Bytes,
    /// Allocates one buffer at the start and rewrites it each time, instead of allocating a new one.
    pub reuse: bool,
    /// Buffers per second over all CPUs (`100/s`), or a share of time (`25%`); by default as fast as possible.
    pub rate: EventPace,
}

/// Packets on the loopback interface, which are received in softirqs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate load softirq --cpus 1
  whylate load softirq --cpus 1 --rate 20000/s --json"))]
pub struct SoftirqPlan {
    /// CPUs on which packets are sent and received, one thread on each.
    pub cpus: CpuSelector,
    /// Packets per second over all CPUs (`10000/s`), or a share of time (`25%`); by default as fast as possible.
    pub rate: EventPace,
}

/// Real interrupts, whose handlers run in threads on PREEMPT_RT kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate load irq-thread --cpus 1
  whylate load irq-thread --source rtc --rate 1000/s
  whylate load irq-thread --source disk --json

The queues of a disk determine which CPU handles its interrupts; /proc/interrupts shows the CPU."))]
pub struct IrqThreadPlan {
    /// CPUs on which threads trigger the interrupts, one thread on each.
    pub cpus: CpuSelector,
    /// Source of the interrupts.
    pub source: IrqSource,
    /// Interrupts per second over all CPUs (`1000/s`), or a share of time (`25%`); by default as fast as possible.
    pub rate: EventPace,
}

impl Default for TlbPlan {
    fn default() -> Self {
        Self { cpus: CpuSelector::Others, victims: CpuSelector::Target, rate: EventPace::Full }
    }
}
impl Default for IpiPlan {
    fn default() -> Self {
        let (cpus, victims) = (CpuSelector::Others, CpuSelector::Target);
        Self { cpus, victims, reach: BarrierReach::Private, rate: EventPace::Full }
    }
}
impl Default for PageattrPlan {
    fn default() -> Self {
        Self {
            cpus: CpuSelector::Others,
            source: BufferSource::Auto,
            device: None,
            size: Bytes(1 << 20),
            reuse: false,
            rate: EventPace::Full,
        }
    }
}
impl Default for SoftirqPlan {
    fn default() -> Self {
        Self { cpus: CpuSelector::Target, rate: EventPace::Full }
    }
}
impl Default for IrqThreadPlan {
    fn default() -> Self {
        Self { cpus: CpuSelector::Target, source: IrqSource::Auto, rate: EventPace::Full }
    }
}

impl Words for TlbPlan {}
impl Words for IpiPlan {}
impl Words for PageattrPlan {
    fn check(&self) -> Result<(), KeyError> {
        if self.size.0 == 0 {
            return Err(KeyError::new("size", "must be above 0; write for example `1MiB`"));
        }
        if self.device.is_some() && self.source == BufferSource::Secretmem {
            return Err(KeyError::new("device", "is not for secret memory; leave out `device` or `source`"));
        }
        Ok(())
    }
}
impl Words for SoftirqPlan {}
impl Words for IrqThreadPlan {}

words! {
    /// The CPUs that a memory barrier reaches.
    #[derive(Default)]
    pub enum BarrierReach: "a reach of barriers" {
        /// CPUs that run a thread of the load (`MEMBARRIER_CMD_PRIVATE_EXPEDITED`).
        #[default]
        Private = "private",
        /// CPUs that run a thread of any process that has registered for barriers (`MEMBARRIER_CMD_GLOBAL_EXPEDITED`).
        Global = "global",
    }
}

words! {
    /// Sources of buffers whose pages the kernel does not map cached.
    #[derive(Default)]
    pub enum BufferSource: "a source of buffers" {
        /// A graphics device or, without one, secret memory.
        #[default]
        Auto = "auto",
        /// Dumb buffers of a graphics device that maps them write-combining.
        Graphics = "graphics",
        /// Secret memory (`memfd_secret`): the first touch of a page takes it out of the kernel's mapping.
        Secretmem = "secretmem",
    }
}

words! {
    /// Sources of real interrupts.
    #[derive(Default)]
    pub enum IrqSource: "a source of interrupts" {
        /// The first of the other sources that works on this machine.
        #[default]
        Auto = "auto",
        /// Direct reads (past the page cache) from the disk on which whylate is stored.
        Disk = "disk",
        /// The periodic interrupt of the real-time clock.
        Rtc = "rtc",
        /// High-resolution timers on each CPU.
        Timer = "timer",
    }
}
