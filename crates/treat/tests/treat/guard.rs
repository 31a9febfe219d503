//! The journal and the guard.

use crate::machine::{Machine, set};
use std::os::unix::fs::PermissionsExt as _;
use whylate_core::Warning;
use whylate_host::shield::MARK;
use whylate_testing::says;
use whylate_treat::journal::State;
use whylate_treat::{
    Change, Fate, Holder, Impossible, Planned, Planner, Reading, Surroundings, Target, TreatError, restore,
};

const MACHINE: &str = "\
== sys/a := 1
== sys/b
always [madvise] never
== sys/c := 0-3
== sys/mask := ff,00000001
== sys/fs/cgroup/cgroup.procs := 1
== run/utmp := x
== proc/sys/kernel/random/boot_id := first
";

/// A group that a shield makes.
const GROUP: &str = "/sys/fs/cgroup/whylate-shield";

fn changes() -> Vec<Change> {
    vec![
        set("/sys/a", "2"),
        Change::required(Target::file_with("/sys/b", Reading::Bracketed), "never", "tries"),
        Change::required(Target::file_with("/sys/c", Reading::CpuList), "0", "tries"),
        Change::required(Target::Directory { path: GROUP.to_owned() }, Target::PRESENT, "tries"),
        Change::required(Target::file_with("/sys/mask", Reading::CpuMask), "0,33", "tries"),
        Change::required(Target::file_with(MARK, Reading::Text), "1", "tries"),
    ]
}

/// What the kernel does with a choice: it goes on printing all of them.
fn as_the_kernel_prints(machine: &Machine) {
    let chosen = machine.text("/sys/b");
    let words = ["always", "madvise", "never"];
    let words = words.map(|word| if chosen.trim() == word { format!("[{word}]") } else { word.to_owned() });
    machine.set("/sys/b", &format!("{}\n", words.join(" ")));
}

#[test]
fn what_is_changed_is_undone_to_the_last_byte() {
    let machine = Machine::new(MACHINE);
    let before = machine.everything();
    let mut guard = machine.guard(false).unwrap();
    assert!(guard.apply("all", &changes()).unwrap().is_empty());
    as_the_kernel_prints(&machine);
    assert_eq!(machine.text("/sys/a"), "2\n");
    assert_eq!(machine.text("/sys/b"), "always madvise [never]\n");
    assert_eq!(machine.text("/sys/mask"), "00000002,00000001\n");
    assert_eq!(machine.text(MARK), "1");
    assert!(machine.path(GROUP).is_dir());
    assert_eq!(guard.in_force().count(), 6);
    let report = guard.undo();
    as_the_kernel_prints(&machine);
    assert!(report.is_complete() && report.journal_error.is_none(), "{report:?}");
    let order: Vec<String> = report.outcomes.iter().map(|outcome| outcome.target.to_string()).collect();
    assert_eq!(order[0], MARK, "the last change is undone first");
    assert_eq!(order[5], "/sys/a");
    assert_eq!(machine.everything(), before);
    assert_eq!(machine.place().read(&machine.root).unwrap().entries, [], "no entry is left");
}

#[test]
fn dropping_the_guard_undoes_everything_and_keeping_it_nothing() {
    let machine = Machine::new(MACHINE);
    let before = machine.everything();
    let mut guard = machine.guard(false).unwrap();
    guard.apply("a", &[set("/sys/a", "2")]).unwrap();
    drop(guard);
    assert_eq!(machine.everything(), before);
    let mut guard = machine.guard(true).unwrap();
    guard.apply("a", &[set("/sys/a", "2")]).unwrap();
    guard.keep().unwrap();
    assert_eq!(machine.text("/sys/a"), "2\n");
    let report = restore(&machine.place(), &machine.root).unwrap();
    assert_eq!(report.outcomes.len(), 1);
    assert_eq!(machine.everything(), before);
    assert_eq!(restore(&machine.place(), &machine.root).unwrap().outcomes, [], "there is nothing left");
}

