//! Flags of `whylate push`, `pull` and `farm`.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use whylate_core::plan::Share;

/// `whylate push`.
#[derive(Debug, Args)]
#[command(
    override_usage = "whylate push [OPTIONS] <RUN>... <URL>",
    after_help = "\
Examples:
  whylate push latest s3://latency/farm                 one run into a bucket
  whylate push results/* file:///srv/lake               all runs into a folder
  whylate push RUN gs://latency/farm --replace          replaces the run that was pushed before
  whylate push RUN s3://latency/farm --plan quick --kernel 6.12
  whylate push RUN s3://latency/farm --farm farm.toml   with the labels of its machine

An interrupted push continues where it stopped; a run that is already in the lake is not changed.
A run that differs from --plan, --kernel, --host or the kernel in the farm file is marked
INCOMPLETE in the lake (see `farm verify`).
whylate reaches buckets with `curl`. The credentials come from the environment (AWS_ACCESS_KEY_ID,
AWS_ENDPOINT_URL, GOOGLE_…, AZURE_…) or from the cloud's virtual machine. More: docs/FARM.md."
)]
pub(crate) struct PushArguments {
    /// Run directories (or `latest`), then the lake (bucket or folder) to copy them to: s3://BUCKET/PATH, gs://…,
    /// az://…, file:///PATH, or a folder
    #[arg(value_names = ["RUN", "URL"], num_args = 2.., required = true)]
    pub(crate) words: Vec<String>,
    /// Replaces a run of the same name that is damaged or has other content
    #[arg(long)]
    pub(crate) replace: bool,
    #[command(flatten)]
    pub(crate) asked: AskedArguments,
    /// The farm file with the machine's labels and kernel; queries can select runs by label
    #[arg(long, value_name = "FILE")]
    pub(crate) farm: Option<PathBuf>,
}

/// `whylate pull`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate pull s3://latency/farm                                     lists the runs of the lake
  whylate pull s3://latency/farm/board-01/2026-11-21-090229-quick DIR
  whylate pull s3://latency/farm/2026-11-21-090229-quick DIR         if only one host has this run
  whylate pull s3://latency/farm --check                             reads and checks every object")]
pub(crate) struct PullArguments {
    /// URL of the lake (the bucket or folder with the runs); with DIR, the URL of a run: URL/HOST/RUN or URL/RUN
    pub(crate) url: String,
    /// Directory for the run; must not exist
    pub(crate) dir: Option<PathBuf>,
    /// Compares every object of every run with its checksum
    #[arg(long, conflicts_with = "dir")]
    pub(crate) check: bool,
}

/// `whylate farm`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  whylate farm render nightly.toml --for ansible --farm farm.toml -o DIR
  whylate farm verify RUN --plan nightly.toml
  whylate farm query worst --lake /srv/lake

Existing engines do the scheduling, the storage and the queries; docs/FARM.md shows how.")]
pub(crate) enum FarmCommand {
    /// Says whether a run matches the request: plan, kernel, priority, CPUs, samples, loads
    Verify(VerifyArguments),
    /// Writes the files that an engine needs to run plans on many machines
    Render(RenderArguments),
    /// Runs an SQL query on the runs of a lake (bucket or folder), with an installed engine
    Query(QueryArguments),
    /// Compares two kernels (or other groups of runs) on each board, and combines all boards
    Compare(FarmCompareArguments),
}

/// `whylate farm compare`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate farm compare 6.12 7.2 --lake /srv/lake
  whylate farm compare 6.12 7.2 --lake s3://latency/farm --margin 10% --json
  whylate farm compare 'started<2026-10' 'started>=2026-10' --lake /srv/lake

A group is the beginning of a kernel release (6.12), or terms that select runs as in `whylate runs`
(keys: plan, host, kernel, verdict, started, tag). A label of the farm file is a tag:
`tag=soc=rk3588` selects boards whose label soc is rk3588. Runs that are in both groups do not
count. On each board, the complete runs of both groups are compared by their 0.999 quantiles. The
uncertainty of the ratio comes from differences between boards, not from samples. A board needs
three runs in each group. Alternating kernels on a board gives a better comparison than one kernel
after the other.
Exit codes as in `whylate compare`: 2 if the second group is worse, 1 if whylate cannot tell or a
damaged object had to be left out.")]
pub(crate) struct FarmCompareArguments {
    /// The first group: the beginning of a kernel release (6.12), or terms that select runs (see below)
    pub(crate) first: String,
    /// The second group, given like the first
    pub(crate) second: String,
    /// URL or folder of the lake (see `whylate push`)
    #[arg(long, value_name = "URL")]
    pub(crate) lake: String,
    /// Effects up to this size do not matter
    #[arg(long, value_name = "SHARE", default_value = "5%")]
    pub(crate) margin: Share,
    /// Engine that runs the queries
    #[arg(long, value_name = "ENGINE", default_value = "duckdb")]
    pub(crate) engine: EngineChoice,
    /// Prints one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

/// `whylate farm verify`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate farm verify results/today --plan nightly.toml
  whylate farm verify latest --kernel 6.12 --host board-01

Exit codes: 0 the run matches the request, 1 INCOMPLETE: something is missing or different.
`whylate run` says whether latencies were above the limit.")]
pub(crate) struct VerifyArguments {
    /// A run directory, or `latest`
    pub(crate) run: PathBuf,
    #[command(flatten)]
    pub(crate) asked: AskedArguments,
}

/// What a run was to be.
#[derive(Debug, Args)]
pub(crate) struct AskedArguments {
    /// The expected plan: a built-in one or a file [default: the run's own]
    #[arg(long)]
    pub(crate) plan: Option<String>,
    /// Expected kernel release, or its start: 6.1 matches 6.1.9, but not 6.18
    #[arg(long, value_name = "RELEASE", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) kernel: Option<String>,
    /// Expected name of the machine; the lake uses this name if the machine's own name is not valid there
    #[arg(long)]
    pub(crate) host: Option<String>,
}

/// `whylate farm render`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate farm render nightly.toml --for kubernetes --farm farm.toml -o DIR
  whylate farm render quick --for slurm --farm farm.toml -o DIR
  whylate farm render --for ansible --farm farm.toml -o DIR   each host gets the plan for its labels

A farm file names hosts, labels, plans by label, the schedule and the lake (docs/FARM.md). The
directory has a README.md that says how to begin.")]
pub(crate) struct RenderArguments {
    /// A plan for all hosts: a built-in one or a file [default: the plans of the farm file]
    pub(crate) plan: Option<String>,
    /// Engine that will run the plans
    #[arg(long = "for", value_name = "ENGINE")]
    pub(crate) engine: DispatcherChoice,
    /// The farm file
    #[arg(long, value_name = "FILE", default_value = "farm.toml")]
    pub(crate) farm: PathBuf,
    /// Directory to write; must not exist
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: PathBuf,
}

/// Engines that dispatch jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DispatcherChoice {
    /// A job for each node and plan, kustomize
    Kubernetes,
    /// An array job for each machine, on exclusive nodes
    Slurm,
    /// A role that copies whylate, measures, and fetches the runs
    Ansible,
    /// A test definition for each plan, and jobs
    Lava,
}

/// `whylate farm query`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate farm query --list
  whylate farm query worst --lake /srv/lake
  whylate farm query alarms --lake /srv/lake --expect-none
  whylate farm query regressions --lake /srv/lake --engine spark
  whylate farm query my.sql --lake /srv/lake --csv
  whylate farm query bounds --lake s3://latency/farm --engine spark --print

Engines are Python modules (duckdb, pyspark); WHYLATE_QUERY_PYTHON names the Python that has them.
`--print` prints the statements, so that a cluster can run them. whylate first checks the objects
that a query uses against their checksums, and leaves damaged objects out (exit code 1). Exit code
69: the engine is not installed. An SQL file of your own runs with your rights: its statements can
read and write what you can.")]
pub(crate) struct QueryArguments {
    /// Name of a query in the library, or a file with SQL
    #[arg(required_unless_present = "list")]
    pub(crate) question: Option<String>,
    /// URL or folder of the lake (see `whylate push`)
    #[arg(long, value_name = "URL", required_unless_present = "list")]
    pub(crate) lake: Option<String>,
    /// Engine that runs the queries
    #[arg(long, value_name = "ENGINE", default_value = "duckdb")]
    pub(crate) engine: EngineChoice,
    /// Lists the queries of the library
    #[arg(long)]
    pub(crate) list: bool,
    /// Prints the statements instead of running them
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    pub(crate) print: bool,
    /// Ends with exit code 2 if the answer has rows, so that a job can raise an alarm
    #[arg(long, conflicts_with = "print")]
    pub(crate) expect_none: bool,
    /// Prints rows as one JSON document
    #[arg(long, conflicts_with = "csv")]
    pub(crate) json: bool,
    /// Prints rows as comma-separated values
    #[arg(long)]
    pub(crate) csv: bool,
}

/// Engines that answer SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineChoice {
    /// DuckDB
    Duckdb,
    /// Spark
    Spark,
}
