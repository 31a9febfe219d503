//! The static binaries: builds them, and checks that they are static and small. The helper for graphics processors,
//! which is not static, is built with them for a complete package.

use crate::elf::{self, MACHINE_AARCH64, MACHINE_X86_64};
use crate::process;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

pub(crate) const TARGETS: [&str; 2] = ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"];
const SIZE_LIMIT_BYTES: u64 = 23_300_000;
/// The Cargo profile of the shipped programs.
const PROFILE: &str = "dist";
/// That of a program for another machine in tests, which only show that it builds and links: not optimized.
const PROFILE_OF_OTHERS: &str = "others";

/// The profiles of both programs, in the order of [`TARGETS`].
pub(crate) type Profiles = [&'static str; 2];
pub(crate) const SHIPPED: Profiles = [PROFILE; 2];

/// Those for tests that run on this machine: the other machine's program is less optimized, which is quicker.
pub(crate) fn profiles_for_tests() -> Profiles {
    let of = |is_own| if is_own { PROFILE } else { PROFILE_OF_OTHERS };
    [of(cfg!(target_arch = "x86_64")), of(cfg!(target_arch = "aarch64"))]
}

/// Builds those of the programs that have this profile.
fn build(profiles: Profiles, profile: &str, mut cargo: Command) -> Result<()> {
    let targets = TARGETS.into_iter().zip(profiles).filter(|(_, of)| *of == profile);
    let targets = targets.flat_map(|(target, _)| ["--target", target]);
    cargo.args(["build", "--package", "whylate", "--profile", profile]).args(targets);
    process::run(&mut cargo)
}

/// Builds the helper for the machine's own C library: it loads drivers at run time, which a static program cannot do.
pub(crate) fn build_helper(root: &Path) -> Result<()> {
    process::run(process::cargo(root).args(["build", "--package", "whylate-gpu", "--profile", PROFILE]))?;
    println!("xtask: {}", process::target_folder(root)?.join(PROFILE).join("whylate-gpu").display());
    Ok(())
}

/// Builds the program of this machine in its shipped form. It takes minutes, the last ones on one CPU, and the lab
/// waits for it: so it comes before other builds.
pub(crate) fn build_native(root: &Path) -> Result<()> {
    build(profiles_for_tests(), PROFILE, process::nice_cargo(root, 0))
}

/// Builds the program of another machine, after all else that runs here.
pub(crate) fn build_others(root: &Path) -> Result<()> {
    build(profiles_for_tests(), PROFILE_OF_OTHERS, process::nice_cargo(root, 19))
}

/// Builds both binaries and returns their paths, in the order of [`TARGETS`].
///
/// # Errors
/// When one does not build, is not static, is for another machine or is too big.
pub(crate) fn run(root: &Path, profiles: Profiles) -> Result<[PathBuf; 2]> {
    let target_folder = process::target_folder(root)?;
    let started = Instant::now();
    for profile in BTreeSet::from(profiles) {
        build(profiles, profile, process::cargo(root))?;
    }
    println!("xtask: static binaries built in {:.0} s", started.elapsed().as_secs_f64());
    let checked = |of: usize, machine: u16| -> Result<PathBuf> {
        let binary = target_folder.join(TARGETS[of]).join(profiles[of]).join("whylate");
        let size_bytes = check(&binary, machine, profiles[of] == PROFILE)?;
        println!("xtask: {} ({:.1} MB, static)", binary.display(), size_bytes as f64 / 1e6);
        Ok(binary)
    };
    Ok([checked(0, MACHINE_X86_64)?, checked(1, MACHINE_AARCH64)?])
}

/// Returns the size in bytes of a binary that passes all checks.
fn check(binary: &Path, machine: u16, is_shipped: bool) -> Result<u64> {
    let bytes = std::fs::read(binary).with_context(|| format!("cannot read {}", binary.display()))?;
    let size_bytes = bytes.len() as u64;
    let headers = elf::read(&bytes).with_context(|| binary.display().to_string())?;
    ensure!(
        headers.machine == machine,
        "{} is for machine {}, not {machine}: see the linker in .cargo/config.toml",
        binary.display(),
        headers.machine
    );
    ensure!(headers.is_static, "{} needs a dynamic loader: link it statically", binary.display());
    ensure!(
        !is_shipped || size_bytes < SIZE_LIMIT_BYTES,
        "{} has {size_bytes} bytes; the limit is {SIZE_LIMIT_BYTES}: see what grew with `cargo bloat`",
        binary.display()
    );
    Ok(size_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::tests::executable;

    /// What `check` says about a file of these bytes.
    fn checked(bytes: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("whylate");
        std::fs::write(&path, bytes).unwrap();
        check(&path, MACHINE_X86_64, true)
            .map_or_else(|error| format!("{error:#}"), |size_bytes| size_bytes.to_string())
    }

    #[test]
    fn a_small_static_binary_passes() {
        let bytes = executable(MACHINE_X86_64, &[1]);
        assert_eq!(checked(&bytes), bytes.len().to_string());
    }

    #[test]
    fn a_dynamic_binary_is_refused() {
        assert!(checked(&executable(MACHINE_X86_64, &[3, 1])).contains("needs a dynamic loader"));
    }

    #[test]
    fn a_binary_for_another_machine_is_refused() {
        assert!(checked(&executable(MACHINE_AARCH64, &[1])).contains("is for machine 183, not 62"));
    }

    #[test]
    fn a_big_binary_is_refused() {
        let mut bytes = executable(MACHINE_X86_64, &[1]);
        bytes.resize(SIZE_LIMIT_BYTES as usize, 0);
        assert!(checked(&bytes).contains(&format!("has {SIZE_LIMIT_BYTES} bytes")));
    }

    #[test]
    fn what_is_no_binary_is_refused() {
        assert!(checked(b"#!/bin/sh\n").contains("not an ELF file"));
    }
}
