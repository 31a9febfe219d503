//! A search for treatments, as a run: it measures, asks which treatments may be tried, and measures what the search
//! wants to know, each repeat with its treatments applied and undone as in any run.
//!
//! `stats::search` decides what is measured next, and what it proves. Here each repeat of it becomes a repeat of a
//! cell of the run; its figure is read back from the directory and recorded as a step. A search that was killed
//! continues where its steps end: a repeat without a step is measured again.

mod boot;
mod heat;
mod power;
mod telling;

pub use boot::Boot;

use crate::audience::Audience;
use crate::campaign::boot_of;
use crate::error::RunError;
use crate::experiment::{RunInProgress, RunOptions, note_reboot, record_skipped};
use crate::live::Live;
use crate::machine::Machine;
use crate::prepare::{Experiment, PreparedCell};
use boot::Before;
use power::Energy;
use std::path::Path;
use std::time::Instant;
use whylate_core::figure::nanoseconds;
use whylate_core::plan::{CellPlan, TreatmentKind};
use whylate_core::result::{
    FixArm, FixCause, FixLeftOut, FixMode, FixPhase, FixRegistration, FixStep, RunEnd, RunResult, RunState,
};
use whylate_core::warning::push_all_once;
use whylate_core::{CpuSet, Facts, Nanos, Plan, SeriesName, WarningCode};
use whylate_host::HostRoot;
use whylate_stats::search::{Figure, Search, Trial, failed, felt_figure_of, late_times, replay};
use whylate_store::{CellInfo, ExecutionState, Reader, RunDirectory, RunInfo, assemble_newest, fix_steps};
use whylate_treat::{Change, Planner as _, Surroundings, Target};

/// Repeats of each cell before anything is changed.
const FIRST_REPEATS: u32 = 2;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Proposal {
    /// The causes of the spikes in the chosen cell.
    pub causes: Vec<FixCause>,
    pub arms: Vec<FixArm>,
    /// How many of the first of them are tried before the others; 0 for all at once.
    pub first: u32,
    /// What is not tried, and why.
    pub left_out: Vec<FixLeftOut>,
}

/// Says which treatments may be tried, given what was measured without any.
pub trait Adviser {
    /// The treatments for that cell by these rules, in which an audit's settings are listed; `None` if the user wants
    /// none tried.
    fn propose(
        &mut self,
        rules: &FixRegistration,
        measured: &RunResult,
        cell: &str,
    ) -> Result<Option<Proposal>, String>;

    /// Whether the machine is booted as the step of that number needs it, with these arms; always, if no arm needs a
    /// boot.
    fn boot(&mut self, step: usize, arms: &[&FixArm]) -> Result<Boot, String> {
        let _ = (step, arms);
        Ok(Boot::Ready { took: Nanos(0) })
    }
}

/// Whether a treatment can be applied to the machine below `root` and changes anything there.
pub fn possible(root: &HostRoot, facts: &Facts, target: &CpuSet, kind: &TreatmentKind) -> Result<(), String> {
    let surroundings = Surroundings::new(root.clone(), facts, Some(target.clone()));
    let planned = kind.plan(&surroundings).map_err(|error| error.to_string())?;
    let changes = planned.changes.iter().filter(|change| !change.is_so(root));
    if changes.count() == 0 {
        return Err("the machine already has this setting".to_owned());
    }
    let rises = |change: &&Change| {
        let is_real_time = |text: &str| text.starts_with("fifo") || text.starts_with("rr");
        let before = || change.target.now(root).is_some_and(|now| is_real_time(&now));
        matches!(change.target, Target::Scheduling { .. }) && is_real_time(&change.new) && !before()
    };
    if planned.changes.iter().any(|change| rises(&change)) {
        let name = match kind {
            TreatmentKind::Priority(plan) => format!(" called `{}`", plan.thread),
            _ => String::new(),
        };
        let is_each = planned.changes.iter().all(|change| rises(&change));
        let which = if is_each { "no" } else { "not every" };
        return Err(format!("{which} thread{name} has a real-time priority that could be lowered"));
    }
    if let Some(path) = planned.changes.iter().find_map(|change| refused_file(change, root)) {
        let remedy = match facts.privileges.root {
            true => "this kernel refuses to write it",
            false => "run as root",
        };
        return Err(format!("cannot write {path}; {remedy}"));
    }
    let off = whylate_treat::kinds::offline::switched_off(&planned.changes).intersection(target);
    match off.first() {
        Some(cpu) => Err(format!("it takes CPU {cpu} offline, but this CPU is measured")),
        None => Ok(()),
    }
}

/// The file of a change that is there, has to be changed, and cannot be written by this process.
fn refused_file(change: &Change, root: &HostRoot) -> Option<String> {
    let Target::File { path, .. } = &change.target else { return None };
    let is_refused = change.required && !change.is_so(root) && root.exists(path) && !root.is_writable(path);
    is_refused.then(|| path.clone())
}

