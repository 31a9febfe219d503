//! `whylate report`.

use crate::arguments::{ReportArguments, ReportFormat};
use crate::exit::Ending;
use crate::output;
use anyhow::Result;
use std::path::Path;
use whylate_core::result::RunResult;
use whylate_report::terminal::Style;
use whylate_report::{html, markdown, terminal};

/// Width of a text report that goes into a file.
const FILE_WIDTH: usize = 120;

pub(super) fn execute(arguments: &ReportArguments) -> Result<Ending> {
    let result = whylate_runner::assemble(&arguments.run)?;
    let text = match (arguments.json, format_of(arguments.format, arguments.output.as_deref())) {
        (true, _) => format!("{}\n", serde_json::to_string_pretty(&result)?),
        (false, format) => draw(&result, format, arguments.output.is_some())?,
    };
    match &arguments.output {
        Some(path) => {
            output::write_new(path, &text)?;
            output::message(&format!("wrote {}", path.display()));
        }
        None => output::print(&text)?,
    }
    Ok(Ending::Pass)
}

/// The form that was asked for, or the one that the file's name ends in.
pub(super) fn format_of(asked: Option<ReportFormat>, output: Option<&Path>) -> ReportFormat {
    let ending = output.and_then(Path::extension).and_then(|it| it.to_str());
    asked.unwrap_or(match ending {
        Some("html" | "htm") => ReportFormat::Html,
        Some("md" | "markdown") => ReportFormat::Markdown,
        _ => ReportFormat::Terminal,
    })
}

fn draw(result: &RunResult, format: ReportFormat, into_file: bool) -> Result<String> {
    let style = if into_file { Style { color: false, width: FILE_WIDTH } } else { output::style() };
    Ok(match format {
        ReportFormat::Terminal => terminal::run(result, style)?,
        ReportFormat::Markdown => markdown::run(result)?,
        ReportFormat::Html => html::run(result)?,
    })
}
