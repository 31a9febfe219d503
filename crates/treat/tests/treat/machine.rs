//! A machine made of files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use whylate_core::CpuSet;
use whylate_host::HostRoot;
use whylate_host::facts;
use whylate_lab::archive;
use whylate_treat::{Change, Guard, Holder, JournalPlace, Surroundings, Target, TreatError};

/// The files of a machine, and the folder with its journal.
pub(crate) struct Machine {
    folder: TempDir,
    state: TempDir,
    pub(crate) root: HostRoot,
}

impl Machine {
    /// From the text of an archive.
    pub(crate) fn new(text: &str) -> Self {
        let folder = in_memory();
        archive::unpack(text, folder.path()).unwrap();
        let root = HostRoot::at(folder.path());
        Self { folder, state: in_memory(), root }
    }

    /// One of `fixtures/hosts`, with more files.
    pub(crate) fn fixture(name: &str, more: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../fixtures/hosts/{name}.tree"));
        Self::new(&format!("{}\n{more}", std::fs::read_to_string(path).unwrap()))
    }

    pub(crate) fn place(&self) -> JournalPlace {
        JournalPlace::new(self.state.path(), "treatments")
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.path(path)
    }

    pub(crate) fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap()
    }

    pub(crate) fn set(&self, path: &str, text: &str) {
        std::fs::write(self.path(path), text).unwrap();
    }

    pub(crate) fn surroundings(&self, target: Option<&str>) -> Surroundings {
        let target = target.map(|cpus| cpus.parse::<CpuSet>().unwrap());
        Surroundings::new(self.root.clone(), &facts::collect(&self.root).0, target)
    }

    pub(crate) fn guard(&self, kept: bool) -> Result<Guard, TreatError> {
        Guard::begin(&self.place(), &self.root, Holder::this_process("a test", None, kept, &self.root))
    }

    /// Every file with its text.
    pub(crate) fn everything(&self) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            found.insert(folder.clone(), String::new());
            for entry in std::fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() && !path.is_symlink() {
                    folders.push(path);
                } else if !path.is_symlink() {
                    found.insert(path.clone(), std::fs::read_to_string(&path).unwrap());
                }
            }
        }
        found
    }
}

/// A temporary folder, in memory where there is such a place: every change is brought to the disk.
fn in_memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A required change of a file.
pub(crate) fn set(path: &str, new: &str) -> Change {
    Change::required(Target::file(path), new, "tries")
}
