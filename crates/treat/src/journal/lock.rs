//! Who may write a journal: one process at a time.
//!
//! The lock is next to the journal, so that a container with a `/run` of its own finds both in the same place. Only
//! root can open it (0600), so that no other user can hold it. Root holds a second lock in `/run/whylate`: one for the
//! machine, whichever folder the journal is in.

use super::{Holder, JournalPlace, refused};
use crate::error::TreatError;
use rustix::fs::{FlockOperation, OFlags, flock};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use whylate_host::HostRoot;
use whylate_sys::private::PrivateFolder;

/// The folder of root's locks.
const FOLDER: &str = "/run/whylate";

/// Locks that are held until they are dropped.
#[derive(Debug)]
pub(super) struct Lock(Vec<File>);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: a child that is just being started keeps the file open until it calls exec.
        for file in &self.0 {
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}

/// The folder of the machine's lock, which belongs to root.
fn folder_of_machine(root: &HostRoot) -> Option<&'static Path> {
    (root.is_real() && rustix::process::geteuid().is_root()).then_some(Path::new(FOLDER))
}

/// Opens the files of the locks, in the order in which they are taken.
pub(super) fn open(
    place: &JournalPlace,
    journals: &PrivateFolder,
    root: &HostRoot,
) -> Result<Vec<File>, TreatError> {
    let name = format!("{}.lock", place.name);
    let of_machine =
        folder_of_machine(root).map(PrivateFolder::make).transpose().map_err(refused("create"))?;
    let open = |folder: &PrivateFolder| {
        folder.open_private(&name, OFlags::RDWR | OFlags::CREATE).map_err(refused("lock"))
    };
    std::iter::once(journals).chain(&of_machine).map(open).collect()
}

/// Takes the lock for `holder`.
pub(super) fn take(
    place: &JournalPlace,
    journals: &PrivateFolder,
    root: &HostRoot,
    holder: &Holder,
) -> Result<Lock, TreatError> {
    let mut lock = Lock(Vec::new());
    for file in open(place, journals, root)? {
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(TreatError::Held { holder: described(&file, root) });
        }
        lock.0.push(file);
    }
    // The holder is only needed for messages: a full disk does not prevent settings from being restored.
    if let Ok(text) = serde_json::to_vec(holder) {
        for mut file in &lock.0 {
            let _ = file.set_len(0).and_then(|()| file.write_all(&text));
        }
    }
    Ok(lock)
}

/// The holder that is written in the lock, if it is still running.
fn written(mut file: &File, root: &HostRoot) -> Option<Holder> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok().filter(|holder: &Holder| holder.is_alive(root))
}

/// The holder: as the lock says, otherwise as the kernel says (it has just taken the lock, or is another program).
fn described(file: &File, root: &HostRoot) -> String {
    match written(file, root) {
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
