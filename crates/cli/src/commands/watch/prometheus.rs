//! A watch under way, for Prometheus: histograms of each thread, and who took its time.
//!
//! Labels are bounded: at most 64 threads have series of their own, and 32 thieves of each of them.

use std::fmt::Write as _;
use whylate_runner::TaskLine;
use whylate_serve::escaped;

const HISTOGRAMS: [(&str, &str); 2] = [
    ("whylate_task_response_seconds", "From being due or woken to the next sleep."),
    ("whylate_task_wakeup_seconds", "From being due or woken to running."),
];

/// The page.
pub(super) fn page(tasks: &[TaskLine]) -> String {
    let mut text = String::new();
    for (nth, (name, help)) in HISTOGRAMS.into_iter().enumerate() {
        head(&mut text, name, help, "histogram");
        for task in tasks {
            histogram(&mut text, name, task, nth);
        }
    }
    let late = "whylate_task_late_total";
    head(&mut text, late, "Activations above the deadline.", "counter");
    let worst = "whylate_task_response_max_seconds";
    for task in tasks {
        put(&mut text, &format!("{late}{{task=\"{}\"}} {}", escaped(&task.name), task.missed));
    }
    head(&mut text, worst, "The largest response since the begin.", "gauge");
    for task in tasks {
        let seconds = task.response.map_or(0.0, |it| it.max_ns as f64 / 1e9);
        put(&mut text, &format!("{worst}{{task=\"{}\"}} {seconds:e}", escaped(&task.name)));
    }
    let [lost, losses] = ["whylate_task_lost_seconds_total", "whylate_task_losses_total"];
    head(
        &mut text,
        lost,
        "Time that something took from the thread while it had something to do.",
        "counter",
    );
    for (labels, took_ns, _) in tasks.iter().flat_map(thieves) {
        put(&mut text, &format!("{lost}{{{labels}}} {:e}", took_ns as f64 / 1e9));
    }
    head(&mut text, losses, "How often something did so.", "counter");
    for (labels, _, number) in tasks.iter().flat_map(thieves) {
        put(&mut text, &format!("{losses}{{{labels}}} {number}"));
    }
    text
}

fn put(text: &mut String, line: &str) {
    // Writing to a string cannot fail.
    _ = writeln!(text, "{line}");
}

fn head(text: &mut String, name: &str, help: &str, kind: &str) {
    put(text, &format!("# HELP {name} {help}\n# TYPE {name} {kind}"));
}

fn histogram(text: &mut String, name: &str, task: &TaskLine, nth: usize) {
    let (label, totals) = (escaped(&task.name), &task.totals.latencies[nth]);
    for (edge_ns, count) in &totals.buckets {
        put(text, &format!("{name}_bucket{{task=\"{label}\",le=\"{:e}\"}} {count}", *edge_ns as f64 / 1e9));
    }
    put(text, &format!("{name}_bucket{{task=\"{label}\",le=\"+Inf\"}} {}", totals.count));
    put(text, &format!("{name}_sum{{task=\"{label}\"}} {:e}", totals.sum_ns as f64 / 1e9));
    put(text, &format!("{name}_count{{task=\"{label}\"}} {}", totals.count));
}

/// The labels of each thief, its time and its number.
fn thieves(task: &TaskLine) -> impl Iterator<Item = (String, u64, u64)> {
    task.totals.thieves.iter().map(|(kind, actor, took_ns, number)| {
        let actor = escaped(actor.as_deref().unwrap_or("other"));
        let labels = format!("task=\"{}\",cause=\"{}\",actor=\"{actor}\"", escaped(&task.name), kind.name());
        (labels, *took_ns, *number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::result::CauseKind;
    use whylate_runner::{LatencyTotals, TaskTotals};

    #[test]
    fn a_thread_has_a_histogram_its_late_activations_and_its_thieves() {
        let totals = LatencyTotals { buckets: vec![(1_000, 3), (2_000, 5)], count: 6, sum_ns: 4_500_000_000 };
        let thief = (CauseKind::Thread, Some("irq/31-\"eth0\"".to_owned()), 2_000_000, 4);
        let task = TaskLine {
            name: "audio".to_owned(),
            missed: 2,
            totals: TaskTotals { latencies: [totals, LatencyTotals::default()], thieves: vec![thief] },
            ..TaskLine::default()
        };
        let page = page(&[task]);
        for line in [
            "# TYPE whylate_task_response_seconds histogram",
            "whylate_task_response_seconds_bucket{task=\"audio\",le=\"2e-6\"} 5",
            "whylate_task_response_seconds_bucket{task=\"audio\",le=\"+Inf\"} 6",
            "whylate_task_response_seconds_sum{task=\"audio\"} 4.5e0",
            "whylate_task_late_total{task=\"audio\"} 2",
            "whylate_task_lost_seconds_total{task=\"audio\",cause=\"thread\",actor=\"irq/31-\\\"eth0\\\"\"} 2e-3",
        ] {
            assert!(page.lines().any(|it| it == line), "{line} is not in:\n{page}");
        }
    }
}
