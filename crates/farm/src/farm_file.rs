//! The farm file: the machines, the plans that run on them, and where the runs go. It is the only input of
//! [`render`].
//!
//! [`render`]: crate::render()

use crate::error::FarmError;
use serde::Deserialize;
use std::collections::BTreeMap;
use whylate_core::order::InOrder;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FarmFile {
    /// Its name: lower-case letters, digits and `-`.
    pub name: String,
    /// Where runs go: s3://BUCKET/PATH, gs://…, az://…, or a folder that every machine can reach.
    pub lake: String,
    /// When jobs start, in cron's form (`0 3 * * *`); absent: once.
    #[serde(default)]
    pub schedule: Option<String>,
    /// The path of whylate on the machines.
    #[serde(default = "default_program")]
    pub program: String,
    #[serde(default)]
    pub image: Option<String>,
    /// CPUs for a job (Kubernetes: exclusive ones, with the static CPU manager).
    #[serde(default = "default_cpus")]
    pub cpus: u32,
    /// A task that is watched on every machine, in addition to the plans (Kubernetes: a DaemonSet).
    #[serde(default)]
    pub watch: Option<String>,
    #[serde(rename = "host")]
    pub hosts: Vec<Host>,
    #[serde(default, rename = "plan")]
    pub plans: Vec<PlanRule>,
    /// The text of the file itself, which jobs receive.
    #[serde(skip)]
    pub text: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Its name, as `hostname` prints it there.
    pub name: String,
    /// Its address, if that is not its name (Ansible).
    #[serde(default)]
    pub address: Option<String>,
    /// Labels by which plans choose machines.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Prefix of its kernel's release; another release makes a job incomplete.
    #[serde(default)]
    pub kernel: Option<String>,
}

/// A plan and the machines on which it runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRule {
    /// A built-in plan, or a file in the folder of the farm file.
    pub plan: String,
    /// Labels that a machine must have; none: all machines.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

fn default_program() -> String {
    "/usr/bin/whylate".to_owned()
}

fn default_cpus() -> u32 {
    2
}

impl FarmFile {
    /// Reads a farm file; `name` is used in errors.
    ///
    /// # Errors
    /// [`FarmError::Refused`], with line and column if they are known.
    pub fn parse(name: &str, text: &str) -> Result<Self, FarmError> {
        let place = |at: usize| {
            let before = text.get(..at).unwrap_or_default();
            let column = at - before.rfind('\n').map_or(0, |end| end + 1) + 1;
            format!("{name}:{}:{column}", before.matches('\n').count() + 1)
        };
        let mut farm: Self = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or_else(|| name.to_owned(), |span| place(span.start));
            FarmError::refused(at, error.message())
        })?;
        farm.check().map_err(|what| FarmError::refused(name, what))?;
        text.clone_into(&mut farm.text);
        Ok(farm)
    }

    /// The machine of this name.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name)
    }

    fn check(&self) -> Result<(), String> {
        if self.hosts.is_empty() {
            return Err("a farm needs at least one [[host]]".to_owned());
        }
        let names = self.hosts.iter().map(|host| &host.name);
        if let Some(bad) = names.clone().chain([&self.name]).find(|name| !is_label(name)) {
            return Err(format!("`{bad}`: give a name of at most 63 lower-case letters, digits and `-`"));
        }
        let mut sorted: Vec<&String> = names.collect();
        sorted.order();
        if let Some(twice) = sorted.windows(2).find(|two| two[0] == two[1]) {
            return Err(format!("the host `{}` appears twice", twice[0]));
        }
        if let Some(schedule) = &self.schedule {
            check_schedule(schedule).map_err(|what| format!("schedule `{schedule}`: {what}"))?;
        }
        check_lake(&self.lake).map_err(|what| format!("lake `{}`: {what}", self.lake))?;
        if self.hosts.iter().any(|host| host.kernel.as_deref() == Some("")) {
            return Err("`kernel` is empty: give a release, or leave the key out".to_owned());
        }
        let mut labels = self.hosts.iter().flat_map(|host| &host.labels);
        if let Some((key, value)) = labels.find(|(key, value)| !(is_word(key) && is_word(value))) {
            return Err(format!("the label `{key}={value}`: use only letters, digits and `-_.+/:`"));
        }
        self.check_words()
    }

    /// Checks words that become parts of scripts.
    fn check_words(&self) -> Result<(), String> {
        let words = [
            Some(&self.lake),
            Some(&self.program),
            self.schedule.as_ref(),
            self.image.as_ref(),
            self.watch.as_ref(),
        ];
        let of_hosts = self.hosts.iter().flat_map(|host| [host.address.as_ref(), host.kernel.as_ref()]);
        match words.into_iter().chain(of_hosts).flatten().find(|word| !is_plain(word)) {
            Some(bad) => Err(format!("`{bad}` has characters that cannot be passed to a script")),
            None => Ok(()),
        }
    }
}

