//! Which variables of a process's environment are trusted, and which signals it ignores.

use rustix::process::{geteuid, getuid};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
pub use whylate_sys::process::{has_claimed, ignore_unless_handled};

/// Environment variables that name folders which this program writes to, or trusts.
const FOLDER_VARIABLES: [&str; 3] = ["WHYLATE_STATE_DIR", "WHYLATE_HOST_ROOT", "WHYLATE_RUNTIME_DIR"];

/// Variables in which sudo, doas and pkexec say who started the program; `root` and 0 are not an ordinary user.
const CALLERS: [&str; 3] = ["SUDO_UID", "DOAS_USER", "PKEXEC_UID"];

/// Whether this is a root process that an ordinary user started, with an environment that may be that user's.
fn is_of_ordinary_user() -> bool {
    let is_ordinary = |name| std::env::var_os(name).is_some_and(|who| who != "0" && who != "root");
    geteuid().is_root() && (!getuid().is_root() || CALLERS.into_iter().any(is_ordinary))
}

/// The folder that an environment variable of this program names; `None` if it is empty, and if root would follow the
/// environment of an ordinary user ([`ignored_variables`]).
pub fn folder_variable(name: &str) -> Option<PathBuf> {
    let value = std::env::var_os(name).filter(|value| !value.is_empty());
    value.filter(|_| !is_of_ordinary_user()).map(PathBuf::from)
}

/// The variables of this program that are set and that [`folder_variable`] does not trust.
pub fn ignored_variables() -> Vec<&'static str> {
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if is_of_ordinary_user() { FOLDER_VARIABLES.into_iter().filter(is_set).collect() } else { Vec::new() }
}

/// What else root does not take from an ordinary user: programs that it would run, and folders.
const OTHERS: [&str; 6] = [
    "WHYLATE_GPU",
    "WHYLATE_QUERY_PYTHON",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
];
/// Where root looks for programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How to start this process again without what root does not take from the environment of an ordinary user, with the
/// names of what is left out; `None` if nothing has to be left out.
pub fn without_foreign() -> Option<(Command, Vec<&'static str>)> {
    let is_set = |name: &&str| std::env::var_os(name).is_some();
    let mut left_out: Vec<&str> = OTHERS.into_iter().filter(is_set).collect();
    let is_elsewhere = |path: &OsString| {
        let known: Vec<PathBuf> = std::env::split_paths(PATH).collect();
        std::env::split_paths(path).any(|folder| !known.contains(&folder))
    };
    left_out.extend(std::env::var_os("PATH").filter(is_elsewhere).map(|_| "PATH"));
    if left_out.is_empty() || !is_of_ordinary_user() {
        return None;
    }
    let mut again = Command::new("/proc/self/exe");
    for name in &left_out {
        again.env_remove(name);
    }
    again.env("PATH", PATH).args(std::env::args_os().skip(1));
    Some((again, left_out))
}

/// Whether the signal of that number was ignored when this process started, as after `nohup` (`SigIgn` in
/// /proc/self/status, before a handler is set).
pub fn ignores_signal(number: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let bit = u32::try_from(number - 1).unwrap_or(u32::MAX);
    1u64.checked_shl(bit).is_some_and(|bit| mask & bit != 0)
}
