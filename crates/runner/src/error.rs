//! What can go wrong with a run.

use crate::campaign::CampaignError;
use whylate_bpf::BpfError;
use whylate_core::cpus::CpuError;
use whylate_core::plan::KeyError;
use whylate_load::LoadError;
use whylate_probe::ProbeError;
use whylate_record::RecordError;
use whylate_store::StoreError;
use whylate_treat::TreatError;

/// Why a run could not begin, or not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The plan's target CPUs do not exist.
    #[error("target.cpus: {0}")]
    Target(#[source] CpuError),
    /// A probe cannot be set up on this machine.
    #[error("probe[{index}]: {source}")]
    Probe { index: usize, source: ProbeError },
    /// Two probes of one kind on one CPU would have the same name.
    #[error(
        "probe[{index}]: another {kind} probe of the plan already measures CPU {cpu}; give each its own `cpus`"
    )]
    ProbeTwice {
        /// Position of the second one in the plan.
        index: usize,
        kind: &'static str,
        cpu: whylate_core::CpuId,
    },
    /// The plan measures only with tracers, and the kernel has none of them.
    #[error("the tracer probe: {source}")]
    Tracer { source: RecordError },
    /// The probe that was asked for alone makes no sense.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The probe that was asked for alone cannot be set up on this machine.
    #[error(transparent)]
    Measure(ProbeError),
    /// The load that was asked for alone cannot be set up on this machine, or cannot be started.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// What was asked for alone failed.
    #[error(transparent)]
    Repeat(RepeatError),
    /// Causes were asked for, and the kernel reports none.
    #[error(transparent)]
    Causes(BpfError),
    /// The run directory cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Treat(#[from] TreatError),
    /// No cell of the plan can run here.
    #[error("no cell of the plan can run on this machine: {0}")]
    NothingToRun(
        /// Why the first one cannot.
        String,
    ),
    /// The search is continued with another command.
    #[error("{0} is a search for treatments; continue it with `whylate fix --resume {0}`")]
    IsSearch(String),
    /// A run that is not a search cannot continue as one.
    #[error("{0} is not a search for treatments; continue it with `whylate run --resume {0}`")]
    IsNoSearch(String),
    /// The steps of a search do not follow its rules.
    #[error(transparent)]
    Search(#[from] whylate_stats::StatsError),
    /// It could not be determined which treatments may be tried.
    #[error("no treatment was tried: {0}")]
    Adviser(String),
    /// A repeat of a search needs a boot that cannot be asked for.
    #[error("the next boot cannot be requested: {0}")]
    Boot(String),
    /// The run to be resumed is complete.
    #[error("{0} is complete; there is nothing to resume")]
    AlreadyComplete(String),
}

/// Why one repeat of a cell failed; the others go on.
#[derive(Debug, thiserror::Error)]
pub enum RepeatError {
    /// A treatment could not be applied.
    #[error("treatment {0}")]
    Treat(#[from] TreatError),
    /// Something else changed what a treatment had set, so that the repeat does not count as one with that treatment.
    #[error("the repeat does not count, because a treatment did not stay in effect: {0}")]
    NotHeld(String),
    /// A load did not start or stop.
    #[error("load `{name}`: {source}")]
    Load { name: String, source: LoadError },
    /// A load ended before it was stopped.
    #[error("load `{name}` ended early: {reason}")]
    LoadDied { name: String, reason: String },
    /// A probe did not measure.
    #[error("{probe}: {source}")]
    Probe { probe: String, source: ProbeError },
    #[error("the repeat took longer than {0} (`timeout` in the plan)")]
    Timeout(whylate_core::Nanos),
    /// The results cannot be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no memory left.
    #[error(
        "out of memory: the run ended, and its results so far are stored; raise the limit (`ulimit -v`) before `--resume`"
    )]
    OutOfMemory,
}

/// Whether after this error settings may differ from before: the journal is damaged, or something of a campaign or of a
/// recording stays.
pub fn is_not_restored(error: &(dyn std::error::Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(TreatError::Damaged { .. }))
        || matches!(error.downcast_ref(), Some(RunError::Treat(TreatError::Damaged { .. })))
        || matches!(error.downcast_ref(), Some(CampaignError::NotRemoved { .. }))
        || matches!(error.downcast_ref(), Some(RecordError::LeftBehind(_)))
}

/// Whether the error, or its source, is a facility that this machine or kernel lacks.
pub fn is_unavailable(error: &(dyn std::error::Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(ProbeError::Unavailable(_)))
        || matches!(error.downcast_ref(), Some(LoadError::Unavailable(_)))
        || matches!(error.downcast_ref(), Some(TreatError::Impossible { source, .. }) if !source.is_wrong_request)
        || matches!(error.downcast_ref(), Some(TreatError::State { source, .. } | TreatError::Write { source, .. }) if source.kind() == std::io::ErrorKind::PermissionDenied)
        || matches!(error.downcast_ref(), Some(TreatError::NotApplied { source, .. }) if is_unavailable(source.as_ref()))
        || matches!(error.downcast_ref(), Some(RecordError::Unavailable(_)))
        || matches!(error.downcast_ref(), Some(RecordError::Journal(inner)) if is_unavailable(inner))
        || matches!(error.downcast_ref(), Some(RecordError::Bpf(error)) if error.is_unavailable())
        || error.downcast_ref::<BpfError>().is_some_and(BpfError::is_unavailable)
        // An error that passes on the text of another one has the source of that one.
        || matches!(error.downcast_ref(), Some(RunError::Measure(inner)) if is_unavailable(inner))
        || matches!(error.downcast_ref(), Some(RunError::Load(inner)) if is_unavailable(inner))
        || matches!(error.downcast_ref(), Some(RunError::Causes(inner)) if is_unavailable(inner))
        || matches!(error.downcast_ref(), Some(RunError::Treat(inner)) if is_unavailable(inner))
        || matches!(error.downcast_ref(), Some(RunError::Repeat(inner)) if is_unavailable(inner))
        || error.source().is_some_and(is_unavailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_recording_leaves_behind_is_not_restored() {
        assert!(is_not_restored(&RecordError::LeftBehind("tracefs".to_owned())));
        assert!(!is_not_restored(&RecordError::Unavailable("no tracefs".to_owned())));
    }
}
