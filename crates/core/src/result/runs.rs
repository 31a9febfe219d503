//! What `whylate runs --json` prints.

use super::{CpuResult, ProbeResult, RunResult, RunState, Verdict};
use crate::SeriesName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `format` of [`RunsResult`].
pub const RUNS_FORMAT: &str = "whylate.runs/1";

/// Fewer runs cannot show a change at the usual evidence.
pub const RUNS_MIN: usize = 8;

/// The runs of a folder.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunsResult {
    /// [`RUNS_FORMAT`].
    pub format: String,
    /// The folder.
    pub folder: String,
    /// The runs, newest first.
    pub runs: Vec<RunSummary>,
    /// The trend of a statistic over these runs, if requested.
    pub series: Option<RunSeries>,
}

/// A statistic of one cell over runs of one plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunSeries {
    /// The plan.
    pub plan: String,
    /// The cell.
    pub cell: String,
    /// The statistic: `timer p99.9`.
    pub statistic: String,
    /// The values, oldest first; runs without the value are left out.
    pub points: Vec<RunPoint>,
    /// The changes, oldest first.
    pub changes: Vec<RunChange>,
    /// Median of each part between changes; there is one more part than changes.
    #[serde(default)]
    pub levels: Vec<f64>,
}

/// The statistic of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunPoint {
    /// The run's directory.
    pub path: String,
    /// When the run began: RFC 3339, UTC.
    pub started_at: String,
    /// The kernel's release.
    pub kernel: String,
    /// Words that the user gave the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The median over its repeats, for the worst CPU, in the unit of the statistic.
    pub value: f64,
}

/// A change between two runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunChange {
    /// The first point after the change, from 0.
    pub point: usize,
    /// The probability that a series without a change looks like this.
    pub p_value: f64,
    /// Median after the change divided by the median before.
    pub ratio: f64,
}

/// One run in a list.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunSummary {
    /// The run's directory.
    pub path: String,
    /// The run's plan.
    pub plan: String,
    /// When the run began: RFC 3339, UTC.
    pub started_at: String,
    /// How far the run came.
    pub state: RunState,
    /// Whether the run is still running; a run without an end that is not running was killed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub running: bool,
    /// The verdict against the run's limit; absent if the run has no result.
    pub verdict: Option<Verdict>,
    /// The run's largest figures; absent if the run has no samples.
    pub figures: Option<RunFigures>,
    /// The machine.
    pub host: String,
    /// The kernel's release.
    pub kernel: String,
    /// Words that the user gave the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// A note that the user gave the run.
    pub note: Option<String>,
}

/// Figures of the run's deciding series, on the worst CPU in the worst cell.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunFigures {
    /// `timer`, `roundtrip/futex`.
    pub series: String,
    /// The largest latency of all repeats.
    pub max_ns: u64,
    /// The 0.99 quantile of all repeats together; absent if only the largest latency is known.
    pub p99_ns: Option<u64>,
    /// The limit that the verdict is about.
    pub limit_ns: Option<u64>,
}

impl RunFigures {
    /// `None` where nothing was measured.
    pub fn of(run: &RunResult) -> Option<Self> {
        let all = || run.cells.iter().flat_map(|cell| &cell.probes).flat_map(of_probe);
        let decides = run.plan.primary_statistic().map(|primary| primary.series);
        let series = decides.filter(|series| all().any(|(name, _)| name == *series));
        let series = series.or_else(|| all().next().map(|(name, _)| name))?;
        let cpus = || all().filter(|(name, _)| *name == series).map(|(_, cpu)| cpu);
        Some(Self {
            max_ns: cpus().filter_map(CpuResult::judged_max_ns).max()?,
            p99_ns: cpus().filter_map(|cpu| Some(cpu.judged_quantiles()?.p99_ns)).max(),
            limit_ns: run.plan.limit.map(|limit| limit.0),
            series,
        })
    }
}

fn of_probe(probe: &ProbeResult) -> impl Iterator<Item = (String, &CpuResult)> {
    let name = |cpu: &CpuResult| SeriesName::in_probe(&probe.probe, cpu.series.as_deref()).to_string();
    probe.cpus.iter().map(move |cpu| (name(cpu), cpu))
}
