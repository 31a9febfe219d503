//! Builds the root file systems of guests with mmdebstrap.

use crate::cache::{self, Cache};
use crate::error::LabError;
use crate::host;
use crate::kernel::file_system_image;
use crate::machine::{Architecture, Image};
use crate::packages::{self, PackageRoot};
use std::path::Path;

/// Raised when an image is built in another way from the same packages.
const RECIPE: &[u8] = b"1";
/// What every guest has: measuring and tracing tools to compare with, a shell to write tests in.
const BASE: [&str; 16] = [
    "bpftool",
    "busybox-static",
    "iproute2",
    "kmod",
    "linux-perf",
    "pciutils",
    "procps",
    "psmisc",
    "python3",
    "rpm",
    "rt-tests",
    "rtla",
    "strace",
    "stress-ng",
    "trace-cmd",
    "util-linux",
];
/// What a guest with a display has in addition.
const GRAPHICS: [&str; 4] = ["x11-apps", "x11-utils", "xserver-xorg-core", "xserver-xorg-video-dummy"];
/// Files that no guest reads.
const LEFT_OUT: [&str; 4] =
    ["/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*"];
/// The release of the programs for a guest of another architecture than the host's: the first in which all of them are
/// below `usr`, so that unpacking is enough.
const UNPACKED_RELEASE: &str = "trixie";
const ESSENTIAL: [&str; 15] = [
    "base-files",
    "base-passwd",
    "bash",
    "bsdutils",
    "coreutils",
    "dash",
    "diffutils",
    "findutils",
    "grep",
    "gzip",
    "hostname",
    "mawk",
    "mount",
    "sed",
    "sysvinit-utils",
];
/// Links and files that the scripts of unpacked packages would make.
const BY_SCRIPTS: &str = "cd \"$1\"
[ -e usr/bin/sh ] || ln -s dash usr/bin/sh
[ -e usr/bin/awk ] || ln -s mawk usr/bin/awk
cp usr/share/base-passwd/passwd.master etc/passwd
cp usr/share/base-passwd/group.master etc/group";
/// Room for what tests write, in MiB.
const SPARE_MIB: u64 = 256;

/// Whether a root file system is in the cache, or this process can build it.
///
/// # Errors
/// [`LabError::Unavailable`] when it is not and this process is not root.
pub(crate) fn may_build(cache: &Cache, image: Image) -> Result<(), LabError> {
    if cache.root().join(file_name(image)).is_file() {
        return Ok(());
    }
    needs_root()
}

/// Whether this process can unpack packages for a guest.
fn needs_root() -> Result<(), LabError> {
    if host::is_root() {
        return Ok(());
    }
    Err(LabError::Unavailable {
        reason: "unpacking the guest's packages with their owners needs root".into(),
        fix: "run `cargo xtask lab build` once as root, with WHYLATE_LAB_CACHE set to this user's cache"
            .into(),
    })
}

/// Makes sure that a root file system is in the cache.
///
/// # Errors
/// [`LabError::Unavailable`] when this process is not root or the packages cannot be had.
pub(crate) fn ensure(cache: &Cache, image: Image, say: &dyn Fn(&str)) -> Result<(), LabError> {
    let file = file_name(image);
    let path = cache.root().join(&file);
    if !path.is_file() {
        may_build(cache, image)?;
        let packages = package_list(image);
        say(&format!(
            "building root file system `{}` from {} packages and their dependencies",
            image.name(),
            packages.len()
        ));
        build(cache, &packages, &path)?;
    }
    cache.set_image(image, Architecture::X86, &file)
}

