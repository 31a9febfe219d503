//! Reading what the kernel says in /proc, /sys, /dev and /etc, under a root folder that tests can replace.
//!
//! [`HostRoot`] answers `None` for what a machine does not offer, and an error only for what is there but cannot
//! be understood. The submodules parse single files. Nothing here changes a machine.

use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use whylate_core::cpus::{CpuError, CpuSet};
use whylate_core::order::InOrder;

/// No text of the kernel is longer: /proc/interrupts has about 6 kB per line on the largest machines.
const TEXT_BYTES_MAX: u64 = 64 << 20;

/// Something of the host that is there but cannot be read or understood.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The kernel refused to read the file or list the folder, for a reason other than "not offered here".
    #[error("{}: {source}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        source: io::Error,
    },
    /// The file is longer than anything the kernel writes.
    #[error("{}: the file is longer than {TEXT_BYTES_MAX} bytes", path.display())]
    TooLong { path: PathBuf },
    #[error("{}: `{text}` is not a number", path.display())]
    NotANumber { path: PathBuf, text: String },
    #[error("{}: {source}", path.display())]
    NotACpuList { path: PathBuf, source: CpuError },
    /// A file does not have the form that the kernel documents.
    #[error("{}: {problem}", path.display())]
    Malformed { path: PathBuf, problem: String },
}

/// The folder under which `/proc`, `/sys`, `/dev` and `/etc` are looked up.
///
/// Paths are given as on the machine itself (`/proc/cpuinfo`). Absolute symbolic links below a root other than `/`
/// are followed out of it, so fake trees hold relative links or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRoot {
    root: PathBuf,
}

impl HostRoot {
    /// This machine. For `main`, tests and examples: everything else is given a root.
    pub fn real() -> Self {
        Self::at("/")
    }

    /// A copy of the files of some machine below `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Whether this is the running machine, so that system calls answer for it too.
    pub fn is_real(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Where `path` is in the file system of this process.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The text of a file; bytes that are not UTF-8 are replaced.
    ///
    /// `None` when the machine does not offer it: no such file, no permission, or the kernel answers that it has
    /// no such device, feature or data (`ENODEV`, `ENXIO`, `EINVAL`, `ENODATA`, `EOPNOTSUPP`, `ENOSYS`, `EBUSY`),
    /// as sysfs does for settings that a driver or an offline CPU lacks.
    ///
    /// # Errors
    /// [`HostError::Read`] for any other answer of the kernel, [`HostError::TooLong`].
    pub fn read(&self, path: &str) -> Result<Option<String>, HostError> {
        let path = self.path(path);
        let mut bytes = Vec::new();
        match File::open(&path).and_then(|file| file.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes)) {
            Ok(length) if length as u64 > TEXT_BYTES_MAX => Err(HostError::TooLong { path }),
            Ok(_) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if is_absence(&error) => Ok(None),
            Err(source) => Err(HostError::Read { path, source }),
        }
    }

    /// Like [`HostRoot::read`], without white space and NUL bytes at the ends; `None` also when nothing is left.
    pub fn read_trimmed(&self, path: &str) -> Result<Option<String>, HostError> {
        let text = self.read(path)?;
        let text = text.map(|text| text.trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned());
        Ok(text.filter(|text| !text.is_empty()))
    }

    /// A file that holds one number; `None` as in [`HostRoot::read_trimmed`].
    pub fn read_number<T: FromStr>(&self, path: &str) -> Result<Option<T>, HostError> {
        match self.read_trimmed(path)? {
            None => Ok(None),
            Some(text) => match text.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(HostError::NotANumber { path: self.path(path), text }),
            },
        }
    }

    /// A file that holds a CPU list; `None` when there is no such file, an empty set when it is empty.
    ///
    /// `(null)`, which `/sys/devices/system/cpu/nohz_full` holds on kernels booted without the option, is the
    /// empty set.
    pub fn read_cpus(&self, path: &str) -> Result<Option<CpuSet>, HostError> {
        match self.read(path)? {
            None => Ok(None),
            Some(text) if text.trim() == "(null)" => Ok(Some(CpuSet::default())),
            Some(text) => match text.parse() {
                Ok(cpus) => Ok(Some(cpus)),
                Err(source) => Err(HostError::NotACpuList { path: self.path(path), source }),
            },
        }
    }

    /// Names in a folder, sorted; empty when the machine does not offer the folder.
    pub fn list(&self, folder: &str) -> Result<Vec<String>, HostError> {
        let path = self.path(folder);
        let entries = match std::fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if is_absence(&error) => return Ok(Vec::new()),
            Err(source) => return Err(HostError::Read { path, source }),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|source| HostError::Read { path: path.clone(), source })?;
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        names.order();
        Ok(names)
    }

    /// The numbers of the entries `PREFIX<number>` of a folder, ascending: `cpu` gives 0, 1, … for `cpu0`, `cpu1`
    /// and leaves `cpufreq` out.
    pub fn list_numbered(&self, folder: &str, prefix: &str) -> Result<Vec<u32>, HostError> {
        let names = self.list(folder)?;
        let digits = names.iter().filter_map(|name| name.strip_prefix(prefix));
        let mut numbers: Vec<u32> = digits
            .filter(|digits| digits.starts_with(|c: char| c.is_ascii_digit()))
            .filter_map(|digits| digits.parse().ok())
            .collect();
        numbers.order();
        Ok(numbers)
    }

    /// What a symbolic link points to, unresolved; `None` when it is not a link or cannot be read.
    pub fn read_link(&self, path: &str) -> Option<String> {
        let target = std::fs::read_link(self.path(path)).ok()?;
        Some(target.to_string_lossy().into_owned())
    }

    /// The last part of what a symbolic link points to: the name of a device's driver.
    pub fn link_name(&self, path: &str) -> Option<String> {
        Some(self.read_link(path)?.rsplit('/').next()?.to_owned())
    }

    /// Whether there is such a file or folder and this process may look at it.
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Whether this process can open the file for writing, tried by opening it: permission bits alone do not show
    /// read-only mounts, device cgroups and lockdown. Nothing is written.
    pub fn is_writable(&self, path: &str) -> bool {
        OpenOptions::new().write(true).open(self.path(path)).is_ok()
    }
}

