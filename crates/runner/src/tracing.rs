//! The traces of a run: recorded while probes measure, kept for the largest spikes of each cell, explained when a
//! repeat has ended.
//!
//! In: the spikes as they come. Out: files in `traces/`, each with a note of its spike and its causes. A recording
//! that fails ends, with a warning; the measurement goes on.

use crate::machine::Machine;
use crate::prepare::Experiment;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;
use whylate_core::plan::{MeasuringTask, Samples};
use whylate_core::record::SpikeRecord;
use whylate_core::result::{CauseSource, ExplainResult, SpikeTrace};
use whylate_core::warning::{not_restored, push_all_once, push_once};
use whylate_core::{SeriesName, Warning, WarningCode};
use whylate_explain::{KeptMoment, explain_kept};
use whylate_probe::ProbeSpec;
use whylate_record::{Change, Keeper, Kept, RecordError, Request, own_command};
use whylate_store::{Folder, RowKey, RunDirectory};
use whylate_trace::parse::{self, Source};
use whylate_trace::reader::Reader;

/// The recording of a run, if its plan asks for one and the machine can record.
pub(crate) struct Tracing {
    keeper: Option<Keeper>,
    /// The traces that each cell has so far of each group of probes.
    kept: HashMap<(String, String), Vec<Kept>>,
    /// Those of the repeat under way, not yet explained.
    new: Vec<SpikeTrace>,
    missed: u64,
    /// Whether the machine is a virtual one.
    guest: bool,
}

impl Tracing {
    /// Starts recording, paused, if the plan says so. Warnings say why not, and what the recording costs.
    pub(crate) fn start(experiment: &Experiment, machine: &dyn Machine, warnings: &mut Vec<Warning>) -> Self {
        let guest = experiment.facts.environment.hypervisor.is_some();
        let mut tracing = Self { keeper: None, kept: HashMap::new(), new: Vec::new(), missed: 0, guest };
        let Some(plan) = &experiment.plan.trace else { return tracing };
        let request = Request {
            profile: plan.profile,
            cpus: experiment.facts.cpu_context().online,
            buffer: plan.buffer(),
            events: plan.events.clone(),
        };
        match machine.start_trace(&request) {
            Ok((ring, more)) => {
                push_all_once(warnings, more);
                let text = "events are recorded while the probes measure: every figure of this run contains the cost of the \
                            recording";
                push_once(warnings, Warning::new(WarningCode::Traced, text));
                let above = plan.above(experiment.plan.limit);
                let mut keeper = Keeper::new(ring, above, plan.worst as usize);
                let paused = keeper.pause();
                tracing.keeper = Some(keeper);
                tracing.note(paused, warnings);
            }
            Err(error) => give_up(&error, warnings),
        }
        tracing
    }

    /// Empties the ring and records, for probes that are about to measure: each with the buffer that its break stops.
    pub(crate) fn begin(
        &mut self,
        cell: &str,
        specs: &[ProbeSpec],
        warnings: &mut Vec<Warning>,
    ) -> Vec<ProbeSpec> {
        let mut specs = specs.to_vec();
        let Some(keeper) = &mut self.keeper else { return specs };
        let begun = keeper.begin(self.kept.remove(&group(cell, &specs)).unwrap_or_default());
        for spec in &mut specs {
            spec.trace_folder = Some(keeper.folder().to_owned());
        }
        self.note(begun, warnings);
        specs
    }

    /// Stops the trace if the largest of these spikes is worth keeping: before anything else is done about them.
    pub(crate) fn hold(&mut self, spikes: &[SpikeRecord], warnings: &mut Vec<Warning>) {
        let held = self.keeper.as_ref().map(|keeper| keeper.hold(spikes));
        held.and_then(|held| self.note(held, warnings));
    }

    /// Keeps the trace, if the largest of these spikes is worth it.
    pub(crate) fn spikes(
        &mut self,
        key: &RowKey,
        spikes: &[SpikeRecord],
        directory: &RunDirectory,
        warnings: &mut Vec<Warning>,
    ) {
        let Some(keeper) = &mut self.keeper else { return };
        let path = &mut |_: &SpikeRecord| directory.new_trace_path(&key.cell, key.repeat, key.attempt);
        let kept = keeper.spikes(spikes, path);
        if let Some(Some(change)) = self.note(kept, warnings)
            && let Err(error) = self.changed(change, key, directory)
        {
            let text = format!("could not write the metadata of a trace: {error}");
            push_once(warnings, Warning::new(WarningCode::TraceWithoutNote, text));
        }
    }

    fn changed(
        &mut self,
        change: Change,
        key: &RowKey,
        directory: &RunDirectory,
    ) -> Result<(), whylate_store::StoreError> {
        let Change { spike, kept, removed } = change;
        if let Some(removed) = removed {
            let name = RunDirectory::trace_name(&removed.path);
            self.new.retain(|trace| name != Path::new(&trace.path));
            directory.remove_trace_note(&removed.path)?;
        }
        let series = SeriesName::in_probe(&key.probe, spike.series.as_deref());
        let task = match series.facts().map(|facts| facts.task) {
            Some(MeasuringTask::Kernel(name)) => Some(format!("{name}/{}", kept.cpu)),
            // A watched thread has its name for the series.
            Some(MeasuringTask::None | MeasuringTask::Users) => spike.series.as_deref().map(thread_of_series),
            Some(MeasuringTask::Own) | None => own_command(),
        };
        let trace = SpikeTrace {
            task,
            path: RunDirectory::trace_name(&kept.path).display().to_string(),
            cell: key.cell.clone(),
            repeat: key.repeat,
            attempt: key.attempt,
            probe: series.to_string(),
            cpu: kept.cpu,
            at_ns: kept.at_ns,
            latency_ns: kept.latency_ns,
            unended: false,
            guest: Some(self.guest),
            explained: None,
            error: None,
        };
        directory.keep_trace_note(&trace)?;
        self.new.push(trace);
        Ok(())
    }

