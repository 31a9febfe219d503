//! The programs of all tests: those that measure on this machine's CPUs, and all others.

use crate::suite::NICENESS;
use crate::{process, skips};
use anyhow::{Context, Error, Result, anyhow, ensure};
use cargo_metadata::{Message, MetadataCommand};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use whylate_testing::SKIPS;

/// The packages whose tests measure, load or change this machine.
pub(crate) const MEASURING: [&str; 10] =
    ["cli", "bpf", "copy", "gpu", "load", "probe", "record", "runner", "sys", "treat"];
/// The tests that boot guests.
const LAB_TESTS: &str = "lab";
/// How many failed tests of a program that measures are run again; more of them are not chance.
const AGAIN_MAX: usize = 3;
/// From which number the tests of properties draw their cases.
const DRAW: &str = "PROPTEST_RNG_SEED";

/// Programs of which tests failed twice while other steps ran, with the names of these tests.
pub(crate) type Disturbed = Mutex<Vec<(Program, Vec<String>)>>;

/// A program, and the folder of its package, in which it runs.
#[derive(Clone)]
pub(crate) struct Program {
    executable: PathBuf,
    folder: PathBuf,
    /// The file in which its tests record that they skip themselves.
    skips: PathBuf,
}

/// What selects the tests that need only a compiler. With all packages of the workspace, so that their dependencies have the
/// features that the whole suite builds them with: nothing is built twice.
pub(crate) fn pure(root: &Path) -> Result<Vec<String>> {
    let metadata = MetadataCommand::new().current_dir(root).no_deps().exec()?;
    let mut words = vec!["--lib".to_owned()];
    for package in metadata.workspace_packages() {
        let folder = package.manifest_path.parent().and_then(|folder| folder.file_name());
        if folder.is_some_and(|folder| MEASURING.contains(&folder)) {
            continue;
        }
        let has_library = package.targets.iter().any(cargo_metadata::Target::is_lib);
        for target in package.targets.iter().filter(|target| target.name != LAB_TESTS) {
            if target.is_test() {
                words.extend(["--test".to_owned(), target.name.clone()]);
            } else if target.is_bin() && !has_library {
                words.extend(["--bin".to_owned(), target.name.clone()]);
            }
        }
    }
    Ok(words)
}

impl Program {
    /// Whether it measures on this machine's CPUs.
    pub(crate) fn measures(&self) -> bool {
        self.folder.file_name().and_then(|name| name.to_str()).is_some_and(|name| MEASURING.contains(&name))
    }

    /// Runs all its tests. While builds and the lab run, a measurement may be disturbed more than its test allows for:
    /// if a few of those that measure failed, these are run once more. If they fail again, they are left to
    /// [`run_alone`].
    fn run(&self, disturbed: &Disturbed) -> Result<()> {
        let Err((error, failed)) = self.run_tests(&[])? else { return Ok(()) };
        if !self.measures() || failed.is_empty() || failed.len() > AGAIN_MAX {
            return Err(error);
        }
        println!("xtask: again: {}", failed.join(", "));
        let Err((error, failed)) = self.run_tests(&failed)? else { return Ok(()) };
        if failed.is_empty() {
            return Err(error.context("run twice"));
        }
        lock(disturbed).push((self.clone(), failed));
        Ok(())
    }

    /// Runs those tests, or all, and prints their whole output at once. Returns what went wrong, and which tests
    /// failed.
    fn run_tests(&self, tests: &[String]) -> Result<Result<(), (Error, Vec<String>)>> {
        let mut command = Command::new(&self.executable);
        if !tests.is_empty() {
            command.arg("--exact").args(tests);
        }
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder).stdin(Stdio::null());
        // The lab's tests are a step of their own: they need what the steps after this one build.
        command.env_remove("WHYLATE_LAB").env(SKIPS, &self.skips);
        // What fails here was broken by the change, not found by chance; a plain `cargo test` draws new cases each
        // time.
        if std::env::var_os(DRAW).is_none() {
            command.env(DRAW, "1");
        }
        let name = self.executable.display();
        let said = command.output().with_context(|| format!("cannot start {name}"))?;
        let (out, errors) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
        println!("xtask: {name}\n{errors}{out}");
        if said.status.success() {
            return Ok(Ok(()));
        }
        let error = anyhow!("{name} failed ({}) in {}", said.status, self.folder.display());
        Ok(Err((error, failed_tests(&out))))
    }
}

/// The names of the failed tests, from the end of a test program's output.
fn failed_tests(said: &str) -> Vec<String> {
    let Some((_, list)) = said.rsplit_once("\nfailures:\n") else { return Vec::new() };
    list.lines().map_while(|line| line.strip_prefix("    ")).map(str::to_owned).collect()
}

