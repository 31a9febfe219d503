//! Runs the binary, and examines what it leaves.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGQUIT};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use whylate_host::environment::ignores_signal;
use whylate_testing::{Need, skip};

/// The binary under test.
pub(crate) const WHYLATE: &str = env!("CARGO_BIN_EXE_whylate");
/// After this time a command is stuck, even on a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Everything that measures or loads runs alone: two busy real-time loops on one CPU say nothing about either.
static CPUS: Mutex<()> = Mutex::new(());

/// Waits until no other test measures.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    CPUS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The output of a command, and how it ended.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    /// The JSON document on standard output; the command passed.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.document()
    }

    /// The JSON document on standard output.
    pub(crate) fn document(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }

    /// The single line of an error; there was no other output, and the exit code is 1.
    pub(crate) fn error(&self) -> &str {
        assert_eq!(self.code, Some(1), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        let line = self.stderr.strip_suffix('\n').expect("a line");
        assert!(line.starts_with("whylate: ") && !line.contains('\n'), "not one clear line: {line}");
        &line["whylate: ".len()..]
    }
}

/// The command, with an environment and with signals that are the same everywhere.
pub(crate) fn command(arguments: &[&str]) -> Command {
    static SIGNALS: Once = Once::new();
    // Under `nohup` or in the background of a shell these are ignored, and stay so in a child. A signal with a
    // handler here gets its default action there.
    SIGNALS.call_once(|| {
        for signal in [SIGHUP, SIGQUIT].into_iter().filter(|signal| ignores_signal(*signal)) {
            signal_hook::flag::register(signal, Arc::default()).unwrap();
        }
    });
    let mut command = Command::new(WHYLATE);
    command.args(arguments).env("COLUMNS", "100").env("NO_COLOR", "1").stdin(Stdio::null());
    // The variables of the tests count also under `sudo cargo test`.
    for caller in ["SUDO_UID", "DOAS_USER", "PKEXEC_UID"] {
        command.env_remove(caller);
    }
    command
}

/// Runs the command to its end.
pub(crate) fn whylate(arguments: &[&str]) -> Said {
    finish(command(arguments))
}

/// Runs a prepared command to its end.
pub(crate) fn finish(command: Command) -> Said {
    let what = format!("{command:?}");
    let output = assert_cmd::Command::from_std(command).timeout(PATIENCE).output();
    let output = output.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(output.status.signal(), None, "{what}: {output:?}");
    said(output)
}

fn said(output: std::process::Output) -> Said {
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Said { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Starts a prepared command and leaves it running.
pub(crate) fn start(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts")
}

/// Asks a started command to end, as Ctrl-C does with `Signal::INT`.
pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("it is ours");
}

/// Waits for a started command, and reads its output meanwhile; kills it if it does not end.
pub(crate) fn wait(child: Child) -> Said {
    let process = Pid::from_child(&child);
    let (send, receive) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let output = child.wait_with_output();
        // The receiver is gone if it took too long.
        let _ = send.send(());
        output
    });
    let ended = receive.recv_timeout(PATIENCE).is_ok();
    if !ended {
        let _ = kill_process(process, Signal::KILL);
    }
    let output = reader.join().expect("it does not panic").expect("it is ours");
    assert!(ended, "it did not end: {output:?}");
    said(output)
}

/// Copies a program and makes it executable for all. A child that another test is just starting may hold the copy
/// open for writing, and for a moment the program cannot be run.
pub(crate) fn copy_program(from: impl AsRef<Path>, to: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::copy(from, to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    let is_busy = |error: std::io::Error| error.kind() == std::io::ErrorKind::ExecutableFileBusy;
    until(|| !Command::new(to).arg("--version").output().is_err_and(is_busy));
    Ok(())
}

/// Checks repeatedly; returns whether the condition became true.
pub(crate) fn until(mut there: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if there() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// A folder of the test's own.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// Text of a path of ours.
/// A program of `tests/victims`, built in this folder with these flags; `None` without a compiler.
pub(crate) fn victim(folder: &Path, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/victims/{name}.c"));
    let path = folder.join(name);
    let compiled = Command::new("cc").args(flags).arg("-o").arg(&path).arg(source).status();
    if !compiled.is_ok_and(|status| status.success()) {
        skip(Need::Program("a C compiler"), "the program that is watched is in C");
        return None;
    }
    Some(path)
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

/// Writes a file and gives its path.
pub(crate) fn write(folder: &TempDir, name: &str, content: &str) -> String {
    let path = folder.path().join(name);
    fs::write(&path, content).expect("the temporary folder can be written");
    text(&path).to_owned()
}

/// A plan of a few seconds: idle, and a small memory load.
pub(crate) const SMALL_PLAN: &str = r#"name = "small"
question = "Does a small load make a difference?"
duration = "500ms"
repeats = 2
order = "plan"
settle = "50ms"
warmup = "20ms"
noise_floor = "100ms"
[[probe]]
kind = "timer"
[[probe]]
kind = "stall"
[[load]]
name = "cache"
kind = "memory"
working_set = "256KiB"
[[cell]]
[[cell]]
loads = ["cache"]
"#;

/// Process numbers of all processes that have `mark` in their environment.
pub(crate) fn marked(mark: &str) -> Vec<u32> {
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let is_marked = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.windows(mark.len()).any(|part| part == mark.as_bytes())
    };
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    all.filter_map(number).filter(is_marked).collect()
}

/// A mark that no other test has: `NAME=VALUE`, and the two separately.
pub(crate) fn mark(name: &str) -> (String, String, String) {
    let variable = "WHYLATE_TEST_MARK".to_owned();
    let value = format!("{name}-{}", std::process::id());
    (format!("{variable}={value}"), variable, value)
}
