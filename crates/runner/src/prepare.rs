//! From a plan to what it means on this machine: CPUs, sizes, thresholds; and which cells cannot run here, and why.

use crate::error::RunError;
use whylate_core::figure::nanoseconds;
use whylate_core::plan::{
    CellPlan, LoadPlan, Policy, ProbePlan, Samples, StallPlan, Threshold, TreatmentKind,
};
use whylate_core::warning::{push_all_once, push_once};
use whylate_core::{CpuSet, Facts, Nanos, Plan, SeriesName, Warning, WarningCode};
use whylate_host::HostRoot;
use whylate_load::{Load, LoadError, LoadSpec};
use whylate_probe::{LaneSpec, Options, ProbeKind, ProbeSpec, resolve};
use whylate_record::check_tracer;
use whylate_stats::WATCHED_MIN_NS;
use whylate_stats::summary::SPIKES_KEPT;

/// The length from which the noise-floor check counts a gap.
pub const NOISE_FLOOR_THRESHOLD: Nanos = Nanos::from_micros(10);

/// A plan resolved on a machine.
#[derive(Clone, Debug)]
pub struct Experiment {
    pub plan: Plan,
    pub facts: Facts,
    pub target: CpuSet,
    /// The probes, in groups: those of a group are on different CPUs and measure together, with their companions.
    pub probes: Vec<Vec<ProbeSpec>>,
    /// The stall check without load before each repeat of a cell; `None` when the plan leaves it out.
    pub noise_floor: Option<ProbeSpec>,
    pub cells: Vec<PreparedCell>,
    /// What is not as the plan asks.
    pub warnings: Vec<Warning>,
}

impl Experiment {
    /// Whether a cell that can run has treatments.
    pub fn has_treatments(&self) -> bool {
        self.cells.iter().any(|cell| cell.loads.is_ok() && cell.treatments().next().is_some())
    }

    /// Whether a cell has a shield that is applied here.
    pub(crate) fn has_shield(&self, cell: &PreparedCell) -> bool {
        let is_shield = |name: &String| {
            let kind = self.plan.treatment(name).map(|treatment| &treatment.kind);
            matches!(kind, Some(TreatmentKind::Shield(_)))
        };
        cell.loads.is_ok() && cell.treatments().any(is_shield)
    }

    /// Refuses an experiment of which no cell can run.
    pub(crate) fn with_something_to_run(self) -> Result<Self, RunError> {
        match self.cells.first().map(|cell| &cell.loads) {
            Some(Err(reason)) if self.cells.iter().all(|cell| cell.loads.is_err()) => {
                Err(RunError::NothingToRun(reason.clone()))
            }
            _ => Ok(self),
        }
    }
}

/// A cell resolved on a machine.
#[derive(Clone, Debug)]
pub struct PreparedCell {
    pub plan: CellPlan,
    /// Its loads, or why it cannot run here (its treatments included).
    pub loads: Result<Vec<PreparedLoad>, String>,
    /// Its optional treatments that cannot be applied here.
    pub without: Vec<String>,
}

impl PreparedCell {
    pub(crate) fn new(plan: CellPlan, loads: Result<Vec<PreparedLoad>, String>) -> Self {
        Self { plan, loads, without: Vec::new() }
    }

    pub fn treatments(&self) -> impl Iterator<Item = &String> {
        self.plan.treatments.iter().filter(|name| !self.without.contains(name))
    }
}

/// A load resolved on a machine.
#[derive(Clone, Debug)]
pub struct PreparedLoad {
    pub name: String,
    pub spec: LoadSpec,
    pub unit: String,
}

/// Resolves `plan` on the machine of `facts`.
///
/// # Errors
/// [`RunError`] when the target or a probe cannot be resolved, or no cell can run. A load that cannot run here only
/// skips its cells.
pub fn prepare(plan: Plan, facts: Facts, strict: bool) -> Result<Experiment, RunError> {
    let target = plan.target.cpus.resolve(&facts.cpu_context(), None).map_err(RunError::Target)?;
    let options = ProbeOptions { spikes_kept: SPIKES_KEPT, strict };
    let PreparedProbes { groups, mut warnings } = prepare_probes(&plan, &target, &facts, options)?;
    let noise_floor = noise_floor(&plan, &target, &facts, &mut warnings);
    warnings.extend(too_short(&plan));
    let cells: Vec<PreparedCell> = plan
        .cell
        .iter()
        .map(|cell| PreparedCell::new(cell.clone(), loads(cell, &plan, &target, &facts)))
        .collect();
    Experiment { plan, target, probes: groups, noise_floor, cells, warnings, facts }.with_something_to_run()
}

