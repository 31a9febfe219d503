//! Flags of `whylate treat`.

use super::kind::{CpusFlag, Family, KindCommand, PlanKey};
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use serde_json::Value;
use whylate_core::plan::TreatmentKind;

/// `whylate treat`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Every change is written to a journal (/var/lib/whylate/journal, or $WHYLATE_STATE_DIR/journal)
before it is made. If another program has changed a setting in the meantime, `restore` leaves this
setting alone and ends with exit code 3.

Examples:
  whylate treat apply shield --cpus 1                    keeps other work away from CPU 1
  whylate treat apply irq-affinity --cpus 0 --dry-run    what would be written
  whylate treat apply governor --governor performance    changes it until `restore`
  whylate treat status                                   what is changed, and by which command
  whylate treat restore                                  restores everything")]
pub(crate) enum TreatCommand {
    /// Changes settings, until `restore`
    #[command(subcommand)]
    Apply(ApplyCommand),
    /// Lists the changed settings, and the command or run that changed them
    #[command(after_help = "Examples:\n  whylate treat status\n  whylate treat status --json")]
    Status(TreatPrinting),
    /// Restores every change, including those that a killed run left behind
    #[command(after_help = "Examples:\n  whylate treat restore")]
    Restore(TreatPrinting),
}

// How the outcome is printed; a doc comment would replace each treatment's description.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct TreatPrinting {
    /// Prints one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of every treatment.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Applying {
    /// Prints what would be written, and writes nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) printing: TreatPrinting,
}

/// `whylate treat apply`.
pub(crate) type ApplyCommand = KindCommand<Applying>;

impl Family for Applying {
    const COMMAND: &'static str = "treat apply";
    const SECTION: &'static str = "treatment";
    const EXAMPLES: &'static str = "\
Examples:
  whylate treat apply shield --cpus 1
  whylate treat apply governor --governor performance --dry-run
  whylate treat status";

    fn kinds() -> Vec<(&'static str, &'static str)> {
        TreatmentKind::KINDS.into_iter().zip(TreatmentKind::MEANINGS).collect()
    }

    fn schema(kind: &str) -> Option<Value> {
        TreatmentKind::key_schema(kind)
    }

    /// `target` has no meaning here: the user must name the CPUs.
    fn cpus(_key: &str, _has_victims: bool) -> CpusFlag {
        CpusFlag::Required
    }

    fn augment(_kind: &str, _keys: &[PlanKey], command: Command) -> Command {
        Self::augment_args(command)
    }

    fn read(_kind: &str, matches: &ArgMatches) -> Result<Self, clap::Error> {
        Self::from_arg_matches(matches)
    }
}
