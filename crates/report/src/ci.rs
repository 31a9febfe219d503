//! Comparisons for continuous integration: JUnit XML, and annotations of GitHub workflows.

use crate::reading::{Reading, change, effect};
use std::fmt::Write as _;
use whylate_core::result::{CompareResult, Outcome, RunContrast};
use whylate_core::text::line;

/// One test case for each contrast: a regression that decides is a failure, and an undecided contrast is skipped.
pub fn junit(result: &CompareResult) -> String {
    let count = |outcome: Outcome, primary: bool| {
        let is_one =
            |it: &&RunContrast| it.comparison.outcome == outcome && (it.comparison.primary || !primary);
        result.contrasts.iter().filter(is_one).count()
    };
    let (failures, skipped) = (count(Outcome::Worse, true), count(Outcome::CannotTell, false));
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "<testsuite name=\"whylate compare\" tests=\"{}\" failures=\"{failures}\" skipped=\"{skipped}\">",
        result.contrasts.len()
    );
    for it in &result.contrasts {
        let comparison = &it.comparison;
        let class = if it.of_cell.is_empty() {
            comparison.probe.clone()
        } else {
            format!("{}.{}", it.of_cell, comparison.probe)
        };
        let _ = write!(
            text,
            "  <testcase classname=\"{}\" name=\"{}\">",
            xml(&class),
            xml(&comparison.statistic.to_string())
        );
        match (comparison.outcome, comparison.primary) {
            (Outcome::Worse, true) => {
                let _ = write!(text, "<failure message=\"{}\"/>", xml(&sentence(it)));
            }
            (Outcome::CannotTell, _) => {
                let _ = write!(text, "<skipped message=\"{}\"/>", xml(&sentence(it)));
            }
            _ => {
                let _ = write!(text, "<system-out>{}</system-out>", xml(&sentence(it)));
            }
        }
        text.push_str("</testcase>\n");
    }
    text.push_str("</testsuite>\n");
    text
}

/// A workflow command for each difference: errors for regressions that decide, warnings for others, one notice.
pub fn annotations(result: &CompareResult) -> String {
    let mut text = String::new();
    for it in &result.contrasts {
        let level = match (it.comparison.outcome, it.comparison.primary) {
            (Outcome::Worse, true) => "error",
            (Outcome::Worse, false) => "warning",
            _ => continue,
        };
        let _ = writeln!(text, "::{level} title=whylate::{}", workflow(&sentence(it)));
    }
    let _ = writeln!(text, "::notice title=whylate::{}", workflow(&result.reason));
    text
}

/// `idle timer p99.9 worse: 12.0 -> 34.0 us, 2.83 × (2.10 to 3.90)`.
fn sentence(it: &RunContrast) -> String {
    let comparison = &it.comparison;
    let cell = if it.of_cell.is_empty() { String::new() } else { format!("{} ", it.of_cell) };
    let refused = comparison.refused.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
    format!(
        "{cell}{} {} {}: {}, {}{refused}",
        comparison.probe,
        comparison.statistic,
        Reading::of(comparison.outcome).word,
        change(comparison),
        effect(comparison)
    )
}

fn xml(text: &str) -> String {
    let escaped = |c: char| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        c => c.to_string(),
    };
    line(text).chars().map(escaped).collect()
}

/// A percent sign begins an escape there, and the end of the line ends the command.
fn workflow(text: &str) -> String {
    line(text).replace('%', "%25")
}
