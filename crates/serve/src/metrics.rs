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
use whylate_core::result::{ProbeResult, Quantiles, RunResult, RunState, RunSummary};
use whylate_core::text;

/// The most plans and machines whose newest run is shown.
const RUNS_MAX: usize = 20;
/// The metrics in order, all of them gauges, each with what it means.
const METRICS: [(&str, &str); 7] = [
    (
        "whylate_latency_seconds",
        "Quantiles of the newest complete run of a plan; each is from the CPU with the largest value.",
    ),
    ("whylate_run_verdict", "Always 1; the label `verdict` has the verdict of the newest complete run."),
    ("whylate_run_started_timestamp_seconds", "When the newest complete run began."),
    ("whylate_run_limit_seconds", "The limit of the newest complete run."),
    (
        "whylate_run_over_limit_events",
        "Latencies above the limit in the newest complete run; those less than 1 s apart count as one event.",
    ),
    (
        "whylate_newest_run_state",
        "Always 1; the labels have state and verdict of the newest run, complete or not.",
    ),
    ("whylate_newest_run_started_timestamp_seconds", "When the newest run began, complete or not."),
];

/// Reads one quantile.
type Figure = fn(&Quantiles) -> u64;

/// The newest complete run of each plan on each machine, and the state of the newest of all.
pub(crate) async fn metrics(State(site): State<Arc<Site>>) -> Result<Response, Refusal> {
    let runs = site.clone();
    let newest = crate::pages::blocking(move || {
        let mut all = runs.runs.all();
        let states = states(&all);
        all.retain(|run| run.state == RunState::Complete);
        let all = newest_of_each(&all).into_iter().take(RUNS_MAX);
        Ok((all.map(|run| name_of(Path::new(&run.path))).collect::<Vec<_>>(), states))
    });
    let (newest, states) = newest.await?;
    let mut samples = states;
    for run in newest {
        let figures = page_text(&site, "metrics", vec![run], |site, names| {
            names.iter().map(|name| Ok(figures(&site.source.run(&site.open(name)?)?))).collect()
        });
        // One run that cannot be read does not suppress the figures of the others.
        if let Ok(figures) = figures.await {
            samples.push_str(&figures);
        }
    }
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4")], by_metric(&samples)).into_response())
}

/// The samples of each metric behind its head, as the text format wants them.
fn by_metric(samples: &str) -> String {
    let its = |(name, help): (&str, &str)| {
        let own = samples.lines().filter(|line| line.split('{').next() == Some(name));
        let own: String = own.map(|line| format!("{line}\n")).collect();
        format!("# HELP {name} {help}\n# TYPE {name} gauge\n{own}")
    };
    METRICS.into_iter().map(its).collect()
}

/// The first run of each plan on each machine.
fn newest_of_each(runs: &[RunSummary]) -> Vec<&RunSummary> {
    let mut seen = BTreeSet::new();
    runs.iter().filter(|run| seen.insert((&run.plan, &run.host))).collect()
}

/// A board whose runs no longer complete has no newer complete run, which could show it. `runs` are the newest first.
fn states(runs: &[RunSummary]) -> String {
    let mut text = String::new();
    for run in newest_of_each(runs) {
        let own = own(&run.plan, &run.host);
        let was_killed = run.state == RunState::Running && !run.running;
        let state = if was_killed { "killed" } else { run.state.name() };
        let verdict = run.verdict.map(|verdict| format!(",verdict=\"{}\"", verdict.name()));
        let verdict = verdict.unwrap_or_default();
        // Writing to a string cannot fail.
        _ = writeln!(text, "whylate_newest_run_state{{{own},state=\"{state}\"{verdict}}} 1");
        if let Some(began) = utc_seconds(&run.started_at) {
            _ = writeln!(text, "whylate_newest_run_started_timestamp_seconds{{{own}}} {began}");
        }
    }
    text
}

/// The labels of all metrics of a run.
fn own(plan: &str, host: &str) -> String {
    format!("plan=\"{}\",host=\"{}\"", escaped(plan), escaped(host))
}

fn figures(run: &RunResult) -> String {
    let mut text = String::new();
    let own = own(&run.plan.name, &run.facts.host);
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
    use super::{METRICS, by_metric, escaped, states};
    use whylate_core::result::{RunState, RunSummary, Verdict};

    #[test]
    fn a_newer_run_that_did_not_complete_is_shown() {
        let run = |day: u32, state: RunState, running: bool, verdict: Option<Verdict>| RunSummary {
            path: format!("/runs/{day}"),
            plan: "nightly".to_owned(),
            started_at: format!("2026-11-0{day}T00:00:00Z"),
            state,
            running,
            verdict,
            figures: None,
            host: "a".to_owned(),
            kernel: String::new(),
            tags: Vec::new(),
            note: None,
        };
        let complete = run(1, RunState::Complete, false, Some(Verdict::Pass));
        let state_of = |newest: RunSummary| {
            let text = states(&[newest, complete.clone()]);
            let mut lines = text.lines().map(str::to_owned);
            assert_eq!(text.lines().count(), 2, "{text}");
            lines.next().unwrap_or_default()
        };
        let own = "whylate_newest_run_state{plan=\"nightly\",host=\"a\"";
        let stopped = run(2, RunState::Interrupted, false, Some(Verdict::Incomplete));
        assert_eq!(state_of(stopped), format!("{own},state=\"interrupted\",verdict=\"incomplete\"}} 1"));
        let killed = run(2, RunState::Running, false, None);
        assert_eq!(state_of(killed), format!("{own},state=\"killed\"}} 1"));
        let running = run(2, RunState::Running, true, None);
        assert_eq!(state_of(running), format!("{own},state=\"running\"}} 1"));
        let began = states(&[complete]);
        assert!(
            began.contains("whylate_newest_run_started_timestamp_seconds{plan=\"nightly\",host=\"a\"} 1793")
        );
    }

    #[test]
    fn the_samples_of_a_metric_are_together() {
        let runs = |plan: &str| {
            let [(first, _), (second, _), ..] = METRICS;
            format!("{first}{{plan=\"{plan}\"}} 1\n{second}{{plan=\"{plan}\"}} 2\n")
        };
        let text = by_metric(&(runs("a") + &runs("b")));
        let names =
            text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('{').next().unwrap());
        let [(first, _), (second, _), ..] = METRICS;
        assert_eq!(names.collect::<Vec<_>>(), [first, first, second, second]);
        assert_eq!(text.matches("# TYPE").count(), METRICS.len());
    }

    #[test]
    fn labels_cannot_end_themselves() {
        assert_eq!(escaped("a\"} 1\nb\\"), "a\\\"} 1\\nb\\\\");
    }
}
