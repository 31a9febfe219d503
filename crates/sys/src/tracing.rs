//! The two files of a trace buffer that a break needs: the marker and the switch.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Open files of a trace buffer, ready to be written from a measuring thread.
#[derive(Debug)]
pub struct BreakTracing {
    marker: File,
    switch: File,
}

impl BreakTracing {
    /// Opens those of the buffer in `folder`, or of the top-level one: where tracefs is mounted, else in a mount that
    /// nobody else sees and that ends with this (Linux 5.2). `None` where they may not be written.
    pub fn open(folder: Option<&Path>) -> Option<Self> {
        match folder {
            Some(folder) => Self::open_in(CWD, folder),
            None => {
                let places = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
                let mounted = places.iter().find_map(|place| Self::open_in(CWD, Path::new(place)));
                mounted.or_else(|| Self::open_in(detached_tracefs().ok()?, Path::new("")))
            }
        }
    }

    fn open_in(at: impl AsFd, folder: &Path) -> Option<Self> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let open = |name: &str| openat(&at, folder.join(name), flags, Mode::empty()).ok().map(File::from);
        Some(Self { marker: open("trace_marker")?, switch: open("tracing_on")? })
    }

    /// Writes `text` into the trace and stops tracing, so that the trace ends with the spike.
    pub fn mark_and_stop(&mut self, text: &str) {
        // The break is reported in any case; a failed marker cannot be reported from here.
        let _ = self.marker.write_all(text.as_bytes());
        let _ = self.switch.write_all(b"0");
    }
}

/// tracefs in a mount that is at no place of the file tree.
fn detached_tracefs() -> rustix::io::Result<OwnedFd> {
    let filesystem = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(filesystem.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(filesystem.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_opened_where_both_files_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("trace_marker"), "").unwrap();
        assert!(BreakTracing::open(Some(folder.path())).is_none());
        std::fs::write(path("tracing_on"), "1").unwrap();
        BreakTracing::open(Some(folder.path())).unwrap().mark_and_stop("late");
        let read = |name: &str| std::fs::read_to_string(path(name)).unwrap();
        assert_eq!((read("trace_marker").as_str(), read("tracing_on").as_str()), ("late", "0"));
    }

    #[test]
    fn a_mount_of_our_own_is_seen_by_nobody() {
        let mounts = || std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let before = mounts();
        match detached_tracefs() {
            Ok(mount) => {
                assert_eq!(mounts(), before);
                let found = rustix::fs::statat(&mount, "tracing_on", rustix::fs::AtFlags::empty());
                found.expect("the switch is there");
            }
            Err(error) => eprintln!("skipped: no mount of tracefs is allowed here: {error}"),
        }
    }
}
