//! From a run directory to the result of the run.
//!
//! In: the segments, one after another. Memory depends on the number of cells, repeats, probes and CPUs, not on the
//! length of the measurement (except for the rates: one record per load and second). Out: [`RunResult`].
//! `whylate-stats` computes the statistics; this module only decides what belongs together. Only the newest attempt
//! at each repeat counts.

mod causes;
mod cell;
mod chains;
mod hours;
mod memory;
mod noise;
mod shape;
mod triggers;

pub use memory::{MeasuredCell, Memory};

use crate::check::Check;
use crate::damage::{Damage, Damages};
use crate::error::StoreError;
use crate::folder::Folder;
use crate::info::{CellInfo, Execution, ExecutionState, RunInfo};
use crate::latency_records;
use crate::manifest::Part;
use crate::reader::{Reader, Segment};
use crate::tables::{Key, Keyed, NOISE_FLOOR, RowKey};
use cell::CellData;
use shape::Shapes;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use whylate_core::record::Interval;
use whylate_core::result::{
    Answer, CauseDifference, CellResult, Comparison, ProbeResult, RUN_FORMAT, RepeatResult, RunResult,
    RunState, SpikeTrace, incomplete_repeats,
};
use whylate_core::warning::push_all_once;
use whylate_core::{CpuId, Warning, WarningCode};
use whylate_stats::summary::SPIKES_KEPT;
use whylate_stats::{EarlierMaximum, Judgement};

/// Reads all segments and makes the result of the run. It does so too for a run that is going on, was interrupted or
/// was killed: its `error` then says how it ended. Data that could not be read are listed among its warnings. Its
/// spikes have the causes that were found during the measurement, and its traces have the causes that they show. A
/// report combines both into one answer (`combine_run` of `whylate_explain`).
///
/// # Errors
/// [`StoreError::NoSamples`] when no probe has a sample in any cell; [`StoreError::NothingLeft`] when damage is the
/// reason; the errors of [`Reader::open`] if a run in progress has to be opened again.
pub fn assemble(reader: &Reader) -> Result<RunResult, StoreError> {
    let result = assemble_as_opened(reader);
    if reader.is_outdated() { assemble(&Reader::of(reader.folder().clone())?) } else { result }
}

fn assemble_as_opened(reader: &Reader) -> Result<RunResult, StoreError> {
    let info = reader.info();
    let shapes = Shapes::of(info, SPIKES_KEPT);
    let mut warnings = info.warnings.clone();
    push_all_once(&mut warnings, reader.warnings().iter().cloned());
    let mut damages = Damages::default();
    damages.extend(reader.damages().iter().cloned());
    let mut collector = Collector {
        cells: info.cells.iter().map(|cell| (cell.name.as_str(), CellData::default())).collect(),
        newest: newest_attempts(info),
        void: void_attempts(info),
        shapes: &shapes,
        earlier: Vec::new(),
        problems: Vec::new(),
    };
    collector.read(reader, &mut damages, &mut warnings);
    let (mut traces, unreadable) = crate::traces::read(reader.folder());
    push_all_once(&mut warnings, unreadable);
    let is_newest = |trace: &SpikeTrace| {
        collector.newest.get(&(trace.cell.as_str(), trace.repeat)).is_none_or(|it| *it == trace.attempt)
    };
    traces.retain(is_newest);
    let Collector { mut cells, earlier, .. } = collector;
    let shown = cells.values().flat_map(|data| data.shown(info, &shapes)).collect();
    let finish = |cell: &CellInfo| {
        let data = cells.remove(cell.name.as_str()).unwrap_or_default();
        finish_cell(data, cell, info, reader.is_in_progress(), &shapes, &shown)
    };
    let mut results: Vec<CellResult> = info.cells.iter().map(finish).collect();
    for cell in &mut results {
        cell.traces = traces.extract_if(.., |trace| trace.cell == cell.name).collect();
        note_damages(cell, info, &damages);
    }
    warnings.extend(traces.first().map(of_no_cell));
    if !results.iter().flat_map(|cell| &cell.probes).any(ProbeResult::has_data) {
        return Err(no_samples(reader.path(), &damages));
    }
    push_all_once(&mut warnings, damages.warnings());
    let mut missing: Vec<String> = damages.named().into_iter().collect();
    missing.extend(missing_in(&results, info));
    if !reader.has_ended() {
        missing.push("the end of the run was not recorded".to_owned());
    }
    let Judgement { verdict, reason, exposure } =
        whylate_stats::judge(&mut results, &earlier, &info.plan, &missing);
    let verdict = damages.judge(verdict);
    push_all_once(&mut warnings, whylate_stats::idle_exits(&info.facts, &results));
    let Compared { comparisons, cause_contrasts, mut answers } = compared(&results, info);
    answers.extend(whylate_stats::copy_choice(&info.plan, info.copies.as_ref(), &results));
    Ok(RunResult {
        format: RUN_FORMAT.to_owned(),
        run: reader.path().display().to_string(),
        started_at: info.started_at.clone(),
        state: info.state,
        error: info.error.clone().or_else(|| unfinished(reader)),
        plan: info.plan.clone(),
        facts: info.facts.clone(),
        answers,
        comparisons,
        cause_contrasts,
        loaded_latency: whylate_stats::loaded_latency(&info.plan, &results),
        copies: info.copies.clone(),
        fix: crate::fix::result(reader, &mut warnings),
        cpu_tables: info.cpu_tables.clone(),
        kernel_log: info.kernel_log.clone(),
        cells: results,
        verdict,
        verdict_reason: reason,
        exposure,
        restored: info.restored,
        warnings,
    })
}

