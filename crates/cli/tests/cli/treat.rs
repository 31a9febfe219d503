//! `whylate treat` by hand, and treatments in runs, on a machine made of files; tasks and interrupts on this one.

use crate::fields::{list, word};
use crate::json::validate;
use crate::tool::{Said, alone, command, finish, folder, signal, start, text, until, wait, write};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use whylate_lab::archive;
use whylate_testing::{Need, says, skip};

const FILES: &str = "\
== proc/sys/kernel/random/boot_id := one
== proc/sys/kernel/sched_rt_runtime_us := 950000
== proc/sys/vm/swappiness := 60
== sys/kernel/mm/transparent_hugepage/enabled := always
== sys/devices/system/cpu/present := 0-1
== sys/devices/system/cpu/online := 0-1
== sys/devices/system/cpu/cpu{0-1}/cpuidle/state0/latency := 0
== sys/devices/system/cpu/cpu{0-1}/cpuidle/state1/name := C1
== sys/devices/system/cpu/cpu{0-1}/cpuidle/state1/latency := 2
== sys/devices/system/cpu/cpu{0-1}/cpuidle/state1/disable := 0
";

/// A machine made of files, with a journal of its own.
pub(crate) struct Fake {
    folder: TempDir,
}

impl Fake {
    pub(crate) fn new(files: &str) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        archive::unpack(files, &folder.path().join("root")).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command.env("WHYLATE_HOST_ROOT", self.path("root")).env("WHYLATE_STATE_DIR", self.path("state"));
        command
    }

    pub(crate) fn whylate(&self, arguments: &[&str]) -> Said {
        finish(self.command(arguments))
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path("root").join(path)).unwrap()
    }

    fn set(&self, path: &str, value: &str) {
        fs::write(self.path("root").join(path), value).unwrap();
    }
}

fn states(document: &Value) -> Vec<&str> {
    list(document, "changes").iter().map(|change| word(change, "state")).collect()
}

#[test]
fn a_setting_is_changed_listed_and_taken_back() {
    let fake = Fake::new(FILES);
    let planned = fake.whylate(&["treat", "apply", "sysctl", "vm.swappiness", "1", "--dry-run"]);
    assert_eq!(planned.code, Some(0));
    assert!(says("proc-sys-vm-swappiness", &planned.stdout));
    assert!(!fake.path("state").exists(), "a dry run needs no journal");
    let applied = fake.whylate(&["treat", "apply", "sysctl", "vm.swappiness", "1"]);
    assert_eq!((applied.code, applied.stderr.as_str()), (Some(0), ""), "{applied:?}");
    assert!(says("setting-changed-restore-whylate", &applied.stdout), "{applied:?}");
    assert_eq!(fake.read("proc/sys/vm/swappiness"), "1\n");
    let status = fake.whylate(&["treat", "status"]).stdout;
    let (first, rest) = status.split_once('\n').unwrap();
    assert!(says("setting-changed-restore-whylate-2", first));
    assert!(says("by-whylate-treat-apply", rest), "{status}");
    assert!(says("kept-until-restored-proc", &status), "{status}");
    let document = fake.whylate(&["treat", "status", "--json"]).json();
    validate("treat", &document);
    assert_eq!(list(&document, "changes")[0]["holder"]["kept"], true);
    // A second one by hand adds to it.
    let document = fake.whylate(&["treat", "apply", "idle", "--cpus", "1", "--json"]).json();
    validate("treat", &document);
    assert_eq!(states(&document), ["applied"]);
    let document = fake.whylate(&["treat", "restore", "--json"]).json();
    validate("treat", &document);
    assert_eq!((states(&document), &document["restored"]), (vec!["restored"; 2], &Value::Bool(true)));
    assert_eq!(fake.read("proc/sys/vm/swappiness"), "60\n");
    assert_eq!(fake.whylate(&["treat", "restore"]).stdout, "nothing to restore\n");
    assert_eq!(fake.whylate(&["treat", "status"]).stdout, "nothing is changed\n");
}

