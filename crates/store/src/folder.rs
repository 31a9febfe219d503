//! A folder of a run directory, held open: every file in it is written below that open folder, and no link is followed,
//! so that another user with write access cannot redirect a run of root to another file.
//!
//! A file is written under a temporary name (`NAME.tmp`), brought to the disk, renamed, and then its folder is
//! brought to the disk: a killed process or a power cut leaves either the old file or the whole new one. Readers ignore
//! temporary names.

use crate::error::{At, StoreError};
use rustix::fs::{self, AtFlags, Mode, OFlags};
use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often, and after which pause, a folder that is held is asked for again.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(10);
/// What a file is called until it is whole.
pub(crate) const TEMPORARY_SUFFIX: &str = ".tmp";
/// No file of a run is nearly as large: a larger one is not read into memory.
const READ_MAX: u64 = 1 << 30;

#[derive(Debug)]
pub(crate) struct Folder {
    opened: File,
    path: PathBuf,
}

impl Folder {
    /// Opens a folder by the path that the user gave, which may be a link to it.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let opened = fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let opened = File::from(opened.map_err(io::Error::from).at("open", path)?);
        Ok(Self { opened, path: path.to_owned() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a folder in it, which is made if it does not exist.
    pub(crate) fn subfolder(&self, name: &str) -> Result<Self, StoreError> {
        let path = self.path.join(name);
        match fs::mkdirat(&self.opened, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(io::Error::from(error)).at("create", &path),
        }
        let opened = self.open_in(name, OFlags::RDONLY | OFlags::DIRECTORY).at("open", &path)?;
        Ok(Self { opened, path })
    }

    /// Refuses a folder in which another user could replace what root writes.
    pub(crate) fn check_owner(&self) -> Result<(), StoreError> {
        let metadata = self.opened.metadata().at("read", &self.path)?;
        if !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        match (metadata.uid(), metadata.mode() & 0o002) {
            (0, 0) => Ok(()),
            (0, _) => Err(StoreError::OpenToAll(self.path.clone())),
            (owner, _) => Err(StoreError::Foreign(self.path.clone(), owner)),
        }
    }

    /// Holds the folder against other writers, as long as it is open. A process that its last holder was about to start holds
    /// it too until its program begins: hence some patience.
    pub(crate) fn lock(&self) -> Result<(), StoreError> {
        for _ in 0..LOCK_TRIES {
            match self.opened.try_lock() {
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
                // Some network file systems have no locks: run without one.
                Ok(()) | Err(TryLockError::Error(_)) => return Ok(()),
            }
        }
        Err(StoreError::Busy(self.path.clone()))
    }

    pub(crate) fn is_held(&self) -> bool {
        matches!(self.opened.try_lock_shared(), Err(TryLockError::WouldBlock))
    }

    /// Puts `bytes` at `name`, replacing what is there, all or nothing.
    pub(crate) fn write_atomically(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.stage(name, bytes)?;
        self.publish(name)
    }

    /// Writes `bytes` under the temporary name of `name`, and brings them to the disk.
    pub(crate) fn stage(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let temporary = temporary(name);
        let path = self.path.join(&temporary);
        // Left by a killed process, or a planted symbolic link: remove it, not its target.
        self.remove(&temporary)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mut file = self.open_in(&temporary, flags).at("create", &path)?;
        let written =
            file.write_all(bytes).at("write", &path).and_then(|()| file.sync_all().at("sync", &path));
        if written.is_err() {
            // The incomplete file only takes space; ignore it if the removal fails.
            let _ = self.remove(&temporary);
        }
        written
    }

    /// Gives what was staged its name.
    pub(crate) fn publish(&self, name: &str) -> Result<(), StoreError> {
        let renamed = fs::renameat(&self.opened, temporary(name), &self.opened, name);
        renamed.map_err(io::Error::from).at("rename into place", &self.path.join(name))?;
        self.sync()
    }

    /// Removes what was staged and will not get its name.
    pub(crate) fn discard(&self, name: &str) {
        let _ = self.remove(&temporary(name));
    }

    /// Removes a file or a link; nothing where there is none.
    pub(crate) fn remove(&self, name: &str) -> Result<(), StoreError> {
        let removed = fs::unlinkat(&self.opened, name, AtFlags::empty()).map_err(io::Error::from);
        if_present(removed).at("remove", &self.path.join(name)).map(|_| ())
    }

    /// Brings the folder's entries to the disk.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.opened.sync_all().at("sync", &self.path)
    }

    /// Opens a file to add to it; it is made if it does not exist. Something that is not a file, and a file that has
    /// another name besides, are refused.
    pub(crate) fn append(&self, name: &str) -> Result<File, StoreError> {
        let path = self.path.join(name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND | OFlags::NONBLOCK;
        let file = self.open_in(name, flags).at("open", &path)?;
        let metadata = file.metadata().at("read", &path)?;
        let refused = |what| Err(io::Error::other(what)).at("write", &path);
        match (metadata.is_file(), metadata.nlink()) {
            (true, 0 | 1) => Ok(file),
            (true, _) => refused("it is a hard link to another file"),
            (false, _) => refused("it is not a regular file"),
        }
    }

    fn open_in(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(fs::openat(&self.opened, name, flags, Mode::from_raw_mode(0o666))?.into())
    }
}

/// Adds a line to an open file, and brings it to the disk.
pub(crate) fn add_line(mut file: &File, path: &Path, line: &str) -> Result<(), StoreError> {
    file.write_all(format!("{line}\n").as_bytes()).at("write", path)
}

/// The content of a file; `None` where nothing is there. What is not a file is refused, so that nothing waits for a
/// pipe.
pub(crate) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = fs::open(path, flags, Mode::empty()).map_err(io::Error::from);
    let Some(opened) = if_present(opened)? else { return Ok(None) };
    let file = File::from(opened);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if metadata.len() > READ_MAX {
        return Err(io::Error::other(format!("it is too large: {} bytes", metadata.len())));
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    file.take(READ_MAX).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// `None` where nothing is there.
pub(crate) fn if_present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

fn temporary(name: &str) -> String {
    format!("{name}{TEMPORARY_SUFFIX}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{read_dir, write};
    use std::os::unix::fs::symlink;

    fn made() -> (tempfile::TempDir, Folder) {
        let folder = tempfile::tempdir().unwrap();
        let opened = Folder::open(folder.path()).unwrap();
        (folder, opened)
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_no_temporary_file_stays() {
        let (folder, opened) = made();
        opened.write_atomically("run.json", b"first").unwrap();
        opened.write_atomically("run.json", b"second").unwrap();
        assert_eq!(read(&folder.path().join("run.json")).unwrap().unwrap(), b"second");
        assert_eq!(read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn links_are_replaced_or_refused_and_never_followed() {
        let (folder, opened) = made();
        let victim = folder.path().join("victim");
        write(&victim, "untouched").unwrap();
        for name in ["run.json", "run.json.tmp"] {
            symlink(&victim, folder.path().join(name)).unwrap();
        }
        opened.write_atomically("run.json", b"mine").unwrap();
        assert_eq!(read(&folder.path().join("run.json")).unwrap().unwrap(), b"mine");
        symlink(&victim, folder.path().join("lines")).unwrap();
        let error = opened.append("lines").unwrap_err().to_string();
        assert!(error.contains("lines: cannot open"), "{error}");
        std::fs::remove_file(folder.path().join("lines")).unwrap();
        std::fs::hard_link(&victim, folder.path().join("lines")).unwrap();
        assert!(opened.append("lines").unwrap_err().to_string().contains("hard link"));
        symlink(folder.path(), folder.path().join("spikes")).unwrap();
        assert!(opened.subfolder("spikes").is_err(), "a folder that is a link");
        assert_eq!(read(&victim).unwrap().unwrap(), b"untouched");
    }

    #[test]
    fn what_is_written_goes_into_the_folder_that_was_opened() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (folder.path().join("run"), folder.path().join("moved"));
        std::fs::create_dir(&here).unwrap();
        let opened = Folder::open(&here).unwrap();
        std::fs::rename(&here, &there).unwrap();
        std::fs::create_dir(&here).unwrap();
        opened.write_atomically("run.json", b"mine").unwrap();
        assert!(there.join("run.json").exists() && read_dir(&here).unwrap().count() == 0);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named_and_the_old_one_stays() {
        let (folder, opened) = made();
        opened.write_atomically("run.json", b"first").unwrap();
        std::fs::create_dir_all(folder.path().join("run.json.tmp/full")).unwrap();
        let error = opened.write_atomically("run.json", b"second").unwrap_err();
        assert!(error.to_string().contains("run.json.tmp: cannot remove"), "{error}");
        assert_eq!(read(&folder.path().join("run.json")).unwrap().unwrap(), b"first");
    }

    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let (folder, _) = made();
        let pipe = folder.path().join("pipe");
        fs::mknodat(fs::CWD, &pipe, fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(read(&pipe).unwrap_err().to_string().contains("not a regular file"));
        assert_eq!(read(&folder.path().join("missing")).unwrap(), None);
    }
}
