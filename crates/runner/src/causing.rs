//! The search for causes beside a run's probes: begun once, told what measures, asked what it found. Where it fails the
//! run goes on without, and says so.

use crate::prepare::Experiment;
use std::sync::Arc;
use whylate_bpf::{BpfError, CauseFinder, IpisByKind, Measured};
use whylate_core::plan::Policy;
use whylate_core::record::{IpiRecord, SpikeCauses, SpikeRecord};
use whylate_core::warning::push_once;
use whylate_core::{CpuId, CpuSet, Warning};
use whylate_probe::ProbeSpec;
use whylate_store::{RowKey, RunDirectory, Span};
use whylate_sys::clock;

/// Code of the warning that spikes have no causes.
pub const NO_CAUSES: &str = "no-causes";

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
    fn ipis(&mut self) -> Result<Vec<IpiRecord>, BpfError> {
        Self::ipis(self)
    }
    fn losses(&self) -> Vec<Warning> {
        Self::losses(self)
    }
}

/// What is left where the kernel lets nobody look: counts.
impl FindsCauses for IpisByKind {
    fn warnings(&self) -> Vec<Warning> {
        Vec::new()
    }
    fn begin(&mut self, _: &[Measured]) -> Result<(), BpfError> {
        Self::take(self);
        Ok(())
    }
    fn armed(&mut self, _: &CpuSet, _: u32) -> Result<(), BpfError> {
        Ok(())
    }
    fn explain(&mut self, _: &[SpikeRecord]) -> Result<(), BpfError> {
        Ok(())
    }
    fn take(&mut self, _: &[SpikeRecord]) -> Vec<SpikeCauses> {
        Vec::new()
    }
    fn ipis(&mut self) -> Result<Vec<IpiRecord>, BpfError> {
        Ok(Self::take(self))
    }
    fn losses(&self) -> Vec<Warning> {
        Vec::new()
    }
}

/// What the search for causes has to know of a probe.
pub fn measured(spec: &ProbeSpec) -> Measured {
    let priority = match spec.policy {
        Policy::Fifo | Policy::Rr => spec.priority as i32,
        Policy::Deadline => 100,
        Policy::Other => -21,
    };
    Measured { cpus: spec.cpus.clone(), is_timer: spec.period().is_some(), priority }
}

/// The search of a run; nothing where the plan wants none or this machine has none.
#[derive(Default)]
pub(crate) struct Causing {
    finder: Option<Box<dyn FindsCauses>>,
    /// Since when interrupts from other CPUs were not kept.
    ipis_since_ns: u64,
}

impl Causing {
    /// Begins, where the plan wants causes.
    pub(crate) fn start(
        experiment: &Experiment,
        machine: &dyn crate::Machine,
        warnings: &mut Vec<Warning>,
    ) -> Self {
        if !experiment.plan.causes {
            return Self::default();
        }
        let probes: Vec<Measured> = experiment.probes.iter().flatten().map(measured).collect();
        match machine.find_causes(&probes, &experiment.facts) {
            Ok(finder) => {
                finder.warnings().into_iter().for_each(|warning| push_once(warnings, warning));
                Self { finder: Some(finder), ipis_since_ns: 0 }
            }
            Err(reason) => {
                let text = format!(
                    "spikes have no causes, and interrupts from other CPUs are counted by kind alone: {reason}"
                );
                push_once(warnings, Warning::without_fix(NO_CAUSES, text));
                let cpus = probes.iter().flat_map(|probe| probe.cpus.iter()).collect();
                Self { finder: Some(Box::new(IpisByKind::start(&cpus))), ipis_since_ns: 0 }
            }
        }
    }

    /// Lets the search do something; one that fails is given up, which is said.
    fn with(
        &mut self,
        warnings: &mut Vec<Warning>,
        act: impl FnOnce(&mut dyn FindsCauses) -> Result<(), BpfError>,
    ) {
        if let Some(finder) = &mut self.finder
            && let Err(error) = act(finder.as_mut())
        {
            let text = format!("spikes from here on have no causes: {error}");
            push_once(warnings, Warning::without_fix(NO_CAUSES, text));
            self.finder = None;
        }
    }

    pub(crate) fn begin(&mut self, specs: &[ProbeSpec], warnings: &mut Vec<Warning>) {
        let probes: Vec<Measured> = specs.iter().map(measured).collect();
        self.ipis_since_ns = clock::now().0;
        self.with(warnings, |finder| finder.begin(&probes));
    }

    pub(crate) fn armed(&mut self, cpus: &CpuSet, process: u32, warnings: &mut Vec<Warning>) {
        self.with(warnings, |finder| finder.armed(cpus, process));
    }

    pub(crate) fn explain(&mut self, spikes: &[SpikeRecord], warnings: &mut Vec<Warning>) {
        self.with(warnings, |finder| finder.explain(spikes));
    }

    /// What was found of these spikes.
    pub(crate) fn take(&mut self, spikes: &[SpikeRecord]) -> Vec<SpikeCauses> {
        self.finder.as_mut().map(|finder| finder.take(spikes)).unwrap_or_default()
    }

    /// Keeps the interrupts that other CPUs have sent since the last call, each with the probe of its CPU.
    pub(crate) fn keep_ipis(
        &mut self,
        keys: &[Arc<RowKey>],
        specs: &[ProbeSpec],
        directory: &mut RunDirectory,
        warnings: &mut Vec<Warning>,
    ) {
        let mut sent = Vec::new();
        self.with(warnings, |finder| finder.ipis().map(|records| sent = records));
        let end_ns = clock::now().0;
        let span = Span { start_ns: std::mem::replace(&mut self.ipis_since_ns, end_ns), end_ns };
        let is_of = |spec: &ProbeSpec, cpu: CpuId| spec.cpus.contains(cpu);
        for (key, spec) in keys.iter().zip(specs) {
            directory.add_ipis(key, span, sent.extract_if(.., |record| is_of(spec, record.cpu)));
        }
    }

    /// What was lost, as warnings.
    pub(crate) fn losses(&self) -> Vec<Warning> {
        self.finder.as_ref().map(|finder| finder.losses()).unwrap_or_default()
    }
}