#[test]
fn a_setting_that_another_program_changed_is_left_alone_and_reported() {
    let fake = Fake::new(FILES);
    fake.whylate(&["treat", "apply", "sysctl", "vm.swappiness", "1"]);
    fake.set("proc/sys/vm/swappiness", "10\n");
    let said = fake.whylate(&["treat", "restore"]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(says("proc-sys-vm-swappiness-2", &said.stdout));
    assert_eq!(fake.read("proc/sys/vm/swappiness"), "10\n");
    assert_eq!(fake.whylate(&["treat", "restore"]).code, Some(0), "it is said once");
}

#[test]
fn an_impossible_treatment_is_one_line_and_69() {
    let fake = Fake::new(FILES);
    let mut transcript = String::new();
    for line in [
        "irq-affinity 9 --cpus 0",
        "irq-affinity --cpus 7",
        "affinity Xorg --cpus 0",
        "governor --governor performance",
        "smt-off",
        "idle --cpus 5",
        "thp perhaps",
        "ksm",
        "watchdog",
        "rt-throttling 2s",
        "sysctl vm.nothing 1",
        "sysfs /etc/passwd x",
        "module-parameter i915 enable_psr 0",
    ] {
        let words: Vec<&str> = ["treat", "apply"].into_iter().chain(line.split(' ')).collect();
        let said = fake.whylate(&words);
        assert_eq!((said.code, said.stdout.as_str()), (Some(69), ""), "{line}: {said:?}");
        assert_eq!(said.stderr.lines().count(), 1, "{said:?}");
        transcript.push_str(&format!("$ whylate treat apply {line}\n{}", said.stderr));
    }
    insta::assert_snapshot!("impossible_treatments", transcript);
    assert!(!fake.path("state").exists(), "nothing was begun");
}

/// No machine could do it: that is an error of the user, not a missing facility.
#[test]
fn a_shield_of_all_cpus_is_a_usage_error() {
    let fake = Fake::new(FILES);
    let said = fake.whylate(&["treat", "apply", "shield", "--cpus", "all"]);
    assert!(says("leave-at-least-one", said.error()), "{said:?}");
}

#[test]
fn without_a_place_for_the_journal_nothing_is_changed() {
    let fake = Fake::new(FILES);
    fs::write(fake.path("state"), "in the way").unwrap();
    let said = fake.whylate(&["treat", "apply", "sysctl", "vm.swappiness", "1"]);
    let error = said.error();
    assert!(error.contains("cannot create") && error.contains("WHYLATE_STATE_DIR"), "{error}");
    assert_eq!(fake.read("proc/sys/vm/swappiness"), "60\n");
}

const PLAN: &str = r#"name = "treated"
duration = "200ms"
repeats = 1
settle = "10ms"
warmup = "10ms"
noise_floor = "20ms"
interval = "100ms"
[[probe]]
kind = "timer"
[[treatment]]
name = "swap"
kind = "sysctl"
key = "vm.swappiness"
value = "1"
[[treatment]]
name = "absent"
kind = "ksm"
[matrix]
treatments = [[], ["swap"], ["absent"]]
"#;

#[test]
fn treatments_are_cells_of_a_run() {
    let _alone = alone();
    let fake = Fake::new(FILES);
    let folder = folder();
    let plan = write(&folder, "plan.toml", PLAN);
    let path = folder.path().join("run");
    let result = fake.whylate(&["run", &plan, "-o", text(&path), "--json"]).json();
    validate("run", &result);
    let cells = list(&result, "cells");
    let names: Vec<&str> = cells.iter().map(|cell| word(cell, "name")).collect();
    assert_eq!(names, ["idle", "swap", "absent"]);
    assert_eq!(cells[1]["treatments"][0], "swap");
    assert!(cells[0]["skipped"].is_null() && cells[1]["skipped"].is_null());
    assert!(word(&cells[2], "skipped").starts_with("treatment `absent`: "), "{}", cells[2]["skipped"]);
    assert_eq!(fake.read("proc/sys/vm/swappiness"), "60\n");
    let copy = fs::read_to_string(path.join("treatments.jsonl")).unwrap();
    assert!(copy.lines().count() == 2 && copy.contains("\"old\":\"60\""), "{copy}");
}

/// Starts the plan with a long cell, and waits until its treatment is in force.
fn treated_run(fake: &Fake, folder: &TempDir) -> (std::process::Child, PathBuf) {
    let long = PLAN.replace("200ms", "60s").replace("[[], [\"swap\"], [\"absent\"]]", "[[\"swap\"]]");
    let plan = write(folder, "plan.toml", &long);
    let path = folder.path().join("run");
    let child = start(fake.command(&["run", &plan, "-o", text(&path), "-q"]));
    assert!(until(|| fake.read("proc/sys/vm/swappiness") == "1\n"), "the treatment never came");
    (child, path)
}

#[test]
fn a_run_that_holds_treatments_refuses_others_and_gives_back_what_it_changed() {
    let _alone = alone();
    let fake = Fake::new(FILES);
    let folder = folder();
    let (child, _path) = treated_run(&fake, &folder);
    let held = format!("settings are already changed by `whylate run` (pid {}) since ", child.id());
    for arguments in [&["treat", "apply", "idle"][..], &["treat", "restore"]] {
        let said = fake.whylate(arguments);
        assert!(said.error().starts_with(&held), "{said:?}");
    }
    let status = fake.whylate(&["treat", "status"]).stdout;
    assert!(status.contains("still running:"), "{status}");
    let measured =
        fake.whylate(&["measure", "timer", "--cpu", "0", "--duration", "100ms", "--policy", "other", "-q"]);
    assert_eq!(measured.code, Some(0), "measuring stays possible: {measured:?}");
    signal(&child, Signal::INT);
    let said = wait(child);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert_eq!(fake.read("proc/sys/vm/swappiness"), "60\n");
    assert_eq!(fake.whylate(&["treat", "status"]).stdout, "nothing is changed\n");
}

#[test]
fn a_container_with_its_own_run_folder_and_processes_does_not_restore_under_a_run() {
    let _alone = alone();
    let fake = Fake::new(FILES);
    let folder = folder();
    // Its process ids begin at 1, and the lock of the machine is missing.
    let contained = |arguments: &[&str]| {
        let inner = fake.command(arguments);
        let mut outer = Command::new("unshare");
        let script = "mount -t tmpfs tmpfs /run && exec \"$@\"";
        outer.args(["--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", script, "sh"]);
        outer.arg(inner.get_program()).args(inner.get_args());
        outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        finish(outer)
    };
    let tried = contained(&["treat", "status"]);
    if tried.code != Some(0) {
        return skip(Need::Rights, format!("no namespaces of mounts and processes: {}", tried.stderr));
    }
    let (child, _path) = treated_run(&fake, &folder);
    for arguments in [&["treat", "restore"][..], &["treat", "apply", "idle"]] {
        let said = contained(arguments);
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.error().starts_with("settings are already changed by "), "{said:?}");
        assert_eq!(fake.read("proc/sys/vm/swappiness"), "1\n");
    }
    signal(&child, Signal::INT);
    assert_eq!(wait(child).code, Some(1));
    assert_eq!(fake.read("proc/sys/vm/swappiness"), "60\n");
    // A process in the container with the number of the killed one is not mistaken for it.
    let (mut child, _path) = treated_run(&fake, &crate::tool::folder());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(contained(&["treat", "restore"]).code, Some(0));
    assert_eq!(fake.read("proc/sys/vm/swappiness"), "60\n");
}

