//! A whole run: which repeat of which cell comes next, and what is recorded about its end.

use crate::audience::{Audience, Stage};
use crate::causes::{CauseSearch, assemble_in};
use crate::error::{RepeatError, RunError};
use crate::kernel_log::RunLog;
use crate::live::Live;
use crate::machine::Machine;
use crate::prepare::{Experiment, NOISE_FLOOR_THRESHOLD, PreparedCell};
use crate::repeat::Repeat;
use crate::tracing::Tracing;
use crate::treating::{ALLOWED, Treating, differences};
use std::path::Path;
use std::time::SystemTime;
use whylate_core::figure::nanoseconds;
use whylate_core::result::{CpuTableAt, RunEnd, RunState};
use whylate_core::warning::{push_all_once, push_once};
use whylate_core::{Plan, Warning, WarningCode};
use whylate_probe::other_whylate;
use whylate_stats::order;
use whylate_store::{
    Execution, ExecutionState, Keeping, Reader, RunDirectory, RunInfo, Sink as _, StoreError,
};

/// The options of a run that are not part of the plan.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Name of the run in its tables.
    pub name: String,
    /// When it begins.
    pub started_at: SystemTime,
    /// Warnings to keep in the result in addition to those of the experiment.
    pub warnings: Vec<Warning>,
    /// How much of it stays as it was measured: older intervals are made longer.
    pub keeping: Keeping,
    /// Whether the plan is in its short form.
    pub is_short: bool,
}

/// Runs an experiment into the new directory `path`; returns how it ended. Finished repeats are in the directory
/// whatever happens.
///
/// # Errors
/// [`RunError`] when the directory cannot be made or written.
pub fn run(
    experiment: &Experiment,
    path: &Path,
    options: &RunOptions,
    machine: &dyn Machine,
    audience: &mut dyn Audience,
) -> Result<RunInfo, RunError> {
    let mut info =
        RunInfo::new(&options.name, options.started_at, experiment.plan.clone(), experiment.facts.clone());
    info.seed = experiment.plan.seed.unwrap_or_else(drawn_seed);
    info.noise_floor_threshold_ns = experiment.noise_floor.as_ref().map(|_| NOISE_FLOOR_THRESHOLD.0);
    record_skipped(&mut info, experiment);
    info.short = options.is_short;
    info.warnings = options.warnings.clone();
    push_all_once(&mut info.warnings, experiment.warnings.iter().cloned());
    // Before there is a directory: a refused run leaves none behind.
    let held = machine.hold_treatments(&path.display().to_string(), experiment.has_treatments())?;
    push_all_once(&mut info.warnings, held.warnings);
    // It may have ended before the first probe begins, after a long wait for the CPU.
    push_all_once(&mut info.warnings, other_whylate(machine.running(), &experiment.target));
    let mut directory = RunDirectory::create(path, &info)?;
    directory.limit(options.keeping);
    let mut live = Live::new(audience, directory.opened().clone(), experiment.target.clone());
    RunInProgress::begin(experiment, machine, &mut live, directory, info, held.treating)
        .run(RunInProgress::all_repeats)
}

/// Continues the run in `path`: finished repeats stay, the others are run (again).
///
/// `prepare` resolves the run's plan on the machine as it is now.
///
/// # Errors
/// [`RunError`] when the directory cannot be read or written, is complete, or the plan cannot be resolved any more.
pub fn resume(
    path: &Path,
    prepare: &dyn Fn(Plan) -> Result<Experiment, RunError>,
    machine: &dyn Machine,
    audience: &mut dyn Audience,
) -> Result<RunInfo, RunError> {
    // A run that is refused is not written to.
    let reader = Reader::to_continue(path)?;
    let info = reader.info();
    if info.fix.is_some() {
        return Err(RunError::IsSearch(path.display().to_string()));
    }
    // A run killed after its last repeat is not yet marked complete, and on a full disk its result may be missing.
    if info.is_complete() && info.state != RunState::Running && reader.has_result() {
        return Err(RunError::AlreadyComplete(path.display().to_string()));
    }
    let experiment = prepare(info.plan.clone())?;
    let held = machine.hold_treatments(&path.display().to_string(), experiment.has_treatments())?;
    let (mut directory, mut info) = RunDirectory::reopen(path)?;
    note_reboot(&experiment, &mut info);
    push_all_once(&mut info.warnings, held.warnings);
    record_skipped(&mut info, &experiment);
    (info.state, info.error, info.end) = (RunState::Running, None, None);
    directory.update_info(&info)?;
    let mut live = Live::new(audience, directory.opened().clone(), experiment.target.clone());
    RunInProgress::begin(&experiment, machine, &mut live, directory, info, held.treating)
        .run(RunInProgress::all_repeats)
}

