//! Questions to a lake, as SQL that existing engines run unchanged. Each question is a file in `sql/`; its first line
//! says what it answers. It may use the tables, which are views here, and the views of `sql/views.sql`.

use crate::engine::{AnswerRows, Engine, Wait, ask};
use crate::error::{At as _, FarmError};
use crate::lake::{Damaged, Lake, LakeLayout, names_below};
use std::cell::LazyCell;
use std::path::Path;
use whylate_core::order::InOrder;
use whylate_store::NOISE_FLOOR;

/// A question of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its name.
    pub name: &'static str,
    /// The statement.
    pub sql: &'static str,
}

macro_rules! questions {
    ($($name:literal),+ $(,)?) => {
        const LIBRARY: &[Question] =
            &[$(Question { name: $name, sql: include_str!(concat!("../sql/", $name, ".sql")) }),+];
    };
}

questions!(
    "alarms",
    "boards",
    "worst",
    "incomplete",
    "silent",
    "regressions",
    "levels",
    "bounds",
    "labels",
    "causes",
    "actors",
    "treatments",
    "quantiles",
);

/// Views that questions may use.
const VIEWS: &str = include_str!("../sql/views.sql");
/// The tables that questions may use.
const TABLES: [&str; 8] =
    ["runs", "cells", "quantiles", "contrasts", "intervals", "histograms", "spikes", "causes"];

/// The tables with rows of the noise-floor check, which reports leave out.
const OF_PROBES: [&str; 4] = ["intervals", "histograms", "spikes", "causes"];

/// The table that has a column more than in a lake of an earlier version, and all its columns for Spark.
const GREW: &str = "quantiles";
const GREW_TO: &str = "run STRING, cell STRING, probe STRING, cpu INT, quantile DOUBLE, value_ns BIGINT, \
    corrected_ns BIGINT, host STRING, month STRING";

/// The rows of a table that a question sees; `source` has all its rows.
fn rows_of(table: &str, source: &str) -> String {
    let condition = match OF_PROBES.contains(&table) {
        true => format!(" WHERE probe <> '{NOISE_FLOOR}'"),
        false => String::new(),
    };
    format!("SELECT * FROM {source}{condition}")
}

/// The built-in questions.
pub fn library() -> &'static [Question] {
    LIBRARY
}

impl Question {
    /// What it answers, in one line.
    pub fn about(&self) -> &'static str {
        self.sql.lines().next().unwrap_or_default().trim_start_matches("-- ")
    }
}

/// The statements that answer a question over the lake at `url` (a bucket, or the path of a folder), in order: the
/// views, then the question.
///
/// # Errors
/// [`FarmError::Refused`] for a lake without runs, for a name that cannot be part of a statement, and for a question
/// that is not exactly one statement.
pub fn statements(
    engine: Engine,
    url: &str,
    layout: LakeLayout,
    question: &str,
) -> Result<Vec<String>, FarmError> {
    statements_without(engine, url, layout, &[], question)
}

/// The same; DuckDB reads no `damaged` object.
fn statements_without(
    engine: Engine,
    url: &str,
    layout: LakeLayout,
    damaged: &[Damaged],
    question: &str,
) -> Result<Vec<String>, FarmError> {
    let place = url.strip_prefix("file://").unwrap_or(url).trim_end_matches('/');
    if place.contains(['\'', '\\', '*', '?', '{']) {
        return Err(FarmError::bad_url(url, "it has characters that cannot be passed to an engine"));
    }
    if !layout.has_runs && !layout.has_months {
        let why = format!("holds no run; add one with `whylate push RUN {url}`");
        return Err(FarmError::refused(url, why));
    }
    let question = one_statement(question)?;
    let sources = Sources { place, layout, damaged };
    let mut all = Vec::new();
    if engine == Engine::Spark {
        all.push("SET spark.sql.sources.partitionColumnTypeInference.enabled=false".to_owned());
    }
    let (views, tables) = used(&question);
    all.extend(tables.into_iter().flat_map(|table| match engine {
        Engine::DuckDb => sources.of_duckdb(table),
        Engine::Spark => sources.of_spark(table),
    }));
    let own = match engine {
        Engine::DuckDb => "CREATE VIEW",
        Engine::Spark => "CREATE OR REPLACE TEMPORARY VIEW",
    };
    let view = |view: &String| view.replacen("CREATE VIEW", own, 1);
    all.extend(views.iter().map(view).map(|view| each_word(engine, &view)));
    all.push(question);
    Ok(all)
}

/// A view in an engine's dialect.
fn each_word(engine: Engine, view: &str) -> String {
    const WORDS: &str = "EACH_WORD(labels)";
    let own = match engine {
        Engine::DuckDb => "unnest(string_split(labels, ' '))",
        Engine::Spark => "explode(split(labels, ' '))",
    };
    view.replace(WORDS, own)
}

