//! What can go wrong with a run.

use whylate_core::cpus::CpuError;
use whylate_load::LoadError;
use whylate_probe::ProbeError;
use whylate_record::RecordError;
use whylate_store::StoreError;
use whylate_treat::TreatError;

/// Why a run could not be begun, or not be brought to its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The plan's target CPUs are not there.
    #[error("target.cpus: {0}")]
    Target(#[source] CpuError),
    /// A probe cannot be set up on this machine.
    #[error("probe[{index}]: {source}")]
    Probe {
        /// Its place in the plan.
        index: usize,
        /// Why.
        source: ProbeError,
    },
    /// Two probes of one kind on one CPU could not be told apart.
    #[error(
        "probe[{index}]: another {kind} probe of the plan measures CPU {cpu} already; give them different `cpus`"
    )]
    ProbeTwice {
        /// Place of the second in the plan.
        index: usize,
        /// Its kind.
        kind: &'static str,
        /// The CPU.
        cpu: whylate_core::CpuId,
    },
    /// The plan measures with tracers alone, and the kernel has none of them.
    #[error("the tracer probe: {source}")]
    Tracer {
        /// Why.
        source: RecordError,
    },
    /// The run directory cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Treatments cannot be held.
    #[error(transparent)]
    Treat(#[from] TreatError),
    /// No cell of the plan can run here.
    #[error("no cell of the plan can run on this machine: {0}")]
    NothingToRun(
        /// Why the first one cannot.
        String,
    ),
    /// The run to be resumed is done.
    #[error("{0} is complete; there is nothing to resume")]
    AlreadyComplete(
        /// Its directory.
        String,
    ),
}

/// Why one repeat of a cell failed; the others go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RepeatError {
    #[error("treatment {0}")]
    Treat(#[from] TreatError),
    #[error("load `{name}`: {source}")]
    Load { name: String, source: LoadError },
    #[error("load `{name}` ended early: {reason}")]
    LoadDied { name: String, reason: String },
    #[error("{probe}: {source}")]
    Probe { probe: String, source: ProbeError },
    #[error("took longer than {0} (`timeout` in the plan)")]
    Timeout(whylate_core::Nanos),
    #[error(transparent)]
    Store(#[from] StoreError),
}
