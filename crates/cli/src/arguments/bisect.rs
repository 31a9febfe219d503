//! Flags of `whylate bisect`.

use clap::Args;
use std::path::PathBuf;
use whylate_core::plan::{SeriesStatistic, Share};

/// `whylate bisect`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate bisect RUN --good GOOD1,GOOD2 --bad BAD1,BAD2
  whylate bisect RUN:idle --good GOOD:idle --bad BAD:idle --statistic 'timer p99.9' --error 1%
  git bisect run ./step

where the script `step` builds, boots and measures, and ends with
  ./build-boot-and-run out || exit 125
  whylate bisect out --good good1,good2 --bad bad1,bad2

whylate bisect reads runs of one plan and measures nothing. The probability of a wrong answer is at
most --error if boots of one kernel differ no more than repeats after one boot. To check this, give
several good and bad runs, each from its own boot. An --error of 5 % needs seven repeats, 1 % ten.

Exit codes as `git bisect run` expects them: 0 good, 1 bad, 125 cannot tell (git skips the commit),
128 wrong flags, or unusable good and bad runs (the bisection stops).")]
pub(crate) struct BisectArguments {
    /// The run to judge: a run directory, or RUN:CELL if the run has several cells
    pub(crate) run: PathBuf,
    /// Runs before the change
    #[arg(long, value_name = "RUN", value_delimiter = ',', required = true)]
    pub(crate) good: Vec<PathBuf>,
    /// Runs after the change
    #[arg(long, value_name = "RUN", value_delimiter = ',', required = true)]
    pub(crate) bad: Vec<PathBuf>,
    /// What became worse, for example `timer p99.9` [default: the plan's primary statistic]
    #[arg(long, value_name = "STATISTIC")]
    pub(crate) statistic: Option<SeriesStatistic>,
    /// Largest acceptable probability of a wrong answer
    #[arg(long, value_name = "SHARE", default_value = "5%")]
    pub(crate) error: Share,
    /// Prints one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}
