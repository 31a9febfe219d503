//! The way to a file: below an open folder no link is followed; to a folder that root writes, only root's own links
//! are.

use rustix::fs::{self, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path};

/// The number of links that the kernel follows.
const LINKS_MAX: usize = 40;
const STEP: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens a name below a folder; follows no link, and never leaves the folder.
pub(super) fn open(folder: &impl AsFd, name: &Path, flags: OFlags) -> io::Result<File> {
    let is_inside = |part| matches!(part, Component::Normal(_));
    if name != Path::new(".") && !name.components().all(is_inside) {
        return Err(io::Error::other("its path leads out of the folder"));
    }
    let is_made = flags.contains(OFlags::CREATE);
    let mode = Mode::from_raw_mode(if is_made { 0o666 } else { 0 });
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let opened = match fs::openat2(folder, name, flags, mode, how) {
        // A kernel before 5.6, or a sandbox that does not know the call.
        Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => open_by_steps(folder, name, flags, mode),
        opened => opened.map(File::from),
    };
    opened.map_err(|error| match error {
        Errno::LOOP => {
            io::Error::other("the path contains a symbolic link, and whylate follows no links inside a run")
        }
        other => other.into(),
    })
}

/// The same with a call for each part of the name.
fn open_by_steps(folder: &impl AsFd, name: &Path, flags: OFlags, mode: Mode) -> Result<File, Errno> {
    let mut at = File::from(fs::openat(folder, ".", STEP | OFlags::DIRECTORY, Mode::empty())?);
    let mut parts = name.components().peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return fs::openat(&at, part.as_os_str(), flags, mode).map(File::from);
        }
        let next = File::from(fs::openat(&at, part.as_os_str(), STEP, Mode::empty())?);
        if next.metadata().is_ok_and(|it| it.is_symlink()) {
            return Err(Errno::LOOP);
        }
        at = next;
    }
    Err(Errno::NOENT)
}

/// The folder that a user's path names, part for part; missing ones are made. As root, follows links only if root
/// made them in a folder of its own.
pub(super) fn walk(path: &Path, make: bool) -> io::Result<File> {
    let begin = |name: &str| fs::openat(CWD, name, STEP | OFlags::DIRECTORY, Mode::empty()).map(File::from);
    let parts = |path: &Path| {
        let mut parts: Vec<OsString> = path.components().map(|it| it.as_os_str().to_owned()).collect();
        parts.reverse();
        parts
    };
    let mut at = begin(".")?;
    let (mut left, mut links) = (parts(path), 0);
    // Parts that remain at the end of the last link: one that is missing before that is missing in its target.
    let mut behind = usize::MAX;
    while let Some(part) = left.pop() {
        let of_link = left.len() >= behind;
        if !of_link {
            behind = usize::MAX;
        }
        let mut next = fs::openat(&at, &part, STEP, Mode::empty());
        if matches!(next, Err(Errno::NOENT)) && make {
            if of_link {
                return Err(Errno::EXIST.into());
            }
            match fs::mkdirat(&at, &part, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            next = fs::openat(&at, &part, STEP, Mode::empty());
        }
        let next = File::from(next?);
        let metadata = next.metadata()?;
        if !metadata.is_symlink() {
            at = next;
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        let is_roots = metadata.uid() == 0 && at.metadata()?.uid() == 0;
        if geteuid().is_root() && !is_roots {
            let text = format!(
                "`{}` in this path is a symbolic link of user {}, which root does not follow: give the path of \
                 its target",
                part.display(),
                metadata.uid()
            );
            return Err(io::Error::other(text));
        }
        let target = OsString::from_vec(fs::readlinkat(&next, "", Vec::new())?.into_bytes());
        behind = behind.min(left.len());
        left.extend(parts(Path::new(&target)));
    }
    // A file is not a folder.
    Ok(File::from(fs::openat(&at, ".", STEP | OFlags::DIRECTORY, Mode::empty())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Opens in both ways.
    fn each(folder: &Path, name: &str) -> [bool; 2] {
        let at = File::open(folder).unwrap();
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let by_steps = open_by_steps(&at, Path::new(name), flags, Mode::empty());
        [open(&at, Path::new(name), OFlags::RDONLY | OFlags::NONBLOCK).is_ok(), by_steps.is_ok()]
    }

    #[test]
    fn nothing_is_opened_behind_a_link_with_and_without_openat2() {
        let folder = tempfile::tempdir().unwrap();
        let (run, out) = (folder.path().join("run"), folder.path().join("out"));
        std::fs::create_dir_all(run.join("traces")).unwrap();
        std::fs::create_dir(&out).unwrap();
        for file in [run.join("run.json"), run.join("traces/a.dat"), out.join("secret")] {
            std::fs::write(file, "text").unwrap();
        }
        symlink(out.join("secret"), run.join("link")).unwrap();
        symlink("run.json", run.join("inside")).unwrap();
        symlink(&out, run.join("spikes")).unwrap();
        symlink("traces", run.join("loads")).unwrap();
        for name in ["run.json", "traces/a.dat", "traces", "."] {
            assert_eq!(each(&run, name), [true; 2], "{name}");
        }
        for name in ["link", "inside", "spikes/secret", "loads/a.dat", "spikes", "run.json/x", "none", ""] {
            assert_eq!(each(&run, name), [false; 2], "{name}");
        }
        for name in ["../out/secret", "traces/../run.json", "/etc/passwd", ".."] {
            assert!(!each(&run, name)[0], "{name}");
        }
    }

    #[test]
    fn folders_are_made_on_the_way_and_not_behind_a_link_that_leads_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        walk(&path("a/b/c"), true).unwrap();
        assert!(path("a/b/c").is_dir());
        symlink(path("a/b"), path("link")).unwrap();
        walk(&path("link/../b/./d"), true).unwrap();
        assert!(path("a/b/d").is_dir());
        symlink(path("missing/deeper"), path("nowhere")).unwrap();
        let error = walk(&path("nowhere"), true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(!path("missing").exists());
        std::fs::write(path("file"), "").unwrap();
        assert_eq!(walk(&path("file"), true).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        assert_eq!(walk(&path("none"), false).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
