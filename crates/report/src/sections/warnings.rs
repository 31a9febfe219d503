//! What was not measured or may mislead, and what to do about it.

use crate::section::{Block, Depth, Section};
use whylate_core::Warning;
use whylate_core::result::{MeasureResult, RunResult};

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    section(&run.warnings)
}

pub(super) fn of_measure(measure: &MeasureResult) -> Vec<Section> {
    section(&measure.warnings)
}

/// All warnings with their fixes.
pub(crate) fn section(warnings: &[Warning]) -> Vec<Section> {
    let section = Section::new("warnings", format!("Warnings ({})", warnings.len())).depth(Depth::Folded);
    section.with(Block::Warnings(warnings.to_vec())).unless_empty()
}
