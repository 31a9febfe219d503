//! A run in the forms of other tools: trace events for Perfetto, tables of comma-separated values, interval logs of
//! HdrHistogram, and the tree of the OSADL latency-histograms patch.

mod csv;
mod hdr;
mod perfetto;
mod tree;

pub use csv::{CsvTable, csv};
pub use hdr::hdr;
pub use perfetto::perfetto;
pub use tree::tree;

use whylate_core::result::{CellResult, CpuResult, MeasureResult, ProbeResult, RunMessage, RunResult};

/// What is exported: the cells of a run, or a measurement (possibly by another tool) as one cell.
pub struct Exported {
    title: String,
    cells: Vec<CellResult>,
    kernel_log: Vec<RunMessage>,
}

impl From<RunResult> for Exported {
    fn from(run: RunResult) -> Self {
        let title = format!("{}, begun {}", run.plan.name, run.started_at);
        Self { title, cells: run.cells, kernel_log: run.kernel_log }
    }
}

impl From<MeasureResult> for Exported {
    fn from(measure: MeasureResult) -> Self {
        let title = measure.tool.unwrap_or_else(|| "whylate measure".to_owned());
        let cell =
            CellResult { name: "measure".to_owned(), probes: vec![measure.probe], ..CellResult::default() };
        Self { title, cells: vec![cell], kernel_log: Vec::new() }
    }
}

/// Why a run cannot be exported in this form.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("cannot write the table: {0}")]
    Csv(String),
    /// A histogram does not fit the other tool's form.
    #[error("cannot write {series}: {reason}")]
    Hdr { series: String, reason: String },
}

/// What one probe measured on one CPU in one cell.
struct Series<'r> {
    cell: &'r CellResult,
    probe: &'r ProbeResult,
    cpu: &'r CpuResult,
}

/// Every series of a run, in its order.
fn all(run: &Exported) -> impl Iterator<Item = Series<'_>> {
    let probes = run.cells.iter().flat_map(|cell| cell.probes.iter().map(move |probe| (cell, probe)));
    probes.flat_map(|(cell, probe)| probe.cpus.iter().map(move |cpu| Series { cell, probe, cpu }))
}

impl Series<'_> {
    /// The probe, with its series if it has several.
    fn name(&self) -> String {
        match &self.cpu.series {
            Some(series) => format!("{}/{series}", self.probe.probe),
            None => self.probe.probe.clone(),
        }
    }
}
