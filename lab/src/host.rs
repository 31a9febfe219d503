//! Programs of the host: runs them, and installs those that are missing.

use crate::error::LabError;
use crate::packages;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The package with QEMU.
const QEMU_PACKAGE: &str = "qemu-system-x86";
/// Program, and the Debian package that has it.
const TOOLS: [(&str, &str); 9] = [
    ("qemu-system-x86_64", QEMU_PACKAGE),
    ("mmdebstrap", "mmdebstrap"),
    ("mke2fs", "e2fsprogs"),
    ("depmod", "kmod"),
    ("xz", "xz-utils"),
    ("zstd", "zstd"),
    ("make", "make"),
    ("gcc", "gcc"),
    ("dpkg-deb", "dpkg"),
];
/// The end of a failed command's output that is shown, in bytes.
const OUTPUT_SHOWN_BYTES: usize = 2000;

/// Runs a command without input and returns its stdout.
///
/// # Errors
/// When it cannot be started or fails.
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

/// A command that is killed when the thread that runs it ends, however that happens: nothing writes to the cache behind
/// the back of the next build.
pub(crate) fn bound(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// As [`bound`], with all that the command starts and mounts: it runs in namespaces of its own, which end with it.
pub(crate) fn enclosed(program: impl AsRef<OsStr>) -> Command {
    let mut command = bound("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]).arg(program);
    command
}

/// Where a program is.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Installs the packages of the programs that are missing, when this process may.
///
/// # Errors
/// [`LabError::Unavailable`] with the command to run when it may not, or when apt fails.
pub(crate) fn ensure_tools() -> Result<(), LabError> {
    let missing: Vec<&str> =
        TOOLS.iter().filter(|(program, _)| find(program).is_none()).map(|(_, package)| *package).collect();
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
    apt.args(["-qq", "-y", "install", "--no-install-recommends"]).args(&missing);
    if let Some(release) = missing.contains(&QEMU_PACKAGE).then(qemu_offer).flatten() {
        apt.args(["--target-release", &release.name]);
    }
    if run(&mut apt).is_err() {
        // The lists may be missing or too old to name files that are still there.
        packages::refresh_lists().and_then(|()| run(&mut apt)).map_err(|error| {
            unavailable(format!("apt cannot install {}: {}", missing.join(", "), error.brief()))
        })?;
    }
    Ok(())
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The major version of QEMU.
///
/// # Errors
/// [`LabError::Unavailable`] when there is no QEMU.
pub(crate) fn qemu_major() -> Result<u32, LabError> {
    let text =
        run(Command::new("qemu-system-x86_64").arg("--version")).map_err(|_| LabError::Unavailable {
            reason: "there is no qemu-system-x86_64".into(),
            fix: "run `cargo xtask lab build`".into(),
        })?;
    let version = text.split("version ").nth(1).and_then(|rest| rest.split('.').next());
    version
        .and_then(|major| major.trim().parse().ok())
        .ok_or(LabError::Form { what: "the version of QEMU", text })
}

/// A release of Debian in the host's package sources, with the major version of its QEMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QemuOffer {
    pub(crate) name: String,
    pub(crate) major: u32,
}

/// The release with the newest QEMU among the host's package sources. It is not always the one that apt would take: the
/// backports of a release have to be asked for.
pub(crate) fn qemu_offer() -> Option<QemuOffer> {
    let table = run(Command::new("apt-cache").args(["madison", QEMU_PACKAGE])).ok()?;
    newest_offer(&table)
}

/// Reads lines of the form `PACKAGE | EPOCH:VERSION | URI RELEASE/COMPONENT ARCHITECTURE Packages`.
fn newest_offer(table: &str) -> Option<QemuOffer> {
    let offer = |line: &str| -> Option<QemuOffer> {
        let [_, version, source] = line.split('|').collect::<Vec<_>>()[..] else { return None };
        let version = version.trim();
        let version = version.split_once(':').map_or(version, |(_, rest)| rest);
        let (name, _) = source.split_whitespace().nth(1)?.rsplit_once('/')?;
        Some(QemuOffer { name: name.to_owned(), major: version.split(['.', '+']).next()?.parse().ok()? })
    };
    let offers = table.lines().filter_map(offer);
    // The first of those with the same version, which is apt's own order.
    offers.reduce(|best, next| if next.major > best.major { next } else { best })
}

/// Reads a file as text.
pub(crate) fn read_text(path: &Path) -> Result<String, LabError> {
    std::fs::read_to_string(path).map_err(LabError::file("read", path))
}

/// Writes a file.
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
    fn the_newest_qemu_is_offered() {
        let table = "\
qemu-system-x86 | 1:7.2+dfsg-7 | http://mirror/debian bookworm/main amd64 Packages
qemu-system-x86 | 1:10.0.2+ds-2~bpo12+1 | http://mirror/debian bookworm-backports/main amd64 Packages
qemu-system-x86 | 1:7.2+dfsg-5 | http://mirror/security bookworm-security/main amd64 Packages
";
        assert_eq!(newest_offer(table), Some(QemuOffer { name: "bookworm-backports".into(), major: 10 }));
        assert_eq!(newest_offer(&table.replace("1:10", "1:6")).unwrap().name, "bookworm");
        assert_eq!(newest_offer(""), None);
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
