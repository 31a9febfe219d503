//! Reports as Markdown, for pull requests and issues: the verdict first, then the table, then why.

use crate::figure::{MISSING, count, nanoseconds};
use crate::table::{Field, Group, Line, LineKind, run_groups};
use crate::{ReportError, require_run_samples};
use crate::{causes, dispatch, latency, traces, words};
use std::fmt::Write as _;
use whylate_core::result::{Outcome, RunResult, Verdict};

/// The report of a run in GitHub's Markdown.
///
/// # Errors
/// [`ReportError::NoSamples`] when no probe has a sample.
pub fn run(run: &RunResult) -> Result<String, ReportError> {
    require_run_samples(run)?;
    let groups = run_groups(run);
    let mut sections = vec![headline(run)];
    sections.extend(list(words::failures(run).iter().map(|failure| escape(failure))));
    sections.extend(groups.iter().map(group_table));
    sections.extend(dispatch_rows(run));
    if groups.iter().any(Group::has_corrected) {
        sections.push(escape(words::CORRECTED_NOTE));
    }
    sections.extend(list(words::findings(run).iter().map(|finding| match finding.outcome {
        Outcome::Better | Outcome::Worse => format!("**{}**", escape(&finding.text)),
        Outcome::NoEffect | Outcome::TooFewRepeats => escape(&finding.text),
    })));
    sections.extend(list(words::largest_spikes(run).iter().map(|spike| escape(spike))));
    sections.extend(list(traces::lines(run).iter().map(|line| escape(line))));
    sections.extend(list(latency::of_run(run).iter().map(|late| escape(late))));
    sections.extend(cause_table(run));
    sections.extend(list(causes::events_of_run(run).iter().map(|event| escape(event))));
    sections.extend(ipi_table(run));
    let floors = words::noise_floors(run);
    sections.extend(list(floors.iter().map(|floor| escape(&format!("noise floor of {floor}")))));
    sections.extend(warnings(run));
    sections.push(facts(run));
    Ok(sections.join("\n\n") + "\n")
}

fn headline(run: &RunResult) -> String {
    let mark = match run.verdict {
        Verdict::Pass => "✅",
        Verdict::Fail => "❌",
        Verdict::NoLimit => "ℹ️",
        Verdict::Incomplete => "⚠️",
    };
    let mut text = format!(
        "### {mark} {}: {}\n\n{}",
        words::verdict(run.verdict),
        escape(&run.plan.name),
        escape(&run.verdict_reason)
    );
    if let Some(question) = &run.plan.question {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n\n> {}", escape(question));
    }
    text
}

/// A table of these titles and rows, the first columns text, the others numbers; `None` without rows.
fn table(texts: &[&str], numbers: &[String], rows: &[Vec<String>]) -> Option<String> {
    let row = |cells: &[String]| format!("| {} |", cells.join(" | "));
    let titles: Vec<String> = texts.iter().map(|text| (*text).to_owned()).chain(numbers.to_vec()).collect();
    let rule: Vec<String> = std::iter::repeat_n(":--".to_owned(), texts.len())
        .chain(std::iter::repeat_n("--:".to_owned(), numbers.len()))
        .collect();
    let lines: Vec<String> =
        [row(&titles), row(&rule)].into_iter().chain(rows.iter().map(|one| row(one))).collect();
    (!rows.is_empty()).then(|| lines.join("\n"))
}

/// The first causes of the largest spikes of each cell.
fn cause_table(run: &RunResult) -> Option<String> {
    let rows: Vec<Vec<String>> = causes::of_run(run)
        .iter()
        .map(|first| {
            vec![
                escape(&first.cell),
                escape(&first.probe),
                escape(&format!("{}{}", first.what, first.losses())),
                format!("{} of {}", first.spikes, first.of),
                nanoseconds(first.largest_ns),
            ]
        })
        .collect();
    let numbers = ["spikes".to_owned(), "largest".to_owned()];
    let table = table(&["cell", "probe", "first cause"], &numbers, &rows)?;
    Some(format!("**Causes of the largest spikes**\n\n{table}"))
}

