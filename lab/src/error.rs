//! What can go wrong with the lab.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;

#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// This machine cannot run the lab as it is. Tests that need it are skipped; commands exit with 69.
    #[error("the lab is unavailable: {reason}; {fix}")]
    Unavailable { reason: String, fix: String },
    /// A file of the cache, the checkout or a guest's folder could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was tried: `read`, `write`, `create`.
        action: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    /// A program of the host could not be started.
    #[error("cannot start `{command}`: {source}")]
    Start { command: String, source: std::io::Error },
    /// A program of the host failed.
    #[error("`{command}` failed ({status}): {output}")]
    Command {
        command: String,
        status: ExitStatus,
        /// The end of what it wrote.
        output: String,
    },
    /// A kernel image is not laid out as expected.
    #[error("{}: {what}", path.display())]
    KernelImage { path: PathBuf, what: String },
    /// The guest did not come up, ended, or did not answer in time. It has been killed.
    #[error("the guest {what}; the end of its console:\n{console}")]
    Guest {
        what: String,
        /// The last lines of its console.
        console: String,
    },
    /// A CPU of the guest stays at one place in the kernel, interrupts aside. The guest has been killed.
    #[error(
        "CPU {cpu} of the guest makes no progress: it repeats the instruction at {address:#x}:\n{machine}"
    )]
    Stuck {
        cpu: u32,
        address: u64,
        /// The registers and timers of all CPUs.
        machine: String,
    },
    /// A CPU of the guest no longer gets its timer's interrupts. The guest has been killed.
    #[error("a CPU of the guest has lost its timer, according to the guest's kernel:\n{lines}")]
    TimerLost { lines: String },
    /// The guest's kernel complained: a warning, an oops, a lockup.
    #[error("the guest's kernel reported trouble:\n{lines}")]
    Kernel { lines: String },
    /// A script in the guest ended with another status than 0.
    #[error("the script ended with exit status {status}; stderr:\n{stderr}\nstdout:\n{stdout}")]
    Script { status: i32, stdout: String, stderr: String },
    /// The guest's kernel lacks what a test is about, as the test itself has found. The test is skipped.
    #[error("{reason}")]
    NotThere {
        /// What is missing, and what was seen of it.
        reason: String,
    },
    /// Something that the guest wrote is not in the expected form.
    #[error("cannot read {what}: {text}")]
    Form { what: &'static str, text: String },
}

impl LabError {
    /// The same error for another user of what is not available.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Unavailable { reason, fix } => {
                Self::Unavailable { reason: reason.clone(), fix: fix.clone() }
            }
            other => Self::Unavailable { reason: other.brief(), fix: "see lab/README.md".into() },
        }
    }

    /// For a test whose guest lacks what the test is about.
    #[must_use]
    pub fn not_there(reason: impl Into<String>) -> Self {
        Self::NotThere { reason: reason.into() }
    }

    /// Whether QEMU is responsible, and nothing that runs in the guest can cause it.
    pub(crate) fn is_of_the_emulator(&self) -> bool {
        matches!(self, Self::Stuck { .. } | Self::TimerLost { .. })
    }

    /// Makes a function that turns an I/O error about `path` into a [`LabError::File`].
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { action, path, source }
    }

    /// The error in one line: for a program that failed, the line in which it says why.
    #[must_use]
    pub(crate) fn brief(&self) -> String {
        let Self::Command { output, .. } = self else { return self.to_string() };
        let mut lines = output.lines().map(str::trim).filter(|line| !line.is_empty());
        let mut whys = lines.clone().filter(|line| line.starts_with("E:") || line.contains("rror:"));
        let why = lines.clone().find(|line| line.contains("Failed to fetch")).or_else(|| whys.next());
        why.or_else(|| lines.next_back()).unwrap_or("the program printed nothing").to_owned()
    }

    /// The exit status that a command ends with because of this error: 69 when the lab is unavailable, else 1.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Unavailable { .. } => 69,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_brief_error_is_the_line_that_says_why() {
        let failed = |output: &str| LabError::Command {
            command: "apt".into(),
            status: ExitStatus::from_raw(100 << 8),
            output: output.into(),
        };
        assert_eq!(failed("W: old\nE: no such host\nend\n").brief(), "E: no such host");
        assert_eq!(failed("first\nlast\n\n").brief(), "last");
        assert_eq!(failed("").brief(), "the program printed nothing");
    }
}
