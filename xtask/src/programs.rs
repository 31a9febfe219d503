//! The programs of all tests: those that measure on this machine's CPUs, and all others.

use crate::process;
use crate::suite::NICENESS;
use anyhow::{Context, Result, ensure};
use cargo_metadata::Message;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The packages whose tests measure, load or change this machine.
const MEASURING: [&str; 10] =
    ["cli", "bpf", "copy", "gpu", "load", "probe", "record", "runner", "sys", "treat"];
/// From which number the tests of properties draw their cases.
const DRAW: &str = "PROPTEST_RNG_SEED";

/// A program, and the folder of its package, in which it runs.
pub(crate) struct Program {
    executable: PathBuf,
    folder: PathBuf,
}

impl Program {
    /// Whether it measures on this machine's CPUs.
    pub(crate) fn measures(&self) -> bool {
        self.folder.file_name().and_then(|name| name.to_str()).is_some_and(|name| MEASURING.contains(&name))
    }

    /// Runs it to its end, and prints all that it said at once.
    fn run(&self) -> Result<()> {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder).stdin(Stdio::null());
        // The lab's tests are a step of their own: they need what the steps after this one build.
        command.env_remove("WHYLATE_LAB");
        // What fails here was broken by the change, not found by chance; a plain `cargo test` draws new cases each time.
        if std::env::var_os(DRAW).is_none() {
            command.env(DRAW, "1");
        }
        let name = self.executable.display();
        let said = command.output().with_context(|| format!("cannot start {name}"))?;
        let (out, errors) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
        println!("xtask: {name}\n{errors}{out}");
        ensure!(said.status.success(), "{name} failed ({}) in {}", said.status, self.folder.display());
        Ok(())
    }
}

/// Builds all of them.
///
/// # Errors
/// When one does not build.
pub(crate) fn build(root: &Path) -> Result<Vec<Program>> {
    let mut cargo = process::nice_cargo(root, NICENESS);
    cargo.args(["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"]);
    let mut building = cargo.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let said = building.stdout.take().context("cargo has no output")?;
    let mut programs = Vec::new();
    for message in Message::parse_stream(BufReader::new(said)) {
        if let Message::CompilerArtifact(artifact) = message?
            && let Some(executable) = artifact.executable.filter(|_| artifact.profile.test)
        {
            let folder = artifact.manifest_path.parent().context("a manifest without a folder")?;
            programs.push(Program { executable: executable.into(), folder: folder.into() });
        }
    }
    let status = building.wait()?;
    ensure!(status.success(), "`cargo test --no-run` failed ({status})");
    Ok(programs)
}

/// Runs them one after the other, whichever of them fail.
///
/// # Errors
/// Names those that failed.
pub(crate) fn run(programs: &[Program]) -> Result<()> {
    let failed = programs.iter().filter_map(|program| program.run().err());
    let failed: Vec<String> = failed.map(|error| format!("{error:#}")).collect();
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_run_and_those_that_fail_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let place = |package: &str| folder.path().join(package);
        let program = |package: &str, executable: &str| {
            std::fs::create_dir_all(place(package)).unwrap();
            Program { executable: executable.into(), folder: place(package) }
        };
        let mut all = vec![program("probe", "/bin/true"), program("store", "/bin/true")];
        assert_eq!(all.iter().map(Program::measures).collect::<Vec<_>>(), [true, false]);
        run(&all).unwrap();
        all.splice(1..1, [program("cli", "/bin/false"), program("report", "/bin/false")]);
        let error = run(&all).unwrap_err().to_string();
        assert_eq!(error.matches("/bin/false failed").count(), 2, "{error}");
        assert!(error.contains("/cli; ") && error.contains("/report"), "{error}");
    }
}
