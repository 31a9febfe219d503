//! Runs tests that need guests: those that ask for the same machine share one, and what could not run is reported.
//!
//! The tests run only if `WHYLATE_LAB` is set: `on` skips what this machine cannot do, `required` fails when the lab
//! is missing. A profile that this QEMU is too old for is skipped in both.

use crate::error::LabError;
use crate::guest::Guest;
use crate::machine::{Architecture, Kernel, Machine, Profile};
use crate::{Cache, Lab};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use whylate_testing::Need;

/// Guests that run at the same time.
const GUESTS_MAX: usize = 2;
/// How many more guests a test gets if QEMU failed, or if no guest came up.
const MORE_GUESTS_MAX: usize = 2;

/// How many failed tests of the brief suite are run again; more of them are not chance.
const AGAIN_MAX: usize = 6;

/// What a test does with its guest.
type Body = fn(&mut Guest) -> Result<(), LabError>;

/// A test and the machine that it needs.
#[derive(Debug)]
pub struct LabTest {
    name: &'static str,
    machine: Machine,
    body: Body,
}

impl LabTest {
    #[must_use]
    pub fn new(name: &'static str, machine: Machine, body: Body) -> Self {
        Self { name, machine, body }
    }
}

/// The kernels of x86 that a test runs on: those of the command line, all of the lab with `--all-kernels`, otherwise
/// those that it names.
#[must_use]
pub fn kernels(named: &[Kernel]) -> Vec<Kernel> {
    let mut kernels = kernels_and_arm64(named);
    kernels.retain(|kernel| kernel.architecture() == Architecture::X86);
    kernels
}

/// As [`kernels`], and those of arm64 if the command line has them: for tests of what every architecture has.
#[must_use]
pub fn kernels_and_arm64(named: &[Kernel]) -> Vec<Kernel> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let asked: Vec<Kernel> = words.iter().filter_map(|word| Kernel::named(word)).collect();
    let has_all = words.iter().any(|word| word == "--all-kernels");
    match (asked.is_empty(), has_all) {
        (false, _) => asked,
        (true, true) => Kernel::ALL.to_vec(),
        (true, false) => named.to_vec(),
    }
}

/// The kernels of arm64 that the command line has: for tests of what is different there.
#[must_use]
pub fn arm64() -> Vec<Kernel> {
    let mut kernels = kernels_and_arm64(&[]);
    kernels.retain(|kernel| kernel.architecture() == Architecture::Arm64);
    kernels
}

/// As [`kernels`], but the real-time kernel alone with `--brief`: for what hardly depends on the kernel's preemption.
#[must_use]
pub fn kernels_unless_brief(named: &[Kernel]) -> Vec<Kernel> {
    unless_brief(kernels(named))
}

/// As [`kernels_unless_brief`], and arm64 as in [`kernels_and_arm64`].
#[must_use]
pub fn kernels_and_arm64_unless_brief(named: &[Kernel]) -> Vec<Kernel> {
    unless_brief(kernels_and_arm64(named))
}

fn unless_brief(mut kernels: Vec<Kernel>) -> Vec<Kernel> {
    if is_brief() {
        kernels.retain(|kernel| kernel.is_realtime());
    }
    kernels
}

/// Whether only the tests run that each commit needs.
#[must_use]
pub fn is_brief() -> bool {
    std::env::args().any(|word| word == "--brief")
}

/// With `--brief`: without the tests of that name on that machine, written as they are reported.
///
/// # Panics
/// When there is no such test any more.
#[must_use]
pub fn without(mut tests: Vec<LabTest>, left_out: &[&str]) -> Vec<LabTest> {
    let named = |test: &LabTest| format!("{} [{}]", test.name, test.machine.label());
    // With kernels on the command line other machines are asked for.
    if is_brief() && !std::env::args().any(|word| Kernel::named(&word).is_some()) {
        for name in left_out {
            assert!(
                tests.iter().any(|test| named(test) == *name),
                "{name}: the brief suite has no test with this name"
            );
        }
        tests.retain(|test| !left_out.contains(&named(test).as_str()));
    }
    tests
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    /// It failed first.
    PassedAgain,
    Failed(String),
    Skipped(String),
}

