//! Flags of `whylate report`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `whylate report`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate report RUN                        on the terminal, the answers first
  whylate report RUN --details              everything
  whylate report RUN -o report.html         one file for any browser
  whylate report RUN --format markdown      for a pull request
  whylate report RUN --for-maintainer -o a.md   what a maintainer asks for, without names
  whylate report cyclictest.json            a result of cyclictest, oslat, rtla or another tool")]
pub(crate) struct ReportArguments {
    /// Directory of a run, even of a killed run, or a file with a result of another tool
    #[arg(default_value = "latest")]
    pub(crate) run: PathBuf,
    /// terminal, markdown or html [default: by the extension of the --output file (.html, .md, .txt), else terminal]
    #[arg(long, hide_possible_values = true)]
    pub(crate) format: Option<ReportFormat>,
    /// File for the report; must not exist [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Writes a text for kernel maintainers: kernel, command line, hardware, the worst spike with its trace in the
    /// kernel's format, and how to reproduce it. The names of the machine and its users are left out. Shows the text
    /// before writing it
    #[arg(long, conflicts_with_all = ["format", "json", "details"])]
    pub(crate) for_maintainer: bool,
    /// With --for-maintainer, writes without asking
    #[arg(long, requires = "for_maintainer")]
    pub(crate) yes: bool,
    /// On a terminal, shows everything that the other formats show
    #[arg(long)]
    pub(crate) details: bool,
    /// Prints the result as one JSON document
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
    /// With --json, includes all histograms and time series even if the run has many CPUs
    #[arg(long, requires = "json")]
    pub(crate) histograms: bool,
}

/// Forms of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// Text
    Terminal,
    /// For pull requests
    Markdown,
    /// One self-contained file
    Html,
}