/// Searches treatments, or checks again what was proved, by the rules of `registration`, into the new directory
/// `path`.
pub fn fix(
    experiment: &Experiment,
    registration: FixRegistration,
    path: &Path,
    options: &RunOptions,
    machine: &dyn Machine,
    audience: &mut dyn Audience,
    adviser: &mut dyn Adviser,
) -> Result<RunInfo, RunError> {
    let mut info =
        RunInfo::new(&options.name, options.started_at, experiment.plan.clone(), experiment.facts.clone());
    info.seed = registration.seed;
    info.fix = Some(registration);
    info.noise_floor_threshold_ns = experiment.noise_floor.as_ref().map(|_| crate::NOISE_FLOOR_THRESHOLD.0);
    record_skipped(&mut info, experiment);
    info.warnings = options.warnings.clone();
    push_all_once(&mut info.warnings, experiment.warnings.iter().cloned());
    let held = machine.hold_treatments(&path.display().to_string(), true)?;
    push_all_once(&mut info.warnings, held.warnings);
    let directory = RunDirectory::create(path, &info)?;
    let mut live = Live::new(audience, directory.opened().clone(), experiment.target.clone());
    RunInProgress::begin(experiment, machine, &mut live, directory, info, held.treating)
        .run(|run| search(run, adviser))
}

/// Continues the search in `path` where its steps end.
pub fn resume_fix(
    path: &Path,
    prepare: &dyn Fn(Plan) -> Result<Experiment, RunError>,
    machine: &dyn Machine,
    audience: &mut dyn Audience,
    adviser: &mut dyn Adviser,
) -> Result<RunInfo, RunError> {
    let name = || path.display().to_string();
    // A search that is refused is not written to.
    let reader = Reader::to_continue(path)?;
    if reader.info().fix.is_none() {
        return Err(RunError::IsNoSearch(name()));
    }
    if reader.info().state == RunState::Complete {
        return Err(RunError::AlreadyComplete(name()));
    }
    let experiment = prepare(reader.info().plan.clone())?;
    let held = machine.hold_treatments(&name(), true)?;
    let (mut directory, mut info) = RunDirectory::reopen(path)?;
    if info.fix.iter().flat_map(|rules| &rules.arms).any(|arm| boot_of(arm).is_some()) {
        // Each repeat has a boot of its own: restored settings are compared with this one.
        info.facts = experiment.facts.clone();
    } else {
        note_reboot(&experiment, &mut info);
    }
    push_all_once(&mut info.warnings, held.warnings);
    (info.state, info.error, info.end) = (RunState::Running, None, None);
    directory.update_info(&info)?;
    let mut live = Live::new(audience, directory.opened().clone(), experiment.target.clone());
    RunInProgress::begin(&experiment, machine, &mut live, directory, info, held.treating)
        .run(|run| search(run, adviser))
}

/// All of a search that is not done yet.
fn search(run: &mut RunInProgress<'_>, adviser: &mut dyn Adviser) -> Result<RunEnd, RunError> {
    let registration = registration(run);
    let mut each_ns = run.experiment.plan.repeat_duration().0;
    if !registration.begun {
        let begun = Instant::now();
        let measured = run.info.executions.len();
        let end = first_look(run)?;
        let measured = run.info.executions.len() - measured;
        if measured > 0 {
            each_ns = begun.elapsed().as_nanos() as u64 / measured as u64;
        }
        if end != RunEnd::Completed {
            return Ok(end);
        }
        if let Some(end) = choose(run, adviser)? {
            return Ok(end);
        }
    }
    let registration = self::registration(run);
    run.experiment.plan.treatment = registration.arms.iter().map(|arm| arm.treatment.clone()).collect();
    let steps = fix_steps(run.directory.opened())?;
    let search = replay(&registration, &steps)?;
    let took_ns = steps.iter().map(|step| step.took_ns).sum();
    let steps = Steps { took_ns, booted_ns: 0, registration, search, steps, shown: None };
    steps.tell_estimate(run, each_ns);
    steps.go_on(run, adviser)
}

fn registration(run: &RunInProgress<'_>) -> FixRegistration {
    run.info.fix.clone().unwrap_or_else(|| unreachable!("a search has rules"))
}

/// Measures every cell of the plan without treatments.
fn first_look(run: &mut RunInProgress<'_>) -> Result<RunEnd, RunError> {
    let cells = run.runnable();
    let total = FIRST_REPEATS * cells.len() as u32;
    run.audience.said("measuring the unchanged machine, to find what causes latency");
    for repeat in 1..=FIRST_REPEATS {
        for (index, cell) in cells.iter().enumerate() {
            if run.is_done(&cell.plan.name(), repeat) {
                continue;
            }
            let done = (repeat - 1) * cells.len() as u32 + index as u32;
            let end = run.one_repeat(cell, repeat, repeat - 1, (done, total))?;
            if end != RunEnd::Completed {
                return Ok(end);
            }
        }
    }
    Ok(RunEnd::Completed)
}

