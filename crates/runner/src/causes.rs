//! The search for the causes of spikes while probes measure: started once, it learns what measures, and reports what
//! it found.
//!
//! A search that fails is given up: measuring goes on, what was found until then stays, and a warning says from where
//! on spikes have no causes.

use crate::prepare::Experiment;
use crate::wakeups::Wakeups;
use std::path::Path;
use std::sync::Arc;
use whylate_bpf::{BpfError, IpisByKind};
use whylate_core::plan::{Policy, Tracer};
use whylate_core::record::{Interval, IpiRecord, SpikeCauses, SpikeRecord};
use whylate_core::result::RunResult;
use whylate_core::warning::{push_all_once, push_once};
use whylate_core::{CpuId, CpuSet, Warning, WarningCode};
use whylate_explain::combine_run;
use whylate_probe::{ProbeKind, ProbeSpec};
use whylate_record::causes::{FindsCauses, Measured};
use whylate_store::{Folder, Reader, RowKey, Sink, Span, StoreError};
use whylate_sys::clock;

/// Priority of timerlat's threads if the plan does not give it (the kernel's DEFAULT_TIMERLAT_PRIO).
const TIMERLAT_PRIORITY: i32 = 95;

/// What the search for causes has to know of a probe; `None` for one that does not report when its spikes were:
/// histograms count, hwlat reports the end of its window, osnoise that of its period.
pub(crate) fn measured(spec: &ProbeSpec) -> Option<Measured> {
    let (is_timer, priority) = match &spec.kind {
        ProbeKind::Histograms(_) | ProbeKind::Task(_) => return None,
        ProbeKind::Tracer(plan) if plan.tracer != Tracer::Timerlat => return None,
        ProbeKind::Tracer(plan) => (true, plan.priority.map_or(TIMERLAT_PRIORITY, |own| own as i32)),
        _ => (spec.period().is_some(), priority(spec)),
    };
    let late_above_ns = spec.late_above.map_or(0, |it| it.0);
    Some(Measured {
        cpus: spec.cpus.clone(),
        is_timer,
        priority,
        spikes_kept: spec.spikes_kept,
        late_above_ns,
        counts_own: late_above_ns > 0 && matches!(spec.kind, ProbeKind::Timer(_)),
    })
}

/// Priority of the measuring threads, as tools print it.
fn priority(spec: &ProbeSpec) -> i32 {
    match spec.policy {
        Policy::Fifo | Policy::Rr => spec.priority as i32,
        Policy::Deadline => 100,
        Policy::Other => -21,
    }
}

/// The result of the run in that directory. A spike that has both a cause found during the measurement and a trace
/// gets one answer.
pub fn assemble(path: &Path) -> Result<RunResult, StoreError> {
    of_reader(&Reader::open(path)?)
}

/// As [`assemble`], for an open folder.
pub fn assemble_in(run: &Folder) -> Result<RunResult, StoreError> {
    of_reader(&Reader::of(run.clone())?)
}

fn of_reader(reader: &Reader) -> Result<RunResult, StoreError> {
    let mut result = whylate_store::assemble(reader)?;
    let is_virtual = result.facts.environment.hypervisor.is_some();
    combine_run(&mut result.cells, &result.warnings, is_virtual, result.plan.deadline().map(|it| it.0));
    let target = result.plan.target.cpus.resolve(&result.facts.cpu_context(), None);
    if let (Some(fix), Ok(target)) = (&mut result.fix, target) {
        whylate_explain::advice::install(fix, &result.facts, &target);
    }
    Ok(result)
}

