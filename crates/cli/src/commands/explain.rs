//! `whylate explain`.

use super::{forms, kernel_log, report};
use crate::arguments::{ExplainArguments, ExportFormat, Why};
use crate::exit::Ending;
use crate::output;
use anyhow::{Result, anyhow, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use whylate_core::order::InOrder;
use whylate_core::result::{EXPLAIN_FORMAT, ExplainAnswer, ExplainResult, ExplainedRun, Spike, SpikeTrace};
use whylate_core::{Warning, WarningCode, text};
use whylate_explain::{Export, KeptMoment, Options, combine_run, explain_kept};
use whylate_store::Folder;
use whylate_trace::parse::{self, ParseError, Source};
use whylate_trace::reader::Reader;

/// Width of a text in a file.
const FILE_WIDTH: usize = 100;

pub(super) fn execute(mut arguments: ExplainArguments) -> Result<Ending> {
    let cell;
    (arguments.input, cell) =
        super::runs::with_cell(&arguments.input).map_err(|error| match way_on(&arguments.input) {
            Some(way_on) => anyhow!("{error:#}; {way_on}"),
            None => error,
        })?;
    let arguments = &arguments;
    if cell.is_some() && !is_run(&arguments.input) {
        bail!("{}: only the directory of a run has cells", arguments.input.display());
    }
    let options = options(arguments);
    if let Some(form) = arguments.export {
        let text = export(arguments, &options, form)?;
        return write(arguments, &text, Ending::Pass);
    }
    let as_kept = options == Options { top: options.top, ..Options::default() };
    let result = if is_run(&arguments.input) {
        of_run(&arguments.input, &options, &ExplainedPart { trace: None, cell: cell.as_deref() })?
    } else if let Some(run) = run_of(&arguments.input).filter(|_| as_kept) {
        of_run(&run, &options, &ExplainedPart { trace: arguments.input.file_name(), cell: None })?
    } else if let Some(note) = note_of(&arguments.input).filter(|_| as_kept) {
        let mut reader = open(&arguments.input)?;
        named(explain_kept(reader.as_mut(), &whylate_runner::kept_moment(&note))?, &arguments.input)
    } else {
        of_given(&arguments.input, &options)?
    };
    let text = if arguments.json {
        format!("{}\n", output::json(&result)?)
    } else {
        let format = report::format_of(arguments.format, arguments.output.as_deref(), arguments.json)?;
        let width = arguments.output.is_some().then_some(FILE_WIDTH);
        report::draw(&whylate_report::explain(&result), format, width)
    };
    let is_answered = result.answer != ExplainAnswer::CannotTell;
    write(arguments, &text, if is_answered { Ending::Pass } else { Ending::Incomplete })
}

/// What to do about a word that names nothing.
fn way_on(input: &Path) -> Option<String> {
    let word = input.to_string_lossy();
    Some(match Why::of(&word) {
        Ok(_) => format!("`whylate explain --why {word}` explains this kind"),
        Err(_) if word == "latest" => return None,
        Err(_) => "`whylate trace record` makes a trace".to_owned(),
    })
}

/// The page of the field guide for a kind of cause, or of message of the kernel.
pub(super) fn why(kind: Why, arguments: &ExplainArguments) -> Result<Ending> {
    let format = report::format_of(arguments.format, arguments.output.as_deref(), false)?;
    let width = arguments.output.is_some().then_some(FILE_WIDTH);
    let page = match kind {
        Why::Cause(kind) => whylate_report::guide(kind),
        Why::Message(kind) => {
            whylate_report::guide_text(format!("whylate explain --why {}", kind.code), &kind.guide())
        }
    };
    write(arguments, &report::draw(&page, format, width), Ending::Pass)
}

/// What a trace or a log of the kernel shows.
fn of_given(path: &Path, options: &Options) -> Result<ExplainResult> {
    let mut reader = if path == Path::new("-") {
        match kernel_log::of_input(path)? {
            kernel_log::Given::Log(result) => return Ok(*result),
            kernel_log::Given::Bytes(bytes) => parse::from_source(Source::memory("standard input", bytes)?)?,
        }
    } else {
        match parse::open(path) {
            Err(error @ ParseError::Foreign { .. }) => match foreign(path, error) {
                Ok(result) => return Ok(result),
                Err(error) => return Err(error),
            },
            opened => opened?,
        }
    };
    Ok(named(whylate_explain::explain(reader.as_mut(), options)?, path))
}

/// The answer for a file that is not a trace: that of a log, or the file's kind and what to do.
fn foreign(path: &Path, error: ParseError) -> Result<ExplainResult> {
    if let Some(advice) = forms::not_a_trace(path) {
        return Err(anyhow!("{advice}"));
    }
    if let Some(log) = kernel_log::of_file(path)? {
        return Ok(log);
    }
    // The trace reader gives the best message for kinds that it knows by name.
    let is_known =
        |found: &str| !found.starts_with(TEXT) && !found.starts_with("JSON") && !found.starts_with("binary");
    Err(match (&error, forms::unknown_file(path)) {
        (ParseError::Foreign { found, .. }, Some(text)) if !is_known(found) => anyhow!("{text}"),
        _ => error.into(),
    })
}

/// The trace reader's message for any text.
const TEXT: &str = "a text without a single trace line";

/// The run that kept a trace: the file is in its folder `traces`, and a note next to it has the moment.
fn run_of(trace: &Path) -> Option<PathBuf> {
    let folder = trace.parent().filter(|_| trace.with_extension("json").is_file() && trace.is_file())?;
    let run = if folder.as_os_str().is_empty() { Path::new("..").to_owned() } else { folder.join("..") };
    let run = run.canonicalize().ok()?;
    let (path, kept) = (trace.canonicalize().ok()?, whylate_store::kept_traces(&Folder::open(&run).ok()?));
    (whylate_store::is_run(&run) && kept.iter().any(|name| run.join(name) == path)).then_some(run)
}

/// The note of a trace that exists, also if both files were copied out of their run.
fn note_of(trace: &Path) -> Option<SpikeTrace> {
    note_next_to(trace).filter(|_| trace.is_file())
}

/// The note next to a trace, whether the trace exists or not.
pub(super) fn note_next_to(trace: &Path) -> Option<SpikeTrace> {
    let folder = trace.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = trace.with_extension("json");
    let note = Folder::open(folder).ok()?.read_up_to(name.file_name()?, NOTE_BYTES_MAX).ok()??;
    let note: SpikeTrace = serde_json::from_slice(&note).ok()?;
    (Path::new(&note.path).file_name() == trace.file_name()).then_some(note)
}

/// Whether it is the directory of a run. A folder of raw pages is a trace, and an LTTng folder is refused by name.
fn is_run(input: &Path) -> bool {
    input.is_dir() && !parse::is_folder(input) && !parse::is_ctf(input)
}

fn options(arguments: &ExplainArguments) -> Options {
    let Ok(task) = arguments.task.as_deref().map(str::parse).transpose();
    Options {
        task,
        period_ns: arguments.period.map(|period| period.0),
        threshold_ns: arguments.threshold.map(|threshold| threshold.0),
        what: arguments.what,
        top: usize::try_from(arguments.top).unwrap_or(usize::MAX),
        is_virtual: None,
    }
}

fn open(path: &Path) -> Result<Box<dyn Reader>> {
    if path == Path::new("-") {
        return Ok(parse::from_source(Source::copied("standard input", &mut std::io::stdin().lock())?)?);
    }
    parse::open(path).map_err(|error| match forms::not_a_trace(path) {
        Some(advice) if matches!(error, ParseError::Foreign { .. }) => anyhow!("{advice}"),
        _ => error.into(),
    })
}

/// The largest size of a note, which has the explanation of one spike.
const NOTE_BYTES_MAX: u64 = 64 << 20;

/// Adds the file's name to the result.
fn named(mut result: ExplainResult, path: &Path) -> ExplainResult {
    for trace in &mut result.traces {
        trace.path = path.display().to_string();
    }
    result
}

/// The part of a run to explain; all of it if neither is named.
struct ExplainedPart<'a> {
    /// The file name of one trace.
    trace: Option<&'a OsStr>,
    cell: Option<&'a str>,
}

