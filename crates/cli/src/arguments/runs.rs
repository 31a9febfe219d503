//! Flags of `whylate runs`.

use super::report::ReportFormat;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use whylate_core::plan::SeriesStatistic;

/// `whylate runs`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  whylate runs                                  all runs, the newest first
  whylate runs 'kernel>=6.12' verdict=fail      the runs that match every term
  whylate runs plan=quick --series 'timer p99'  the trend of timer p99, and where it changes
  whylate runs plan=quick --series 'timer p99' -o series.html
  whylate runs tag latest before-update         gives a run a tag, to find it later
  whylate runs note latest 'with the new driver'
  whylate runs remove RUN --yes

A term is KEY, one of = != ~ < <= > >=, and a value (~: contains); keys are plan, host, kernel,
verdict, state, tag, note and started. Quote terms with < or > for the shell. Numbers and dates are
compared to the precision of the value: 'kernel>6.12' leaves out 6.12.4, and 'started>2026-11-20'
leaves out all of 20 November. A word without KEY is searched for in all keys. In every command,
`latest` is the newest run."
)]
pub(crate) struct RunsArguments {
    #[command(subcommand)]
    pub(crate) action: Option<RunsCommand>,
    /// Terms to search for (see below)
    #[arg(value_name = "TERM")]
    pub(crate) terms: Vec<String>,
    /// Shows the trend of a statistic over the runs, and where it changes, for example `timer p99.9`
    #[arg(long, value_name = "STATISTIC")]
    pub(crate) series: Option<SeriesStatistic>,
    /// The cell of the series [default: the first cell of the newest run]
    #[arg(long, value_name = "CELL", requires = "series")]
    pub(crate) cell: Option<String>,
    /// File for the list or the series; must not exist [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// terminal, markdown or html [default: by the extension of the --output file (.html, .md, .txt), else terminal]
    #[arg(long, hide_possible_values = true)]
    pub(crate) format: Option<ReportFormat>,
    /// Folder with the runs [default: $XDG_DATA_HOME/whylate/runs]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Prints one JSON document
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
}

/// What is done with a run.
#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// Adds tags to a run
    #[command(after_help = "Examples:\n  whylate runs tag latest baseline rt")]
    Tag {
        /// The run
        run: PathBuf,
        /// The tags
        #[arg(required = true)]
        tags: Vec<String>,
    },
    /// Removes tags from a run
    #[command(after_help = "Examples:\n  whylate runs untag latest baseline")]
    Untag {
        /// The run
        run: PathBuf,
        /// The tags
        #[arg(required = true)]
        tags: Vec<String>,
    },
    /// Gives a run a note; an empty note removes the note
    #[command(after_help = "Examples:\n  whylate runs note latest after-the-update")]
    Note {
        /// The run
        run: PathBuf,
        /// The note
        note: String,
    },
    /// Deletes runs
    #[command(after_help = "Examples:\n  whylate runs remove RUN --yes")]
    Remove {
        /// The runs
        #[arg(required = true)]
        runs: Vec<PathBuf>,
        /// Deletes them without asking
        #[arg(long)]
        yes: bool,
    },
}
