//! Builds what a guest boots from a Debian kernel: the kernel itself, the first file system, the modules, the headers.

use crate::bzimage;
use crate::cache::{self, Cache};
use crate::error::LabError;
use crate::host;
use crate::initramfs::Archive;
use crate::machine::{Architecture, Kernel};
use crate::packages::PackageRoot;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the first program needs to reach the root file system and the shared folder.
const BOOT_MODULES: [&str; 6] = ["virtio_pci", "9pnet_virtio", "9p", "virtio_blk", CHECKSUM, "ext4"];
/// What ext4 needs and does not list; newer kernels have it built in, not as a module.
const CHECKSUM: &str = "crc32c_generic";
/// Modules that no guest has a device for: half of their bytes.
const MODULES_LEFT_OUT: [&str; 6] = [
    "sound",
    "drivers/media",
    "drivers/net/wireless",
    "drivers/net/ethernet",
    "drivers/infiniband",
    "drivers/gpu/drm/amd",
];

/// The end of the name of a compiler's package that compiles for the machine that it is installed on, and of the one that
/// compiles for arm64 on x86.
const FOR_HOST: &str = "-for-host";
const FOR_ARM64: &str = "-aarch64-linux-gnu";

/// What a module is compiled with, in addition to the compiler that the headers name.
const BUILD_TOOLS: [&str; 9] =
    ["make", "dash", "coreutils", "sed", "grep", "mawk", "findutils", "diffutils", "base-files"];

/// Makes sure that the newest version of a kernel is in the cache, and returns that version. Without a network, the
/// version that was built last will do.
///
/// # Errors
/// When it can neither be built nor found in the cache.
pub(crate) fn ensure(
    cache: &Cache,
    packages: Result<&PackageRoot, &LabError>,
    tools: Result<&PackageRoot, &LabError>,
    kernel: Kernel,
    say: &dyn Fn(&str),
) -> Result<String, LabError> {
    let newest = || {
        let packages = packages.map_err(LabError::again)?;
        let source = Source::newest(packages, tools.map_err(LabError::again)?, kernel)?;
        if !cache.kernel_folder(&source.version).is_dir() {
            say(&format!("kernel {}: fetching and unpacking", source.version));
            source.build(cache)?;
        }
        Ok(source.version)
    };
    let mut built = newest();
    if let (Err(LabError::Unavailable { .. }), Ok(packages), None) = (&built, packages, cache.kernel(kernel))
    {
        // Lists that are too old name a kernel that is no longer available.
        built = packages.refresh().and_then(|()| newest());
    }
    match (built, cache.kernel(kernel)) {
        (Ok(version), _) => {
            cache.set_kernel(kernel, &version)?;
            Ok(version)
        }
        (Err(LabError::Unavailable { reason, .. }), Some((version, _))) => {
            say(&format!(
                "kernel {version} is taken from the cache, because no newer kernel is available ({reason})"
            ));
            Ok(version)
        }
        (Err(error), _) => Err(error),
    }
}

/// A kernel, and where its packages come from.
struct Source<'a> {
    packages: &'a PackageRoot,
    /// Where the compiler comes from: it runs on the host.
    tools: &'a PackageRoot,
    architecture: Architecture,
    release: String,
    /// For example `6.1.0-50-rt-amd64`.
    version: String,
}

impl<'a> Source<'a> {
    /// The version that the kernel's package leads to.
    fn newest(packages: &'a PackageRoot, tools: &'a PackageRoot, kernel: Kernel) -> Result<Self, LabError> {
        let offer = packages.newest(kernel.package(), kernel.version_prefix())?;
        let names = packages.dependencies(&format!("{}={}", kernel.package(), offer.version))?;
        let version = names.iter().find_map(|name| name.strip_prefix("linux-image-"));
        let version = version.map(str::to_owned).ok_or_else(|| LabError::Form {
            what: "the dependencies of the kernel's package",
            text: names.join(", "),
        })?;
        Ok(Self { packages, tools, architecture: kernel.architecture(), release: offer.release, version })
    }

