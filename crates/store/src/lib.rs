//! The run directory: what a run leaves on disk, and how it is read back.
//!
//! A run directory holds `run.json` (plan, facts, state), one folder per table with closed Parquet segments,
//! `traces/`, `loads/` (output of commands) and `result.json`. A killed run or a power cut loses at most one stored
//! interval, and everything before it reads normally. `docs/FORMAT.md` is the schema for others.
//!
//! In: records of probes and loads. Out: the same records, and with [`assemble`] the result of the run. Nothing here
//! measures, computes statistics or looks at the machine.

mod assemble;
mod check;
mod coarse;
mod damage;
mod directory;
mod error;
mod fix;
mod folder;
mod info;
mod kept;
mod lake;
mod latency_records;
mod list;
mod manifest;
mod reader;
mod segment;
mod tables;
mod traces;
mod verdicts;

pub use assemble::{MeasuredCell, Memory, assemble, assemble_newest};
pub use coarse::Keeping;
pub use damage::Damage;
pub use directory::{RunDirectory, is_being_written};
pub use error::StoreError;
pub use fix::fix_steps;
pub use folder::{Folder, Found, Owners, file_bytes_max};
pub use info::{
    CellInfo, Execution, ExecutionState, INFO_FILE, RUN_DIRECTORY_FORMAT, RunInfo, default_path, user_folder,
};
pub use lake::{LakeTable, LakeWords, check_lake_table, lake_tables};
pub use list::{Labels, RunList, foreign_runs, is_run, list, newest, remove, require_run};
pub use manifest::Part;
pub use reader::{Reader, Segment};
pub use tables::{FLUSH_BYTES, NOISE_FLOOR, RateKey, RowKey, Rows, Sink, Span, Spanned};
pub use traces::kept_traces;
pub use verdicts::VerdictCache;
