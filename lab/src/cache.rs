//! The folder of the lab's kernels and root file systems: outside the checkout; each is complete or absent.

use crate::error::LabError;
use crate::host;
use crate::machine::{Architecture, Image, Kernel};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The start of the names of folders with work in progress.
const WORK_PREFIX: &str = "work-";

/// Raised when kernels are kept in another way.
const KERNEL_RECIPE: &str = "2";

#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The cache of this user: `$WHYLATE_LAB_CACHE`, else `$XDG_CACHE_HOME/whylate/lab`, else
    /// `~/.cache/whylate/lab`.
    ///
    /// # Errors
    /// [`LabError::Unavailable`] when none of the variables is set.
    pub fn of_user() -> Result<Self, LabError> {
        let variable =
            |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let root = variable("WHYLATE_LAB_CACHE")
            .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("whylate/lab")))
            .or_else(|| Some(variable("HOME")?.join(".cache/whylate/lab")));
        let root = root.ok_or_else(|| LabError::Unavailable {
            reason: "neither WHYLATE_LAB_CACHE nor XDG_CACHE_HOME nor HOME is set".into(),
            fix: "set WHYLATE_LAB_CACHE to a folder with 3 GB of free space".into(),
        })?;
        Ok(Self { root })
    }

    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Waits until no other process builds in the cache, and keeps others out until the file is closed.
    pub(crate) fn lock(&self) -> Result<File, LabError> {
        host::create_folder(&self.root)?;
        let path = self.root.join("lock");
        let file = File::create(&path).map_err(LabError::file("create", &path))?;
        file.lock().map_err(LabError::file("lock", &path))?;
        self.remove_unfinished()?;
        Ok(file)
    }

    /// Removes what a build that was killed left behind. Only the holder of the lock may do that.
    fn remove_unfinished(&self) -> Result<(), LabError> {
        let entries = std::fs::read_dir(&self.root).map_err(LabError::file("read", &self.root))?;
        for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(WORK_PREFIX)) {
                std::fs::remove_dir_all(&path).map_err(LabError::file("remove", &path))?;
            }
        }
        Ok(())
    }

    /// Removes old kernels and root file systems that newer ones have replaced: another checkout may still use those
    /// of the last days. Files that a running guest has open stay until it ends.
    pub(crate) fn remove_replaced(&self, age_min: Duration) -> Result<(), LabError> {
        let kernels = Kernel::ALL.into_iter().filter_map(|kernel| self.kernel(kernel)).map(|(_, path)| path);
        let images =
            |architecture| [Image::Base, Image::Graphics].map(|image| self.image(image, architecture));
        let others = Architecture::ALL.into_iter().flat_map(|architecture| {
            images(architecture).into_iter().chain([self.qemu(architecture)]).flatten()
        });
        let mut used: Vec<PathBuf> = kernels.chain(others).chain(crate::grub::tree(self)).collect();
        let compilers: Vec<PathBuf> = used.iter().filter_map(|kernel| self.compiler(kernel)).collect();
        used.extend(compilers);
        let is_old = |path: &PathBuf| {
            let age = path
                .metadata()
                .and_then(|metadata| metadata.modified())
                .ok()
                .and_then(|at| at.elapsed().ok());
            age.is_some_and(|age| age >= age_min)
        };
        let paths = |folder: &Path| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
            entries.map(|entry| entry.path()).filter(|path| !used.contains(path) && is_old(path)).collect()
        };
        for folder in ["kernels", "trees"].iter().flat_map(|folder| paths(&self.root.join(folder))) {
            std::fs::remove_dir_all(&folder).map_err(LabError::file("remove", &folder))?;
        }
        for image in paths(&self.root) {
            if image.extension().is_some_and(|extension| extension == "ext4") {
                std::fs::remove_file(&image).map_err(LabError::file("remove", &image))?;
            }
        }
        Ok(())
    }

    /// A folder for work in progress, on the same file system.
    pub(crate) fn work_folder(&self) -> Result<tempfile::TempDir, LabError> {
        tempfile::Builder::new()
            .prefix(WORK_PREFIX)
            .tempdir_in(&self.root)
            .map_err(LabError::file("create a folder in", &self.root))
    }

    /// The folder of downloaded packages, until what is made of them is finished.
    pub(crate) fn downloads(&self) -> PathBuf {
        self.root.join("downloads")
    }

    /// The folder of a kernel version. It exists only when it is complete.
    pub(crate) fn kernel_folder(&self, version: &str) -> PathBuf {
        self.root.join("kernels").join(format!("{version}.{KERNEL_RECIPE}"))
    }

    /// The folder of unpacked packages of this name.
    pub(crate) fn tree(&self, name: &str) -> PathBuf {
        self.root.join("trees").join(name)
    }

    /// The tree of the compiler that a kernel's folder names.
    pub(crate) fn compiler(&self, kernel: &Path) -> Option<PathBuf> {
        std::fs::read_to_string(kernel.join("compiler")).ok().map(|name| self.tree(name.trim()))
    }

    /// The tree of the lab's own QEMU that emulates an architecture.
    #[must_use]
    pub(crate) fn qemu(&self, architecture: Architecture) -> Option<PathBuf> {
        let name = std::fs::read_to_string(self.root.join(qemu_file(architecture))).ok()?;
        Some(self.tree(name.trim())).filter(|tree| tree.is_dir())
    }

    /// Makes a tree the one that has the QEMU for an architecture.
    pub(crate) fn set_qemu(&self, architecture: Architecture, tree: &str) -> Result<(), LabError> {
        self.replace(&qemu_file(architecture), tree)
    }

    /// The version that was last built of a kernel, and its folder.
    #[must_use]
    pub fn kernel(&self, kernel: Kernel) -> Option<(String, PathBuf)> {
        let version = std::fs::read_to_string(self.root.join(format!("kernel-{}", kernel.name()))).ok()?;
        let version = version.trim().to_owned();
        let folder = self.kernel_folder(&version);
        folder.is_dir().then_some((version, folder))
    }

    /// Makes a version the one that guests boot.
    pub(crate) fn set_kernel(&self, kernel: Kernel, version: &str) -> Result<(), LabError> {
        self.replace(&format!("kernel-{}", kernel.name()), version)
    }

    /// The root file system that was last built of a kind.
    #[must_use]
    pub fn image(&self, image: Image, architecture: Architecture) -> Option<PathBuf> {
        let name = std::fs::read_to_string(self.root.join(image_file(image, architecture))).ok()?;
        let file = self.root.join(name.trim());
        file.is_file().then_some(file)
    }

    /// Makes a file of the cache the root file system that guests boot.
    pub(crate) fn set_image(
        &self,
        image: Image,
        architecture: Architecture,
        file: &str,
    ) -> Result<(), LabError> {
        self.replace(&image_file(image, architecture), file)
    }

    /// Replaces a small file at once.
    fn replace(&self, name: &str, content: &str) -> Result<(), LabError> {
        let draft = self.root.join(format!("{name}.new"));
        host::write(&draft, content)?;
        rename(&draft, &self.root.join(name))
    }
}

