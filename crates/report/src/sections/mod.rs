//! The sections of a report: one function each, from a result to data. To add one: its file, and its line below.

mod answers;
mod audit;
mod causes;
mod chains;
mod comparisons;
mod copy;
mod dispatch;
mod exposure;
pub(crate) mod figures;
pub(crate) mod fix;
pub(crate) mod guide;
pub(crate) mod head;
mod histograms;
mod interrupts;
mod ipis;
mod kernel_log;
mod late_causes;
mod late_time;
mod loaded;
mod machine;
mod matrix;
mod noise;
mod rates;
mod reading;
pub(crate) mod records;
mod shielding;
mod sources;
pub(crate) mod spikes;
mod summary;
mod tasks;
mod traces;
pub(crate) mod triggers;
pub(crate) mod warnings;

pub use machine::plan_text;
pub use warnings::codes as warning_codes;

use crate::section::Section;
use whylate_core::result::{CopyResult, MeasureResult, RunResult};

/// The sections of a run's report, in this order.
const RUN: &[fn(&RunResult) -> Vec<Section>] = &[
    fix::of_run,
    summary::of_run,
    answers::of_plan,
    late_causes::of_run,
    late_time::of_run,
    matrix::of_run,
    noise::of_run,
    chains::of_run,
    tasks::of_run,
    audit::of_run,
    triggers::of_run,
    answers::of_comparisons,
    comparisons::of_run,
    spikes::of_run,
    traces::of_run,
    causes::of_run,
    late_causes::every,
    guide::of_run,
    sources::of_run,
    figures::of_run,
    dispatch::of_run,
    reading::of_run,
    shielding::of_run,
    ipis::of_run,
    interrupts::of_run,
    loaded::of_run,
    copy::of_run,
    rates::of_run,
    exposure::of_run,
    records::of_run,
    kernel_log::of_run,
    warnings::of_run,
    machine::of_run,
];

/// The sections of one measurement's report, in this order.
const MEASURE: &[fn(&MeasureResult) -> Vec<Section>] = &[
    figures::of_measure,
    histograms::of_measure,
    dispatch::of_measure,
    spikes::of_measure,
    causes::of_measure,
    guide::of_measure,
    sources::of_measure,
    ipis::of_measure,
    warnings::of_measure,
];

pub(crate) fn of_run(run: &RunResult) -> Vec<Section> {
    RUN.iter().flat_map(|section| section(run)).collect()
}

/// The sections of one measurement.
pub(crate) fn of_measure(measure: &MeasureResult) -> Vec<Section> {
    MEASURE.iter().flat_map(|section| section(measure)).collect()
}

/// The sections of a table of copies.
pub(crate) fn of_copy(copy: &CopyResult) -> Vec<Section> {
    copy::of_table(&copy.table)
}
