//! One probe or one load alone: a run of one cell, once, that stays in memory. Preparation, causes and figures are
//! those of a run with a directory.

use crate::audience::Audience;
use crate::causes::{CauseSearch, measured};
use crate::error::{RepeatError, RunError};
use crate::kernel_log::RunLog;
use crate::machine::Machine;
use crate::prepare::{Experiment, PreparedCell, ProbeOptions, prepare_load, prepare_probes};
use crate::repeat::Repeat;
use crate::tracing::Tracing;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use whylate_core::plan::{CellPlan, LoadKind, LoadPlan, ProbePlan, Target};
use whylate_core::result::{
    HistogramSource, LOAD_FORMAT, LoadResult, MEASURE_FORMAT, MeasureResult, ProbeResult, RateResult, RunEnd,
    RunResult,
};
use whylate_core::warning::push_once;
use whylate_core::{CpuSelector, CpuSet, Facts, Nanos, Plan, Warning};
use whylate_host::facts::preflight;
use whylate_probe::ProbeError;
use whylate_stats::summary::SPIKES_KEPT;
use whylate_store::{MeasuredCell, Memory, Reader, RunInfo, StoreError};

/// A probe to be measured alone.
#[derive(Clone, Debug)]
pub struct ProbeAlone {
    pub plan: ProbePlan,
    /// The measured CPUs, if the plan names none.
    pub cpus: CpuSet,
    pub duration: Nanos,
    /// Length of an interval of its timeline; by default as in a plan.
    pub interval: Option<Nanos>,
    /// How long it runs before its samples count.
    pub warmup: Nanos,
    /// How many of the largest spikes are in the result.
    pub spikes_kept: usize,
    /// Fail instead of warn when real-time priority or locked memory is refused.
    pub strict: bool,
    /// Find the causes of its spikes, or fail.
    pub causes: bool,
    /// The source of causes; by default the best one that works.
    pub causes_from: Option<HistogramSource>,
    /// Folder of the trace buffer in tracefs that a break marks and stops; without one, traces are left alone.
    pub trace_folder: Option<PathBuf>,
}

/// A load to be run alone.
#[derive(Clone, Debug)]
pub struct LoadAlone {
    pub kind: LoadKind,
    /// What `target` means in it.
    pub target: CpuSet,
    pub duration: Nanos,
    /// The file for what its command prints.
    pub output: PathBuf,
}

/// Measures with one probe; `warnings` come first in the result.
///
/// # Errors
/// [`RunError`] when it cannot be set up, or fails.
pub fn measure(
    asked: &ProbeAlone,
    facts: Facts,
    mut warnings: Vec<Warning>,
    machine: &dyn Machine,
    audience: &mut dyn Audience,
) -> Result<MeasureResult, RunError> {
    asked.plan.check()?;
    let plan = Plan {
        interval: asked.interval,
        warmup: asked.warmup,
        causes: asked.causes,
        causes_from: asked.causes_from,
        probe: vec![asked.plan.clone()],
        ..plan(asked.plan.kind(), &asked.cpus, asked.duration)
    };
    let options = ProbeOptions { spikes_kept: asked.spikes_kept.max(SPIKES_KEPT), strict: asked.strict };
    let mut probes = prepare_probes(&plan, &asked.cpus, &facts, options).map_err(|error| match error {
        // There is only one.
        RunError::Probe { source, .. } => RunError::Measure(source),
        error => error,
    })?;
    for spec in probes.groups.iter_mut().flatten() {
        warnings.extend(preflight(&facts, &spec.cpus));
        spec.trace_folder.clone_from(&asked.trace_folder);
    }
    warnings.append(&mut probes.warnings);
    let mut causes = CauseSearch::default();
    if asked.causes {
        let watched: Vec<_> = probes.groups.iter().flatten().filter_map(measured).collect();
        let finder = machine.find_causes(&watched, &facts, asked.causes_from).map_err(RunError::Causes)?;
        warnings.extend(finder.warnings().to_vec());
        causes = CauseSearch::new(finder);
    }
    let cell = PreparedCell::new(CellPlan::default(), Ok(Vec::new()));
    let experiment = experiment(plan, facts, &asked.cpus, probes.groups, cell);
    let memory = Memory::new(info(&experiment), asked.spikes_kept, PathBuf::new());
    let Once { measured, end, error, .. } = once(&experiment, memory, causes, warnings, machine, audience)?;
    let result = measurement(asked.plan.kind(), experiment.facts, measured, Some(&end));
    Ok(MeasureResult { error, ..result })
}

/// What [`measure`] would return for a probe that was measured alone, once, into the directory of `run`.
///
/// # Errors
/// [`StoreError`] when the directory cannot be read.
pub fn measure_of_run(path: &Path, run: &RunResult, spikes_kept: usize) -> Result<MeasureResult, StoreError> {
    let reader = Reader::open(path)?;
    let mut measured = MeasuredCell::of_run(&reader, run);
    measured.cell.probes.iter_mut().for_each(|probe| probe.spikes.truncate(spikes_kept));
    let kind = run.plan.probe.first().map_or("", |probe| probe.kind());
    Ok(measurement(kind, run.facts.clone(), measured, reader.info().end.as_ref()))
}