    /// Names of what a package depends on that begin in one of these ways.
    fn parts(&self, package: &str, prefixes: &[&str]) -> Result<Vec<String>, LabError> {
        let names = self.packages.dependencies(package)?;
        let is_part = |name: &String| prefixes.iter().any(|prefix| name.starts_with(prefix));
        Ok(names.into_iter().filter(is_part).collect())
    }

    fn build(&self, cache: &Cache) -> Result<(), LabError> {
        let work = cache.work_folder()?;
        let unpacked = work.path().join("unpacked");
        let folder = work.path().join("kernel");
        host::create_folder(&folder)?;
        let version = self.version.as_str();
        let (image, headers) = (format!("linux-image-{version}"), format!("linux-headers-{version}"));
        let mut names = self.parts(&image, &["linux-base-", "linux-binary-", "linux-modules-"])?;
        names.extend([image, headers.clone(), "busybox-static".to_owned()]);
        names.extend(self.parts(&headers, &["linux-headers-"])?);
        self.packages.unpack(&self.release, &names, &cache.downloads(), &unpacked)?;
        let mut tools = self.parts(&headers, &["gcc-", "linux-compiler-", "linux-kbuild-"])?;
        if self.architecture == Architecture::Arm64 {
            tools.iter_mut().for_each(|name| *name = name.replace(FOR_HOST, FOR_ARM64));
        }
        let tools: Vec<&str> = tools.iter().map(String::as_str).chain(BUILD_TOOLS).collect();
        let compiler = self.tools.tree(cache, &self.release, &tools)?;
        host::write(&folder.join("compiler"), compiler)?;
        keep(&unpacked, version, self.architecture, &folder)?;
        cache::rename(&folder, &cache.kernel_folder(version))?;
        // Complete: the downloads for it are no longer needed.
        std::fs::remove_dir_all(cache.downloads()).map_err(LabError::file("remove", &cache.downloads()))
    }
}

/// Makes a kernel's folder of its unpacked packages.
fn keep(unpacked: &Path, version: &str, architecture: Architecture, folder: &Path) -> Result<(), LabError> {
    // The kernel itself is a file of /boot, or from 7.x on in the folder of its modules; modules are below /lib or
    // /usr/lib.
    let places = ["lib/modules", "usr/lib/modules"].map(|place| unpacked.join(place));
    let modules_root = places.iter().find(|place| place.join(version).join("kernel").is_dir());
    let modules_root = modules_root.ok_or_else(|| LabError::Form {
        what: "the kernel's packages",
        text: "they have no modules".into(),
    })?;
    let modules = modules_root.join(version);
    let image = folder.join("bzImage");
    let of_boot = unpacked.join(format!("boot/vmlinuz-{version}"));
    let of_modules = modules.join("vmlinuz");
    cache::rename(if of_boot.is_file() { &of_boot } else { &of_modules }, &image)?;
    match architecture {
        Architecture::X86 => bzimage::extract(&image, &folder.join("vmlinux"))?,
        // Not packed.
        Architecture::Arm64 => cache::rename(&image, &folder.join("vmlinux"))?,
    }
    for left_out in MODULES_LEFT_OUT {
        let path = modules.join("kernel").join(left_out);
        if path.is_dir() {
            std::fs::remove_dir_all(&path).map_err(LabError::file("remove", &path))?;
        }
    }
    let base = modules_root.ancestors().nth(2).unwrap_or(unpacked);
    host::run(
        Command::new(host::find("depmod").unwrap_or("depmod".into())).arg("-b").arg(base).arg(version),
    )?;
    first_file_system(unpacked, &modules, folder)?;
    file_system_image(modules_root, &folder.join("modules.ext4"), 16)?;
    cache::rename(&unpacked.join("usr/src"), &folder.join("headers"))
}