/// The machine, as `main` found it; passed to everything that reads or changes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The machine that this process runs on: its facts, counters and processes.
    pub running: HostRoot,
    /// Where settings are read and changed: the same machine, or a folder that stands for it in tests.
    pub settings: HostRoot,
}

/// Whether the kernel's answer means "this machine does not offer it (to you)".
fn is_absence(error: &io::Error) -> bool {
    const NOT_OFFERED: [Errno; 7] =
        [Errno::NODEV, Errno::NXIO, Errno::INVAL, Errno::NODATA, Errno::OPNOTSUPP, Errno::NOSYS, Errno::BUSY];
    let kinds = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied, io::ErrorKind::NotADirectory];
    kinds.contains(&error.kind())
        || NOT_OFFERED.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_testing::says;

    fn folder_with(files: &[(&str, &str)]) -> (tempfile::TempDir, HostRoot) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = HostRoot::at(folder.path());
        (folder, root)
    }

    #[test]
    fn what_is_absent_is_none_and_what_is_wrong_is_an_error_with_its_path() {
        let (_folder, root) =
            folder_with(&[("sys/number", " 42\n"), ("sys/word", "soon\n"), ("sys/empty", "\n")]);
        assert_eq!(root.read_number::<u64>("/sys/number").unwrap(), Some(42));
        assert_eq!(root.read_number::<u64>("/sys/absent").unwrap(), None);
        assert_eq!(root.read_number::<u64>("/sys/number/below").unwrap(), None);
        assert_eq!(root.read_number::<u64>("/sys/empty").unwrap(), None);
        let error = root.read_number::<u64>("/sys/word").unwrap_err().to_string();
        assert!(says("sys-word-soon-not", &error), "{error}");
        assert!(matches!(root.read("/sys"), Err(HostError::Read { .. })), "a folder is no text");
    }

    #[test]
    fn cpu_lists_may_be_empty_or_null() {
        let (_folder, root) =
            folder_with(&[("a", "0-2\n"), ("b", "\n"), ("c", "  (null)\n"), ("d", "0-x\n")]);
        assert_eq!(root.read_cpus("/a").unwrap().unwrap().to_string(), "0-2");
        assert!(root.read_cpus("/b").unwrap().unwrap().is_empty());
        assert!(root.read_cpus("/c").unwrap().unwrap().is_empty());
        assert!(matches!(root.read_cpus("/d"), Err(HostError::NotACpuList { .. })));
        assert!(root.read_cpus("/e").unwrap().is_none());
    }

    #[test]
    fn numbered_entries_are_sorted_as_numbers() {
        let (_folder, root) =
            folder_with(&[("s/cpu10/x", ""), ("s/cpu2/x", ""), ("s/cpufreq/x", ""), ("s/cpu+1", "")]);
        assert_eq!(root.list_numbered("/s", "cpu").unwrap(), [2, 10]);
        assert!(root.list_numbered("/absent", "cpu").unwrap().is_empty());
    }

    #[test]
    fn writable_is_tried_without_writing() {
        let (_folder, root) = folder_with(&[("file", "kept")]);
        assert!(root.is_writable("/file"));
        assert!(!root.is_writable("/absent"));
        assert_eq!(root.read("/file").unwrap().as_deref(), Some("kept"));
        assert!(root.exists("/file") && !root.exists("/absent"), "nothing was created");
    }
}
