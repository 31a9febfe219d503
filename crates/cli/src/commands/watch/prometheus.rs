//! The figures of a watch as the text that Prometheus reads.

use super::figures::{Attributes, Points, Unit, figures};
use std::fmt::Write as _;
use whylate_runner::{LatencyTotals, TaskLine};
use whylate_serve::escaped;

/// The page.
pub(super) fn page(tasks: &[TaskLine]) -> String {
    let mut text = String::new();
    for figure in figures(tasks) {
        let unit = if figure.unit == Unit::Seconds { "_seconds" } else { "" };
        let (kind, end) = match figure.points {
            Points::Histogram(_) => ("histogram", ""),
            Points::Counter(_) => ("counter", "_total"),
            Points::Gauge(_) => ("gauge", ""),
        };
        let name = format!("{}{unit}{end}", figure.name.replace('.', "_"));
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
        let page = page(&[example()]);
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
}