/// Writes the parts of the initial RAM file system that depend on the kernel: busybox and the modules in their order.
fn first_file_system(unpacked: &Path, modules: &Path, folder: &Path) -> Result<(), LabError> {
    let read = |path: PathBuf| std::fs::read(&path).map_err(LabError::file("read", &path));
    let dependencies = host::read_text(&modules.join("modules.dep"))?;
    let builtin = host::read_text(&modules.join("modules.builtin"))?;
    let mut archive = Archive::default();
    for name in ["dev", "proc", "sys", "bin", "modules", "newroot"] {
        archive.folder(name);
    }
    archive.character_device("dev/console", 5, 1);
    let busybox = ["bin/busybox", "usr/bin/busybox"].map(|place| unpacked.join(place));
    archive.file("bin/busybox", &read(busybox.into_iter().find(|path| path.is_file()).unwrap_or_default())?);
    let order = load_order(&dependencies, &builtin, &BOOT_MODULES)?;
    for (index, path) in order.iter().enumerate() {
        // The names sort in the order in which they are to be loaded.
        let mut path = modules.join(path);
        if path.extension().is_some_and(|extension| extension == "xz") {
            host::run(host::bound("xz").args(["-d", "-k"]).arg(&path))?;
            path.set_extension("");
        }
        archive.file(&format!("modules/{index:02}.ko"), &read(path)?);
    }
    host::write(&folder.join("initramfs"), archive.finish())
}

/// The files of modules and of all that they need, each after what it needs.
fn load_order(dependencies: &str, builtin: &str, names: &[&str]) -> Result<Vec<String>, LabError> {
    let is_named = |path: &str, name: &str| {
        let file = path.rsplit('/').next().and_then(|file| file.split('.').next()).unwrap_or_default();
        file.replace('-', "_") == name.replace('-', "_")
    };
    let mut order: Vec<String> = Vec::new();
    for name in names {
        if builtin.lines().any(|path| is_named(path, name)) {
            continue;
        }
        let line = dependencies
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(path, _)| is_named(path, name));
        let Some((path, needs)) = line else {
            if *name == CHECKSUM {
                continue;
            }
            return Err(LabError::Form {
                what: "modules.dep of the kernel",
                text: format!("there is no {name}"),
            });
        };
        // `modules.dep` names first what has to be loaded last.
        let needs = needs.split_whitespace().rev().chain([path]);
        for file in needs {
            if !order.iter().any(|known| known == file) {
                order.push(file.to_owned());
            }
        }
    }
    Ok(order)
}

/// Writes an ext4 image with the content of a folder and room for some more MiB.
pub(crate) fn file_system_image(content: &Path, image: &Path, spare_mib: u64) -> Result<(), LabError> {
    let size = host::run(Command::new("du").args(["-s", "--block-size=1M"]).arg(content))?;
    let mib: u64 = size
        .split_whitespace()
        .next()
        .and_then(|mib| mib.parse().ok())
        .ok_or(LabError::Form { what: "the size of a folder", text: size })?;
    let mut mke2fs = host::bound(host::find("mke2fs").unwrap_or("mke2fs".into()));
    mke2fs.args(["-q", "-F", "-t", "ext4", "-m", "0", "-O", "^has_journal", "-E", "root_owner=0:0", "-d"]);
    // The tables of the file system take about a sixteenth.
    mke2fs.arg(content).arg(image).arg(format!("{}M", mib + mib / 12 + spare_mib));
    host::run(&mut mke2fs).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPENDENCIES: &str = "\
kernel/fs/9p/9p.ko: kernel/net/9p/9pnet.ko kernel/fs/netfs/netfs.ko kernel/fs/fscache/fscache.ko
kernel/net/9p/9pnet_virtio.ko: kernel/net/9p/9pnet.ko kernel/drivers/virtio/virtio.ko
kernel/fs/netfs/netfs.ko:
";

    #[test]
    fn modules_come_after_what_they_need() {
        let order =
            load_order(DEPENDENCIES, "kernel/fs/ext4/ext4.ko\n", &["9pnet-virtio", "9p", "ext4"]).unwrap();
        let names: Vec<&str> = order.iter().filter_map(|path| path.rsplit('/').next()).collect();
        assert_eq!(names, ["virtio.ko", "9pnet.ko", "9pnet_virtio.ko", "fscache.ko", "netfs.ko", "9p.ko"]);
    }

    #[test]
    fn a_module_that_is_nowhere_is_an_error() {
        let error = load_order(DEPENDENCIES, "", &["virtio_blk"]).unwrap_err().to_string();
        assert!(error.contains("virtio_blk"), "{error}");
    }
}
