//! Flags of `whylate load`: the keys of each kind of load in a plan, by the same names, with the same values.

use super::Printing;
use super::parsers::seconds;
use anyhow::{Context as _, Result, anyhow};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand, value_parser};
use serde_json::Value;
use std::path::PathBuf;
use whylate_core::plan::{LoadKind, Plan, Source};
use whylate_core::{CpuSelector, Nanos};

/// Where the command line has another word or default than a plan: kind, key, flag, default.
const OWN_WORDS: [(&str, &str, &str, &str); 2] =
    [("memory", "access", "kind", "copy"), ("memory", "working_set", "working-set", "llc/2")];

/// What the help of a kind ends with; another kind gets an example made of its name.
const EXAMPLES: [(&str, &str); 7] = [
    ("memory", MEMORY),
    ("exec", EXEC),
    ("tlb", TLB),
    ("ipi", IPI),
    ("pageattr", PAGEATTR),
    ("softirq", SOFTIRQ),
    ("irq-thread", IRQ_THREAD),
];
const MEMORY: &str = "\
Examples:
  whylate load memory --working-set l3/2 --duration 10s
  whylate load memory --cpus 0,1 --working-set 64MiB --kind read --rate 500MB/s
  whylate load memory --working-set l3*4 --kind random-chase --json";
const EXEC: &str = "\
Examples:
  whylate load exec --cpus 1 --duration 30s -- stress-ng --cpu 1
  whylate load exec --rate-pattern '([0-9.]+)/sec' --rate-unit rect_per_s -- x11perf -rect500";
const TLB: &str = "\
Examples:
  whylate load tlb --victims 1
  whylate load tlb --cpus 0,2 --victims 1 --rate 10000/s --duration 1m --json

A flush reaches only CPUs that run the same process: the load hosts a busy thread, of ordinary
priority, on each victim.";
const IPI: &str = "\
Examples:
  whylate load ipi --victims 1
  whylate load ipi --reach global --rate 1000/s --json

A barrier reaches only CPUs that run the same process (private), or one that has registered for it
(global): the load hosts a busy thread, of ordinary priority, on each victim.";
const PAGEATTR: &str = "\
Examples:
  whylate load pageattr --cpus 0
  whylate load pageattr --rate 100/s --json

Needs a graphics device whose driver maps buffers write-combining; `modprobe vgem` makes one.";
const SOFTIRQ: &str = "\
Examples:
  whylate load softirq --cpus 1
  whylate load softirq --cpus 1 --rate 20000/s --json";
const IRQ_THREAD: &str = "\
Examples:
  whylate load irq-thread --cpus 1
  whylate load irq-thread --source rtc --rate 1000/s
  whylate load irq-thread --source disk --json

Which CPU handles a disk's interrupts is up to its queues; /proc/interrupts shows it.";

/// Flags of every load.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LoadArguments {
    /// How long to load; a bare number is seconds, 0 is until Ctrl-C
    #[arg(short = 'D', long, value_name = "TIME", default_value = "10s", value_parser = seconds)]
    pub(crate) duration: Nanos,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

/// `whylate load`.
#[derive(Debug)]
pub(crate) struct LoadCommand {
    name: String,
    /// The keys that have a value, with that.
    values: Vec<(Key, Value)>,
    /// Whether it prints something that goes to a file.
    pub(crate) has_output: bool,
    pub(crate) output: Option<PathBuf>,
    pub(crate) run: LoadArguments,
}

/// A key of a load in a plan, as a flag.
#[derive(Clone, Debug)]
struct Key {
    name: String,
    flag: String,
    help: String,
    /// `boolean`, `integer`, `array` or `string`.
    takes: String,
    default: Option<String>,
    value_name: String,
}

impl LoadCommand {
    /// The load, decoded and checked as that of a plan.
    pub(crate) fn kind(&self) -> Result<LoadKind> {
        let mut text = format!(
            "name = \"load\"\n[[probe]]\nkind = \"timer\"\n[[load]]\nkind = \"{0}\"\nname = \"{0}\"\n",
            self.name
        );
        for (key, value) in &self.values {
            text.push_str(&format!("{} = {value}\n", key.name));
        }
        let plan = Plan::parse(&Source { name: "the command line", text: &text }, &[]).map_err(|error| {
            let key = error.key.trim_start_matches("load[0]").trim_start_matches('.');
            match self.values.iter().find(|(known, _)| known.name == key) {
                Some((key, Value::String(value))) => anyhow!("--{} {value}: {}", key.flag, error.message),
                Some((key, _)) => anyhow!("--{}: {}", key.flag, error.message),
                None => anyhow!("{}", error.message),
            }
        })?;
        plan.load.into_iter().next().map(|load| load.kind).context("no load")
    }

    /// The CPUs that a key names, with its flag; `None` where the kind has no such key, or it was not given.
    pub(crate) fn cpus(&self, key: &str) -> Result<Option<(String, CpuSelector)>> {
        let found = self.values.iter().find(|(known, _)| known.name == key);
        let Some((key, Value::String(value))) = found else { return Ok(None) };
        Ok(Some((format!("--{}", key.flag), value.parse()?)))
    }
}

/// The keys of one kind, the CPUs first.
fn keys(kind: &str) -> Vec<Key> {
    let schema = LoadKind::key_schema(kind).map(Value::from).unwrap_or_default();
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    let has_victims = properties.contains_key("victims");
    let mut keys: Vec<Key> =
        properties.iter().map(|(name, property)| key(kind, name, property, &schema, has_victims)).collect();
    keys.sort_by_key(|key| !["cpus", "victims"].contains(&key.name.as_str()));
    keys
}

