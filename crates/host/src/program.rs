//! Programs by the names under which they are started.

use rustix::fs::{Access, access};
use std::ffi::OsStr;
use std::path::PathBuf;

/// Where execvp(3) looks without PATH.
pub const PATH_DEFAULT: &str = "/bin:/usr/bin";

/// The file that `command` stands for: itself when it holds a slash, otherwise the first executable one in `path`, the value of
/// PATH.
pub fn find_program(command: &str, path: Option<&OsStr>) -> Option<PathBuf> {
    let is_program = |file: &PathBuf| file.is_file() && access(file, Access::EXEC_OK).is_ok();
    if command.contains('/') {
        return Some(PathBuf::from(command)).filter(is_program);
    }
    let path = path.unwrap_or(OsStr::new(PATH_DEFAULT));
    std::env::split_paths(path).map(|folder| folder.join(command)).find(is_program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn programs_are_found_as_the_shell_does() {
        let find = |command: &str, path: Option<&str>| find_program(command, path.map(OsStr::new));
        assert!(find("sh", None).unwrap().ends_with("sh"));
        assert_eq!(find("/bin/sh", None).unwrap(), Path::new("/bin/sh"));
        assert_eq!(find("no-such-program", Some(PATH_DEFAULT)), None);
        assert_eq!(find("/etc/passwd", None), None, "it may not be executed");
        assert_eq!(find("sh", Some("/proc")), None);
    }
}