/// Builds those that the words of cargo select, or all. The lab's tests are a step of their own.
pub(crate) fn build(root: &Path, selected: &[String]) -> Result<Vec<Program>> {
    let skips = skips::path(root)?;
    let mut cargo = process::nice_cargo(root, NICENESS);
    cargo
        .args(["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"])
        .args(selected);
    let mut building = cargo.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let said = building.stdout.take().context("cargo has no output")?;
    let mut programs = Vec::new();
    for message in Message::parse_stream(BufReader::new(said)) {
        if let Message::CompilerArtifact(artifact) = message?
            && let Some(executable) = artifact.executable.filter(|_| artifact.profile.test)
        {
            let folder = artifact.manifest_path.parent().context("a manifest without a folder")?;
            if artifact.target.name != LAB_TESTS {
                let (executable, folder) = (executable.into(), folder.into());
                programs.push(Program { executable, folder, skips: skips.clone() });
            }
        }
    }
    let status = building.wait()?;
    ensure!(status.success(), "`cargo test --no-run` failed ({status})");
    Ok(programs)
}

/// Runs them one after the other, whichever of them fail.
pub(crate) fn run(programs: &[Program], disturbed: &Disturbed) -> Result<()> {
    all(programs.iter().map(|program| program.run(disturbed)))
}

/// Runs the tests that failed twice a last time; for when no other step runs.
pub(crate) fn run_alone(disturbed: &Disturbed) -> Result<()> {
    all(lock(disturbed).iter().map(|(program, tests)| {
        println!("xtask: again, while nothing else runs: {}", tests.join(", "));
        program.run_tests(tests)?.map_err(|(error, _)| error.context("run three times, the last time alone"))
    }))
}

fn all(results: impl Iterator<Item = Result<()>>) -> Result<()> {
    let failed: Vec<String> = results.filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

fn lock(disturbed: &Disturbed) -> MutexGuard<'_, Vec<(Program, Vec<String>)>> {
    disturbed.lock().unwrap_or_else(PoisonError::into_inner)
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
            Program { executable: executable.into(), folder: place(package), skips: place("skips") }
        };
        let mut all = vec![program("probe", "/bin/true"), program("store", "/bin/true")];
        assert_eq!(all.iter().map(Program::measures).collect::<Vec<_>>(), [true, false]);
        let disturbed = Disturbed::default();
        run(&all, &disturbed).unwrap();
        all.splice(1..1, [program("cli", "/bin/false"), program("report", "/bin/false")]);
        let error = run(&all, &disturbed).unwrap_err().to_string();
        assert_eq!(error.matches("/bin/false failed").count(), 2, "{error}");
        assert!(error.contains("/cli; ") && error.contains("/report"), "{error}");
    }

    #[test]
    fn a_test_that_measures_has_a_second_chance_and_a_last_one_alone() {
        let folder = tempfile::tempdir().unwrap();
        // It fails with the tests of a file, which it removes one by one.
        let script = "#!/bin/sh
            echo \"$*\" >>asked
            [ -s chances ] || exit 0
            names=$(head -n 1 chances); sed -i 1d chances
            printf '\\nfailures:\\n\\n---- a stdout ----\\n\\nfailures:\\n'
            for name in $names; do echo \"    $name\"; done
            printf '\\ntest result: FAILED. 1 passed\\n'; exit 101";
        let ended = |package: &str, chances: &str| {
            let folder = folder.path().join(package);
            std::fs::create_dir_all(&folder).unwrap();
            let executable = folder.join("tests");
            // In another process: a program that starts during this test would keep a file of this process open for
            // writing.
            let mut write = Command::new("sh");
            write.args(["-c", r#"printf %s "$0" >tests && chmod +x tests"#, script]).current_dir(&folder);
            process::run(&mut write).unwrap();
            std::fs::write(folder.join("chances"), chances).unwrap();
            let _ = std::fs::remove_file(folder.join("asked"));
            let program = Program { executable, folder: folder.clone(), skips: folder.join("skips") };
            let disturbed = Disturbed::default();
            let is_passed = program.run(&disturbed).is_ok() && run_alone(&disturbed).is_ok();
            (is_passed, std::fs::read_to_string(folder.join("asked")).unwrap())
        };
        assert_eq!(ended("probe", "one two\n"), (true, "\n--exact one two\n".to_owned()));
        assert_eq!(ended("probe", "one two\none\n"), (true, "\n--exact one two\n--exact one\n".to_owned()));
        assert_eq!(ended("probe", "one\none\none\n"), (false, "\n--exact one\n--exact one\n".to_owned()));
        assert_eq!(ended("probe", "one two three four\n"), (false, "\n".to_owned()));
        assert_eq!(ended("store", "one\n"), (false, "\n".to_owned()), "nothing disturbs it");
    }
}
