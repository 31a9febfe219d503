//! The reports: the head and sections of each.

mod check;
mod compare;
pub(crate) mod cpus;
pub(crate) mod explain;
mod farm;
pub(crate) mod finding;
mod fix;
pub(crate) mod guide;
mod histograms;
mod log;
mod recording;
mod runs;
mod top;
mod tracing;

pub use check::check;
pub use compare::compare;
pub use cpus::cpus;
pub use explain::explain;
pub use farm::{FarmAnswer, FarmGroups, board, farm_compare, farm_groups, notice, wall};
pub use fix::fix;
pub use guide::{guide, guide_text};
pub use histograms::histograms;
pub use recording::recording;
pub use runs::{begun, runs, series};
pub use top::{TopRate, top};
pub use tracing::tracing;

use crate::ReportError;
use crate::charts;
use crate::section::{Block, Item, Page, Section};
use crate::sections;
use crate::words;
use whylate_core::result::{CopyResult, MeasureResult, ProbeResult, RunResult};
use whylate_core::{Facts, Warning, WarningCode, figure};

/// The report of a run.
pub fn run(run: &RunResult) -> Result<Page, ReportError> {
    let page = sections::head::page(run);
    if !run.cells.iter().flat_map(|cell| &cell.probes).any(ProbeResult::has_data) {
        return Err(ReportError::NoSamples { reasons: page.failures });
    }
    Ok(Page { sections: sections::of_run(run), ..page })
}

/// The same with its charts, which only HTML shows.
pub fn run_with_charts(run: &RunResult) -> Result<Page, ReportError> {
    let mut page = self::run(run)?;
    charts::add(&mut page.sections, run);
    Ok(page)
}

/// The report of `whylate measure`: one line per CPU, a histogram of each, and causes.
pub fn measure(measure: &MeasureResult) -> Result<Page, ReportError> {
    let nothing = measure.warnings.iter().find(|it| it.code == WarningCode::NothingSeen);
    if let Some(nothing) = nothing.filter(|_| measure.probe.cpus.is_empty()) {
        let warnings: Vec<Warning> = measure.warnings.iter().filter(|it| *it != nothing).cloned().collect();
        return Ok(Page {
            origin: measure.tool.clone().unwrap_or_default(),
            title: nothing.text.clone(),
            sections: sections::warnings::section(&warnings).into_iter().collect(),
            ..Page::default()
        });
    }
    require_samples(&measure.probe, &measure.warnings)?;
    let cpus = measure.probe.cpus.iter().map(|cpu| cpu.cpu).collect();
    Ok(Page {
        origin: measure.tool.clone().unwrap_or_else(|| format!("whylate measure {}", measure.probe.probe)),
        about: vec![measure.tool.iter().cloned().chain(words::machine(&measure.facts, &cpus)).collect()],
        sections: sections::of_measure(measure).into_iter().chain(stopped(measure)).collect(),
        ..Page::default()
    })
}

/// The report of a measurement in a file of that name, with its chart, which only HTML shows.
pub fn measure_with_chart(measure: &MeasureResult, file: &str) -> Result<Page, ReportError> {
    let mut page = self::measure(measure)?;
    charts::add_to_measure(&mut page.sections, measure);
    let what = words::probe_meaning(&measure.probe.probe);
    let what = if what.is_empty() { measure.probe.probe.as_str() } else { what };
    // A title of its own stays.
    let title = Some(page.title).filter(|title| !title.is_empty()).unwrap_or_else(|| what.to_owned());
    Ok(Page { title: format!("`{}`: {title}", file.replace('`', "'")), ..page })
}

/// The sample at which the break ended a measurement.
fn stopped(measure: &MeasureResult) -> Option<Section> {
    let last = measure.probe.spikes.iter().filter(|_| measure.broke).max_by_key(|spike| spike.latency_ns)?;
    let line = format!(
        "Stopped by --break: {} on CPU {}, sample {}.",
        figure::nanoseconds(last.latency_ns),
        last.cpu,
        figure::count(last.sample)
    );
    Some(Section::new("stopped", "").with(Block::note(line)))
}

/// The report of `whylate copy`: each pair of memory types with its methods, the frame budget, and the properties of
/// the memory.
pub fn copy(copy: &CopyResult) -> Page {
    let cpus = [copy.table.cpu].into_iter().collect();
    Page {
        origin: "whylate copy".to_owned(),
        title: if copy.table.rows.is_empty() {
            String::new()
        } else {
            "How fast memory is copied".to_owned()
        },
        about: vec![words::machine(&copy.facts, &cpus)],
        sections: sections::of_copy(copy),
        ..Page::default()
    }
}

/// Warnings alone, without their remedies: shown before a measurement.
pub fn warnings(warnings: &[Warning]) -> Page {
    let line = |warning: &Warning| Item::from(format!("{}: {}", warning.code, warning.text));
    let lines: Vec<Item> = warnings.iter().map(line).collect();
    Page { sections: vec![Section::new("warnings", "").with(lines)], ..Page::default() }
}

fn require_samples(probe: &ProbeResult, warnings: &[Warning]) -> Result<(), ReportError> {
    if probe.has_data() {
        return Ok(());
    }
    Err(ReportError::NoSamples { reasons: warnings.iter().map(|warning| warning.text.clone()).collect() })
}

/// Host, kernel and processor, as far as they are known.
fn host(facts: &Facts) -> Vec<String> {
    let parts = [&facts.host, &facts.kernel.release, &facts.processor.model];
    parts.into_iter().filter(|part| !part.is_empty()).cloned().collect()
}
