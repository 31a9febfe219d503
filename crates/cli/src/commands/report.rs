//! `whylate report`.

use super::{forms, maintainer};
use crate::arguments::{ReportArguments, ReportFormat};
use crate::exit::Ending;
use crate::output;
use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use std::path::Path;
use whylate_core::result::MeasureResult;
use whylate_host::HostRoot;
use whylate_report::{Page, ReportError, Style};

/// Width of a text report in a file.
pub(super) const FILE_WIDTH: usize = 120;

pub(super) fn execute(arguments: &ReportArguments, root: &HostRoot) -> Result<Ending> {
    if arguments.for_maintainer {
        return maintainer::execute(arguments, root);
    }
    // Checked before anything is read: the form may not exist.
    let format = format_of(arguments.format, arguments.output.as_deref(), arguments.json)?;
    let text = if arguments.run.is_file() {
        let result = imported(&arguments.run)?;
        let file = arguments.run.file_name().unwrap_or_default().to_string_lossy();
        text_of(arguments, format, &result, |format| match format {
            ReportFormat::Html => whylate_report::measure_with_chart(&result, &file),
            ReportFormat::Terminal | ReportFormat::Markdown => whylate_report::measure(&result),
        })?
    } else if arguments.run.is_dir() && whylate_trace::parse::is_ctf(&arguments.run) {
        return Err(whylate_trace::parse::open(&arguments.run)
            .err()
            .map_or_else(|| anyhow!("a trace"), Into::into));
    } else {
        let mut result = whylate_runner::assemble(&arguments.run)?;
        if arguments.json && !arguments.histograms {
            result.shorten();
        }
        text_of(arguments, format, &result, |format| match format {
            ReportFormat::Html => whylate_report::run_with_charts(&result),
            ReportFormat::Terminal | ReportFormat::Markdown => whylate_report::run(&result),
        })?
    };
    deliver(arguments.output.as_deref(), &text)?;
    Ok(Ending::Pass)
}

/// Writes the text to a new file, or to standard output.
pub(super) fn deliver(output: Option<&Path>, text: &str) -> Result<()> {
    let Some(path) = output else { return output::drawn(text) };
    output::write_new(path, text)?;
    output::message(&format!("wrote {}", path.display()));
    Ok(())
}

fn text_of<R: Serialize>(
    arguments: &ReportArguments,
    format: ReportFormat,
    result: &R,
    page: impl FnOnce(ReportFormat) -> Result<Page, ReportError>,
) -> Result<String> {
    if arguments.json {
        return Ok(format!("{}\n", output::json(result)?));
    }
    let page = page(format)?.detailed(arguments.details);
    Ok(draw(&page, format, arguments.output.is_some().then_some(FILE_WIDTH)))
}

/// The result of another tool in a file.
pub(super) fn imported(path: &Path) -> Result<MeasureResult> {
    // A large log is not read completely only to find that it is not a result.
    if forms::tool(path).is_none()
        && let Some(text) = forms::not_a_result(path)
    {
        bail!("{text}");
    }
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(whylate_import::read(path, &bytes)?)
}

/// The requested form, or the one of the file name's ending.
///
/// # Errors
/// If the ending belongs to no form.
pub(super) fn format_of(
    asked: Option<ReportFormat>,
    output: Option<&Path>,
    json: bool,
) -> Result<ReportFormat> {
    let ending = output.and_then(Path::extension).and_then(|it| it.to_str());
    if let Some(asked) = asked {
        return Ok(asked);
    }
    Ok(match ending {
        Some("html" | "htm") => ReportFormat::Html,
        Some("md" | "markdown") => ReportFormat::Markdown,
        None | Some("txt" | "text" | "log") => ReportFormat::Terminal,
        Some("json") if json => ReportFormat::Terminal,
        Some("json") => bail!("a report is not JSON: `--json` writes the result"),
        Some("pdf") => {
            bail!("-o: whylate writes no PDF; write .html and print that file (about two pages)")
        }
        Some(other) => bail!("-o: use .html, .md or .txt instead of .{other}, or add --format"),
    })
}

/// The page in a format; a text for a file has no colours and its own width.
pub(super) fn draw(page: &Page, format: ReportFormat, file_width: Option<usize>) -> String {
    let style = file_width.map_or_else(output::style, |width| Style { color: false, width });
    match format {
        ReportFormat::Terminal => page.terminal(style),
        ReportFormat::Markdown => page.markdown(),
        ReportFormat::Html => page.html(),
    }
}
