//! What a plan asks: the statistic that decides, the order of the slots, and the questions with their contrasts.

use super::{CellPlan, Chain, ChainPlan, Judged, Per, ProbeFacts, ProbePlan, TaskPlan};
use crate::order::InOrder;
use crate::plan::Plan;
use crate::units::{Nanos, as_text};
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

words! {
    /// A statistic of one repeat.
    pub enum Statistic: "a statistic" {
        /// The median.
        Median = "p50" | "median",
        /// The 0.99 quantile.
        P99 = "p99",
        /// The 0.999 quantile.
        P999 = "p99.9" | "p999",
        /// The 0.9999 quantile.
        P9999 = "p99.99" | "p9999",
        /// The largest sample.
        Max = "max" | "maximum",
        /// Gaps above the threshold, as a share of the time.
        LostShare = "lost_share" | "lost",
        /// Gaps above the threshold, per second.
        GapRate = "gaps_per_s" | "gaps",
        /// Samples above the limit (100 us without one), per hour.
        SpikeRate = "spikes_per_h" | "spikes",
        /// Triggers of watched tasks per hour.
        TriggerRate = "triggers_per_h" | "triggers",
        /// The 0.99 quantile of the machine's own latency: without the time that the hypervisor or the firmware took.
        OwnP99 = "own_p99" | "own p99",
        /// The 0.999 quantile of the machine's own latency.
        OwnP999 = "own_p99.9" | "own p99.9",
        /// The largest sample of the machine's own latency.
        OwnMax = "own_max" | "own max",
    }
}

impl Statistic {
    /// Unit of its values in results.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::LostShare => "share",
            Self::GapRate => "per_s",
            Self::SpikeRate | Self::TriggerRate => "per_h",
            _ => "ns",
        }
    }

    /// Whether it is of the machine's own latency, which needs causes.
    pub const fn is_own(self) -> bool {
        matches!(self, Self::OwnP99 | Self::OwnP999 | Self::OwnMax)
    }

    /// `timer own p99` as `timer` and `own p99`; without a space the whole is the statistic.
    pub(crate) fn split(text: &str) -> (Option<&str>, &str) {
        let text = text.trim();
        let Some((first, last)) = text.rsplit_once(' ') else { return (None, text) };
        let first = first.trim_end();
        match first.strip_suffix("own") {
            Some("") => (None, text),
            Some(series) if series.ends_with(' ') => (Some(series.trim_end()), &text[series.len()..]),
            _ => (Some(first), last),
        }
    }
}

/// A statistic of a probe: `timer p99.9`, `dispatch/timerfd max`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesStatistic {
    /// The series, or the probe for all its series.
    pub series: String,
    /// The statistic.
    pub statistic: Statistic,
}

impl FromStr for SeriesStatistic {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (Some(series), statistic) = Statistic::split(text) else {
            return Err(format!(
                "`{text}` does not name a probe and a statistic; write for example `timer p99.9`"
            ));
        };
        Ok(Self { series: series.to_owned(), statistic: statistic.parse()? })
    }
}

impl fmt::Display for SeriesStatistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.series, self.statistic)
    }
}

as_text!(SeriesStatistic, "timer p99.9", "A probe or one of its series, and a statistic");

impl SeriesStatistic {
    /// Whether it is of that series.
    pub fn is_of(&self, series: &str) -> bool {
        series == self.series || series.strip_prefix(&self.series).is_some_and(|rest| rest.starts_with('/'))
    }
}

words! {
    /// Order in which the repeats of the cells run.
    pub enum Order: "an order" {
        /// Blocks of two repeats of each cell, each block in an order drawn at random.
        Shuffled = "shuffled",
        /// A B C, A B C, …: as the plan lists the cells.
        Plan = "plan",
    }
}

/// A relative change: `10%` or `0.1`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Share(
    /// 0.1 for ten percent.
    pub f64,
);

impl FromStr for Share {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (number, scale) = match text.trim().strip_suffix('%') {
            Some(percent) => (percent.trim(), 0.01),
            None => (text.trim(), 1.0),
        };
        match number.parse::<f64>() {
            Ok(value) if value.is_finite() && value > 0.0 && value * scale <= 10.0 => Ok(Self(value * scale)),
            Ok(_) => Err(format!("`{text}` is out of range; a relative change is above 0 and at most 1000%")),
            Err(_) => Err(format!("`{text}` is not a relative change; write for example `10%` or `0.1`")),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", (self.0 * 1e6).round() / 1e4)
    }
}

as_text!(Share, "10%", "A relative change, in percent or as a number: 10% or 0.1");

words! {
    /// The direction of the effect that makes the answer yes.
    pub enum Expected: "a direction" {
        /// The second cell has the lower values.
        Lower = "lower",
        /// The second cell has the higher values.
        Higher = "higher",
        /// Either direction.
        Different = "different",
    }
}

/// A cell, by its name or by its loads and treatments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum CellReference {
    /// Its name.
    Name(String),
    /// Its loads and treatments, in any order; an empty list is the idle cell.
    Parts(Vec<String>),
}

impl CellReference {
    /// The cell of a plan that is meant.
    pub fn find<'p>(&self, cells: &'p [CellPlan]) -> Option<&'p CellPlan> {
        let is_meant = |cell: &&CellPlan| match self {
            Self::Name(name) => cell.name() == *name,
            Self::Parts(parts) => {
                let mut wanted: Vec<&String> = parts.iter().collect();
                let mut there: Vec<&String> = cell.loads.iter().chain(&cell.treatments).collect();
                wanted.order();
                there.order();
                wanted == there
            }
        };
        cells.iter().find(is_meant)
    }
}