/// The file that names the tree of QEMU.
fn qemu_file(architecture: Architecture) -> String {
    format!("tree-qemu{}", architecture.ending())
}

/// The file that names a root file system.
fn image_file(image: Image, architecture: Architecture) -> String {
    format!("image-{}{}", image.name(), architecture.ending())
}

/// Renames, which is atomic within the cache: what has its final name is complete.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), LabError> {
    if let Some(folder) = to.parent() {
        host::create_folder(folder)?;
    }
    std::fs::rename(from, to).map_err(LabError::file("rename to", to))
}

/// A short name for contents, the same in all builds of this program (FNV-1a, 64 bits).
pub(crate) fn key<'a>(contents: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for content in contents {
        for byte in content.iter().chain([&0xff]) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_where_contents_do() {
        let one = key([b"ab".as_slice(), b"c"]);
        assert_eq!(one, key([b"ab".as_slice(), b"c"]));
        assert_ne!(one, key([b"a".as_slice(), b"bc"]));
        assert_ne!(one, key([b"ab".as_slice()]));
        assert_eq!(one.len(), 16);
    }

    #[test]
    fn an_unfinished_kernel_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache { root: folder.path().to_owned() };
        assert!(cache.kernel(Kernel::RealTime).is_none());
        cache.set_kernel(Kernel::RealTime, "6.1-rt").unwrap();
        assert!(cache.kernel(Kernel::RealTime).is_none());
        std::fs::create_dir_all(cache.kernel_folder("6.1-rt")).unwrap();
        assert_eq!(cache.kernel(Kernel::RealTime).unwrap().0, "6.1-rt");
        assert!(cache.kernel(Kernel::Plain).is_none());
    }

    #[test]
    fn what_a_killed_build_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache { root: folder.path().to_owned() };
        std::fs::create_dir_all(folder.path().join("work-x/unpacked")).unwrap();
        std::fs::create_dir_all(cache.kernel_folder("6.1-rt")).unwrap();
        drop(cache.lock().unwrap());
        assert!(!folder.path().join("work-x").exists());
        assert!(cache.kernel_folder("6.1-rt").is_dir());
    }

    #[test]
    fn what_was_replaced_is_removed_when_it_is_old() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache { root: folder.path().to_owned() };
        for version in ["6.1-rt", "6.0-rt"] {
            std::fs::create_dir_all(cache.kernel_folder(version)).unwrap();
        }
        cache.set_kernel(Kernel::RealTime, "6.1-rt").unwrap();
        for file in ["base-1.ext4", "base-2.ext4", "other"] {
            std::fs::write(folder.path().join(file), "").unwrap();
        }
        cache.set_image(Image::Base, Architecture::X86, "base-2.ext4").unwrap();
        cache.remove_replaced(Duration::from_secs(3600)).unwrap();
        assert!(cache.kernel_folder("6.0-rt").is_dir() && folder.path().join("base-1.ext4").is_file());
        cache.remove_replaced(Duration::ZERO).unwrap();
        assert!(!cache.kernel_folder("6.0-rt").exists() && !folder.path().join("base-1.ext4").exists());
        assert!(cache.kernel(Kernel::RealTime).is_some());
        assert!(cache.image(Image::Base, Architecture::X86).is_some());
        assert!(folder.path().join("other").is_file());
    }

    #[test]
    fn an_image_that_was_deleted_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache { root: folder.path().to_owned() };
        cache.set_image(Image::Base, Architecture::X86, "base-1.ext4").unwrap();
        assert!(cache.image(Image::Base, Architecture::X86).is_none());
        std::fs::write(folder.path().join("base-1.ext4"), "").unwrap();
        assert!(cache.image(Image::Base, Architecture::X86).is_some());
        assert!(cache.image(Image::Base, Architecture::Arm64).is_none());
    }
}