/// Runs the tests whose names contain one of the words of the command line, or all, and says how they ended.
#[must_use]
#[allow(clippy::print_stdout, reason = "this is the tests' main function")]
pub fn run(tests: Vec<LabTest>) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
    let (kernels, words): (Vec<&str>, Vec<&str>) =
        words.into_iter().partition(|word| Kernel::named(word).is_some());
    let mut chosen = chosen(tests, &words);
    chosen.retain(|test| {
        kernels.is_empty() || kernels.iter().any(|name| Kernel::named(name) == Some(test.machine.kernel))
    });
    if arguments.iter().any(|argument| argument == "--list") {
        for test in &chosen {
            println!("{}: test", test.name);
        }
        return ExitCode::SUCCESS;
    }
    if chosen.is_empty() {
        println!("lab: no test matches `{}`", arguments.join(" "));
        return ExitCode::FAILURE;
    }
    let started = Instant::now();
    let mode = std::env::var("WHYLATE_LAB").unwrap_or_default();
    let outcomes = match mode.as_str() {
        "on" | "required" => in_guests(&chosen),
        _ => {
            let reason = "WHYLATE_LAB is not set; `cargo xtask lab test` runs this test".to_owned();
            let skip = |test: &LabTest| report(test, Outcome::Skipped(reason.clone()), Duration::ZERO);
            Ok(chosen.iter().map(skip).collect())
        }
    };
    let outcomes = outcomes.unwrap_or_else(|error| {
        let outcome = match mode.as_str() {
            "required" => Outcome::Failed(error.to_string()),
            _ => Outcome::Skipped(error.to_string()),
        };
        chosen.iter().map(|test| report(test, outcome.clone(), Duration::ZERO)).collect()
    });
    println!("lab: {} in {:.1} s", tally(&outcomes), started.elapsed().as_secs_f64());
    let has_failed = outcomes.iter().any(|outcome| matches!(outcome, Outcome::Failed(_)));
    if has_failed { ExitCode::from(101) } else { ExitCode::SUCCESS }
}

fn tally(outcomes: &[Outcome]) -> String {
    let count = |wanted: fn(&Outcome) -> bool| outcomes.iter().filter(|outcome| wanted(outcome)).count();
    let passed = count(|outcome| matches!(outcome, Outcome::Passed | Outcome::PassedAgain));
    let again = match count(|outcome| *outcome == Outcome::PassedAgain) {
        0 => String::new(),
        tests => format!(" ({tests} only in a second attempt)"),
    };
    let failed = count(|outcome| matches!(outcome, Outcome::Failed(_)));
    let skipped = count(|outcome| matches!(outcome, Outcome::Skipped(_)));
    format!("{passed} passed{again}, {failed} failed, {skipped} skipped")
}

fn chosen(tests: Vec<LabTest>, words: &[&str]) -> Vec<LabTest> {
    let is_chosen = |test: &LabTest| words.is_empty() || words.iter().any(|word| test.name.contains(word));
    tests.into_iter().filter(is_chosen).collect()
}

/// By `WHYLATE_LAB_GUESTS`: a host with other work may have room for only one.
fn guests_max() -> usize {
    let asked = std::env::var("WHYLATE_LAB_GUESTS").ok().and_then(|text| text.parse().ok());
    asked.filter(|guests| *guests > 0).unwrap_or(GUESTS_MAX)
}

/// The programs under test, from the variables that `lab test` sets.
fn binaries() -> BTreeMap<Architecture, PathBuf> {
    let named = |architecture: Architecture| {
        let path = std::env::var_os(architecture.binary_variable())?;
        Some((architecture, path.into()))
    };
    Architecture::ALL.into_iter().filter_map(named).collect()
}

