//! A folder of a run directory, held open. Every file in it is opened relative to that open folder, and no link is
//! followed, so that another user with write access cannot redirect root's reads and writes to another file. No other
//! code of this crate, of the web server or of the farm opens files of runs (`cargo xtask tidy` checks that).
//!
//! A file is written under a temporary name (`NAME.tmp`), synced to disk and renamed; then its folder is synced too.
//! A killed process or a power cut leaves either the old file or the whole new one. Readers ignore temporary names.

mod way;

use crate::directory::LOADS_FOLDER;
use crate::error::{At, StoreError};
use crate::traces::TRACES_FOLDER;
use rustix::fs::{self, AtFlags, Dir, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, TryLockError};
use std::io::{self, Read, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use whylate_core::order::InOrder;

/// How often, and after which pause, the lock on a folder is tried again.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(10);
/// Suffix of a file's name until it is complete.
pub(crate) const TEMPORARY_SUFFIX: &str = ".tmp";
/// No file of a run is nearly this large: a larger one is not read into memory.
const READ_MAX: u64 = 128 << 20;
/// The same for a file that is parsed as a whole: a few bytes of it take many in memory. A run of 10,000 cells has 10
/// MB.
pub(crate) const PARSED_MAX: u64 = 16 << 20;
/// The same for a trace, or for the output of a load.
const RECORDED_MAX: u64 = 4 << 30;
/// Folders of a run are not nested more deeply.
const DEPTH_MAX: usize = 4;
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// The users whose folders and files are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owners {
    #[default]
    Anyone,
    /// Those of the user of this process, and of root.
    OwnAndRoot,
}

impl Owners {
    fn check(self, metadata: &Metadata) -> io::Result<()> {
        let owner = metadata.uid();
        let is_fine = self == Self::Anyone || owner == 0 || owner == geteuid().as_raw();
        if is_fine { Ok(()) } else { Err(io::Error::other(format!("it belongs to user {owner}"))) }
    }
}

/// The largest size of a file of a run that is copied, by its name in the run.
#[must_use]
pub fn file_bytes_max(name: &Path) -> u64 {
    let is_recorded = [TRACES_FOLDER, LOADS_FOLDER].iter().any(|folder| name.starts_with(folder));
    if is_recorded { RECORDED_MAX } else { READ_MAX }
}

/// A regular file or a folder in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Below the folder that was searched.
    pub name: PathBuf,
    pub is_folder: bool,
    pub bytes: u64,
    /// Device, inode, length, times of the last write and of the last change: they differ if the file is not the
    /// same.
    pub stamp: [i64; 7],
}

#[derive(Clone, Debug)]
pub struct Folder {
    opened: Arc<File>,
    path: PathBuf,
    owners: Owners,
}

