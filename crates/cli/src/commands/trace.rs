//! `whylate trace`.

mod tasks;

use crate::arguments::{TraceCommand, TraceRecordArguments, or_endless};
use crate::exit::{Ending, Refused};
use crate::screen::Screen;
use crate::{machine, output, signals};
use anyhow::{Context as _, Result, bail};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tasks::OwnTasks;
use whylate_core::moment::utc_text;
use whylate_core::plan::{Policy, ProbePlan, TimerPlan, Trigger};
use whylate_core::record::SpikeRecord;
use whylate_core::result::{
    EXPLAIN_FORMAT, ExplainResult, MeasureResult, RECORDING_FORMAT, RecordedTrace, RecordingResult,
    SpikeTrace,
};
use whylate_core::{CpuSelector, Nanos, Warning, WarningCode};
use whylate_explain::explain_kept;
use whylate_host::{Host, facts};
use whylate_record::{Keeper, Kept, RankedFiles, RecordError, Recorder, Request, own_command};
use whylate_runner::{Audience, Happened, ProbeAlone, Progress, RunError, Stage};
use whylate_trace::parse;

pub(super) fn execute(command: TraceCommand, host: &Host) -> Result<Ending> {
    match command {
        TraceCommand::Record(arguments) => record(&arguments, host),
    }
}

fn record(arguments: &TraceRecordArguments, host: &Host) -> Result<Ending> {
    let (facts, mut warnings) = facts::collect(&host.running);
    check(arguments)?;
    let tasks = tasks::plan(arguments);
    let cpus = match (&tasks, &arguments.cpu) {
        (Some(_), None) => facts.cpu_context().online,
        (_, cpu) => machine::cpus("--cpu", cpu.as_ref().unwrap_or(&CpuSelector::Last), &facts)?,
    };
    let plan = tasks.clone().map_or_else(|| plan(arguments), ProbePlan::Task);
    plan.check().map_err(|error| match &tasks {
        Some(_) => super::watch::as_flag(&error),
        None => error.into(),
    })?;
    if let Some(tasks) = &tasks {
        whylate_runner::find_tasks(tasks, &host.running)?;
    }
    let path = output_path(arguments)?;
    let asked_to_stop = signals::watch()?;
    let request = Request {
        profile: arguments.profile,
        cpus: facts.cpu_context().online,
        buffer: arguments.buffer.unwrap_or_else(|| arguments.profile.buffer()),
        events: arguments.events.clone(),
    };
    let rights = &facts.privileges;
    if !rights.root && !rights.tracefs {
        return Err(Refused("recording a trace needs root: `sudo whylate trace record …`").into());
    }
    Recorder::check_journal(&host.running)?;
    if let Some(tasks) = &tasks {
        super::watch::keep_away(tasks, host, &facts, arguments.printing.quiet);
        whylate_runner::try_to_watch(tasks, &host.running, &facts.cpu_sets.online, &facts)?;
    }
    let (recorder, more) = Recorder::start(&host.running, &request)?;
    warnings.extend(more);
    let worst = arguments.worst.unwrap_or(1);
    let above = arguments.until.filter(|_| tasks.is_none()).unwrap_or_default();
    let keeper = Keeper::new(Box::new(recorder), above, worst);
    let asked = ProbeAlone {
        plan,
        cpus,
        duration: or_endless(arguments.duration),
        interval: Some(Nanos::from_secs(1)),
        warmup: Nanos::from_millis(50),
        spikes_kept: KEPT_SPIKES,
        strict: false,
        causes: false,
        causes_from: None,
        trace_folder: Some(keeper.folder().to_owned()),
    };
    let quiet = arguments.printing.quiet || arguments.printing.json;
    let screen = Screen::of_one(quiet, asked.duration, None, asked_to_stop);
    let tasks = tasks.map(|_| OwnTasks::new(arguments.worst));
    let mut watch = Watch { screen, keeper, names: RankedFiles::new(path, worst), tasks, failed: None };
    let measured = whylate_runner::measure(&asked, facts, warnings, &machine::real(host)?, &mut watch);
    watch.screen.finish();
    finish(arguments, watch, measured)
}

/// The number of largest spikes that are listed.
const KEPT_SPIKES: usize = 32;

