//! The journal: what was changed, on disk before it is changed, so that it can be undone after anything.
//!
//! A journal is a file of lines in a folder that no other user can write to, with a mark next to it (see `lines.rs`);
//! one process at a time writes (see `lock.rs`). `treatments` is the journal of treatments; a part of whylate that
//! changes other settings for a while keeps one of another name, and `whylate treat restore` looks at all of them.

mod lines;
mod lock;
mod place;
mod record;

pub use place::{JournalPlace, STATE_VARIABLE};
pub use record::{Contents, Fate, Holder, JOURNAL_FORMAT, JournalEntry, State};

pub(crate) use record::{Before, JournalRecord};

use crate::claims;
use crate::error::TreatError;
use crate::last_words;
use lines::{Marked, Parsed};
use lock::Lock;
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use whylate_core::moment::utc_text;
use whylate_host::HostRoot;
use whylate_sys::private::{PrivateError, PrivateFolder};
use whylate_sys::process;

/// Name of the journal of treatments.
pub const TREATMENTS: &str = "treatments";

fn state_error(action: &'static str, path: &Path, source: io::Error) -> TreatError {
    TreatError::State { action, path: path.to_owned(), source }
}

fn refused(action: &'static str) -> impl Fn(PrivateError) -> TreatError {
    move |error| match error {
        PrivateError::Io { path, source } => TreatError::State { action, path, source },
        shared @ PrivateError::Shared { .. } => TreatError::Untrusted { problem: shared.to_string() },
    }
}

impl Holder {
    /// This process, from now on. `kept` says that its changes outlive it.
    pub fn this_process(command: &str, run: Option<&str>, kept: bool, root: &HostRoot) -> Self {
        let boot_id = boot_id(root);
        let since_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self {
            command: command.to_owned(),
            run: run.map(str::to_owned),
            kept,
            pid: std::process::id(),
            start_ticks: process::started_ticks(std::process::id()).unwrap_or(0),
            pid_namespace: process::pid_namespace(),
            boot_id,
            since_s,
        }
    }

    /// Whether it is still running. A process of another boot or another PID namespace does not count: its number may
    /// belong to another process.
    pub fn is_alive(&self, root: &HostRoot) -> bool {
        let is_ours = self.pid_namespace.is_none() || self.pid_namespace == process::pid_namespace();
        is_ours && self.boot_id == boot_id(root) && process::runs_since(self.pid) == Some(self.start_ticks)
    }

    /// When it began: RFC 3339, UTC.
    pub fn since(&self) -> String {
        utc_text(UNIX_EPOCH + Duration::from_secs(self.since_s))
    }
}

/// The boot of the machine below `root`; empty if the kernel does not report it.
pub(crate) fn boot_id(root: &HostRoot) -> String {
    root.read_trimmed("/proc/sys/kernel/random/boot_id").ok().flatten().unwrap_or_default()
}

/// Makes the mark of a new journal, whole or not at all: an empty mark, as a full disk leaves it, would count as
/// damage.
fn make_mark(place: &JournalPlace, folder: &PrivateFolder, boot_id: &str) -> Result<(), TreatError> {
    let failed = |source: io::Error| state_error("write", &place.path(), source);
    let (name, flags) =
        (format!("{}.new", place.mark_name()), OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC);
    let mut file = folder.open_file(&name, flags).map_err(refused("create"))?;
    let text = lines::mark(0, boot_id).map_err(|error| failed(error.into()))?;
    file.write_all(&text).map_err(failed)?;
    folder.rename(&name, &place.mark_name()).map_err(refused("write"))
}

/// What to do with a journal that is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfDamaged {
    /// Leave it as it is: `whylate treat restore` reads it, and says what is not known.
    Refuse,
    /// Keep it under another name, and go on with what can be read.
    Keep,
}

/// A journal that only this process writes to.
#[derive(Debug)]
pub(crate) struct Journal {
    place: JournalPlace,
    folder: PrivateFolder,
    file: File,
    mark: File,
    boot_id: String,
    /// Number of its last line.
    last: u64,
    contents: Contents,
    /// Held until the journal is dropped, whatever ends the process.
    _lock: Lock,
}

