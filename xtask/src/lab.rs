//! `cargo xtask lab …`: builds the lab's program and becomes it, so that its exit status is the one that is seen.

use crate::{process, toolchain};
use anyhow::{Context, Result};
use std::os::unix::process::CommandExt;
use std::path::Path;

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
    process::run(process::cargo(root).args(["build", "--quiet", "--package", "whylate-lab"]))?;
    let mut lab = process::cargo(root);
    lab.args(["run", "--quiet", "--package", "whylate-lab", "--"]).args(words);
    Err(lab.exec()).context("cannot start the lab's program")
}
