//! The kernel's version, where nothing else tells what it can do.

use crate::{HostError, HostRoot};

/// Whether the running kernel has this version (such as 6 and 15) or a newer one.
///
/// # Errors
/// When the version cannot be read.
pub fn is_from(root: &HostRoot, version: (u32, u32)) -> Result<bool, HostError> {
    let release = root.read_trimmed("/proc/sys/kernel/osrelease")?.unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse::<u32>().ok());
    Ok(numbers.next().flatten().zip(numbers.next().flatten()) >= Some(version))
}