impl Host {
    /// Its labels, `KEY=VALUE` separated by spaces; empty if it has none.
    pub fn labels(&self) -> String {
        let labels = self.labels.iter().map(|(key, value)| format!("{key}={value}"));
        labels.collect::<Vec<_>>().join(" ")
    }
}

impl PlanRule {
    /// Whether the plan runs on a machine.
    pub fn is_for(&self, host: &Host) -> bool {
        self.labels.iter().all(|(key, value)| host.labels.get(key) == Some(value))
    }
}

/// Checks the five fields that every cron and Kubernetes take.
fn check_schedule(schedule: &str) -> Result<(), String> {
    const FIELDS: [(&str, u8, u8, &str); 5] = [
        ("minute", 0, 59, ""),
        ("hour", 0, 23, ""),
        ("day of the month", 1, 31, ""),
        ("month", 1, 12, "jan feb mar apr may jun jul aug sep oct nov dec"),
        ("day of the week", 0, 6, "sun mon tue wed thu fri sat"),
    ];
    let words: Vec<&str> = schedule.split_whitespace().collect();
    if words.len() != FIELDS.len() {
        return Err(format!(
            "five fields are needed (minute, hour, day of the month, month, day of the week), not {}",
            words.len()
        ));
    }
    for (word, (what, low, high, names)) in words.into_iter().zip(FIELDS) {
        let number = |text: &str| {
            let named = names.split_whitespace().position(|name| name.eq_ignore_ascii_case(text));
            let number = named.and_then(|at| u8::try_from(at).ok()).map(|at| at + low);
            let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
            number.or_else(|| if is_digits { text.parse().ok() } else { None })
        };
        let is_in = |text: &str| number(text).is_some_and(|number| (low..=high).contains(&number));
        let is_range = |range: &str| match range.split_once('-') {
            Some((from, to)) => is_in(from) && is_in(to) && number(from) <= number(to),
            None => range == "*" || is_in(range),
        };
        let is_part = |part: &str| match part.split_once('/') {
            Some((range, step)) => {
                let step = if step.starts_with('+') { None } else { step.parse::<u8>().ok() };
                is_range(range) && step.is_some_and(|step| (1..=high).contains(&step))
            }
            None => is_range(part),
        };
        if !word.split(',').all(is_part) {
            return Err(format!(
                "{what} `{word}`: give `*`, numbers from {low} to {high}, lists, ranges or steps"
            ));
        }
    }
    Ok(())
}

/// Checks that `whylate push` takes this place.
fn check_lake(lake: &str) -> Result<(), String> {
    const PLACES: &str = "give s3://BUCKET/PATH, gs://…, az://…, file:///PATH or the path of a folder";
    let is_scheme = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let is_taken = match lake.split_once("://") {
        Some(("file", path)) => path.starts_with('/'),
        Some(("s3" | "gs" | "az", place)) => !place.is_empty() && !place.starts_with('/'),
        Some(_) => false,
        // `s3:/bucket` would become a folder of that name.
        None => !lake.is_empty() && !lake.split_once(':').is_some_and(|(word, _)| is_scheme(word)),
    };
    if is_taken { Ok(()) } else { Err(PLACES.to_owned()) }
}

/// A name that every job engine takes (RFC 1123).
fn is_label(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty()
        && name.len() <= 63
        && !name.starts_with('-')
        && !name.ends_with('-')
        && name.bytes().all(is_plain)
}

