//! The dependencies: their licences, where they come from, which of them are not wanted, which are there twice, and what is
//! known against them. The rules are in `deny.toml`.

use crate::process;
use anyhow::{Context, Result};
use std::path::Path;

/// Where it is to be installed when it is missing: in continuous integration.
const VARIABLE: &str = "WHYLATE_DENY";

/// Checks them with cargo-deny, where it is installed.
///
/// # Errors
/// When a dependency breaks a rule.
pub(crate) fn check(root: &Path) -> Result<()> {
    let is_there = || process::output(process::cargo(root).args(["deny", "--version"])).is_ok();
    if !is_there() && std::env::var_os(VARIABLE).is_some_and(|it| it == "install") {
        // Without the registry it stays missing, which is said below.
        let _ = process::run(process::cargo(root).args(["install", "--locked", "cargo-deny"]));
    }
    if !is_there() {
        println!("skipped: the rules of deny.toml; to check them: cargo install --locked cargo-deny");
        return Ok(());
    }
    process::run(process::cargo(root).args(["deny", "check", "licenses", "bans", "sources"]))
        .context("see deny.toml for the rules")?;
    // The database is a repository of its own, which cannot be reached everywhere.
    if process::output(process::cargo(root).args(["deny", "fetch", "db"])).is_err() {
        println!("skipped: known vulnerabilities; the database of RustSec cannot be reached");
        return Ok(());
    }
    process::run(process::cargo(root).args(["deny", "check", "advisories"]))
}
