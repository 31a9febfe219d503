//! Results of other tools (cyclictest, oslat, rtla, jitterdebugger, hwlatdetect, sysjitter) in the form of our own.
//!
//! In: the bytes of a file that such a tool wrote, or of its output that was saved. Out: a [`MeasureResult`] with one
//! [`CpuResult`](whylate_core::result::CpuResult) per CPU. What the tool did not write is left out: quantiles where it
//! wrote extremes alone, the machine where it does not name it. What it wrote without enough detail is a warning. A
//! damaged file is refused with the line and column of the damage; nothing is guessed.
//!
//! | to add a tool | |
//! |---|---|
//! | its file | a function from `Lines` (text) or a field of the document (`json.rs`) to `Series` |
//! | its mark | a row in `TEXTS` |

mod cyclictest;
mod hdr;
mod hwlatdetect;
mod json;
mod lines;
mod named;
mod rteval;
mod rtla;
mod screens;
mod series;
mod signatures;
mod sysjitter;
mod verbose;

use lines::ToolLines;
use series::ToolSeries;
use std::path::{Path, PathBuf};
use whylate_core::result::{MEASURE_FORMAT, MeasureResult, ProbeResult};
use whylate_core::{Facts, Warning, WarningCode};

/// Why a file is not imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// None of the tools writes such a file.
    #[error("{}: is not a result that whylate reads; it reads those of cyclictest (-h, -v, --histfile, --json), oslat, rtla timerlat and osnoise (hist, top), jitterdebugger, hwlatdetect, sysjitter, Xenomai's and EVL's latency, stress-ng --cyclic, rteval, LAVA, HdrHistogram, latency_hist, LinuxCNC and performance_test of ROS 2", path.display())]
    Foreign { path: PathBuf },
    /// It is of that tool, and is not a measurement of one CPU's latency.
    #[error("{}: a result of {tool}: {has}{worst}; {to_do}", path.display())]
    Named {
        path: PathBuf,
        tool: &'static str,
        has: &'static str,
        /// `; the largest is …`, where the text has one.
        worst: String,
        to_do: &'static str,
    },
    /// It is of that tool, and is damaged or cut off.
    #[error("{}: line {line}, column {column}: {message} (a result of {tool})", path.display())]
    Broken {
        path: PathBuf,
        tool: &'static str,
        /// The line, from 1.
        line: usize,
        /// The byte in the line, from 1.
        column: usize,
        message: String,
    },
}

/// What is wrong in a file, and where.
#[derive(Debug)]
struct Problem {
    line: usize,
    column: usize,
    message: String,
}

#[derive(Debug, Default)]
struct Imported {
    /// The probe of whylate that measures the same.
    probe: &'static str,
    /// Version of the tool, where the file says.
    version: Option<String>,
    facts: Facts,
    series: Vec<ToolSeries>,
    /// What the file does not say and the figures depend on.
    remarks: Vec<String>,
    /// Nothing was above the tool's threshold: how long and above what.
    nothing: Option<String>,
}

/// Reads the lines of a tool's text.
type ReadText = fn(&ToolLines<'_>) -> Result<Imported, Problem>;

/// A tool whose output is text: its name, what stands at the start of a line of it, and what reads it.
const TEXTS: &[(&str, &[&str], ReadText)] = &[
    ("rtla", &["# RTLA "], rtla::histogram),
    ("rtla", &["Timer Latency", "Operating System Noise"], rtla::top),
    ("cyclictest -v", &["Thread 0 Interval:"], verbose::read),
    ("latency (Xenomai, EVL, RTAI)", &["RTH|", "RTD|", "RTS|"], screens::latency),
    ("rteval", &["<rteval"], rteval::read),
    ("stress-ng --cyclic", &["stress-ng: info:"], screens::stress_ng),
    (
        "HdrHistogram",
        &["#[Histogram log format version", "#[Logged with", "\"StartTimestamp\",\"Interval_Length\""],
        hdr::read,
    ),
    ("latency_hist", &["#Minimum latency:"], screens::latency_hist),
    ("LAVA", &["Test Case t", "<LAVA_SIGNAL_TESTCASE TEST_CASE_ID=t"], screens::lava),
    ("LinuxCNC", &["Servo thread (", "Base thread ("], screens::linuxcnc),
    ("performance_test (ROS 2)", &["T_experiment"], screens::ros2),
    ("cyclictest", &["# Histogram", "# /dev/cpu_dma_latency", "T: 0 ("], cyclictest::read),
    ("hwlatdetect", &["hwlatdetect:"], hwlatdetect::read),
    ("oslat", &["Core:"], sysjitter::read),
    ("sysjitter", &["core_i:"], sysjitter::read),
];

/// Lines that are looked at to recognise a text.
const LINES_TRIED: usize = 200;

/// The tool that wrote a file, by its content; `None` for a file of none.
pub fn tool(bytes: &[u8]) -> Option<&'static str> {
    let text = std::str::from_utf8(bytes).ok()?;
    if text.trim_start().starts_with('{') {
        return json::tool(text);
    }
    text_tool(&ToolLines::new(text)).map(|(tool, _)| tool)
}