#[test]
fn what_a_killed_run_left_is_undone_by_the_next_one() {
    let _alone = alone();
    let fake = Fake::new(FILES);
    let folder = folder();
    let (mut child, path) = treated_run(&fake, &folder);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(fake.read("proc/sys/vm/swappiness"), "1\n");
    let status = fake.whylate(&["treat", "status"]).stdout;
    assert!(status.contains("ended without restoring:") && status.contains(text(&path)), "{status}");
    let refused = fake.whylate(&["treat", "apply", "ksm"]);
    assert_eq!(refused.code, Some(69), "{refused:?}");
    assert_eq!(fake.read("proc/sys/vm/swappiness"), "60\n", "also by what cannot be applied itself");
    let another = crate::tool::folder();
    let (mut child, _path) = treated_run(&fake, &another);
    child.kill().unwrap();
    child.wait().unwrap();
    let plan = write(&folder, "plain.toml", &PLAN.replace("[[], [\"swap\"], [\"absent\"]]", "[[]]"));
    let next = folder.path().join("next");
    let result = fake.whylate(&["run", &plan, "-o", text(&next), "--json"]).json();
    let warnings = list(&result, "warnings");
    let recovered = warnings.iter().find(|it| word(it, "code") == "treatments-recovered").unwrap();
    assert!(says("every-setting-has-its", word(recovered, "text")), "{recovered}");
    assert_eq!(fake.read("proc/sys/vm/swappiness"), "60\n");
}

