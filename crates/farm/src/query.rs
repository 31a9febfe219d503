//! Questions to a lake, as SQL that existing engines run as it is. Each question is a file in `sql/`; its first line says
//! what it answers. Beside the tables, which are views here, it may use the view `quantiles`.

use crate::error::FarmError;
use serde::{Deserialize, Serialize};
use std::io::Write as _;
use std::process::{Command, Stdio};

/// An engine that answers SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// DuckDB.
    DuckDb,
    /// ClickHouse, also as chDB.
    ClickHouse,
    /// Spark.
    Spark,
}

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

questions!("worst", "incomplete", "silent", "regressions", "bounds", "causes", "treatments", "quantiles",);

/// What every question begins with.
const VIEWS: &str = include_str!("../sql/views.sql");
/// The tables that questions use.
const TABLES: [&str; 7] = ["runs", "cells", "contrasts", "intervals", "histograms", "spikes", "causes"];

/// The questions that are built in.
pub fn library() -> &'static [Question] {
    LIBRARY
}

impl Question {
    /// What it answers, in one line.
    pub fn about(&self) -> &'static str {
        self.sql.lines().next().unwrap_or_default().trim_start_matches("-- ")
    }
}

/// The statements that answer a question over the lake at `url` (a bucket, or the path of a folder), in order: the views,
/// then the question.
///
/// # Errors
/// [`FarmError::BadUrl`] for a place that the engine cannot read, or whose name cannot stand in a statement.
pub fn statements(engine: Engine, url: &str, question: &str) -> Result<Vec<String>, FarmError> {
    let bad = |what: &str| FarmError::BadUrl(url.to_owned(), what.to_owned());
    let place = url.strip_prefix("file://").unwrap_or(url).trim_end_matches('/');
    if place.contains(['\'', '\\', '*', '?', '{']) {
        return Err(bad("no engine can be given its name"));
    }
    let is_folder = !place.contains("://");
    if engine == Engine::ClickHouse && !is_folder && !place.starts_with("s3://") {
        return Err(bad("ClickHouse is given folders and s3:// here"));
    }
    let view = |table: &str| {
        let files = format!("{place}/table={table}/*/*/*.parquet");
        match engine {
            Engine::DuckDb => format!(
                "CREATE VIEW {table} AS SELECT * FROM read_parquet('{files}', hive_partitioning = true, \
                 hive_types_autocast = false, union_by_name = true)"
            ),
            Engine::ClickHouse => {
                let from = if is_folder {
                    format!("file('{files}', Parquet)")
                } else {
                    format!("s3('{files}', Parquet)")
                };
                format!(
                    "CREATE VIEW {table} AS SELECT *, extract(_path, 'host=([^/]+)') AS host FROM {from} \
                     SETTINGS use_hive_partitioning = 0"
                )
            }
            // `month` and `host` come from the folders, as texts.
            Engine::Spark => {
                let from = place.replacen("s3://", "s3a://", 1);
                format!(
                    "CREATE OR REPLACE TEMPORARY VIEW {table} USING parquet OPTIONS (path '{from}/table={table}')"
                )
            }
        }
    };
    let mut all = Vec::new();
    match engine {
        Engine::DuckDb => {}
        Engine::ClickHouse => {
            all.push("CREATE DATABASE IF NOT EXISTS lake ENGINE = Atomic".to_owned());
            all.push("USE lake".to_owned());
            // Cells without a value are null, as the standard says.
            all.push("SET join_use_nulls = 1".to_owned());
        }
        Engine::Spark => {
            all.push("SET spark.sql.sources.partitionColumnTypeInference.enabled=false".to_owned());
        }
    }
    all.extend(TABLES.map(view));
    let own = if engine == Engine::Spark { "CREATE OR REPLACE TEMPORARY VIEW" } else { "CREATE VIEW" };
    all.push(bare(VIEWS).replacen("CREATE VIEW", own, 1));
    all.push(bare(question));
    Ok(all)
}

