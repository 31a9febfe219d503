//! Folders of links that stand for a lake without its damaged objects. They are deleted with the answer; those of processes
//! that were killed, by the next one that needs such a folder.

use std::fs::{self, DirEntry, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

const PREFIX: &str = "whylate-links-";
/// A younger one may not have been locked yet.
const AGE_MIN: Duration = Duration::from_secs(60);

/// A folder for links, locked as long as it is needed, and deleted with it.
#[derive(Debug)]
pub(crate) struct Links {
    folder: TempDir,
    _lock: File,
}

impl Links {
    /// An empty one in that folder.
    pub(super) fn new_in(within: &Path) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(within)?;
        let lock = File::open(folder.path())?;
        // A file system without locks: nobody gets one, so nobody deletes what another one has left.
        _ = lock.try_lock();
        let own = lock.metadata()?.uid();
        let others = fs::read_dir(within)?.flatten();
        // What cannot be deleted stays; the question is answered all the same.
        others.filter(|it| is_left(it, own)).for_each(|it| _ = fs::remove_dir_all(it.path()));
        Ok(Self { folder, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Whether a process of the same user has left it.
fn is_left(entry: &DirEntry, own: u32) -> bool {
    let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
    // Of the entry itself: a link of that name leads elsewhere.
    let is_old = |it: fs::Metadata| {
        let age = it.modified().ok().and_then(|at| at.elapsed().ok());
        it.is_dir() && it.uid() == own && age.is_some_and(|age| age >= AGE_MIN)
    };
    is_ours
        && entry.metadata().is_ok_and(is_old)
        && File::open(entry.path()).is_ok_and(|folder| folder.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::time::UNIX_EPOCH;

    #[test]
    fn what_a_killed_process_has_left_is_deleted_and_nothing_else() {
        let top = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = top.path().join(name);
            fs::create_dir_all(path.join("table=runs")).unwrap();
            symlink("/nonexistent", path.join("table=runs/link")).unwrap();
            path
        };
        let age = |path: &Path| File::open(path).unwrap().set_modified(UNIX_EPOCH).unwrap();
        let (left, young, other) = (make("whylate-links-left"), make("whylate-links-young"), make("else"));
        [&left, &other].into_iter().for_each(|path| age(path));
        symlink(&other, top.path().join("whylate-links-link")).unwrap();
        let used = Links::new_in(top.path()).unwrap();
        assert!(!left.exists() && young.exists() && other.join("table=runs").exists());
        age(used.path());
        let second = Links::new_in(top.path()).unwrap();
        assert!(used.path().exists(), "it is in use");
        let paths = [used.path().to_owned(), second.path().to_owned()];
        drop((used, second));
        assert!(paths.iter().all(|path| !path.exists()));
    }
}
