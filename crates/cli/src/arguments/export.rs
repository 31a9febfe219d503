//! Flags of `whylate export`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `whylate export`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate export latest --to perfetto -o run.json      spikes, latencies and loads on one time line
  whylate export RUN --to csv --table timeline         the values over time
  whylate export RUN --to hdr -o run.hlog              for HdrHistogram's tools
  whylate export RUN --to osadl -o DIR                 the files of the OSADL histograms patch

The tables of a run directory are Parquet: DuckDB, pandas, Polars, Spark and ClickHouse open them
directly (docs/FORMAT.md).")]
pub(crate) struct ExportArguments {
    /// A run directory, or `latest`
    #[arg(value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// Format of the output
    #[arg(long, value_name = "FORM")]
    pub(crate) to: RunForm,
    /// Table to write (only for csv)
    #[arg(long, value_name = "TABLE", default_value = "quantiles")]
    pub(crate) table: TableChoice,
    /// File, or folder for osadl; must not exist [default: standard output]
    #[arg(short, long, value_name = "FILE", required_if_eq("to", "osadl"))]
    pub(crate) output: Option<PathBuf>,
}

/// Forms of a run for other tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunForm {
    /// Trace events in JSON, for ui.perfetto.dev
    Perfetto,
    /// Comma-separated values
    Csv,
    /// An interval log of HdrHistogram
    Hdr,
    /// A tree of histograms
    Osadl,
}

/// Tables of comma-separated values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableChoice {
    /// A row for each cell, probe and CPU
    Quantiles,
    /// A row for each bucket
    Histogram,
    /// A row for each interval
    Timeline,
    /// A row for each of the largest spikes
    Spikes,
    /// A row for each interval of a load
    Rates,
    /// A row for each cause of late time in each repeat
    Ledger,
}
