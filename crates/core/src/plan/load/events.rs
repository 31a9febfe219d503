//! Loads that are made of single acts: flushes, barriers, buffers, packets, interrupts.

use super::EventPace;
use crate::cpus::CpuSelector;
use crate::plan::kinds::Words;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Changes of mappings, each of which flushes translations on every CPU that runs the same address space.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate load tlb --victims 1
  whylate load tlb --cpus 0,2 --victims 1 --rate 10000/s --duration 1m --json

A flush reaches only CPUs that run the same process: the load hosts a busy thread, of ordinary
priority, on each victim."))]
pub struct TlbPlan {
    /// Where mappings are changed, one thread on each CPU.
    pub cpus: CpuSelector,
    /// Where threads of the same process run that are hit; a flush reaches no other CPU.
    pub victims: CpuSelector,
    /// How many flushes over all CPUs (`1000/s`), or a share of time (`25%`); by default as many as go.
    pub rate: EventPace,
}

/// Memory barriers for which the kernel interrupts other CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate load ipi --victims 1
  whylate load ipi --reach global --rate 1000/s --json

A barrier reaches only CPUs that run the same process (private), or one that has registered for it
(global): the load hosts a busy thread, of ordinary priority, on each victim."))]
pub struct IpiPlan {
    /// Where barriers are asked for, one thread on each CPU.
    pub cpus: CpuSelector,
    /// Where threads run that the barriers reach.
    pub victims: CpuSelector,
    /// Whom a barrier reaches.
    pub reach: BarrierReach,
    /// How many barriers over all CPUs (`1000/s`), or a share of time (`25%`); by default as many as go.
    pub rate: EventPace,
}

/// Write-combining buffers made and given back, for which the kernel changes page attributes and flushes every CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate load pageattr --cpus 0
  whylate load pageattr --rate 100/s --json

Needs a graphics device whose driver maps buffers write-combining; `modprobe vgem` makes one."))]
pub struct PageattrPlan {
    /// Where buffers are made, one thread on each CPU.
    pub cpus: CpuSelector,
    /// How many buffers over all CPUs (`100/s`), or a share of time (`25%`); by default as many as go.
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
    /// Where packets are sent and received, one thread on each CPU.
    pub cpus: CpuSelector,
    /// How many packets over all CPUs (`10000/s`), or a share of time (`25%`); by default as many as go.
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

Which CPU handles a disk's interrupts is up to its queues; /proc/interrupts shows it."))]
pub struct IrqThreadPlan {
    /// Where interrupts are asked for, one thread on each CPU.
    pub cpus: CpuSelector,
    /// What interrupts.
    pub source: IrqSource,
    /// How many interrupts over all CPUs (`1000/s`), or a share of time (`25%`); by default as many as go.
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
        Self { cpus: CpuSelector::Others, rate: EventPace::Full }
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
impl Words for PageattrPlan {}
impl Words for SoftirqPlan {}
impl Words for IrqThreadPlan {}

words! {
    /// Whom a memory barrier reaches.
    #[derive(Default)]
    pub enum BarrierReach: "a reach of a barrier" {
        /// CPUs that run a thread of the load (`MEMBARRIER_CMD_PRIVATE_EXPEDITED`).
        #[default]
        Private = "private",
        /// CPUs that run a thread of any process that has registered for it (`MEMBARRIER_CMD_GLOBAL_EXPEDITED`).
        Global = "global",
    }
}

words! {
    /// What makes real interrupts.
    #[derive(Default)]
    pub enum IrqSource: "a source of interrupts" {
        /// The first of the others that works here.
        #[default]
        Auto = "auto",
        /// Reads past the page cache from the disk that this program lies on.
        Disk = "disk",
        /// The periodic interrupt of the real-time clock.
        Rtc = "rtc",
        /// High-resolution timers of each CPU.
        Timer = "timer",
    }
}