fn finish(
    arguments: &TraceRecordArguments,
    watch: Watch,
    measured: Result<MeasureResult, RunError>,
) -> Result<Ending> {
    let Watch { keeper, names, tasks, failed, .. } = watch;
    // Restores the machine first, also after an error.
    let ended = keeper.finish();
    if let Some(error) = failed {
        return Err(error.into());
    }
    let MeasureResult { facts, probe, mut warnings, error, .. } = measured?;
    if let Some(error) = error {
        anyhow::bail!(error);
    }
    let (mut kept, missed) = ended?;
    names.rename(&mut kept)?;
    let is_virtual = facts.environment.hypervisor.is_some();
    let (mut traces, mut notes) = (Vec::new(), Vec::new());
    for kept in &kept {
        let (trace, note) = match &tasks {
            None => (trace(kept), Some(note(kept, own_command(), None, is_virtual))),
            Some(tasks) => {
                let (trace, wait) = tasks.described(kept, &probe, arguments.last.unwrap_or(Trigger::LAST));
                let unended = |wait: &SpikeRecord| trace.unended && wait.at_ns >= trace.at_ns;
                let note = wait.map(|wait| SpikeTrace {
                    unended: unended(&wait),
                    ..note_of_wait(kept, &wait, is_virtual)
                });
                (trace, note)
            }
        };
        traces.push(trace);
        notes.extend(note.map(|note| (kept.path.clone(), note)));
    }
    let explained = explain(&notes, &mut warnings);
    let until = arguments.until.filter(|_| tasks.is_some() && traces.is_empty());
    let cannot_tell = until.and_then(|until| tasks::cannot_tell(&probe, until));
    let result = RecordingResult {
        format: RECORDING_FORMAT.to_owned(),
        facts,
        probe,
        traces,
        explained,
        cannot_tell,
        missed,
        warnings,
    };
    if arguments.printing.json && !arguments.target.command.is_empty() {
        // The program may print before it.
        output::print_json_line(&result)?;
    } else if arguments.printing.json {
        output::print_json(&result)?;
    } else {
        let page = whylate_report::recording(&result, arguments.until)?.detailed(arguments.details);
        output::drawn(&page.terminal(output::style()))?;
    }
    let is_unmeasured = arguments.until.is_some() && !result.probe.has_data();
    Ok(match result.traces.is_empty() {
        false => Ending::Exceeded,
        true if is_unmeasured || result.cannot_tell.is_some() => Ending::Incomplete,
        true => Ending::Pass,
    })
}

/// The cause of each trace's late moment, with its note. The trace also contains latencies from before the probe was armed. A note
/// next to each trace has the moment for which it was kept, so that `whylate explain FILE` gives the same answer.
fn explain(notes: &[(PathBuf, SpikeTrace)], warnings: &mut Vec<Warning>) -> ExplainResult {
    let mut all = ExplainResult { format: EXPLAIN_FORMAT.to_owned(), ..ExplainResult::default() };
    for (path, note) in notes {
        let moment = whylate_runner::kept_moment(note);
        let explained = parse::open(path).and_then(|mut reader| explain_kept(reader.as_mut(), &moment));
        if let Err(error) = write_note(note, path) {
            let text = format!("{}: the metadata of the trace was not written: {error}", path.display());
            warnings.push(Warning::new(WarningCode::TraceWithoutNote, text));
        }
        super::explain::add(&mut all, explained, path);
    }
    all.conclude();
    all
}

/// The moment for which the trace was kept: that of a series of a probe, by default of the timer.
fn note(kept: &Kept, task: Option<String>, series: Option<String>, is_virtual: bool) -> SpikeTrace {
    let Kept { cpu, at_ns, latency_ns, .. } = *kept;
    let name = kept.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let timer = || ProbePlan::Timer(TimerPlan::default()).kind().to_owned();
    let (probe, guest) = (series.unwrap_or_else(timer), Some(is_virtual));
    SpikeTrace { path: name, probe, task, cpu, at_ns, latency_ns, guest, ..SpikeTrace::default() }
}