impl ExplainedPart<'_> {
    fn has(&self, note: &SpikeTrace) -> bool {
        self.has_trace(Path::new(&note.path)) && self.cell.is_none_or(|cell| cell == note.cell)
    }

    fn has_trace(&self, path: &Path) -> bool {
        self.trace.is_none_or(|trace| path.file_name() == Some(trace))
    }
}

/// The spikes of a run, and those of the traces that it kept.
fn of_run(directory: &Path, options: &Options, part: &ExplainedPart<'_>) -> Result<ExplainResult> {
    let reader = whylate_store::Reader::open(directory)?;
    let mut run = whylate_store::assemble(&reader)?;
    let mut all = ExplainResult { format: EXPLAIN_FORMAT.to_owned(), ..ExplainResult::default() };
    all.of_run = Some(ExplainedRun::of(&run, part.cell));
    if let Some(cell) = part.cell {
        super::runs::require_cell(directory, &run, cell)?;
        run.cells.retain(|it| it.name == cell);
    }
    let guest = Some(run.facts.environment.hypervisor.is_some());
    all.run = Some(run.run);
    // Without other flags, explains the spikes for which the traces were kept.
    let as_kept = *options == Options { top: options.top, ..Options::default() };
    let mut names = whylate_store::kept_traces(reader.folder());
    let notes = || run.cells.iter().flat_map(|cell| &cell.traces);
    let is_wanted = |name: &String| {
        notes().find(|note| *name == note.path).map_or(part.cell.is_none(), |note| part.has(note))
    };
    names.retain(|name| part.has_trace(Path::new(name)) && is_wanted(name));
    if names.is_empty() {
        let seen = "the run kept no traces: its spikes have the causes that its probes recorded";
        let unused = "; --task, --period, --threshold and --what apply only to traces, so they had no effect";
        let text = format!("{seen}{}", if as_kept { "" } else { unused });
        all.warnings.push(Warning::new(WarningCode::NoTraces, text));
    }
    for name in names {
        let path = directory.join(&name);
        let mut notes = run.cells.iter_mut().flat_map(|cell| &mut cell.traces);
        let note = notes.find(|note| name == note.path);
        let kept = note.as_deref().filter(|_| as_kept).map(whylate_runner::kept_moment);
        let opened = whylate_runner::open_trace(reader.folder(), &name);
        let explained = opened.and_then(|mut reader| match kept {
            Some(moment) => explain_kept(
                reader.as_mut(),
                &KeptMoment { is_virtual: moment.is_virtual.or(guest), ..moment },
            ),
            None => {
                whylate_explain::explain(reader.as_mut(), &Options { is_virtual: guest, ..options.clone() })
            }
        });
        match (note, explained) {
            (Some(note), Ok(explained)) if as_kept => note.explained = Some(explained),
            (note, explained) => {
                let cell = note.map(|note| {
                    note.explained = None;
                    note.cell.clone()
                });
                add(&mut all, explained.map(|it| of_cell(it, cell.as_ref())), &path);
            }
        }
    }
    combine_run(
        &mut run.cells,
        &run.warnings,
        guest == Some(true),
        run.plan.deadline().map(|deadline| deadline.0),
    );
    for cell in run.cells {
        let name = Some(cell.name);
        all.measured.extend(cell.spikes.into_iter().map(|spike| Spike { cell: name.clone(), ..spike }));
        for note in cell.traces.into_iter().filter(|note| as_kept && part.has(note)) {
            if let Some(explained) = note.explained {
                add(&mut all, Ok(of_cell(explained, name.as_ref())), &directory.join(note.path));
            }
        }
    }
    if part.trace.is_some() {
        all.measured.clear();
    }
    all.measured.order_by_key(|spike| std::cmp::Reverse(spike.latency_ns));
    all.measured.truncate(options.top);
    all.spikes.order_by_key(|spike| std::cmp::Reverse(spike.latency_ns));
    all.spikes.truncate(options.top);
    all.conclude();
    Ok(all)
}

