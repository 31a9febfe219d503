//! Flags of `whylate measure` that all probes have.

use super::Printing;
use super::kind::{CpusFlag, Family, KindCommand, PlanKey};
use super::parsers::seconds;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use serde_json::Value;
use std::path::PathBuf;
use whylate_core::plan::{ProbeFacts, ProbePlan};
use whylate_core::result::HistogramSource;
use whylate_core::{CpuSelector, Nanos, SeriesName};

/// `whylate measure`.
pub(crate) type MeasureCommand = KindCommand<ProbeArguments>;

/// Flags of every probe.
#[derive(Debug, Args)]
pub(crate) struct ProbeArguments {
    /// How long to measure; a bare number is seconds, 0 is until Ctrl-C
    #[arg(short = 'D', long, value_name = "TIME", default_value = "10s", value_parser = seconds)]
    pub(crate) duration: Nanos,
    /// Length of the warm-up, whose samples do not count
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = seconds)]
    pub(crate) warmup: Nanos,
    /// Number of largest spikes to list
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub(crate) spikes: usize,
    /// Fails, instead of warning, if real-time priority or locked memory is refused
    #[arg(long)]
    pub(crate) strict: bool,
    /// Names the cause of each spike; needs root and a kernel with BPF and BTF, or with tracefs
    #[arg(long)]
    pub(crate) causes: bool,
    /// Source of the causes: bpf or tracefs [default: the best that works]
    #[arg(long, value_name = "SOURCE", requires = "causes")]
    pub(crate) causes_from: Option<HistogramSource>,
    /// Runs a shell command at the first spike; the latency is in WHYLATE_LATENCY_NS
    #[arg(long, value_name = "COMMAND")]
    pub(crate) on_threshold: Option<String>,
    /// At --break, writes a marker into a trace that you record in tracefs, and stops this trace (tracing_on = 0)
    #[arg(long)]
    pub(crate) tracemark: bool,
    /// Stores the measurement as a run in this directory (new or empty), for report, compare and export
    #[arg(short, long, value_name = "DIR", conflicts_with = "tracemark")]
    pub(crate) output: Option<PathBuf>,
    /// Explains each warning
    #[arg(long, conflicts_with = "output")]
    pub(crate) details: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
    /// The CPUs of a probe that has one thread on each.
    #[arg(skip)]
    pub(crate) threads: Option<Threads>,
}

/// Flags of a probe that has one thread on each CPU.
#[derive(Debug, Args)]
pub(crate) struct Threads {
    /// CPUs to measure, one thread on each: a list, or all, isolated, housekeeping, last [without a list: all]
    #[arg(short = 'a', long = "cpu", alias = "cpus", visible_alias = "affinity", value_name = "LIST", num_args = 0..=1, default_missing_value = "all")]
    pub(crate) cpu: Option<CpuSelector>,
    /// Number of measuring threads, each on its own CPU [without a number: one on each CPU]
    #[arg(short, long, value_name = "N", num_args = 0..=1, default_missing_value = "0")]
    pub(crate) threads: Option<usize>,
    /// Measures with one thread on each CPU: the same as -t -a
    #[arg(short = 'S', long)]
    pub(crate) smp: bool,
    /// Accepted for cyclictest's users: memory is always locked where that is allowed
    #[arg(short, long, hide = true)]
    mlockall: bool,
    /// Accepted for users of older cyclictest: clock_nanosleep is the default of the timer
    #[arg(short, long, hide = true)]
    nanosleep: bool,
}

fn facts(kind: &str) -> Option<ProbeFacts> {
    SeriesName::of(kind).facts()
}

fn is_between_cpus(kind: &str) -> bool {
    facts(kind).is_some_and(|facts| facts.between_cpus)
}

impl Family for ProbeArguments {
    const COMMAND: &'static str = "measure";
    const SECTION: &'static str = "probe";
    const EXAMPLES: &'static str = "\
Examples:
  whylate measure timer -a 1 -p 95 -D 10s         what cyclictest measures
  whylate measure stall --cpu 1 --duration 10s    what oslat measures
  whylate measure timer -a 1 --causes             the cause of each spike";

    /// A companion cannot measure alone.
    fn kinds() -> Vec<(&'static str, &'static str)> {
        let kinds = ProbePlan::KINDS.into_iter().zip(ProbePlan::MEANINGS);
        kinds.filter(|(kind, _)| facts(kind).is_some_and(|facts| !facts.companion)).collect()
    }

    fn schema(kind: &str) -> Option<Value> {
        ProbePlan::key_schema(kind)
    }

    fn cpus(_key: &str, _has_victims: bool) -> CpusFlag {
        CpusFlag::None
    }

    fn augment(kind: &str, keys: &[PlanKey], command: Command) -> Command {
        let command = Self::augment_args(command);
        // It ends by itself.
        let is_counted = keys.iter().any(|key| key.name == "samples" && !key.default.is_empty());
        let until_samples =
            "Longest time to measure; a bare number is seconds, 0 is until --samples are taken";
        let command = command.mut_arg("duration", |duration| match is_counted {
            true => duration.default_value("0").help(until_samples),
            false => duration,
        });
        // The name that oslat uses.
        let command = match kind {
            "stall" => command.mut_arg("break", |limit| limit.visible_short_alias('T')),
            _ => command,
        };
        match is_between_cpus(kind) {
            true => command.mut_arg("on_threshold", |hook| hook.hide(true)),
            false => Threads::augment_args(command).mut_arg("cpu", |cpu| cpu.display_order(0)),
        }
    }

    fn read(kind: &str, matches: &ArgMatches) -> Result<Self, clap::Error> {
        let threads = (!is_between_cpus(kind)).then(|| Threads::from_arg_matches(matches)).transpose()?;
        let mut read = Self { threads, ..Self::from_arg_matches(matches)? };
        let is_given = |flag: &str| {
            matches.try_contains_id(flag).is_ok()
                && matches.value_source(flag) == Some(ValueSource::CommandLine)
        };
        // As cyclictest: with a number of samples there is no time limit unless it is given, too.
        if is_given("samples") && !is_given("duration") {
            read.duration = Nanos(0);
        }
        Ok(read)
    }
}