/// A plan with a limit that measures for a shorter time than a pass needs.
fn too_short(plan: &Plan) -> Option<Warning> {
    let measured_ns = plan.duration.0.saturating_mul(plan.repeats.into());
    (plan.limit.is_some() && measured_ns < WATCHED_MIN_NS).then(|| {
        let (measured, needed) = (nanoseconds(measured_ns), nanoseconds(WATCHED_MIN_NS));
        let text = format!(
            "the plan cannot pass: it measures for {measured} in each cell, and a pass needs {needed}"
        );
        Warning::new(WarningCode::TooShortToPass, text)
    })
}

/// The settings of probes that are not part of a plan's probes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeOptions {
    pub(crate) spikes_kept: usize,
    pub(crate) strict: bool,
}

/// The probes of a plan on this machine.
pub(crate) struct PreparedProbes {
    pub(crate) groups: Vec<Vec<ProbeSpec>>,
    pub(crate) warnings: Vec<Warning>,
}

/// Resolves the probes of `plan`.
pub(crate) fn prepare_probes(
    plan: &Plan,
    target: &CpuSet,
    facts: &Facts,
    options: ProbeOptions,
) -> Result<PreparedProbes, RunError> {
    let options = Options {
        warmup: plan.warmup,
        duration: plan.duration,
        strict: options.strict,
        lock_memory: true,
        spikes_kept: options.spikes_kept,
    };
    let mut warnings = Vec::new();
    let mut probes: Vec<ProbeSpec> = Vec::new();
    for (index, probe) in plan.probe.iter().enumerate() {
        let (spec, more) =
            resolve(probe, target, facts, &options).map_err(|source| RunError::Probe { index, source })?;
        let same_kind = probes.iter().filter(|other| other.name() == spec.name());
        let known: Vec<LaneSpec> = same_kind.flat_map(ProbeSpec::lanes).collect();
        if let Some(LaneSpec { cpu, .. }) = spec.lanes().into_iter().find(|lane| known.contains(lane)) {
            return Err(RunError::ProbeTwice { index, kind: probe.kind(), cpu });
        }
        push_all_once(&mut warnings, more);
        // A loop that never sleeps counts each gap.
        let is_late = SeriesName::of(spec.name())
            .facts()
            .is_some_and(|facts| facts.has_ledger() && facts.samples == Samples::Lateness);
        let late_above = (plan.causes && is_late).then(|| plan.late_above());
        probes.push(ProbeSpec { late_above, ..spec });
    }
    Ok(PreparedProbes { groups: groups(probes), warnings })
}

/// The stall check before each repeat of a cell. If a busy loop at real-time priority is not possible, it runs as an
/// ordinary task.
fn noise_floor(
    plan: &Plan,
    target: &CpuSet,
    facts: &Facts,
    warnings: &mut Vec<Warning>,
) -> Option<ProbeSpec> {
    if plan.noise_floor.0 == 0 {
        return None;
    }
    let options = Options {
        warmup: Nanos(0),
        duration: plan.noise_floor,
        strict: false,
        lock_memory: true,
        spikes_kept: SPIKES_KEPT,
    };
    let stall = |policy| {
        let threshold = Threshold::Time(NOISE_FLOOR_THRESHOLD);
        ProbePlan::Stall(StallPlan { threshold, policy, ..StallPlan::default() })
    };
    let resolved = resolve(&stall(Policy::Fifo), target, facts, &options)
        .or_else(|_| resolve(&stall(Policy::Other), target, facts, &options));
    match resolved {
        Ok((spec, _)) => Some(spec),
        Err(error) => {
            let text = format!("the noise floor cannot be measured: {error}");
            push_once(warnings, Warning::new(WarningCode::NoNoiseFloor, text));
            None
        }
    }
}