/// The views and tables that a question uses: an engine looks at each file of every table that it gets.
fn used(question: &str) -> (Vec<String>, Vec<&'static str>) {
    let all = bare(VIEWS);
    let mut views: Vec<String> = Vec::new();
    // A view may use those before it.
    for view in all.split(';').map(str::trim).rev().filter(|view| !view.is_empty()) {
        if says(question, name_of(view)) || views.iter().any(|user| says(user, name_of(view))) {
            views.insert(0, view.to_owned());
        }
    }
    let is_used = |table: &&str| says(question, table) || views.iter().any(|view| says(view, table));
    let tables = TABLES.into_iter().filter(is_used).collect();
    (views, tables)
}

/// The sources of the tables' rows.
struct Sources<'a> {
    place: &'a str,
    layout: LakeLayout,
    damaged: &'a [Damaged],
}

impl Sources<'_> {
    /// The objects of a table that are read instead of its whole folder.
    fn whole_ones(&self, table: &str) -> Option<Vec<String>> {
        let folder = format!("table={table}");
        let is_of_table = |name: &str| name.starts_with(&format!("{folder}/"));
        if !self.damaged.iter().any(|it| is_of_table(&it.object)) {
            return None;
        }
        let names = names_below(Path::new(self.place), &folder);
        Some(names.filter(|name| !self.damaged.iter().any(|it| it.object == *name)).collect())
    }

    fn of_duckdb(&self, table: &str) -> Vec<String> {
        let place = self.place;
        let read = |files: &str| {
            format!(
                "SELECT * FROM read_parquet({files}, hive_partitioning = true, hive_types_autocast = false, \
                 union_by_name = true)"
            )
        };
        let loose = match self.whole_ones(table) {
            None => read(&format!("'{place}/table={table}/*/*/*.parquet'")),
            Some(names) => {
                let names: Vec<String> = names.iter().map(|name| format!("'{place}/{name}'")).collect();
                read(&format!("[{}]", names.join(", ")))
            }
        };
        let months = read(&format!("'{place}/merged/table={table}/**/*.parquet'"));
        let mut all = self.joined(&loose, &months, " UNION ALL BY NAME ");
        if table == GREW {
            all += " UNION ALL BY NAME SELECT CAST(NULL AS BIGINT) AS corrected_ns WHERE 1 = 0";
        }
        vec![format!("CREATE VIEW {table} AS {}", rows_of(table, &format!("({all})")))]
    }

    /// `month` and `host` come from the folder names, as texts.
    fn of_spark(&self, table: &str) -> Vec<String> {
        let place = self.place.replacen("s3://", "s3a://", 1);
        let view = |name: &str, of: &str| format!("CREATE OR REPLACE TEMPORARY VIEW {name} {of}");
        // Spark takes the columns from one of the files, which may lack some.
        let columns = if table == GREW { format!("({GREW_TO}) ") } else { String::new() };
        let loose = format!("{columns}USING parquet OPTIONS (path '{place}/table={table}')");
        let months = format!("{columns}USING parquet OPTIONS (path '{place}/merged/table={table}')");
        let (of_runs, of_months) = (format!("{table}_of_runs"), format!("{table}_of_months"));
        let mut all = Vec::new();
        all.extend(self.layout.has_months.then(|| view(&of_months, &months)));
        all.extend(self.layout.has_runs.then(|| view(&of_runs, &loose)));
        let select = |name: &str| rows_of(table, name);
        let both = self.joined(&select(&of_runs), &select(&of_months), " UNION ALL ");
        all.push(view(table, &format!("AS {both}")));
        all
    }

    /// The statement for one of the two, or for both joined.
    fn joined(&self, loose: &str, months: &str, by: &str) -> String {
        match (self.layout.has_runs, self.layout.has_months) {
            (true, false) => loose.to_owned(),
            (false, _) => months.to_owned(),
            (true, true) => format!("{loose}{by}{months}"),
        }
    }
}

/// The name of a view, from the statement that creates it.
fn name_of(view: &str) -> &str {
    view.split_whitespace().nth(2).unwrap_or_default()
}

/// Whether a statement contains a word.
fn says(statement: &str, word: &str) -> bool {
    statement
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .any(|it| it.eq_ignore_ascii_case(word))
}

/// A question without comments around it.
fn one_statement(question: &str) -> Result<String, FarmError> {
    let bare = bare(question);
    let wrong = |what: &str| FarmError::refused("the query cannot be run", what);
    if bare.is_empty() {
        return Err(wrong("it has no SQL statement"));
    }
    // A semicolon in a text or a name does not separate statements.
    let mut quote = None;
    for c in bare.chars() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (None, ';') => {
                return Err(wrong("it has more than one SQL statement: put each into its own file"));
            }
            _ => {}
        }
    }
    Ok(bare)
}

