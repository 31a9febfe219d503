//! Runs the fuzz targets of `fuzz/` with cargo-fuzz on a nightly toolchain.

use crate::{process, suite};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

/// Limits of a target's memory and of one allocation: more than any input of a few KiB justifies. The largest intended
/// allocation is the dictionary of an xz file, 256 MiB.
const LIMITS: [&str; 2] = ["-rss_limit_mb=1024", "-malloc_limit_mb=300"];

/// Runs each target, or those in `only`, for `seconds`, starting from its seeds and, for plans, from the built-in ones.
///
/// # Errors
/// When there is no nightly toolchain or no cargo-fuzz, or when an input breaks a target.
pub(crate) fn run(root: &Path, seconds: u64, only: &[&str]) -> Result<()> {
    let mut version = Command::new("rustup");
    version.args(["run", "nightly", "cargo", "fuzz", "--version"]);
    process::output(&mut version).context(
        "fuzzing needs a nightly toolchain and cargo-fuzz: `rustup toolchain install nightly` and `cargo install cargo-fuzz`",
    )?;
    let mut targets = targets(root)?;
    for name in only {
        ensure!(targets.iter().any(|target| target == name), "no fuzz target {name}: there are {targets:?}");
    }
    targets.retain(|target| only.is_empty() || only.contains(&target.as_str()));
    ensure!(!targets.is_empty(), "no fuzz targets in fuzz/fuzz_targets");
    for target in targets {
        println!("xtask: fuzzing {target} for {seconds} s");
        let corpus = format!("fuzz/corpus/{target}");
        std::fs::create_dir_all(root.join(&corpus)).with_context(|| format!("cannot create {corpus}"))?;
        let mut fuzz = Command::new("rustup");
        fuzz.current_dir(root).args(["run", "nightly", "cargo", "fuzz", "run", &target, &corpus]);
        // libFuzzer writes only into the first folder; the others are seeds.
        fuzz.args(
            [format!("fuzz/seeds/{target}").as_str(), "plans"].iter().filter(|path| root.join(path).is_dir()),
        );
        fuzz.args(["--", &format!("-max_total_time={seconds}"), "-print_final_stats=1", "-timeout=5"]);
        fuzz.args(LIMITS);
        let dictionary = format!("fuzz/{target}.dict");
        if root.join(&dictionary).is_file() {
            fuzz.arg(format!("-dict={dictionary}"));
        }
        process::run(&mut fuzz)?;
    }
    Ok(())
}

/// Whether the targets still compile: they are not part of the workspace.
///
/// # Errors
/// When they do not.
pub(crate) fn check(root: &Path) -> Result<()> {
    let folder = process::target_folder(root)?.join("fuzz");
    let mut cargo = process::nice_cargo(&root.join("fuzz"), suite::NICENESS);
    // Nothing is linked, so libFuzzer itself need not be built.
    cargo
        .arg("check")
        .arg("--target-dir")
        .arg(&folder)
        .env("CUSTOM_LIBFUZZER_PATH", folder.join("libFuzzer"));
    process::run(&mut cargo)
}

/// Names of the fuzz targets, sorted.
fn targets(root: &Path) -> Result<Vec<String>> {
    let folder = root.join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".rs")) {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_sources_in_their_folder() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("fuzz/fuzz_targets");
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["store.rs", "plan.rs", "notes.md"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        assert_eq!(targets(root.path()).unwrap(), ["plan", "store"]);
    }

    #[test]
    fn each_source_is_a_program_of_the_package() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let package = std::fs::read_to_string(root.join("fuzz/Cargo.toml")).unwrap();
        let mut programs: Vec<&str> =
            package.split("[[bin]]\nname = \"").skip(1).filter_map(|it| it.split('"').next()).collect();
        programs.sort_unstable();
        assert_eq!(targets(&root).unwrap(), programs);
    }

    #[test]
    fn a_missing_folder_is_named() {
        let root = tempfile::tempdir().unwrap();
        assert!(targets(root.path()).unwrap_err().to_string().contains("fuzz_targets"));
    }
}
