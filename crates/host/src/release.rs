//! The kernel's version, if nothing else says what it can do.

use crate::{HostError, HostRoot};
use whylate_core::facts::KernelFacts;

/// Whether the running kernel has this version (such as 6 and 15) or a newer one.
pub fn is_from(root: &HostRoot, version: (u32, u32)) -> Result<bool, HostError> {
    let release = root.read_trimmed("/proc/sys/kernel/osrelease")?.unwrap_or_default();
    Ok(KernelFacts { release, ..KernelFacts::default() }.is_from(version))
}
