//! Numbers that may only fall: `xtask/ratchets.txt` compared with what is counted. A number may rise in that file only
//! with `because REASON` behind it, or with a line `grows: NAME +N because REASON` in the commit message.

use super::Violation;
use super::counts::Count;
use crate::process;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Whether a number that rose is an error; until then it is a warning.
pub(crate) const IS_ENFORCED: bool = true;

const RULE: &str = "ratchets";
const TABLE: &str = "xtask/ratchets.txt";
const HEAD: &str = "\
# Numbers that may only fall; `cargo xtask tidy` compares them with the tree. `cargo xtask ratchets` lowers those that
# fell, and `cargo xtask ratchets NAME` lists what one counts. `cargo xtask ratchets raise REASON` raises those that rose; a
# reason may also be in the commit message: `grows: NAME +N because REASON`.
";

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    number: usize,
    /// `because REASON`, or empty.
    reason: String,
}

type Table = BTreeMap<String, Row>;

/// Prints a summary, and returns the numbers that rose.
///
/// # Errors
/// When the table is missing or malformed.
pub(crate) fn check(root: &Path, counts: &[Count]) -> Result<Vec<Violation>> {
    let text = std::fs::read_to_string(root.join(TABLE)).with_context(|| format!("cannot read {TABLE}"))?;
    let table = parse(&text)?;
    println!("xtask: {}", summary(counts));
    let mut violations = risen(&table, counts);
    let git = |words: &[&str]| process::output(Command::new("git").args(words).current_dir(root)).ok();
    let shown = |commit: &str| git(&["show", &format!("{commit}:{TABLE}")]);
    let head = shown("HEAD").unwrap_or_default();
    let (earlier, message) =
        if head == text { (shown("HEAD^"), git(&["log", "-1", "--format=%B"])) } else { (Some(head), None) };
    if let Some(earlier) = earlier.filter(|earlier| !earlier.is_empty()) {
        violations.extend(raised(&parse(&earlier)?, &table, &message.unwrap_or_default()));
    }
    Ok(violations)
}

/// Writes the table with each number that fell, and where there is a reason with each that rose; names that are new or gone too.
///
/// # Errors
/// When the table is malformed or cannot be written.
pub(crate) fn write(root: &Path, counts: &[Count], reason: Option<&str>) -> Result<()> {
    let path = root.join(TABLE);
    let table = parse(&std::fs::read_to_string(&path).unwrap_or_default())?;
    std::fs::write(&path, written(&table, counts, reason))
        .with_context(|| format!("cannot write {TABLE}"))?;
    println!("xtask: {}", summary(counts));
    Ok(())
}

fn parse(text: &str) -> Result<Table> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let row = |line: &str| -> Result<(String, Row)> {
        let mut parts = line.splitn(3, ' ');
        let (name, number) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let number = number.parse().with_context(|| format!("{TABLE}: `{line}`: not NAME NUMBER"))?;
        let reason = parts.next().unwrap_or_default();
        anyhow::ensure!(reason.is_empty() || is_reason(reason), "{TABLE}: `{line}`: write `because REASON`");
        Ok((name.to_owned(), Row { number, reason: reason.to_owned() }))
    };
    lines.map(row).collect()
}

fn is_reason(text: &str) -> bool {
    text.strip_prefix("because ").is_some_and(|reason| !reason.trim().is_empty())
}

/// The lines of all crates and the numbers of all else that is not zero.
fn summary(counts: &[Count]) -> String {
    let lines: Vec<&Count> = counts.iter().filter(|count| count.name.starts_with("lines/")).collect();
    let shown = |count: &&Count| format!("{} {}", count.name.trim_start_matches("lines/"), count.number);
    let crates: Vec<String> = lines.iter().map(shown).collect();
    let others = counts.iter().filter(|count| !count.name.starts_with("lines/") && count.number > 0);
    let others: Vec<String> = others.map(|count| format!("{} {}", count.name, count.number)).collect();
    let sum: usize = lines.iter().map(|count| count.number).sum();
    format!("{sum} product lines ({}); {}", crates.join(", "), others.join(", "))
}