/// Answers a question over a lake; see [`answers`].
pub fn answer(
    engine: Engine,
    lake: &Lake,
    cache: Option<&Path>,
    question: &str,
    wait: impl FnOnce() -> Wait,
) -> Result<AnswerRows, FarmError> {
    Ok(answers(engine, lake, cache, &[question], wait)?.pop().unwrap_or_default())
}

/// Answers questions over a lake, all of them or none. Objects of a bucket that are missing in `cache` are fetched
/// first; a lake in a folder needs none. Damaged objects are left out, and named in each answer. `wait` is called
/// before an engine starts: until then, a signal may end the process.
pub fn answers(
    engine: Engine,
    lake: &Lake,
    cache: Option<&Path>,
    questions: &[&str],
    wait: impl FnOnce() -> Wait,
) -> Result<Vec<AnswerRows>, FarmError> {
    let wait = LazyCell::new(wait);
    let mut tables: Vec<&str> = questions.iter().flat_map(|question| used(&bare(question)).1).collect();
    tables.order();
    tables.dedup();
    let layout = lake.layout()?;
    let damaged = lake.find_damaged(cache, &tables)?;
    if wait.is_over() {
        return Err(FarmError::Stopped(engine.name()));
    }
    let named = |error| match damaged.is_empty() {
        true => error,
        false => FarmError::WithDamage(Box::new(error), Damaged::said(&damaged, lake.url())),
    };
    if engine == Engine::Spark && damaged.iter().any(|it| !it.is_missing()) {
        let why = "Spark reads whole folders, and some objects in these folders are damaged: ask DuckDB";
        return Err(named(FarmError::Engine(engine.name(), why.to_owned())));
    }
    let place = std::path::absolute(lake.place(cache)).at("find", lake.place(cache))?;
    let place = place.display().to_string();
    let all = questions
        .iter()
        .map(|question| statements_without(engine, &place, layout, &damaged, question))
        .collect::<Result<Vec<_>, _>>()
        .and_then(|all| ask(engine, &all, &wait));
    let rows = all.map_err(named)?;
    Ok(rows.into_iter().map(|rows| AnswerRows { damaged: damaged.clone(), ..rows }).collect())
}

/// A statement without the comment lines around it and its last semicolon.
fn bare(sql: &str) -> String {
    let lines = sql.lines().filter(|line| !line.trim_start().starts_with("--"));
    lines.collect::<Vec<_>>().join("\n").trim().trim_end_matches(';').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_says_what_it_answers_and_is_one_statement() {
        for question in library() {
            assert!(question.about().len() > 20, "{}", question.name);
            assert!(!bare(question.sql).contains(';'), "{}", question.name);
        }
        let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/sql")).unwrap().count();
        assert_eq!(files, library().len() + 1, "each file but views.sql is listed");
    }

    #[test]
    fn statements_name_the_lake_and_end_with_the_question() {
        let layout = LakeLayout { has_runs: true, has_months: false };
        let statements = |engine, url, question| statements(engine, url, layout, question);
        let all = statements(Engine::DuckDb, "file:///srv/lake/", "-- why\nSELECT 1 FROM runs;\n").unwrap();
        assert!(all[0].contains("'/srv/lake/table=runs/*/*/*.parquet'"), "{}", all[0]);
        assert_eq!(all[1..], ["SELECT 1 FROM runs"], "no other table is looked at");
        let all = statements(Engine::DuckDb, "/srv/lake", "SELECT * FROM levels").unwrap();
        let begins: Vec<&str> = all.iter().map(|it| it.split_whitespace().nth(2).unwrap()).collect();
        assert_eq!(begins, ["runs", "quantiles", "levels", "FROM"]);
        let spark = statements(Engine::Spark, "s3://b/farm", "SELECT 1 FROM runs").unwrap();
        assert!(spark[1].contains("'s3a://b/farm/table=runs'"), "{}", spark[1]);
        // Files of an earlier version have no `corrected_ns`.
        for engine in [Engine::DuckDb, Engine::Spark] {
            let all = statements(engine, "/srv/lake", "SELECT 1 FROM quantiles").unwrap();
            assert!(all.iter().any(|it| it.contains("corrected_ns")), "{all:?}");
        }
        assert!(statements(Engine::DuckDb, "/a'b", "SELECT 1").is_err());
        for (question, said) in [
            ("", "no SQL statement"),
            ("-- why\n;", "no SQL statement"),
            ("SELECT 1; SELECT 2", "more than one"),
        ] {
            let error = statements(Engine::DuckDb, "/lake", question).unwrap_err().to_string();
            assert!(error.contains(said), "{question}: {error}");
        }
        assert!(statements(Engine::DuckDb, "/lake", "SELECT ';'").is_ok());
        let none = super::statements(Engine::DuckDb, "/lake", LakeLayout::default(), "SELECT 1").unwrap_err();
        assert!(none.to_string().contains("/lake: holds no run"), "{none}");
    }
}
