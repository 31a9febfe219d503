//! What a lake shows of many machines: its boards with their newest runs, and two groups of runs over all boards.

use super::{Outcome, Verdict};
use serde::Serialize;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct FarmBoard {
    /// The machine's name; a lake that others write to may hold any text.
    pub host: String,
    /// Every series, or one series of each plan: the one that was latest in the plan's newest run.
    pub series: Vec<FarmSeries>,
}

impl FarmBoard {
    /// Whether it has an alarm, or a newest run that failed or is not what was asked for.
    pub fn needs_attention(&self) -> bool {
        let is_bad = |run: &FarmRun| {
            matches!(run.verdict, Some(Verdict::Fail | Verdict::Incomplete)) || !run.mismatches.is_empty()
        };
        self.series.iter().any(|series| !series.alarms.is_empty() || series.runs.last().is_some_and(is_bad))
    }
}

/// One cell and probe of a plan on one machine, over its runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FarmSeries {
    pub plan: String,
    /// The cell; empty if no run has a figure.
    pub cell: String,
    /// The probe; empty if no run has a figure.
    pub probe: String,
    /// The oldest first.
    pub runs: Vec<FarmRun>,
    /// What is wrong with the plan on this machine now.
    pub alarms: Vec<FarmAlarm>,
    /// No quantiles of this series count missed periods: an earlier version pushed at least one run, and this run has
    /// only such quantiles.
    pub leaves_missed_out: bool,
    /// The runs from which limits are learnt; absent if the answer does not say.
    pub teaching_runs: Option<u64>,
}

impl FarmSeries {
    /// The number of such runs with which a board gets its first limit.
    pub const RUNS_TO_LIMIT: u64 = 14;

    /// What a board without a limit of its own still needs: it can have no alarm about its level.
    pub fn without_limit(&self) -> Option<String> {
        let runs = self.teaching_runs.filter(|runs| *runs < Self::RUNS_TO_LIMIT)?;
        Some(format!("no learnt limit yet: {runs} of {} needed runs", Self::RUNS_TO_LIMIT))
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct FarmRun {
    pub name: String,
    /// When it began: RFC 3339, UTC.
    pub started_at: String,
    /// When it began, in seconds since 1970.
    pub started_s: u64,
    pub kernel: String,
    pub machine: String,
    pub verdict: Option<Verdict>,
    /// Requested conditions that the machine does not meet.
    pub mismatches: String,
    /// Why it has its verdict; empty in a list of all boards.
    pub reason: String,
    /// What the farm file says of the machine: a list of `KEY=VALUE`.
    pub labels: Vec<String>,
    pub limit_ns: Option<u64>,
    /// The largest latency in any cell.
    pub max_ns: Option<u64>,
    /// The [`FarmRun::QUANTILES`] of the series, of the CPU with the largest; missed periods count, unless
    /// [`FarmSeries::leaves_missed_out`].
    pub quantiles_ns: [Option<u64>; 4],
}

impl FarmRun {
    /// The names of the quantiles, as plans write them.
    pub const QUANTILES: [&'static str; 4] = ["p50", "p99", "p99.9", "p99.99"];
}

/// Something that is wrong with a machine: a row of the question `alarms`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FarmAlarm {
    /// `limit`, `level`, `regression`, `silent`, `incomplete`, `probe` or `exposure`.
    pub kind: String,
    pub what: String,
    /// What was measured, in the unit of the kind.
    pub measured: Option<f64>,
    pub allowed: Option<f64>,
}

/// What two groups of runs show for one cell and probe of a plan, with the machine as the unit.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FarmComparison {
    pub plan: String,
    pub cell: String,
    pub probe: String,
    /// What the data show for the ratio.
    pub outcome: Outcome,
    /// Ratio of the second group to the first: the geometric mean over machines.
    pub ratio: f64,
    /// The lower end of its 95 % interval; absent with one machine.
    #[serialize_always]
    pub ratio_low: Option<f64>,
    #[serialize_always]
    pub ratio_high: Option<f64>,
    /// The p value of "no difference", corrected for the number of comparisons.
    pub p_value: f64,
    /// The part of the spread between machines that the spread of their runs does not explain, from 0 to 1.
    pub heterogeneity: f64,
    /// Factor by which a typical machine's ratio differs from the ratio of all, without the spread of runs.
    pub spread: f64,
    /// Each machine that has enough runs of both groups.
    pub boards: Vec<FarmEffect>,
    pub left_out: Vec<String>,
    /// Whether there are too few machines to find one that differs; `disagrees` is then false for all of them.
    pub too_few_boards: bool,
    /// Whether the figures leave out missed periods, because an earlier version stored some of the runs without counting them.
    pub leaves_missed_out: bool,
    /// The numbers of machines in the two groups; absent if each machine is compared with itself.
    pub apart: Option<(usize, usize)>,
}

impl FarmComparison {
    /// With fewer machines the others show too little of how much machines differ: one of four is only distinguished if it is
    /// ten times their spread away.
    pub const BOARDS_MIN: usize = 5;
}

/// What one machine shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FarmEffect {
    pub host: String,
    pub runs: [usize; 2],
    /// Ratio of the second group to the first.
    pub ratio: f64,
    /// The lower end of the ratio's 95 % interval, from this machine's runs.
    pub ratio_low: f64,
    pub ratio_high: f64,
    /// Whether this machine differs from the other machines.
    pub disagrees: bool,
}
