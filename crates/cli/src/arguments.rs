//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use whylate_core::plan::{MemoryAccess, Pace, Policy, Size, Threshold, TimerMethod};
use whylate_core::units::UnitError;
use whylate_core::{CpuSelector, Nanos};

/// Why was my real-time task late, who did it, and which change fixes it?
///
/// whylate disturbs a machine in a controlled way, measures what a real-time task feels, and says with honest
/// statistics what made it late.
#[derive(Debug, Parser)]
#[command(
    name = "whylate",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  whylate run                                  the quick plan on this machine, under a minute
  whylate measure timer -a 1 -p 95 -D 10s      what cyclictest measures
  whylate measure stall --cpu 1 --duration 10s what oslat measures
  whylate report RUN -o report.html            a picture of a run

Exit codes: 0 pass, 1 error, 2 limit exceeded, 69 a facility that was asked for is not available."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs an experiment: a built-in plan by name, or a TOML file
    Run(RunArguments),
    /// Lists the built-in plans, or prints one
    Plans(PlansArguments),
    /// Measures with one probe alone
    #[command(subcommand)]
    Measure(MeasureCommand),
    /// Runs one load alone and prints what it achieves
    #[command(subcommand)]
    Load(LoadCommand),
    /// Draws a run as HTML, Markdown or text
    Report(ReportArguments),
    /// Prints the JSON Schema of the plan or of an output
    Schema(SchemaArguments),
}

/// `whylate run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate run                                       the plan `quick`
  whylate run memory-load --set duration=30s        another plan, shorter
  whylate run plan.toml -o results/today            a plan of your own
  whylate run --resume results/today                goes on with a run that was stopped or killed

