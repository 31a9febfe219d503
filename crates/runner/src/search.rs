//! A search for the causes of spikes that may fail on the way: whoever measures goes on without, what was found until
//! then stays, and a warning says where it ends.

use whylate_bpf::{BpfError, CauseFinder, Measured};
use whylate_core::record::{IpiRecord, SpikeCauses, SpikeRecord};
use whylate_core::result::Spike;
use whylate_core::{CpuSet, Warning};

/// Code of the warning that spikes have no causes.
pub(crate) const NO_CAUSES: &str = "no-causes";

/// Finds the causes of spikes; a seam for tests.
pub trait FindsCauses {
    /// What is not recorded, as warnings.
    fn warnings(&self) -> Vec<Warning>;
    /// Probes are about to measure.
    ///
    /// # Errors
    /// Why causes cannot be found any more.
    fn begin(&mut self, probes: &[Measured]) -> Result<(), BpfError>;
    /// The process that measures on these CPUs.
    ///
    /// # Errors
    /// As above.
    fn armed(&mut self, cpus: &CpuSet, process: u32) -> Result<(), BpfError>;
    /// Explains spikes soon after they happened.
    ///
    /// # Errors
    /// As above.
    fn explain(&mut self, spikes: &[SpikeRecord]) -> Result<(), BpfError>;
    /// Takes what was found of these spikes.
    fn take(&mut self, spikes: &[SpikeRecord]) -> Vec<SpikeCauses>;
    /// Puts what was found into the spikes that were explained and not taken.
    fn label(&self, spikes: &mut [Spike]);
    /// Interrupts from other CPUs since the last call.
    ///
    /// # Errors
    /// As above.
    fn ipis(&mut self) -> Result<Vec<IpiRecord>, BpfError>;
    /// What was lost, as warnings.
    fn losses(&self) -> Vec<Warning>;
}

impl FindsCauses for CauseFinder {
    fn warnings(&self) -> Vec<Warning> {
        Self::warnings(self).to_vec()
    }
    fn begin(&mut self, probes: &[Measured]) -> Result<(), BpfError> {
        Self::begin(self, probes)
    }
    fn armed(&mut self, cpus: &CpuSet, process: u32) -> Result<(), BpfError> {
        Self::armed(self, cpus, process)
    }
    fn explain(&mut self, spikes: &[SpikeRecord]) -> Result<(), BpfError> {
        Self::explain(self, spikes)
    }
    fn take(&mut self, spikes: &[SpikeRecord]) -> Vec<SpikeCauses> {
        Self::take(self, spikes)
    }
    fn label(&self, spikes: &mut [Spike]) {
        Self::label(self, spikes);
    }
    fn ipis(&mut self) -> Result<Vec<IpiRecord>, BpfError> {
        Self::ipis(self)
    }
    fn losses(&self) -> Vec<Warning> {
        Self::losses(self)
    }
}

/// A search that is given up at its first failure, but for what it has found.
pub struct CauseSearch {
    finder: Box<dyn FindsCauses>,
    has_failed: bool,
}

impl CauseSearch {
    /// A search that has not failed yet.
    pub fn new(finder: Box<dyn FindsCauses>) -> Self {
        Self { finder, has_failed: false }
    }

    /// Lets it go on searching, unless it has failed before. A failure is returned as the warning that says so, once.
    pub fn attempt(
        &mut self,
        act: impl FnOnce(&mut dyn FindsCauses) -> Result<(), BpfError>,
    ) -> Option<Warning> {
        if self.has_failed {
            return None;
        }
        let error = act(self.finder.as_mut()).err()?;
        self.has_failed = true;
        Some(Warning::without_fix(NO_CAUSES, format!("spikes from here on have no causes: {error}")))
    }

    /// For what it has found, also after a failure.
    pub fn finder(&mut self) -> &mut dyn FindsCauses {
        self.finder.as_mut()
    }
}
