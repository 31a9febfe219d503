//! Reports as text for a terminal: of a run, of one measurement, of the CPUs, and of the findings of a check.
//!
//! Never wider than [`Style::width`] as long as that is at least 60 columns: less important columns are left out,
//! and the report says which.

mod check;
pub(crate) mod columns;
mod cpus;
mod histogram;
mod histograms;
pub(crate) mod page;
mod tracing;

use crate::table::{measure_group, run_groups};
use crate::{ReportError, causes, dispatch, has_samples, require_run_samples};
use crate::{latency, traces, words};
pub use check::check;
pub use cpus::cpus;
pub use histograms::histograms;
use page::{Colour, Page};
pub use tracing::tracing;
use whylate_core::Warning;
use whylate_core::result::{MeasureResult, Outcome, RunResult, Verdict};

/// How the text shall look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether to use ANSI colours.
    pub color: bool,
    /// Columns of the terminal.
    pub width: usize,
}

impl Default for Style {
    /// No colours, 120 columns: for a file.
    fn default() -> Self {
        Self { color: false, width: 120 }
    }
}

/// The report of a run.
///
/// # Errors
/// [`ReportError::NoSamples`] when no probe has a sample.
pub fn run(run: &RunResult, style: Style) -> Result<String, ReportError> {
    require_run_samples(run)?;
    let mut page = Page::new(style);
    page.title(&run.plan.name, run.plan.question.as_deref());
    page.dim_list(&words::run_machine(run));
    page.dim(&format!("{}, started {}", words::extent(run), run.started_at));
    page.blank();

    columns::push_groups(&mut page, &run_groups(run), style);
    for rows in dispatch::of_run(run) {
        page.blank();
        rows.iter().for_each(|line| page.line(line, ""));
    }

    push_findings(&mut page, run);
    push_spikes_and_noise(&mut page, run);
    push_traces(&mut page, run);
    page.warnings(&run.warnings);
    push_verdict(&mut page, run);
    Ok(page.finish())
}

fn push_findings(page: &mut Page, run: &RunResult) {
    let findings = words::findings(run);
    if findings.is_empty() {
        return;
    }
    page.heading("Comparisons");
    for finding in findings {
        let colour = match finding.outcome {
            Outcome::Worse => Some(Colour::Red),
            Outcome::Better => Some(Colour::Green),
            Outcome::NoEffect | Outcome::TooFewRepeats => None,
        };
        page.item(&finding.text, colour);
    }
}

fn push_spikes_and_noise(page: &mut Page, run: &RunResult) {
    let spikes = words::largest_spikes(run);
    let dropped = words::dropped_spikes(run.cells.iter().flat_map(|cell| &cell.probes));
    if !spikes.is_empty() || dropped.is_some() {
        page.heading("Spikes");
        for line in spikes.iter().chain(&dropped) {
            page.item(line, None);
        }
    }
    push_causes(
        page,
        &sentences(&causes::of_run(run)),
        &causes::events_of_run(run),
        &causes::Ipis::of_cells(&run.cells).sentences(),
    );
    let late = latency::of_run(run);
    if !late.is_empty() {
        page.heading("Largest latencies that the kernel counted");
        late.iter().for_each(|line| page.item(line, None));
    }
    let floors = words::noise_floors(run);
    if !floors.is_empty() {
        page.heading("Noise floor");
        for line in floors {
            page.item(&line, None);
        }
    }
}

fn push_traces(page: &mut Page, run: &RunResult) {
    let lines = traces::lines(run);
    if !lines.is_empty() {
        page.heading("Traces");
        lines.iter().for_each(|line| page.item(line, None));
    }
}

fn sentences(first: &[causes::FirstCause]) -> Vec<String> {
    first.iter().map(causes::FirstCause::sentence).collect()
}

/// First causes, events of several CPUs, interrupts from other CPUs: what of it there is.
fn push_causes(page: &mut Page, first: &[String], events: &[String], ipis: &[String]) {
    let parts = [
        ("Causes of the largest spikes", first),
        ("Late on several CPUs at once", events),
        ("Interrupts from other CPUs", ipis),
    ];
    for (heading, lines) in parts.into_iter().filter(|(_, lines)| !lines.is_empty()) {
        page.heading(heading);
        lines.iter().for_each(|line| page.item(line, None));
    }
}

fn push_verdict(page: &mut Page, run: &RunResult) {
    page.blank();
    for failure in words::failures(run) {
        page.coloured(&failure, Colour::Yellow);
    }
    let colour = match run.verdict {
        Verdict::Pass => Colour::Green,
        Verdict::Fail => Colour::Red,
        Verdict::NoLimit => Colour::Plain,
        Verdict::Incomplete => Colour::Yellow,
    };
    page.verdict(words::verdict(run.verdict), &run.verdict_reason, colour);
}

/// Warnings alone, without their remedies: what stands before a measurement.
pub fn warnings(warnings: &[Warning], style: Style) -> String {
    let mut page = Page::new(style);
    for warning in warnings {
        page.item(&format!("{}: {}", warning.code, warning.text), None);
    }
    page.finish()
}

/// The report of `whylate measure`: one line per CPU, and a histogram of each.
///
/// # Errors
/// [`ReportError::NoSamples`] when no CPU has a sample.
pub fn measure(measure: &MeasureResult, style: Style) -> Result<String, ReportError> {
    if !has_samples(&measure.probe) {
        let reasons = measure.warnings.iter().map(|warning| warning.text.clone()).collect();
        return Err(ReportError::NoSamples { reasons });
    }
    let mut page = Page::new(style);
    let probe = &measure.probe;
    let cpus = probe.cpus.iter().map(|cpu| cpu.cpu).collect();
    page.dim_list(&words::machine(&measure.facts, &cpus));
    page.blank();
    columns::push_groups(&mut page, &[measure_group(probe)], style);
    page.blank();
    histogram::push(&mut page, &probe.cpus, style.width);
    for rows in dispatch::of_probe(probe) {
        page.blank();
        rows.iter().for_each(|line| page.line(line, ""));
    }
    if measure.broke {
        page.blank();
        page.coloured("a sample was above the break threshold: the measurement ended there", Colour::Red);
    }
    push_measure_spike(&mut page, measure);
    let spikes = &probe.spikes;
    push_causes(
        &mut page,
        &sentences(&causes::first_causes("", spikes)),
        &causes::events("", spikes),
        &causes::Ipis::of_records(&measure.ipis).sentences(),
    );
    page.warnings(&measure.warnings);
    Ok(page.finish())
}

fn push_measure_spike(page: &mut Page, measure: &MeasureResult) {
    let Some(spike) = measure.probe.spikes.first() else { return };
    page.blank();
    page.item(
        &format!(
            "largest spike: {} on CPU {}: {}",
            crate::figure::nanoseconds(spike.latency_ns),
            spike.cpu,
            words::cause(&spike.cause)
        ),
        None,
    );
    if let Some(line) = words::dropped_spikes(std::iter::once(&measure.probe)) {
        page.item(&line, None);
    }
}
