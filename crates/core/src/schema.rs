//! JSON Schemas of the plan and of every JSON output.

use crate::plan::{Plan, without_flags};
use crate::result::{
    BisectResult, CheckResult, CompareResult, CopyResult, CpuTable, ExplainResult, FixResult,
    HistogramsResult, LoadResult, MeasureResult, PlanList, PreviewResult, RecordingResult, RunResult,
    RunsResult, TopResult, TracingResult, TreatResult,
};
use schemars::{Schema, schema_for};

/// The names that [`schema`] knows.
pub const NAMES: [&str; 19] = [
    "plan",
    "measure",
    "run",
    "load",
    "plans",
    "preview",
    "treat",
    "explain",
    "cpus",
    "check",
    "recording",
    "histograms",
    "tracing",
    "compare",
    "runs",
    "copy",
    "fix",
    "bisect",
    "top",
];

/// The schema of that name: `plan` describes the TOML file, the others what `--json` prints.
pub fn schema(name: &str) -> Option<Schema> {
    let mut schema = of_name(name)?;
    without_flags(&mut schema);
    Some(schema)
}

fn of_name(name: &str) -> Option<Schema> {
    match name {
        "plan" => Some(schema_for!(Plan)),
        "measure" => Some(schema_for!(MeasureResult)),
        "run" => Some(schema_for!(RunResult)),
        "plans" => Some(schema_for!(PlanList)),
        "preview" => Some(schema_for!(PreviewResult)),
        "treat" => Some(schema_for!(TreatResult)),
        "load" => Some(schema_for!(LoadResult)),
        "explain" => Some(schema_for!(ExplainResult)),
        "check" => Some(schema_for!(CheckResult)),
        "cpus" => Some(schema_for!(CpuTable)),
        "recording" => Some(schema_for!(RecordingResult)),
        "histograms" => Some(schema_for!(HistogramsResult)),
        "compare" => Some(schema_for!(CompareResult)),
        "runs" => Some(schema_for!(RunsResult)),
        "copy" => Some(schema_for!(CopyResult)),
        "fix" => Some(schema_for!(FixResult)),
        "bisect" => Some(schema_for!(BisectResult)),
        "top" => Some(schema_for!(TopResult)),
        "tracing" => Some(schema_for!(TracingResult)),
        _ => None,
    }
}
