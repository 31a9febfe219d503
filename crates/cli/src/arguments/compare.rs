//! Flags of `whylate compare`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use whylate_core::plan::{SeriesStatistic, Share};

/// `whylate compare`.
#[derive(Debug, Default, Args)]
#[command(after_help = "\
Examples:
  whylate compare RUN1 RUN2                      two runs; the history is in RUN1's folder
  whylate compare A1,A2,A3,A4 B1,B2,B3,B4        two sets of runs
  whylate compare RUN:idle RUN:l3                two cells of one run
  whylate compare before.json RUN:idle           a result of cyclictest against a cell
  whylate compare A B --format junit -o t.xml    for a build server

Exit codes: 0 nothing got worse, 1 cannot tell (125 with `--exit-on regression`), 2 a regression. In
--format junit, `cannot tell` is a skipped test, not a failed one.
Runs differ by boot and time. A verdict needs four runs of each side (five if they have 2 to 6
cells, six up to 23), or a history of five runs; otherwise the result is `cannot tell`, with the
size of the difference. A history consists of the runs in the folder of the first run that have
the same plan, host and kernel.")]
pub(crate) struct CompareArguments {
    /// Runs to compare with the first: a run directory, several separated by commas,
    /// RUN:CELL, or a file of another tool
    #[arg(value_name = "RUN", num_args = 2.., required = true)]
    pub(crate) sides: Vec<String>,
    /// Runs like those of the first side, to show how much runs vary [default: runs in the first run's folder]
    #[arg(long, value_name = "RUN", num_args = 1.., value_delimiter = ',')]
    pub(crate) history: Option<Vec<PathBuf>>,
    /// The statistic that decides, for example `timer p99.9` [default: the plan's]
    #[arg(long, value_name = "STATISTIC")]
    pub(crate) statistic: Option<SeriesStatistic>,
    /// Effects up to this size do not matter [default: the plan's]
    #[arg(long, value_name = "SHARE")]
    pub(crate) margin: Option<Share>,
    /// terminal, markdown, html, junit or github [default: by the extension of the --output file, else terminal]
    #[arg(long, hide_possible_values = true)]
    pub(crate) format: Option<CompareFormat>,
    /// regression: exit code 2 for a regression, 125 if whylate cannot tell, and 1 only for errors
    #[arg(long, value_name = "WHAT", hide_possible_values = true)]
    pub(crate) exit_on: Option<ExitOn>,
    /// File for the comparison; must not exist [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// On a terminal, shows everything that the other formats show
    #[arg(long)]
    pub(crate) details: bool,
    /// Prints one JSON document
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
}

/// What the exit code is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExitOn {
    /// A regression, apart from `cannot tell` and from errors
    Regression,
}

/// Forms of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareFormat {
    /// Text
    Terminal,
    /// For pull requests
    Markdown,
    /// One self-contained file
    Html,
    /// XML for build servers
    Junit,
    /// Annotations of GitHub's workflows
    Github,
}
