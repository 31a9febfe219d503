//! `whylate explain`.

use super::report::format_of;
use crate::arguments::{ExplainArguments, ExportFormat, ReportFormat};
use crate::exit::Ending;
use crate::output;
use anyhow::{Context, Result, bail};
use std::io::Read;
use std::path::{Path, PathBuf};
use whylate_core::Warning;
use whylate_core::result::{EXPLAIN_FORMAT, ExplainResult, Spike, SpikeTrace};
use whylate_explain::{Export, Options, explain_kept};
use whylate_report::explain as report;
use whylate_report::terminal::Style;
use whylate_store::assemble;
use whylate_trace::parse::{self, ParseError, Source};
use whylate_trace::reader::Reader;

/// Width of a text that goes into a file.
const FILE_WIDTH: usize = 100;

pub(super) fn execute(arguments: &ExplainArguments) -> Result<Ending> {
    let options = options(arguments);
    if let Some(form) = arguments.export {
        let text = export(arguments, &options, form)?;
        return write(arguments, &text);
    }
    let result = if is_run(&arguments.input) {
        of_run(&arguments.input, &options)?
    } else {
        let mut reader = open(&arguments.input)?;
        named(whylate_explain::explain(reader.as_mut(), &options)?, &arguments.input)
    };
    let text = if arguments.json {
        format!("{}\n", serde_json::to_string_pretty(&result)?)
    } else {
        draw(&result, arguments)?
    };
    write(arguments, &text)
}

/// Whether it is the directory of a run: a folder of raw pages is a trace.
fn is_run(input: &Path) -> bool {
    input.is_dir() && !parse::is_folder(input)
}

fn options(arguments: &ExplainArguments) -> Options {
    let Ok(task) = arguments.task.as_deref().map(str::parse).transpose();
    Options {
        task,
        period_ns: arguments.period.map(|period| period.0),
        threshold_ns: arguments.threshold.map(|threshold| threshold.0),
        top: usize::try_from(arguments.top).unwrap_or(usize::MAX),
    }
}

fn open(path: &Path) -> Result<Box<dyn Reader>> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).context("cannot read standard input")?;
        return Ok(parse::from_source(Source::memory("standard input", bytes)?)?);
    }
    Ok(parse::open(path)?)
}

/// The result with the file's name in it.
fn named(mut result: ExplainResult, path: &Path) -> ExplainResult {
    for trace in &mut result.traces {
        trace.path = path.display().to_string();
    }
    result
}

/// The spikes of a run, and those of the traces that it kept.
fn of_run(directory: &Path, options: &Options) -> Result<ExplainResult> {
    let run = assemble(&whylate_store::Reader::open(directory)?)?;
    let notes: Vec<SpikeTrace> = run.cells.iter().flat_map(|cell| cell.traces.iter().cloned()).collect();
    let mut measured: Vec<Spike> = run.cells.into_iter().flat_map(|cell| cell.spikes).collect();
    measured.sort_by_key(|spike| std::cmp::Reverse(spike.latency_ns));
    measured.truncate(options.top);
    let mut all = ExplainResult {
        format: EXPLAIN_FORMAT.to_owned(),
        run: Some(run.run),
        measured,
        ..ExplainResult::default()
    };
    let paths = traces(directory)?;
    // What to look for was not said: the moments that the traces were kept for.
    let as_kept = *options == Options { top: options.top, ..Options::default() };
    if paths.is_empty() {
        let text = "the run kept no traces: its spikes have the causes that its probes saw";
        all.warnings.push(Warning::without_fix("no-traces", text));
    }
    for path in paths {
        let note = notes.iter().find(|note| path.ends_with(&note.path)).filter(|_| as_kept);
        let result = parse::open(&path).and_then(|mut reader| match note {
            Some(note) => explain_kept(reader.as_mut(), &whylate_runner::kept_moment(note)),
            None => whylate_explain::explain(reader.as_mut(), options),
        });
        add(&mut all, result, &path);
    }
    all.spikes.sort_by_key(|spike| std::cmp::Reverse(spike.latency_ns));
    all.spikes.truncate(options.top);
    Ok(all)
}

/// Adds what one trace more says; one that cannot be read is a warning, since the others are worth showing.
pub(super) fn add(all: &mut ExplainResult, result: Result<ExplainResult, ParseError>, path: &Path) {
    let result = match result {
        Ok(result) => named(result, path),
        Err(error) => {
            all.warnings.push(Warning::without_fix("unreadable-trace", error.to_string()));
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

/// The files in `RUN/traces`, by name.
fn traces(directory: &Path) -> Result<Vec<PathBuf>> {
    let folder = directory.join("traces");
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {}", folder.display()))?.path();
        // Beside them are notes of what they are of.
        if path.is_file() && path.extension().is_none_or(|ending| ending != "json") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn export(arguments: &ExplainArguments, options: &Options, form: ExportFormat) -> Result<String> {
    if is_run(&arguments.input) {
        let folder = arguments.input.join("traces");
        bail!("--export takes one trace: name a file in {}", folder.display());
    }
    let mut reader = open(&arguments.input)?;
    let result = whylate_explain::explain(reader.as_mut(), options)?;
    if result.spikes.is_empty() {
        bail!(
            "{}: no late moment to export; lower --threshold, or name the --task",
            arguments.input.display()
        );
    }
    let form = match form {
        ExportFormat::Perfetto => Export::Perfetto,
        ExportFormat::Text => Export::Text,
    };
    Ok(whylate_explain::export(reader.as_mut(), &result.spikes, form)?)
}

fn draw(result: &ExplainResult, arguments: &ExplainArguments) -> Result<String> {
    let into_file = arguments.output.is_some();
    let style = if into_file { Style { color: false, width: FILE_WIDTH } } else { output::style() };
    Ok(match format_of(arguments.format, arguments.output.as_deref()) {
        ReportFormat::Terminal => report::terminal(result, style),
        ReportFormat::Markdown => report::markdown(result),
        ReportFormat::Html => report::html(result)?,
    })
}

fn write(arguments: &ExplainArguments, text: &str) -> Result<Ending> {
    match &arguments.output {
        Some(path) => {
            output::write_new(path, text)?;
            output::message(&format!("wrote {}", path.display()));
        }
        None => output::print(text)?,
    }
    Ok(Ending::Pass)
}