/// Runs tests, two guests at a time by default.
fn in_guests(tests: &[LabTest]) -> Result<Vec<Outcome>, LabError> {
    let cache = Cache::of_user()?;
    let lab = Lab::new(cache, binaries());
    let mut groups: BTreeMap<&Machine, Vec<&LabTest>> = BTreeMap::new();
    for test in tests {
        groups.entry(&test.machine).or_default().push(test);
    }
    // A newer kernel that is not available, or a profile that this QEMU is too old for, is skipped; if anything else
    // is missing, there is no lab.
    for machine in groups.keys().filter(|machine| Kernel::NEEDED.contains(&machine.kernel)) {
        if let Some(reason) = lab.lacks(&Machine { profile: Profile::Counted, ..(*machine).clone() }) {
            return Err(LabError::Unavailable { reason, fix: "see lab/README.md".into() });
        }
    }
    let mut waiting: Vec<_> = groups.into_iter().collect();
    // The longest first, so that the guests end together; taken from the end.
    waiting.sort_by_key(|(_, tests)| tests.len());
    let waiting = Mutex::new(waiting);
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..guests_max() {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop();
                    let Some((machine, tests)) = next else { break };
                    let done = in_one_guest(&lab, machine, &tests);
                    let done = tests.into_iter().zip(done);
                    outcomes.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(done);
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if is_brief() {
        run_again(&mut outcomes, |test| in_one_guest(&lab, &test.machine, &[test]).remove(0));
    }
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

/// The brief suite runs in parallel with builds and other tests, and many of its tests ask for 19 right answers of 20:
/// a few that failed are run once more, one after the other. What is broken fails again.
#[allow(clippy::print_stdout, reason = "the tests' runner talks on the terminal")]
fn run_again(outcomes: &mut [(&LabTest, Outcome)], mut run: impl FnMut(&LabTest) -> Outcome) {
    let failed = outcomes.iter_mut().filter(|(_, outcome)| matches!(outcome, Outcome::Failed(_)));
    let failed: Vec<_> = failed.collect();
    if failed.len() > AGAIN_MAX {
        return;
    }
    for (test, outcome) in failed {
        println!("again:   {} [{}], while no other guest runs", test.name, test.machine.label());
        *outcome = match run(test) {
            Outcome::Passed => Outcome::PassedAgain,
            other => other,
        };
    }
}

/// Runs the tests of one machine in one guest; a guest that is lost is replaced for the next test.
#[allow(clippy::print_stdout, reason = "the tests' runner talks on the terminal")]
fn in_one_guest(lab: &Lab, machine: &Machine, tests: &[&LabTest]) -> Vec<Outcome> {
    if let Some(reason) = lab.lacks(machine) {
        let skip = |test: &&LabTest| report(test, Outcome::Skipped(reason.clone()), Duration::ZERO);
        return tests.iter().map(skip).collect();
    }
    let mut guest: Option<Guest> = None;
    let mut outcomes = Vec::new();
    for (index, test) in tests.iter().enumerate() {
        let started = Instant::now();
        let is_up = Cell::new(false);
        let mut attempt = || -> Result<(), LabError> {
            is_up.set(false);
            let guest = match guest.take().filter(|guest| !guest.has_ended()) {
                Some(running) => guest.insert(running),
                None => guest.insert(lab.boot(machine)?),
            };
            is_up.set(true);
            (test.body)(guest)?;
            // The next script reports what the kernel says after the last one.
            let is_last = index + 1 == tests.len() && !guest.has_ended();
            if is_last { guest.run("").map(|_| ()) } else { Ok(()) }
        };
        let mut result = catch_unwind(AssertUnwindSafe(&mut attempt));
        for _ in 0..MORE_GUESTS_MAX {
            // No test can cause that: the test gets another guest.
            let Ok(Err(error)) = &result else { break };
            let has_not_come_up = !is_up.get() && matches!(error, LabError::Guest { .. });
            if !has_not_come_up && !error.is_of_the_emulator() {
                break;
            }
            println!("again:   {} [{}]: {error}", test.name, machine.label());
            result = catch_unwind(AssertUnwindSafe(&mut attempt));
        }
        let outcome = match result {
            Ok(Ok(())) => Outcome::Passed,
            Ok(Err(LabError::NotThere { reason })) => Outcome::Skipped(reason),
            Ok(Err(error)) => Outcome::Failed(error.to_string()),
            // The assertion has been printed by the panic itself.
            Err(_) => Outcome::Failed("an assertion failed (see above)".into()),
        };
        if matches!(outcome, Outcome::Failed(_)) {
            // What a failed test left behind must not make others fail.
            guest = None;
        }
        outcomes.push(report(test, outcome, started.elapsed()));
    }
    outcomes
}

#[allow(clippy::print_stdout, reason = "the tests' runner talks on the terminal")]
fn report(test: &LabTest, outcome: Outcome, duration: Duration) -> Outcome {
    let machine = test.machine.label();
    match &outcome {
        Outcome::Passed | Outcome::PassedAgain => {
            println!("passed:  {} [{machine}] {:.1} s", test.name, duration.as_secs_f64());
        }
        Outcome::Failed(why) => {
            println!("FAILED:  {} [{machine}] {:.1} s: {why}", test.name, duration.as_secs_f64());
        }
        Outcome::Skipped(why) => {
            println!("skipped: {} [{machine}]: {why}", test.name);
            let need = Need::Machine("a machine with KVM and a new QEMU (lab/README.md)");
            whylate_testing::note(&format!("{} [{machine}]", test.name), need, why);
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_chosen_by_parts_of_their_names() {
        let test = |name| LabTest::new(name, Machine::new(Profile::Threads, Kernel::Plain), |_| Ok(()));
        let names = |words: &[&str]| -> Vec<&str> {
            chosen(vec![test("plant_nmi"), test("boot")], words).iter().map(|test| test.name).collect()
        };
        assert_eq!(names(&[]), ["plant_nmi", "boot"]);
        assert_eq!(names(&["nmi", "x"]), ["plant_nmi"]);
    }

    #[test]
    fn a_few_failed_tests_are_run_again_and_those_that_are_broken_fail() {
        let machine = Machine::new(Profile::Threads, Kernel::Plain);
        let test = |name| LabTest::new(name, machine.clone(), |_| Ok(()));
        let tests = ["fine", "chance", "broken", "also", "more", "and", "even", "seven"].map(test);
        let failed = || Outcome::Failed("18 of 20".into());
        let after = |failures: usize| {
            let first =
                |place: usize| if (1..=failures).contains(&place) { failed() } else { Outcome::Passed };
            let mut outcomes: Vec<_> =
                tests.iter().enumerate().map(|(place, test)| (test, first(place))).collect();
            let mut ran = Vec::new();
            run_again(&mut outcomes, |test| {
                ran.push(test.name);
                if test.name == "broken" { failed() } else { Outcome::Passed }
            });
            let outcomes: Vec<Outcome> = outcomes.into_iter().map(|(_, outcome)| outcome).collect();
            (tally(&outcomes), ran)
        };
        assert_eq!(after(0), ("8 passed, 0 failed, 0 skipped".to_owned(), vec![]));
        let (sentence, ran) = after(2);
        assert_eq!(sentence, "7 passed (1 only in a second attempt), 1 failed, 0 skipped");
        assert_eq!(ran, ["chance", "broken"]);
        assert_eq!(after(7), ("1 passed, 7 failed, 0 skipped".to_owned(), vec![]), "no chance");
    }
}
