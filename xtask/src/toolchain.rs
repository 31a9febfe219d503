//! Fetches the parts of the Rust toolchain that the chores need, when they are missing.

use crate::process;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::{Command, Stdio};

/// Adds the standard library of each target that is not installed, and says so.
///
/// # Errors
/// When it is missing and rustup is not there or cannot fetch it.
pub(crate) fn ensure_targets(targets: &[&str]) -> Result<()> {
    let sysroot = process::output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let libraries = Path::new(sysroot.trim()).join("lib/rustlib");
    let missing: Vec<&str> =
        targets.iter().copied().filter(|target| !libraries.join(target).join("lib").is_dir()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("xtask: adding the Rust targets {} with rustup", missing.join(" and "));
    let mut rustup = Command::new("rustup");
    rustup.args(["target", "add"]).args(&missing);
    process::run(&mut rustup)
        .context("the static binaries need these targets; install rustup or add them yourself")
}

/// Adds rustfmt and clippy when they are not installed, and says so.
///
/// # Errors
/// When one is missing and rustup is not there or cannot fetch it.
pub(crate) fn ensure_components() -> Result<()> {
    let missing: Vec<&str> = [("fmt", "rustfmt"), ("clippy", "clippy")]
        .into_iter()
        .filter(|(subcommand, _)| !is_installed(subcommand))
        .map(|(_, component)| component)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("xtask: adding the Rust components {} with rustup", missing.join(" and "));
    let mut rustup = Command::new("rustup");
    rustup.args(["component", "add"]).args(&missing);
    process::run(&mut rustup).context("the checks need these components; install rustup or add them yourself")
}

fn is_installed(subcommand: &str) -> bool {
    let mut command = Command::new("cargo");
    command.args([subcommand, "--version"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