fn text_tool(lines: &ToolLines<'_>) -> Option<(&'static str, ReadText)> {
    let begins = |mark: &&str| lines.iter().take(LINES_TRIED).any(|line| line.text.starts_with(*mark));
    let found = TEXTS.iter().find(|(_, marks, _)| marks.iter().any(&begins));
    found.map(|(tool, _, read)| (*tool, *read))
}

/// The result in `bytes`; `path` is for messages.
///
/// # Errors
/// [`ImportError::Foreign`] for a file of no tool that is known, [`ImportError::Broken`] for a damaged one.
pub fn read(path: &Path, bytes: &[u8]) -> Result<MeasureResult, ImportError> {
    let foreign = || ImportError::Foreign { path: path.to_owned() };
    let text = std::str::from_utf8(bytes).map_err(|_| foreign())?;
    let (tool, imported) = if text.trim_start().starts_with('{') {
        (json::tool(text).ok_or_else(foreign)?, json::read(text))
    } else {
        let lines = ToolLines::new(text);
        let Some((tool, read)) = text_tool(&lines) else {
            return Err(named(path, &lines).unwrap_or_else(foreign));
        };
        (tool, read(&lines))
    };
    let broken = |Problem { line, column, message }: Problem| ImportError::Broken {
        path: path.to_owned(),
        tool,
        line,
        column,
        message,
    };
    imported.and_then(|imported| result(tool, imported)).map_err(broken)
}

/// What a text is that is recognised and not read.
fn named(path: &Path, lines: &ToolLines<'_>) -> Option<ImportError> {
    let has = |mark: &&str| lines.iter().take(LINES_TRIED).any(|line| line.text.contains(*mark));
    let form = named::NAMED.iter().find(|form| form.marks.iter().any(has))?;
    let worst = (form.worst)(lines).map(|worst| format!("; {worst}")).unwrap_or_default();
    Some(ImportError::Named {
        path: path.to_owned(),
        tool: form.tool,
        has: form.has,
        worst,
        to_do: form.to_do,
    })
}

/// What a file is that is recognised and not read, in a sentence with what to do.
pub fn named_form(path: &Path, bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    named(path, &ToolLines::new(text)).map(|error| error.to_string())
}

fn result(tool: &str, imported: Imported) -> Result<MeasureResult, Problem> {
    let Imported { probe, version, facts, series, remarks, nothing } = imported;
    let mut result = MeasureResult {
        format: MEASURE_FORMAT.to_owned(),
        tool: Some([tool].into_iter().chain(version.as_deref()).collect::<Vec<_>>().join(" ")),
        facts,
        probe: ProbeResult { probe: probe.to_owned(), ..ProbeResult::default() },
        ..MeasureResult::default()
    };
    let warning = |text: String| Warning::new(WarningCode::ForeignResult, text);
    result.warnings.extend(nothing.map(|text| Warning::new(WarningCode::NothingSeen, text)));
    result.warnings.extend(remarks.into_iter().map(warning));
    for series in series {
        let (cpu, remark) = series.finish()?;
        result.warnings.extend(remark.map(warning));
        result.probe.cpus.push(cpu);
    }
    let signature = |text| Warning::new(WarningCode::KnownSignature, text);
    result.warnings.extend(signatures::of(&result.probe.cpus).into_iter().map(signature));
    Ok(result)
}
