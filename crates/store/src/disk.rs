//! Writing so that a killed process or a power cut leaves either the old file or the whole new one.
//!
//! A file is written under a temporary name (`NAME.tmp`), brought to the disk, renamed, and then its folder is
//! brought to the disk. Readers ignore temporary names.

use crate::error::StoreError;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// What a file is called until it is whole.
pub(crate) const TEMPORARY_SUFFIX: &str = ".tmp";

/// Puts `bytes` at `path`, replacing what is there, all or nothing.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let temporary = temporary_path(path);
    if let Err(error) = write_synced(&temporary, bytes) {
        // What did not fit only takes space away from the rest; it is no loss if this fails too.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    fs::rename(&temporary, path).map_err(|source| StoreError::io("rename into place", path, source))?;
    match path.parent() {
        Some(folder) => sync_folder(folder),
        None => Ok(()),
    }
}

/// Brings the entries of a folder to the disk.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), StoreError> {
    // The parent of a relative path of one component is the empty path.
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)
        .and_then(|opened| opened.sync_all())
        .map_err(|source| StoreError::io("bring to the disk", folder, source))
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .map_err(|source| StoreError::io("create", path, source))?;
    file.write_all(bytes).map_err(|source| StoreError::io("write", path, source))?;
    file.sync_all().map_err(|source| StoreError::io("bring to the disk", path, source))
}

fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY_SUFFIX);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_no_temporary_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        write_atomically(&path, b"first").unwrap();
        write_atomically(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_full_disk_is_named_and_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        write_atomically(&path, b"first").unwrap();
        // The kernel itself answers "no space left" here.
        std::os::unix::fs::symlink("/dev/full", temporary_path(&path)).unwrap();
        let error = write_atomically(&path, b"second").unwrap_err();
        assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
        assert!(error.to_string().contains("run.json.tmp: the disk is full"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"first");
    }

    #[test]
    fn a_missing_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = write_atomically(&folder.path().join("gone/run.json"), b"").unwrap_err();
        assert!(error.to_string().contains("gone/run.json.tmp: cannot create"), "{error}");
    }
}