/// Makes sure that the base file system of an architecture that the host cannot run is in the cache. Its packages are
/// unpacked; their scripts cannot run here.
pub(crate) fn ensure_unpacked(
    cache: &Cache,
    packages: Result<&PackageRoot, &LabError>,
    architecture: Architecture,
    say: &dyn Fn(&str),
) -> Result<(), LabError> {
    let names: Vec<&str> = BASE.iter().chain(&ESSENTIAL).copied().collect();
    let key = cache::key([RECIPE, BY_SCRIPTS.as_bytes(), names.join(",").as_bytes()]);
    let file = format!("base{}-{key}.ext4", architecture.ending());
    let path = cache.root().join(&file);
    if !path.is_file() {
        let packages = packages.map_err(LabError::again)?;
        needs_root()?;
        say(&format!(
            "building the root file system of {} from {} packages and their dependencies",
            architecture.debian(),
            names.len()
        ));
        let work = cache.work_folder()?;
        let (root, image) = (work.path().join("root"), work.path().join("root.ext4"));
        packages.unpack_all(UNPACKED_RELEASE, &names, work.path(), &root)?;
        host::run(host::bound("sh").args(["-e", "-c", BY_SCRIPTS, "sh"]).arg(&root))?;
        file_system_image(&root, &image, SPARE_MIB)?;
        cache::rename(&image, &path)?;
    }
    cache.set_image(Image::Base, architecture, &file)
}

/// The name of an image, which depends on what is in it and on how it is built.
fn file_name(image: Image) -> String {
    let key = cache::key([RECIPE, package_list(image).join(",").as_bytes()]);
    format!("{}-{key}.ext4", image.name())
}

fn package_list(image: Image) -> Vec<&'static str> {
    let more: &[&str] = match image {
        Image::Base => &[],
        Image::Graphics => &GRAPHICS,
    };
    BASE.iter().chain(more).copied().collect()
}

fn build(cache: &Cache, package_list: &[&str], to: &Path) -> Result<(), LabError> {
    let work = cache.work_folder()?;
    let sources = work.path().join("sources.list");
    let lines = packages::debian_sources()?;
    host::write(&sources, lines.join("\n") + "\n")?;
    let root = work.path().join("root");
    let mut mmdebstrap = host::enclosed("mmdebstrap");
    mmdebstrap.env("TMPDIR", work.path());
    mmdebstrap.args(["--quiet", "--mode=root", "--variant=minbase", "--format=directory"]);
    mmdebstrap.args(["--architectures=amd64", "--skip=check/qemu"]);
    mmdebstrap.args(["--aptopt=Apt::Install-Recommends false", "--dpkgopt=force-unsafe-io"]);
    mmdebstrap.args(LEFT_OUT.map(|path| format!("--dpkgopt=path-exclude={path}")));
    mmdebstrap.arg(format!("--include={}", package_list.join(",")));
    mmdebstrap.arg(release(&lines)?).arg(&root).arg(&sources);
    host::run(&mut mmdebstrap).map_err(|error| LabError::Unavailable {
        reason: format!("mmdebstrap failed: {}", error.brief()),
        fix: "make sure that the packages can be fetched, then run `cargo xtask lab build` again".into(),
    })?;
    let image = work.path().join("root.ext4");
    file_system_image(&root, &image, SPARE_MIB)?;
    cache::rename(&image, to)
}

/// The release that the sources' first line leads to.
fn release(lines: &[String]) -> Result<String, LabError> {
    let first = lines.first().map_or("", String::as_str);
    let release = packages::release_of(first);
    release.map(str::to_owned).ok_or(LabError::Form { what: "a package source", text: first.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_graphics_image_has_all_of_the_base_image() {
        let graphics = package_list(Image::Graphics);
        assert!(package_list(Image::Base).iter().all(|package| graphics.contains(package)));
        assert!(graphics.contains(&"xserver-xorg-core"));
    }

    #[test]
    fn the_release_is_that_of_the_first_source() {
        let lines = ["deb [arch=amd64 signed-by=/k] http://mirror/debian/ stable main".to_owned()];
        assert_eq!(release(&lines).unwrap(), "stable");
        assert!(release(&[]).is_err());
    }
}