/// The differences between cells and the answers from them. In a search, earlier figures decide what is measured:
/// tests over its repeats would find what chance chose.
fn compared(results: &[CellResult], info: &RunInfo) -> Compared {
    if info.fix.is_some() {
        return Compared::default();
    }
    let mut comparisons = whylate_stats::comparisons(results, &info.plan);
    let mut cause_contrasts = whylate_stats::compare::cause_contrasts(results, &info.plan);
    // A repeat that failed is over too.
    let is_over = info.each_repeat(|state| matches!(state, ExecutionState::Done | ExecutionState::Failed));
    let unfinished = (!is_over).then_some(info.plan.repeats);
    if let Some(planned) = unfinished {
        whylate_stats::so_far(&mut comparisons, &mut cause_contrasts, planned);
    }
    let answers = whylate_stats::answers(results, &info.plan, &comparisons, &cause_contrasts, unfinished);
    Compared { comparisons, cause_contrasts, answers }
}

#[derive(Default)]
struct Compared {
    comparisons: Vec<Comparison>,
    cause_contrasts: Vec<CauseDifference>,
    answers: Vec<Answer>,
}

/// One cell, from segment `from` on: the data of the newest repeat.
pub fn assemble_newest(run: &Folder, cell: &str, from: u32) -> Result<Option<CellResult>, StoreError> {
    let mut reader = Reader::of(run.clone())?;
    reader.keep_from(from);
    let info = reader.info();
    let Some(known) = info.cells.iter().find(|it| it.name == cell) else { return Ok(None) };
    let shapes = Shapes::of(info, SPIKES_KEPT);
    let mut newest = newest_attempts(info);
    // A merged segment also has rows of earlier repeats: their attempts do not count here.
    let last = newest.keys().filter(|(of, _)| *of == cell).map(|(_, repeat)| *repeat).max();
    newest.iter_mut().filter(|((_, repeat), _)| Some(*repeat) != last).for_each(|(_, attempt)| *attempt = 0);
    let mut collector = Collector {
        cells: HashMap::from([(known.name.as_str(), CellData::default())]),
        newest,
        void: void_attempts(info),
        shapes: &shapes,
        earlier: Vec::new(),
        problems: Vec::new(),
    };
    let damages: Vec<Damage> = reader.segments().flat_map(|segment| collector.add_segment(segment)).collect();
    let data = collector.cells.remove(cell).unwrap_or_default();
    let shown = data.shown(info, &shapes);
    let mut found = finish_cell(data, known, info, true, &shapes, &shown);
    if let Some(damage) = damages.first() {
        found.repeats.iter_mut().for_each(|repeat| repeat.error = Some(damage.warning.text.clone()));
    }
    Ok(Some(found))
}

/// The parts of the plan that were not measured, or not to their end.
fn missing_in(cells: &[CellResult], info: &RunInfo) -> Vec<String> {
    let of_cell = |cell: &CellResult| {
        let (name, repeats) = (&cell.name, info.repeats_of(&cell.name));
        let skipped = cell.skipped.iter().map(|reason| format!("cell `{name}` was skipped: {reason}"));
        let begun = cell.repeats.len() as u32;
        let left = (cell.skipped.is_none() && begun < repeats)
            .then(|| format!("{} of {repeats} repeats of cell `{name}` did not run", repeats - begun));
        skipped.chain(left).collect::<Vec<String>>()
    };
    let incomplete = incomplete_repeats(cells);
    incomplete.into_iter().chain(cells.iter().flat_map(of_cell)).collect()
}

/// Why there is no result to report.
fn no_samples(path: &Path, damages: &Damages) -> StoreError {
    match damages.warnings().into_iter().next() {
        None => StoreError::NoSamples(path.to_owned()),
        Some(first) => StoreError::NothingLeft(path.to_owned(), first.text),
    }
}