/// That of a watched thread: its wait for a CPU.
fn note_of_wait(kept: &Kept, wait: &SpikeRecord, is_virtual: bool) -> SpikeTrace {
    let SpikeRecord { cpu, at_ns, latency_ns, .. } = *wait;
    let kept = Kept { path: kept.path.clone(), cpu, at_ns, latency_ns };
    let task = wait.series.as_deref().map(whylate_runner::thread_of_series);
    note(&kept, task, Some(tasks::series(wait)), is_virtual)
}

/// Writes the note next to the trace, where `whylate explain` looks for it; keeps an existing file.
fn write_note(note: &SpikeTrace, trace: &Path) -> std::io::Result<()> {
    let file = File::create_new(trace.with_extension("json"))?;
    Ok(serde_json::to_writer_pretty(file, note)?)
}

fn trace(kept: &Kept) -> RecordedTrace {
    RecordedTrace {
        path: kept.path.display().to_string(),
        cpu: Some(kept.cpu),
        at_ns: kept.at_ns,
        latency_ns: Some(kept.latency_ns),
        ..RecordedTrace::default()
    }
}

fn check(arguments: &TraceRecordArguments) -> Result<()> {
    if arguments.until == Some(Nanos(0)) {
        bail!("--until 0: give the latency that ends the recording, for example --until 100us");
    }
    match arguments.worst {
        Some(0) => bail!("--worst 0: give the number of traces to keep, at least 1"),
        Some(_) if arguments.duration.0 == 0 => {
            bail!(
                "--worst needs --duration: the recording continues until the duration is over, for example -D 10m"
            )
        }
        _ => Ok(()),
    }
}

fn plan(arguments: &TraceRecordArguments) -> ProbePlan {
    ProbePlan::Timer(TimerPlan {
        cpus: None,
        interval: arguments.interval,
        priority: arguments.priority,
        policy: Policy::Fifo,
        break_above: arguments.until.filter(|_| arguments.worst.is_none()),
        ..TimerPlan::default()
    })
}

/// The path of the first trace; an existing path is refused before the measurement.
fn output_path(arguments: &TraceRecordArguments) -> Result<PathBuf> {
    let default = || PathBuf::from(format!("whylate-{}.dat", utc_text(SystemTime::now()).replace(':', "")));
    let path = arguments.output.clone().unwrap_or_else(default);
    // A note without its trace is a leftover.
    let note = path.with_extension("json");
    if !path.exists() && super::explain::note_next_to(&path).is_some() {
        std::fs::remove_file(&note).with_context(|| format!("cannot remove {}", note.display()))?;
    }
    if path.exists() {
        bail!("{} exists; remove it or give another name (-o)", path.display());
    }
    if note.exists() {
        bail!(
            "{} exists; remove it or give another name (-o): the moment of the trace is stored there",
            note.display()
        );
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder
        && !folder.is_dir()
    {
        bail!("-o {}: there is no folder {}", path.display(), folder.display());
    }
    Ok(path)
}

/// Follows the probe, and keeps traces of late moments.
struct Watch {
    screen: Screen,
    keeper: Keeper,
    names: RankedFiles,
    /// `None` if whylate's own task measures.
    tasks: Option<OwnTasks>,
    failed: Option<RecordError>,
}

impl Audience for Watch {
    fn stage(&mut self, stage: &Stage<'_>) {
        self.screen.stage(stage);
    }

    fn progress(&mut self, progress: &Progress) {
        self.screen.progress(progress);
    }

    fn first_spike(&mut self, latency: Nanos) {
        self.screen.first_spike(latency);
    }

    fn should_stop(&self) -> bool {
        let is_done = self.tasks.as_ref().is_some_and(OwnTasks::is_done);
        is_done || self.failed.is_some() || self.screen.should_stop()
    }

    fn happened(&mut self, happened: Happened) {
        if let Some(tasks) = self.tasks.as_mut().filter(|_| self.failed.is_none()) {
            self.failed = tasks.happened(happened, &mut self.keeper, &mut self.names).err();
        }
    }

    fn spikes(&mut self, spikes: &[SpikeRecord]) {
        if let Some(tasks) = &mut self.tasks {
            tasks.waited(spikes);
            return;
        }
        let names = &mut self.names;
        if self.failed.is_none()
            && let Err(error) = self.keeper.spikes(spikes, &mut |_| names.next_path())
        {
            self.failed = Some(error);
        }
    }
}
