//! The dependencies: their licences, their sources, which are not wanted, which exist twice, and known problems with
//! them. The rules are in `deny.toml`.

use crate::{process, skips};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use whylate_testing::Need;

/// Where it is installed if it is missing: in continuous integration.
const VARIABLE: &str = "WHYLATE_DENY";

/// Checks them with cargo-deny, if it is installed.
pub(crate) fn check(root: &Path) -> Result<()> {
    let Some(program) = program(root) else {
        let need = Need::Program("cargo-deny (cargo install --locked cargo-deny)");
        return skips::note(root, "the rules of deny.toml", need, "cargo-deny cannot be started");
    };
    // As `cargo deny` calls it.
    let deny = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.current_dir(root).arg("deny").args(arguments);
        command
    };
    process::run(&mut deny(&["check", "licenses", "bans", "sources"]))
        .context("see deny.toml for the rules")?;
    // The database is a repository of its own, which cannot be reached everywhere.
    if process::output(&mut deny(&["fetch", "db"])).is_err() {
        println!("skipped: known vulnerabilities; the database of RustSec cannot be reached");
        return Ok(());
    }
    process::run(&mut deny(&["check", "advisories"]))
}

/// cargo-deny as it is installed, or in the folder of the build results, where it is kept for the next time.
fn program(root: &Path) -> Option<PathBuf> {
    let works = |program: &Path| process::output(Command::new(program).args(["deny", "--version"])).is_ok();
    let installed = PathBuf::from("cargo-deny");
    if works(&installed) {
        return Some(installed);
    }
    if std::env::var_os(VARIABLE).is_none_or(|it| it != "install") {
        return None;
    }
    let results = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let tools = results.join("tools");
    let kept = tools.join("bin/cargo-deny");
    if !works(&kept) {
        // It is quicker to build than to optimise. Without the registry it stays missing, and the check says so.
        let install = ["install", "--locked", "--debug", "cargo-deny", "--root"];
        let _ = process::run(process::cargo(root).args(install).arg(&tools));
    }
    works(&kept).then_some(kept)
}
