//! How a test says that it skips itself, and what would enable it; and the texts that tests compare, one file per crate.
//! `cargo xtask test` collects the skips and ends with their count.

pub mod excerpts;
mod texts;

use std::fmt::Display;
use std::io::Write as _;
use std::path::Path;
pub use texts::says;

/// Names the file to which each skip appends `TEST<tab>REMEDY<tab>REASON`; without it they go to stderr.
pub const SKIPS: &str = "WHYLATE_SKIPS";

/// What a test needs and this machine lacks.
#[derive(Clone, Copy, Debug)]
pub enum Need {
    /// Root, real-time priorities, BPF, tracefs, namespaces or mounts.
    Rights,
    /// A second CPU.
    Cpus,
    /// Another kind of machine.
    Machine(&'static str),
    /// An installed program or package.
    Program(&'static str),
    /// An environment variable with its value.
    Variable(&'static str),
}

impl Need {
    fn remedy(self) -> String {
        match self {
            Self::Rights => "run as root on a machine of your own, not in a container".to_owned(),
            Self::Cpus => "run with two CPUs or more".to_owned(),
            Self::Machine(kind) => format!("run on {kind}"),
            Self::Program(name) => format!("install {name}"),
            Self::Variable(setting) => format!("set {setting}"),
        }
    }
}

/// Notes that the calling test, or a part of it, is skipped, past the capture of the test harness.
pub fn skip(need: Need, reason: impl Display) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    note(&test, need, reason);
}

/// As [`skip`], by the name of a test that has no thread of its own.
pub fn note(test: &str, need: Need, reason: impl Display) {
    let noted = std::env::var_os(SKIPS).map(|path| append(path.as_ref(), test, need, &reason));
    if !matches!(noted, Some(Ok(()))) {
        let _ = write!(std::io::stderr(), "skipped: {}", line(test, need, reason).replace('\t', ": "));
    }
}

/// Appends a skip to a file.
///
/// # Errors
/// When the file cannot be written.
pub fn append(path: &Path, test: &str, need: Need, reason: impl Display) -> std::io::Result<()> {
    let mut file = std::fs::File::options().append(true).create(true).open(path)?;
    file.write_all(line(test, need, reason).as_bytes())
}

fn line(test: &str, need: Need, reason: impl Display) -> String {
    let reason = reason.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{test}\t{}\t{reason}\n", need.remedy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_is_one_line_of_the_file() {
        let path = std::env::temp_dir().join(format!("whylate-skips-{}", std::process::id()));
        let child = std::env::var_os("WHYLATE_TESTING_CHILD").is_some();
        if child {
            return note("of a child", Need::Program("curl"), "no\nprogram");
        }
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "tests::a_skip_is_one_line_of_the_file"]);
        let status = again.env("WHYLATE_TESTING_CHILD", "1").env(SKIPS, &path).output().unwrap().status;
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(status.success());
        assert_eq!(text, "of a child\tinstall curl\tno program\n");
    }
}
