//! Builds what a guest boots from a Debian kernel: the kernel itself, the first file system, the modules, the headers.

use crate::bzimage;
use crate::cache::{self, Cache};
use crate::error::LabError;
use crate::host;
use crate::initramfs::Archive;
use crate::machine::Kernel;
use crate::packages;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the first program needs to reach the root file system and the shared folder.
const BOOT_MODULES: [&str; 6] = ["virtio_pci", "9pnet_virtio", "9p", "virtio_blk", "crc32c_generic", "ext4"];
/// Modules that no guest has a device for: half of their bytes.
const MODULES_LEFT_OUT: [&str; 6] = [
    "sound",
    "drivers/media",
    "drivers/net/wireless",
    "drivers/net/ethernet",
    "drivers/infiniband",
    "drivers/gpu/drm/amd",
];

/// Makes sure that the newest version of a kernel is in the cache, and returns that version. Without a network, the
/// version that was built last will do.
///
/// # Errors
/// When it can neither be built nor found in the cache.
pub(crate) fn ensure(cache: &Cache, kernel: Kernel, say: &dyn Fn(&str)) -> Result<String, LabError> {
    let newest = || {
        newest_version(kernel).and_then(|version| {
            if !cache.kernel_folder(&version).is_dir() {
                say(&format!("kernel {version}: fetching and unpacking"));
                build(cache, &version)?;
            }
            Ok(version)
        })
    };
    let mut built = newest();
    if matches!(built, Err(LabError::Unavailable { .. })) && host::is_root() && cache.kernel(kernel).is_none()
    {
        // Lists that are too old name a kernel that is not to be had any more.
        built = packages::refresh_lists().and_then(|()| newest());
    }
    match (built, cache.kernel(kernel)) {
        (Ok(version), _) => {
            cache.set_kernel(kernel, &version)?;
            Ok(version)
        }
        (Err(LabError::Unavailable { reason, .. }), Some((version, _))) => {
            say(&format!(
                "kernel {version}: from the cache, because there is no newer one to be had ({reason})"
            ));
            Ok(version)
        }
        (Err(error), _) => Err(error),
    }
}

/// The version that the kernel's package leads to, for example `6.1.0-50-rt-amd64`.
fn newest_version(kernel: Kernel) -> Result<String, LabError> {
    let names = packages::dependencies(kernel.package())?;
    let version = names.iter().find_map(|name| name.strip_prefix("linux-image-"));
    version.map(str::to_owned).ok_or_else(|| LabError::Form {
        what: "the dependencies of the kernel's package",
        text: names.join(", "),
    })
}

fn build(cache: &Cache, version: &str) -> Result<(), LabError> {
    let work = cache.work_folder()?;
    let unpacked = work.path().join("unpacked");
    let folder = work.path().join("kernel");
    host::create_folder(&folder)?;

    let headers = format!("linux-headers-{version}");
    let mut names = vec![format!("linux-image-{version}"), headers.clone(), "busybox-static".to_owned()];
    let related = packages::dependencies(&headers)?;
    names.extend(
        related
            .into_iter()
            .filter(|name| name.starts_with("linux-headers-") || name.starts_with("linux-kbuild-")),
    );
    packages::unpack(&names, &cache.downloads(), &unpacked)?;

    let image = folder.join("bzImage");
    cache::rename(&unpacked.join(format!("boot/vmlinuz-{version}")), &image)?;
    bzimage::extract(&image, &folder.join("vmlinux"))?;
    let modules = unpacked.join("lib/modules").join(version);
    for left_out in MODULES_LEFT_OUT {
        let path = modules.join("kernel").join(left_out);
        if path.is_dir() {
            std::fs::remove_dir_all(&path).map_err(LabError::file("remove", &path))?;
        }
    }
    host::run(
        Command::new(host::find("depmod").unwrap_or("depmod".into())).arg("-b").arg(&unpacked).arg(version),
    )?;
    first_file_system(&unpacked, version, &folder)?;
    file_system_image(&unpacked.join("lib/modules"), &folder.join("modules.ext4"), 16)?;
    keep_headers(&unpacked, &cache.kernel_folder(version), version, &folder)?;
    cache::rename(&folder, &cache.kernel_folder(version))?;
    // Complete: what was downloaded for it is not needed any more.
    std::fs::remove_dir_all(cache.downloads()).map_err(LabError::file("remove", &cache.downloads()))
}

/// Writes the parts of the initial RAM file system that depend on the kernel: busybox and the modules in their order.
fn first_file_system(unpacked: &Path, version: &str, folder: &Path) -> Result<(), LabError> {
    let read = |path: PathBuf| std::fs::read(&path).map_err(LabError::file("read", &path));
    let modules = unpacked.join("lib/modules").join(version);
    let dependencies = host::read_text(&modules.join("modules.dep"))?;
    let builtin = host::read_text(&modules.join("modules.builtin"))?;
    let mut archive = Archive::default();
    for name in ["dev", "proc", "sys", "bin", "modules", "newroot"] {
        archive.folder(name);
    }
    archive.character_device("dev/console", 5, 1);
    archive.file("bin/busybox", &read(unpacked.join("bin/busybox"))?);
    let order = load_order(&dependencies, &builtin, &BOOT_MODULES)?;
    for (index, path) in order.iter().enumerate() {
        // The names sort in the order in which they are to be loaded.
        archive.file(&format!("modules/{index:02}.ko"), &read(modules.join(path))?);
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

/// Moves the headers to the kernel's folder; their makefile names the place where the package would have put them.
fn keep_headers(unpacked: &Path, final_folder: &Path, version: &str, folder: &Path) -> Result<(), LabError> {
    let makefile = unpacked.join(format!("usr/src/linux-headers-{version}/Makefile"));
    let text = host::read_text(&makefile)?;
    let sources = final_folder.join("headers/usr/src/");
    host::write(&makefile, text.replace("/usr/src/", &format!("{}/", sources.display())))?;
    host::create_folder(&folder.join("headers/usr"))?;
    for part in ["src", "lib"] {
        let from = unpacked.join("usr").join(part);
        cache::rename(&from, &folder.join("headers/usr").join(part))?;
    }
    Ok(())
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
