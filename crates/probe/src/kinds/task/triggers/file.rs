//! Triggers that are lines appended to a file, also after it was rotated or truncated.

use super::inbox::Watcher;
use super::lines::TriggerLines;
use crate::error::ProbeError;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use whylate_sys::clock;

/// How often the file is read, and after how many times its name is looked at.
const PERIOD: Duration = Duration::from_millis(5);
const LOOK_EVERY: u32 = 20;

/// The end of a file.
struct Tail {
    path: PathBuf,
    file: Option<File>,
    lines: TriggerLines,
    /// How far it was read.
    read: u64,
}

/// Waits for lines of that file.
///
/// # Errors
/// When the file is there and cannot be read.
pub(super) fn watch(path: &Path, lines: TriggerLines) -> Result<Watcher, ProbeError> {
    let cannot = |why: String| ProbeError::Failed(format!("cannot read {}: {why}", path.display()));
    let mut tail = Tail { path: path.to_owned(), file: None, lines, read: 0 };
    match fs::metadata(path) {
        Ok(found) if found.is_dir() || found.file_type().is_fifo() || found.file_type().is_socket() => {
            return Err(cannot("it is not a file".to_owned()));
        }
        Ok(_) => {
            let mut file = File::open(path).map_err(|error| cannot(error.to_string()))?;
            tail.read = file.seek(SeekFrom::End(0)).map_err(|error| cannot(error.to_string()))?;
            tail.file = Some(file);
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(cannot(error.to_string())),
    }
    let follow = move |stop: &AtomicBool| {
        let mut turn = 0;
        while !stop.load(Ordering::Relaxed) {
            tail.read();
            turn = (turn + 1) % LOOK_EVERY;
            if turn == 0 {
                tail.look();
            }
            std::thread::sleep(PERIOD);
        }
        tail.read();
    };
    Watcher::start("trigger file", follow).map_err(|error| cannot(error.to_string()))
}

impl Tail {
    /// Reads what was appended.
    fn read(&mut self) {
        let Some(file) = &mut self.file else { return };
        let mut bytes = [0; 16 << 10];
        while let Ok(length) = file.read(&mut bytes) {
            if length == 0 {
                break;
            }
            self.read += length as u64;
            self.lines.push(clock::now().0, &bytes[..length]);
        }
    }

    /// Goes on with the file that has the name now, from its start.
    fn look(&mut self) {
        let Ok(now) = fs::metadata(&self.path) else { return };
        let known = self.file.as_ref().and_then(|file| file.metadata().ok());
        let is_same = known.is_some_and(|known| (known.dev(), known.ino()) == (now.dev(), now.ino()));
        if is_same && now.len() >= self.read {
            return;
        }
        // What was appended to the old file before it lost its name.
        self.read();
        self.lines.finish();
        if let Ok(file) = File::open(&self.path) {
            (self.file, self.read) = (Some(file), 0);
            self.read();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lines::tests::{come, lines};
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_file_is_followed_through_rotation_and_truncation() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (inbox, of) = lines("late");
        let mut tail = Tail { path: path.clone(), file: None, lines: of, read: 0 };
        let texts = || come(&inbox).into_iter().map(|it| it.1).collect::<Vec<String>>();
        tail.look();
        assert!(texts().is_empty(), "it is waited for");
        let write = |text: &str, truncates: bool| {
            let mut options = File::options();
            let mut file =
                options.create(true).write(true).append(!truncates).truncate(truncates).open(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        write("late 1\nlate", false);
        tail.look();
        assert_eq!(texts(), ["late 1"]);
        write(" 2\n", false);
        tail.read();
        assert_eq!(texts(), ["late 2"]);
        write("late 3\n", false);
        fs::rename(&path, folder.path().join("log.1")).unwrap();
        write("late 4\n", false);
        tail.read();
        tail.look();
        assert_eq!(texts(), ["late 3", "late 4"]);
        write("l late\n", true);
        tail.read();
        tail.look();
        write("late 6\n", false);
        tail.read();
        // The new text was as long as the old one: nothing says that it is new.
        assert_eq!(texts(), ["late 6"]);
        write("late\n", true);
        tail.look();
        assert_eq!(texts(), ["late"]);
    }

    #[test]
    fn only_what_is_appended_after_the_start_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, "late 1\n").unwrap();
        let (inbox, of) = lines("late");
        let watcher = watch(&path, of).unwrap();
        File::options().append(true).open(&path).unwrap().write_all(b"late 2\n").unwrap();
        drop(watcher);
        assert_eq!(come(&inbox).into_iter().map(|it| it.1).collect::<Vec<String>>(), ["late 2"]);
        assert!(watch(folder.path(), lines("late").1).is_err(), "a folder");
    }
}
