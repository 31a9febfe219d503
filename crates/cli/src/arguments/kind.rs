//! The kinds of probes, loads and treatments as commands. The flags of a kind are its keys in a plan, with the same
//! names and values; the plan type states the exceptions ([`Flag`]).

use super::parsers::whole_number;
use anyhow::{Result, anyhow};
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, Subcommand};
use serde_json::Value;
use std::fmt::Debug;
use whylate_core::order::InOrder;
use whylate_core::plan::{EXAMPLES, FLAG, Flag, Plan, Source};

/// Keys that have a short flag and perhaps aliases (the second alias is hidden) in every kind that has the key:
/// mostly those of cyclictest.
const NAMES: [(&str, char, Option<&str>, Option<&str>); 6] = [
    ("cpus", 'a', None, Some("cpu")),
    ("interval", 'i', None, None),
    ("distance", 'd', None, None),
    ("break", 'b', Some("breaktrace"), None),
    ("samples", 'l', Some("loops"), Some("until-samples")),
    ("priority", 'p', None, None),
];

/// How a key with CPUs appears on the command line.
pub(crate) enum CpusFlag {
    /// A flag with that default.
    Default(&'static str),
    /// A required flag.
    Required,
    /// No flag: the command has its own.
    None,
}

/// A family of kinds, which are the subcommands of one command. The type holds the flags that all of them have.
pub(crate) trait Family: Debug + Sized {
    /// The command, as it is typed.
    const COMMAND: &'static str;
    /// The end of its help.
    const EXAMPLES: &'static str;
    /// The section of a plan that holds a kind.
    const SECTION: &'static str;
    /// The kinds, with the purpose of each.
    fn kinds() -> Vec<(&'static str, &'static str)>;
    /// The schema of the keys of a kind.
    fn schema(kind: &str) -> Option<Value>;
    /// The flag for the key `key`, whose default in a plan is a word that only plans have.
    fn cpus(key: &str, has_victims: bool) -> CpusFlag;
    /// Adds the flags of all kinds to those of one.
    fn augment(kind: &str, keys: &[PlanKey], command: Command) -> Command;
    /// Reads them.
    fn read(kind: &str, matches: &ArgMatches) -> Result<Self, clap::Error>;
}

/// A kind with the keys that have a value, and the flags that all kinds have.
#[derive(Debug)]
pub(crate) struct KindCommand<F> {
    pub(crate) name: String,
    values: Vec<(PlanKey, Value)>,
    pub(crate) run: F,
}

/// A key of a kind, as a flag.
#[derive(Clone, Debug)]
pub(crate) struct PlanKey {
    pub(crate) name: String,
    flag: String,
    help: String,
    takes: Takes,
    pub(crate) default: Vec<String>,
    is_required: bool,
    is_positional: bool,
    takes_hyphens: bool,
    value_name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Takes {
    Text,
    /// A time; a bare number is microseconds, as in cyclictest.
    Time,
    Number,
    /// `on` or `off`.
    State,
    /// No value: the flag sets the key to this.
    Nothing(bool),
    /// Some of the words of a list that several keys share; this one sets the key.
    Word(String),
    List,
    /// A program and its arguments, after all flags.
    Command,
}

impl<F: Family> KindCommand<F> {
    /// The plan of that kind alone, decoded and checked.
    pub(crate) fn plan(&self) -> Result<Plan> {
        let section = F::SECTION;
        let mut text = "name = \"command-line\"\n".to_owned();
        if section != "probe" {
            text.push_str("[[probe]]\nkind = \"timer\"\n");
        }
        text.push_str(&format!("[[{section}]]\nkind = \"{}\"\n", self.name));
        if section != "probe" {
            text.push_str(&format!("name = \"{}\"\n", self.name));
        }
        for (key, value) in &self.values {
            text.push_str(&format!("{} = {value}\n", key.name));
        }
        Plan::parse(&Source { name: "the command line", text: &text }, &[]).map_err(|error| {
            let key = error.key.trim_start_matches(&format!("{section}[0]")).trim_start_matches('.');
            match self.values.iter().find(|(known, _)| known.name == key) {
                Some((key, Value::String(value))) => anyhow!("{} {value}: {}", key.title(), error.message),
                Some((key, _)) => anyhow!("{}: {}", key.title(), error.message),
                None if key.is_empty() => anyhow!("{}", error.message),
                None => anyhow!("--{}: {}", key.replace('_', "-"), error.message),
            }
        })
    }

    /// The flag and the value of a key that was given as text.
    pub(crate) fn text(&self, key: &str) -> Option<(String, &str)> {
        let (key, value) = self.values.iter().find(|(known, _)| known.name == key)?;
        Some((key.title(), value.as_str()?))
    }

