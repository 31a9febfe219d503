//! Histograms as files of the OSADL latency-histograms patch: `CELL/PROBE/CPU1`, and with it `max_latency-CPU1` if
//! the late task is known.

use super::Exported;
use super::all;
use crate::osadl::{self, TreeFile};
use whylate_core::quantity::MAX_RECORD;

/// One file for each histogram of a run, and one for each record of a maximum.
pub fn tree(run: &Exported) -> Vec<TreeFile> {
    let mut files = Vec::new();
    for series in all(run).filter(|series| !series.cpu.histogram.is_empty()) {
        let cpu = series.cpu;
        let folder = format!(
            "{}/{}",
            part(&series.cell.name),
            series.name().split('/').map(part).collect::<Vec<_>>().join("/")
        );
        let text = osadl::histogram(cpu.samples, cpu.quantiles.as_ref(), &cpu.histogram);
        files.push(TreeFile { path: format!("{folder}/CPU{}", cpu.cpu), text });
        if let Some(record) = cpu.quantities.of(MAX_RECORD) {
            let path = format!("{folder}/max_latency-CPU{}", cpu.cpu);
            files.push(TreeFile { path, text: osadl::max_latency(record) });
        }
    }
    files
}

/// A name as one component of a path that cannot lead elsewhere.
fn part(name: &str) -> String {
    let plain: String =
        name.chars().map(|c| if c == '/' || c == '\0' || c.is_control() { '_' } else { c }).collect();
    if matches!(plain.as_str(), "" | "." | "..") { "_".to_owned() } else { plain }
}
