//! The chores of the workspace, run as `cargo xtask CHORE`.
//!
//! `test` is everything that continuous integration does. Nothing here is part of the product, and nothing here is
//! needed to build it.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command for developers talks on the terminal"
)]

mod additions;
mod bpf;
mod deny;
mod dist;
mod elf;
mod fuzz;
mod lab;
mod package;
mod process;
mod programs;
mod skips;
mod suite;
mod tidy;
mod times;
mod toolchain;

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask CHORE

  test             everything continuous integration does: fmt, tidy, dependencies, clippy, docs,
                   tests, static binaries, the lab's tests where there is a lab
  check            the gate for each commit, at most five minutes from warm caches: fmt, tidy, clippy, and the tests
                   that need no machine
  tidy             the rules of the source tree: dependencies, unsafe code, sizes, leftovers
  ratchets [NAME]  lowers the numbers of xtask/ratchets.txt that fell; NAME: lists what that number counts
  ratchets raise REASON  raises those that rose, with `because REASON` behind each
  additions        applies scripted additions to a copy of the tree, builds them, and counts the files that each touches
  bpf              compiles the BPF programs into crates/bpf/objects; needs clang
  dist             the static binaries for x86_64 and aarch64
  package [FOLDER] deb and rpm of the static binaries, of the helper and of the kernel module (packaging/); needs nfpm;
                   FOLDER: a target folder into which `dist` has built
  fuzz [SECONDS [TARGET…]]  each fuzz target, or those named, for that long (default 60); needs a nightly
                   toolchain and cargo-fuzz
  corpus [NAME…]   records the traces with planted causes again, in the lab (fixtures/traces/planted)
  lab COMMAND      real kernels in QEMU: build, run, shell, list, test (see lab/README.md)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let root = workspace_root()?;
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["test"] => suite::run(&root),
        ["check"] => suite::check(&root),
        ["tidy"] => tidy::run(&root),
        ["ratchets"] => tidy::write_ratchets(&root, None),
        ["ratchets", "raise", reason] => tidy::write_ratchets(&root, Some(reason)),
        ["ratchets", name] => tidy::list_ratchet(&root, name),
        ["additions"] => additions::check(&root),
        ["bpf"] => bpf::run(&root),
        ["dist"] => {
            toolchain::ensure_targets(&dist::TARGETS)?;
            dist::run(&root, dist::SHIPPED)?;
            dist::build_helper(&root)
        }
        ["package"] => {
            toolchain::ensure_targets(&dist::TARGETS)?;
            package::run(&root, None)
        }
        ["package", folder] => package::run(&root, Some(Path::new(folder))),
        ["fuzz"] => fuzz::run(&root, 60, &[]),
        ["fuzz", seconds, targets @ ..] => {
            let seconds = seconds.parse().with_context(|| format!("{seconds} is not a number of seconds"))?;
            fuzz::run(&root, seconds, targets)
        }
        ["corpus", names @ ..] => lab::run(&root, &[&["corpus"], names].concat()),
        ["lab", words @ ..] => lab::run(&root, words),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        [] => bail!("name a chore:\n{USAGE}"),
        other => bail!("no such chore: {}\n{USAGE}", other.join(" ")),
    }
}

/// The folder of the workspace's `Cargo.toml`, so that the chores work from any folder below it. It is looked up at
/// run time: a program in a target folder that several checkouts share may have been built in another one.
fn workspace_root() -> Result<PathBuf> {
    let own = std::env::var_os("CARGO_MANIFEST_DIR").context("start the chores as `cargo xtask`")?;
    let own = Path::new(&own);
    let root = own.parent().context("the folder of xtask has no parent")?;
    Ok(root.to_owned())
}