/// The search that goes with one run or one measurement; the default one looks for nothing.
#[derive(Default)]
pub(crate) struct CauseSearch {
    /// `None` if causes are not wanted, if this machine cannot find them, or if no probe reports when its spikes were.
    finder: Option<Box<dyn FindsCauses>>,
    has_failed: bool,
    /// Whether the finder was put away for a cell that does without.
    is_away: bool,
    /// Spikes that were not passed to it.
    untold: u64,
    /// Interrupts from other CPUs on the CPUs that the finder does not watch.
    counted: Option<IpisByKind>,
    /// Since when interrupts from other CPUs and sources of gaps were not kept.
    kept_until_ns: u64,
    /// The losses of a finder that was put away.
    lost_before: Vec<Warning>,
    wakeups: Wakeups,
}

impl CauseSearch {
    /// The search of one measurement.
    pub(crate) fn new(finder: Box<dyn FindsCauses>) -> Self {
        Self { finder: Some(finder), ..Self::default() }
    }

    /// The search of a run, if the plan wants causes. Warnings say why there is none, or what it does not see.
    pub(crate) fn start(
        experiment: &Experiment,
        machine: &dyn crate::Machine,
        warnings: &mut Vec<Warning>,
    ) -> Self {
        if !experiment.plan.causes {
            return Self::default();
        }
        let specs = experiment.probes.iter().flatten();
        let mut unwatched: CpuSet = specs.clone().flat_map(|spec| spec.cpus.iter()).collect();
        let probes: Vec<Measured> = specs.filter_map(measured).collect();
        let mut search = Self::default();
        if !probes.is_empty() {
            match machine.find_causes(&probes, &experiment.facts, experiment.plan.causes_from) {
                Ok(finder) => {
                    push_all_once(warnings, finder.warnings().to_vec());
                    unwatched =
                        unwatched.difference(&probes.iter().flat_map(|probe| probe.cpus.iter()).collect());
                    search = Self::new(finder);
                }
                Err(reason) => {
                    let text = format!(
                        "causes of spikes cannot be recorded, and interrupts from other CPUs are counted only by kind: {reason}"
                    );
                    push_once(warnings, Warning::new(WarningCode::NoCauses, text));
                }
            }
        }
        search.counted = (!unwatched.is_empty()).then(|| IpisByKind::start(machine.running(), &unwatched));
        search
    }

    /// For a cell without causes: takes the programs out of the kernel, and puts them back for the next one.
    pub(crate) fn look(
        &mut self,
        is_wanted: bool,
        experiment: &Experiment,
        machine: &dyn crate::Machine,
        warnings: &mut Vec<Warning>,
    ) {
        match (&self.finder, is_wanted) {
            (Some(finder), false) => {
                push_all_once(&mut self.lost_before, finder.losses());
                (self.finder, self.is_away) = (None, true);
            }
            (None, true) if self.is_away && !self.has_failed => {
                let probes: Vec<Measured> = experiment.probes.iter().flatten().filter_map(measured).collect();
                match machine.find_causes(&probes, &experiment.facts, experiment.plan.causes_from) {
                    Ok(finder) => self.finder = Some(finder),
                    Err(error) => self.fail(&error, warnings),
                }
            }
            _ => {}
        }
    }

    fn fail(&mut self, error: &BpfError, warnings: &mut Vec<Warning>) {
        self.has_failed = true;
        let text = format!("the recording of causes stopped, so later spikes have no known cause: {error}");
        push_once(warnings, Warning::new(WarningCode::NoCauses, text));
    }

    /// Lets the finder do something, unless it has failed before.
    fn attempt(
        &mut self,
        warnings: &mut Vec<Warning>,
        act: impl FnOnce(&mut dyn FindsCauses) -> Result<(), BpfError>,
    ) {
        let Some(finder) = self.finder.as_mut().filter(|_| !self.has_failed) else { return };
        if let Err(error) = act(finder.as_mut()) {
            self.fail(&error, warnings);
        }
    }

    pub(crate) fn begin(&mut self, specs: &[ProbeSpec], warnings: &mut Vec<Warning>) {
        let probes: Vec<Measured> = specs.iter().filter_map(measured).collect();
        self.kept_until_ns = clock::now().0;
        // What was sent before does not belong to the measurement.
        self.counted.as_mut().map(IpisByKind::take);
        self.attempt(warnings, |finder| finder.begin(&probes));
    }

