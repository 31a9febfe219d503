//! Finds a program as the shell would, so that a missing one is an error before anything starts.

use crate::error::LoadError;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use whylate_host::{PATH_DEFAULT, find_program};

/// The file that `command` stands for: itself when it holds a slash, otherwise the first executable one in `path`.
pub(crate) fn find(command: &str, path: Option<&OsStr>) -> Result<PathBuf, LoadError> {
    if let Some(file) = find_program(command, path) {
        return Ok(file);
    }
    let place = if !command.contains('/') {
        format!(" in PATH ({})", path.unwrap_or(OsStr::new(PATH_DEFAULT)).to_string_lossy())
    } else if Path::new(command).exists() {
        " (the file exists, but is not executable)".to_owned()
    } else {
        String::new()
    };
    Err(LoadError::CommandNotFound { command: command.to_owned(), place })
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_testing::says;

    #[test]
    fn programs_are_found_as_the_shell_does() {
        assert!(find("sh", None).unwrap().ends_with("sh"));
        assert_eq!(find("/bin/sh", None).unwrap(), Path::new("/bin/sh"));
        let message =
            |command: &str, path: &str| find(command, Some(OsStr::new(path))).unwrap_err().to_string();
        assert!(says("not-found-path-usr", message("no-such-program", "/usr/bin:/bin")));
        assert!(says("not-found-install", message("/no/such/program", "/bin")));
        assert!(message("/etc/passwd", "/bin").contains("is not executable"));
        assert!(message("sh", "/proc").contains("was not found"));
    }
}
