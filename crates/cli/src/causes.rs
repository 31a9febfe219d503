//! The search for causes beside one probe whose result is printed and not stored: where it fails, the terminal is told at
//! once, and the result says where it ends.

use crate::output;
use whylate_core::record::{IpiRecord, SpikeRecord};
use whylate_core::result::Spike;
use whylate_core::{CpuSet, Warning};
use whylate_runner::{CauseSearch, FindsCauses};

/// The search of one measurement.
pub(crate) struct Causes {
    search: CauseSearch,
    /// Why it found no more from some moment on.
    failure: Option<Warning>,
}

impl Causes {
    pub(crate) fn new(finder: impl FindsCauses + 'static) -> Self {
        Self { search: CauseSearch::new(Box::new(finder)), failure: None }
    }

    pub(crate) fn armed(&mut self, cpus: &CpuSet, process: u32) {
        let failure = self.search.attempt(|finder| finder.armed(cpus, process));
        self.note(failure);
    }

    pub(crate) fn explain(&mut self, spikes: &[SpikeRecord]) {
        let failure = self.search.attempt(|finder| finder.explain(spikes));
        self.note(failure);
    }

    pub(crate) fn label(&mut self, spikes: &mut [Spike]) {
        self.search.finder().label(spikes);
    }

    /// Interrupts from other CPUs, and what is missing of the causes.
    pub(crate) fn finish(mut self) -> (Vec<IpiRecord>, Vec<Warning>) {
        let finder = self.search.finder();
        let mut warnings = finder.losses();
        let ipis = finder.ipis().unwrap_or_else(|error| {
            let text = format!("interrupts from other CPUs are not in the result: {error}");
            warnings.push(Warning::without_fix("no-ipis", text));
            Vec::new()
        });
        warnings.extend(self.failure);
        (ipis, warnings)
    }

    fn note(&mut self, failure: Option<Warning>) {
        if let Some(warning) = failure {
            output::message(&format!("warning: {}", warning.text));
            self.failure = Some(warning);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;
    use whylate_bpf::{BpfError, Measured};
    use whylate_core::CpuId;
    use whylate_core::record::SpikeCauses;
    use whylate_core::result::{Cause, CauseKind};

    /// Explains one batch of spikes and fails from then on.
    #[derive(Default)]
    struct Failing {
        calls: Rc<Cell<u32>>,
    }

    fn error() -> BpfError {
        BpfError::Map { name: "records".to_owned(), reason: "it is gone".to_owned() }
    }

    impl FindsCauses for Failing {
        fn warnings(&self) -> Vec<Warning> {
            Vec::new()
        }
        fn begin(&mut self, _: &[Measured]) -> Result<(), BpfError> {
            Ok(())
        }
        fn take(&mut self, _: &[SpikeRecord]) -> Vec<SpikeCauses> {
            Vec::new()
        }
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
        let mut search = Causes::new(finder);
        search.armed(&CpuSet::single(CpuId(1)), 7);
        (0..4).for_each(|_| search.explain(&[]));
        assert_eq!(calls.get(), 2, "nothing is asked of a search that has failed");
        let mut spikes = [Spike::unexplained(CpuId(1), 1, 1)];
        search.label(&mut spikes);
        assert_eq!(spikes[0].cause.kind, CauseKind::Thread);
        let (ipis, warnings) = search.finish();
        assert!(ipis.is_empty());
        let codes: Vec<&str> = warnings.iter().map(|warning| warning.code.as_str()).collect();
        assert_eq!(codes, ["cause-records-lost", "no-ipis", "no-causes"]);
    }
}