/// The warning about a trace that belongs to no cell.
fn of_no_cell(trace: &SpikeTrace) -> Warning {
    let text = format!("{} is left out, because the run has no cell `{}`", trace.path, trace.cell);
    Warning::new(WarningCode::UnreadableTraceNote, text)
}

/// The text about a run that did not record its end.
fn unfinished(reader: &Reader) -> Option<String> {
    let text = match (reader.info().state, reader.is_in_progress()) {
        (RunState::Running, true) => "the run is still in progress",
        // A watch that ended cannot continue: the time that it would have watched is over.
        (RunState::Running, false) if reader.info().plan.is_watch() => {
            "the watch was killed: its end was not recorded"
        }
        (RunState::Running, false) => {
            "the run was killed: its end was not recorded; continue it with `--resume`"
        }
        (RunState::Complete | RunState::Interrupted, _) => return None,
    };
    Some(text.to_owned())
}

/// Whether a cell could use a row; if not, why it is skipped.
type Taken = Result<(), String>;

/// Hands each row to its cell.
struct Collector<'i> {
    cells: HashMap<&'i str, CellData>,
    /// The number of the newest attempt at each repeat of each cell.
    newest: HashMap<(&'i str, u32), u32>,
    /// Attempts whose rows do not count.
    void: HashSet<(&'i str, u32, u32)>,
    shapes: &'i Shapes,
    /// The maxima of attempts that were replaced.
    earlier: Vec<EarlierMaximum>,
    /// The parts whose rows of the current segment were skipped, and why.
    problems: Vec<(Part, String)>,
}

impl Collector<'_> {
    /// Takes all rows and latency records of a run.
    fn read(&mut self, reader: &Reader, damages: &mut Damages, warnings: &mut Vec<Warning>) {
        let mut check = Check::new(reader.info());
        reader.each_segment(|mut segment| {
            check.segment(&mut segment);
            push_all_once(warnings, segment.warnings.drain(..));
            damages.extend(self.add_segment(segment));
        });
        damages.extend(check.finish());
        let (lines, unreadable) = latency_records::read(reader.folder());
        warnings.extend(unreadable);
        for line in lines {
            self.add((&line.cell.clone(), line.repeat, line.attempt), |cell| cell.add_latency_record(line));
        }
        let unusable = self.take_problems(latency_records::FILE).map(|damage| damage.warning.text);
        warnings.extend(unusable.map(|text| Warning::new(WarningCode::UnreadableLatencyRecord, text)));
    }

    fn add_segment(&mut self, segment: Segment) -> Vec<Damage> {
        let Segment { number, rows, mut damages, .. } = segment;
        let shapes = self.shapes;
        self.keep_maxima_of_replaced(&rows.intervals);
        self.take(rows.intervals, |cell, key, interval| cell.add_interval(key, &interval, shapes));
        self.take(rows.spikes, |cell, key, spike| cell.add_spike(key, &spike, shapes));
        self.take(rows.causes, |cell, key, spike| cell.add_causes(key, spike, shapes));
        self.take(rows.tasks, |cell, key, row| cell.add_task(key, row.record));
        self.take(rows.audit, |cell, key, row| cell.add_audit(key, row.record));
        self.take(rows.triggers, |cell, key, row| cell.add_trigger(key, &row.record));
        self.take(rows.moments, |cell, key, moment| cell.add_moment(key, moment));
        self.take(rows.chains, |cell, key, row| cell.add_chain(key, &row.record));
        self.take(rows.paths, |cell, key, path| cell.add_path(key, path));
        self.take(rows.hwlat, |cell, key, row| cell.causes.add_hwlat(key, row, shapes.spikes_kept));
        self.take(rows.ipis, |cell, key, row| cell.causes.add_ipi(key, row.record));
        self.take(rows.sources, |cell, key, row| cell.causes.add_source(key, row.record));
        self.take(rows.own, |cell, key, row| cell.add_own(key, row.record));
        self.take(rows.rates, CellData::add_rate);
        self.take(rows.gpus, |cell, _, record| cell.add_gpu(record));
        self.take(rows.interrupts, |cell, key, row| cell.add_interrupt(key, row.record));
        self.take(rows.counters, |cell, key, row| cell.add_counters(key, &row.record));
        damages.extend(self.take_problems(&format!("segment {number}")));
        damages
    }

    /// The rows of `place` that were skipped since the last call.
    fn take_problems(&mut self, place: &str) -> Option<Damage> {
        let problems = std::mem::take(&mut self.problems);
        let (_, first) = problems.first()?;
        let text = format!("{place}: skipped rows: {}; reason for the first: {first}", problems.len());
        let mut of: Vec<Part> = problems.iter().map(|(part, _)| part.clone()).collect();
        of.dedup();
        Some(Damage { of, loses_samples: true, ..Damage::of_run(WarningCode::UnusableRow, text) })
    }

    /// Keeps the maxima of attempts that were replaced: they count only against the limit.
    fn keep_maxima_of_replaced(&mut self, intervals: &[Keyed<Interval, RowKey>]) {
        for (key, interval) in intervals {
            let newest = self.newest.get(&(key.cell.as_str(), key.repeat));
            let is_void = self.void.contains(&key.attempt());
            let is_replaced =
                newest.is_some_and(|newest| *newest != key.attempt) && key.probe != NOISE_FLOOR && !is_void;
            if let Some(value_ns) = interval.max_ns.filter(|_| is_replaced) {
                let (cell, probe) = (key.cell.clone(), key.probe.clone());
                self.earlier.push(EarlierMaximum { cell, probe, cpu: interval.cpu, value_ns });
            }
        }
    }

    /// Gives rows to their cells.
    fn take<K: Key, R>(&mut self, rows: Vec<Keyed<R, K>>, take: impl Fn(&mut CellData, &K, R) -> Taken) {
        for (key, row) in rows {
            self.add(key.attempt(), |cell| take(cell, &key, row));
        }
    }

    /// Gives a row to its cell, unless a newer attempt replaced it.
    fn add(&mut self, (cell, repeat, attempt): (&str, u32, u32), take: impl FnOnce(&mut CellData) -> Taken) {
        let is_replaced = self.newest.get(&(cell, repeat)).is_some_and(|newest| *newest != attempt);
        if is_replaced || self.void.contains(&(cell, repeat, attempt)) {
            return;
        }
        let problem = match self.cells.get_mut(cell) {
            Some(data) => take(data).err(),
            None => Some(format!("the run has no cell `{cell}`")),
        };
        let part = || Part { cell: cell.to_owned(), repeat, attempt, ..Part::default() };
        self.problems.extend(problem.map(|problem| (part(), problem)));
    }
}

