//! The search for causes beside one probe whose result is printed and not stored. Where it fails the measurement goes on
//! without: what was found until then is kept, and the result says where it ends.

use crate::output;
use whylate_bpf::{BpfError, CauseFinder};
use whylate_core::record::{IpiRecord, SpikeRecord};
use whylate_core::result::Spike;
use whylate_core::{CpuSet, Warning};
use whylate_runner::NO_CAUSES;

/// Finds causes; a seam for tests.
pub(crate) trait Finder {
    /// The process that measures on these CPUs.
    fn armed(&mut self, cpus: &CpuSet, process: u32) -> Result<(), BpfError>;
    /// Explains spikes soon after they happened.
    fn explain(&mut self, spikes: &[SpikeRecord]) -> Result<(), BpfError>;
    /// Puts the causes into the spikes that were explained.
    fn label(&self, spikes: &mut [Spike]);
    /// Interrupts from other CPUs.
    fn ipis(&mut self) -> Result<Vec<IpiRecord>, BpfError>;
    /// What was lost, as warnings.
    fn losses(&self) -> Vec<Warning>;
}

impl Finder for CauseFinder {
    fn armed(&mut self, cpus: &CpuSet, process: u32) -> Result<(), BpfError> {
        Self::armed(self, cpus, process)
    }
    fn explain(&mut self, spikes: &[SpikeRecord]) -> Result<(), BpfError> {
        Self::explain(self, spikes)
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

/// The search of one measurement.
pub(crate) struct CauseSearch {
    finder: Box<dyn Finder>,
    /// Why it found no more from some moment on.
    failure: Option<Warning>,
}

impl CauseSearch {
    pub(crate) fn new(finder: impl Finder + 'static) -> Self {
        Self { finder: Box::new(finder), failure: None }
    }

    pub(crate) fn armed(&mut self, cpus: &CpuSet, process: u32) {
        self.with(|finder| finder.armed(cpus, process));
    }

    pub(crate) fn explain(&mut self, spikes: &[SpikeRecord]) {
        self.with(|finder| finder.explain(spikes));
    }

    pub(crate) fn label(&self, spikes: &mut [Spike]) {
        self.finder.label(spikes);
    }

    /// Interrupts from other CPUs, and what is missing of the causes.
    pub(crate) fn finish(mut self) -> (Vec<IpiRecord>, Vec<Warning>) {
        let mut warnings = self.finder.losses();
        let ipis = self.finder.ipis().unwrap_or_else(|error| {
            let text = format!("interrupts from other CPUs are not in the result: {error}");
            warnings.push(Warning::without_fix("no-ipis", text));
            Vec::new()
        });
        warnings.extend(self.failure);
        (ipis, warnings)
    }

    /// Lets the search do something, unless it has failed before. A failure is said at once and in the result.
    fn with(&mut self, act: impl FnOnce(&mut dyn Finder) -> Result<(), BpfError>) {
        if self.failure.is_none()
            && let Err(error) = act(self.finder.as_mut())
        {
            let text = format!("spikes from here on have no causes: {error}");
            output::message(&format!("warning: {text}"));
            self.failure = Some(Warning::without_fix(NO_CAUSES, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;
    use whylate_core::CpuId;
    use whylate_core::result::{Cause, CauseKind};

    /// Explains one batch of spikes and fails from then on.
    #[derive(Default)]
    struct Failing {
        calls: Rc<Cell<u32>>,
    }

    fn error() -> BpfError {
        BpfError::Map { name: "records".to_owned(), reason: "it is gone".to_owned() }
    }

    impl Finder for Failing {
        fn armed(&mut self, _: &CpuSet, _: u32) -> Result<(), BpfError> {
            Ok(())
        }
        fn explain(&mut self, _: &[SpikeRecord]) -> Result<(), BpfError> {
            self.calls.set(self.calls.get() + 1);
            if self.calls.get() > 1 { Err(error()) } else { Ok(()) }
        }
        fn label(&self, spikes: &mut [Spike]) {
            spikes[0].cause = Cause::new(CauseKind::Thread);
        }
        fn ipis(&mut self) -> Result<Vec<IpiRecord>, BpfError> {
            Err(error())
        }
        fn losses(&self) -> Vec<Warning> {
            vec![Warning::without_fix("cause-records-lost", "one")]
        }
    }

    #[test]
    fn what_was_found_before_a_failure_stays_and_the_result_says_where_it_ends() {
        let finder = Failing::default();
        let calls = Rc::clone(&finder.calls);
        let mut search = CauseSearch::new(finder);
        search.armed(&CpuSet::single(CpuId(1)), 7);
        (0..4).for_each(|_| search.explain(&[]));
        assert_eq!(calls.get(), 2, "nothing is asked of a search that has failed");
        let mut spikes = [Spike {
            cpu: CpuId(1),
            at_ns: 1,
            latency_ns: 1,
            sample: 0,
            probe: None,
            repeat: None,
            cause: Cause::unattributed(),
            also: Vec::new(),
            event: None,
            lost: 0,
        }];
        search.label(&mut spikes);
        assert_eq!(spikes[0].cause.kind, CauseKind::Thread);
        let (ipis, warnings) = search.finish();
        assert!(ipis.is_empty());
        let codes: Vec<&str> = warnings.iter().map(|warning| warning.code.as_str()).collect();
        assert_eq!(codes, ["cause-records-lost", "no-ipis", "no-causes"]);
    }
}