impl Folder {
    /// Opens a folder by the path that the user gave, which may be a link to it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let opened = fs::open(path, FOLDER | OFlags::CLOEXEC, Mode::empty());
        let opened = File::from(opened.map_err(io::Error::from).at("open", path)?);
        Ok(Self { opened: Arc::new(opened), path: path.to_owned(), owners: Owners::Anyone })
    }

    /// The same folder, restricted to files of these owners.
    pub fn only(self, owners: Owners) -> Result<Self, StoreError> {
        self.opened.metadata().and_then(|it| owners.check(&it)).at("read", &self.path)?;
        Ok(Self { owners, ..self })
    }

    /// Opens a folder to write in it. As root, follows no link that another user can have made, and requires that the
    /// folder belongs to root.
    pub fn writable(path: &Path) -> Result<Self, StoreError> {
        let opened =
            way::walk(path, false).and_then(|at| way::open(&at, Path::new("."), FOLDER)).at("open", path)?;
        let folder = Self { opened: Arc::new(opened), path: path.to_owned(), owners: Owners::Anyone };
        folder.check_owner().map(|()| folder)
    }

    /// Makes a folder and its parents, or takes an empty one.
    ///
    /// # Errors
    /// [`StoreError::Occupied`] when something else is there (nothing is changed then); the errors of
    /// [`Self::writable`].
    pub fn create(path: &Path) -> Result<Self, StoreError> {
        let occupied = || StoreError::Occupied(path.to_owned());
        match way::walk(path, true) {
            Ok(_) => {}
            // A file, or a dangling link.
            Err(error)
                if [io::ErrorKind::NotADirectory, io::ErrorKind::AlreadyExists].contains(&error.kind())
                    && path.symlink_metadata().is_ok() =>
            {
                return Err(occupied());
            }
            Err(error) => return Err(error).at("create", path),
        }
        let folder = Self::writable(path)?;
        if !folder.names().at("read", path)?.is_empty() {
            return Err(occupied());
        }
        // The parent of a relative path of one component is the empty path.
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let parent = way::walk(parent, false).and_then(|at| way::open(&at, Path::new("."), FOLDER));
        parent.and_then(|parent| parent.sync_all()).at("sync", path)?;
        Ok(folder)
    }

    /// The folder that contains a path, made if it is missing, and the path's last part.
    pub fn above(path: &Path) -> Result<(Self, OsString), StoreError> {
        let absolute = std::path::absolute(path).at("find", path)?;
        let named = absolute.parent().zip(absolute.file_name());
        let (above, name) = named.ok_or_else(|| StoreError::Occupied(path.to_owned()))?;
        let opened = way::walk(above, true).and_then(|at| way::open(&at, Path::new("."), FOLDER));
        let opened = Arc::new(opened.at("create", above)?);
        Ok((Self { opened, path: above.to_owned(), owners: Owners::Anyone }, name.to_owned()))
    }

    /// Makes a folder that must not exist, whole or not at all: it gets its name once `fill` has filled it.
    pub fn make_whole<E: From<StoreError>>(
        &self,
        name: &OsStr,
        fill: impl FnOnce(&Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let path = self.path.join(name);
        let scratch = PathBuf::from(format!(".whylate-{}.part", std::process::id()));
        let filled = self.subfolder(&scratch).map_err(E::from).and_then(|folder| fill(&folder));
        let named = filled.and_then(|()| {
            let renamed =
                fs::renameat_with(&self.opened, &scratch, &self.opened, name, RenameFlags::NOREPLACE);
            let renamed = match renamed {
                // A file system without this operation.
                Err(Errno::INVAL) => fs::renameat(&self.opened, &scratch, &self.opened, name),
                renamed => renamed,
            };
            Ok(renamed.map_err(io::Error::from).at("create", &path)?)
        });
        // A leftover only takes space.
        named.inspect_err(|_| _ = self.remove_all(&scratch))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The users whose files are read.
    pub(crate) fn owners(&self) -> Owners {
        self.owners
    }

    /// Whether it belongs to the user of this process, and other users cannot write to it.
    pub(crate) fn is_own(&self) -> bool {
        let metadata = self.opened.metadata();
        metadata.is_ok_and(|it| it.uid() == geteuid().as_raw() && it.mode() & 0o002 == 0)
    }

    /// A path of this open folder that stays valid if the folder is moved: for code that needs a path, in this
    /// process and its children.
    pub fn fixed_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.opened.as_raw_fd()))
    }

    /// A folder in it.
    pub fn enter(&self, name: impl AsRef<Path>) -> io::Result<Self> {
        let name = name.as_ref();
        let opened = way::open(&self.opened, name, FOLDER)?;
        self.owners.check(&opened.metadata()?)?;
        Ok(Self { opened: Arc::new(opened), path: self.path.join(name), owners: self.owners })
    }

    /// Opens a folder in it, and makes it if it does not exist.
    pub(crate) fn subfolder(&self, name: impl AsRef<Path>) -> Result<Self, StoreError> {
        let name = name.as_ref();
        match fs::mkdirat(&self.opened, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => self.enter(name).at("open", &self.path.join(name)),
            Err(error) => Err(io::Error::from(error)).at("create", &self.path.join(name)),
        }
    }

    /// Refuses a folder in which another user could replace what root writes.
    pub(crate) fn check_owner(&self) -> Result<(), StoreError> {
        let metadata = self.opened.metadata().at("read", &self.path)?;
        if !geteuid().is_root() {
            return Ok(());
        }
        let is_of_roots_group = metadata.gid() == 0;
        match (metadata.uid(), metadata.mode() & if is_of_roots_group { 0o002 } else { 0o022 }) {
            (0, 0) => Ok(()),
            (0, _) => Err(StoreError::OpenToAll(self.path.clone())),
            (owner, _) => Err(StoreError::Foreign(self.path.clone(), owner)),
        }
    }

    /// Locks the folder against other writers while it is open. If the previous holder was starting a process, that
    /// process holds the lock until its program begins: therefore this waits a little.
    pub(crate) fn lock(&self) -> Result<(), StoreError> {
        for _ in 0..LOCK_TRIES {
            match self.opened.try_lock() {
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
                // Some network file systems have no locks: the run goes on without one.
                Ok(()) | Err(TryLockError::Error(_)) => return Ok(()),
            }
        }
        Err(StoreError::Busy(self.path.clone()))
    }

    /// Whether another process is writing to the run.
    pub fn is_held(&self) -> bool {
        // A lock belongs to an open file: this folder may be the one that holds it.
        let again = way::open(&self.opened, Path::new("."), FOLDER);
        again.is_ok_and(|again| matches!(again.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// Names of what is in it, sorted.
    pub(crate) fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.opened)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        names.order();
        Ok(names)
    }

    /// The regular files and folders in it.
    pub fn entries(&self) -> io::Result<Vec<Found>> {
        Ok(self.names()?.into_iter().filter_map(|name| self.find(Path::new(&name))).collect())
    }

    /// The folders and files below it, sorted.
    pub fn tree(&self) -> io::Result<Vec<Found>> {
        self.tree_to(DEPTH_MAX)
    }

    fn tree_to(&self, depth: usize) -> io::Result<Vec<Found>> {
        let mut all = Vec::new();
        for found in self.entries()? {
            let name = found.name.clone();
            let is_entered = found.is_folder && depth > 0;
            all.push(found);
            if is_entered {
                let below = self.enter(&name).and_then(|folder| folder.tree_to(depth - 1));
                // It may have been removed meanwhile.
                all.extend(below.into_iter().flatten().map(|it| Found { name: name.join(it.name), ..it }));
            }
        }
        Ok(all)
    }

    /// What has that name, if it is a regular file or a folder.
    pub fn find(&self, name: impl AsRef<Path>) -> Option<Found> {
        let name = name.as_ref();
        let metadata = way::open(&self.opened, name, OFlags::PATH).and_then(|it| it.metadata()).ok()?;
        let kind = metadata.file_type();
        let stamp = [
            metadata.dev().cast_signed(),
            metadata.ino().cast_signed(),
            metadata.len().cast_signed(),
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.ctime(),
            metadata.ctime_nsec(),
        ];
        let found = Found { name: name.to_owned(), is_folder: kind.is_dir(), bytes: metadata.len(), stamp };
        (kind.is_dir() || kind.is_file()).then_some(found)
    }

    /// Opens a file to read it; `None` if there is none. Anything but a regular file is refused, so that no reader
    /// waits for a pipe, and so is a file of other users.
    pub fn open_file(&self, name: impl AsRef<Path>) -> io::Result<Option<File>> {
        let opened = way::open(&self.opened, name.as_ref(), OFlags::RDONLY | OFlags::NONBLOCK);
        let Some(file) = if_present(opened)? else { return Ok(None) };
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        self.owners.check(&metadata)?;
        if metadata.nlink() > 1 {
            self.check_linked(&metadata)?;
        }
        Ok(Some(file))
    }

    /// Refuses a file that another user may have hard-linked from elsewhere.
    fn check_linked(&self, file: &Metadata) -> io::Result<()> {
        let folder = self.opened.metadata()?;
        let is_careful = geteuid().is_root() || self.owners == Owners::OwnAndRoot;
        if is_careful && (file.uid() != folder.uid() || folder.mode() & 0o022 != 0) {
            return Err(io::Error::other("another user may have made a hard link to this file"));
        }
        Ok(())
    }

    /// The content of a file; `None` if there is none.
    pub fn read(&self, name: impl AsRef<Path>) -> io::Result<Option<Vec<u8>>> {
        self.read_up_to(name, READ_MAX)
    }

    /// As [`Self::read`], but refuses a larger file.
    pub fn read_up_to(&self, name: impl AsRef<Path>, most: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = self.open_file(name)? else { return Ok(None) };
        let length = file.metadata()?.len();
        if length > most {
            return Err(io::Error::other(format!("it is too large: {length} bytes")));
        }
        let mut bytes = Vec::with_capacity(length as usize);
        file.take(most).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// The current path of a socket in it; no link is followed to it.
    pub fn socket(&self, name: impl AsRef<Path>) -> io::Result<(File, PathBuf)> {
        let socket = way::open(&self.opened, name.as_ref(), OFlags::PATH)?;
        let metadata = socket.metadata()?;
        self.owners.check(&metadata)?;
        if !metadata.file_type().is_socket() {
            return Err(io::Error::other("it is not a socket"));
        }
        let path = PathBuf::from(format!("/proc/self/fd/{}", socket.as_raw_fd()));
        Ok((socket, path))
    }

    /// Writes `bytes` to `name`, replacing an existing file, all or nothing.
    pub(crate) fn write_atomically(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.stage(name, bytes)?;
        self.publish(name)
    }

    /// Writes `bytes` under the temporary name of `name`, and syncs them to disk.
    pub(crate) fn stage(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let temporary = temporary(name);
        // A leftover of a killed process, or a planted symbolic link: removes it, not its target.
        self.remove(&temporary)?;
        let written = self.write_new(&temporary, &mut &*bytes);
        if written.is_err() {
            // The incomplete file only takes space; ignore it if the removal fails.
            let _ = self.remove(&temporary);
        }
        written
    }

    /// Writes a file that must not exist, and syncs it to disk; makes its parent folders.
    pub fn write_new(&self, name: impl AsRef<Path>, content: &mut dyn Read) -> Result<(), StoreError> {
        let name = name.as_ref();
        let path = self.path.join(name);
        if let Some(parent) = name.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            self.make_folders(parent)?;
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mut file = way::open(&self.opened, name, flags).at("create", &path)?;
        io::copy(content, &mut file).at("write", &path)?;
        file.sync_all().at("sync", &path)
    }

    /// Makes a folder below it, and its parents.
    pub fn make_folders(&self, name: &Path) -> Result<(), StoreError> {
        let all: Vec<&Path> = name.ancestors().filter(|it| !it.as_os_str().is_empty()).collect();
        all.into_iter().rev().try_for_each(|folder| {
            let (above, last) = (folder.parent(), folder.file_name());
            let above = above.filter(|above| !above.as_os_str().is_empty());
            let above = above.map_or(Ok(self.clone()), |above| self.enter(above)).at("open", &self.path)?;
            let last = last.ok_or_else(|| io::Error::other("the path leads out of the folder"));
            above.subfolder(last.at("create", &self.path.join(folder))?).map(drop)
        })
    }

    /// Gives the staged file its name.
    pub(crate) fn publish(&self, name: &str) -> Result<(), StoreError> {
        let renamed = fs::renameat(&self.opened, temporary(name), &self.opened, name);
        renamed.map_err(io::Error::from).at("rename into place", &self.path.join(name))?;
        self.sync()
    }

    /// Removes a staged file that will not get its name.
    pub(crate) fn discard(&self, name: &str) {
        let _ = self.remove(temporary(name));
    }

    /// Removes a file or a link; does nothing if there is none.
    pub fn remove(&self, name: impl AsRef<Path>) -> Result<(), StoreError> {
        let name = name.as_ref();
        let removed = fs::unlinkat(&self.opened, name, AtFlags::empty()).map_err(io::Error::from);
        if_present(removed).at("remove", &self.path.join(name)).map(|_| ())
    }

    /// Removes a file, a link, or a folder with all that is in it.
    pub(crate) fn remove_all(&self, name: &Path) -> Result<(), StoreError> {
        let path = self.path.join(name);
        if !self.find(name).is_some_and(|it| it.is_folder) {
            return self.remove(name);
        }
        let folder = self.enter(name).at("open", &path)?;
        for inner in folder.names().at("read", &path)? {
            folder.remove_all(Path::new(&inner))?;
        }
        self.remove_folder(name)
    }

    /// Removes a folder that is empty.
    pub(crate) fn remove_folder(&self, name: &Path) -> Result<(), StoreError> {
        let removed = fs::unlinkat(&self.opened, name, AtFlags::REMOVEDIR).map_err(io::Error::from);
        removed.at("remove", &self.path.join(name))
    }

    /// Syncs the folder's entries to disk.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.opened.sync_all().at("sync", &self.path)
    }

    /// Opens a file to append to it; makes it if it does not exist. Refuses anything that is not a regular file, and
    /// a file with a second hard link.
    pub(crate) fn append(&self, name: &str) -> Result<File, StoreError> {
        let path = self.path.join(name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND | OFlags::NONBLOCK;
        let file = way::open(&self.opened, Path::new(name), flags).at("open", &path)?;
        let metadata = file.metadata().at("read", &path)?;
        let refused = |what| Err(io::Error::other(what)).at("write", &path);
        match (metadata.is_file(), metadata.nlink()) {
            (true, 0 | 1) => Ok(file),
            (true, _) => refused("it is a hard link to another file"),
            (false, _) => refused("it is not a regular file"),
        }
    }
}

/// Adds a line to an open file, and syncs it to disk.
pub(crate) fn add_line(mut file: &File, path: &Path, line: &str) -> Result<(), StoreError> {
    file.write_all(format!("{line}\n").as_bytes()).at("write", path)
}

/// `None` if there is no such file.
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
    use rustix::fs::FileType;
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
        assert_eq!(opened.read("run.json").unwrap().unwrap(), b"second");
        assert_eq!(read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_larger_than_any_of_a_run_is_not_read_into_memory() {
        let (folder, opened) = made();
        File::create(folder.path().join("result.json")).unwrap().set_len(READ_MAX + 1).unwrap();
        assert!(opened.read("result.json").is_err());
        let name = crate::segment::file_name(1);
        std::fs::create_dir(folder.path().join("spikes")).unwrap();
        let table = File::create(folder.path().join("spikes").join(name)).unwrap();
        table.set_len(crate::segment::BYTES_MAX + 1).unwrap();
        assert!(crate::segment::bytes(&opened, "spikes", 1).is_err());
        let info = File::create(folder.path().join(crate::info::INFO_FILE)).unwrap();
        info.set_len(PARSED_MAX + 1).unwrap();
        let refused = crate::info::RunInfo::read(&opened).unwrap_err().to_string();
        assert!(refused.contains(&(PARSED_MAX + 1).to_string()), "{refused}");
        table.set_len(10).unwrap();
        assert_eq!(crate::segment::bytes(&opened, "spikes", 1).unwrap(), Some(vec![0; 10]));
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
        assert_eq!(opened.read("run.json").unwrap().unwrap(), b"mine");
        symlink(&victim, folder.path().join("lines")).unwrap();
        let error = opened.append("lines").unwrap_err().to_string();
        assert!(error.contains("lines: cannot open"), "{error}");
        std::fs::remove_file(folder.path().join("lines")).unwrap();
        std::fs::hard_link(&victim, folder.path().join("lines")).unwrap();
        assert!(opened.append("lines").unwrap_err().to_string().contains("hard link"));
        symlink(folder.path(), folder.path().join("spikes")).unwrap();
        assert!(opened.subfolder("spikes").is_err(), "a folder that is a link");
        assert_eq!(std::fs::read(&victim).unwrap(), b"untouched");
    }

    #[test]
    fn writes_go_into_the_folder_that_was_opened() {
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
        assert_eq!(opened.read("run.json").unwrap().unwrap(), b"first");
    }

    #[test]
    fn reading_does_not_wait_for_a_pipe() {
        let (folder, opened) = made();
        let pipe = folder.path().join("pipe");
        fs::mknodat(fs::CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(opened.read("pipe").unwrap_err().to_string().contains("not a regular file"));
        assert_eq!(opened.read("missing").unwrap(), None);
    }
}