/// Whether it can be a word of a list separated by spaces.
fn is_word(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.+/:".contains(&byte))
}

fn is_plain(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./:@+=, *?~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_testing::says;

    const FARM: &str =
        "name = \"rack\"\nlake = \"s3://b/farm\"\n[[host]]\nname = \"a\"\nlabels = { arch = \"arm64\" }\n";

    #[test]
    fn plans_choose_hosts_by_label() {
        let farm = FarmFile::parse("farm.toml", FARM).unwrap();
        let rule = |key: &str, value: &str| PlanRule {
            plan: "quick".to_owned(),
            labels: BTreeMap::from([(key.to_owned(), value.to_owned())]),
        };
        assert!(rule("arch", "arm64").is_for(&farm.hosts[0]));
        assert!(!rule("arch", "x86").is_for(&farm.hosts[0]) && !rule("gpu", "arm64").is_for(&farm.hosts[0]));
        assert_eq!((farm.program.as_str(), farm.cpus), ("/usr/bin/whylate", 2));
        let two = FARM.replace("{ arch", "{ soc = \"rk3588\", arch");
        let farm = FarmFile::parse("farm.toml", &two).unwrap();
        assert_eq!(farm.host("a").unwrap().labels(), "arch=arm64 soc=rk3588");
        assert!(farm.host("b").is_none());
    }

    #[test]
    fn a_schedule_is_one_of_cron() {
        let daily = ["0 3 * * *", "*/15 0-6,20 1 jan-mar Mon", "5/10 3 1-31/2 12 0,6", " 0  3 * * * "];
        for schedule in daily {
            assert_eq!(check_schedule(schedule), Ok(()), "{schedule}");
        }
        for (schedule, said) in [
            ("0 3 * *", ", not 4"),
            ("daily", ", not 1"),
            ("60 3 * * *", "minute `60`: give `*`, numbers from 0 to 59"),
            ("0 24 * * *", "hour `24`"),
            ("0 3 0 * *", "day of the month `0`"),
            ("0 3 * foo *", "month `foo`"),
            ("0 3 * * 7", "day of the week `7`"),
            ("0 6-3 * * *", "hour `6-3`"),
            ("*/0 3 * * *", "minute `*/0`"),
            ("+5 3 * * *", "minute `+5`"),
            ("1,,2 3 * * *", "minute `1,,2`"),
        ] {
            assert!(check_schedule(schedule).unwrap_err().contains(said), "{schedule}");
        }
    }

    #[test]
    fn a_lake_is_one_that_push_takes() {
        for lake in ["s3://b", "s3://b/farm", "gs://b/x", "az://c/x", "file:///srv/lake", "/srv/lake", "lake"]
        {
            assert_eq!(check_lake(lake), Ok(()), "{lake}");
        }
        for lake in ["", "http://b/farm", "s3:/b", "s3://", "s3:///farm", "file://srv", "S3://b"] {
            assert!(check_lake(lake).is_err(), "{lake}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let said = |text: &str| FarmFile::parse("farm.toml", text).unwrap_err().to_string();
        assert!(
            said(&format!("{FARM}lables = {{}}\n")).starts_with("farm.toml:6:1: unknown field"),
            "{}",
            said(&format!("{FARM}lables = {{}}\n"))
        );
        assert!(said(&format!("{FARM}[[host]]\nname = \"a\"\n")).contains("appears twice"));
        assert!(said(&FARM.replace("\"a\"", "\"A b\"")).contains("lower-case"));
        assert!(said(&FARM.replace("s3://b/farm", "s3://b/$(reboot)")).contains("passed to a script"));
        assert!(said(&format!("{FARM}kernel = \"\"\n")).contains("`kernel` is empty"));
        assert!(says("schedule-five-fields", said(&format!("schedule = \"0 3\"\n{FARM}"))));
        assert!(said(&FARM.replace("s3://b/farm", "ftp://b/farm")).contains("lake `ftp://b/farm`: give"));
        assert!(says("label-arch-two-words", said(&FARM.replace("arm64", "two words"))));
        assert!(said("name = \"rack\"\nlake = \"/srv\"\nhost = []\n").contains("[[host]]"));
    }
}
