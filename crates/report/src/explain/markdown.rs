//! The explanation as Markdown, for an issue or a pull request.

use super::{count, expected, moment, sentence, traces};
use crate::figure::{nanoseconds, share};
use crate::markdown::{code, details, escape};
use std::fmt::Write as _;
use whylate_core::result::{ExplainResult, ExplainedSpike};

/// Segments that a table has; more are in the JSON.
const SEGMENTS_MAX: usize = 40;

/// The explanation in GitHub's Markdown.
pub fn markdown(result: &ExplainResult) -> String {
    let headline = result.spikes.first().map_or_else(|| count(result), sentence::finding);
    let mut text = format!("### {}\n\n", escape(&headline));
    for line in traces(result) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "- {}", escape(&line));
    }
    let _ = writeln!(text, "- {}\n", escape(&count(result)));
    for spike in &result.spikes {
        text.push_str(&spike_section(spike));
    }
    for warning in &result.warnings {
        let fix = warning.fix.as_ref().map(|fix| format!("<br>Fix: {}", escape(fix))).unwrap_or_default();
        let _ = writeln!(text, "- **{}**: {}{fix}", escape(&warning.code), escape(&warning.text));
    }
    text
}

fn spike_section(spike: &ExplainedSpike) -> String {
    let mut text = format!("#### {}\n\n", escape(&sentence::finding(spike)));
    let expected = format!(
        "expected {} s ({}), ran {} s",
        moment(spike.expected_ns),
        expected(spike),
        moment(spike.actual_ns)
    );
    let _ = writeln!(text, "- {}", escape(&expected));
    if let Some(chain) = sentence::chain(&spike.cause) {
        let _ = writeln!(text, "- {}", code(&chain));
    }
    if let Some(confidence) = sentence::confidence(&spike.cause) {
        let _ = writeln!(text, "- {}", escape(&confidence));
    }
    for cause in &spike.also {
        let _ = writeln!(text, "- also {}", escape(&sentence::contributor(cause, spike)));
    }
    text.push_str(
        "\n| from | time | share | CPU | what | function |\n| --: | --: | --: | --: | :-- | :-- |\n",
    );
    for segment in spike.timeline.iter().take(SEGMENTS_MAX) {
        let time = segment.to_ns - segment.from_ns;
        let _ = writeln!(
            text,
            "| +{} | {} | {} | {} | {} | {} |",
            nanoseconds(segment.from_ns - spike.expected_ns),
            nanoseconds(time),
            share(time as f64 / spike.latency_ns.max(1) as f64),
            segment.cpu,
            escape(&segment.what),
            segment.function.as_deref().map(code).unwrap_or_default(),
        );
    }
    let left_out = spike.timeline.len().saturating_sub(SEGMENTS_MAX);
    if left_out > 0 {
        let _ = writeln!(text, "\n{left_out} more are in the JSON.");
    }
    let lines: Vec<String> = spike
        .evidence
        .iter()
        .map(|line| format!("- byte {}, {}: {}", line.offset, escape(&line.meaning), code(&line.text)))
        .collect();
    if !lines.is_empty() {
        let _ = write!(text, "\n{}\n", details("Records", &lines.join("\n")));
    }
    text.push('\n');
    text
}