    /// The process that measures on these CPUs, and the moment from which its samples count.
    pub(crate) fn armed(&mut self, cpus: &CpuSet, process: u32, start_ns: u64, warnings: &mut Vec<Warning>) {
        self.attempt(warnings, |finder| finder.armed(cpus, process, start_ns));
    }

    /// Explains spikes soon after they happened.
    pub(crate) fn explain(&mut self, spikes: &[SpikeRecord], warnings: &mut Vec<Warning>) {
        self.attempt(warnings, |finder| finder.explain(spikes));
    }

    /// Takes what was found of these spikes.
    pub(crate) fn take(&mut self, spikes: &[SpikeRecord]) -> Vec<SpikeCauses> {
        let Some(finder) = &mut self.finder else { return Vec::new() };
        let found = |spike: &SpikeRecord| {
            let found = finder.causes_of(spike.cpu, spike.at_ns)?;
            Some(SpikeCauses { series: spike.series.clone(), latency_ns: spike.latency_ns, ..found })
        };
        let taken = spikes.iter().filter_map(found).collect();
        spikes.iter().for_each(|spike| finder.forget(spike.cpu, spike.at_ns));
        taken
    }

    /// Interrupts that other CPUs sent since the last call.
    fn ipis(&mut self, warnings: &mut Vec<Warning>) -> Vec<IpiRecord> {
        let mut sent = self.counted.as_mut().map(IpisByKind::take).unwrap_or_default();
        match self.finder.as_mut().map(|finder| finder.ipis()) {
            Some(Ok(mut records)) => sent.append(&mut records),
            Some(Err(error)) => {
                let text = format!("interrupts from other CPUs (IPIs) are missing from the result: {error}");
                push_once(warnings, Warning::new(WarningCode::NoIpis, text));
            }
            None => {}
        }
        sent
    }

    /// Keeps the interrupts that other CPUs sent since the last call, and the sources of gaps, each with the probe of
    /// its CPU.
    pub(crate) fn keep_counts(
        &mut self,
        keys: &[Arc<RowKey>],
        specs: &[ProbeSpec],
        sink: &mut dyn Sink,
        warnings: &mut Vec<Warning>,
    ) {
        let mut sent = self.ipis(warnings);
        let mut sources = self.finder.as_mut().map(|finder| finder.sources()).unwrap_or_default();
        let is_whole = !self.has_failed;
        let mut own_latency =
            self.finder.as_mut().filter(|_| is_whole).map(|it| it.own()).unwrap_or_default();
        let seen = self.finder.as_mut().and_then(|finder| finder.wakeups().ok()).unwrap_or_default();
        let mut wakeups = self.wakeups.seen(specs, seen);
        let end_ns = clock::now().0;
        let span = Span { start_ns: std::mem::replace(&mut self.kept_until_ns, end_ns), end_ns };
        let is_of = |spec: &ProbeSpec, cpu: CpuId| spec.cpus.contains(cpu);
        for (key, spec) in keys.iter().zip(specs) {
            sink.rows().add_ipis(key, span, sent.extract_if(.., |record| is_of(spec, record.cpu)));
            let own = sources.extract_if(.., |record| is_of(spec, record.cpu));
            sink.rows().add_sources(key, span, own);
            sink.rows().add_own(key, span, own_latency.extract_if(.., |record| is_of(spec, record.cpu)));
            let own = wakeups.extract_if(.., |record| is_of(spec, record.cpu));
            sink.rows().add_counters(key, span, own);
        }
    }

    /// Counts the wake-ups that a probe made.
    pub(crate) fn count_samples(&mut self, spec: &ProbeSpec, intervals: &[Interval]) {
        if self.finder.is_some() {
            self.wakeups.made(spec, intervals);
        }
    }

