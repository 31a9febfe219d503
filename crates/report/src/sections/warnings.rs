//! What was not measured or may mislead, and what to do about it.

use crate::section::{Block, Depth, Section};
use whylate_core::Warning;
use whylate_core::result::{MeasureResult, RunResult};

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    in_a_line(&run.warnings)
}

/// `rt-throttling, gap (2)`: each code once, in the order of the warnings.
pub fn codes(warnings: &[Warning]) -> String {
    let mut codes: Vec<(&str, usize)> = Vec::new();
    for warning in warnings {
        match codes.iter_mut().find(|(code, _)| *code == warning.code.as_str()) {
            Some((_, times)) => *times += 1,
            None => codes.push((&warning.code, 1)),
        }
    }
    let named = codes.iter().map(|(code, times)| match times {
        1 => (*code).to_owned(),
        times => format!("{code} ({times})"),
    });
    named.collect::<Vec<_>>().join(", ")
}

/// A terminal shows them in one line.
pub(crate) fn in_a_line(warnings: &[Warning]) -> Vec<Section> {
    let line = format!("Warnings ({}): {}; --details explains them", warnings.len(), codes(warnings));
    section(warnings).into_iter().map(|section| section.depth(Depth::Brief(line.clone()))).collect()
}

/// Another tool's result has few warnings of its own, and they appear only here.
pub(super) fn of_measure(measure: &MeasureResult) -> Vec<Section> {
    match measure.tool {
        Some(_) => section(&measure.warnings),
        None => in_a_line(&measure.warnings),
    }
}

/// All warnings with their fixes.
pub(crate) fn section(warnings: &[Warning]) -> Vec<Section> {
    let section = Section::new("warnings", format!("Warnings ({})", warnings.len())).depth(Depth::Folded);
    section.with(Block::Warnings(warnings.to_vec())).unless_empty()
}
