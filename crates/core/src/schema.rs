//! JSON Schemas of the plan and of every JSON output.

use crate::plan::Plan;
use crate::result::{CheckResult, CpuTable, LoadResult, MeasureResult, PlanList, RunResult, TreatResult};
use schemars::{Schema, schema_for};

/// The names that [`schema`] knows.
pub const NAMES: [&str; 8] = ["plan", "measure", "run", "load", "plans", "treat", "cpus", "check"];

/// The schema of that name: `plan` describes the TOML file, the others what `--json` prints.
pub fn schema(name: &str) -> Option<Schema> {
    match name {
        "plan" => Some(schema_for!(Plan)),
        "measure" => Some(schema_for!(MeasureResult)),
        "run" => Some(schema_for!(RunResult)),
        "plans" => Some(schema_for!(PlanList)),
        "treat" => Some(schema_for!(TreatResult)),
        "load" => Some(schema_for!(LoadResult)),
        "check" => Some(schema_for!(CheckResult)),
        "cpus" => Some(schema_for!(CpuTable)),
        _ => None,
    }
}
