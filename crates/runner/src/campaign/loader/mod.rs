//! What boots a machine once with another command line, and leaves its default entry as it is.

mod grub;
mod script;
mod systemd_boot;

use super::MARK;
use super::state::CampaignError;
use grub::Grub;
use script::Script;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::process::Command;
use std::str::FromStr;
use systemd_boot::SystemdBoot;
use whylate_host::HostRoot;

/// The name of the entry that a campaign boots.
const ENTRY: &str = "whylate-campaign";

/// A boot that a repeat needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The repeat: its number among the steps of the search.
    pub step: usize,
    /// What is added to the command line.
    pub words: Vec<String>,
    pub kernel: String,
    /// The boot in which it was asked for.
    pub from_boot: String,
    /// When, in seconds since 1970.
    pub at_s: u64,
    pub told: bool,
}

impl Asked {
    /// The word that names this boot on the command line.
    pub fn mark(&self) -> String {
        format!("{MARK}{}", self.step)
    }

    /// All that is added to the default command line.
    pub fn appended(&self) -> String {
        let mark = std::iter::once(self.mark());
        self.words.iter().cloned().chain(mark).collect::<Vec<_>>().join(" ")
    }
}

/// Boots a machine once in another way.
pub trait Loader {
    /// Looks whether the loader can do that, for these kernels; writes nothing.
    fn check(&self, kernels: &BTreeSet<String>) -> Result<(), CampaignError>;

    /// Looks the same, and writes what the loader needs once.
    fn install(&self, kernels: &BTreeSet<String>) -> Result<(), CampaignError> {
        self.check(kernels)
    }

    /// Has the next boot, and no other, be `asked`.
    fn once(&self, asked: &Asked) -> Result<(), CampaignError>;

    /// Has the next boot be the default one.
    fn forget(&self) -> Result<(), CampaignError>;

    /// Takes away the files that [`Loader::install`] and [`Loader::once`] wrote.
    fn clear(&self) -> Result<(), CampaignError> {
        Ok(())
    }

    /// Does both, the second also where the first fails.
    fn remove(&self) -> Result<(), CampaignError> {
        let forgotten = self.forget();
        let cleared = self.clear();
        forgotten.and(cleared)
    }

    /// Boots the machine now.
    fn reboot(&self) -> Result<(), CampaignError> {
        run(Command::new("systemctl").arg("reboot")).map(drop)
    }
}

/// Which loader, as flags and files name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoaderName {
    Grub,
    SystemdBoot,
    /// A command of the user, by its path.
    Script(String),
}

impl fmt::Display for LoaderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Grub => "grub",
            Self::SystemdBoot => "systemd-boot",
            Self::Script(path) => path,
        })
    }
}

impl FromStr for LoaderName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "grub" => Ok(Self::Grub),
            "systemd-boot" => Ok(Self::SystemdBoot),
            path if path.starts_with('/') => Ok(Self::Script(path.to_owned())),
            other => Err(format!(
                "`{other}` is not a boot loader; choose grub, systemd-boot, or give the absolute path of a script"
            )),
        }
    }
}

impl LoaderName {
    /// The loader of the machine below `root`, by the files that it has.
    pub fn found(root: &HostRoot) -> Option<Self> {
        match () {
            () if systemd_boot::is_there(root) => Some(Self::SystemdBoot),
            () if grub::folder(root).is_some() => Some(Self::Grub),
            () => None,
        }
    }

    fn cannot(&self, problem: impl Into<String>) -> CampaignError {
        CampaignError::Loader { loader: self.clone(), problem: problem.into() }
    }
}

/// The way to boot the machine below `root` by that loader.
pub fn ways(name: &LoaderName, root: &HostRoot) -> Box<dyn Loader> {
    match name {
        LoaderName::Grub => Box::new(Grub::new(root.clone())),
        LoaderName::SystemdBoot => Box::new(SystemdBoot::new(root.clone())),
        LoaderName::Script(path) => Box::new(Script::new(path)),
    }
}

/// Runs a program to its end; what it printed.
fn run(command: &mut Command) -> Result<String, CampaignError> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let shown: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let failed = |problem: String| CampaignError::Program { command: shown.join(" "), problem };
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(failed(format!("{}: {}", output.status, said.trim().lines().last().unwrap_or("it said nothing"))))
}
