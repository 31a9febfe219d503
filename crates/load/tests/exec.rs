//! Command loads as the runner sees them: nothing that a command started survives its end.

use std::path::Path;
use std::time::{Duration, Instant};
use whylate_core::Nanos;
use whylate_load::{ExecSpec, Load, LoadOutcome, LoadSpec, LoadStatus, LoadWork, StoppedBy};
use whylate_sys::process::Launcher;
use whylate_testing::says;

const CHILD: &str = env!("CARGO_BIN_EXE_whylate-load-child");
const READY: Duration = Duration::from_secs(20);

fn spec(command: &[&str], output: &Path) -> LoadSpec {
    let exec = ExecSpec {
        command: command.iter().map(|&word| word.to_owned()).collect(),
        cpus: None,
        output: output.to_owned(),
        rate_pattern: None,
        rate_unit: "per_s".to_owned(),
        restart: false,
        calibrated: None,
        server: None,
    };
    LoadSpec { interval: Nanos::from_millis(50), ..LoadSpec::new(LoadWork::Exec(exec)) }
}

fn change(spec: &mut LoadSpec, change: impl FnOnce(&mut ExecSpec)) {
    if let LoadWork::Exec(exec) = &mut spec.work {
        change(exec);
    }
}

fn start(spec: &LoadSpec) -> Load {
    Load::start(&Launcher { program: CHILD.into() }, spec).unwrap()
}

fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < limit, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How many living processes have `word` as an argument.
fn processes_with(word: &str) -> usize {
    let has_word = |pid: String| {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    };
    let names = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter(|name| name.starts_with(|first: char| first.is_ascii_digit()))
        .filter(|pid| has_word(pid.clone()))
        .count()
}

/// A time to sleep for that no other test or process uses: a process is recognised by it.
fn unique_time(test: u32) -> String {
    format!("{}.{test}", 1000 + std::process::id())
}

fn run_until_output(spec: &LoadSpec, output: &Path, text: &str) -> LoadOutcome {
    let mut load = start(spec);
    load.wait_ready(READY).unwrap();
    eventually("the output", || std::fs::read_to_string(output).is_ok_and(|kept| kept.contains(text)));
    load.stop().unwrap()
}

#[test]
fn stopping_ends_whatever_the_command_started() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("output");
    let time = unique_time(1);
    // A child in the group, one in a session of its own, one orphaned by a double fork, and one deaf to SIGTERM.
    let script = format!(
        "sleep {time} & setsid sleep {time} & (setsid sleep {time} &); \
         (trap '' TERM; setsid sleep {time}) & echo started; sleep {time}"
    );
    let spec = spec(&["sh", "-c", &script], &output);
    let mut load = start(&spec);
    load.wait_ready(READY).unwrap();
    eventually("the tree", || processes_with(&time) >= 5);
    let outcome = load.stop().unwrap();
    assert_eq!(outcome.stopped_by, StoppedBy::Request);
    assert_eq!(processes_with(&time), 0);
    assert_eq!(load.status(), LoadStatus::Finished);
    assert_eq!(std::fs::read_to_string(&output).unwrap(), "started\n");
}

#[test]
fn a_command_that_ends_early_is_a_failure_with_its_last_words() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("output");
    let time = unique_time(2);
    let script = format!("setsid sleep {time} & echo one; sleep 0.2; echo two >&2; exit 3");
    let mut load = start(&spec(&["sh", "-c", &script], &output));
    eventually("its end", || matches!(load.status(), LoadStatus::Died(_)));
    let error = load.stop().unwrap_err().to_string();
    assert!(says("command-sh-ended-too", &error));
    assert_eq!(processes_with(&time), 0, "what it left behind is ended too");
    assert_eq!(std::fs::read_to_string(&output).unwrap(), "one\ntwo\n");
}

