//! Reports: pure functions of a result to terminal text, Markdown and one self-contained HTML file.
//!
//! A function of `pages` makes a [`Page`] of sections from a result. A function of `sections` turns the result into
//! data. The writers in `write` draw any page in each format, so that every format has everything.
//!
//! The input is a [`whylate_core::result::RunResult`] or [`whylate_core::result::MeasureResult`]; the output is text.
//! Nothing here reads a file, measures, or computes a statistic: figures are formatted as they are in the result, and
//! histograms and time series are only thinned to what a picture can show.

mod charts;
mod ci;
pub mod export;
mod heat;
pub mod osadl;
mod pages;
mod pictures;
mod reading;
mod section;
mod sections;
mod words;
mod worst;
mod write;

pub use ci::{annotations, junit};
pub use pages::{
    FarmAnswer, FarmGroups, TopRate, begun, board, check, compare, copy, cpus, explain, farm_compare,
    farm_groups, fix, guide, guide_text, histograms, measure, measure_with_chart, notice, recording, run,
    run_with_charts, runs, series, top, tracing, wall, warnings,
};
pub use section::Page;
pub use sections::{plan_text, warning_codes};
pub use write::{Field, FieldValue, Form, Frame, Style};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// No probe has a sample in any cell, so there is nothing to report.
    #[error("no samples{}{}", if reasons.is_empty() { "" } else { ": " }, reasons.join("; "))]
    NoSamples {
        /// The reasons in the result: the error of the run, cells that were skipped, repeats that failed.
        reasons: Vec<String>,
    },
}