/// Puts probes that share no CPU with each other into one group, keeping their order. Companions are in every group.
fn groups(probes: Vec<ProbeSpec>) -> Vec<Vec<ProbeSpec>> {
    let (companions, probes): (Vec<ProbeSpec>, Vec<ProbeSpec>) =
        probes.into_iter().partition(ProbeSpec::is_companion);
    if probes.is_empty() {
        return companions.into_iter().map(|companion| vec![companion]).collect();
    }
    let mut groups: Vec<Vec<ProbeSpec>> = Vec::new();
    for probe in probes {
        let fits = |group: &Vec<ProbeSpec>| {
            group.iter().all(|other| other.cpus.intersection(&probe.cpus).is_empty())
        };
        match groups.last_mut().filter(|group| fits(group)) {
            Some(group) => group.push(probe),
            None => groups.push(vec![probe]),
        }
    }
    for group in &mut groups {
        group.extend(companions.iter().cloned());
        keep_off_measured(group);
    }
    groups
}

/// Threads that do not measure keep off the CPUs of every probe that measures at that time, if other CPUs are left.
fn keep_off_measured(group: &mut [ProbeSpec]) {
    let probes = group.iter().filter(|spec| !spec.is_companion());
    let measured: CpuSet = probes.flat_map(|spec| spec.cpus.iter()).collect();
    for spec in group {
        let others = spec.other_cpus.difference(&measured);
        if !others.is_empty() {
            spec.other_cpus = others;
        }
    }
}

fn loads(cell: &CellPlan, plan: &Plan, target: &CpuSet, facts: &Facts) -> Result<Vec<PreparedLoad>, String> {
    let named = cell.loads.iter().filter_map(|name| plan.load(name));
    let prepare = |load: &LoadPlan| {
        let prepared = prepare_load(load, target, facts);
        // Only its helper can say what a driver lacks.
        let tried = prepared.and_then(|load| Load::try_helper(&load.spec).map(|()| load));
        tried.map_err(|error| format!("load `{}`: {error}", load.name))
    };
    named.map(prepare).collect()
}

/// Resolves one load on this machine, and checks that it can run there.
pub(crate) fn prepare_load(
    load: &LoadPlan,
    target: &CpuSet,
    facts: &Facts,
) -> Result<PreparedLoad, LoadError> {
    let spec = LoadSpec::resolve(&load.kind, target, facts)?;
    Ok(PreparedLoad { name: load.name.clone(), unit: spec.work.unit().to_owned(), spec })
}

/// Leaves out each tracer probe that this kernel does not support, with a warning.
pub fn check_tracers(mut experiment: Experiment, root: &HostRoot) -> Result<Experiment, RunError> {
    let mut refused = None;
    for group in &mut experiment.probes {
        group.retain(|spec| {
            let ProbeKind::Tracer(plan) = &spec.kind else { return true };
            match check_tracer(root, plan.tracer) {
                Ok(()) => true,
                Err(error) => {
                    let text = format!("the {} tracer cannot measure: {error}", plan.tracer);
                    push_once(&mut experiment.warnings, Warning::new(WarningCode::NoTracer, text));
                    refused.get_or_insert(error);
                    false
                }
            }
        });
    }
    let Some(source) = refused else { return Ok(experiment) };
    keep_what_measures(&mut experiment.probes);
    if experiment.probes.is_empty() { Err(RunError::Tracer { source }) } else { Ok(experiment) }
}

