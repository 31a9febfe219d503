//! Boots a machine once with another command line, and leaves its default entry as it is: a script that speaks the
//! protocol of packaging/boot/README.md, either one of packaging/boot or the user's.

use super::MARK;
use super::state::CampaignError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::str::FromStr;
use whylate_host::HostRoot;

/// The bits of a mode that allow a user to run a file.
const EXECUTABLE: u32 = 0o111;
/// Exit code of a script that does not know `check`.
const UNKNOWN: i32 = 64;

/// A boot that a repeat needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedBoot {
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

impl AskedBoot {
    /// The word that names this boot on the command line.
    pub fn mark(&self) -> String {
        format!("{MARK}{}", self.step)
    }

    /// Everything that is added to the default command line.
    pub fn appended(&self) -> String {
        let mark = std::iter::once(self.mark());
        self.words.iter().cloned().chain(mark).collect::<Vec<_>>().join(" ")
    }
}

/// Boots a machine once in another way.
pub trait Loader {
    /// Checks whether the loader can do that, for these kernels; writes nothing.
    fn check(&self, kernels: &BTreeSet<String>) -> Result<(), CampaignError>;

    /// Makes `asked` the next boot, and no other one.
    fn once(&self, asked: &AskedBoot) -> Result<(), CampaignError>;

    /// Makes the default entry the next boot, and removes what [`Loader::once`] wrote.
    fn forget(&self) -> Result<(), CampaignError>;

    /// Boots the machine now.
    fn reboot(&self) -> Result<(), CampaignError>;
}

/// Which loader, as flags and files name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoaderName {
    Grub,
    SystemdBoot,
    RaspberryPi,
    Kexec,
    /// A command of the user, by its path.
    Script(String),
}

impl LoaderName {
    /// The loaders whose script comes with whylate, in the order in which they are looked for.
    const SHIPPED: [Self; 4] = [Self::SystemdBoot, Self::Grub, Self::RaspberryPi, Self::Kexec];

    /// Name, script, and files of which one is enough to show that it boots the machine.
    fn shipped(&self) -> Option<(&'static str, &'static str, &'static [&'static str])> {
        Some(match self {
            Self::Grub => (
                "grub",
                include_str!("../../../../packaging/boot/grub.sh"),
                &["/boot/grub/grub.cfg", "/boot/grub2/grub.cfg"],
            ),
            Self::SystemdBoot => (
                "systemd-boot",
                include_str!("../../../../packaging/boot/systemd-boot.sh"),
                &["/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"],
            ),
            Self::RaspberryPi => (
                "raspberry-pi",
                include_str!("../../../../packaging/boot/raspberry-pi.sh"),
                &["/boot/firmware/config.txt"],
            ),
            // It works without a boot loader, and is only used if it is named.
            Self::Kexec => ("kexec", include_str!("../../../../packaging/boot/kexec.sh"), &[]),
            Self::Script(_) => return None,
        })
    }

    /// The loader of the machine below `root`, judged by its files.
    pub fn found(root: &HostRoot) -> Option<Self> {
        let is_there = |name: &Self| {
            name.shipped().is_some_and(|(.., files)| files.iter().any(|file| root.exists(file)))
        };
        Self::SHIPPED.into_iter().find(is_there)
    }
}

impl fmt::Display for LoaderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Script(path) => f.write_str(path),
            shipped => f.write_str(shipped.shipped().map_or("", |(name, ..)| name)),
        }
    }
}

impl FromStr for LoaderName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shipped = Self::SHIPPED.into_iter().find(|name| name.to_string() == text);
        match shipped {
            Some(name) => Ok(name),
            None if text.starts_with('/') => Ok(Self::Script(text.to_owned())),
            None => Err(format!(
                "`{text}` is not a boot loader; choose {}, or give the absolute path of a script",
                Self::SHIPPED.map(|name| name.to_string()).join(", ")
            )),
        }
    }
}

/// The way to boot the machine below `root` by that loader.
pub fn ways(name: &LoaderName, root: &HostRoot) -> Box<dyn Loader> {
    Box::new(Script { name: name.clone(), root: root.clone() })
}

/// A script of the protocol.
struct Script {
    name: LoaderName,
    root: HostRoot,
}

impl Script {
    fn cannot(&self, problem: impl Into<String>) -> CampaignError {
        CampaignError::Loader { loader: self.name.clone(), problem: problem.into() }
    }

    fn command(&self, what: &str) -> Command {
        let mut command = match (&self.name, self.name.shipped()) {
            (LoaderName::Script(path), _) => Command::new(path),
            (_, shipped) => {
                let mut shell = Command::new("/bin/sh");
                shell.args(shipped.iter().flat_map(|(name, text, _)| ["-c", *text, *name]));
                shell
            }
        };
        command.arg(what);
        match self.root.is_real() {
            true => command.env_remove("WHYLATE_HOST_ROOT"),
            false => command.env("WHYLATE_HOST_ROOT", self.root.path("/")),
        };
        command
    }

    /// Runs it to its end. Returns its exit code if that is not 0, and the last line of its standard error.
    fn run(&self, mut command: Command) -> Result<(), (Option<i32>, String)> {
        let output = command.output().map_err(|error| (None, error.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().lines().last().map_or_else(|| output.status.to_string(), str::to_owned);
        Err((output.status.code(), said))
    }

    fn do_now(&self, what: &str, environment: &[(&str, &str)]) -> Result<(), CampaignError> {
        let mut command = self.command(what);
        command.envs(environment.iter().copied());
        self.run(command).map_err(|(_, said)| self.cannot(format!("`{what}` failed: {said}")))
    }
}

/// Why a file is not a program.
fn not_executable(path: &str) -> Option<String> {
    Some(match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => "there is no such file".to_owned(),
        Err(error) => error.to_string(),
        Ok(file) if !file.is_file() => "this is not a file".to_owned(),
        Ok(file) if file.permissions().mode() & EXECUTABLE == 0 => {
            format!("this script is not executable; run `chmod +x {path}`")
        }
        Ok(_) => return None,
    })
}

impl Loader for Script {
    fn check(&self, kernels: &BTreeSet<String>) -> Result<(), CampaignError> {
        if let LoaderName::Script(path) = &self.name
            && let Some(problem) = not_executable(path)
        {
            return Err(self.cannot(problem));
        }
        let mut command = self.command("check");
        command.env("WHYLATE_BOOT_KERNELS", kernels.iter().cloned().collect::<Vec<_>>().join(" "));
        match self.run(command) {
            Ok(()) | Err((Some(UNKNOWN), _)) => Ok(()),
            Err((_, said)) => Err(self.cannot(said)),
        }
    }

    fn once(&self, asked: &AskedBoot) -> Result<(), CampaignError> {
        let appended = asked.appended();
        self.do_now("once", &[("WHYLATE_BOOT_APPEND", &appended), ("WHYLATE_BOOT_KERNEL", &asked.kernel)])
    }

    fn forget(&self) -> Result<(), CampaignError> {
        self.do_now("forget", &[])
    }

    fn reboot(&self) -> Result<(), CampaignError> {
        self.do_now("reboot", &[])
    }
}
