//! What a search makes smaller.

use crate::plan::{Chain, Statistic};
use crate::series::SeriesName;
use crate::units::Nanos;
use crate::units::as_text;
use std::fmt;
use std::str::FromStr;

/// The statistic to lower: `timer p99.9`, `p99`, `max < 100us`, `misses`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixGoal {
    /// The series, or the probe for all its series; `None` means that of the plan's primary statistic.
    pub series: Option<String>,
    pub statistic: Statistic,
    /// Low enough: from here on no more treatments are sought.
    pub below: Option<Nanos>,
}

impl FromStr for FixGoal {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (what, below) = match text.split_once('<') {
            Some((what, below)) => (what.trim(), Some(below.trim().parse().map_err(|it| format!("{it}"))?)),
            None => (text.trim(), None),
        };
        let (series, statistic) = Statistic::split(what);
        let statistic: Statistic = match statistic {
            "misses" => Statistic::SpikeRate,
            name => name.parse()?,
        };
        if below.is_some() && statistic.is_own() {
            return Err(format!(
                "`{text}`: a limit applies only to the whole latency; write `max`, or leave out `<` to lower {statistic}"
            ));
        }
        if below.is_some() && statistic.unit() != "ns" {
            return Err(format!("`{text}`: {statistic} is not a time; leave out `<` and the value after it"));
        }
        // Only the task probe has chains.
        let series = series
            .map(|it| if Chain::of_series(it).is_some() { format!("task/{it}") } else { it.to_owned() });
        Ok(Self { series, statistic, below })
    }
}

impl FixGoal {
    /// The goal for people, as they write it: `misses`, `chain frame misses`, `timer p99.9`.
    pub fn words(&self) -> String {
        let series = SeriesName::of(self.series.as_deref().unwrap_or_default());
        let name = match self.statistic {
            Statistic::SpikeRate if series.is_of_user() => "misses",
            Statistic::TriggerRate => "triggers",
            _ => return self.to_string(),
        };
        series.series.map_or_else(|| name.to_owned(), |series| format!("{series} {name}"))
    }
}

impl fmt::Display for FixGoal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(series) = &self.series {
            write!(f, "{series} ")?;
        }
        write!(f, "{}", self.statistic)?;
        self.below.map_or(Ok(()), |below| write!(f, " < {below}"))
    }
}

as_text!(FixGoal, "timer p99.9", "A statistic to lower, and the value that is low enough: max < 100us");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_read_as_people_write_them() {
        let goal: FixGoal = "max < 100us".parse().unwrap();
        assert_eq!(
            (goal.series.clone(), goal.statistic, goal.below),
            (None, Statistic::Max, Some(Nanos(100_000)))
        );
        assert_eq!(goal.to_string().parse::<FixGoal>().unwrap(), goal);
        let goal: FixGoal = "dispatch/timerfd p99.9".parse().unwrap();
        assert_eq!(goal.series.as_deref(), Some("dispatch/timerfd"));
        assert_eq!("misses".parse::<FixGoal>().unwrap().statistic, Statistic::SpikeRate);
        assert_eq!("triggers".parse::<FixGoal>().unwrap().statistic, Statistic::TriggerRate);
        assert!("triggers < 3us".parse::<FixGoal>().unwrap_err().contains("not a time"));
        assert!("timer p98".parse::<FixGoal>().unwrap_err().contains("choose"));
        let goal: FixGoal = "chain frame p99".parse().unwrap();
        assert_eq!((goal.series.as_deref(), goal.statistic), (Some("task/chain frame"), Statistic::P99));
        let goal: FixGoal = "timer own max".parse().unwrap();
        assert_eq!((goal.series.as_deref(), goal.statistic), (Some("timer"), Statistic::OwnMax));
        assert_eq!("own p99".parse::<FixGoal>().unwrap().statistic, Statistic::OwnP99);
        assert_eq!(goal.to_string().parse::<FixGoal>().unwrap(), goal);
        assert!("timer own max < 100us".parse::<FixGoal>().is_err(), "a limit is judged by raw figures");
        let words = |text: &str| text.parse::<FixGoal>().unwrap().words();
        assert_eq!([words("task misses"), words("chain frame misses")], ["misses", "chain frame misses"]);
        assert_eq!([words("triggers"), words("timer p99.9")], ["triggers", "timer p99.9"]);
        assert!("misses < 3us".parse::<FixGoal>().unwrap_err().contains("not a time"));
    }
}
