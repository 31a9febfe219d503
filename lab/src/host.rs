//! Programs of the host: runs them, and installs those that are missing.

use crate::error::LabError;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Program, and the Debian package that has it.
pub(crate) const TOOLS: [(&str, &str); 6] = [
    ("mmdebstrap", "mmdebstrap"),
    ("mke2fs", "e2fsprogs"),
    ("depmod", "kmod"),
    ("xz", "xz-utils"),
    ("zstd", "zstd"),
    ("dpkg-deb", "dpkg"),
];
/// The end of a failed command's output that is shown, in bytes.
const OUTPUT_SHOWN_BYTES: usize = 2000;

/// Runs a command without input and returns its stdout.
pub(crate) fn run(command: &mut Command) -> Result<String, LabError> {
    let shown = shown(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| LabError::Start { command: shown.clone(), source })?;
    if !output.status.success() {
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        return Err(LabError::Command { command: shown, status: output.status, output: end_of(&text) });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A command that is killed when the thread that runs it ends, for whatever reason: no process writes to the cache
/// during the next build.
pub(crate) fn bound(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// As [`bound`], with everything that the command starts and mounts: it runs in namespaces of its own, which end with
/// it.
pub(crate) fn enclosed(program: impl AsRef<OsStr>) -> Command {
    let mut command = bound("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]).arg(program);
    command
}

pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Installs the packages of the programs that are missing, when this process may.
///
/// # Errors
/// [`LabError::Unavailable`] with the command to run when it may not, or when apt fails.
pub(crate) fn ensure_tools(tools: &[(&str, &str)]) -> Result<(), LabError> {
    let missing: Vec<&str> =
        tools.iter().filter(|(program, _)| find(program).is_none()).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let install = format!("apt-get install --no-install-recommends {}", missing.join(" "));
    let unavailable = |reason: String| LabError::Unavailable { reason, fix: format!("run `{install}`") };
    if !is_root() || find("apt-get").is_none() {
        return Err(unavailable(format!("{} is not installed", missing.join(", "))));
    }
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive");
    // Another installation may be under way: wait for it.
    apt.args(["-qq", "-y", "-o", "DPkg::Lock::Timeout=300", "install", "--no-install-recommends"])
        .args(&missing);
    if run(&mut apt).is_err() {
        // The lists may be missing or too old to name existing files. Without this option apt treats a server that it
        // cannot reach as a success.
        let mut update = Command::new("apt-get");
        update.args(["-qq", "-o", "APT::Update::Error-Mode=any", "update"]);
        run(&mut update).and_then(|_| run(&mut apt)).map_err(|error| {
            unavailable(format!("apt cannot install {}: {}", missing.join(", "), error.brief()))
        })?;
    }
    Ok(())
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(crate) fn read_text(path: &Path) -> Result<String, LabError> {
    std::fs::read_to_string(path).map_err(LabError::file("read", path))
}

pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), LabError> {
    std::fs::write(path, content).map_err(LabError::file("write", path))
}

/// Creates a folder and those above it.
pub(crate) fn create_folder(path: &Path) -> Result<(), LabError> {
    std::fs::create_dir_all(path).map_err(LabError::file("create", path))
}

/// The command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// The last part of a text.
pub(crate) fn end_of(text: &str) -> String {
    let text = text.trim();
    let start = (text.len().saturating_sub(OUTPUT_SHOWN_BYTES)..=text.len())
        .find(|index| text.is_char_boundary(*index))
        .unwrap_or(0);
    text[start..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_shows_what_was_written() {
        let error = run(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("out\nerr") && text.contains('3'), "{text}");
    }

    #[test]
    fn the_end_of_a_text_begins_at_a_character() {
        let text = "é".repeat(OUTPUT_SHOWN_BYTES);
        assert!(end_of(&text).chars().all(|c| c == 'é'));
        assert_eq!(end_of(" a\n"), "a");
    }

    #[test]
    fn an_enclosed_command_runs_as_process_1_of_its_own() {
        if is_root() {
            assert_eq!(run(enclosed("sh").args(["-c", "echo $$"])).unwrap(), "1\n");
        }
    }

    #[test]
    fn programs_are_found() {
        assert!(find("sh").is_some());
        assert_eq!(find("whylate-no-such-program"), None);
    }
}
