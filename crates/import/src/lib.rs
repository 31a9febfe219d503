//! Results of other tools (cyclictest, oslat, rtla, jitterdebugger, hwlatdetect, sysjitter) in the form of our own.
//!
//! In: the bytes of a file that such a tool wrote, or of its output that was saved. Out: a [`MeasureResult`] with one
//! [`CpuResult`](whylate_core::result::CpuResult) per CPU. Figures that the tool did not write are left out: quantiles if it
//! wrote only extremes, the machine if it does not name it. Figures without enough detail give a warning. A damaged file is
//! refused with the line and column of the damage; nothing is guessed.
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
mod options;
mod percentiles;
mod rt_tests;
mod rteval;
mod rtla;
mod screens;
mod series;
mod signatures;
mod sysjitter;
mod verbose;

pub use signatures::mechanism;

use lines::ToolLines;
use series::ToolSeries;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use whylate_core::result::{MEASURE_FORMAT, MeasureResult, ProbeResult};
use whylate_core::{Facts, Warning, WarningCode};

/// Why a file is not imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// None of the tools writes such a file.
    #[error("{} is not a result that whylate reads. whylate reads results of whylate measure --json, \
             cyclictest (-h, -v, --histfile, --json), pmqtest, ptsematest, sigwaittest, svsematest, \
             schbench, oslat, rtla timerlat and osnoise (hist, top), jitterdebugger, hwlatdetect, sysjitter, \
             Xenomai's and EVL's latency, stress-ng --cyclic, rteval, LAVA, HdrHistogram, latency_hist, \
             LinuxCNC and performance_test of ROS 2", path.display())]
    Foreign { path: PathBuf },
    /// It comes from that tool, and is not a measurement of one CPU's latency.
    #[error("{}: this result of {tool} shows {has}{worst}; {to_do}", path.display())]
    Named {
        path: PathBuf,
        tool: &'static str,
        has: &'static str,
        /// `; the largest is …`, where the text has one.
        worst: String,
        to_do: &'static str,
    },
    /// It comes from that tool, and is damaged or cut off.
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
    /// Its command line, where the file has it.
    command: Option<String>,
    facts: Facts,
    series: Vec<ToolSeries>,
    /// What the figures depend on and the file does not say.
    remarks: Vec<String>,
    /// Nothing was above the tool's threshold: how long and above what.
    nothing: Option<String>,
    /// The pattern in the moments of the largest samples, if the file has moments.
    signatures: Vec<String>,
}

/// Reads the lines of a tool's text.
type ReadText = fn(&ToolLines<'_>) -> Result<Imported, Problem>;

/// A tool whose output is text.
struct TextForm {
    tool: &'static str,
    /// What stands at the start of a line of it.
    begins: &'static [&'static str],
    /// What else is in that line.
    has: &'static str,
    /// The start of a run, if a file may have several.
    run: Option<&'static str>,
    read: ReadText,
}

const fn form(tool: &'static str, begins: &'static [&'static str], read: ReadText) -> TextForm {
    TextForm { tool, begins, has: "", run: None, read }
}

const TEXTS: &[TextForm] = &[
    TextForm { run: Some("# RTLA "), ..form("rtla", &["# RTLA "], rtla::histogram) },
    form("rtla", &["Timer Latency", "Operating System Noise"], rtla::top),
    form("cyclictest -v", &["Thread 0 Interval:"], verbose::read),
    form("latency (Xenomai, EVL, RTAI)", &["RTH|", "RTD|", "RTS|"], screens::latency),
    form("rteval", &["<rteval"], rteval::read),
    TextForm { has: "cyclic:", ..form("stress-ng --cyclic", &["stress-ng: info:"], screens::stress_ng) },
    form(
        "HdrHistogram",
        &["#[Histogram log format version", "#[Logged with", "\"StartTimestamp\",\"Interval_Length\""],
        hdr::read,
    ),
    // Without a head, as the writers in Rust and of whylate have it.
    TextForm { has: ",HIST", ..form("HdrHistogram", &["Tag=", "0."], hdr::read) },
    form("latency_hist", &["#Minimum latency:"], screens::latency_hist),
    form("LAVA", &["Test Case t", "<LAVA_SIGNAL_TESTCASE TEST_CASE_ID=t"], screens::lava),
    form("LinuxCNC", &["Servo thread (", "Base thread ("], screens::linuxcnc),
    form("performance_test (ROS 2)", &["T_experiment"], screens::ros2),
    form("schbench", &["Wakeup Latencies percentiles", "Latency percentiles (usec)"], percentiles::schbench),
    TextForm {
        has: "Min",
        ..form("pmqtest, ptsematest, sigwaittest or svsematest", &["#1 -> #0,", "#0 -> #1,"], rt_tests::pairs)
    },
    TextForm { has: " A:", ..form("jitterdebugger", &["T: 0 ("], cyclictest::read) },
    TextForm {
        run: Some("# Histogram"),
        ..form(
            "cyclictest",
            &["# Histogram", "# /dev/cpu_dma_latency", "T: 0 (", "# Min Latencies:"],
            cyclictest::read,
        )
    },
    TextForm { run: Some("hwlatdetect:"), ..form("hwlatdetect", &["hwlatdetect:"], hwlatdetect::read) },
    TextForm { run: Some("Core:"), ..form("oslat", &["Core:"], sysjitter::read) },
    TextForm { run: Some("core_i:"), ..form("oslat", &["maxlat:"], sysjitter::read) },
    TextForm { run: Some("core_i:"), ..form("sysjitter", &["core_i:"], sysjitter::read) },
];

/// Lines that are looked at to recognise a text.
const LINES_TRIED: usize = 200;

/// The tool that wrote a file, by its content; `None` if no known tool did.
pub fn tool(bytes: &[u8]) -> Option<&'static str> {
    let text = text_of(bytes)?;
    if text.trim_start().starts_with('{') {
        return json::tool(&text);
    }
    recognised(&text).map(|(_, form)| form.tool)
}