    pub(crate) fn pause(&mut self, cell: &str, specs: &[ProbeSpec], warnings: &mut Vec<Warning>) {
        let paused = self.keeper.as_mut().map(Keeper::pause);
        if let Some(paused) = paused
            && let Some((kept, missed)) = self.note(paused, warnings)
        {
            self.kept.insert(group(cell, specs), kept);
            self.missed += missed;
        }
    }

    /// Explains the traces of the repeat that has ended, and keeps the explanations with them.
    pub(crate) fn explain(&mut self, directory: &RunDirectory, warnings: &mut Vec<Warning>) {
        for mut trace in self.new.drain(..) {
            match explained(&trace, directory.opened()) {
                Ok(result) => trace.explained = Some(result),
                Err(error) => trace.error = Some(error.to_string()),
            }
            if let Err(error) = directory.keep_trace_note(&trace) {
                let text = format!(
                    "could not store the cause of a spike: {error}; `whylate explain` finds it again"
                );
                push_once(warnings, Warning::new(WarningCode::TraceWithoutNote, text));
            }
        }
    }

    /// Ends the recording and gives tracing back.
    pub(crate) fn finish(&mut self, warnings: &mut Vec<Warning>) {
        if self.missed > 0 {
            let text = format!(
                "traces are missing for {} of the latencies above the limit, because another trace was being saved",
                self.missed
            );
            push_once(warnings, Warning::new(WarningCode::UntracedSpikes, text));
        }
        if let Some(Err(error)) = self.keeper.take().map(Keeper::finish) {
            push_once(warnings, not_restored(error));
        }
    }

    /// The result of a step of the recording; a failed step ends it.
    fn note<T>(&mut self, outcome: Result<T, RecordError>, warnings: &mut Vec<Warning>) -> Option<T> {
        match outcome {
            Ok(brought) => Some(brought),
            Err(error) => {
                give_up(&error, warnings);
                self.finish(warnings);
                None
            }
        }
    }
}

/// Probes that measure one after another have traces of their own: a gap of `stall` does not compare with a latency of
/// `timer`.
fn group(cell: &str, specs: &[ProbeSpec]) -> (String, String) {
    (cell.to_owned(), specs.iter().map(|spec| format!("{} {}", spec.name(), spec.cpus)).collect())
}

fn give_up(error: &RecordError, warnings: &mut Vec<Warning>) {
    let text = format!("traces of spikes cannot be recorded: {error}");
    push_once(warnings, Warning::new(WarningCode::NoTraces, text));
}

/// The causes of a trace's spike; its path is that in the run.
fn explained(trace: &SpikeTrace, run: &Folder) -> Result<ExplainResult, parse::ParseError> {
    let moment = moment(trace);
    let mut reader = open_trace(run, &trace.path)?;
    let mut result = explain_kept(reader.as_mut(), &moment)?;
    for explained in &mut result.traces {
        explained.path.clone_from(&trace.path);
    }
    // The reader of the run adds what the run's own recording says as well.
    for spike in &mut result.spikes {
        spike.cause.sources = vec![CauseSource::Trace];
    }
    Ok(result)
}

/// A trace that a run kept, by its path below the run.
pub fn open_trace(run: &Folder, name: &str) -> Result<Box<dyn Reader>, parse::ParseError> {
    let path = run.path().join(name);
    let opened = run.open_file(name).and_then(|file| file.ok_or_else(|| ErrorKind::NotFound.into()));
    match opened {
        Ok(file) => parse::from_source(Source::file(file, &path)?),
        Err(source) => Err(parse::ParseError::Read { path, source }),
    }
}

/// The name of a watched thread, by its series: `audio#2/wakeup`.
pub fn thread_of_series(series: &str) -> String {
    series.split(['#', '/']).next().unwrap_or_default().to_owned()
}

/// What the trace was kept for.
pub fn moment(trace: &SpikeTrace) -> KeptMoment {
    let facts = SeriesName::of(&trace.probe).facts();
    let looks_for_gaps = facts.is_some_and(|facts| facts.samples == Samples::Gap);
    // For a watched thread, the wait for a CPU: before it ran, or when it was preempted.
    let is_preempted = trace.probe.starts_with("task/") && !trace.probe.ends_with("/wakeup");
    KeptMoment {
        task: trace.task.clone(),
        cpu: trace.cpu,
        at_ns: trace.at_ns,
        latency_ns: trace.latency_ns,
        unended: trace.unended,
        sleeps: !looks_for_gaps && !is_preempted,
        is_virtual: trace.guest,
    }
}
