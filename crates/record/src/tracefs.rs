//! The mount point of tracefs, and what the kernel behind it can do.

use super::error::RecordError;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use whylate_core::order::InOrder;
use whylate_host::HostRoot;

/// Mount points of tracefs: its own, or the kernel's below debugfs.
pub(super) const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

#[derive(Clone, Debug)]
pub struct Tracefs {
    top: PathBuf,
}

impl Tracefs {
    /// Finds it.
    ///
    /// # Errors
    /// [`RecordError::Unavailable`] when it is not mounted, not readable, or not built.
    pub fn find(host: &HostRoot) -> Result<Self, RecordError> {
        for place in PLACES {
            match fs::metadata(host.path(place).join("trace_clock")) {
                Ok(_) => return Ok(Self { top: host.path(place) }),
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    let text = format!("{place} is readable by root only; run whylate as root");
                    return Err(RecordError::Unavailable(text));
                }
                Err(_) => {}
            }
        }
        Err(RecordError::Unavailable(if Self::is_known(host) {
            format!("tracefs is not mounted; as root: mount -t tracefs nodev {}", PLACES[0])
        } else {
            "this kernel has no tracefs (CONFIG_TRACING is off), so nothing can be recorded".to_owned()
        }))
    }

    pub(super) fn is_known(host: &HostRoot) -> bool {
        let known = host.read("/proc/filesystems").ok().flatten().unwrap_or_default();
        known.split_ascii_whitespace().any(|name| name == "tracefs")
    }

    /// Whether this user may mount it if it is not mounted.
    pub(super) fn can_be_mounted(host: &HostRoot) -> bool {
        Self::is_known(host) && rustix::process::geteuid().is_root()
    }

    /// The folder of the top-level trace buffer.
    pub fn top(&self) -> &Path {
        &self.top
    }

    /// The tracers that the kernel was built with: `function`, `hwlat`, `osnoise`, …
    pub fn tracers(&self) -> Vec<String> {
        words(&fs::read_to_string(self.top.join("available_tracers")).unwrap_or_default())
    }

    /// Whether the kernel has an event, given as `system/name`.
    pub fn has_event(&self, event: &str) -> bool {
        self.top.join("events").join(event).join("enable").exists()
    }

    /// The events of a system that the kernel has, as `system/name`, in alphabetical order.
    pub fn events(&self, system: &str) -> Vec<String> {
        let entries = fs::read_dir(self.top.join("events").join(system)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter(|entry| entry.path().join("enable").exists())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .map(|name| format!("{system}/{name}"))
            .collect();
        names.order();
        names
    }
}

/// The tracers that the kernel was built with, where tracefs is not mounted: read through a private mount, which is
/// gone afterwards. `None` if that is not possible (before Linux 5.2, or refused).
pub(super) fn tracers_unmounted() -> Option<Vec<String>> {
    let system = rustix::mount::fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
    rustix::mount::fsconfig_create(&system).ok()?;
    let mount =
        rustix::mount::fsmount(&system, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).ok()?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&mount, "available_tracers", flags, Mode::empty()).ok()?;
    let mut text = String::new();
    fs::File::from(file).read_to_string(&mut text).ok()?;
    Some(words(&text))
}

fn words(text: &str) -> Vec<String> {
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracers_are_the_same_whether_it_is_mounted_or_not() {
        // As root, where it is mounted; elsewhere one of the two is not available.
        let mounted = Tracefs::find(&HostRoot::real()).ok();
        if let (Some(mounted), Some(unmounted)) = (mounted, tracers_unmounted()) {
            assert!(unmounted.iter().any(|tracer| tracer == "nop"), "{unmounted:?}");
            assert_eq!(unmounted, mounted.tracers());
        }
    }
}
