//! What a process that has to end at once leaves changed: for a user who does not wait until it is undone.

use crate::journal::JournalPlace;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use whylate_host::HostRoot;
use whylate_sys::allocation;

/// The journals that this process holds, or left with settings that stay changed.
static HELD: Mutex<BTreeMap<JournalPlace, HostRoot>> = Mutex::new(BTreeMap::new());
/// Held while one setting is written.
static WRITING: Mutex<()> = Mutex::new(());
/// How long a write that has begun may take.
const WITHIN: Duration = Duration::from_secs(1);

/// From here on this process is responsible for what the journal at `place` lists.
pub fn held(place: &JournalPlace, root: &HostRoot) {
    HELD.lock().unwrap_or_else(PoisonError::into_inner).insert(place.clone(), root.clone());
    allocation::may_leave_settings(true);
}

pub(crate) fn given_up(place: &JournalPlace) {
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    held.remove(place);
    allocation::may_leave_settings(!held.is_empty());
}

/// From here until it is dropped, one setting is written.
pub(crate) fn writing() -> MutexGuard<'static, ()> {
    WRITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this process holds a journal: it may have changed settings, or be undoing what others changed.
pub fn holds_settings() -> bool {
    !HELD.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
}

/// Stops every further write of this process, which has to end now, and says what is still changed in the journals that it
/// holds, a line each.
pub fn stop_writing() -> Vec<String> {
    let deadline = Instant::now() + WITHIN;
    // A write that is stuck is in the journal already.
    while let Err(TryLockError::WouldBlock) = WRITING.try_lock().map(std::mem::forget) {
        if Instant::now() >= deadline {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut lines = Vec::new();
    for (place, root) in held {
        match place.read(&root) {
            Ok(contents) => lines.extend(contents.open().map(|entry| {
                format!("{}: `{}` (before: `{}`)", entry.change.target, entry.change.new, entry.old_normal())
            })),
            Err(error) => lines.push(error.to_string()),
        }
    }
    lines
}
