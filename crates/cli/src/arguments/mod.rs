//! The command line: one file for the flags of each command.

mod bisect;
mod check;
mod compare;
mod copy;
mod cpus;
#[cfg(test)]
mod documents_tests;
mod explain;
mod export;
mod farm;
mod fix;
mod histograms;
mod kind;
mod load;
mod measure;
mod parsers;
mod peers;
mod plans;
mod report;
mod run;
mod runs;
mod schema;
mod serve;
mod shell;
mod top;
mod trace;
mod treat;
mod trigger;
mod watch;

pub(crate) use bisect::BisectArguments;
pub(crate) use check::CheckArguments;
pub(crate) use compare::{CompareArguments, CompareFormat, ExitOn};
pub(crate) use copy::{BLOCK_MAX as COPY_BLOCK_MAX, CopyArguments};
pub(crate) use cpus::CpusArguments;
pub(crate) use explain::{ExplainArguments, ExportFormat, Why};
pub(crate) use export::{ExportArguments, RunForm, TableChoice};
pub(crate) use farm::{
    AskedArguments, DispatcherChoice, EngineChoice, FarmCommand, FarmCompareArguments, PullArguments,
    PushArguments, QueryArguments, RenderArguments, VerifyArguments,
};
pub(crate) use fix::FixArguments;
pub(crate) use histograms::{
    ControlArguments, HistogramsArguments, HistogramsCommand, HistogramsFormat, Priorities,
};
pub(crate) use load::LoadCommand;
pub(crate) use measure::{MeasureCommand, Threads};
pub(crate) use parsers::or_endless;
pub(crate) use peers::tip;
pub(crate) use plans::PlansArguments;
pub(crate) use report::{ReportArguments, ReportFormat};
pub(crate) use run::RunArguments;
pub(crate) use runs::{RunsArguments, RunsCommand};
pub(crate) use schema::SchemaArguments;
pub(crate) use serve::ServeArguments;
pub(crate) use shell::{CompletionsArguments, ManArguments};
pub(crate) use top::TopArguments;
pub(crate) use trace::{TraceCommand, TraceRecordArguments};
pub(crate) use treat::{ApplyCommand, Applying, TreatCommand, TreatPrinting};
pub(crate) use trigger::TriggerArguments;
pub(crate) use watch::{TaskTargetArguments, WatchArguments};

use clap::{Args, Parser, Subcommand};

/// Why was my real-time task late, who did it, and which change fixes it?
///
/// whylate puts a controlled load on a machine, measures the latency of a real-time task, and says with sound
/// statistics what made the task late.
#[derive(Debug, Parser)]
#[command(
    name = "whylate",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  whylate run                                  the quick plan on this machine, under a minute
  whylate measure timer -a 1 -p 95 -D 10s      what cyclictest measures
  whylate measure stall -a 1 -D 10s            what oslat measures
  whylate treat apply governor --governor performance
                                               changes a setting until `whylate treat restore`
  whylate watch --task audio -D 10m            why your own task was late
  whylate explain trace.dat                    who made a task late, from a trace
  whylate report RUN -o report.html            the results of a run as a web page
  whylate compare BEFORE AFTER                 what differs between two runs
  whylate fix memory-load                      finds a change that provably lowers the latency
  whylate check --cpus 1                       is this machine fit for real time on CPU 1?

