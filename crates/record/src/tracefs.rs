//! Where tracefs is, and what the kernel behind it can do.

use super::error::RecordError;
use std::fs;
use std::path::{Path, PathBuf};
use whylate_host::HostRoot;

/// Where tracefs is mounted: by itself, or by the kernel below debugfs.
pub(super) const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// A mounted tracefs.
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
                    let text = format!("{place} is readable by root only; run as root");
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

    /// Whether the kernel knows it.
    pub(super) fn is_known(host: &HostRoot) -> bool {
        let known = host.read("/proc/filesystems").ok().flatten().unwrap_or_default();
        known.split_ascii_whitespace().any(|name| name == "tracefs")
    }

    /// Whether this user may mount it where it is not.
    pub(super) fn can_be_mounted(host: &HostRoot) -> bool {
        Self::is_known(host) && rustix::process::geteuid().is_root()
    }

    /// The folder of the top-level trace buffer.
    pub fn top(&self) -> &Path {
        &self.top
    }

    /// The tracers that the kernel was built with: `function`, `hwlat`, `osnoise`, …
    pub fn tracers(&self) -> Vec<String> {
        let text = fs::read_to_string(self.top.join("available_tracers")).unwrap_or_default();
        text.split_ascii_whitespace().map(str::to_owned).collect()
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
        names.sort();
        names
    }
}