/// The text of a file, also in another encoding than UTF-8; `None` for binary data.
fn text_of(bytes: &[u8]) -> Option<Cow<'_, str>> {
    (!bytes.contains(&0)).then(|| String::from_utf8_lossy(bytes))
}

fn text_tool(lines: &ToolLines<'_>) -> Option<&'static TextForm> {
    let is_of = |form: &&TextForm| {
        let is_mark =
            |text: &str| form.begins.iter().any(|mark| text.starts_with(mark)) && text.contains(form.has);
        lines.iter().take(LINES_TRIED).any(|line| is_mark(line.text))
    };
    TEXTS.iter().find(is_of)
}

/// A text with whole lines, and its tool.
fn recognised(text: &str) -> Option<(Cow<'_, str>, &'static TextForm)> {
    let text = lines::whole(text);
    if let Some(form) = text_tool(&ToolLines::new(&text)) {
        return Some((text, form));
    }
    let bare = lines::uncommented(&text);
    let form = text_tool(&ToolLines::new(&bare))?;
    Some((bare.into(), form))
}

/// The runs of a file, each with its own series.
fn read_runs(lines: &ToolLines<'_>, form: &TextForm) -> Result<Imported, Problem> {
    let runs = form.run.map(|start| lines.runs(start)).filter(|runs| runs.len() > 1);
    let Some(runs) = runs else { return (form.read)(lines) };
    let mut all = Imported::default();
    let count = runs.len();
    for (index, run) in runs.iter().enumerate() {
        let run = (form.read)(run)?;
        all.probe = run.probe;
        all.series.extend(run.series.into_iter().map(|series| {
            let old = series.series.as_deref().map(|it| format!(" {it}")).unwrap_or_default();
            ToolSeries { series: Some(format!("run {}{old}", index + 1).into()), ..series }
        }));
        for remark in run.remarks.into_iter().chain(run.nothing.map(|it| format!("run {}: {it}", index + 1)))
        {
            if !all.remarks.contains(&remark) {
                all.remarks.push(remark);
            }
        }
    }
    all.remarks.push(format!("{count} runs in one file: each is a separate series"));
    Ok(all)
}

/// The result in `bytes`; `path` is for messages.
///
/// # Errors
/// [`ImportError::Foreign`] for a file of no tool that is known, [`ImportError::Broken`] for a damaged one.
pub fn read(path: &Path, bytes: &[u8]) -> Result<MeasureResult, ImportError> {
    let foreign = || ImportError::Foreign { path: path.to_owned() };
    let text = text_of(bytes).ok_or_else(foreign)?;
    let broken = |tool: &'static str| {
        move |Problem { line, column, message }: Problem| ImportError::Broken {
            path: path.to_owned(),
            tool,
            line,
            column,
            message,
        }
    };
    let (tool, imported) = if text.trim_start().starts_with('{') {
        match json::tool(&text).ok_or_else(foreign)? {
            json::OWN => return json::own(&text).map_err(broken(json::OWN)),
            tool => (tool, json::read(&text)),
        }
    } else {
        let Some((text, form)) = recognised(&text) else {
            return Err(named(path, &ToolLines::new(&text)).unwrap_or_else(foreign));
        };
        (form.tool, read_runs(&ToolLines::new(&text), form))
    };
    imported.and_then(|imported| result(tool, imported)).map_err(broken(tool))
}

/// The form of a text that is recognised and not read.
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

/// A sentence about a file that is recognised and not read, with what to do.
pub fn named_form(path: &Path, bytes: &[u8]) -> Option<String> {
    let text = text_of(bytes)?;
    named(path, &ToolLines::new(&text)).map(|error| error.to_string())
}

fn result(tool: &str, imported: Imported) -> Result<MeasureResult, Problem> {
    let Imported { probe, version, command, facts, series, remarks, nothing, signatures } = imported;
    let mut result = MeasureResult {
        format: MEASURE_FORMAT.to_owned(),
        tool: Some([tool].into_iter().chain(version.as_deref()).collect::<Vec<_>>().join(" ")),
        tool_command: command,
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
    let of_maxima = signatures::of(&result.probe.cpus);
    result.warnings.extend(of_maxima.into_iter().chain(signatures).map(signature));
    Ok(result)
}