fn measurement(kind: &str, facts: Facts, measured: MeasuredCell, end: Option<&RunEnd>) -> MeasureResult {
    let MeasuredCell { cell, counters, warnings } = measured;
    let nothing = || ProbeResult { probe: kind.to_owned(), ..ProbeResult::default() };
    MeasureResult {
        tool: None,
        tool_command: None,
        format: MEASURE_FORMAT.to_owned(),
        facts,
        probe: cell.probes.into_iter().next().unwrap_or_else(nothing),
        interrupts: cell.interrupts,
        ipis: cell.ipis,
        counters,
        warnings,
        broke: matches!(end, Some(RunEnd::BrokeAbove { .. })),
        error: None,
    }
}

/// Runs one load.
///
/// # Errors
/// [`RunError`] when it cannot be started, or ends early.
pub fn load(
    asked: &LoadAlone,
    facts: Facts,
    machine: &dyn Machine,
    audience: &mut dyn Audience,
) -> Result<LoadResult, RunError> {
    let name = asked.kind.kind();
    let load = LoadPlan { name: name.to_owned(), kind: asked.kind.clone() };
    let prepared = prepare_load(&load, &asked.target, &facts)?;
    let cpus = prepared.spec.work.cpus().cloned().unwrap_or_else(|| facts.cpu_context().usable());
    let (victims, working_set) = (prepared.spec.work.victims().cloned(), prepared.spec.work.working_set());
    let cell = CellPlan { loads: vec![load.name.clone()], ..CellPlan::default() };
    let plan =
        Plan { load: vec![load], cell: vec![cell.clone()], ..plan(name, &asked.target, asked.duration) };
    let cell = PreparedCell::new(cell, Ok(vec![prepared]));
    let experiment = experiment(plan, facts, &asked.target, Vec::new(), cell);
    let memory = Memory::new(info(&experiment), 0, asked.output.clone());
    let Once { measured, mut ended, .. } =
        once(&experiment, memory, CauseSearch::default(), Vec::new(), machine, audience)?;
    let ended = ended.pop().unwrap_or_default();
    Ok(LoadResult {
        format: LOAD_FORMAT.to_owned(),
        load: name.to_owned(),
        cpus,
        victims,
        detail: ended.detail,
        working_set_bytes: working_set.map(|bytes| bytes.0),
        rate: measured.cell.rates.into_iter().find(|rate: &RateResult| !rate.series.is_empty()),
        duration_ns: ended.ran.as_nanos() as u64,
        warnings: measured.warnings,
    })
}

/// A plan with one cell that runs once, without a noise floor.
fn plan(name: &str, target: &CpuSet, duration: Nanos) -> Plan {
    Plan {
        duration,
        repeats: 1,
        settle: Nanos(0),
        warmup: Nanos(0),
        noise_floor: Nanos(0),
        target: Target { cpus: CpuSelector::List(target.clone()) },
        cell: vec![CellPlan::default()],
        ..Plan::named(name)
    }
}

fn experiment(
    plan: Plan,
    facts: Facts,
    target: &CpuSet,
    probes: Vec<Vec<whylate_probe::ProbeSpec>>,
    cell: PreparedCell,
) -> Experiment {
    let (target, warnings) = (target.clone(), Vec::new());
    Experiment { plan, facts, target, probes, noise_floor: None, cells: vec![cell], warnings }
}

fn info(experiment: &Experiment) -> RunInfo {
    let (plan, facts) = (experiment.plan.clone(), experiment.facts.clone());
    RunInfo::new(plan.name.clone(), SystemTime::now(), plan, facts)
}

/// The results of the one repeat.
struct Once {
    measured: MeasuredCell,
    end: RunEnd,
    /// The error of a measuring thread that did not run at the end: the wait until then is a sample.
    error: Option<String>,
    ended: Vec<crate::machine::LoadEnd>,
}

fn once(
    experiment: &Experiment,
    mut memory: Memory,
    mut causes: CauseSearch,
    mut warnings: Vec<Warning>,
    machine: &dyn Machine,
    audience: &mut dyn Audience,
) -> Result<Once, RunError> {
    let cell = &experiment.cells[0];
    let mut tracing = Tracing::start(experiment, machine, &mut warnings);
    let log = RunLog::start(machine.running());
    let name = cell.plan.name();
    let mut repeat = Repeat {
        experiment,
        machine,
        audience,
        sink: &mut memory,
        warnings: &mut warnings,
        treating: None,
        causing: &mut causes,
        tracing: &mut tracing,
        cell,
        name: &name,
        repeat: 1,
        attempt: 1,
        place: (0, 1),
        cpu_tables: &mut Vec::new(),
        ended: Vec::new(),
    };
    let (end, error) = match repeat.run() {
        Ok(end) => (end, None),
        Err(RepeatError::Load { source, .. }) => return Err(RunError::Load(source)),
        Err(RepeatError::Probe { source: source @ ProbeError::Starved { .. }, .. }) => {
            (RunEnd::Completed, Some(source.to_string()))
        }
        Err(error) => return Err(RunError::Repeat(error)),
    };
    let ended = repeat.ended;
    for warning in causes.losses().into_iter().chain(log.warnings()) {
        push_once(&mut warnings, warning);
    }
    Ok(Once { measured: memory.finish(warnings), end, error, ended })
}
