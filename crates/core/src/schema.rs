//! JSON Schemas of the plan and of every JSON output.

use crate::plan::Plan;
use crate::result::{LoadResult, MeasureResult, RunResult};
use schemars::{Schema, schema_for};

/// The names that [`schema`] knows.
pub const NAMES: [&str; 4] = ["plan", "measure", "run", "load"];

/// The schema of that name: `plan` describes the TOML file, the others what `--json` prints.
pub fn schema(name: &str) -> Option<Schema> {
    match name {
        "plan" => Some(schema_for!(Plan)),
        "measure" => Some(schema_for!(MeasureResult)),
        "run" => Some(schema_for!(RunResult)),
        "load" => Some(schema_for!(LoadResult)),
        _ => None,
    }
}
