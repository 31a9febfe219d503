//! `cargo xtask lab …`: builds the lab's program and becomes it, so that its exit status is that of the command.

use crate::suite::NICENESS;
use crate::{process, skips, toolchain};
use anyhow::{Context, Result, bail};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use whylate_testing::{Need, SKIPS};

/// The exit status with which the lab's program says that this machine cannot run it.
const UNAVAILABLE: i32 = 69;
/// The target that the program under test is built for.
const GUEST_TARGET: &str = "x86_64-unknown-linux-musl";

/// Passes the words on to the lab's program.
///
/// # Errors
/// When it cannot be built or started; otherwise this does not return.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<()> {
    if words.first() == Some(&"test") {
        toolchain::ensure_targets(&[GUEST_TARGET])?;
    }
    Err(program(root, words)?.exec()).context("cannot start the lab's program")
}

/// A step of `cargo xtask test`: installs the programs that the lab needs, so that a machine that needs a lab and
/// cannot have one fails before the long steps.
///
/// # Errors
/// When there has to be a lab and can be none.
pub(crate) fn tools(root: &Path) -> Result<()> {
    step(root, &["tools"])
}

/// A step of `cargo xtask test`: builds the lab and runs its tests, most of them on one kernel.
///
/// # Errors
/// When a test fails, or when there has to be a lab and is none.
pub(crate) fn test(root: &Path) -> Result<()> {
    step(root, &["test", "--brief"])
}

/// Runs a command of the lab. A machine that can have no lab is reported, and is no failure unless `WHYLATE_LAB` is
/// `required`.
fn step(root: &Path, words: &[&str]) -> Result<()> {
    let program = program(root, words)?;
    let mut nice = Command::new("nice");
    // Tests that measure run at the same time.
    nice.args(["-n", &NICENESS.to_string()]).arg(program.get_program()).args(program.get_args());
    nice.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(root);
    nice.env(SKIPS, skips::path(root)?);
    let status = nice.stdin(Stdio::null()).status();
    let status = status.context("cannot start the lab's program")?;
    let is_required = std::env::var("WHYLATE_LAB").is_ok_and(|mode| mode == "required");
    if status.code() == Some(UNAVAILABLE) && !is_required {
        let need = Need::Machine("a machine with KVM and QEMU (lab/README.md)");
        return skips::note(root, "the lab's tests", need, "the lab is not available, for the reason above");
    }
    judge(status.code())
}

fn judge(status: Option<i32>) -> Result<()> {
    match status {
        Some(0) => Ok(()),
        Some(UNAVAILABLE) => {
            bail!("WHYLATE_LAB=required, and the lab is not available, for the reason above")
        }
        Some(status) => bail!("the lab failed (exit status: {status})"),
        None => bail!("the lab's program was ended by a signal"),
    }
}

/// Builds the lab's program and its tests, with the features that the step `tests` builds with, so that nothing is built twice; the
/// program with its arguments.
fn program(root: &Path, words: &[&str]) -> Result<Command> {
    process::run(process::cargo(root).args(["test", "--quiet", "--workspace", "--no-run", "--test", "lab"]))?;
    let mut program = Command::new(process::target_folder(root)?.join("debug/whylate-lab"));
    program.args(words).current_dir(root).env("CARGO_MANIFEST_DIR", root.join("lab"));
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_that_is_required_and_missing_fails() {
        assert!(judge(Some(UNAVAILABLE)).is_err());
        assert!(judge(Some(0)).is_ok());
        assert!(judge(Some(101)).unwrap_err().to_string().contains("101"));
        assert!(judge(None).is_err());
    }
}