fn key(kind: &str, name: &str, property: &Value, schema: &Value, has_victims: bool) -> Key {
    let type_of = |schema: &Value| match &schema["type"] {
        Value::Array(types) => types.first().and_then(Value::as_str).map(str::to_owned),
        other => other.as_str().map(str::to_owned),
    };
    let reference = property["$ref"].as_str().or_else(|| property["anyOf"][0]["$ref"].as_str());
    let reference = reference.and_then(|path| path.strip_prefix("#/$defs/")).unwrap_or_default();
    let of_reference = &schema["$defs"][reference];
    let own = OWN_WORDS.iter().find(|own| (own.0, own.1) == (kind, name));
    let default = match (name, &property["default"]) {
        // `target` is what is hit: `--victims`, or the CPUs themselves.
        ("cpus", Value::String(_)) => Some(if has_victims { "others" } else { "last" }.to_owned()),
        ("victims", _) => Some("last".to_owned()),
        (_, Value::String(text)) => Some(text.clone()),
        _ => own.map(|own| own.3.to_owned()),
    };
    let sentence = property["description"].as_str().unwrap_or_default().replace('\n', " ");
    // The words that it may be.
    let words: Vec<&str> = of_reference["oneOf"]
        .as_array()
        .map(|words| words.iter().filter_map(|word| word["const"].as_str()).collect())
        .unwrap_or_default();
    let words = match (words.is_empty(), &of_reference["description"]) {
        (false, _) => format!(": {}", words.join(", ")),
        (true, Value::String(size)) if reference == "Size" => format!(". {size}"),
        _ => String::new(),
    };
    let flag = own.map_or_else(|| name.replace('_', "-"), |own| own.2.to_owned());
    Key {
        help: format!("{}{words}", sentence.trim_end_matches('.')),
        takes: type_of(property).or_else(|| type_of(of_reference)).unwrap_or_else(|| "string".to_owned()),
        value_name: match reference {
            "CpuSelector" => "LIST".to_owned(),
            "Size" => "SIZE".to_owned(),
            _ => flag.rsplit('-').next().unwrap_or_default().to_uppercase(),
        },
        name: name.to_owned(),
        flag,
        default,
    }
}

fn argument(key: Key) -> Arg {
    let argument = Arg::new(key.name.clone()).help(key.help).value_name(key.value_name);
    let argument = match key.takes.as_str() {
        "array" => {
            return argument.required(true).num_args(1..).trailing_var_arg(true).allow_hyphen_values(true);
        }
        "boolean" => argument.long(key.flag).action(ArgAction::SetTrue),
        _ => argument.long(key.flag),
    };
    match key.name.as_str() {
        "cpus" => argument.short('a').alias("cpu"),
        _ => argument,
    }
    .default_values(key.default)
}

fn command(kind: &'static str, meaning: &'static str) -> Command {
    let keys = keys(kind);
    let made_of_its_name =
        || format!("Examples:\n  whylate load {kind}\n  whylate load {kind} --duration 1m --json");
    let words = EXAMPLES.iter().find(|words| words.0 == kind);
    let examples = words.map_or_else(made_of_its_name, |words| words.1.to_owned());
    let mut command = Command::new(kind).after_help(examples);
    if keys.iter().any(|key| key.takes == "array") {
        let help =
            "File for the command's output; must not exist [default: shown on standard error when it fails]";
        let output = Arg::new("output").short('o').long("output").value_name("FILE").help(help);
        command = command.arg(output.value_parser(value_parser!(PathBuf)));
    }
    let command = LoadArguments::augment_args(command.args(keys.into_iter().map(argument)));
    command.about(meaning.trim_end_matches('.')).long_about(None)
}

impl Subcommand for LoadCommand {
    fn augment_subcommands(parent: Command) -> Command {
        let parent = parent.after_help(
            "\
Examples:
  whylate load memory --working-set l3/2 --duration 10s
  whylate load tlb --victims 1
  whylate load exec --cpus 1 -- stress-ng --cpu 1",
        );
        // Only who asks for a load needs to know the flags of all loads.
        parent.defer(|parent| {
            let kinds = LoadKind::KINDS.into_iter().zip(LoadKind::MEANINGS);
            parent.subcommands(kinds.map(|(kind, meaning)| command(kind, meaning)))
        })
    }

    fn augment_subcommands_for_update(parent: Command) -> Command {
        Self::augment_subcommands(parent)
    }

    fn has_subcommand(name: &str) -> bool {
        LoadKind::KINDS.contains(&name)
    }
}

impl FromArgMatches for LoadCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let keys = keys(name);
        let has_output = keys.iter().any(|key| key.takes == "array");
        let value = |key: &Key| -> Option<Value> {
            let mut texts = matches.try_get_many::<String>(&key.name).ok().flatten().into_iter().flatten();
            match key.takes.as_str() {
                "boolean" => matches.get_flag(&key.name).then_some(Value::Bool(true)),
                "array" => Some(texts.map(|text| Value::String(text.clone())).collect()),
                "integer" => texts.next().map(|text| {
                    text.parse::<u64>().map_or_else(|_| Value::String(text.clone()), Value::from)
                }),
                _ => texts.next().map(|text| Value::String(text.clone())),
            }
        };
        let values = keys.into_iter().filter_map(|key| Some((key.clone(), value(&key)?))).collect();
        let output = matches.try_get_one::<PathBuf>("output").ok().flatten().cloned();
        let run = LoadArguments::from_arg_matches(matches)?;
        Ok(Self { name: name.to_owned(), values, has_output, output, run })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
