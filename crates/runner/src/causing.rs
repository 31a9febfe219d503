//! The search for causes beside a run's probes: begun once, told what measures, asked what it found. Where it fails the
//! run goes on without, and says so.

use crate::prepare::Experiment;
use crate::search::{CauseSearch, FindsCauses, NO_CAUSES};
use std::sync::Arc;
use whylate_bpf::{BpfError, IpisByKind, Measured};
use whylate_core::plan::{Policy, Tracer};
use whylate_core::record::{SpikeCauses, SpikeRecord};
use whylate_core::warning::{push_all_once, push_once};
use whylate_core::{CpuId, CpuSet, Warning};
use whylate_probe::{ProbeKind, ProbeSpec};
use whylate_store::{RowKey, RunDirectory, Span};
use whylate_sys::clock;

/// Priority of timerlat's threads where the plan does not say (the kernel's DEFAULT_TIMERLAT_PRIO).
const TIMERLAT_PRIORITY: i32 = 95;

/// What the search for causes has to know of a probe; `None` of one whose late moments are not known: histograms count,
/// hwlat tells the end of the window in which it looked, osnoise that of its period.
pub fn measured(spec: &ProbeSpec) -> Option<Measured> {
    let (is_timer, priority) = match &spec.kind {
        ProbeKind::Histograms { .. } => return None,
        ProbeKind::Tracer { plan } if plan.tracer != Tracer::Timerlat => return None,
        ProbeKind::Tracer { plan } => (true, plan.priority.map_or(TIMERLAT_PRIORITY, |own| own as i32)),
        _ => (spec.period().is_some(), priority(spec)),
    };
    Some(Measured { cpus: spec.cpus.clone(), is_timer, priority, spikes_kept: spec.spikes_kept })
}

/// Priority of the measuring threads, as tools print it.
fn priority(spec: &ProbeSpec) -> i32 {
    match spec.policy {
        Policy::Fifo | Policy::Rr => spec.priority as i32,
        Policy::Deadline => 100,
        Policy::Other => -21,
    }
}

/// Begins the search; a warning where this machine has none.
fn find(
    probes: &[Measured],
    experiment: &Experiment,
    machine: &dyn crate::Machine,
    warnings: &mut Vec<Warning>,
) -> Option<CauseSearch> {
    match machine.find_causes(probes, &experiment.facts) {
        Ok(finder) => {
            push_all_once(warnings, finder.warnings());
            Some(CauseSearch::new(finder))
        }
        Err(reason) => {
            let text = format!(
                "spikes have no causes, and interrupts from other CPUs are counted by kind alone: {reason}"
            );
            push_once(warnings, Warning::without_fix(NO_CAUSES, text));
            None
        }
    }
}

/// The search of a run; nothing where the plan wants none.
#[derive(Default)]
pub(crate) struct Causing {
    /// `None` where this machine has no search, or no probe tells when it was late.
    search: Option<CauseSearch>,
    /// Interrupts from other CPUs where the search does not look.
    counted: Option<IpisByKind>,
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
        let specs = experiment.probes.iter().flatten();
        let cpus: CpuSet = specs.clone().flat_map(|spec| spec.cpus.iter()).collect();
        let probes: Vec<Measured> = specs.filter_map(measured).collect();
        let search = (!probes.is_empty()).then(|| find(&probes, experiment, machine, warnings)).flatten();
        let watched =
            probes.iter().filter(|_| search.is_some()).flat_map(|probe| probe.cpus.iter()).collect();
        let others = cpus.difference(&watched);
        let counted = (!others.is_empty()).then(|| IpisByKind::start(machine.running(), &others));
        Self { search, counted, ipis_since_ns: 0 }
    }

    /// Lets the search do something; a failure is said.
    fn with(
        &mut self,
        warnings: &mut Vec<Warning>,
        act: impl FnOnce(&mut dyn FindsCauses) -> Result<(), BpfError>,
    ) {
        push_all_once(warnings, self.search.as_mut().and_then(|search| search.attempt(act)));
    }

    pub(crate) fn begin(&mut self, specs: &[ProbeSpec], warnings: &mut Vec<Warning>) {
        let probes: Vec<Measured> = specs.iter().filter_map(measured).collect();
        self.ipis_since_ns = clock::now().0;
        // What was sent before is none of the measurement's.
        self.counted.as_mut().map(IpisByKind::take);
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
        self.search.as_mut().map(|search| search.finder().take(spikes)).unwrap_or_default()
    }

    /// Keeps the interrupts that other CPUs have sent since the last call, each with the probe of its CPU.
    pub(crate) fn keep_ipis(
        &mut self,
        keys: &[Arc<RowKey>],
        specs: &[ProbeSpec],
        directory: &mut RunDirectory,
        warnings: &mut Vec<Warning>,
    ) {
        let mut sent = self.counted.as_mut().map(IpisByKind::take).unwrap_or_default();
        self.with(warnings, |finder| finder.ipis().map(|mut records| sent.append(&mut records)));
        let end_ns = clock::now().0;
        let span = Span { start_ns: std::mem::replace(&mut self.ipis_since_ns, end_ns), end_ns };
        let is_of = |spec: &ProbeSpec, cpu: CpuId| spec.cpus.contains(cpu);
        for (key, spec) in keys.iter().zip(specs) {
            directory.add_ipis(key, span, sent.extract_if(.., |record| is_of(spec, record.cpu)));
        }
    }

    /// What was lost, as warnings.
    pub(crate) fn losses(&mut self) -> Vec<Warning> {
        self.search.as_mut().map(|search| search.finder().losses()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::Facts;
    use whylate_core::plan::{Plan, Source};

    /// What is known of a probe on CPU 1.
    fn known(probe: &str) -> Option<(bool, i32)> {
        let text = format!("name = \"t\"\n[target]\ncpus = \"1\"\n[[probe]]\n{probe}\n");
        let mut facts = Facts::default();
        for set in [&mut facts.cpu_sets.present, &mut facts.cpu_sets.online, &mut facts.cpu_sets.allowed] {
            *set = "0-1".parse().unwrap();
        }
        let plan = Plan::parse(&Source { name: "t.toml", text: &text }, &[]).unwrap();
        let experiment = crate::prepare(plan, facts, false).unwrap();
        measured(&experiment.probes[0][0]).map(|measured| (measured.is_timer, measured.priority))
    }

    #[test]
    fn only_probes_that_tell_their_late_moments_are_searched() {
        assert_eq!(known("kind = \"timer\"\npriority = 80"), Some((true, 80)));
        assert_eq!(known("kind = \"stall\"\npolicy = \"other\""), Some((false, -21)));
        assert_eq!(known("kind = \"histograms\""), None);
        assert_eq!(known("kind = \"tracer\"\ntracer = \"hwlat\""), None);
        assert_eq!(known("kind = \"tracer\"\ntracer = \"osnoise\"\npriority = 5"), None);
        assert_eq!(known("kind = \"tracer\"\ntracer = \"timerlat\""), Some((true, 95)));
        assert_eq!(known("kind = \"tracer\"\ntracer = \"timerlat\"\npriority = 5"), Some((true, 5)));
    }
}
