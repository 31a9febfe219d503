//! `whylate report`.

use crate::arguments::{ReportArguments, ReportFormat};
use crate::exit::Ending;
use crate::output;
use anyhow::Result;
use std::path::Path;
use whylate_report::{Page, Style};

/// Width of a text report that goes into a file.
const FILE_WIDTH: usize = 120;

pub(super) fn execute(arguments: &ReportArguments) -> Result<Ending> {
    let result = whylate_runner::assemble(&arguments.run)?;
    let text = match (arguments.json, format_of(arguments.format, arguments.output.as_deref())) {
        (true, _) => format!("{}\n", output::json(&result)?),
        (false, format) => {
            draw(&whylate_report::run(&result)?, format, arguments.output.is_some().then_some(FILE_WIDTH))
        }
    };
    match &arguments.output {
        Some(path) => {
            output::write_new(path, &text)?;
            output::message(&format!("wrote {}", path.display()));
        }
        None => output::drawn(&text)?,
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

/// The page in a format; a text that goes into a file has no colours and its own width.
pub(super) fn draw(page: &Page, format: ReportFormat, file_width: Option<usize>) -> String {
    let style = file_width.map_or_else(output::style, |width| Style { color: false, width });
    match format {
        ReportFormat::Terminal => page.terminal(style),
        ReportFormat::Markdown => page.markdown(),
        ReportFormat::Html => page.html(),
    }
}