/// What an engine answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rows {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// A value of each column, of each row.
    pub rows: Vec<Vec<serde_json::Value>>,
}

/// What runs the statements in the engine.
const RUNNER: &str = include_str!("../engine.py");
/// Names the Python that has the engines.
const PYTHON: &str = "WHYLATE_QUERY_PYTHON";
/// Exit code of [`RUNNER`] without the engine.
const NOT_INSTALLED: i32 = 69;

/// Runs statements in the engine that is installed, as a module of Python.
///
/// # Errors
/// [`FarmError::NoEngine`] where it is not installed, [`FarmError::NoPython`] where Python is not, [`FarmError::Engine`] with what it says.
pub fn ask(engine: Engine, statements: &[String]) -> Result<Rows, FarmError> {
    match std::env::var(PYTHON) {
        Ok(python) => ask_python(&python, &format!("{PYTHON}={python}"), engine, statements),
        Err(_) => ask_python("python3", "python3", engine, statements),
    }
}

/// Runs statements with a Python; `named` is how it was named.
fn ask_python(python: &str, named: &str, engine: Engine, statements: &[String]) -> Result<Rows, FarmError> {
    let failed = |what: String| FarmError::Engine(engine.name(), what);
    let spawned = Command::new(python)
        .args(["-c", RUNNER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut running = spawned.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => FarmError::NoPython(named.to_owned()),
        _ => failed(format!("{named}: {error}")),
    })?;
    let document = serde_json::json!({ "engine": engine.name(), "statements": statements });
    if let Some(mut input) = running.stdin.take() {
        // One that has ended says why itself.
        let _ = input.write_all(document.to_string().as_bytes());
    }
    let output = running.wait_with_output().map_err(|error| failed(error.to_string()))?;
    match output.status.code() {
        Some(0) => serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string())),
        Some(NOT_INSTALLED) => Err(FarmError::NoEngine(engine.name(), engine.module(), python.to_owned())),
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            let mut lines = said.lines().filter(|line| !line.trim().is_empty());
            let error = lines.clone().find(|line| line.contains("Error") || line.contains("Exception"));
            Err(failed(error.or_else(|| lines.next_back()).unwrap_or("it ended without a word").to_owned()))
        }
    }
}

impl Engine {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DuckDb => "duckdb",
            Self::ClickHouse => "clickhouse",
            Self::Spark => "spark",
        }
    }

    /// The module of Python that it is in.
    const fn module(self) -> &'static str {
        match self {
            Self::DuckDb => "duckdb",
            Self::ClickHouse => "chdb",
            Self::Spark => "pyspark",
        }
    }
}

/// A statement without the lines of comments around it and its last semicolon.
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
    fn a_python_that_is_not_there_is_named() {
        let said = ask_python("/nonexistent/python", "PYTHON=/nonexistent/python", Engine::DuckDb, &[]);
        let error = said.unwrap_err();
        assert!(error.is_unavailable(), "{error}");
        assert!(error.to_string().starts_with("PYTHON=/nonexistent/python: there is no such"), "{error}");
    }

    #[test]
    fn statements_name_the_lake_and_end_with_the_question() {
        let all = statements(Engine::DuckDb, "file:///srv/lake/", "-- why\nSELECT 1;\n").unwrap();
        assert!(all[0].contains("'/srv/lake/table=runs/*/*/*.parquet'"), "{}", all[0]);
        assert_eq!(all.last().unwrap(), "SELECT 1");
        let spark = statements(Engine::Spark, "s3://b/farm", "SELECT 1").unwrap();
        assert!(spark[1].contains("'s3a://b/farm/table=runs'"), "{}", spark[1]);
        assert!(statements(Engine::DuckDb, "/a'b", "SELECT 1").is_err());
        assert!(statements(Engine::ClickHouse, "gs://b/farm", "SELECT 1").is_err());
    }
}