#[test]
fn settings_applied_by_hand_refuse_treated_runs_and_warn_others() {
    let _alone = alone();
    let fake = Fake::new(FILES);
    let folder = folder();
    fake.whylate(&["treat", "apply", "idle", "--cpus", "0"]);
    let plan = write(&folder, "plan.toml", PLAN);
    let path = folder.path().join("run");
    let said = fake.whylate(&["run", &plan, "-o", text(&path), "-q"]);
    assert_eq!(said.code, Some(1));
    assert!(says("whylate-treat-apply-idle", &said.stderr), "{said:?}");
    assert!(says("restore-them-first-whylate", &said.stderr), "{said:?}");
    assert!(!path.exists());
    let plain = write(&folder, "plain.toml", &PLAN.replace("[[], [\"swap\"], [\"absent\"]]", "[[]]"));
    let result = fake.whylate(&["run", &plain, "-o", text(&path), "--json"]).json();
    let warnings = list(&result, "warnings");
    assert!(warnings.iter().any(|it| word(it, "code") == "treatments-in-force"), "{warnings:?}");
    assert_eq!(fake.whylate(&["treat", "restore"]).code, Some(0));
}

#[test]
fn a_run_whose_setting_was_changed_by_another_ends_with_3() {
    let _alone = alone();
    let fake = Fake::new(FILES);
    let folder = folder();
    let (child, path) = treated_run(&fake, &folder);
    fake.set("proc/sys/vm/swappiness", "33\n");
    signal(&child, Signal::INT);
    // If it was stopped before the measurement there may be no samples, which is a separate error.
    let said = wait(child);
    assert_eq!(fake.read("proc/sys/vm/swappiness"), "33\n", "left alone");
    let info: Value = serde_json::from_str(&fs::read_to_string(path.join("run.json")).unwrap()).unwrap();
    assert_eq!(info["restored"], false);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.stderr.contains("changed this value"), "{said:?}");
}

/// Any signal, by its number.
fn send(child: &std::process::Child, signal: i32) {
    let kill = format!("kill -{signal} {}", child.id());
    assert!(Command::new("bash").args(["-c", &kill]).status().unwrap().success());
}

#[test]
fn signals_of_limits_and_of_the_c_library_do_not_end_it() {
    let _alone = alone();
    let fake = Fake::new(FILES);
    let folder = folder();
    let (child, _path) = treated_run(&fake, &folder);
    // XFSZ, and a first signal that other commands do not take for impatience.
    for signal in [25, 34, 10, 10, 10] {
        send(&child, signal);
    }
    let said = wait(child);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert_eq!(fake.read("proc/sys/vm/swappiness"), "60\n");
}

#[test]
fn a_limit_on_files_leaves_no_setting_changed() {
    for blocks in [1, 4, 8, 16, 32, 64] {
        let fake = Fake::new(FILES);
        let mut limited = Command::new("sh");
        let script = format!("ulimit -f {blocks}; exec \"$0\" treat apply idle --cpus 1");
        limited.args(["-c", &script, crate::tool::WHYLATE]);
        limited.env("WHYLATE_HOST_ROOT", fake.path("root")).env("WHYLATE_STATE_DIR", fake.path("state"));
        let said = finish(limited);
        assert!(said.code.is_some(), "{blocks}: {said:?}");
        let is_changed = fake.read("sys/devices/system/cpu/cpu1/cpuidle/state1/disable") != "0\n";
        assert_eq!(is_changed, said.code == Some(0), "{blocks}: {said:?}");
    }
}

