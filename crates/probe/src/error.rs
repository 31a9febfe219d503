//! What can go wrong with a probe.

use std::io;
use whylate_core::cpus::CpuError;
use whylate_core::plan::{DispatchSource, SizeError};
use whylate_core::{CpuId, CpuSet};

impl ProbeError {
    /// Whether the values measured until then say nothing about the CPU.
    pub fn is_void(&self) -> bool {
        matches!(self, Self::Void(_))
    }
}

/// Why a probe could not measure.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The CPUs named are not there.
    #[error(transparent)]
    Cpus(#[from] CpuError),
    /// The working set has no size on that CPU.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The source of interrupts cannot have the requested period.
    #[error("interval: {0}")]
    Period(
        /// Why, and which periods it can have.
        String,
    ),
    /// A device interrupts one CPU at a time.
    #[error("a probe can wait for {source_of_interrupts} on one CPU only, not on {cpus}; name one CPU")]
    OneCpuOnly { source_of_interrupts: DispatchSource, cpus: CpuSet },
    /// Two threads on one CPU, one of which would wait for the other in a loop and never let it run.
    #[error(
        "spin needs two CPUs: on CPU {cpu} alone, the waiting loop keeps the answering loop from running; name \
         two CPUs, or a method that sleeps (futex, eventfd, pipe, unix, udp)"
    )]
    SpinOnOneCpu { cpu: CpuId },
    /// A busy loop on these CPUs would leave the rest of the system no CPU.
    #[error(
        "a stall probe on CPU {cpus} at real-time priority would leave no housekeeping CPU for the rest of the \
         system; leave one CPU out, or run the probe with `--policy other`"
    )]
    NoHousekeepingCpu { cpus: CpuSet },
    /// The shared memory could not be made.
    #[error("cannot make the memory shared with the measuring process: {0}")]
    Memory(#[source] io::Error),
    /// The measuring process could not be started.
    #[error("cannot start the measuring process {program}: {source}")]
    Start { program: String, source: io::Error },
    /// The measuring process cannot measure, for this reason.
    #[error("{0}")]
    Failed(String),
    /// The kernel refuses what was asked for explicitly.
    #[error("{0}")]
    Unavailable(String),
    /// The measuring process ended without a reason.
    #[error("the measuring process ended early ({0})")]
    Died(String),
    /// The measuring process did not get ready.
    #[error(
        "the measuring process was not ready after {seconds} s: a higher-priority thread may keep CPU {cpus} busy"
    )]
    NotReady { cpus: CpuSet, seconds: u64 },
    /// A measuring thread wanted to run and did not, up to the end.
    #[error("CPU {cpu}: the measuring thread did not run in the last {waited}{by}")]
    Starved {
        cpu: CpuId,
        waited: String,
        /// The thread that had the CPU, if known.
        by: String,
    },
    /// The measured values say nothing about the CPU.
    #[error("the measurement is not used: {0}")]
    Void(String),
    /// The caller's observer failed (the store, for example).
    #[error("{0}")]
    Observer(String),
}
