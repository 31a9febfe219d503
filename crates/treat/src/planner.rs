//! The input and the output of a planner.

use crate::change::Change;
use whylate_core::cpus::CpuError;
use whylate_core::{CpuContext, CpuSelector, CpuSet, Facts, Warning};
use whylate_host::{HostError, HostRoot};

/// The machine as a planner sees it.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Its files; tests put a folder of their own in their place.
    pub root: HostRoot,
    pub cpus: CpuContext,
    /// What `target` and `others` mean: the measured CPUs of a plan; `None` without a plan.
    pub target: Option<CpuSet>,
}

impl Surroundings {
    /// The machine below `root`, with these facts about it.
    pub fn new(root: HostRoot, facts: &Facts, target: Option<CpuSet>) -> Self {
        Self { root, cpus: facts.cpu_context(), target }
    }

    /// The CPUs that a parameter names.
    ///
    /// # Errors
    /// [`Impossible`] naming the parameter, when one of them is not there, offline or not allowed.
    pub fn resolve(&self, parameter: &str, cpus: &CpuSelector) -> Result<CpuSet, Impossible> {
        cpus.resolve(&self.cpus, self.target.as_ref())
            .map_err(|error: CpuError| Impossible::new(format!("{parameter}: {error}")))
    }
}

/// What a treatment would do here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Planned {
    /// The changes, in the order in which they are made; they are undone backwards.
    pub changes: Vec<Change>,
    /// What the treatment cannot do here.
    pub warnings: Vec<Warning>,
}

impl Planned {
    /// These changes, without warnings.
    pub fn changes(changes: Vec<Change>) -> Self {
        Self { changes, warnings: Vec::new() }
    }
}

/// Why a treatment cannot be applied here: one line that says what, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Impossible {
    pub reason: String,
    /// Whether no machine could do it: the request itself is wrong.
    pub is_wrong_request: bool,
}

impl Impossible {
    /// Because of `reason`.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_wrong_request: false }
    }

    /// The request is wrong on every machine.
    pub fn wrong_request(reason: impl Into<String>) -> Self {
        Self { is_wrong_request: true, ..Self::new(reason) }
    }
}

impl From<HostError> for Impossible {
    fn from(error: HostError) -> Self {
        Self::new(error.to_string())
    }
}

/// Makes the changes of one treatment, from its parameters and the machine as it is. Reads, and never writes.
pub trait Planner {
    /// The changes.
    ///
    /// # Errors
    /// [`Impossible`] when the treatment cannot be applied here.
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible>;

    /// What else has to be changed once the changes of [`Planner::plan`] are made, because it appeared meanwhile:
    /// tasks that were started by others before those were moved, or what a file system offers that was only now
    /// mounted. Nothing for most treatments.
    fn again(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        let _ = surroundings;
        Ok(Planned::default())
    }
}
