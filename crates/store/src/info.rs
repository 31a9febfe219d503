//! `run.json`: what a run is and how far it has come.

use crate::error::{At as _, StoreError};
use crate::folder::{Folder, PARSED_MAX};
use crate::manifest::sha256;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use whylate_core::moment::utc_text;
use whylate_core::result::{CopyTable, CpuTableAt, FixRegistration, RunEnd, RunMessage, RunState};
use whylate_core::{Facts, Plan, Warning};

/// `format` of [`RunInfo`].
pub const RUN_DIRECTORY_FORMAT: &str = "whylate.run-directory/1";

/// What a run directory is known by.
pub const INFO_FILE: &str = "run.json";

/// The content of `run.json`.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// [`RUN_DIRECTORY_FORMAT`].
    pub format: String,
    /// Identifies the run in the `run` column of every table: unique among runs that are read together.
    pub run: String,
    /// Version of whylate that began the run.
    pub whylate_version: String,
    /// Whether the run has a manifest; runs of earlier versions have none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub manifest: bool,
    /// When it began: RFC 3339, UTC.
    pub started_at: String,
    /// How far it came. `running` means that the run was killed if no process is writing to it.
    pub state: RunState,
    /// Why it is incomplete.
    pub error: Option<String>,
    /// How it ended; absent while it runs, if it was killed, and in runs of earlier versions.
    pub end: Option<RunEnd>,
    /// Whether everything that the run changed was restored; absent until that is known. With treatments, also whether the
    /// machine's settings after the run equal those before it.
    pub restored: Option<bool>,
    /// The gap length from which the noise-floor check counts; absent if the plan has no such check.
    pub noise_floor_threshold_ns: Option<u64>,
    /// The seed of the order of repeats.
    #[serde(default)]
    pub seed: u64,
    /// The plan, with every default filled in.
    pub plan: Plan,
    /// Whether this is the plan's short form (`run --short`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub short: bool,
    /// The machine, before the first cell.
    pub facts: Facts,
    /// What was not measured, or measured less well.
    #[serde(default)]
    pub warnings: Vec<Warning>,
    /// The table of copies, once it is measured.
    pub copies: Option<CopyTable>,
    /// The rules of the search (`whylate fix`); absent for an experiment.
    pub fix: Option<FixRegistration>,
    /// The CPU tables of a run with a shield.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_tables: Vec<CpuTableAt>,
    /// Messages of the kernel's log about latency during the run, in the order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel_log: Vec<RunMessage>,
    /// The cells, in the plan's order.
    pub cells: Vec<CellInfo>,
    /// Every repeat of a cell that has begun, oldest first.
    #[serde(default)]
    pub executions: Vec<Execution>,
}

/// One cell of the run.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellInfo {
    /// Its name; unique in the run.
    pub name: String,
    #[serde(default)]
    pub loads: Vec<String>,
    #[serde(default)]
    pub treatments: Vec<String>,
    /// Why it cannot run on this machine; absent if it can.
    pub skipped: Option<String>,
}

/// One attempt at one repeat of one cell.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    pub cell: String,
    /// Number of the repeat, from 1.
    pub repeat: u32,
    /// Number of the attempt, from 1; a resumed run repeats what did not complete. Only the newest counts.
    pub attempt: u32,
    /// The block of slots in which it ran, from 0; its order was drawn within it.
    #[serde(default)]
    pub block: u32,
    pub state: ExecutionState,
    pub error: Option<String>,
    /// Whether it says nothing about the machine (a CPU went offline, whylate was stopped): its rows are kept but do
    /// not count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub void: bool,
}

/// How far an [`Execution`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionState {
    /// Has begun; if no process is writing, it was cut off.
    Running,
    Done,
    Failed,
}

impl RunInfo {
    /// A run that starts now: every cell of the plan, none executed yet.
    pub fn new(run: impl Into<String>, started_at: SystemTime, plan: Plan, facts: Facts) -> Self {
        let cells = plan.cell.iter().map(|cell| CellInfo {
            name: cell.name(),
            loads: cell.loads.clone(),
            treatments: cell.treatments.clone(),
            skipped: None,
        });
        Self {
            format: RUN_DIRECTORY_FORMAT.to_owned(),
            run: run.into(),
            whylate_version: env!("CARGO_PKG_VERSION").to_owned(),
            manifest: true,
            started_at: utc_text(started_at),
            state: RunState::Running,
            error: None,
            end: None,
            restored: None,
            noise_floor_threshold_ns: None,
            seed: 0,
            copies: None,
            fix: None,
            cpu_tables: Vec::new(),
            kernel_log: Vec::new(),
            cells: cells.collect(),
            plan,
            short: false,
            facts,
            warnings: Vec::new(),
            executions: Vec::new(),
        }
    }

