//! Flags of `whylate run`.

use super::Printing;
use clap::Args;
use std::path::PathBuf;

/// `whylate run`.
#[derive(Debug, Default, Args)]
#[command(after_help = "\
Examples:
  whylate run                                       the plan `quick`
  whylate run memory-load --set duration=30s        another plan, shorter
  whylate run graphics --short                      the same experiment in less than 90 s
  whylate run plan.toml -o results/today            a plan of your own
  whylate run plan.toml --dry-run                   checks everything, and measures nothing
  whylate run --resume results/today                continues a run that was stopped or killed

The run is stored in its own directory DIR; `whylate report DIR -o report.html` writes its report.")]
pub(crate) struct RunArguments {
    /// Name of a built-in plan, or path of a TOML file [default: quick]
    pub(crate) plan: Option<String>,
    /// Directory for the run: a new or an empty one [default: $XDG_DATA_HOME/whylate/runs/TIME-PLAN]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Overrides one value of the plan, for example `duration=10s` or `load.l3.working_set=8MiB`
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub(crate) overrides: Vec<String>,
    /// Runs the short form of the plan, from its section `[short]`: under 90 s for a built-in plan. The short form
    /// shows that everything works here, but is seldom long enough for an answer
    #[arg(long)]
    pub(crate) short: bool,
    /// Lets loads draw on a display that is in use (graphics, framebuffer, console)
    #[arg(long)]
    pub(crate) yes_draw_on_my_screen: bool,
    /// Continues the run in DIR; completed repeats are not run again
    #[arg(long, value_name = "DIR", conflicts_with_all = ["plan", "output", "overrides", "short", "yes_draw_on_my_screen"])]
    pub(crate) resume: Option<PathBuf>,
    /// Checks the plan on this machine without measuring; prints the steps in order, the time that they take, and the
    /// smallest effect that the plan can show
    #[arg(long, conflicts_with_all = ["resume", "on_threshold"])]
    pub(crate) dry_run: bool,
    /// Fails, instead of warning, if real-time priority or locked memory is refused
    #[arg(long)]
    pub(crate) strict: bool,
    /// As root, runs a plan file that another user can modify, without asking about its commands and settings
    #[arg(long, alias = "yes")]
    pub(crate) trust_plan: bool,
    /// Runs a shell command at the first latency above the `break` or `threshold` of a probe
    #[arg(long, value_name = "COMMAND")]
    pub(crate) on_threshold: Option<String>,
    #[command(flatten)]
    pub(crate) printing: Printing,
}