impl fmt::Display for CellReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Parts(parts) if parts.is_empty() => f.write_str("idle"),
            Self::Parts(parts) => f.write_str(&parts.join("+")),
        }
    }
}

/// A question of the experiment, answered by a contrast of two cells.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerPlan {
    /// The question, which must have the answer yes or no.
    pub question: String,
    /// The two cells: the second is compared with the first.
    pub between: [CellReference; 2],
    /// Statistic to compare; by default the plan's primary statistic.
    pub statistic: Option<SeriesStatistic>,
    /// The smallest effect that matters; by default the plan's margin.
    pub matters: Option<Share>,
    /// Direction of the effect that makes the answer yes; by default `lower` if the second cell has one more
    /// treatment, `higher` if it has one more load.
    pub expect: Option<Expected>,
}

impl Plan {
    fn tasks(&self) -> impl Iterator<Item = &TaskPlan> {
        self.probe.iter().filter_map(|probe| match probe {
            ProbePlan::Task(task) => Some(task),
            _ => None,
        })
    }

    /// The shortest deadline of the tasks that it watches.
    pub fn deadline(&self) -> Option<Nanos> {
        self.tasks().filter_map(|task| task.deadline).min()
    }

    /// The chains that it watches.
    pub fn chains(&self) -> impl Iterator<Item = &ChainPlan> {
        self.tasks().flat_map(|task| task.chains.iter())
    }

    /// The longest deadline of its chains.
    pub fn chain_deadline(&self) -> Option<Nanos> {
        self.chains().filter_map(|chain| chain.deadline).max()
    }

    /// The deadline of the chain whose latencies that series has.
    pub fn deadline_of_chain(&self, series: &str) -> Option<Nanos> {
        let name = Chain::of_series(series)?;
        self.chains().find(|chain| chain.name == name)?.deadline
    }

    /// Whether a series has the latencies of one of its chains.
    pub fn is_chain(&self, series: &str) -> bool {
        let name = Chain::of_series(series);
        self.chains().any(|chain| Some(chain.name.as_str()) == name)
    }

    /// Whether it watches tasks and measures nothing itself.
    pub fn is_watch(&self) -> bool {
        self.probe.iter().all(|probe| matches!(probe, ProbePlan::Task(_)))
    }

    /// Whether each wake-up of its watched tasks begins a response.
    pub fn is_per_wakeup(&self) -> bool {
        self.tasks().any(|task| task.per == Some(Per::Wakeup))
    }

    /// The statistic that decides: the plan's, or that of the first probe that a limit judges (or the first probe):
    /// the maximum if there is a limit, otherwise the 0.999 quantile.
    pub fn primary_statistic(&self) -> Option<SeriesStatistic> {
        if let Some(primary) = &self.primary {
            return Some(primary.clone());
        }
        let facts = |series: &String| crate::SeriesName::of(series).facts();
        let series: Vec<String> = self.probe.iter().flat_map(ProbePlan::series_names).collect();
        let is_latency = |facts: ProbeFacts| facts.judged == Judged::Largest && !facts.companion;
        let decides = |series: &&String| facts(series).is_some_and(is_latency);
        let series = series.iter().find(decides).or(series.first())?.clone();
        let counts_turns = facts(&series).is_some_and(|facts| facts.counts_turns);
        let without_limit = if counts_turns { Statistic::LostShare } else { Statistic::P999 };
        let statistic = if self.limit.is_some() { Statistic::Max } else { without_limit };
        Some(SeriesStatistic { series, statistic })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_read_as_people_write_them() {
        let parsed: SeriesStatistic = "timer p99.9".parse().unwrap();
        assert_eq!((parsed.series.as_str(), parsed.statistic), ("timer", Statistic::P999));
        assert_eq!(parsed.to_string(), "timer p99.9");
        assert!(parsed.is_of("timer") && !parsed.is_of("timerlat"));
        let dispatch: SeriesStatistic = "dispatch max".parse().unwrap();
        assert!(dispatch.is_of("dispatch/timerfd"));
        assert!("timer".parse::<SeriesStatistic>().unwrap_err().contains("timer p99.9"));
        assert!("timer p98".parse::<SeriesStatistic>().unwrap_err().contains("choose"));
    }

    #[test]
    fn shares_in_percent_and_as_numbers() {
        assert_eq!("10%".parse::<Share>().unwrap(), "0.1".parse().unwrap());
        assert_eq!(Share(0.05).to_string(), "5%");
        assert!("-1%".parse::<Share>().is_err() && "ten".parse::<Share>().is_err());
    }

    #[test]
    fn a_cell_is_found_by_name_or_by_what_is_in_it() {
        let cell = |loads: &[&str], treatments: &[&str]| CellPlan {
            name: None,
            loads: loads.iter().map(ToString::to_string).collect(),
            treatments: treatments.iter().map(ToString::to_string).collect(),
            causes: true,
        };
        let cells = [cell(&[], &[]), cell(&["l3"], &["shielded"])];
        let parts = |parts: &[&str]| CellReference::Parts(parts.iter().map(ToString::to_string).collect());
        assert_eq!(parts(&["shielded", "l3"]).find(&cells), Some(&cells[1]));
        assert_eq!(parts(&[]).find(&cells), Some(&cells[0]));
        assert_eq!(CellReference::Name("l3+shielded".to_owned()).find(&cells), Some(&cells[1]));
        assert_eq!(parts(&["l3"]).find(&cells), None);
    }
}
