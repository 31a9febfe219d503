//! Flags of `whylate treat`.

use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use whylate_core::plan::TreatmentKind;

/// `whylate treat`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Every change is in a journal (/var/lib/whylate/journal, or $WHYLATE_STATE_DIR/journal) before it
is made. A setting that somebody else has changed since is left alone, and the exit code is 3.

Examples:
  whylate treat apply shield --cpus 1                    keeps everything else away from CPU 1
  whylate treat apply irq-affinity --cpus 0 --dry-run    what would be written
  whylate treat apply governor --governor performance    changes it until `restore`
  whylate treat status                                   what is changed, and by whom
  whylate treat restore                                  takes everything back")]
pub(crate) enum TreatCommand {
    /// Changes settings, until `restore`
    #[command(
        subcommand,
        after_help = "\
Examples:
  whylate treat apply shield --cpus 1
  whylate treat apply governor --governor performance --dry-run
  whylate treat status"
    )]
    Apply(ApplyCommand),
    /// Lists what is changed, by which command or run
    #[command(after_help = "Examples:\n  whylate treat status\n  whylate treat status --json")]
    Status(TreatPrinting),
    /// Takes back every change, also those that a killed run left behind
    #[command(after_help = "Examples:\n  whylate treat restore")]
    Restore(TreatPrinting),
}

// How the outcome is printed; a doc comment would replace what each treatment is for.
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

/// `whylate treat apply`: the treatment, whose keys in a plan are its flags, and how to go about it.
#[derive(Debug)]
pub(crate) struct ApplyCommand {
    pub(crate) kind: TreatmentKind,
    pub(crate) applying: Applying,
}

impl Subcommand for ApplyCommand {
    fn augment_subcommands(parent: Command) -> Command {
        TreatmentKind::augment_subcommands(parent).mut_subcommands(|command| {
            // The flags bring a description of their own.
            let about = command.get_about().cloned().unwrap_or_default();
            Applying::augment_args(command).about(about)
        })
    }
    fn augment_subcommands_for_update(parent: Command) -> Command {
        Self::augment_subcommands(parent)
    }
    fn has_subcommand(name: &str) -> bool {
        TreatmentKind::has_subcommand(name)
    }
}

impl FromArgMatches for ApplyCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let kind = TreatmentKind::from_arg_matches(matches)?;
        let applying = matches.subcommand().map_or(matches, |(_, own)| own);
        Ok(Self { kind, applying: Applying::from_arg_matches(applying)? })
    }
    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_treatment_is_a_command() {
        let command = ApplyCommand::augment_subcommands(Command::new("apply"));
        let names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        assert_eq!(names, TreatmentKind::KINDS);
    }
}
