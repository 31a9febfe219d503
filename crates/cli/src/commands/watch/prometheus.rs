//! The figures of a watch as Prometheus reads them: as text, or in its binary form where it asks for that.

use super::figures::{Attributes, Figure, Points, Unit, figures};
use super::protobuf;
use std::fmt::Write as _;
use whylate_runner::{LatencyTotals, TaskLine};
use whylate_serve::{Typed, escaped};

const TEXT: &str = "text/plain; version=0.0.4";
const BINARY: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// The page for a reader that accepts these content types.
pub(super) fn page(tasks: &[TaskLine], accepted: &str) -> Typed {
    if prefers_binary(accepted) {
        let family = |figure: Figure<'_>| protobuf::family(&metric_name(&figure), &figure);
        return (BINARY, figures(tasks).into_iter().flat_map(family).collect());
    }
    (TEXT, text(tasks).into_bytes())
}

/// Whether a reader wants the binary form as much as any text, by the weights of its `Accept` header.
fn prefers_binary(accepted: &str) -> bool {
    let (mut binary, mut others) = (0.0, 0.0);
    for range in accepted.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let parameters: Vec<&str> = parts.collect();
        let weight =
            parameters.iter().find_map(|it| it.strip_prefix("q=")).map_or(Some(1.0), |it| it.parse().ok());
        let weight: f64 = weight.unwrap_or(0.0);
        let is_ours = ["proto=io.prometheus.client.MetricFamily", "encoding=delimited"]
            .iter()
            .all(|it| parameters.contains(it));
        match kind {
            "application/vnd.google.protobuf" if is_ours => binary = weight,
            "text/plain" | "application/openmetrics-text" => others = weight.max(others),
            _ => {}
        }
    }
    binary > 0.0 && binary >= others
}

/// With the unit and the end that Prometheus has them.
fn metric_name(figure: &Figure<'_>) -> String {
    let unit = if figure.unit == Unit::Seconds { "_seconds" } else { "" };
    let end = if matches!(figure.points, Points::Counter(_)) { "_total" } else { "" };
    format!("{}{unit}{end}", figure.name.replace('.', "_"))
}

fn text(tasks: &[TaskLine]) -> String {
    let mut text = String::new();
    for figure in figures(tasks) {
        let kind = match figure.points {
            Points::Histogram(_) => "histogram",
            Points::Counter(_) => "counter",
            Points::Gauge(_) => "gauge",
        };
        let name = metric_name(&figure);
        put(&mut text, &format!("# HELP {name} {}\n# TYPE {name} {kind}", figure.help));
        match figure.points {
            Points::Histogram(points) => {
                for (attributes, totals) in points {
                    histogram(&mut text, &name, &labels(&attributes), totals);
                }
            }
            Points::Counter(points) | Points::Gauge(points) => {
                for (attributes, value) in points {
                    put(&mut text, &format!("{name}{{{}}} {value:e}", labels(&attributes)));
                }
            }
        }
    }
    text
}

fn put(text: &mut String, line: &str) {
    // Writing to a string cannot fail.
    _ = writeln!(text, "{line}");
}

fn labels(attributes: &Attributes<'_>) -> String {
    let each = attributes.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    each.collect::<Vec<_>>().join(",")
}

fn histogram(text: &mut String, name: &str, labels: &str, totals: &LatencyTotals) {
    for (edge_ns, count) in &totals.buckets {
        put(text, &format!("{name}_bucket{{{labels},le=\"{:e}\"}} {count}", *edge_ns as f64 / 1e9));
    }
    put(text, &format!("{name}_bucket{{{labels},le=\"+Inf\"}} {}", totals.count));
    put(text, &format!("{name}_sum{{{labels}}} {:e}", totals.sum_ns as f64 / 1e9));
    put(text, &format!("{name}_count{{{labels}}} {}", totals.count));
}

#[cfg(test)]
mod tests {
    use super::super::figures::example;
    use super::*;

    #[test]
    fn a_thread_has_a_histogram_its_late_activations_and_its_thieves() {
        let page = text(&[example()]);
        for line in [
            "# TYPE whylate_task_response_seconds histogram",
            "whylate_task_response_seconds_bucket{task=\"audio\",le=\"2e-6\"} 5",
            "whylate_task_response_seconds_bucket{task=\"audio\",le=\"+Inf\"} 6",
            "whylate_task_response_seconds_sum{task=\"audio\"} 4.5e0",
            "whylate_task_late_total{task=\"audio\"} 2e0",
            "# TYPE whylate_task_response_max_seconds gauge",
            "whylate_task_lost_seconds_total{task=\"audio\",cause=\"thread\",actor=\"irq/31-\\\"eth0\\\"\"} 2e-3",
            "whylate_task_losses_total{task=\"audio\",cause=\"thread\",actor=\"irq/31-\\\"eth0\\\"\"} 4e0",
        ] {
            assert!(page.lines().any(|it| it == line), "{line} is not in:\n{page}");
        }
    }

    #[test]
    fn the_binary_form_is_for_readers_that_ask_for_it() {
        let binary =
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        for (accepted, is_binary) in [
            (
                format!(
                    "{binary},application/openmetrics-text;version=1.0.0;q=0.8,text/plain;q=0.5,*/*;q=0.1"
                ),
                true,
            ),
            (format!("{binary};q=0.6, text/plain;version=0.0.4;q=0.3"), true),
            (format!("application/openmetrics-text;version=1.0.0;q=0.6,{binary};q=0.3"), false),
            (format!("{binary};q=0"), false),
            ("application/vnd.google.protobuf;encoding=text".to_owned(), false),
            ("text/plain".to_owned(), false),
            ("*/*".to_owned(), false),
            (String::new(), false),
        ] {
            let (kind, body) = page(&[example()], &accepted);
            assert_eq!(kind == BINARY, is_binary, "{accepted}");
            assert_eq!(body.starts_with(b"# HELP"), !is_binary, "{accepted}");
        }
    }
}