#[test]
fn rates_come_from_the_output() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("output");
    std::fs::write(&output, "kept\n").unwrap();
    let mut spec = spec(
        &["sh", "-c", "echo rate 10; echo rate 30; sleep 0.3; echo rate 5.5; echo end; sleep 100"],
        &output,
    );
    change(&mut spec, |exec| exec.rate_pattern = Some(r"^rate ([0-9.]+)$".to_owned()));
    let outcome = run_until_output(&spec, &output, "end");
    let values: Vec<f64> = outcome.rates.iter().map(|rate| rate.value).collect();
    assert_eq!(values, [20.0, 5.5]);
    assert!(outcome.rates[1].interval_ns >= 200_000_000);
    assert!(outcome.warnings.is_empty());
    assert_eq!(std::fs::read_to_string(&output).unwrap(), "kept\nrate 10\nrate 30\nrate 5.5\nend\n");
}

#[test]
fn a_pattern_that_never_matches_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("output");
    let mut spec = spec(&["sh", "-c", "echo speed 10; sleep 100"], &output);
    change(&mut spec, |exec| exec.rate_pattern = Some("rate ([0-9]+)".to_owned()));
    let outcome = run_until_output(&spec, &output, "speed");
    assert!(outcome.rates.is_empty());
    assert_eq!(outcome.warnings.len(), 1);
    assert_eq!(outcome.warnings[0].code, "rate-never-matched");
}

#[test]
fn a_command_is_pinned() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("output");
    let last = whylate_sys::schedule::allowed_of_this_thread().unwrap().last().unwrap();
    let mut spec =
        spec(&["sh", "-c", "grep Cpus_allowed_list /proc/self/status; echo end; sleep 100"], &output);
    change(&mut spec, |exec| exec.cpus = Some(whylate_core::CpuSet::single(last)));
    run_until_output(&spec, &output, "end");
    assert_eq!(std::fs::read_to_string(&output).unwrap(), format!("Cpus_allowed_list:\t{last}\nend\n"));
}

#[test]
fn commands_that_cannot_run_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("output");
    let message = |spec: &LoadSpec| start(spec).wait_ready(READY).unwrap_err().to_string();
    // Before anything is started.
    let error = Load::start(&Launcher { program: CHILD.into() }, &spec(&["no-such-command", "-x"], &output))
        .unwrap_err()
        .to_string();
    assert!(says("command-no-such-command", &error), "{error}");
    assert!(!output.exists());
    let program = folder.path().join("no-program");
    std::fs::write(&program, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let error = message(&spec(&[program.to_str().unwrap()], &output));
    assert!(error.contains("(exit status 126)") && says("no-such-file-or", &error), "{error}");
    let mut offline = spec(&["sleep", "100"], &output);
    change(&mut offline, |exec| exec.cpus = Some("8000".parse().unwrap()));
    let error = message(&offline);
    assert!(error.contains("8000"), "{error}");
    let error = message(&spec(&["true"], &folder.path().join("no-folder/output")));
    assert!(error.contains("no-folder/output"), "{error}");
}

#[test]
fn a_duration_ends_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let time = unique_time(3);
    let mut spec = spec(&["sleep", &time], &folder.path().join("output"));
    spec.duration = Some(Nanos::from_millis(200));
    let mut load = start(&spec);
    eventually("its end", || load.status() == LoadStatus::Finished);
    assert_eq!(processes_with(&time), 0);
    assert_eq!(load.stop().unwrap().stopped_by, StoppedBy::Request);
}

#[test]
fn a_dropped_load_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let time = unique_time(4);
    let mut load = start(&spec(&["setsid", "-w", "sleep", &time], &folder.path().join("output")));
    load.wait_ready(READY).unwrap();
    eventually("the command", || processes_with(&time) >= 1);
    drop(load);
    assert_eq!(processes_with(&time), 0);
}

