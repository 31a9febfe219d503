//! Plans of other users: as root, their commands run only when that is wanted.

use crate::output;
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::{IsTerminal, stdin};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use whylate_core::Plan;
use whylate_core::plan::LoadKind;

/// Asks before root runs the commands of a plan that somebody else can write, unless `yes` answers. The user who typed `sudo`
/// is nobody else.
pub(super) fn check(plan: &Plan, path: &Path, yes: bool) -> Result<()> {
    let commands: Vec<String> = plan.load.iter().filter_map(|load| command(&load.kind)).collect();
    if yes || commands.is_empty() || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let file = fs::metadata(path).with_context(|| format!("cannot read the plan {}", path.display()))?;
    let caller = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
    let is_own = file.uid() == 0 || Some(file.uid()) == caller;
    if is_own && file.mode() & 0o002 == 0 {
        return Ok(());
    }
    let whose = if is_own { "every user".to_owned() } else { format!("user {}", file.uid()) };
    let what = format!("{}: {whose} can write this plan, and it runs commands as root", path.display());
    if !stdin().is_terminal() {
        bail!("{what}: {}; read it, then add `--yes`", commands.join("; "));
    }
    output::message(&format!("{what}:"));
    commands.iter().for_each(|command| output::message(&format!("    {}", command.escape_debug())));
    output::message("run them? [y/N]");
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    if answer.trim().eq_ignore_ascii_case("y") { Ok(()) } else { bail!("nothing was run") }
}

fn command(load: &LoadKind) -> Option<String> {
    match load {
        LoadKind::Exec(exec) => Some(exec.command.join(" ")),
        _ => None,
    }
}