/// The attempts that do not count.
pub(crate) fn void_attempts(info: &RunInfo) -> HashSet<(&str, u32, u32)> {
    let void = info.executions.iter().filter(|it| it.void);
    void.map(|it| (it.cell.as_str(), it.repeat, it.attempt)).collect()
}

/// The number of the newest attempt at each repeat of each cell.
pub(crate) fn newest_attempts(info: &RunInfo) -> HashMap<(&str, u32), u32> {
    let mut newest = HashMap::new();
    for execution in &info.executions {
        let attempt = newest.entry((execution.cell.as_str(), execution.repeat)).or_insert(0);
        *attempt = execution.attempt.max(*attempt);
    }
    newest
}

fn finish_cell(
    data: CellData,
    cell: &CellInfo,
    info: &RunInfo,
    in_progress: bool,
    shapes: &Shapes,
    shown: &BTreeSet<(String, CpuId)>,
) -> CellResult {
    let executions: Vec<&Execution> = (1..=info.repeats_of(&cell.name))
        .filter_map(|repeat| info.newest_execution(&cell.name, repeat))
        .collect();
    let skipped = match &cell.skipped {
        Some(reason) => Some(reason.clone()),
        None if executions.is_empty() && in_progress => Some("not begun yet".to_owned()),
        None if executions.is_empty() => Some("the run ended before this cell began".to_owned()),
        None => None,
    };
    let begun = executions.iter().map(|execution| RepeatResult {
        repeat: execution.repeat,
        block: execution.block,
        error: execution_error(execution, in_progress),
        probes: Vec::new(),
        ledger: Vec::new(),
    });
    let mut result = data.finish(begun, info, shapes, &cell.loads, shown);
    result.name.clone_from(&cell.name);
    result.loads.clone_from(&cell.loads);
    result.treatments.clone_from(&cell.treatments);
    result.skipped = skipped;
    result
}

/// Marks the repeats that lost samples: they are not compared.
fn note_damages(cell: &mut CellResult, info: &RunInfo, damages: &Damages) {
    for repeat in cell.repeats.iter_mut().filter(|repeat| repeat.error.is_none()) {
        let attempt = info.newest_execution(&cell.name, repeat.repeat).map_or(1, |it| it.attempt);
        repeat.error = damages.error_of((&cell.name, repeat.repeat, attempt));
    }
}

/// Why an execution is not complete; `None` when it is.
fn execution_error(execution: &Execution, in_progress: bool) -> Option<String> {
    let text = match execution.state {
        ExecutionState::Done => return None,
        ExecutionState::Failed => execution.error.as_deref().unwrap_or("failed"),
        ExecutionState::Running if in_progress => "still running",
        ExecutionState::Running => execution.error.as_deref().unwrap_or("the run ended during this repeat"),
    };
    Some(text.to_owned())
}
