//! The figures of a running watch for Prometheus: histograms of each thread, and what took its time.
//!
//! Series are bounded: at most 64 threads have their own series, with at most 32 actors each.

use std::fmt::Write as _;
use whylate_runner::{LatencyTotals, TaskLine};
use whylate_serve::escaped;

const NANOSECONDS: f64 = 1e9;

/// The page in the text format of Prometheus.
pub(super) fn page(tasks: &[TaskLine]) -> String {
    let mut text = String::new();
    for (nth, name, help) in [
        (0, "whylate_task_response_seconds", "Time from the timer expiry or wake-up to the next sleep."),
        (1, "whylate_task_wakeup_seconds", "Time from the timer expiry or wake-up until the thread runs."),
    ] {
        head(&mut text, name, help, "histogram");
        for task in tasks {
            histogram(&mut text, name, &of(task), &task.totals.latencies[nth]);
        }
    }
    let name = "whylate_task_late_total";
    head(&mut text, name, "Activations above the deadline.", "counter");
    for task in tasks {
        put(&mut text, &format!("{name}{{{}}} {:e}", of(task), task.missed as f64));
    }
    let name = "whylate_task_response_max_seconds";
    head(&mut text, name, "The largest response since the watch began.", "gauge");
    for task in tasks {
        let largest = task.response.map_or(0.0, |it| it.max_ns as f64 / NANOSECONDS);
        put(&mut text, &format!("{name}{{{}}} {largest:e}", of(task)));
    }
    let name = "whylate_task_lost_seconds_total";
    head(
        &mut text,
        name,
        "Time that the labelled actor took from the thread while the thread had work to do.",
        "counter",
    );
    thieves(&mut text, name, tasks, |took_ns, _| took_ns as f64 / NANOSECONDS);
    let name = "whylate_task_losses_total";
    head(&mut text, name, "How often the labelled actor took time from the thread.", "counter");
    thieves(&mut text, name, tasks, |_, number| number as f64);
    text
}

fn put(text: &mut String, line: &str) {
    // Writing to a string cannot fail.
    _ = writeln!(text, "{line}");
}

fn head(text: &mut String, name: &str, help: &str, kind: &str) {
    put(text, &format!("# HELP {name} {help}\n# TYPE {name} {kind}"));
}

fn of(task: &TaskLine) -> String {
    format!("task=\"{}\"", escaped(&task.name))
}

fn histogram(text: &mut String, name: &str, labels: &str, totals: &LatencyTotals) {
    for (edge_ns, count) in &totals.buckets {
        put(text, &format!("{name}_bucket{{{labels},le=\"{:e}\"}} {count}", *edge_ns as f64 / NANOSECONDS));
    }
    put(text, &format!("{name}_bucket{{{labels},le=\"+Inf\"}} {}", totals.count));
    put(text, &format!("{name}_sum{{{labels}}} {:e}", totals.sum_ns as f64 / NANOSECONDS));
    put(text, &format!("{name}_count{{{labels}}} {}", totals.count));
}

fn thieves(text: &mut String, name: &str, tasks: &[TaskLine], value: fn(u64, u64) -> f64) {
    for task in tasks {
        for (kind, actor, took_ns, number) in &task.totals.thieves {
            let actor = escaped(actor.as_deref().unwrap_or("other"));
            let labels = format!("{},cause=\"{}\",actor=\"{actor}\"", of(task), kind.name());
            put(text, &format!("{name}{{{labels}}} {:e}", value(*took_ns, *number)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::result::CauseKind;

    #[test]
    fn a_thread_has_a_histogram_its_late_activations_and_its_thieves() {
        let totals = LatencyTotals { buckets: vec![(1_000, 3), (2_000, 5)], count: 6, sum_ns: 4_500_000_000 };
        let thief = (CauseKind::Thread, Some("irq/31-\"eth0\"".to_owned()), 2_000_000, 4);
        let totals = whylate_runner::TaskTotals {
            latencies: [totals, LatencyTotals::default()],
            thieves: vec![thief],
        };
        let task = TaskLine { name: "audio".to_owned(), missed: 2, totals, ..TaskLine::default() };
        let page = page(&[task]);
        for line in [
            "# TYPE whylate_task_response_seconds histogram",
            "whylate_task_response_seconds_bucket{task=\"audio\",le=\"2e-6\"} 5",
            "whylate_task_response_seconds_bucket{task=\"audio\",le=\"+Inf\"} 6",
            "whylate_task_response_seconds_sum{task=\"audio\"} 4.5e0",
            "whylate_task_wakeup_seconds_count{task=\"audio\"} 0",
            "whylate_task_late_total{task=\"audio\"} 2e0",
            "# TYPE whylate_task_response_max_seconds gauge",
            "whylate_task_lost_seconds_total{task=\"audio\",cause=\"thread\",actor=\"irq/31-\\\"eth0\\\"\"} 2e-3",
            "whylate_task_losses_total{task=\"audio\",cause=\"thread\",actor=\"irq/31-\\\"eth0\\\"\"} 4e0",
        ] {
            assert!(page.lines().any(|it| it == line), "{line} is not in:\n{page}");
        }
    }
}