/// Counts above their row, and rows that nothing counts.
fn risen(table: &Table, counts: &[Count]) -> Vec<Violation> {
    let mut messages = Vec::new();
    for count in counts {
        let allowed = table.get(&count.name).map_or(0, |row| row.number);
        if count.number > allowed {
            let name = &count.name;
            messages.push(format!(
                "{name} rose from {allowed} to {}: see `cargo xtask ratchets {name}`; lower it, or `cargo xtask \
                 ratchets raise REASON`",
                count.number
            ));
        }
    }
    messages.into_iter().map(violation).collect()
}

/// Rows above those of the commit before, without a reason.
fn raised(earlier: &Table, table: &Table, message: &str) -> Vec<Violation> {
    let is_raised = |(name, row): &(&String, &Row)| {
        let rises = |before: &Row| row.number > before.number && row.reason == before.reason;
        earlier.get(*name).is_some_and(rises) && !is_announced(message, name)
    };
    let message = |(name, row): (&String, &Row)| {
        violation(format!("{name} was raised to {} without a reason: add `because REASON`", row.number))
    };
    table.iter().filter(is_raised).map(message).collect()
}

/// Whether the commit message has `grows: NAME +N because REASON`; a crate's lines go by its name.
fn is_announced(message: &str, name: &str) -> bool {
    message.lines().filter_map(|line| line.strip_prefix("grows: ")).any(|line| {
        let mut parts = line.splitn(3, ' ');
        let is_name = parts.next().is_some_and(|word| word == name || name == format!("lines/{word}"));
        is_name
            && parts.next().is_some_and(|word| word.starts_with('+'))
            && parts.next().is_some_and(is_reason)
    })
}

fn written(table: &Table, counts: &[Count], reason: Option<&str>) -> String {
    let row = |count: &Count| match (table.get(&count.name), reason) {
        (Some(row), Some(reason)) if row.number < count.number => {
            format!("{} {} because {reason}", count.name, count.number)
        }
        (Some(row), _) if row.number <= count.number => {
            format!("{} {} {}", count.name, row.number, row.reason)
        }
        _ => format!("{} {}", count.name, count.number),
    };
    let rows = counts.iter().filter(|count| count.number > 0).map(row);
    let rows: Vec<String> = rows.map(|row| row.trim_end().to_owned()).collect();
    format!("{HEAD}{}\n", rows.join("\n"))
}

fn violation(message: String) -> Violation {
    Violation { path: TABLE.to_owned(), line: 1, rule: RULE, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(name: &str, number: usize) -> Count {
        Count { name: name.into(), number, places: Vec::new() }
    }

    #[test]
    fn a_number_that_rises_is_a_violation() {
        let table = parse("# x\nlines/core 10\nword/x 2 because it is a name\n").unwrap();
        assert!(risen(&table, &[count("lines/core", 10), count("word/x", 1)]).is_empty());
        let found = risen(&table, &[count("lines/core", 11), count("lines/new", 1)]);
        assert_eq!(found.len(), 2);
        assert!(found[0].message.starts_with("lines/core rose from 10 to 11"), "{found:?}");
    }

    #[test]
    fn the_table_rises_only_with_a_reason() {
        let before = parse("lines/core 10\n").unwrap();
        let after = |text: &str, message: &str| raised(&before, &parse(text).unwrap(), message).len();
        assert_eq!(after("lines/core 12\n", ""), 1);
        assert_eq!(after("lines/core 12\n", "grows: core +2\n"), 1);
        assert_eq!(after("lines/core 12\n", "Add x\n\ngrows: core +2 because of x\n"), 0);
        assert_eq!(after("lines/core 12 because of x\n", ""), 0);
        assert_eq!(after("lines/core 9\nlines/new 1\n", ""), 0);
    }

    #[test]
    fn the_written_table_lowers_what_fell_and_keeps_the_rest() {
        let table = parse("lines/core 10\nlines/stats 5 because x\nlines/gone 3\n").unwrap();
        let counts = [count("lines/core", 8), count("lines/stats", 6), count("lines/new", 1)];
        let text = written(&table, &counts, None);
        assert_eq!(text.strip_prefix(HEAD), Some("lines/core 8\nlines/stats 5 because x\nlines/new 1\n"));
        let raised = written(&table, &counts, Some("of y"));
        assert_eq!(
            raised.strip_prefix(HEAD),
            Some("lines/core 8\nlines/stats 6 because of y\nlines/new 1\n")
        );
        assert!(parse("lines/core\n").is_err() && parse("lines/core 1 for x\n").is_err());
    }
}
