//! `whylate farm query` and `compare`: questions to a lake.

use crate::arguments::{EngineChoice, FarmCompareArguments, QueryArguments};
use crate::commands::variable;
use crate::exit::Ending;
use crate::{output, signals};
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use whylate_core::result::{FarmComparison, Outcome};
use whylate_farm::{AnswerRows, Damaged, Engine, FIGURES, FarmError, Lake, RunGroup, Wait, compare_groups};
use whylate_stats::meta::RUNS_MIN;
use whylate_store::user_folder;

pub(super) fn query(arguments: &QueryArguments) -> Result<Ending> {
    let (Some(name), Some(lake), false) = (&arguments.question, &arguments.lake, arguments.list) else {
        let line = |it: &whylate_farm::Question| format!("{:<12} {}\n", it.name, it.about());
        output::print(&whylate_farm::library().iter().map(line).collect::<String>())?;
        return Ok(Ending::Pass);
    };
    let known = whylate_farm::library().iter().find(|question| question.name == name);
    let sql = match known {
        Some(question) => question.sql.to_owned(),
        None if !name.contains(['/', '.']) => {
            let names: Vec<&str> = whylate_farm::library().iter().map(|question| question.name).collect();
            bail!("there is no query `{name}`; the queries are {}; for a file, give a path", names.join(", "))
        }
        None => fs::read_to_string(name).with_context(|| format!("cannot read the query {name}"))?,
    };
    let asked = AskedLake::open(lake, arguments.engine)?;
    if arguments.print {
        let lake = &asked.lake;
        let statements = whylate_farm::statements(asked.engine, lake.url(), lake.layout()?, &sql)?;
        output::print(&statements.iter().map(|it| format!("{it};\n\n")).collect::<String>())?;
        return Ok(Ending::Pass);
    }
    let rows = asked.answer_aloud(&sql)?;
    match (arguments.json, arguments.csv) {
        (true, _) => output::print_json(&rows)?,
        (false, true) => output::print(&separated(&rows))?,
        (false, false) => output::print(&aligned(&rows))?,
    }
    let is_alarm = arguments.expect_none && !rows.rows.is_empty();
    Ok(match (is_alarm, rows.damaged.is_empty()) {
        (true, _) => Ending::Exceeded,
        // The answer does not cover the whole lake.
        (false, false) => Ending::Incomplete,
        (false, true) => Ending::Pass,
    })
}

/// A lake, and the engine that answers questions about it.
pub(crate) struct AskedLake {
    pub(crate) lake: Lake,
    engine: Engine,
    /// Where the tables of a bucket are kept.
    cache: Option<PathBuf>,
}

impl AskedLake {
    /// Opens a lake by its absolute name, which does not depend on the current folder.
    pub(crate) fn open(lake: &str, engine: EngineChoice) -> Result<Self> {
        let is_url = lake.contains("://");
        let place = if is_url { lake.to_owned() } else { std::path::absolute(lake)?.display().to_string() };
        let lake = Lake::open(&place, false)?;
        let engine = match engine {
            EngineChoice::Duckdb => Engine::DuckDb,
            EngineChoice::Spark => Engine::Spark,
        };
        Ok(Self { cache: cache_of(&lake)?, lake, engine })
    }

    /// The rows, after a message about the objects that they lack.
    fn answer_aloud(&self, sql: &str) -> Result<AnswerRows, FarmError> {
        // Ctrl-C and SIGTERM end the engine, and its temporary files are deleted.
        let watched = || Wait { stop: signals::watch().unwrap_or_default(), ..Wait::default() };
        let rows = self.answer(sql, watched)?;
        for line in Damaged::said(&rows.damaged, self.lake.url()) {
            output::message(&format!("whylate: {line}"));
        }
        Ok(rows)
    }

    pub(crate) fn answer(&self, sql: &str, wait: impl FnOnce() -> Wait) -> Result<AnswerRows, FarmError> {
        whylate_farm::answer(self.engine, &self.lake, self.cache.as_deref(), sql, wait)
    }
}