/// Interrupts that other CPUs sent, by CPU, function and caller.
fn ipi_table(run: &RunResult) -> Option<String> {
    let causes::Ipis { cells, lines, left_out } = causes::Ipis::of_cells(&run.cells);
    let rows: Vec<Vec<String>> = lines
        .iter()
        .map(|line| {
            let texts =
                [line.cpu.to_string(), line.function.clone(), line.caller.clone(), line.senders.clone()];
            let texts = texts.iter().map(|text| escape(text));
            texts.chain(line.counts.iter().map(|number| count(*number))).collect()
        })
        .collect();
    let cells: Vec<String> = cells.iter().map(|name| escape(name)).collect();
    let table = table(&["CPU", "function", "asked for by", "sent by"], &cells, &rows)?;
    let more = if left_out > 0 { format!("\n\n{left_out} rarer ones are left out.") } else { String::new() };
    Some(details("Interrupts from other CPUs", &format!("{table}{more}")))
}

/// The rows of 10 us of every dispatch series, folded away.
fn dispatch_rows(run: &RunResult) -> Option<String> {
    let texts: Vec<String> = dispatch::of_run(run).into_iter().flatten().collect();
    (!texts.is_empty())
        .then(|| details("Dispatch latency in rows of 10 us", &format!("```\n{}\n```", texts.join("\n"))))
}

fn group_table(group: &Group) -> String {
    let fields: Vec<Field> = Field::ALL.into_iter().filter(|field| group.uses(*field)).collect();
    let row = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
    let titles = fields.iter().map(|field| group.title(*field).to_owned()).collect();
    let rule =
        fields.iter().map(|field| if matches!(field, Field::Cell | Field::Series) { ":--" } else { "--:" });
    let rule = rule.map(str::to_owned).collect();
    let mut lines = vec![
        format!("**{}**: {}\n", escape(&group.probe), words::probe_meaning(&group.probe)),
        row(titles),
        row(rule),
    ];
    lines.extend(group.lines.iter().map(|line| row(fields.iter().map(|field| cell(line, *field)).collect())));
    lines.join("\n")
}

fn cell(line: &Line, field: Field) -> String {
    let missing = if line.kind == LineKind::Recorded { MISSING } else { "" };
    let text = escape(line.cells.get(field as usize).and_then(Option::as_deref).unwrap_or(missing).trim());
    match (field, line.kind) {
        (Field::Cell, LineKind::Corrected) | (Field::Series, LineKind::Part) => format!("↳ *{text}*"),
        (Field::Max, _) if line.over_limit => format!("**{text}**"),
        _ => text,
    }
}

/// A list of items that are Markdown already; `None` without any.
fn list(items: impl Iterator<Item = String>) -> Option<String> {
    let lines: Vec<String> = items.map(|item| format!("- {item}")).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn warnings(run: &RunResult) -> Option<String> {
    if run.warnings.is_empty() {
        return None;
    }
    let lines = run.warnings.iter().map(|warning| {
        let fix = warning.fix.as_ref().map(|fix| format!("<br>Fix: {}", escape(fix))).unwrap_or_default();
        format!("- **{}**: {}{fix}", escape(&warning.code), escape(&warning.text))
    });
    Some(details(&format!("Warnings ({})", run.warnings.len()), &lines.collect::<Vec<_>>().join("\n")))
}

fn facts(run: &RunResult) -> String {
    let facts = &run.facts;
    let mut lines = vec![
        format!("- {}", escape(&words::run_machine(run).join(" · "))),
        format!("- kernel command line: {}", code(&facts.kernel.command_line)),
        format!("- {}; started {}", escape(&words::extent(run)), escape(&run.started_at)),
    ];
    lines.push(format!(
        "- whylate {}, again: {}",
        escape(&facts.whylate_version),
        code(&words::reproduce(run).0)
    ));
    details("Machine and plan", &lines.join("\n"))
}

pub(crate) fn details(summary: &str, body: &str) -> String {
    format!("<details><summary>{summary}</summary>\n\n{body}\n\n</details>")
}

/// A code span; the fence is longer than any run of backticks in the text.
pub(crate) fn code(text: &str) -> String {
    let text = text.replace(['\n', '\r'], " ");
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let pad = if longest > 0 || text.is_empty() { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

/// Text in which nothing is Markdown or HTML.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '&' => escaped.push_str("&amp;"),
            '\n' | '\r' => escaped.push(' '),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' => {
                escaped.push('\\');
                escaped.push(c);
            }
            // A mention or a link to somebody else's issue is never meant.
            '@' => escaped.push_str("@\u{200b}"),
            c if c.is_control() => {}
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_name_is_markup() {
        assert_eq!(escape("a|b<img>*x*\n`c`"), "a\\|b&lt;img>\\*x\\* \\`c\\`");
        assert_eq!(code("a ``b"), "``` a ``b ```");
        assert_eq!(code("quiet"), "`quiet`");
    }
}