    /// The newest attempt at a repeat of a cell; `None` when it was never begun.
    pub fn newest_execution(&self, cell: &str, repeat: u32) -> Option<&Execution> {
        let same = self.executions.iter().filter(|it| it.cell == cell && it.repeat == repeat);
        same.max_by_key(|execution| execution.attempt)
    }

    /// Repeats of a cell: the planned ones, or in a search the measured ones.
    pub fn repeats_of(&self, cell: &str) -> u32 {
        if self.fix.is_none() {
            return self.plan.repeats;
        }
        let of_cell = self.executions.iter().filter(|it| it.cell == cell);
        of_cell.map(|execution| execution.repeat).max().unwrap_or(0)
    }

    /// Whether every repeat of every cell that can run is done.
    pub fn is_complete(&self) -> bool {
        self.each_repeat(|state| state == ExecutionState::Done)
    }

    /// Whether `holds` is true for the newest attempt of every repeat of every cell that can run.
    pub(crate) fn each_repeat(&self, holds: impl Fn(ExecutionState) -> bool) -> bool {
        let is_so =
            |cell: &str, repeat| self.newest_execution(cell, repeat).is_some_and(|it| holds(it.state));
        let mut cells = self.cells.iter().filter(|cell| cell.skipped.is_none());
        cells.all(|cell| (1..=self.repeats_of(&cell.name)).all(|repeat| is_so(&cell.name, repeat)))
    }

    /// Reads `run.json`; also returns the file's SHA-256.
    pub(crate) fn read(run: &Folder) -> Result<(Self, String), StoreError> {
        let file = run.path().join(INFO_FILE);
        let text = run.read_up_to(INFO_FILE, PARSED_MAX).at("read", &file)?;
        let text = text.ok_or_else(|| StoreError::NotARun(run.path().to_owned()))?;
        let bad = |source| StoreError::BadInfo(file.clone(), source);
        // Checks the format first: another one may have other fields.
        let Format { format } = serde_json::from_slice(&text).map_err(bad)?;
        if format != RUN_DIRECTORY_FORMAT {
            return Err(StoreError::UnknownFormat(file, format));
        }
        Ok((serde_json::from_slice(&text).map_err(bad)?, sha256(&[&text])))
    }
}

#[derive(Deserialize)]
struct Format {
    format: String,
}

/// A JSON document that people can read too; `path` is its destination.
pub(crate) fn to_json(path: &Path, document: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    let mut text = serde_json::to_vec_pretty(document)
        .map_err(|error| StoreError::Encode(path.to_owned(), error.to_string()))?;
    text.push(b'\n');
    Ok(text)
}

/// A folder of the user: the one in the variable `named`, otherwise `below` in the folder `home`; `None` without
/// either. Empty and relative values count as unset, as the XDG base directory specification says.
pub fn user_folder(named: Option<&Path>, home: Option<&Path>, below: &str) -> Option<PathBuf> {
    let absolute = |path: &&Path| path.is_absolute();
    named.filter(absolute).map(Path::to_owned).or_else(|| Some(home.filter(absolute)?.join(below)))
}

/// The folder of a run without `-o`: `whylate/runs/<time>-<plan>` in `data_home` (`$XDG_DATA_HOME`), otherwise in
/// `.local/share` of `home` (`$HOME`); `None` without either.
pub fn default_path(
    data_home: Option<&Path>,
    home: Option<&Path>,
    started_at: SystemTime,
    plan: &str,
) -> Option<PathBuf> {
    let base = user_folder(data_home, home, ".local/share")?;
    let time = utc_text(started_at).replace(':', "").replace('T', "-").replace('Z', "");
    Some(base.join("whylate/runs").join(format!("{time}-{plan}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn runs_go_to_the_data_home() {
        let moment = UNIX_EPOCH + Duration::from_secs(1_795_251_749);
        let place = |data, home| {
            default_path(Option::map(data, Path::new), Option::map(home, Path::new), moment, "quick")
        };
        let expected = |base: &str| Some(Path::new(base).join("whylate/runs/2026-11-21-090229-quick"));
        assert_eq!(place(Some("/data"), Some("/home/a")), expected("/data"));
        assert_eq!(place(None, Some("/home/a")), expected("/home/a/.local/share"));
        assert_eq!(place(Some("not/absolute"), Some("/home/a")), expected("/home/a/.local/share"));
        assert_eq!(place(Some(""), None), None);
    }
}
