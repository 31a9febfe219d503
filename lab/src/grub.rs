//! GRUB for guests: QEMU starts its image as it starts a kernel, and GRUB boots Linux from a disk that the guest may change.

use crate::cache::Cache;
use crate::error::LabError;
use crate::host;
use crate::packages::PackageRoot;
use std::path::{Path, PathBuf};

/// The release of its packages.
const RELEASE: &str = "trixie";
const PACKAGES: [&str; 2] = ["grub-pc-bin", "grub-common"];
/// The file of the cache that names its tree.
const FILE: &str = "tree-grub";
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const IMAGES: &str = "usr/lib/grub/i386-pc";
const LABEL: &str = "whylate-boot";
const DISK_MIB: u64 = 64;
/// What the image needs to reach the disk, and what configurations of distributions use.
const MODULES: [&str; 16] = [
    "biosdisk",
    "boot",
    "configfile",
    "echo",
    "ext2",
    "linux",
    "loadenv",
    "minicmd",
    "normal",
    "part_msdos",
    "reboot",
    "search",
    "search_label",
    "serial",
    "sleep",
    "test",
];
/// What the guest needs to run `grub-editenv`.
const EDITOR_LIBRARIES: [&str; 9] = [
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libm.so.6",
    "liblzma.so.5",
    "libdevmapper.so.1.02.1",
    "libselinux.so.1",
    "libudev.so.1",
    "libpcre2-8.so.0",
    "libcap.so.2",
];

/// Makes sure that it is in the cache; if it is not available, only tests that need it are left out.
pub(crate) fn ensure(
    cache: &Cache,
    packages: Result<&PackageRoot, &LabError>,
    say: &dyn Fn(&str),
) -> Result<(), LabError> {
    let tree =
        packages.map_err(LabError::again).and_then(|packages| packages.tree(cache, RELEASE, &PACKAGES));
    match tree {
        Ok(tree) => host::write(&cache.root().join(FILE), tree),
        Err(LabError::Unavailable { reason, .. }) => {
            say(&format!("GRUB is left out: {reason}"));
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// The tree of its packages.
pub(crate) fn tree(cache: &Cache) -> Option<PathBuf> {
    let name = std::fs::read_to_string(cache.root().join(FILE)).ok()?;
    Some(cache.tree(name.trim())).filter(|tree| tree.is_dir())
}

/// What QEMU starts instead of a kernel: it finds the disk and reads its configuration.
pub(crate) fn image(folder: &Path) -> PathBuf {
    folder.join("grub.lnx")
}

/// Where the disk lies.
pub(crate) fn disk(folder: &Path) -> PathBuf {
    folder.join("boot")
}

/// Makes the image and the disk in the folder of a boot, with a kernel of the cache, its version and its command line, and
/// puts `grub-editenv` into the folder that the guest shares.
pub(crate) fn make(
    tree: &Path,
    folder: &Path,
    kernel: &Path,
    version: &str,
    line: &str,
) -> Result<(), LabError> {
    let (early, core) = (folder.join("early.cfg"), folder.join("core.img"));
    host::write(
        &early,
        format!(
            "search --no-floppy --label --set=root {LABEL}\nset prefix=($root)/grub\nconfigfile $prefix/grub.cfg\n"
        ),
    )?;
    let libraries = tree.join(LIBRARIES);
    let mut mkimage = host::bound(libraries.join("ld-linux-x86-64.so.2"));
    mkimage.arg("--library-path").arg(&libraries).arg(tree.join("usr/bin/grub-mkimage"));
    mkimage.arg("-d").arg(tree.join(IMAGES)).args(["-O", "i386-pc", "-p", "/grub", "-c"]).arg(&early);
    host::run(mkimage.arg("-o").arg(&core).args(MODULES))?;
    let mut whole = Vec::new();
    for part in [tree.join(IMAGES).join("lnxboot.img"), core] {
        whole.extend(std::fs::read(&part).map_err(LabError::file("read", &part))?);
    }
    host::write(&image(folder), whole)?;
    let boot = folder.join("boot.tree");
    host::create_folder(&boot.join("grub"))?;
    let copy = |from: PathBuf, to: PathBuf| {
        std::fs::copy(&from, to).map_err(LabError::file("read", &from)).map(drop)
    };
    copy(kernel.join("bzImage"), boot.join(format!("vmlinuz-{version}")))?;
    copy(folder.join("initramfs"), boot.join(format!("initrd.img-{version}")))?;
    host::write(&boot.join("grub/grub.cfg"), configuration(version, line))?;
    let mut block = b"# GRUB Environment Block\n".to_vec();
    block.resize(1024, b'#');
    host::write(&boot.join("grub/grubenv"), block)?;
    let disk = disk(folder);
    let file = std::fs::File::create(&disk).map_err(LabError::file("create", &disk))?;
    file.set_len(DISK_MIB << 20).map_err(LabError::file("write", &disk))?;
    host::run(host::bound("mke2fs").args(["-q", "-t", "ext4", "-L", LABEL, "-d"]).arg(&boot).arg(&disk))?;
    let share = folder.join("share/grub");
    host::create_folder(&share)?;
    for name in EDITOR_LIBRARIES {
        if libraries.join(name).exists() {
            copy(libraries.join(name), share.join(name))?;
        }
    }
    copy(tree.join("usr/bin/grub-editenv"), share.join("grub-editenv"))
}

/// As distributions make it: an entry that is selected once, the default entry, and what the machine adds.
fn configuration(version: &str, line: &str) -> String {
    format!(
        "serial --unit=0\nterminal_output serial\nif [ -s $prefix/grubenv ]; then\n  load_env\nfi\n\
         if [ \"${{next_entry}}\" ] ; then\n   set default=\"${{next_entry}}\"\n   set next_entry=\n   save_env next_entry\n\
         else\n   set default=\"0\"\nfi\nset timeout=0\nmenuentry 'Linux' --id linux {{\n\
         \tlinux\t/vmlinuz-{version} root=/dev/vda {line}\n\tinitrd\t/initrd.img-{version}\n}}\n\
         if [ -f $prefix/custom.cfg ]; then\n  source $prefix/custom.cfg\nfi\n"
    )
}