    /// Counts spikes that came too fast to be explained.
    pub(crate) fn note_untold(&mut self, spikes: u64) {
        self.untold = self.untold.saturating_add(spikes);
    }

    pub(crate) fn losses(&self) -> Vec<Warning> {
        let mut losses = self.lost_before.clone();
        losses.extend(self.wakeups.unseen());
        let Some(finder) = &self.finder else { return losses };
        push_all_once(&mut losses, finder.losses());
        if self.untold > 0 {
            let text = format!(
                "causes are missing for {} of the spikes, which came while other spikes were being explained or stored",
                self.untold
            );
            losses.push(Warning::new(WarningCode::UnexplainedSpikes, text));
        }
        losses
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;
    use whylate_core::Facts;
    use whylate_core::plan::{Plan, Source};
    use whylate_core::record::SourceRecord;
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
        fn warnings(&self) -> &[Warning] {
            &[]
        }
        fn begin(&mut self, _: &[Measured]) -> Result<(), BpfError> {
            Ok(())
        }
        fn armed(&mut self, _: &CpuSet, _: u32, _: u64) -> Result<(), BpfError> {
            Ok(())
        }
        fn explain(&mut self, _: &[SpikeRecord]) -> Result<(), BpfError> {
            self.calls.set(self.calls.get() + 1);
            if self.calls.get() > 1 { Err(error()) } else { Ok(()) }
        }
        fn causes_of(&self, _: CpuId, _: u64) -> Option<SpikeCauses> {
            Some(SpikeCauses { causes: vec![Cause::new(CauseKind::Thread)], ..SpikeCauses::default() })
        }
        fn forget(&mut self, _: CpuId, _: u64) {}
        fn ipis(&mut self) -> Result<Vec<IpiRecord>, BpfError> {
            Err(error())
        }
        fn sources(&mut self) -> Vec<SourceRecord> {
            Vec::new()
        }
        fn losses(&self) -> Vec<Warning> {
            vec![Warning::new(WarningCode::CauseRecordsLost, "one")]
        }
    }

    #[test]
    fn what_was_found_before_a_failure_stays_and_the_result_says_where_it_ends() {
        let finder = Failing::default();
        let calls = Rc::clone(&finder.calls);
        let (mut search, mut warnings) = (CauseSearch::new(Box::new(finder)), Vec::new());
        search.armed(&CpuSet::single(CpuId(1)), 7, 0, &mut warnings);
        (0..4).for_each(|_| search.explain(&[], &mut warnings));
        assert_eq!(calls.get(), 2, "nothing is asked of a search that has failed");
        let spike = SpikeRecord { at_ns: 1, latency_ns: 1, ..SpikeRecord::of(CpuId(1), None) };
        assert_eq!(search.take(&[spike])[0].causes[0].kind, CauseKind::Thread);
        assert!(search.ipis(&mut warnings).is_empty());
        warnings.extend(search.losses());
        let codes: Vec<&str> = warnings.iter().map(|warning| warning.code.as_str()).collect();
        assert_eq!(codes, ["no-causes", "no-ipis", "cause-records-lost"]);
    }

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
    fn only_probes_that_report_when_their_spikes_were_are_searched() {
        assert_eq!(known("kind = \"timer\"\npriority = 80"), Some((true, 80)));
        assert_eq!(known("kind = \"stall\"\npolicy = \"other\""), Some((false, -21)));
        assert_eq!(known("kind = \"histograms\""), None);
        assert_eq!(known("kind = \"tracer\"\ntracer = \"hwlat\""), None);
        assert_eq!(known("kind = \"tracer\"\ntracer = \"osnoise\"\npriority = 5"), None);
        assert_eq!(known("kind = \"tracer\"\ntracer = \"timerlat\""), Some((true, 95)));
        assert_eq!(known("kind = \"tracer\"\ntracer = \"timerlat\"\npriority = 5"), Some((true, 5)));
    }
}
