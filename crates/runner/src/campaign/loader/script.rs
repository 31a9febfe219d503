//! A command of the user: a harness that boots the machine from outside, a remote power switch, kexec.
//!
//! It is run as `SCRIPT once`, `SCRIPT forget` and `SCRIPT reboot`. `once` gets `WHYLATE_BOOT_APPEND` (what to add to the command
//! line of the next boot) and `WHYLATE_BOOT_KERNEL` (the version of the kernel).

use super::{Asked, Loader, LoaderName, run};
use crate::campaign::CampaignError;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The command.
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
    fn install(&self, _: &BTreeSet<String>) -> Result<(), CampaignError> {
        if Path::new(&self.path).is_file() {
            return Ok(());
        }
        Err(LoaderName::Script(self.path.clone()).cannot("there is no such file"))
    }

    fn once(&self, asked: &Asked) -> Result<(), CampaignError> {
        let mut command = self.command("once");
        command.env("WHYLATE_BOOT_APPEND", asked.appended()).env("WHYLATE_BOOT_KERNEL", &asked.kernel);
        run(&mut command).map(drop)
    }

    fn forget(&self) -> Result<(), CampaignError> {
        run(&mut self.command("forget")).map(drop)
    }

    fn remove(&self) -> Result<(), CampaignError> {
        self.forget()
    }

    fn reboot(&self) -> Result<(), CampaignError> {
        run(&mut self.command("reboot")).map(drop)
    }
}