Exit codes: 0 pass, 1 error or incomplete, 2 limit exceeded, regression or unfit, 3 a setting was
not restored, 69 a required facility or permission is missing."
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
    /// Searches for settings that lower latency, proves the best on new data, and says what to install
    Fix(FixArguments),
    /// Lists the built-in plans, or prints one
    Plans(PlansArguments),
    /// Measures with a single probe
    #[command(subcommand)]
    Measure(MeasureCommand),
    /// Watches your own threads, and says why one of them was late
    Watch(WatchArguments),
    /// Tells a running watch (`--trigger socket`) that something was late
    Trigger(TriggerArguments),
    /// Shows the whole machine: latencies of each CPU, interrupts, and what takes CPU time from real-time tasks
    Top(TopArguments),
    /// Shows the kernel's latency histograms (timer, wake-up, switch) and which tasks were late
    Histograms(HistogramsArguments),
    /// Runs a single load and prints the rate that it achieves
    #[command(subcommand)]
    Load(LoadCommand),
    /// Measures copies between cached, write-combining and uncached memory
    Copy(CopyArguments),
    /// Changes settings of the machine by hand, and restores them
    #[command(subcommand)]
    Treat(TreatCommand),
    /// Records the kernel's activity until a task is late, and names the cause
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Says what made a task late, from a trace or from a run
    Explain(ExplainArguments),
    /// Says whether this machine is fit for real time, and what to do about it
    Check(CheckArguments),
    /// Shows each CPU: topology, shielding, and its threads and interrupts
    Cpus(CpusArguments),
    /// Writes the report of a run as HTML, Markdown or text
    Report(ReportArguments),
    /// Lists, searches, tags and removes runs
    Runs(RunsArguments),
    /// Says what differs between runs, and whether it is better, worse or equivalent
    Compare(CompareArguments),
    /// Says whether a run resembles good or bad runs, for `git bisect run`
    Bisect(BisectArguments),
    /// Writes a run in the formats of other tools: Perfetto, CSV, HdrHistogram, OSADL
    Export(ExportArguments),
    /// Shows runs as web pages, with live figures during a run
    Serve(ServeArguments),
    /// Copies runs into object storage: a bucket or a folder that many machines share
    Push(PushArguments),
    /// Fetches a run from object storage; lists and checks the runs there
    Pull(PullArguments),
    /// Supports tests on many machines: Kubernetes, Slurm, Ansible, LAVA, checks, and SQL queries
    #[command(subcommand)]
    Farm(FarmCommand),
    /// Prints the JSON Schema of the plan or of an output
    Schema(SchemaArguments),
    /// Prints a script for command completion in a shell
    Completions(CompletionsArguments),
    /// Writes man pages
    Man(ManArguments),
}

/// Flags of every command that measures.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Printing {
    /// Prints one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// Shows no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

#[cfg(test)]
mod tests {
    use super::Arguments;
    use clap::{Command, CommandFactory as _, Parser as _};

    /// The commands of the examples that need no shell, without the explanations after them.
    fn examples(help: &str) -> Vec<&str> {
        let lines = help
            .lines()
            .filter_map(|line| line.strip_prefix("  "))
            .filter(|line| line.starts_with("whylate "));
        let commands = lines.filter_map(|line| line.split("  ").next()?.split(" > ").next());
        commands.filter(|command| !command.contains(['|', '\'', '\\'])).collect()
    }

    fn without_examples(command: &Command, path: &str, missing: &mut Vec<String>) {
        let path = format!("{path} {}", command.get_name());
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let name = path.trim_start();
        if !help.contains(&format!("Examples:\n  {name}")) {
            missing.push(name.to_owned());
        }
        let wide: Vec<&str> = help.lines().filter(|line| line.chars().count() > 100).collect();
        assert!(wide.is_empty(), "wider than 100 columns in {name}: {wide:?}");
        for example in examples(&help) {
            let parsed = Arguments::try_parse_from(example.split_whitespace());
            assert!(parsed.is_ok(), "{example}: {}", parsed.map(drop).unwrap_err());
        }
        for one in command.get_subcommands().filter(|one| one.get_name() != "help") {
            without_examples(one, &path, missing);
        }
    }

    #[test]
    fn every_command_has_examples_of_its_own_that_are_understood() {
        let mut missing = Vec::new();
        let mut command = Arguments::command();
        command.build();
        without_examples(&command, "", &mut missing);
        assert_eq!(missing, Vec::<String>::new());
    }
}
