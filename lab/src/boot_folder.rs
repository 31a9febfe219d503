//! The folder of one boot: what guest and host share, sockets, logs, the second disk.
//!
//! It is removed when the guest ends. A program that was killed cannot do that; the next boot does it then. A lock
//! marks folders in use as not abandoned; the kernel releases it however its holder ends.

use crate::emulator::Emulator;
use crate::error::LabError;
use crate::host;
use crate::initramfs::Archive;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The first program of a guest.
const INIT: &str = include_str!("../guest/init");
/// The start of the names of these folders.
const PREFIX: &str = "whylate-lab-";
const LOCK: &str = "lock";

/// Programs of the shared folder that plant causes from user space, or look at what the kernel did.
const PLANTERS: [(&str, &str); 7] = [
    ("gaps", include_str!("../planters/gaps")),
    ("memory-type", include_str!("../planters/memory-type")),
    ("page-fault", include_str!("../planters/page-fault")),
    ("page-faults", include_str!("../planters/page-faults")),
    ("smi", include_str!("../planters/smi")),
    ("task", include_str!("../planters/task")),
    ("throttle", include_str!("../planters/throttle")),
];

/// The files that a guest is started with.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) emulator: Emulator,
    pub(crate) kernel: PathBuf,
    pub(crate) root: PathBuf,
    pub(crate) module: PathBuf,
    pub(crate) binary: Option<PathBuf>,
    /// Version of the kernel, as `uname -r` prints it.
    pub(crate) version: String,
    /// The tree of GRUB's packages.
    pub(crate) grub: Option<PathBuf>,
}

/// The folder; dropping it removes it.
#[derive(Debug)]
pub(crate) struct BootFolder {
    folder: tempfile::TempDir,
    _lock: File,
}

impl BootFolder {
    /// A new folder with the files of every guest. Abandoned folders are removed.
    pub(crate) fn new(files: &Files) -> Result<Self, LabError> {
        let parent = std::env::temp_dir();
        remove_abandoned(&parent);
        let boot = Self::new_in(&parent)?;
        fill_share(&boot.share(), files)?;
        let kernels_part = files.kernel.join("initramfs");
        let mut first = std::fs::read(&kernels_part).map_err(LabError::file("read", &kernels_part))?;
        // A later archive adds to an earlier one.
        let mut own_part = Archive::default();
        own_part.file("init", INIT.as_bytes());
        first.extend(own_part.finish());
        host::write(&boot.initramfs(), first)?;
        Ok(boot)
    }

    fn new_in(parent: &Path) -> Result<Self, LabError> {
        let folder = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(parent)
            .map_err(LabError::file("create a folder in", parent))?;
        // The lock gets its name when it is held: a folder that has just been made never looks abandoned.
        let (draft, path) = (folder.path().join("lock.new"), folder.path().join(LOCK));
        let lock = File::create(&draft).map_err(LabError::file("create", &draft))?;
        lock.lock().map_err(LabError::file("lock", &draft))?;
        std::fs::rename(&draft, &path).map_err(LabError::file("rename to", &path))?;
        Ok(Self { folder, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn initramfs(&self) -> PathBuf {
        self.path().join("initramfs")
    }

    /// The part that the guest sees as `/lab`.
    pub(crate) fn share(&self) -> PathBuf {
        self.path().join("share")
    }
}

/// Removes the folders whose lock is free. Those of other users stay; they are not in the way.
fn remove_abandoned(parent: &Path) {
    let entries = std::fs::read_dir(parent).into_iter().flatten().filter_map(Result::ok);
    let mine = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    for path in mine.map(|entry| entry.path()) {
        if let Ok(lock) = File::open(path.join(LOCK))
            && lock.try_lock().is_ok()
        {
            // Another process may be doing the same.
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

/// Puts the files of every guest into the shared folder.
fn fill_share(share: &Path, files: &Files) -> Result<(), LabError> {
    let copy = |from: &Path, name: &str| {
        std::fs::copy(from, share.join(name)).map_err(LabError::file("read", from)).map(|_| ())
    };
    host::create_folder(&share.join("jobs"))?;
    host::write(&share.join("agent"), include_str!("../guest/agent"))?;
    for (name, text) in PLANTERS {
        let path = share.join(name);
        host::write(&path, text)?;
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, executable).map_err(LabError::file("write", &path))?;
    }
    copy(&files.module, "plant.ko")?;
    let memtype = files.module.with_extension(crate::plant_module::MEMTYPE);
    if memtype.is_file() {
        copy(&memtype, "whylate_memtype.ko")?;
    }
    files.binary.as_ref().map_or(Ok(()), |binary| copy(binary, "whylate"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_abandoned_folders_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let used = BootFolder::new_in(parent.path()).unwrap();
        let abandoned = parent.path().join(format!("{PREFIX}abandoned"));
        let unlocked_yet = parent.path().join(format!("{PREFIX}new"));
        let foreign = parent.path().join("foreign");
        for folder in [&abandoned, &unlocked_yet, &foreign] {
            std::fs::create_dir(folder).unwrap();
        }
        std::fs::write(abandoned.join(LOCK), "").unwrap();
        std::fs::write(foreign.join(LOCK), "").unwrap();
        remove_abandoned(parent.path());
        assert!(used.path().is_dir() && unlocked_yet.is_dir() && foreign.is_dir());
        assert!(!abandoned.exists());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }
}