/// Two groups of runs over all boards.
pub(super) fn compare(arguments: &FarmCompareArguments) -> Result<Ending> {
    let asked = AskedLake::open(&arguments.lake, arguments.engine)?;
    let (first, second) = (&arguments.first, &arguments.second);
    let rows = asked.answer_aloud(FIGURES)?;
    let found = compare_groups(&rows, &RunGroup::of(first)?, &RunGroup::of(second)?, arguments.margin.0);
    if found.is_empty() {
        bail!(
            "no board has {RUNS_MIN} complete runs in each group (`{first}` and `{second}`); groups without a common \
             board need two boards each, with {RUNS_MIN} runs on each board"
        );
    }
    if arguments.json {
        let format = "whylate.farm-compare/1";
        output::print_json(&json!({
            "format": format,
            "first": first,
            "second": second,
            "comparisons": found,
            "damaged": rows.damaged,
        }))?;
    } else {
        output::print(&format!("ratio of 0.999 quantiles, {second} to {first}:\n"))?;
        output::print(&found.iter().map(paragraph).collect::<String>())?;
    }
    let has = |outcome| found.iter().any(|it| it.outcome == outcome);
    Ok(match () {
        () if has(Outcome::Worse) => Ending::Exceeded,
        () if has(Outcome::CannotTell) || !rows.damaged.is_empty() => Ending::Incomplete,
        () => Ending::Pass,
    })
}

fn paragraph(found: &FarmComparison) -> String {
    let interval = found.ratio_low.zip(found.ratio_high);
    let interval = interval.map(|(low, high)| format!(" ({low:.3} to {high:.3})")).unwrap_or_default();
    let mut text = format!(
        "\n{} {} {}: {:.3}{interval}: {}\n",
        found.plan,
        found.cell,
        found.probe,
        found.ratio,
        found.outcome.name().replace('_', " "),
    );
    text += &match found.apart {
        Some((first, second)) => {
            format!("    {first} boards against {second} other boards: no board has runs of both groups\n")
        }
        None if found.boards.len() == 1 => {
            "    only one board, so there is no interval over boards\n".to_owned()
        }
        None => format!(
            "    {} boards: beyond the spread of runs, their ratios differ by a factor of {:.3} (heterogeneity {:.0} %)\n",
            found.boards.len(),
            found.spread,
            100.0 * found.heterogeneity
        ),
    };
    if found.too_few_boards && found.boards.len() > 1 {
        text += &format!(
            "    too few boards to tell whether one differs from the others: at least {} are needed\n",
            FarmComparison::BOARDS_MIN
        );
    }
    for board in &found.boards {
        let (low, high) = (board.ratio_low, board.ratio_high);
        let disagrees = if board.disagrees { ", disagrees with the other boards" } else { "" };
        text += &format!("    {}: {:.3} ({low:.3} to {high:.3}){disagrees}\n", board.host, board.ratio);
    }
    if found.leaves_missed_out {
        text += "    p99.9 leaves out missed periods: an earlier version of whylate stored some of the runs without \
                 counting missed periods\n";
    }
    if !found.left_out.is_empty() {
        text += &format!("    boards left out, with under {RUNS_MIN} runs: {}\n", found.left_out.join(", "));
    }
    text
}

/// Where the tables of a bucket are kept.
fn cache_of(lake: &Lake) -> Result<Option<PathBuf>> {
    if !lake.is_bucket() {
        return Ok(None);
    }
    let [named, home] = ["XDG_CACHE_HOME", "HOME"].map(variable);
    let caches = user_folder(named.as_deref(), home.as_deref(), ".cache");
    let caches = caches.context("neither XDG_CACHE_HOME nor HOME is set")?;
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '+' };
    Ok(Some(caches.join("whylate/lakes").join(lake.url().chars().map(plain).collect::<String>())))
}

/// A value as text; empty for null.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => format!("{:.4}", number.as_f64().unwrap_or(0.0)),
        other => other.to_string(),
    }
}

/// Comma-separated values according to RFC 4180.
fn separated(rows: &AnswerRows) -> String {
    let quoted = |text: String| match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    };
    let exact = |value: &Value| quoted(if value.is_number() { value.to_string() } else { cell(value) });
    let line = |row: &Vec<Value>| row.iter().map(exact).collect::<Vec<_>>().join(",") + "\n";
    rows.columns.join(",") + "\n" + &rows.rows.iter().map(line).collect::<String>()
}

/// Columns as wide as their contents.
fn aligned(rows: &AnswerRows) -> String {
    let mut lines: Vec<Vec<String>> = vec![rows.columns.clone()];
    lines.extend(rows.rows.iter().map(|row| row.iter().map(cell).collect()));
    let wide = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows.columns.len()).map(wide).collect();
    let line = |line: &Vec<String>| {
        let padded = line.iter().zip(&widths).map(|(text, width)| format!("{text:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(line).collect()
}