impl Drop for Journal {
    fn drop(&mut self) {
        // A process that ends at once after this also says what stays changed.
        if self.contents.open().next().is_none() {
            last_words::given_up(&self.place);
        }
    }
}

impl Journal {
    /// Takes the lock and reads what is there.
    pub(crate) fn open(
        place: &JournalPlace,
        root: &HostRoot,
        holder: &Holder,
        if_damaged: IfDamaged,
    ) -> Result<Self, TreatError> {
        let folder = place.make_folder()?;
        let lock = lock::take(place, &folder, root, holder)?;
        let boot_id = boot_id(root);
        let marked = lines::read_mark(place.bytes(&folder, &place.mark_name())?.as_deref(), &boot_id);
        let bytes = place.bytes(&folder, &place.file_name())?.unwrap_or_default();
        let mut parsed = lines::parse(&bytes, marked);
        let unclaimed =
            parsed.contents.entries.extract_if(.., |it| claims::check(&it.change, &it.old, root).is_err());
        parsed.damage.extend(unclaimed.map(|it| {
            let (target, old) = (&it.change.target, it.old.trim_end());
            format!(
                "no treatment changes {target} from `{old}` to `{}`, so {target} is left alone",
                it.change.new
            )
        }));
        // The locks are ours; but a lock file may have been removed, or be on a file system that does not share locks.
        let contents = &parsed.contents;
        let live = contents
            .open()
            .filter_map(|entry| contents.holder(entry))
            .find(|it| !it.kept && it.pid != std::process::id() && it.is_alive(root));
        if let Some(it) = live {
            let holder = format!("`{}` (pid {}) since {}", it.command, it.pid, it.since());
            return Err(TreatError::Held { holder });
        }
        let known = [&parsed.damage[..], &parsed.contents.damage].concat();
        if if_damaged == IfDamaged::Refuse && !known.is_empty() {
            return Err(TreatError::Damaged { path: place.path(), problems: known });
        }
        let open = |name| folder.open_file(name, OFlags::RDWR | OFlags::CREATE | OFlags::APPEND);
        let file = open(place.file_name()).map_err(refused("create"))?;
        if marked == Marked::Not && bytes.is_empty() {
            make_mark(place, &folder, &boot_id)?;
        }
        let mark =
            folder.open_file(place.mark_name(), OFlags::RDWR | OFlags::CREATE).map_err(refused("create"))?;
        let (contents, last) = (std::mem::take(&mut parsed.contents), parsed.last);
        let mut it = Self { place: place.clone(), folder, file, mark, boot_id, last, contents, _lock: lock };
        it.begin(&bytes, marked, parsed)?;
        last_words::held(place, root);
        Ok(it)
    }

    /// Repairs the files: whole lines, as many as the mark says.
    fn begin(&mut self, bytes: &[u8], marked: Marked, parsed: Parsed) -> Result<(), TreatError> {
        if parsed.is_old || !parsed.damage.is_empty() {
            return self.write_anew(bytes, parsed);
        }
        if parsed.good < bytes.len() {
            self.file.set_len(parsed.good as u64).map_err(|source| self.failed(source))?;
        }
        if marked != Marked::Lines(self.last) {
            self.set_mark(self.last)?;
        }
        if bytes.is_empty() {
            self.folder.sync().map_err(refused("write"))?;
        }
        Ok(())
    }

    /// Writes a journal of what is known, in place of one that is damaged or of an earlier version.
    fn write_anew(&mut self, bytes: &[u8], parsed: Parsed) -> Result<(), TreatError> {
        let mut records = self.contents.records();
        if parsed.damage.is_empty() {
            // From here on an old journal has a mark, too.
            self.set_mark(0)?;
        } else {
            let kept = self.keep(bytes)?.display().to_string();
            let unknown = [parsed.damage, std::mem::take(&mut self.contents.damage)].concat();
            records.push(JournalRecord::Damaged { unknown, kept });
        }
        let name = format!("{}.new", self.place.file_name());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::APPEND;
        let new = self.folder.open_file(&name, flags).map_err(refused("create"))?;
        let text = sealed(&records, 0).map_err(|source| self.failed(source))?;
        (&new).write_all(&text).and_then(|()| new.sync_all()).map_err(|source| self.failed(source))?;
        let renamed = self.folder.rename(&name, &self.place.file_name()).and_then(|()| self.folder.sync());
        renamed.map_err(refused("write"))?;
        self.file = new;
        self.last = records.len() as u64;
        self.contents = Contents::default();
        records.into_iter().for_each(|record| self.contents.add(record));
        self.set_mark(self.last)
    }