/// Adds the cell of its trace to the result.
fn of_cell(mut result: ExplainResult, cell: Option<&String>) -> ExplainResult {
    result.traces.iter_mut().for_each(|trace| trace.cell = cell.cloned());
    result
}

/// Adds the result of another trace; one that cannot be read is a warning, since the others are worth showing.
pub(super) fn add(all: &mut ExplainResult, result: Result<ExplainResult, ParseError>, path: &Path) {
    let result = match result {
        Ok(result) => named(result, path),
        Err(error) => {
            all.warnings.push(Warning::new(WarningCode::UnreadableTrace, error.to_string()));
            return;
        }
    };
    let first = all.traces.len();
    all.events += result.events;
    all.traces.extend(result.traces);
    all.spikes.extend(result.spikes.into_iter().map(|mut spike| {
        spike.trace += first;
        spike
    }));
    for warning in result.warnings {
        whylate_core::warning::push_once(&mut all.warnings, warning);
    }
}

fn export(arguments: &ExplainArguments, options: &Options, form: ExportFormat) -> Result<String> {
    if is_run(&arguments.input) {
        bail!("--export takes one trace: name a file in {}/traces", arguments.input.display());
    }
    let mut reader = open(&arguments.input)?;
    let result = whylate_explain::explain(reader.as_mut(), options)?;
    if result.spikes.is_empty() {
        bail!("{}: no spike to export; lower --threshold, or give --task", arguments.input.display());
    }
    let form = match form {
        ExportFormat::Perfetto => Export::Perfetto,
        ExportFormat::Text => Export::Text,
    };
    let text = whylate_explain::export(reader.as_mut(), &result.spikes, form)?;
    Ok(if form == Export::Perfetto { text::json(&text) } else { text::lines(&text) })
}

fn write(arguments: &ExplainArguments, text: &str, ending: Ending) -> Result<Ending> {
    report::deliver(arguments.output.as_deref(), text)?;
    Ok(ending)
}
