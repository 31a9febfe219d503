//! A small histogram of each CPU, for users who measure at a terminal.

use crate::section::{Block, Section};
use whylate_core::quantity::PEER_CPU;
use whylate_core::result::{CpuResult, MeasureResult};

pub(super) fn of_measure(measure: &MeasureResult) -> Vec<Section> {
    let label = |cpu: &CpuResult| match (&cpu.series, cpu.get(PEER_CPU)) {
        (Some(series), Some(_)) => series.clone(),
        (Some(series), None) => format!("CPU {} {series}", cpu.cpu),
        (None, _) => format!("CPU {}", cpu.cpu),
    };
    let bars = measure.probe.cpus.iter().map(|cpu| (label(cpu), cpu.histogram.clone())).collect();
    vec![Section::new("histograms", "").with(Block::Bars(bars))]
}