/// Adds a warning if repeats from before and after a reboot are together.
pub(crate) fn note_reboot(experiment: &Experiment, info: &mut RunInfo) {
    if experiment.facts.kernel.boot_id != info.facts.kernel.boot_id {
        let text = "the run was resumed after a reboot, which may change the latencies of later repeats";
        push_once(&mut info.warnings, Warning::new(WarningCode::ResumedAfterReboot, text));
    }
}

/// A seed of its own for each run.
pub fn drawn_seed() -> u64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // JSON readers keep 53 bits.
    (since_epoch.as_nanos() as u64 ^ (u64::from(std::process::id()) << 32)) >> 11
}

/// Notes which cells cannot run on the machine as it is now, and why.
pub(crate) fn record_skipped(info: &mut RunInfo, experiment: &Experiment) {
    for (cell, prepared) in info.cells.iter_mut().zip(&experiment.cells) {
        cell.skipped = prepared.loads.as_ref().err().cloned();
    }
}

pub(crate) struct RunInProgress<'a> {
    /// A search adds treatments to it.
    pub(crate) experiment: Experiment,
    pub(crate) machine: &'a dyn Machine,
    pub(crate) audience: &'a mut dyn Audience,
    pub(crate) directory: RunDirectory,
    pub(crate) info: RunInfo,
    /// `None` if the run has no treatments.
    treating: Option<Box<dyn Treating>>,
    causing: CauseSearch,
    tracing: Tracing,
    /// The kernel's log from the start of the run on, if it may be read.
    log: RunLog,
}

/// Why a run did not complete, in words.
fn error_of(end: &RunEnd) -> Option<String> {
    Some(match end {
        RunEnd::Completed => return None,
        RunEnd::Interrupted => "stopped by the user".to_owned(),
        RunEnd::BrokeAbove { probe, latency_ns, break_ns } => {
            let latency = nanoseconds(*latency_ns);
            let limit = break_ns.map(|limit| format!(" of {}", nanoseconds(limit))).unwrap_or_default();
            format!("stopped: {probe} latency {latency} exceeded `break`{limit}")
        }
        RunEnd::Failed { reason } => reason.clone(),
    })
}

impl<'a> RunInProgress<'a> {
    /// Starts the search for causes and the recording of traces, if the plan wants them.
    pub(crate) fn begin(
        experiment: &Experiment,
        machine: &'a dyn Machine,
        audience: &'a mut dyn Audience,
        directory: RunDirectory,
        mut info: RunInfo,
        treating: Option<Box<dyn Treating>>,
    ) -> Self {
        let causing = CauseSearch::start(experiment, machine, &mut info.warnings);
        let tracing = Tracing::start(experiment, machine, &mut info.warnings);
        let experiment = experiment.clone();
        let log = RunLog::start(machine.running());
        Self { experiment, machine, audience, directory, info, treating, causing, tracing, log }
    }

