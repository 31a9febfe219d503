//! What the samples of a probe are, for all code that computes with them or shows them.

use crate::warning::WarningCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Samples {
    /// How much later than it should a task ran.
    Lateness,
    /// How long a task that wants to run all the time did not.
    Gap,
    Duration,
    /// How long an access to memory took.
    Access,
}

/// What of a series a limit judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// Its largest sample.
    Largest,
    /// By how much its largest sample exceeds its median: the rest is the time that the method itself takes.
    ExcessOverMedian,
    /// Nothing: it is part of a sample that is judged as a whole.
    Nothing,
}

/// What is true of every sample of a series, whatever the plan says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeFacts {
    pub name: &'static str,
    /// What it measures, in half a sentence.
    pub meaning: &'static str,
    pub samples: Samples,
    /// What of it a limit judges.
    pub judged: Judged,
    /// Whether it runs together with every other probe of a cell, and ends with them.
    pub companion: bool,
    /// Whether it has periods that are missed when the task is late, which are counted and corrected for.
    pub misses_periods: bool,
    /// Whether each turn of its loop is a sample, of which those above a threshold are gaps.
    pub counts_turns: bool,
    /// Whether it keeps who was late in the largest sample.
    pub keeps_largest: bool,
    /// Whether it measures between two CPUs, from one of them.
    pub between_cpus: bool,
    /// Whether reports also print its histogram as rows of 10 us, the form in which users know this figure.
    pub in_rows: bool,
    /// What its series are called in tables.
    pub series_title: &'static str,
    pub task: MeasuringTask,
    /// The warning that it had to do without its real-time priority, on a machine that would have allowed it.
    pub without_priority: Option<WarningCode>,
}

/// The task whose latency a probe measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasuringTask {
    Own,
    /// Threads of the user, which are watched.
    Users,
    /// A thread of the kernel on each CPU, called this and the CPU's number: `timerlat/3`.
    Kernel(&'static str),
    /// No task: the kernel looks for gaps.
    None,
}

impl ProbeFacts {
    /// Whether it watches threads of the user.
    pub fn is_of_user(&self) -> bool {
        self.task == MeasuringTask::Users
    }

    /// Whether the ledger has all of its late time. Other probes only look for the causes of their largest samples.
    pub fn has_ledger(&self) -> bool {
        self.task == MeasuringTask::Own && matches!(self.samples, Samples::Lateness | Samples::Gap)
    }

    /// Facts that hold for most probes; the table of probes adds name and meaning.
    pub(super) const fn of(samples: Samples) -> Self {
        Self {
            name: "",
            meaning: "",
            samples,
            judged: Judged::Largest,
            companion: false,
            misses_periods: false,
            counts_turns: false,
            keeps_largest: false,
            between_cpus: false,
            in_rows: false,
            series_title: "source",
            task: MeasuringTask::Own,
            without_priority: None,
        }
    }

    /// The facts of a part of each sample: a duration, so no period can be missed.
    pub(super) const fn of_part(self) -> Self {
        Self {
            samples: Samples::Duration,
            judged: Judged::Nothing,
            misses_periods: false,
            counts_turns: false,
            in_rows: false,
            ..self
        }
    }

    /// What a large sample is called: `gap` or `latency`.
    pub const fn noun(&self) -> &'static str {
        match self.samples {
            Samples::Gap => "gap",
            Samples::Lateness | Samples::Duration | Samples::Access => "latency",
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::SeriesName;
    use crate::plan::ProbePlan;

    #[test]
    fn probes_of_an_own_thread_that_is_late_or_stopped_have_a_whole_ledger() {
        let has_ledger = |name: &&str| SeriesName::of(name).facts().is_some_and(|facts| facts.has_ledger());
        let mut found: Vec<&str> = ProbePlan::KINDS.into_iter().filter(has_ledger).collect();
        found.sort_unstable();
        assert_eq!(found, ["dispatch", "stall", "timer"]);
        for series in ["tracer/timerlat", "tracer/hwlat", "roundtrip/futex", "task/a"] {
            assert!(!has_ledger(&series), "{series}");
        }
    }
}