    /// Whether a key has a value.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.values.iter().any(|(known, _)| known.name == key)
    }
}

/// The keys of one kind, the CPUs first.
fn keys<F: Family>(kind: &str) -> Vec<PlanKey> {
    let schema = F::schema(kind).unwrap_or_default();
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    let mut keys: Vec<PlanKey> =
        properties.iter().filter_map(|(name, property)| key::<F>(name, property, &schema)).collect();
    keys.order_by_key(|key| !["cpus", "victims"].contains(&key.name.as_str()));
    keys
}

fn key<F: Family>(name: &str, property: &Value, schema: &Value) -> Option<PlanKey> {
    let own: Flag = serde_json::from_value(property[FLAG].clone()).unwrap_or_default();
    let reference = property["$ref"].as_str().or_else(|| property["anyOf"][0]["$ref"].as_str());
    let reference = reference.and_then(|path| path.strip_prefix("#/$defs/")).unwrap_or_default();
    let of_reference = &schema["$defs"][reference];
    let mut is_required = schema["required"].as_array().is_some_and(|keys| keys.contains(&Value::from(name)));
    let takes = takes(property, of_reference, reference, &own, is_required);
    let mut default = default_texts(&property["default"], &takes);
    if reference == "CpuSelector" && own.default.is_none() {
        match F::cpus(name, schema["properties"].get("victims").is_some()) {
            CpusFlag::None => return None,
            // `target` and `others` have a meaning only in plans.
            _ if default.is_empty() => {}
            CpusFlag::Required => (default, is_required) = (Vec::new(), true),
            CpusFlag::Default(word) => default = vec![word.to_owned()],
        }
    }
    if let Some(own) = &own.default {
        default = vec![own.clone()];
    }
    let flag = own.name.clone().unwrap_or_else(|| name.replace('_', "-"));
    Some(PlanKey {
        help: help(property, of_reference, reference, &own, &takes),
        is_required: is_required && default.is_empty(),
        is_positional: own.is_positional || takes == Takes::Command,
        takes_hyphens: own.takes_hyphens || takes == Takes::Command,
        value_name: match reference {
            "CpuSelector" => "LIST".to_owned(),
            "Size" => "SIZE".to_owned(),
            "Hz" => "FREQUENCY".to_owned(),
            "CpuPair" => "A,B".to_owned(),
            _ if takes == Takes::Time && !own.is_positional => "TIME".to_owned(),
            _ => flag.rsplit('-').next().unwrap_or_default().to_uppercase(),
        },
        name: name.to_owned(),
        takes,
        flag,
        default,
    })
}

fn takes(property: &Value, of_reference: &Value, reference: &str, own: &Flag, is_required: bool) -> Takes {
    let schema = if property["type"].is_null() { of_reference } else { property };
    let (kind, is_optional) = match &schema["type"] {
        Value::Array(types) => (types.first().and_then(Value::as_str), true),
        other => (other.as_str(), false),
    };
    match (kind, &own.word) {
        (_, Some(word)) => Takes::Word(word.clone()),
        (Some("array"), _) if is_required => Takes::Command,
        (Some("array"), _) => Takes::List,
        (Some("boolean"), _) if is_optional || own.is_positional => Takes::State,
        (Some("boolean"), _) => Takes::Nothing(property["default"] != Value::Bool(true)),
        (Some("integer"), _) => Takes::Number,
        _ if matches!(reference, "Nanos" | "Threshold") => Takes::Time,
        _ => Takes::Text,
    }
}

/// The default of a plan, as a user would type it.
fn default_texts(default: &Value, takes: &Takes) -> Vec<String> {
    match default {
        Value::String(text) => vec![text.clone()],
        Value::Number(number) => vec![number.to_string()],
        Value::Bool(state) if *takes == Takes::State => vec![if *state { "on" } else { "off" }.to_owned()],
        Value::Array(texts) => texts.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect(),
        _ => Vec::new(),
    }
}

/// The sentence of the key, with the words that it accepts: those that the sentence does not exclude.
fn help(property: &Value, of_reference: &Value, reference: &str, own: &Flag, takes: &Takes) -> String {
    let sentence = property["description"].as_str().unwrap_or_default().replace('\n', " ");
    let sentence = own.help.clone().unwrap_or(sentence);
    let sentence = sentence.trim_end_matches('.');
    let all = of_reference["oneOf"].as_array().into_iter().flatten().filter_map(|it| it["const"].as_str());
    let is_excluded = |word: &str| sentence.contains(&format!("(not `{word}`)"));
    let words: Vec<&str> = all.filter(|word| !is_excluded(word)).collect();
    match (&of_reference["description"], takes) {
        (_, Takes::Time) => format!("{sentence}; a bare number is microseconds"),
        (_, Takes::Word(word)) => format!("{word}: {sentence}"),
        _ if !words.is_empty() => format!("{sentence}: {}", words.join(", ")),
        (Value::String(size), _) if reference == "Size" => format!("{sentence}. {size}"),
        _ => sentence.to_owned(),
    }
}

impl PlanKey {
    /// Its name in errors.
    fn title(&self) -> String {
        if self.is_positional { self.value_name.clone() } else { format!("--{}", self.flag) }
    }