    /// Keeps a damaged journal as it is, under an unused name.
    fn keep(&self, bytes: &[u8]) -> Result<PathBuf, TreatError> {
        let mut number = 1;
        loop {
            let more = if number == 1 { String::new() } else { format!(".{number}") };
            let name = format!("{}.damaged{more}", self.place.file_name());
            match self.folder.open_file(&name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL) {
                Ok(mut file) => {
                    let written = file.write_all(bytes).and_then(|()| file.sync_all());
                    written.map_err(|source| self.failed(source))?;
                    return Ok(self.place.folder.join(name));
                }
                Err(PrivateError::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {
                    number += 1;
                }
                Err(error) => return Err(refused("create")(error)),
            }
        }
    }

    fn failed(&self, source: impl Into<io::Error>) -> TreatError {
        state_error("write", &self.place.path(), source.into())
    }

    fn set_mark(&self, lines: u64) -> Result<(), TreatError> {
        let text = lines::mark(lines, &self.boot_id).map_err(|error| self.failed(error))?;
        self.mark.write_all_at(&text, 0).map_err(|source| self.failed(source))
    }

    pub(crate) fn contents(&self) -> &Contents {
        &self.contents
    }

    /// The number of the next entry.
    pub(crate) fn next_entry(&self) -> u64 {
        self.contents.entries.last().map_or(1, |entry| entry.entry + 1)
    }

    /// Begins a session, and returns its number.
    pub(crate) fn begin_session(&mut self, holder: &Holder) -> Result<u64, TreatError> {
        let session = self.contents.sessions.last_key_value().map_or(1, |(last, _)| last + 1);
        let format = JOURNAL_FORMAT.to_owned();
        self.append(vec![JournalRecord::Session { format, session, holder: holder.clone() }])?;
        Ok(session)
    }

    /// Adds lines, all or none if the disk allows it.
    pub(crate) fn append(&mut self, records: Vec<JournalRecord>) -> Result<(), TreatError> {
        let text = sealed(&records, self.last).map_err(|error| self.failed(error))?;
        let before = self.file.metadata().map_err(|source| self.failed(source))?.len();
        if let Err(source) = self.file.write_all(&text) {
            // Half a line would spoil the next one.
            let _ = self.file.set_len(before);
            return Err(self.failed(source));
        }
        self.last += records.len() as u64;
        self.set_mark(self.last)?;
        records.into_iter().for_each(|record| self.contents.add(record));
        Ok(())
    }

    /// Brings every line to the disk. The mark is not needed there: after a reboot nothing has to be undone.
    pub(crate) fn sync(&self) -> Result<(), TreatError> {
        self.file.sync_data().map_err(|source| self.failed(source))
    }

    /// Empties the journal when nothing in it has to be undone any more.
    pub(crate) fn clear_if_closed(&mut self) -> Result<(), TreatError> {
        if self.contents.open().next().is_some() {
            return self.sync();
        }
        // In this order: lines that no mark mentions are not damage.
        self.set_mark(0)?;
        let cleared = self.file.set_len(0).and_then(|()| self.file.sync_data());
        cleared.map_err(|source| self.failed(source))?;
        self.last = 0;
        self.contents = Contents::default();
        Ok(())
    }
}

/// Lines from the number after `last` on.
fn sealed(records: &[JournalRecord], last: u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for (seq, record) in (last + 1..).zip(records) {
        text.extend(lines::seal(seq, record)?);
    }
    Ok(text)
}
