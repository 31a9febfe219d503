//! A command of the user: a harness that boots the machine from outside, a remote power switch, kexec.
//!
//! It is run as `SCRIPT once`, `SCRIPT forget` and `SCRIPT reboot`. `once` gets `WHYLATE_BOOT_APPEND` (what to add to the command
//! line of the next boot) and `WHYLATE_BOOT_KERNEL` (the version of the kernel).

use super::{Asked, Loader, LoaderName, run};
use crate::campaign::CampaignError;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

/// The bits of a mode by which somebody may run a file.
const EXECUTABLE: u32 = 0o111;

#[derive(Debug)]
pub(super) struct Script {
    path: String,
}

impl Script {
    pub(super) fn new(path: &str) -> Self {
        Self { path: path.to_owned() }
    }

    fn command(&self, what: &str) -> Command {
        let mut command = Command::new(&self.path);
        command.arg(what);
        command
    }
}

impl Loader for Script {
    fn check(&self, _: &BTreeSet<String>) -> Result<(), CampaignError> {
        let problem = match std::fs::metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => "there is no such file".to_owned(),
            Err(error) => error.to_string(),
            Ok(file) if !file.is_file() => "is not a file".to_owned(),
            Ok(file) if file.permissions().mode() & EXECUTABLE == 0 => {
                format!("is not executable: chmod +x {}", self.path)
            }
            Ok(_) => return Ok(()),
        };
        Err(LoaderName::Script(self.path.clone()).cannot(problem))
    }

    fn once(&self, asked: &Asked) -> Result<(), CampaignError> {
        let mut command = self.command("once");
        command.env("WHYLATE_BOOT_APPEND", asked.appended()).env("WHYLATE_BOOT_KERNEL", &asked.kernel);
        run(&mut command).map(drop)
    }

    fn forget(&self) -> Result<(), CampaignError> {
        run(&mut self.command("forget")).map(drop)
    }

    fn reboot(&self) -> Result<(), CampaignError> {
        run(&mut self.command("reboot")).map(drop)
    }
}
