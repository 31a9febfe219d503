//! Reports: pure functions of a result to terminal text, Markdown and one self-contained HTML file.
//!
//! What goes in is a [`whylate_core::result::RunResult`] or [`whylate_core::result::MeasureResult`]; what comes
//! out is text. Nothing here reads a file, measures, or computes a statistic: figures are formatted as they stand
//! in the result, and histograms and time series are only thinned to what a picture can show.

mod causes;
mod dispatch;
pub mod explain;
mod figure;
pub mod html;
mod latency;
pub mod markdown;
pub mod osadl;
pub mod recording;
mod table;
pub mod terminal;
mod traces;
mod words;

use whylate_core::result::{ProbeResult, RunResult};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// No probe has a sample in any cell: there is nothing to report.
    #[error("no samples{}{}", if reasons.is_empty() { "" } else { ": " }, reasons.join("; "))]
    NoSamples {
        /// What the result says about it: the error of the run, cells that were skipped, repeats that failed.
        reasons: Vec<String>,
    },
    /// The HTML page could not be put together: a defect of its template.
    #[error("the HTML report could not be rendered: {source}")]
    Template {
        /// What the template engine says.
        #[from]
        source: minijinja::Error,
    },
    /// The data of the charts could not be written as JSON.
    #[error("the charts' data could not be written: {source}")]
    ChartData {
        /// What the serializer says.
        #[from]
        source: serde_json::Error,
    },
}

/// Fails when no probe of any cell has a sample.
fn require_run_samples(run: &RunResult) -> Result<(), ReportError> {
    if run.cells.iter().flat_map(|cell| &cell.probes).any(ProbeResult::has_data) {
        return Ok(());
    }
    Err(ReportError::NoSamples { reasons: words::failures(run) })
}

fn has_samples(probe: &ProbeResult) -> bool {
    probe.cpus.iter().any(|cpu| cpu.samples > 0)
}
