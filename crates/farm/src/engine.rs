//! SQL engines: Python modules that run in a separate process.

use crate::error::{At as _, FarmError};
use crate::lake::Damaged;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    DuckDb,
    Spark,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AnswerRows {
    pub columns: Vec<String>,
    /// A value for each column of each row.
    pub rows: Vec<Vec<Value>>,
    /// The objects that the answer lacks: it does not cover the whole lake.
    #[serde(default)]
    pub damaged: Vec<Damaged>,
}

impl AnswerRows {
    /// The values of each row by column name.
    pub(crate) fn by_name(&self) -> impl Iterator<Item = AnswerRow<'_>> {
        self.rows.iter().map(|values| AnswerRow { columns: &self.columns, values })
    }
}

/// A row; a missing column has no value.
#[derive(Clone, Copy)]
pub(crate) struct AnswerRow<'r> {
    columns: &'r [String],
    values: &'r [Value],
}

impl AnswerRow<'_> {
    fn value(&self, column: &str) -> Option<&Value> {
        self.values.get(self.columns.iter().position(|name| name == column)?)
    }

    /// A text; empty if there is none.
    pub(crate) fn text(&self, column: &str) -> String {
        self.value(column).and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    pub(crate) fn words(&self, column: &str) -> Vec<String> {
        self.text(column).split_whitespace().map(str::to_owned).collect()
    }

    pub(crate) fn number(&self, column: &str) -> Option<f64> {
        self.value(column)?.as_f64()
    }

    /// A number of at least 0, without its fraction.
    pub(crate) fn count(&self, column: &str) -> Option<u64> {
        let value = self.value(column)?;
        value.as_u64().or_else(|| value.as_f64().filter(|it| *it >= 0.0).map(|it| it as u64))
    }
}

/// The program that runs the statements in the engine.
const RUNNER: &str = include_str!("../engine.py");
/// Names a Python that has the engines.
const PYTHON: &str = "WHYLATE_QUERY_PYTHON";
/// Exit code of [`RUNNER`] without the engine.
const NOT_INSTALLED: i32 = 69;

/// How often whylate checks whether an engine has ended.
const LOOK: Duration = Duration::from_millis(10);
/// Ctrl-C also reaches the engine, which then deletes its own files.
const GRACE: Duration = Duration::from_secs(2);

/// How long to wait for an answer.
#[derive(Clone, Debug, Default)]
pub struct Wait {
    /// The engine is ended after this time.
    pub limit: Option<Duration>,
    /// Set when the answer is no longer wanted.
    pub stop: Arc<AtomicBool>,
}

impl Wait {
    pub(crate) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Answers questions, each a list of statements, in the installed engine, a Python module: all in one process.
///
/// # Errors
/// [`FarmError::NoEngine`] if it is not installed, [`FarmError::NoPython`] if Python is not, [`FarmError::TooLong`],
/// [`FarmError::Stopped`], and [`FarmError::Engine`] with the engine's message.
pub fn ask(engine: Engine, questions: &[Vec<String>], wait: &Wait) -> Result<Vec<AnswerRows>, FarmError> {
    match std::env::var(PYTHON) {
        Ok(python) => ask_python(&python, &format!("{PYTHON}={python}"), engine, questions, wait),
        Err(_) => ask_python("python3", "python3", engine, questions, wait),
    }
}

/// Answers questions with a Python; `named` is the name that the user gave it.
fn ask_python(
    python: &str,
    named: &str,
    engine: Engine,
    questions: &[Vec<String>],
    wait: &Wait,
) -> Result<Vec<AnswerRows>, FarmError> {
    let failed = |what: String| FarmError::Engine(engine.name(), what);
    let document = serde_json::json!({ "engine": engine.name(), "questions": questions }).to_string();
    // Files: unlike a pipe, a file cannot fill up, and processes that the engine leaves behind cannot keep one open.
    let files = || -> io::Result<[File; 3]> {
        let mut input = tempfile::tempfile()?;
        input.write_all(document.as_bytes())?;
        input.rewind()?;
        Ok([input, tempfile::tempfile()?, tempfile::tempfile()?])
    };
    let [input, mut output, mut errors] = files().at("create", std::env::temp_dir())?;
    let copy = |file: &File| file.try_clone().at("open", std::env::temp_dir());
    let spawned = Command::new(python)
        .args(["-c", RUNNER])
        .stdin(input)
        .stdout(copy(&output)?)
        .stderr(copy(&errors)?)
        .spawn();
    let mut running = spawned.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => FarmError::NoPython(named.to_owned()),
        _ => failed(format!("{named}: {error}")),
    })?;
    let ended = end_of(&mut running, wait).map_err(|error| failed(error.to_string()))?;
    let status = match ended {
        _ if wait.is_over() => return Err(FarmError::Stopped(engine.name())),
        None => return Err(FarmError::TooLong(engine.name(), wait.limit.unwrap_or_default().as_secs())),
        Some(status) => status,
    };
    match status.code() {
        Some(0) => serde_json::from_slice(&all_of(&mut output)).map_err(|error| failed(error.to_string())),
        Some(NOT_INSTALLED) => Err(FarmError::NoEngine(engine.name(), engine.module(), python.to_owned())),
        _ => {
            let said = all_of(&mut errors);
            let said = String::from_utf8_lossy(&said);
            let mut lines = said.lines().filter(|line| !line.trim().is_empty());
            let error = lines.clone().find(|line| line.contains("Error") || line.contains("Exception"));
            Err(failed(
                error.or_else(|| lines.next_back()).unwrap_or("the engine gave no message").to_owned(),
            ))
        }
    }
}