#[test]
fn a_repeat_whose_treatment_did_not_hold_is_void() {
    let _alone = alone();
    let stat = "S 1 0 0 0 -1 4194560 0 0 0 0 0 0 0 0 0 0 0 0 101 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0";
    let tasks: String = [("tuned", "tuned.service"), ("other", "other.service")]
        .iter()
        .zip(7..)
        .map(|((name, unit), pid)| {
            format!(
                "== proc/{pid}/task/{pid}/stat := {pid} ({name}) {stat}\n== proc/{pid}/task/{pid}/status := Cpus_allowed_list:\t0\n\
                 == proc/{pid}/cgroup := 0::/system.slice/{unit}\n"
            )
        })
        .collect();
    let fake = Fake::new(&format!("{FILES}{tasks}"));
    let folder = folder();
    let (child, path) = treated_run(&fake, &folder);
    fake.set("proc/sys/vm/swappiness", "33\n");
    let said = wait(child);
    let info: Value = serde_json::from_str(&fs::read_to_string(path.join("run.json")).unwrap()).unwrap();
    assert_eq!(info["executions"][0]["void"], true, "{said:?}");
    assert_eq!(info["executions"][0]["state"], "failed");
    let error = info["executions"][0]["error"].as_str().unwrap();
    assert!(error.contains("swappiness") && error.contains("tuned (7, tuned.service)"), "{error}");
    assert!(!error.contains("other"), "only what is known to change settings: {error}");
}