/// Leaves out groups without a probe: companions go with one, and measure on their own only if none is left.
fn keep_what_measures(groups: &mut Vec<Vec<ProbeSpec>>) {
    let has_probe = |group: &Vec<ProbeSpec>| group.iter().any(|spec| !spec.is_companion());
    if groups.iter().any(has_probe) {
        groups.retain(has_probe);
    } else {
        // Each group has the same companions.
        groups.retain(|group| !group.is_empty());
        groups.truncate(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use whylate_core::plan::Source;
    use whylate_testing::says;

    #[test]
    fn threads_that_do_not_measure_keep_off_all_probes_that_measure_together() {
        let other_cpus = |online: &str| -> Vec<String> {
            let text = "name = \"t\"\n[target]\ncpus = \"1-2\"\n\
                        [[probe]]\nkind = \"timer\"\ncpus = \"1\"\n[[probe]]\nkind = \"stall\"\ncpus = \"2\"\n\
                        [[probe]]\nkind = \"histograms\"\ncpus = \"0-1\"\n";
            let mut facts = Facts::default();
            let sets = &mut facts.cpu_sets;
            for set in [&mut sets.present, &mut sets.online, &mut sets.allowed] {
                *set = online.parse().unwrap();
            }
            let plan = Plan::parse(&Source { name: "t.toml", text }, &[]).unwrap();
            let experiment = prepare(plan, facts, false).unwrap();
            experiment.probes[0].iter().map(|spec| spec.other_cpus.to_string()).collect()
        };
        assert_eq!(other_cpus("0-3"), ["0,3", "0,3", "3"]);
        // No CPU is left for the histograms: run them on the CPU of a probe.
        assert_eq!(other_cpus("0-2"), ["0", "0", "2"]);
    }

    #[test]
    fn a_plan_with_a_limit_that_is_too_short_to_pass_is_reported() {
        let is_reported = |duration: Nanos, limit: Option<Nanos>| {
            let text = "name = \"t\"\n[target]\ncpus = \"1\"\n[[probe]]\nkind = \"timer\"\n";
            let plan = Plan::parse(&Source { name: "t.toml", text }, &[]).unwrap();
            too_short(&Plan { duration, repeats: 2, limit, ..plan }).is_some()
        };
        let limit = Some(Nanos::from_millis(5));
        assert!(is_reported(Nanos::from_millis(400), limit));
        assert!(!is_reported(Nanos::from_millis(500), limit));
        assert!(!is_reported(Nanos::from_millis(400), None), "only a limit makes a verdict of pass or fail");
    }

    fn experiment(tracers: &[&str], more: &str) -> Experiment {
        let probes: String = tracers
            .iter()
            .map(|tracer| format!("[[probe]]\nkind = \"tracer\"\ntracer = \"{tracer}\"\n"))
            .collect();
        let text = format!("name = \"t\"\n[target]\ncpus = \"1\"\n{probes}{more}");
        let mut facts = Facts::default();
        for set in [&mut facts.cpu_sets.present, &mut facts.cpu_sets.online, &mut facts.cpu_sets.allowed] {
            *set = "0-1".parse().unwrap();
        }
        let plan = Plan::parse(&Source { name: "t.toml", text: &text }, &[]).unwrap();
        prepare(plan, facts, false).unwrap()
    }

    /// A host whose kernel was built with these tracers.
    fn host(folder: &Path, tracers: &str) -> HostRoot {
        let tracefs = folder.join("sys/kernel/tracing");
        std::fs::create_dir_all(&tracefs).unwrap();
        std::fs::write(tracefs.join("trace_clock"), "[local] mono\n").unwrap();
        std::fs::write(tracefs.join("available_tracers"), tracers).unwrap();
        HostRoot::at(folder)
    }

    #[test]
    fn a_tracer_that_the_kernel_lacks_is_left_out_with_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let host = host(folder.path(), "timerlat function nop");
        let left = check_tracers(experiment(&["hwlat", "timerlat"], "[[probe]]\nkind = \"timer\"\n"), &host)
            .unwrap();
        let names: Vec<&str> = left.probes.iter().flatten().map(ProbeSpec::name).collect();
        assert_eq!(names, ["tracer", "timer"]);
        let warning = left.warnings.iter().find(|warning| warning.code == WarningCode::NoTracer).unwrap();
        assert!(warning.text.contains("CONFIG_HWLAT_TRACER is off"), "{warning:?}");
        let refused = check_tracers(experiment(&["osnoise"], ""), &host).unwrap_err();
        assert!(says("this-kernel-has-no", refused.to_string()), "{refused}");
    }

    #[test]
    fn a_companion_of_a_refused_tracer_measures_with_what_is_left_or_for_its_own_time() {
        let folder = tempfile::tempdir().unwrap();
        let host = host(folder.path(), "nop");
        let histograms = "[[probe]]\nkind = \"histograms\"\n";
        let names = |experiment: &Experiment| -> Vec<Vec<&str>> {
            experiment.probes.iter().map(|group| group.iter().map(ProbeSpec::name).collect()).collect()
        };
        let planned = experiment(&["osnoise", "hwlat"], histograms);
        assert_eq!(names(&planned), [["tracer", "histograms"], ["tracer", "histograms"]]);
        let left = check_tracers(planned, &host).unwrap();
        assert_eq!(names(&left), [["histograms"]]);
        assert_eq!(left.probes[0][0].duration, left.plan.duration);
        let more = format!("{histograms}[[probe]]\nkind = \"timer\"\n");
        let left = check_tracers(experiment(&["osnoise"], &more), &host).unwrap();
        assert_eq!(names(&left), [["timer", "histograms"]]);
        let only = check_tracers(experiment(&[], histograms), &host).unwrap();
        assert_eq!(names(&only), [["histograms"]]);
    }
}
