//! `cargo xtask test`: everything continuous integration does, one step after another, until one fails. The last step
//! is most of it: lanes that run in parallel.

use crate::programs::Disturbed;
use crate::{
    additions, bpf, deny, dist, fuzz, lab, package, process, programs, skips, tidy, times, toolchain,
};
use anyhow::{Context, Result, anyhow, ensure};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use whylate_testing::Need;

/// How often `whylate --help` is timed.
const HELP_REPEATS: usize = 20;

/// The priority of builds that the lab does not wait for.
pub(crate) const NICENESS: u8 = 10;

/// A step: its name and what it does.
type Step = (&'static str, fn(&Path) -> Result<()>);

/// Cheap steps first, so that most mistakes are found early.
const STEPS: [Step; 6] = [
    ("toolchain", toolchain_parts),
    ("fmt", format),
    ("tidy", tidy::run),
    ("deny", deny::check),
    ("bpf", bpf::check),
    ("all else", all_else),
];

/// Steps that follow each other, in parallel with other lanes.
type Lane<'a> = Vec<(&'static str, &'a (dyn Fn() -> Result<()> + Sync))>;

/// The steps of the gate, which takes minutes at most.
const GATE: [Step; 3] = [("fmt", format), ("tidy", tidy::run), ("all else", gate_tests)];

/// Runs the steps and prints how long each took.
///
/// # Errors
/// When a step fails; the later ones do not run.
pub(crate) fn run(root: &Path) -> Result<()> {
    let started = Instant::now();
    let mut done = Vec::new();
    // Without them everything is built again, with the same result.
    let say =
        |result: Result<()>| result.unwrap_or_else(|error| println!("xtask: times of files: {error:#}"));
    say(times::restore(root));
    let result = run_steps(&STEPS, root, &mut done);
    say(times::note(root));
    finish(root, &done, result, started)
}

/// The gate: the checks that need only a compiler, for each commit.
///
/// # Errors
/// When a step fails; the later ones do not run.
pub(crate) fn check(root: &Path) -> Result<()> {
    let started = Instant::now();
    let mut done = Vec::new();
    let result = run_steps(&GATE, root, &mut done);
    finish(root, &done, result, started)
}

/// Prints how long each step took; the last line counts the tests that skipped themselves.
fn finish(root: &Path, done: &[(&str, Duration)], result: Result<()>, started: Instant) -> Result<()> {
    println!();
    for (name, duration) in done {
        println!("xtask: {name:<10} {:>7.1} s", duration.as_secs_f64());
    }
    let (skipped, seconds) = (skips::summary(root)?, started.elapsed().as_secs_f64());
    let outcome = if result.is_ok() { "all steps passed" } else { "a step failed" };
    println!("xtask: {outcome} in {seconds:.1} s; tests: {skipped}");
    result
}

/// Runs the steps until one fails, and notes those that passed.
fn run_steps(steps: &[Step], root: &Path, done: &mut Vec<(&'static str, Duration)>) -> Result<()> {
    for (name, step) in steps {
        println!("\nxtask: --- {name}");
        let started = Instant::now();
        step(root).with_context(|| format!("step `{name}` failed"))?;
        done.push((name, started.elapsed()));
    }
    Ok(())
}

fn toolchain_parts(root: &Path) -> Result<()> {
    skips::clear(root)?;
    additions::remove_old(root)?;
    toolchain::ensure_components()?;
    toolchain::ensure_targets(&dist::TARGETS)
}

fn format(root: &Path) -> Result<()> {
    process::run(process::cargo(root).args(["fmt", "--all", "--check"])).context("run `cargo fmt --all`")
}

fn clippy(root: &Path) -> Result<()> {
    let mut cargo = process::nice_cargo(root, NICENESS);
    process::run(cargo.args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn documentation(root: &Path) -> Result<()> {
    let mut cargo = process::nice_cargo(root, NICENESS);
    process::run(cargo.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))?;
    if process::output(Command::new("mdbook").arg("--version")).is_err() {
        let need = Need::Program("mdbook (cargo install --locked mdbook)");
        return skips::note(root, "the site of docs/", need, "mdbook cannot be started");
    }
    process::run(Command::new("mdbook").args(["build", "docs"]).current_dir(root))
}

/// What takes minutes. The static program ends with minutes on one CPU, the lab waits for it, and tests that measure
/// wait most of the time: so these run in parallel.
fn all_else(root: &Path) -> Result<()> {
    let disturbed = Disturbed::default();
    run_lanes(vec![
        vec![
            ("clippy", &|| clippy(root)),
            ("docs", &|| documentation(root)),
            ("tests", &|| tests(root, &disturbed)),
        ],
        vec![
            ("lab-tools", &|| lab::tools(root)),
            ("static-program", &|| dist::build_native(root)),
            ("package", &|| package::step(root)),
            ("lab", &|| lab::test(root)),
        ],
        vec![
            ("program-of-others", &|| dist::build_others(root)),
            ("dist", &|| static_binaries(root)),
            ("additions", &|| additions::check(root)),
            ("fuzz-targets", &|| fuzz::check(root)),
        ],
    ])?;
    programs::run_alone(&disturbed)
}

/// Clippy in parallel with the tests that need no machine: the tests are built first, as two builds into one folder
/// wait for each other.
fn gate_tests(root: &Path) -> Result<()> {
    skips::clear(root)?;
    additions::remove_old(root)?;
    let mut programs = programs::build(root, &programs::pure(root)?)?;
    programs.retain(|program| !program.measures());
    run_lanes(vec![
        vec![("clippy", &|| clippy(root))],
        vec![("tests-without-machine", &|| programs::run(&programs, &Disturbed::default()))],
    ])
}

/// Tests that measure must not be disturbed by each other. So they are one lane, and all other tests another one.
fn tests(root: &Path, disturbed: &Disturbed) -> Result<()> {
    let (measuring, others): (Vec<_>, Vec<_>) =
        programs::build(root, &[])?.into_iter().partition(programs::Program::measures);
    let doc_tests = || process::run(process::cargo(root).args(["test", "--workspace", "--doc"]));
    run_lanes(vec![
        vec![("tests-that-measure", &|| programs::run(&measuring, disturbed))],
        vec![("other-tests", &|| programs::run(&others, disturbed)), ("doc-tests", &doc_tests)],
    ])
}

/// Runs lanes in parallel, prints how long each of their steps took, and names all that failed. If one has failed, the
/// others end after the step that they are in.
fn run_lanes(lanes: Vec<Lane<'_>>) -> Result<()> {
    let has_failed = AtomicBool::new(false);
    let failures = Mutex::new(Vec::new());
    let run = |lane: Lane<'_>| {
        for (name, step) in lane {
            if has_failed.load(Ordering::Relaxed) {
                break;
            }
            let started = Instant::now();
            let result = step();
            println!("xtask: --- {name} took {:.1} s", started.elapsed().as_secs_f64());
            if let Err(error) = result {
                has_failed.store(true, Ordering::Relaxed);
                println!("xtask: {name} FAILED: {error:#}");
                let mut failures = failures.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                failures.push(format!("{name}: {error:#}"));
            }
        }
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = lanes.into_iter().map(|lane| scope.spawn(|| run(lane))).collect();
        running
            .into_iter()
            .try_for_each(|lane| lane.join().map_err(|_panic| anyhow!("a lane was not run to its end")))
    })?;
    let failures = failures.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    ensure!(failures.is_empty(), "{}", failures.join("; "));
    Ok(())
}

fn static_binaries(root: &Path) -> Result<()> {
    let [native, _] = dist::run(root, dist::profiles_for_tests())?;
    if cfg!(target_arch = "x86_64") {
        let median = help_median(&native)?;
        println!(
            "xtask: whylate --help: median of {HELP_REPEATS} runs {:.1} ms (goal: below 20 ms)",
            median.as_secs_f64() * 1e3
        );
    }
    Ok(())
}

/// Median time that `whylate --help` takes. It is reported and not asserted: shared machines are noisy.
fn help_median(binary: &Path) -> Result<Duration> {
    let mut durations = Vec::with_capacity(HELP_REPEATS);
    for _ in 0..HELP_REPEATS {
        let started = Instant::now();
        let status = Command::new(binary)
            .arg("--help")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        durations.push(started.elapsed());
        ensure!(status.success(), "{} --help failed ({status})", binary.display());
    }
    durations.sort_unstable();
    Ok(durations[HELP_REPEATS / 2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    fn passes(_root: &Path) -> Result<()> {
        Ok(())
    }

    fn fails(_root: &Path) -> Result<()> {
        bail!("the reason")
    }

    #[test]
    fn the_first_failure_ends_the_run_and_is_named() {
        let mut done = Vec::new();
        let steps: [Step; 3] = [("first", passes), ("second", fails), ("third", passes)];
        let error = run_steps(&steps, Path::new("/"), &mut done).unwrap_err();
        assert_eq!(format!("{error:#}"), "step `second` failed: the reason");
        assert_eq!(done.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["first"]);
    }

    #[test]
    fn lanes_run_in_parallel_and_all_failures_are_named() {
        let (said, heard) = std::sync::mpsc::channel();
        let heard = Mutex::new(heard);
        // One after the other, the first would wait for ever.
        let waits = || Ok(heard.lock().unwrap().recv()?);
        let tells = || Ok(said.send(())?);
        run_lanes(vec![vec![("waits", &waits)], vec![("tells", &tells)]]).unwrap();

        let count = std::sync::atomic::AtomicU32::new(0);
        let fails = || bail!("the reason");
        let counts = || {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let error = run_lanes(vec![vec![("one", &fails), ("two", &counts)]]).unwrap_err().to_string();
        assert_eq!((error.as_str(), count.into_inner()), ("one: the reason", 0));
    }

    #[test]
    fn help_that_fails_is_an_error() {
        assert!(help_median(Path::new("/bin/false")).is_err());
        assert!(help_median(Path::new("/bin/true")).is_ok());
    }
}
