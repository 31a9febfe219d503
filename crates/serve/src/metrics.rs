//! The newest results for Prometheus.

use crate::Site;
use crate::error::Refusal;
use crate::pages::page_text;
use crate::runs::name_of;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use whylate_core::moment::utc_seconds;
use whylate_core::quantity::CORRECTED;
use whylate_core::result::{ProbeResult, Quantiles, RunResult, RunState};
use whylate_core::text;

/// The most plans and machines whose newest run is shown.
const RUNS_MAX: usize = 20;
const HEAD: &str = "\
# HELP whylate_latency_seconds Quantiles of the newest complete run of a plan; each is from the CPU with the largest value.
# TYPE whylate_latency_seconds gauge
# HELP whylate_run_verdict Always 1; the label `verdict` has the verdict of the run.
# TYPE whylate_run_verdict gauge
# HELP whylate_run_started_timestamp_seconds When the run began.
# TYPE whylate_run_started_timestamp_seconds gauge
# HELP whylate_run_limit_seconds The limit of the run.
# TYPE whylate_run_limit_seconds gauge
# HELP whylate_run_over_limit_events Latencies above the limit; latencies less than 1 s apart count as one event.
# TYPE whylate_run_over_limit_events gauge
";

/// Reads one quantile.
type Figure = fn(&Quantiles) -> u64;

/// The newest complete run of each plan on each machine.
pub(crate) async fn metrics(State(site): State<Arc<Site>>) -> Result<Response, Refusal> {
    let runs = site.clone();
    let newest = crate::pages::blocking(move || {
        let mut seen = BTreeSet::new();
        let mut all = runs.runs.all();
        all.retain(|run| {
            run.state == RunState::Complete && seen.insert((run.plan.clone(), run.host.clone()))
        });
        all.truncate(RUNS_MAX);
        Ok(all.into_iter().map(|run| name_of(Path::new(&run.path))).collect::<Vec<_>>())
    });
    let mut text = HEAD.to_owned();
    for run in newest.await? {
        let figures = page_text(&site, "metrics", vec![run], |site, names| {
            names.iter().map(|name| Ok(figures(&site.source.run(&site.open(name)?)?))).collect()
        });
        // One run that cannot be read does not suppress the figures of the others.
        if let Ok(figures) = figures.await {
            text.push_str(&figures);
        }
    }
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}

fn figures(run: &RunResult) -> String {
    let mut text = String::new();
    let own = format!("plan=\"{}\",host=\"{}\"", escaped(&run.plan.name), escaped(&run.facts.host));
    let verdict = run.verdict.name();
    // Writing to a string cannot fail.
    _ = writeln!(text, "whylate_run_verdict{{{own},verdict=\"{verdict}\"}} 1");
    let seconds = |ns: u64| ns as f64 / 1e9;
    let figures = [
        ("started_timestamp_seconds", utc_seconds(&run.started_at).map(|it| it as f64)),
        ("limit_seconds", run.plan.limit.map(|limit| seconds(limit.0))),
        ("over_limit_events", run.exposure.map(|exposure| exposure.events as f64)),
    ];
    for (name, value) in figures.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        _ = writeln!(text, "whylate_run_{name}{{{own}}} {value}");
    }
    for cell in &run.cells {
        for probe in &cell.probes {
            for (quantile, value_ns) in worst(probe) {
                let seconds = seconds(value_ns);
                let (cell, probe) = (escaped(&cell.name), escaped(&probe.probe));
                _ = writeln!(
                    text,
                    "whylate_latency_seconds{{{own},cell=\"{cell}\",probe=\"{probe}\",quantile=\"{quantile}\"}} {seconds:e}"
                );
            }
        }
    }
    text
}

/// The largest of each quantile over the CPUs.
fn worst(probe: &ProbeResult) -> Vec<(&'static str, u64)> {
    let quantiles = [
        ("0.5", (|it| it.p50_ns) as Figure),
        ("0.99", |it| it.p99_ns),
        ("0.999", |it| it.p999_ns),
        ("0.9999", |it| it.p9999_ns),
        ("1", |it| it.max_ns),
    ];
    let largest = |of: Figure| {
        probe
            .cpus
            .iter()
            .filter_map(|cpu| cpu.quantities.of(CORRECTED).or(cpu.quantiles.as_ref()))
            .map(of)
            .max()
    };
    quantiles.into_iter().filter_map(|(name, of)| Some((name, largest(of)?))).collect()
}

/// The value of a label, escaped so that it cannot end itself.
pub fn escaped(text: &str) -> String {
    text::lines(text).replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn labels_cannot_end_themselves() {
        assert_eq!(escaped("a\"} 1\nb\\"), "a\\\"} 1\\nb\\\\");
    }
}