The run is kept in a directory of its own; `whylate report DIR -o report.html` draws it.")]
pub(crate) struct RunArguments {
    /// Name of a built-in plan, or path of a TOML file [default: quick]
    pub(crate) plan: Option<String>,
    /// Directory for the run; must not exist or be empty [default: $XDG_DATA_HOME/whylate/runs/TIME-PLAN]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Overrides one value of the plan, for example `duration=10s` or `load.l3.working_set=8MiB`
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub(crate) overrides: Vec<String>,
    /// Goes on with the run in DIR; what is done is not done again
    #[arg(long, value_name = "DIR", conflicts_with_all = ["plan", "output", "overrides"])]
    pub(crate) resume: Option<PathBuf>,
    /// Fails where real-time priority or locked memory is refused, instead of warning
    #[arg(long)]
    pub(crate) strict: bool,
    /// Runs a shell command at the first latency above a probe's break or threshold
    #[arg(long, value_name = "COMMAND")]
    pub(crate) on_threshold: Option<String>,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

/// Flags of every command that measures.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Printing {
    /// Prints one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// Shows no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// `whylate plans`.
#[derive(Debug, Args)]
pub(crate) struct PlansArguments {
    /// Name of the plan to print
    pub(crate) name: Option<String>,
    /// Prints one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

/// `whylate measure`.
#[derive(Debug, Subcommand)]
pub(crate) enum MeasureCommand {
    /// How late a periodic task runs (what cyclictest measures)
    Timer(TimerArguments),
    /// Which time is taken from a task that never sleeps (what oslat measures)
    Stall(StallArguments),
}

/// Flags of both probes.
#[derive(Debug, Args)]
pub(crate) struct ProbeArguments {
    /// Scheduling policy: fifo, rr, other, or (timer only) deadline
    #[arg(long, default_value = "fifo")]
    pub(crate) policy: Policy,
    /// Real-time priority, 1 to 99
    #[arg(short, long, default_value_t = 95, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub(crate) priority: u32,
    /// How long to measure; a bare number is seconds, 0 is until Ctrl-C
    #[arg(short = 'D', long, value_name = "TIME", default_value = "10s", value_parser = seconds)]
    pub(crate) duration: Nanos,
    /// How long to run before the samples count
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = seconds)]
    pub(crate) warmup: Nanos,
    /// How many of the largest spikes to list
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub(crate) spikes: usize,
    /// Fails where real-time priority or locked memory is refused, instead of warning
    #[arg(long)]
    pub(crate) strict: bool,
    /// Leaves the idle states alone, instead of holding /dev/cpu_dma_latency at 0
    #[arg(long)]
    pub(crate) no_cpu_dma_latency: bool,
    /// Runs a shell command at the first spike; the latency is in WHYLATE_LATENCY_NS
    #[arg(long, value_name = "COMMAND")]
    pub(crate) on_threshold: Option<String>,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

/// `whylate measure timer`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate measure timer -a 1 -p 95 -i 200us -D 10s
  whylate measure timer --cpu 2-3 --duration 1h --json > night.json
  whylate measure timer -a 1 -b 100us --on-threshold 'cat /proc/interrupts'

The short flags are cyclictest's (-a -i -D -p -b -l -d -t -S -m -q), with its units for bare
numbers; -h is help.
A latency above --break writes a trace marker, stops tracing, ends the measurement and gives exit
code 2.")]
pub(crate) struct TimerArguments {
    /// CPUs to measure, one thread on each: a list, or all, isolated, housekeeping, last [without a list: all]
    #[arg(short = 'a', long = "cpu", alias = "cpus", visible_alias = "affinity", value_name = "LIST", num_args = 0..=1, default_missing_value = "all")]
    pub(crate) cpu: Option<CpuSelector>,
    /// Period of the task; a bare number is microseconds
    #[arg(short, long, value_name = "TIME", default_value = "200us", value_parser = microseconds)]
    pub(crate) interval: Nanos,
    /// By how much each further CPU begins later; a bare number is microseconds [0: aligned start]
    #[arg(short, long, value_name = "TIME", default_value = "0us", value_parser = microseconds)]
    pub(crate) distance: Nanos,
    /// Ends at the first latency above this; a bare number is microseconds
    #[arg(short = 'b', long = "break", visible_alias = "breaktrace", value_name = "TIME", value_parser = microseconds)]
    pub(crate) break_above: Option<Nanos>,
    /// Ends after that many samples on a CPU
    #[arg(short = 'l', long, visible_alias = "loops", value_name = "N", value_parser = count)]
    pub(crate) until_samples: Option<u64>,
    /// What wakes the task: nanosleep, timerfd or posix-timer
    #[arg(long, default_value = "nanosleep")]
    pub(crate) method: TimerMethod,
    /// How many threads, on as many of the CPUs [without a number: one on each]
    #[arg(short, long, value_name = "N", num_args = 0..=1, default_missing_value = "0")]
    pub(crate) threads: Option<usize>,
    /// One thread on each CPU: -t -a
    #[arg(short = 'S', long)]
    pub(crate) smp: bool,
    /// Memory is always locked where that is allowed; accepted because cyclictest asks for it
    #[arg(short, long, hide = true)]
    pub(crate) mlockall: bool,
    /// clock_nanosleep is the default; accepted because older versions of cyclictest ask for it
    #[arg(short, long, hide = true)]
    pub(crate) nanosleep: bool,
    #[command(flatten)]
    pub(crate) probe: ProbeArguments,
}

/// `whylate measure stall`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate measure stall --cpu 1 --threshold 1us --duration 10s
  whylate measure stall --cpu isolated --duration 1h --json > gaps.json
  whylate measure stall --cpu 1 --threshold 3100cycles --working-set l2/2

The loop never sleeps: the CPU belongs to it for the time, but for what the kernel takes. At
real-time priority it is refused on the last CPU that the rest of the system has.")]
pub(crate) struct StallArguments {
    /// CPUs to measure, one thread on each: a list, or all, isolated, housekeeping, last
    #[arg(short = 'a', long = "cpu", alias = "cpus", value_name = "LIST", default_value = "last")]
    pub(crate) cpu: CpuSelector,
    /// Gaps at least this long are recorded one by one: 1us, or 3100cycles; a bare number is microseconds
    #[arg(long, default_value = "10us", value_parser = threshold)]
    pub(crate) threshold: Threshold,
    /// Each turn also reads a line of a buffer of this size: 256KiB, l2/2
    #[arg(long, value_name = "SIZE")]
    pub(crate) working_set: Option<Size>,
    #[command(flatten)]
    pub(crate) probe: ProbeArguments,
}

/// `whylate load`.
#[derive(Debug, Subcommand)]
pub(crate) enum LoadCommand {
    /// Memory traffic over a working set of random data
    Memory(MemoryArguments),
    /// Any command, pinned and watched
    Exec(ExecArguments),
}

/// `whylate load memory`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate load memory --working-set l3/2 --duration 10s
  whylate load memory --cpus 0,1 --working-set 64MiB --kind read --rate 500MB/s
  whylate load memory --working-set l3*4 --kind random-chase --json")]
pub(crate) struct MemoryArguments {
    /// CPUs to load, one thread on each
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST", default_value = "last")]
    pub(crate) cpus: CpuSelector,
    /// Size of each thread's buffer: 64MiB, l2/2, l3*4, or llc for the last-level cache
    #[arg(long, value_name = "SIZE", default_value = "llc/2")]
    pub(crate) working_set: Size,
    /// Kind of traffic: read, write, copy, random-chase, non-temporal-write
    #[arg(long, default_value = "copy")]
    pub(crate) kind: MemoryAccess,
    /// How much: 500MB/s over all CPUs, 25% of the time, or full
    #[arg(long, default_value = "full")]
    pub(crate) rate: Pace,
    /// NUMA node of the buffers [default: the CPU's own]
    #[arg(long)]
    pub(crate) node: Option<u32>,
    /// Uses huge pages
    #[arg(long)]
    pub(crate) huge_pages: bool,
    #[command(flatten)]
    pub(crate) run: LoadArguments,
}

/// `whylate load exec`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate load exec --cpus 1 --duration 30s -- stress-ng --cpu 1
  whylate load exec --rate-pattern '([0-9.]+)/sec' --rate-unit rect_per_s -- x11perf -rect500")]
pub(crate) struct ExecArguments {
    /// CPUs that the command may use [default: all]
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST")]
    pub(crate) cpus: Option<CpuSelector>,
    /// Regular expression whose first group is a rate, searched in each line of the command's output
    #[arg(long, value_name = "REGEX")]
    pub(crate) rate_pattern: Option<String>,
    /// What that rate counts
    #[arg(long, value_name = "UNIT", default_value = "per_s")]
    pub(crate) rate_unit: String,
    /// File for the command's output; must not exist [default: shown on standard error when it fails]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Program and arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
    #[command(flatten)]
    pub(crate) run: LoadArguments,
}

/// Flags of every load.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LoadArguments {
    /// How long to load; a bare number is seconds, 0 is until Ctrl-C
    #[arg(short = 'D', long, value_name = "TIME", default_value = "10s", value_parser = seconds)]
    pub(crate) duration: Nanos,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

/// `whylate report`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate report RUN                        on this terminal
  whylate report RUN -o report.html         one file, opens anywhere
  whylate report RUN --format markdown      for a pull request")]
pub(crate) struct ReportArguments {
    /// Directory of a run, also of one that was killed
    pub(crate) run: PathBuf,
    /// terminal, markdown or html [default: by the ending of FILE, else terminal]
    #[arg(long, hide_possible_values = true)]
    pub(crate) format: Option<ReportFormat>,
    /// File for the report; must not exist [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Prints the result as one JSON document
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
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

/// `whylate schema`.
#[derive(Debug, Args)]
pub(crate) struct SchemaArguments {
    /// plan, measure, run, load or plans; without a name they are listed
    pub(crate) name: Option<String>,
}

fn seconds(text: &str) -> Result<Nanos, UnitError> {
    Nanos::parse_with_default(text, "s")
}

fn microseconds(text: &str) -> Result<Nanos, UnitError> {
    Nanos::parse_with_default(text, "us")
}

fn threshold(text: &str) -> Result<Threshold, UnitError> {
    match text.parse() {
        Err(UnitError::MissingUnit { .. }) => microseconds(text).map(Threshold::Time),
        other => other,
    }
}

fn count(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "give a whole number above 0".to_owned())
}
