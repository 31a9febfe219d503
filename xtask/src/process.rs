//! Runs other programs: without input, in the root of the workspace, with errors that say what was run.

use anyhow::{Context, Result, bail};
use cargo_metadata::MetadataCommand;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The cargo that runs this program, so that all steps use one toolchain.
pub(crate) fn cargo(root: &Path) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root);
    command
}

/// The same at a lower priority, so that other steps do not wait for it.
pub(crate) fn nice_cargo(root: &Path, niceness: u8) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", &niceness.to_string()]).arg(cargo(root).get_program()).current_dir(root);
    command
}

/// Where cargo puts what it builds.
pub(crate) fn target_folder(root: &Path) -> Result<PathBuf> {
    let metadata = MetadataCommand::new().current_dir(root).no_deps().exec()?;
    Ok(metadata.target_directory.into_std_path_buf())
}

/// Runs a command to its end.
///
/// # Errors
/// When it cannot be started or ends with anything but success.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Runs a command to its end and returns what it wrote to stdout.
///
/// # Errors
/// When it cannot be started, ends with anything but success, or writes something that is not UTF-8.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("`{shown}` failed ({}): {}", output.status, errors.trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{shown}` wrote something that is not UTF-8"))
}

/// The command as one would type it.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(name).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_returns_what_was_written() {
        assert_eq!(output(Command::new("echo").arg("hello")).unwrap(), "hello\n");
    }

    #[test]
    fn a_failure_names_the_command() {
        let error = run(Command::new("/bin/sh").args(["-c", "exit 7"])).unwrap_err().to_string();
        assert!(error.starts_with("`sh -c exit 7` failed"), "{error}");
        assert!(error.contains('7'), "{error}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = run(&mut Command::new("whylate-no-such-program")).unwrap_err().to_string();
        assert!(error.contains("cannot start `whylate-no-such-program`"), "{error}");
    }
}