    fn argument(&self) -> Arg {
        let mut argument = Arg::new(self.name.clone())
            .help(self.help.clone())
            .value_name(self.value_name.clone())
            .required(self.is_required)
            .allow_hyphen_values(self.takes_hyphens);
        if !self.is_positional {
            argument = argument.long(self.flag.clone());
            if let Some((_, short, shown, hidden)) = NAMES.into_iter().find(|names| names.0 == self.name) {
                argument = argument.short(short).visible_aliases(shown).aliases(hidden);
            }
        }
        match &self.takes {
            Takes::Nothing(true) => argument.action(ArgAction::SetTrue),
            Takes::Nothing(false) => argument.action(ArgAction::SetFalse),
            Takes::State => argument.value_parser(["on", "off"]).default_values(self.default.clone()),
            Takes::List => argument.num_args(1..).default_values(self.default.clone()),
            Takes::Command => argument.num_args(1..).trailing_var_arg(true),
            Takes::Number => argument.value_parser(whole_number).default_values(self.default.clone()),
            _ => argument.default_values(self.default.clone()),
        }
    }

    fn value(&self, matches: &ArgMatches) -> Option<Value> {
        if let Takes::Nothing(state) = self.takes {
            return (matches.get_flag(&self.name) == state).then_some(Value::Bool(state));
        }
        let id = if matches!(self.takes, Takes::Word(_)) { &self.flag } else { &self.name };
        let mut texts = matches.get_many::<String>(id)?;
        match &self.takes {
            Takes::Word(own) => Some(Value::Bool(texts.any(|word| word == own))),
            Takes::List | Takes::Command => Some(texts.map(|text| Value::String(text.clone())).collect()),
            Takes::State => texts.next().map(|text| Value::Bool(text == "on")),
            Takes::Number => texts
                .next()
                .map(|text| text.parse::<i64>().map_or_else(|_| Value::String(text.clone()), Value::from)),
            Takes::Time => texts.next().map(|text| {
                let is_bare = text.parse::<f64>().is_ok();
                Value::String(if is_bare { format!("{text}us") } else { text.clone() })
            }),
            _ => texts.next().map(|text| Value::String(text.clone())),
        }
    }
}

/// The flags of all keys; keys that share a list have one flag.
fn arguments(keys: &[PlanKey]) -> Vec<Arg> {
    let is_word = |key: &&PlanKey| matches!(key.takes, Takes::Word(_));
    let mut arguments: Vec<Arg> = keys.iter().filter(|key| !is_word(key)).map(PlanKey::argument).collect();
    if let Some(first) = keys.iter().find(is_word) {
        let words = keys.iter().filter_map(|key| match &key.takes {
            Takes::Word(word) => Some(word.clone()),
            _ => None,
        });
        let words: Vec<String> = words.collect();
        let helps: Vec<&str> = keys.iter().filter(is_word).map(|key| key.help.as_str()).collect();
        let list = Arg::new(first.flag.clone()).long(first.flag.clone()).value_name("WORDS");
        let list = list.help(helps.join("; ")).value_delimiter(',').default_value(words.join(","));
        arguments.push(list.hide_possible_values(true).value_parser(words));
    }
    arguments
}

fn command<F: Family>(kind: &'static str, meaning: &'static str) -> Command {
    let keys = keys::<F>(kind);
    let schema = F::schema(kind).unwrap_or_default();
    let examples = schema[EXAMPLES].as_str().map_or_else(
        || format!("Examples:\n  whylate {0} {kind}\n  whylate {0} {kind} --json", F::COMMAND),
        str::to_owned,
    );
    let command = F::augment(kind, &keys, Command::new(kind).args(arguments(&keys)));
    let mut meaning = meaning.trim_end_matches('.').to_owned();
    if let Some(first) = meaning.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    command.after_help(examples).about(meaning).long_about(None)
}

impl<F: Family> Subcommand for KindCommand<F> {
    fn augment_subcommands(parent: Command) -> Command {
        // Built only when the subcommands are needed, since it makes the schema of every kind.
        parent.after_help(F::EXAMPLES).defer(|parent| {
            parent.subcommands(F::kinds().into_iter().map(|(kind, meaning)| command::<F>(kind, meaning)))
        })
    }

    fn augment_subcommands_for_update(parent: Command) -> Command {
        Self::augment_subcommands(parent)
    }

    fn has_subcommand(name: &str) -> bool {
        F::kinds().iter().any(|(kind, _)| *kind == name)
    }
}

impl<F: Family> FromArgMatches for KindCommand<F> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let values = keys::<F>(name).into_iter().filter_map(|key| Some((key.clone(), key.value(matches)?)));
        Ok(Self { name: name.to_owned(), values: values.collect(), run: F::read(name, matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