#[test]
fn a_journal_that_is_emptied_or_refused_is_3() {
    let fake = Fake::new(FILES);
    let journal = fake.path("state/journal/treatments.jsonl");
    fake.whylate(&["treat", "apply", "sysctl", "vm.swappiness", "1"]);
    fs::set_permissions(&journal, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    for command in ["status", "restore"] {
        assert_eq!(fake.whylate(&["treat", command]).code, Some(3), "{command}");
    }
    fs::set_permissions(&journal, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    fs::write(&journal, "").unwrap();
    let said = fake.whylate(&["treat", "status"]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.stdout.contains("damaged") && !said.stdout.contains("nothing is changed"), "{said:?}");
}

#[test]
fn every_wish_to_end_gives_settings_back() {
    let _alone = alone();
    // HUP, QUIT, TRAP, ABRT, USR1, USR2, ALRM, TERM, STKFLT, XCPU, VTALRM, PROF, IO, PWR, SYS, real-time ones
    for with in [1, 3, 5, 6, 10, 12, 14, 15, 16, 24, 26, 27, 29, 30, 31, 35, 50, 64] {
        let fake = Fake::new(FILES);
        let folder = folder();
        let (child, _path) = treated_run(&fake, &folder);
        send(&child, with);
        let said = wait(child);
        assert_eq!(said.code, Some(1), "{with:?}: {said:?}");
        assert!(said.stderr.contains("stopped by the user"), "{with:?}: {said:?}");
        assert_eq!(fake.read("proc/sys/vm/swappiness"), "60\n", "{with:?}");
    }
}

#[test]
fn a_second_ctrl_c_still_gives_settings_back() {
    let _alone = alone();
    let fake = Fake::new(FILES);
    let folder = folder();
    let (child, _path) = treated_run(&fake, &folder);
    signal(&child, Signal::INT);
    std::thread::sleep(Duration::from_millis(20));
    signal(&child, Signal::INT);
    let said = wait(child);
    assert_eq!(said.code, Some(1), "{said:?}");
    // If everything was restored before the second one came, there is nothing to report.
    let is_reported =
        ["restoring settings first", "stopped by the user"].iter().any(|it| said.stderr.contains(it));
    assert!(is_reported, "{said:?}");
    assert_eq!(fake.read("proc/sys/vm/swappiness"), "60\n");
    assert_eq!(fake.whylate(&["treat", "status"]).stdout, "nothing is changed\n");
}

#[test]
fn a_third_signal_reports_what_stays_changed() {
    let _alone = alone();
    let fake = Fake::new(FILES);
    let folder = folder();
    let (child, _path) = treated_run(&fake, &folder);
    // A setting whose driver hangs.
    let setting = fake.path("root").join("proc/sys/vm/swappiness");
    fs::remove_file(&setting).unwrap();
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &setting, kind, rustix::fs::Mode::RWXU, 0).unwrap();
    for _ in 0..3 {
        signal(&child, Signal::INT);
        std::thread::sleep(Duration::from_millis(300));
    }
    let said = wait(child);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(says("still-changed-proc-sys", &said.stderr), "{said:?}");
    assert!(says("restore-these-settings-whylate", &said.stderr), "{said:?}");
    fs::remove_file(&setting).unwrap();
    fs::write(&setting, "1\n").unwrap();
    assert_eq!(fake.whylate(&["treat", "restore"]).code, Some(0));
    assert_eq!(fake.read("proc/sys/vm/swappiness"), "60\n");
}

#[test]
fn nohup_outlives_its_terminal() {
    let _alone = alone();
    let fake = Fake::new(FILES);
    let folder = folder();
    let plan = write(&folder, "plan.toml", PLAN);
    let path = folder.path().join("run");
    let run = fake.command(&["run", &plan, "-o", text(&path), "-q"]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(run.get_program()).args(run.get_args());
    shell.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let child = start(shell);
    assert!(until(|| path.join("run.json").exists()), "it never began");
    signal(&child, Signal::HUP);
    let said = wait(child);
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[test]
fn a_damaged_journal_is_exit_3_and_kept() {
    let fake = Fake::new(FILES);
    fake.whylate(&["treat", "apply", "sysctl", "vm.swappiness", "1"]);
    fake.whylate(&["treat", "apply", "idle", "--cpus", "1"]);
    let journal = fake.path("state/journal/treatments.jsonl");
    let mut bytes = fs::read(&journal).unwrap();
    let line = bytes.windows(29).position(|part| part == b"path\":\"/proc/sys/vm/swappines").unwrap();
    bytes[line + 36..line + 52].fill(0);
    fs::write(&journal, &bytes).unwrap();
    let status = fake.whylate(&["treat", "status"]);
    assert!(says("warning-journal-damaged-line", &status.stderr), "{status:?}");
    let refused = fake.whylate(&["treat", "apply", "rt-throttling", "100ms"]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    let said = fake.whylate(&["treat", "restore"]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.stderr.contains("vm/swappiness"), "what can be read of it is said: {said:?}");
    assert!(says("what-else-changed-not", &said.stdout), "{said:?}");
    assert_eq!(
        fake.read("sys/devices/system/cpu/cpu1/cpuidle/state1/disable"),
        "0\n",
        "the others are undone"
    );
    assert_eq!(fake.read("proc/sys/vm/swappiness"), "1\n");
    assert_eq!(fs::read(journal.with_extension("jsonl.damaged")).unwrap(), bytes);
    assert_eq!(fake.whylate(&["treat", "restore"]).code, Some(0), "it is said once");
}

#[test]
fn a_change_that_cannot_be_reported_is_undone() {
    let fake = Fake::new(FILES);
    let mut apply = fake.command(&["treat", "apply", "sysctl", "vm.swappiness", "1"]);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let status = apply.stdout(full).stderr(std::process::Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(1));
    assert_eq!(fake.read("proc/sys/vm/swappiness"), "60\n");
    // A reader that has seen enough is a different case.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut apply = fake.command(&["treat", "apply", "sysctl", "vm.swappiness", "1"]);
    assert_eq!(apply.stdout(writer).status().unwrap().code(), Some(0));
    assert_eq!(fake.read("proc/sys/vm/swappiness"), "1\n");
}
