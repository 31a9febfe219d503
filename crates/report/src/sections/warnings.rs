//! What was not measured or may mislead, and what to do about it.

use crate::section::{Block, Depth, Section};
use whylate_core::Warning;
use whylate_core::result::{MeasureResult, RunResult};

/// A terminal has them in one line: before the run they were said in full.
pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let codes: Vec<&str> = run.warnings.iter().map(|warning| warning.code.as_str()).collect();
    let line = format!(
        "Warnings ({}): {}; --details says what they mean and what to do",
        codes.len(),
        codes.join(", ")
    );
    section(&run.warnings).into_iter().map(|section| section.depth(Depth::Brief(line.clone()))).collect()
}

pub(super) fn of_measure(measure: &MeasureResult) -> Vec<Section> {
    section(&measure.warnings)
}

/// All warnings with their fixes.
pub(crate) fn section(warnings: &[Warning]) -> Vec<Section> {
    let section = Section::new("warnings", format!("Warnings ({})", warnings.len())).depth(Depth::Folded);
    section.with(Block::Warnings(warnings.to_vec())).unless_empty()
}