    /// Does everything that belongs to a run; `repeats` does its repeats.
    pub(crate) fn run(
        mut self,
        repeats: impl FnOnce(&mut Self) -> Result<RunEnd, RunError>,
    ) -> Result<RunInfo, RunError> {
        self.copies()?;
        if self.info.cpu_tables.is_empty() {
            self.keep_cpu_table("before");
        }
        let end = repeats(&mut self);
        self.tracing.finish(&mut self.info.warnings);
        let end = match end {
            Ok(end) => end,
            Err(error) => {
                self.end(RunEnd::Failed { reason: error.to_string() });
                // Most likely the disk is full, and this cannot be written either; the error is more important.
                let _ = self.directory.seal(&self.info);
                return Err(error);
            }
        };
        push_all_once(&mut self.info.warnings, self.causing.losses());
        self.log.take(None, &mut self.info);
        let thinned = self.directory.thinned().map(|text| Warning::new(WarningCode::OlderCoarser, text));
        push_all_once(&mut self.info.warnings, thinned);
        self.verify();
        // A resumed run ends again.
        self.info.cpu_tables.retain(|table| table.at != "after");
        self.keep_cpu_table("after");
        self.end(end);
        self.directory.seal(&self.info)?;
        match assemble_in(self.directory.opened()) {
            Ok(result) => self.directory.write_result(&result)?,
            // Nothing to write; reading the result reports it.
            Err(StoreError::NoSamples { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.info)
    }

    /// The table of copies, if the plan asks for one. What cannot be measured becomes a warning, and the run goes on.
    fn copies(&mut self) -> Result<(), RunError> {
        let (experiment, plan) = (&self.experiment, &self.experiment.plan);
        let Some(copies) = plan.copies.as_ref().filter(|_| self.info.copies.is_none()) else { return Ok(()) };
        self.audience.stage(&Stage { cell: "copies", repeat: 1, what: "table", done: 0, total: 1 });
        let cpus = copies.cpus.resolve(&experiment.facts.cpu_context(), Some(&experiment.target));
        let table = cpus
            .map_err(|error| error.to_string())
            .and_then(|cpus| self.machine.copies(copies, &cpus).map_err(|error| error.to_string()));
        match table {
            Ok(table) => {
                push_all_once(&mut self.info.warnings, table.warnings.iter().cloned());
                self.info.copies = Some(table);
            }
            Err(reason) => {
                let text = format!("the table of copies is missing: {reason}");
                push_once(&mut self.info.warnings, Warning::new(WarningCode::MemoryModeRefused, text));
            }
        }
        Ok(self.directory.update_info(&self.info)?)
    }

    /// Keeps the CPU table of a run with a shield: it shows what the shield changes, and that it is gone at the end.
    fn keep_cpu_table(&mut self, at: &str) {
        let experiment = &self.experiment;
        if experiment.cells.iter().any(|cell| experiment.has_shield(cell)) {
            let cpus = self.machine.cpu_rows();
            self.info.cpu_tables.push(CpuTableAt { at: at.to_owned(), cpus });
        }
    }

    fn end(&mut self, end: RunEnd) {
        let is_complete = end == RunEnd::Completed;
        self.info.state = if is_complete { RunState::Complete } else { RunState::Interrupted };
        (self.info.error, self.info.end) = (error_of(&end), Some(end));
    }

    /// Every slot that is not done yet, in the order of the plan (`stats::order`). A resumed run begins new blocks.
    fn all_repeats(&mut self) -> Result<RunEnd, RunError> {
        let runnable = self.runnable();
        let plan = &self.experiment.plan;
        let slots = order::slots(runnable.len(), plan.repeats, plan.order, self.info.seed);
        let total = slots.len() as u32;
        let blocks_before = self.info.executions.iter().map(|it| it.block + 1).max().unwrap_or(0);
        for (done, slot) in slots.iter().enumerate() {
            let cell = &runnable[slot.cell];
            if self.is_done(&cell.plan.name(), slot.repeat) {
                continue;
            }
            let end = self.one_repeat(cell, slot.repeat, blocks_before + slot.block, (done as u32, total))?;
            if end != RunEnd::Completed {
                return Ok(end);
            }
        }
        if !self.info.is_complete() {
            let (done, total) = self.count_done();
            return Ok(RunEnd::Failed { reason: format!("{} of {total} repeats failed", total - done) });
        }
        Ok(RunEnd::Completed)
    }

    /// The cells that can run here.
    pub(crate) fn runnable(&self) -> Vec<PreparedCell> {
        self.experiment.cells.iter().filter(|cell| cell.loads.is_ok()).cloned().collect()
    }

    /// Checks that the settings of the machine are those from before the run.
    fn verify(&mut self) {
        // Nothing is in force any more; from here on the journal is free.
        self.treating = None;
        let mut differences = differences(&self.info.facts, &self.machine.facts());
        // A watch leaves the CPUs of the watched threads itself.
        differences.retain(|difference| !self.info.plan.is_watch() || !difference.starts_with(ALLOWED));
        let is_left =
            self.info.warnings.iter().any(|warning| warning.code == WarningCode::TreatmentNotRestored);
        // Without treatments whylate changed nothing that these facts show.
        let may_be_own = self.info.cells.iter().any(|it| it.skipped.is_none() && !it.treatments.is_empty());
        self.info.restored = Some(!is_left && (differences.is_empty() || !may_be_own));
        if !differences.is_empty() {
            let text = match may_be_own {
                true => format!("settings differ from those before the run: {}", differences.join("; ")),
                false => format!(
                    "another program changed settings during the run (whylate changed none): {}",
                    differences.join("; ")
                ),
            };
            push_once(&mut self.info.warnings, Warning::new(WarningCode::MachineChanged, text));
        }
    }

    /// Repeats of cells that are done, and in all; earlier attempts do not count.
    fn count_done(&self) -> (usize, usize) {
        let cells = self.info.cells.iter().filter(|cell| cell.skipped.is_none());
        let repeats = cells.flat_map(|cell| (1..=self.info.plan.repeats).map(move |repeat| (cell, repeat)));
        let done = repeats.clone().filter(|(cell, repeat)| self.is_done(&cell.name, *repeat)).count();
        (done, repeats.count())
    }

    pub(crate) fn is_done(&self, cell: &str, repeat: u32) -> bool {
        self.info.newest_execution(cell, repeat).is_some_and(|it| it.state == ExecutionState::Done)
    }

    pub(crate) fn one_repeat(
        &mut self,
        cell: &PreparedCell,
        repeat: u32,
        block: u32,
        place: (u32, u32),
    ) -> Result<RunEnd, RunError> {
        let name = cell.plan.name();
        let attempt = self.info.newest_execution(&name, repeat).map_or(1, |before| before.attempt + 1);
        self.info.executions.push(Execution {
            cell: name.clone(),
            repeat,
            attempt,
            block,
            state: ExecutionState::Running,
            error: None,
            void: false,
        });
        self.log.take(None, &mut self.info);
        self.directory.update_info(&self.info)?;
        let warnings = &mut self.info.warnings;
        self.causing.look(cell.plan.causes, &self.experiment, self.machine, warnings);
        let mut attempted = Repeat {
            experiment: &self.experiment,
            machine: self.machine,
            audience: self.audience,
            sink: &mut self.directory,
            warnings: &mut self.info.warnings,
            treating: self.treating.as_deref_mut(),
            causing: &mut self.causing,
            tracing: &mut self.tracing,
            cell,
            name: &name,
            repeat,
            attempt,
            place,
            cpu_tables: &mut self.info.cpu_tables,
            ended: Vec::new(),
        };
        let outcome = attempted.run();
        self.log.take(Some((&name, repeat)), &mut self.info);
        // Everything that was measured is kept, even if the repeat failed.
        let flushed = self.directory.flush();
        self.tracing.explain(&self.directory, &mut self.info.warnings);
        let void = match &outcome {
            Err(RepeatError::Probe { source, .. }) => source.is_void(),
            Err(RepeatError::NotHeld(_)) => true,
            _ => false,
        };
        let (state, error, end) = match outcome {
            Ok(RunEnd::Interrupted) => {
                (ExecutionState::Failed, error_of(&RunEnd::Interrupted), RunEnd::Interrupted)
            }
            // A repeat that was cut short is not compared.
            Ok(end @ RunEnd::BrokeAbove { .. }) => (ExecutionState::Failed, error_of(&end), end),
            Ok(end) => (ExecutionState::Done, None, end),
            Err(RepeatError::Store(error)) => return Err(error.into()),
            Err(error @ RepeatError::OutOfMemory) => {
                return flushed.map_err(RunError::from).and(Err(RunError::Repeat(error)));
            }
            // The other repeats go on.
            Err(error) => (ExecutionState::Failed, Some(error.to_string()), RunEnd::Completed),
        };
        flushed?;
        if let Some(execution) = self.info.executions.last_mut() {
            (execution.state, execution.error, execution.void) = (state, error, void);
        }
        self.directory.update_info(&self.info)?;
        Ok(end)
    }
}