/// Chooses the cell with the largest values and what is tried in it, and registers both. Returns an end if there is
/// nothing to search.
fn choose(run: &mut RunInProgress<'_>, adviser: &mut dyn Adviser) -> Result<Option<RunEnd>, RunError> {
    let mut registration = registration(run);
    let measured = crate::assemble_in(run.directory.opened())?;
    let worst = |cell: &whylate_core::result::CellResult| {
        let repeats = 1..=FIRST_REPEATS;
        let values = repeats.filter_map(|it| felt_figure_of(cell, it, &registration.goal)).map(|it| it.value);
        values.reduce(f64::max).map(|value| (cell.name.clone(), value))
    };
    let cells = measured.cells.iter().filter(|cell| cell.treatments.is_empty()).filter_map(worst);
    let Some((cell, value)) = cells.max_by(|a, b| a.1.total_cmp(&b.1)) else {
        let reason = format!("no repeat measured the goal `{}`", registration.goal.words());
        return Ok(Some(RunEnd::Failed { reason }));
    };
    registration.cell = Some(cell.clone());
    let is_search = registration.mode == FixMode::Search;
    let is_met = is_search && registration.goal.below.is_some_and(|below| value < below.0 as f64);
    if !is_met {
        run.audience.said(&format!(
            "the cell `{cell}` has the largest {}, so treatments are tried in this cell",
            registration.goal.words()
        ));
        let proposed = adviser.propose(&registration, &measured, &cell).map_err(RunError::Adviser)?;
        let Some(proposal) = proposed else {
            let reason = "no proposed treatment was confirmed; nothing was tried".to_owned();
            return Ok(Some(RunEnd::Failed { reason }));
        };
        (registration.causes, registration.arms) = (proposal.causes, proposal.arms);
        registration.first = proposal.first;
        (registration.left_out, registration.begun) = (proposal.left_out, true);
        run.info.plan.treatment = registration.arms.iter().map(|arm| arm.treatment.clone()).collect();
    }
    run.info.fix = Some(registration);
    run.directory.update_info(&run.info)?;
    Ok(is_met.then_some(RunEnd::Completed))
}

struct Steps {
    registration: FixRegistration,
    search: Search,
    steps: Vec<FixStep>,
    took_ns: u64,
    /// What the boot of the next repeat took.
    booted_ns: u64,
    /// What the user has seen: the phase and its treatments.
    shown: Option<(FixPhase, Vec<usize>)>,
}

impl Steps {
    fn go_on(mut self, run: &mut RunInProgress<'_>, adviser: &mut dyn Adviser) -> Result<RunEnd, RunError> {
        while let Some(trial) = self.search.next() {
            if self.took_ns >= self.registration.budget.0 {
                let budget = nanoseconds(self.registration.budget.0);
                run.audience.said(&format!(
                    "the budget of {budget} is used up: treatments that are not proved yet remain undecided"
                ));
                break;
            }
            if let Some(why) = self.no_proof_within_budget(&trial) {
                run.audience.said(&why);
                break;
            }
            match self.boot(run, &trial, adviser)? {
                Before::Measure => {}
                Before::Next => continue,
                Before::End(end) => return Ok(end),
            }
            self.tell(run, &trial);
            let end = self.measure(run, &trial)?;
            if end != RunEnd::Completed {
                return Ok(end);
            }
            if run.info.warnings.iter().any(|it| it.code == WarningCode::TreatmentNotRestored) {
                let reason = "a setting could not be restored: the search stops".to_owned();
                return Ok(RunEnd::Failed { reason });
            }
        }
        Ok(RunEnd::Completed)
    }

