//! Folders and files that no other user can have written: opened one folder after the other, without following links.
//!
//! Root trusts what it reads from them. So each folder on the way belongs to root or to this user, and no other user
//! can create or replace anything in it. A folder like /tmp may be on the way: all users may make files there, but
//! only replace their own (the sticky bit).

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

/// Why something was not opened.
#[derive(Debug, thiserror::Error)]
pub enum PrivateError {
    /// Others could have written or replaced it.
    #[error("{} {problem}", path.display())]
    Shared {
        /// The folder or file.
        path: PathBuf,
        problem: String,
    },
    #[error("{}: {source}", path.display())]
    Io {
        /// The folder or file.
        path: PathBuf,
        source: io::Error,
    },
}

impl PrivateError {
    /// Whether the folder or file does not exist.
    pub fn is_absence(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// A folder that belongs to this user, and that no other user can write to.
#[derive(Debug)]
pub struct PrivateFolder {
    path: PathBuf,
    folder: OwnedFd,
    /// The mode of its files; `None` if they are only read.
    files: Option<Mode>,
}

impl PrivateFolder {
    /// Opens the folder.
    pub fn open(path: &Path) -> Result<Self, PrivateError> {
        Self::walk(path, false, false)
    }

    /// Opens a folder of this user, or of root, only for reading.
    pub fn open_to_read(path: &Path) -> Result<Self, PrivateError> {
        Self::walk(path, false, true)
    }

    /// Opens the folder. If it or those around it are missing, it makes them: for this user alone, whatever the umask.
    pub fn make(path: &Path) -> Result<Self, PrivateError> {
        Self::make_with(path, Mode::RWXU, Mode::RUSR | Mode::WUSR)
    }

    /// The same, with files that all users may read.
    pub fn make_readable(path: &Path) -> Result<Self, PrivateError> {
        let read = Mode::RGRP | Mode::ROTH;
        Self::make_with(path, Mode::RWXU | read | Mode::XGRP | Mode::XOTH, Mode::RUSR | Mode::WUSR | read)
    }

    fn make_with(path: &Path, mode: Mode, files: Mode) -> Result<Self, PrivateError> {
        let it = Self { files: Some(files), ..Self::walk(path, true, false)? };
        let io = |source: Errno| PrivateError::Io { path: it.path.clone(), source: source.into() };
        if Mode::from_raw_mode(rustix::fs::fstat(&it.folder).map_err(io)?.st_mode) != mode {
            rustix::fs::fchmod(&it.folder, mode).map_err(io)?;
        }
        Ok(it)
    }

    fn walk(path: &Path, make: bool, to_read: bool) -> Result<Self, PrivateError> {
        let absolute = std::path::absolute(path);
        let absolute = absolute.map_err(|source| PrivateError::Io { path: path.to_owned(), source })?;
        let mut at = PathBuf::new();
        let mut folder: Option<(OwnedFd, Stat)> = None;
        for component in absolute.components() {
            at.push(component);
            if let Some((around, stat)) = &folder {
                check(at.parent().unwrap_or(&at), stat, true, true)?;
                folder = Some(step(around, component, &at, make)?);
            } else {
                folder = Some(step(CWD, Component::RootDir, &at, false)?);
            }
        }
        let Some((folder, stat)) = folder else {
            return Err(PrivateError::Shared { path: at, problem: "is not a path".to_owned() });
        };
        check(&at, &stat, to_read, false)?;
        Ok(Self { path: at, folder, files: (!to_read).then_some(Mode::RUSR | Mode::WUSR) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file in it, with the mode of the folder's files from then on.
    ///
    /// # Errors
    /// [`PrivateError::Shared`] for links (also a second name of a file), for what is not a file, and for a file that
    /// belongs to another user or that others can write to.
    pub fn open_file(&self, name: impl AsRef<OsStr>, flags: OFlags) -> Result<File, PrivateError> {
        self.open_with(name.as_ref(), flags, self.files)
    }

    /// The same of a file that no other user may read, such as a lock.
    pub fn open_private(&self, name: impl AsRef<OsStr>, flags: OFlags) -> Result<File, PrivateError> {
        self.open_with(name.as_ref(), flags, Some(Mode::RUSR | Mode::WUSR))
    }

    fn open_with(&self, name: &OsStr, flags: OFlags, mode: Option<Mode>) -> Result<File, PrivateError> {
        let path = self.path.join(name);
        let io = |source: Errno| PrivateError::Io { path: path.clone(), source: source.into() };
        let shared = |problem: &str| PrivateError::Shared { path: path.clone(), problem: problem.to_owned() };
        // Opening a pipe that another user put there must not wait for its other end.
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match rustix::fs::openat(&self.folder, name, flags, mode.unwrap_or(Mode::RUSR)) {
            Err(Errno::LOOP) => return Err(shared("is a link")),
            Err(Errno::NXIO) => return Err(shared("is not a file")),
            other => other.map_err(io)?,
        };
        let stat = rustix::fs::fstat(&file).map_err(io)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(shared("is not a file"));
        }
        // A second name may be in a folder that others can look into.
        if stat.st_nlink > 1 {
            return Err(shared("has a second name (a hard link)"));
        }
        check(&path, &stat, mode.is_none(), false)?;
        if let Some(mode) = mode.filter(|mode| Mode::from_raw_mode(stat.st_mode) != *mode) {
            rustix::fs::fchmod(&file, mode).map_err(io)?;
        }
        Ok(File::from(file))
    }

    /// Gives a file of it the name of another, at once.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), PrivateError> {
        let done = rustix::fs::renameat(&self.folder, from, &self.folder, to);
        done.map_err(|source| PrivateError::Io { path: self.path.join(from), source: source.into() })
    }

    /// Brings the names in it to the disk.
    pub fn sync(&self) -> Result<(), PrivateError> {
        let done = rustix::fs::fsync(&self.folder);
        done.map_err(|source| PrivateError::Io { path: self.path.clone(), source: source.into() })
    }
}

/// The next folder on the way.
fn step(
    around: impl std::os::fd::AsFd,
    name: Component<'_>,
    at: &Path,
    make: bool,
) -> Result<(OwnedFd, Stat), PrivateError> {
    let around = around.as_fd();
    let io = |source: Errno| PrivateError::Io { path: at.to_owned(), source: source.into() };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let name = name.as_os_str();
    let open = || rustix::fs::openat(around, name, flags, Mode::empty());
    let opened = match open() {
        Err(Errno::NOENT) if make => match rustix::fs::mkdirat(around, name, Mode::RWXU) {
            // Another process may just have made it.
            Ok(()) | Err(Errno::EXIST) => open(),
            Err(error) => Err(error),
        },
        // Folders on the way need not be readable.
        Err(Errno::ACCESS) => rustix::fs::openat(around, name, flags | OFlags::PATH, Mode::empty()),
        other => other,
    };
    match opened {
        Ok(folder) => {
            let stat = rustix::fs::fstat(&folder).map_err(io)?;
            Ok((folder, stat))
        }
        Err(error) => {
            let stat = rustix::fs::statat(around, name, AtFlags::SYMLINK_NOFOLLOW);
            let is_link = stat.is_ok_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::Symlink);
            let problem = "is a link; name the folder itself".to_owned();
            Err(if is_link { PrivateError::Shared { path: at.to_owned(), problem } } else { io(error) })
        }
    }
}

/// Refuses what others could write to or replace. `of_root` allows what belongs to root, `sticky` folders in which all
/// users can make files of their own.
fn check(path: &Path, stat: &Stat, of_root: bool, sticky: bool) -> Result<(), PrivateError> {
    let shared = |problem: String| Err(PrivateError::Shared { path: path.to_owned(), problem });
    let user = rustix::process::geteuid().as_raw();
    let owner = stat.st_uid;
    if owner == 0 && user != 0 && !of_root {
        let source = Errno::ACCESS.into();
        return Err(PrivateError::Io { path: path.to_owned(), source });
    }
    if owner != user && !(of_root && owner == 0) {
        return shared(format!("belongs to user {owner}, not to user {user}"));
    }
    let mode = Mode::from_raw_mode(stat.st_mode);
    if mode.intersects(Mode::WGRP | Mode::WOTH) && !(sticky && mode.contains(Mode::SVTX)) {
        let mode = mode.as_raw_mode();
        return shared(format!("can be written to by others (mode {mode:04o})"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use whylate_testing::says;

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn new_folders_and_files_are_for_this_user_alone() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("a/b");
        let folder = PrivateFolder::make(&path).unwrap();
        let file = folder.open_file("file", OFlags::RDWR | OFlags::CREATE).unwrap();
        drop(file);
        assert_eq!(
            (mode(&path), mode(&top.path().join("a")), mode(&path.join("file"))),
            (0o700, 0o700, 0o600)
        );
        // As an older version left them.
        set_mode(&path, 0o755);
        set_mode(&path.join("file"), 0o644);
        let folder = PrivateFolder::make(&path).unwrap();
        folder.open_file("file", OFlags::RDONLY).unwrap();
        assert_eq!((mode(&path), mode(&path.join("file"))), (0o700, 0o600));
    }

    #[test]
    fn what_others_can_write_to_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("a/b");
        PrivateFolder::make(&path).unwrap();
        for shared in ["a/b", "a"] {
            set_mode(&top.path().join(shared), 0o777);
            let error = PrivateFolder::make(&path).unwrap_err().to_string();
            assert!(error.contains(&format!("{shared} can be written to by others (mode 0777)")), "{error}");
            set_mode(&top.path().join(shared), 0o700);
        }
        set_mode(&top.path().join("a"), 0o1777);
        assert!(PrivateFolder::open(&path).is_ok(), "as /tmp");
    }

    #[test]
    fn links_and_what_is_no_file_are_refused() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("a");
        let folder = PrivateFolder::make(&path).unwrap();
        symlink(&path, top.path().join("link")).unwrap();
        let error = PrivateFolder::open(&top.path().join("link/b")).unwrap_err().to_string();
        assert!(says("link-link-name-folder", &error), "{error}");
        std::fs::write(path.join("file"), "").unwrap();
        symlink("file", path.join("soft")).unwrap();
        std::fs::create_dir(path.join("folder")).unwrap();
        rustix::fs::mknodat(CWD, path.join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let refused = |name: &str| folder.open_file(name, OFlags::RDONLY).unwrap_err().to_string();
        assert!(refused("soft").ends_with("soft is a link"));
        assert!(says("folder-not-file", refused("folder")));
        assert!(says("pipe-not-file", refused("pipe")));
        std::fs::hard_link(path.join("file"), top.path().join("second")).unwrap();
        assert!(refused("file").contains("second name"));
        assert!(folder.open_file("absent", OFlags::RDONLY).unwrap_err().is_absence());
    }
}
