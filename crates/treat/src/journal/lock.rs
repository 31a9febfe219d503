//! Who may write a journal: one process of the machine at a time.
//!
//! The lock of root is in a folder that only root can enter, so that nobody else can hold it; and it is one for the machine,
//! whichever folder the journal is in. Another user, and a machine made of files, has it beside the journal: what they
//! change is their own.

use super::{Holder, JournalPlace, refused, state_error};
use crate::error::TreatError;
use rustix::fs::{FlockOperation, OFlags, flock};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use whylate_host::HostRoot;
use whylate_sys::private::PrivateFolder;

/// Where the locks of root are.
const FOLDER: &str = "/run/whylate";

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub(super) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: a child that is just being started holds the file until it calls exec.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// The folder of the lock, where it is not that of the journal.
fn folder_of_machine(root: &HostRoot) -> Option<&'static Path> {
    (root.is_real() && rustix::process::geteuid().is_root()).then_some(Path::new(FOLDER))
}

fn name(place: &JournalPlace) -> String {
    format!("{}.lock", place.name)
}

/// Opens the file of the lock; and its path.
pub(super) fn open(
    place: &JournalPlace,
    journals: &PrivateFolder,
    root: &HostRoot,
) -> Result<(File, PathBuf), TreatError> {
    let of_machine =
        folder_of_machine(root).map(PrivateFolder::make).transpose().map_err(refused("create"))?;
    let folder = of_machine.as_ref().unwrap_or(journals);
    let file = folder.open_file(name(place), OFlags::RDWR | OFlags::CREATE).map_err(refused("lock"))?;
    Ok((file, folder.path().join(name(place))))
}

/// Takes the lock for `holder`.
pub(super) fn take(
    place: &JournalPlace,
    journals: &PrivateFolder,
    root: &HostRoot,
    holder: &Holder,
) -> Result<Lock, TreatError> {
    let (file, path) = open(place, journals, root)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Err(TreatError::Held { holder: described(&file) });
    }
    let lock = Lock(file);
    let failed = |source| state_error("lock", &path, source);
    let text = serde_json::to_vec(holder).map_err(|error| failed(error.into()))?;
    lock.0.set_len(0).and_then(|()| (&lock.0).write_all(&text)).map_err(failed)?;
    Ok(lock)
}

/// The holder that is written in the lock, when it still runs.
fn written(mut file: &File) -> Option<Holder> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok().filter(Holder::is_alive)
}

/// Who holds it: as it says itself, else as the kernel says (it has just taken it, or is something else).
fn described(file: &File) -> String {
    match written(file) {
        Some(holder) => format!("`{}` (pid {}) since {}", holder.command, holder.pid, holder.since()),
        None => of_kernel(file).unwrap_or_else(|| "another process".to_owned()),
    }
}

/// The process that the kernel names in /proc/locks.
fn of_kernel(file: &File) -> Option<String> {
    let inode = format!(":{}", rustix::fs::fstat(file).ok()?.st_ino);
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    // `3: FLOCK  ADVISORY  WRITE 1234 00:19:5678 0 EOF`
    let line = locks.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>()).find(|words| {
        words.get(1) == Some(&"FLOCK") && words.get(5).is_some_and(|file| file.ends_with(&inode))
    })?;
    let pid = line.get(4)?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(format!("`{}` (pid {pid})", name.trim_end()))
}
