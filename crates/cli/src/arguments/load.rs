//! Flags of `whylate load` that all kinds have.

use super::Printing;
use super::kind::{CpusFlag, Family, KindCommand, PlanKey};
use super::parsers::seconds;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use serde_json::Value;
use std::path::PathBuf;
use whylate_core::Nanos;
use whylate_core::plan::LoadKind;

/// `whylate load`.
pub(crate) type LoadCommand = KindCommand<LoadArguments>;

/// The flags of every load.
#[derive(Debug, Args)]
pub(crate) struct LoadArguments {
    /// How long the load runs; a bare number is seconds, 0 is until Ctrl-C
    #[arg(short = 'D', long, value_name = "TIME", default_value = "10s", value_parser = seconds)]
    pub(crate) duration: Nanos,
    #[command(flatten)]
    pub(crate) printing: Printing,
    /// Where the output of a command goes.
    #[arg(skip)]
    pub(crate) output: Option<PathBuf>,
    /// Whether the devices are listed, instead of a load.
    #[arg(skip)]
    pub(crate) lists: bool,
}

impl Family for LoadArguments {
    const COMMAND: &'static str = "load";
    const SECTION: &'static str = "load";
    const EXAMPLES: &'static str = "\
Examples:
  whylate load memory --working-set l3/2 --duration 10s
  whylate load tlb --victims 1
  whylate load exec --cpus 1 -- stress-ng --cpu 1";

    fn kinds() -> Vec<(&'static str, &'static str)> {
        LoadKind::KINDS.into_iter().zip(LoadKind::MEANINGS).collect()
    }

    fn schema(kind: &str) -> Option<Value> {
        LoadKind::key_schema(kind)
    }

    /// `target` is the CPUs that the load disturbs: `--victims`, or the CPUs themselves.
    fn cpus(key: &str, has_victims: bool) -> CpusFlag {
        CpusFlag::Default(if key == "cpus" && has_victims { "others" } else { "last" })
    }

    fn augment(kind: &str, keys: &[PlanKey], command: Command) -> Command {
        let help = "File for the command's output; must not exist [default: standard error, only if the command fails]";
        let output = Arg::new("output").short('o').long("output").value_name("FILE").help(help);
        let has_access = keys.iter().any(|key| key.name == "access");
        let command = if has_access {
            command.mut_arg("access", |access| access.visible_alias("kind"))
        } else {
            command
        };
        let output =
            ["exec", "graphics"].contains(&kind).then(|| output.value_parser(value_parser!(PathBuf)));
        let list = Arg::new("list").long("list").action(ArgAction::SetTrue);
        let list =
            (kind == "gpu").then(|| list.help("Lists the devices and their features, and runs no load"));
        Self::augment_args(command.args(output).args(list))
    }

    fn read(_kind: &str, matches: &ArgMatches) -> Result<Self, clap::Error> {
        let output = matches.try_get_one::<PathBuf>("output").ok().flatten().cloned();
        let lists = matches.try_get_one::<bool>("list").ok().flatten().copied().unwrap_or_default();
        Ok(Self { output, lists, ..Self::from_arg_matches(matches)? })
    }
}