#[test]
fn the_intention_is_in_the_journal_before_the_change_is_made() {
    let machine = Machine::new(MACHINE);
    // A pipe in place of the setting: the write waits for a reader, and that looks into the journal.
    let pipe = machine.path("/sys/pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .unwrap();
    let place = machine.place();
    std::thread::scope(|scope| {
        let guard = scope.spawn(|| {
            // Reading the old value of the pipe and writing the new one both wait for the other side.
            let mut guard = machine.guard(false).unwrap();
            let changes = [set("/sys/a", "2"), set("/sys/pipe", "new")];
            guard.apply("piped", &changes).map(drop).map_err(|error| error.to_string())
        });
        std::fs::write(&pipe, "old\n").unwrap();
        let written = std::fs::read_to_string(&pipe).unwrap();
        assert_eq!(written, "new\n");
        let contents = place.read(&machine.root).unwrap();
        let entry = contents.entries.iter().find(|entry| entry.treatment == "piped" && entry.old == "old\n");
        assert_eq!(entry.unwrap().state, State::Intended);
        // Read back another value, as for a file with several values: the change was not taken, and what was made of
        // it is undone. Between two answers the pipe has to be closed.
        let pause = std::time::Duration::from_millis(200);
        for _ in ["read back", "looked at before it is undone"] {
            std::fs::write(&pipe, "else\n").unwrap();
            std::thread::sleep(pause);
        }
        assert_eq!(std::fs::read_to_string(&pipe).unwrap(), "old\n");
        std::fs::write(&pipe, "old\n").unwrap();
        let error = guard.join().unwrap().unwrap_err();
        assert!(says("set-new-reads-else", &error), "{error}");
        assert!(says("every-setting-has-its", &error), "{error}");
    });
    assert_eq!(machine.text("/sys/a"), "1\n");
}

#[test]
fn a_failure_undoes_what_was_done_before_it() {
    let machine = Machine::new(MACHINE);
    let before = machine.everything();
    let mut guard = machine.guard(false).unwrap();
    guard.apply("first", &[set("/sys/a", "2")]).unwrap();
    let failing = [set("/sys/c", "7"), set("/sys/absent", "1"), set("/sys/a", "3")];
    let error = guard.apply("second", &failing).unwrap_err();
    assert!(says("second-sys-absent-not", error.to_string()));
    assert_eq!(machine.text("/sys/c"), "0-3\n");
    assert_eq!(machine.text("/sys/a"), "2\n", "the treatment before it is in force");
    drop(guard);
    assert_eq!(machine.everything(), before);
}

#[test]
fn a_failed_optional_change_is_a_warning() {
    let machine = Machine::new(MACHINE);
    let before = machine.everything();
    let mut guard = machine.guard(false).unwrap();
    let optional = Change::optional(Target::file("/sys/absent"), "1", "sleeps less");
    let warnings = guard.apply("t", &[optional, set("/sys/a", "2")]).unwrap();
    assert_eq!(warnings.len(), 1);
    assert!(says("not-done-sleeps-less", &warnings[0].text));
    assert_eq!(machine.text("/sys/a"), "2\n");
    assert!(guard.undo().is_complete());
    assert_eq!(machine.everything(), before);
}

#[test]
fn a_value_that_is_there_already_is_no_change() {
    let machine = Machine::new(MACHINE);
    let mut guard = machine.guard(false).unwrap();
    let same = Change::required(Target::file_with("/sys/b", Reading::Bracketed), "madvise", "tries");
    guard.apply("t", &[set("/sys/a", "1"), same]).unwrap();
    assert_eq!(guard.in_force().count(), 0);
    assert_eq!(machine.text("/sys/b"), "always [madvise] never\n");
}

#[test]
fn two_changes_of_one_place_are_undone_in_their_order() {
    let machine = Machine::new(MACHINE);
    let mut guard = machine.guard(false).unwrap();
    guard.apply("one", &[set("/sys/a", "2")]).unwrap();
    guard.apply("two", &[set("/sys/a", "3")]).unwrap();
    let report = guard.undo();
    assert!(report.is_complete());
    assert_eq!(machine.text("/sys/a"), "1\n");
    guard.apply("again", &[set("/sys/a", "4")]).unwrap();
    assert_eq!(machine.text("/sys/a"), "4\n", "a guard can be used again");
    assert!(guard.undo().is_complete());
    assert_eq!(machine.text("/sys/a"), "1\n");
}

#[test]
fn a_setting_that_was_changed_since_is_left_alone_once() {
    let machine = Machine::new(MACHINE);
    let mut guard = machine.guard(true).unwrap();
    guard.apply("t", &[set("/sys/a", "2"), set("/sys/c", "9")]).unwrap();
    guard.keep().unwrap();
    machine.set("/sys/a", "5\n");
    let report = restore(&machine.place(), &machine.root).unwrap();
    assert!(!report.is_complete());
    assert_eq!(
        report.problems(),
        [
            "/sys/a is now `5` instead of `2`: another program changed this value, so whylate left it alone (before: `1`)"
        ]
    );
    assert_eq!((machine.text("/sys/a").as_str(), machine.text("/sys/c").as_str()), ("5\n", "0-3\n"));
    assert!(restore(&machine.place(), &machine.root).unwrap().is_complete(), "it was said");
}

#[test]
fn a_setting_that_is_gone_is_reported() {
    let machine = Machine::new(MACHINE);
    let mut guard = machine.guard(false).unwrap();
    guard.apply("t", &[set("/sys/a", "2")]).unwrap();
    std::fs::remove_file(machine.path("/sys/a")).unwrap();
    let report = guard.undo();
    assert_eq!(report.outcomes[0].fate, Fate::LeftAlone { found: None });
    assert!(says("not-there-any-more", &report.problems()[0]), "{report:?}");
}

#[test]
fn what_cannot_be_restored_stays_in_the_journal() {
    let machine = Machine::new(MACHINE);
    let make = Change::required(Target::Directory { path: GROUP.to_owned() }, Target::PRESENT, "tries");
    let mut guard = machine.guard(true).unwrap();
    guard.apply("t", &[make]).unwrap();
    guard.keep().unwrap();
    let below = machine.path(GROUP).join("below");
    std::fs::create_dir(&below).unwrap();
    let report = restore(&machine.place(), &machine.root).unwrap();
    assert!(matches!(report.outcomes[0].fate, Fate::Failed { .. }), "{report:?}");
    std::fs::remove_dir(below).unwrap();
    assert!(restore(&machine.place(), &machine.root).unwrap().is_complete());
    assert!(!machine.path(GROUP).exists());
}

/// Leaves the journal as a process that was killed would, with every change applied.
fn killed(machine: &Machine, kept: bool) {
    let mut guard = machine.guard(kept).unwrap();
    guard.apply("all", &changes()).unwrap();
    as_the_kernel_prints(machine);
    guard.keep().unwrap();
}

#[test]
fn the_next_process_undoes_what_a_killed_run_left() {
    let machine = Machine::new(MACHINE);
    let before = machine.everything();
    killed(&machine, false);
    let guard = machine.guard(false).unwrap();
    as_the_kernel_prints(&machine);
    assert_eq!(guard.recovered().outcomes.len(), 6);
    assert!(guard.recovered().is_complete());
    assert_eq!(machine.everything(), before);
}

#[test]
fn what_was_applied_by_hand_refuses_a_run_and_is_added_to_by_hand() {
    let machine = Machine::new(MACHINE);
    killed(&machine, true);
    let error = machine.guard(false).unwrap_err();
    assert!(matches!(error, TreatError::InForce { count: 6, .. }), "{error}");
    assert!(says("restore-them-first-whylate", error.to_string()), "{error}");
    assert_eq!(machine.text("/sys/a"), "2\n", "nothing was touched");
    let mut guard = machine.guard(true).unwrap();
    guard.apply("more", &[set("/sys/a", "3")]).unwrap();
    guard.keep().unwrap();
    assert!(restore(&machine.place(), &machine.root).unwrap().is_complete());
    assert_eq!(machine.text("/sys/a"), "1\n");
}

#[test]
fn after_a_reboot_nothing_is_left_to_undo() {
    let machine = Machine::new(MACHINE);
    killed(&machine, true);
    machine.set("/proc/sys/kernel/random/boot_id", "second\n");
    // What the kernel holds has other values after the reboot.
    machine.set("/sys/a", "77\n");
    let report = restore(&machine.place(), &machine.root).unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(machine.text("/sys/a"), "77\n");
    assert!(report.outcomes.iter().all(|outcome| outcome.fate == Fate::Rebooted), "{report:?}");
}

/// The journal and its mark.
fn files(machine: &Machine) -> [Vec<u8>; 2] {
    let path = machine.place().path();
    [path.clone(), path.with_extension("mark")].map(|path| std::fs::read(path).unwrap_or_default())
}

#[test]
fn wherever_a_kill_cuts_the_journal_off_what_it_says_is_undone() {
    let machine = Machine::new(MACHINE);
    let before = machine.everything();
    let mut guard = machine.guard(true).unwrap();
    let [_, first_mark] = files(&machine);
    guard.apply("t", &[set("/sys/a", "2")]).unwrap();
    let [first, second_mark] = files(&machine);
    guard.apply("t", &[set("/sys/c", "7")]).unwrap();
    guard.keep().unwrap();
    let [whole, _] = files(&machine);
    let applied = machine.everything();
    let ends: Vec<usize> =
        whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    for cut in 0..=whole.len() {
        // The first setting is changed once its intention is whole; so is the second.
        machine.set("/sys/a", if cut >= ends[2] { "2\n" } else { "1\n" });
        machine.set("/sys/c", if cut >= ends[6] { "7\n" } else { "0-3\n" });
        std::fs::write(machine.place().path(), &whole[..cut]).unwrap();
        let mark = if cut >= first.len() { &second_mark } else { &first_mark };
        std::fs::write(machine.place().path().with_extension("mark"), mark).unwrap();
        let report = restore(&machine.place(), &machine.root).unwrap();
        assert!(report.is_complete(), "cut at {cut}: {report:?}");
        assert_eq!(machine.everything(), before, "cut at {cut}");
    }
    assert_ne!(applied, before);
}

#[test]
fn a_second_holder_is_refused_with_the_name_of_the_first() {
    let machine = Machine::new(MACHINE);
    let mut guard = machine.guard(false).unwrap();
    guard.apply("t", &[set("/sys/a", "2")]).unwrap();
    for outcome in [machine.guard(false).map(drop), restore(&machine.place(), &machine.root).map(drop)] {
        let error = outcome.unwrap_err().to_string();
        let pid = std::process::id();
        assert!(
            error.starts_with(&format!("settings are already changed by `a test` (pid {pid}) since 20")),
            "{error}"
        );
    }
    assert_eq!(machine.text("/sys/a"), "2\n");
    drop(guard);
    machine.guard(false).unwrap();
}

#[test]
fn other_journals_are_restored_too() {
    let machine = Machine::new(MACHINE);
    let state = machine.place().path().parent().unwrap().parent().unwrap().to_owned();
    let other = whylate_treat::JournalPlace::new(&state, "tracing");
    let holder = Holder::this_process("a recorder", None, true, &machine.root);
    let mut guard = whylate_treat::Guard::begin(&other, &machine.root, holder).unwrap();
    guard.apply("tracing", &[set("/sys/a", "2")]).unwrap();
    // Treatments are held independently of it.
    machine.guard(false).unwrap().apply("t", &[set("/sys/c", "7")]).unwrap();
    guard.keep().unwrap();
    assert_eq!(machine.text("/sys/a"), "2\n");
    assert!(restore(&machine.place(), &machine.root).unwrap().is_complete());
    assert_eq!(machine.text("/sys/a"), "1\n");
}

#[test]
fn without_a_journal_nothing_is_changed() {
    let machine = Machine::new(MACHINE);
    let folder = machine.place().path().parent().unwrap().to_owned();
    // Even root cannot make a folder in the place of a file.
    std::fs::write(&folder, "in the way").unwrap();
    let error = machine.guard(false).unwrap_err().to_string();
    assert!(error.contains("set WHYLATE_STATE_DIR"), "{error}");
    assert_eq!(std::fs::metadata(machine.path("/sys/a")).unwrap().permissions().mode() & 0o200, 0o200);
    assert_eq!(machine.text("/sys/a"), "1\n");
}

/// A treatment of which one half only shows when the first change was made.
struct InTwoSteps;

impl Planner for InTwoSteps {
    fn plan(&self, _: &Surroundings) -> Result<Planned, Impossible> {
        Ok(Planned::changes(vec![set("/sys/a", "2")]))
    }

    fn again(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        if surroundings.root.read_trimmed("/sys/c")?.as_deref() == Some("0") {
            return Ok(Planned::default());
        }
        let warnings =
            vec![Warning { code: "half".to_owned(), text: ("the other half is small").into(), fix: None }];
        Ok(Planned { changes: vec![set("/sys/c", "0")], warnings })
    }
}

#[test]
fn what_shows_later_is_changed_and_warned_of_once() {
    let machine = Machine::new(MACHINE);
    let surroundings = machine.surroundings(None);
    let mut guard = machine.guard(false).unwrap();
    guard.apply("two", &InTwoSteps.plan(&surroundings).unwrap().changes).unwrap();
    let warnings = guard.settle("two", &InTwoSteps, &surroundings).unwrap();
    assert_eq!(
        warnings,
        [Warning { code: "half".to_owned(), text: ("the other half is small").into(), fix: None }]
    );
    assert_eq!(machine.text("/sys/c").trim(), "0");
    assert!(guard.undo().is_complete());
    assert_eq!(machine.text("/sys/c").trim(), "0-3");
}