#[test]
fn the_command_dies_with_a_supervisor_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let time = unique_time(5);
    let mut load = start(&spec(&["sleep", &time], &folder.path().join("output")));
    load.wait_ready(READY).unwrap();
    eventually("the command", || processes_with(&time) == 1);
    let pid = rustix::process::Pid::from_raw(load.pid() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    eventually("its death", || matches!(load.status(), LoadStatus::Died(_)));
    eventually("the end of the command", || processes_with(&time) == 0);
}

#[test]
fn a_load_after_nohup_outlives_its_terminal() {
    // What has a handler here has its default action in a child, also where this test itself was started by nohup.
    signal_hook::flag::register(signal_hook::consts::SIGHUP, std::sync::Arc::default()).unwrap();
    use rustix::process::{Pid, Signal, kill_process};
    let folder = tempfile::tempdir().unwrap();
    let after_nohup = folder.path().join("after-nohup");
    let write = format!(
        "printf '#!/bin/sh\ntrap \"\" HUP\nexec {CHILD} \"$@\"\n' >after-nohup; chmod +x after-nohup"
    );
    // In another process: a program that starts during this test would keep a file of this process open for writing.
    let mut shell = std::process::Command::new("sh");
    assert!(shell.args(["-c", &write]).current_dir(&folder).status().unwrap().success());
    let time = unique_time(7);
    let spec = spec(&["sleep", &time], &folder.path().join("output"));
    for (program, survives) in [(after_nohup, true), (CHILD.into(), false)] {
        let mut load = Load::start(&Launcher { program }, &spec).unwrap();
        load.wait_ready(READY).unwrap();
        eventually("the command", || processes_with(&time) == 1);
        kill_process(Pid::from_raw(load.pid() as i32).unwrap(), Signal::HUP).unwrap();
        if survives {
            std::thread::sleep(Duration::from_millis(300));
            assert_eq!(processes_with(&time), 1);
            assert_eq!(load.stop().unwrap().stopped_by, StoppedBy::Request);
        } else {
            eventually("its end", || processes_with(&time) == 0);
        }
    }
}

#[test]
fn a_command_is_started_again_when_it_ends_well() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("output");
    let mut spec = spec(&["sh", "-c", "echo rate 5"], &output);
    change(&mut spec, |exec| (exec.restart, exec.rate_pattern) = (true, Some("rate ([0-9]+)".to_owned())));
    let outcome = run_until_output(&spec, &output, "rate 5\nrate 5\nrate 5\n");
    assert!(outcome.rates.len() >= 2 && outcome.rates.iter().all(|rate| rate.value == 5.0), "{outcome:?}");
    change(&mut spec, |exec| exec.command = ["sh", "-c", "exit 4"].map(str::to_owned).to_vec());
    let mut load = start(&spec);
    eventually("its end", || matches!(load.status(), LoadStatus::Died(_)));
    assert!(load.stop().unwrap_err().to_string().contains("exit status 4"));
}

#[test]
fn a_command_that_calibrates_itself_is_ready_with_its_first_number() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("output");
    // Prints for a terminal only.
    let script = "test -t 1 || exit 5; sleep 0.4; echo rate 7; sleep 0.1; echo rate 9; echo end; sleep 100";
    let mut spec = spec(&["sh", "-c", script], &output);
    change(&mut spec, |exec| {
        (exec.calibrated, exec.rate_pattern) =
            (Some(Nanos::from_millis(100)), Some("rate ([0-9]+)".to_owned()));
    });
    let begin = Instant::now();
    let mut load = start(&spec);
    load.wait_ready(READY).unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(400));
    eventually("the output", || std::fs::read_to_string(&output).is_ok_and(|kept| kept.contains("end")));
    let rates = load.stop().unwrap().rates;
    assert_eq!((rates[0].value, rates[0].interval_ns), (7.0, 100_000_000), "{rates:?}");
    // Without a number, even a successful end is an error.
    change(&mut spec, |exec| (exec.restart, exec.command) = (true, vec!["true".to_owned()]));
    let error = start(&spec).wait_ready(READY).unwrap_err().to_string();
    assert!(says("ended-too-early-exit", &error), "{error}");
}