    /// Measures one trial and takes its figure.
    fn measure(&mut self, run: &mut RunInProgress<'_>, trial: &Trial) -> Result<RunEnd, RunError> {
        let treatments = self.names(&trial.arms);
        let cell = self.cell(run, &treatments);
        let name = cell.plan.name();
        let of_cell = self.steps.iter().filter(|step| step.cell == name).count() as u32;
        let is_known = treatments.is_empty() && self.registration.mode == FixMode::Search;
        let before = if is_known { FIRST_REPEATS } else { 0 };
        let repeat = before + of_cell + 1;
        let (segment, begun) = (run.directory.next_segment(), Instant::now());
        let (total, done) = trial.part;
        let block = FIRST_REPEATS + self.steps.len() as u32;
        let energy = Energy::read(run.machine.running());
        let end = run.one_repeat(&cell, repeat, block, (done, total))?;
        if end != RunEnd::Completed {
            return Ok(end);
        }
        let used = energy.zip(Energy::read(run.machine.running()));
        let power = used.map(|(before, now)| ("power".to_owned(), before.watts(&now, begun.elapsed())));
        let mut measured = self.figure(run, &name, repeat, segment)?;
        if let Ok(figure) = &mut measured {
            figure.costs = power.into_iter().collect();
        }
        let took_ns = self.booted_ns + begun.elapsed().as_nanos() as u64;
        let (figure, error) = match measured {
            Ok(figure) => (Some(figure), None),
            Err(why) => (None, Some(why)),
        };
        let step = FixStep {
            phase: trial.phase,
            treatments,
            cell: name,
            repeat,
            value: figure.as_ref().map(|figure| figure.value),
            others: figure.as_ref().map(|figure| figure.others.clone()).unwrap_or_default(),
            rates: figure.as_ref().map(|figure| figure.rates.clone()).unwrap_or_default(),
            causes: figure.as_ref().map(|figure| figure.causes.clone()).unwrap_or_default(),
            costs: figure.as_ref().map(|figure| figure.costs.clone()).unwrap_or_default(),
            error: error.clone(),
            took_ns,
        };
        run.directory.add_fix_step(&step)?;
        match figure {
            Some(figure) => self.search.take(&figure),
            None => failed(&mut self.search, &self.registration, error.as_deref().unwrap_or_default()),
        }
        self.steps.push(step);
        self.took_ns += took_ns;
        Ok(end)
    }

    /// What the newest repeat showed, or why it showed nothing.
    fn figure(
        &self,
        run: &RunInProgress<'_>,
        cell: &str,
        repeat: u32,
        segment: u32,
    ) -> Result<Result<Figure, String>, RunError> {
        if let Some(last) = run.info.executions.last().filter(|it| it.state != ExecutionState::Done) {
            return Ok(Err(last.error.clone().unwrap_or_else(|| "the repeat did not end".to_owned())));
        }
        if let Some(zone) = heat::too_hot(run.machine.running()) {
            return Ok(Err(zone));
        }
        let measured = assemble_newest(run.directory.opened(), cell, segment)?;
        let Some(measured) = measured else { return Ok(Err("the repeat left no result".to_owned())) };
        let mut figure = felt_figure_of(&measured, repeat, &self.registration.goal);
        if let Some(figure) = &mut figure {
            figure.rates = measured.rates.iter().map(|rate| (rate.load.clone(), rate.mean)).collect();
            if self.is_by_cause()
                && let Some(late) = late_times(&measured, repeat, &self.registration.goal)
            {
                let removes = self.registration.arms.iter().flat_map(|arm| &arm.removes);
                let rate = |name: &String| (name.clone(), late.causes.get(name).copied().unwrap_or(0.0));
                figure.causes = removes.map(rate).collect();
                figure.others.insert("late time".to_owned(), late.own);
            }
        }
        let goal = &self.registration.goal;
        let why = match goal.series.as_ref().is_some_and(|series| SeriesName::of(series).is_of_user()) {
            true => ": no response of the watched thread was recorded (it did not run, or has ended)",
            false => "",
        };
        Ok(figure.ok_or_else(|| format!("the repeat did not measure {}{why}", goal.words())))
    }

    /// Whether the ledger also judges treatments.
    fn is_by_cause(&self) -> bool {
        self.registration.arms.iter().any(|arm| !arm.removes.is_empty())
    }

    /// The cell with these treatments, which becomes part of the run if it is new.
    fn cell(&self, run: &mut RunInProgress<'_>, treatments: &[String]) -> PreparedCell {
        let control = self.registration.cell.clone().unwrap_or_default();
        let known = run.experiment.cells.iter().find(|cell| cell.plan.name() == control);
        let (loads, prepared) =
            known.map_or((Vec::new(), Ok(Vec::new())), |cell| (cell.plan.loads.clone(), cell.loads.clone()));
        let name = match self.registration.mode {
            FixMode::Audit => self.name_of_settings(&control, treatments),
            _ => {
                let names = treatments.iter().map(String::as_str);
                std::iter::once(control.as_str()).chain(names).collect::<Vec<_>>().join("+")
            }
        };
        let treatments = treatments.to_vec();
        // If nothing is judged by them, the programs that find causes only cost time.
        let causes = self.is_by_cause() || self.registration.goal.statistic.is_own();
        let plan = CellPlan { name: Some(name), loads, treatments, causes };
        let cell = PreparedCell::new(plan, prepared);
        let name = cell.plan.name();
        if !run.info.cells.iter().any(|cell| cell.name == name) {
            let CellPlan { loads, treatments, .. } = cell.plan.clone();
            run.info.cells.push(CellInfo { name, loads, treatments, skipped: None });
            run.info.plan.cell.push(cell.plan.clone());
        }
        cell
    }
}
