//! Writing so that a killed process or a power cut leaves either the old file or the whole new one.
//!
//! A file is written under a temporary name (`NAME.tmp`), brought to the disk, renamed, and then its folder is
//! brought to the disk. Readers ignore temporary names.

use crate::error::{At, StoreError};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
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
    fs::rename(&temporary, path).at("rename into place", path)?;
    path.parent().map_or(Ok(()), sync_folder)
}

/// Brings the entries of a folder to the disk.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), StoreError> {
    // The parent of a relative path of one component is the empty path.
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder).and_then(|opened| opened.sync_all()).at("sync", folder)
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let mut file = File::create(path).at("create", path)?;
    file.write_all(bytes).at("write", path)?;
    file.sync_all().at("sync", path)
}

fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY_SUFFIX);
    PathBuf::from(name)
}

/// Adds a line to a file, which is made if it does not exist.
pub(crate) fn append_line(path: &Path, line: &str) -> Result<(), StoreError> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes())).at("write", path)
}

/// Ends the last line of a file, so that what is added to it begins a new one.
pub(crate) fn end_last_line(path: &Path) -> Result<(), StoreError> {
    let ends = |mut file: File| -> io::Result<()> {
        let mut last = [b'\n'];
        if file.metadata()?.len() > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        if last == [b'\n'] { Ok(()) } else { file.write_all(b"\n") }
    };
    let opened = if_present(OpenOptions::new().read(true).append(true).open(path));
    opened.and_then(|file| file.map_or(Ok(()), ends)).at("write", path)
}

/// `None` where nothing is there.
pub(crate) fn if_present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
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