/// How a process ended; `None` if whylate ended it.
fn end_of(running: &mut Child, wait: &Wait) -> io::Result<Option<ExitStatus>> {
    let mut left = wait.limit.unwrap_or(Duration::MAX);
    let mut since = Instant::now();
    let mut is_over = false;
    while since.elapsed() < left {
        if let Some(status) = running.try_wait()? {
            return Ok(Some(status));
        }
        if wait.is_over() && !is_over {
            (is_over, left, since) = (true, GRACE, Instant::now());
        }
        std::thread::sleep(LOOK);
    }
    running.kill()?;
    running.wait().map(|_| None)
}

/// The content of a file; empty if it cannot be read.
fn all_of(file: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    read.map_or_else(|_| Vec::new(), |_| bytes)
}

impl Engine {
    pub const fn name(self) -> &'static str {
        match self {
            Self::DuckDb => "duckdb",
            Self::Spark => "spark",
        }
    }

    /// Its Python module.
    const fn module(self) -> &'static str {
        match self {
            Self::DuckDb => "duckdb",
            Self::Spark => "pyspark",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};
    use std::sync::{Mutex, MutexGuard, PoisonError};
    use whylate_testing::says;

    /// A program that is being written cannot be run, not even by a process that another test is about to start.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn a_python_that_is_not_there_is_named() {
        let _alone = alone();
        let said = ask_python(
            "/nonexistent/python",
            "PYTHON=/nonexistent/python",
            Engine::DuckDb,
            &[],
            &Wait::default(),
        );
        let error = said.unwrap_err();
        assert!(error.is_unavailable(), "{error}");
        assert!(says("python-nonexistent-python-there", error.to_string()), "{error}");
    }

    /// A shell script in that folder that stands in for Python.
    fn python(folder: &Path, script: &str) -> PathBuf {
        let program = folder.join("python");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        program
    }

    #[test]
    fn an_engine_s_own_output_is_not_part_of_its_answer() {
        let _alone = alone();
        const ENGINE: &str = "import os\nclass Found:\n    description = [('n',)]\n    fetchall = lambda self: [(1,)]\n\
            class Connection:\n    def execute(self, statement):\n        os.write(1, b'\\r 71% of it')\n        \
            print('done')\n        return Found()\nconnect = Connection\n";
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("duckdb.py"), ENGINE).unwrap();
        let script = format!("PYTHONPATH='{}' exec python3 \"$@\"", folder.path().display());
        let program = python(folder.path(), &script);
        let question = [vec!["SELECT 1".to_owned()]];
        match ask_python(program.to_str().unwrap(), "python", Engine::DuckDb, &question, &Wait::default()) {
            Ok(found) => {
                assert_eq!(found.len(), 1);
                assert_eq!(
                    (&found[0].columns, &found[0].rows),
                    (&vec!["n".to_owned()], &vec![vec![1.into()]])
                );
            }
            // A machine without Python.
            Err(FarmError::Engine(_, said)) => assert!(said.contains("python3"), "{said}"),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn an_engine_that_takes_too_long_or_is_no_longer_wanted_is_ended() {
        let _alone = alone();
        // It reads nothing and never ends by itself.
        let folder = tempfile::tempdir().unwrap();
        let program = python(folder.path(), "exec sleep 3600");
        let question = [vec!["SELECT 1".repeat(100_000)]];
        let asks =
            |wait: &Wait| ask_python(program.to_str().unwrap(), "python", Engine::DuckDb, &question, wait);
        let mut wait = Wait { limit: Some(Duration::from_millis(100)), ..Wait::default() };
        let said = asks(&wait);
        assert!(matches!(said, Err(FarmError::TooLong("duckdb", 0))), "{said:?}");
        wait.limit = None;
        wait.stop.store(true, Ordering::Relaxed);
        let said = asks(&wait);
        assert!(matches!(said, Err(FarmError::Stopped("duckdb"))), "{said:?}");
    }
}
