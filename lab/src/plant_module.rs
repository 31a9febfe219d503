//! Builds the kernel module that plants causes.

use crate::cache::{self, Cache};
use crate::error::LabError;
use crate::host;
use std::path::PathBuf;

/// The sources of the module, by name.
const SOURCES: [(&str, &str); 12] = [
    ("Makefile", include_str!("../kmod/Makefile")),
    ("plant.h", include_str!("../kmod/plant.h")),
    ("plant_main.c", include_str!("../kmod/plant_main.c")),
    ("plant_local.c", include_str!("../kmod/plant_local.c")),
    ("plant_remote.c", include_str!("../kmod/plant_remote.c")),
    ("plant_memory.c", include_str!("../kmod/plant_memory.c")),
    ("plant_thread.c", include_str!("../kmod/plant_thread.c")),
    ("plant_probe.c", include_str!("../kmod/plant_probe.c")),
    ("plant_timer.c", include_str!("../kmod/plant_timer.c")),
    ("plant_power.c", include_str!("../kmod/plant_power.c")),
    ("whylate_memtype.c", include_str!("../../kmod/whylate_memtype/whylate_memtype.c")),
    ("whylate_memtype.h", include_str!("../../kmod/whylate_memtype/whylate_memtype.h")),
];

/// The suffix of `whylate_memtype.ko` in a name that has `plant.ko` for the other module.
pub(crate) const MEMTYPE: &str = "memtype.ko";

/// The module built from these sources for a kernel of the cache, if it has been.
pub(crate) fn find(cache: &Cache, version: &str) -> Option<PathBuf> {
    Some(place(cache, version)).filter(|module| module.is_file())
}

fn place(cache: &Cache, version: &str) -> PathBuf {
    let key = cache::key(SOURCES.iter().map(|(_, text)| text.as_bytes()));
    cache.kernel_folder(version).join(format!("plant-{key}.ko"))
}

/// Compiles in a root of the kernel's own compiler, with headers and sources mounted where they are looked for:
/// ROOT, HEADERS, SOURCES, VERSION.
const COMPILE: &str = "set -e
mkdir -p $1/usr/src $1/mnt $1/proc
[ -e $1/bin/sh ] || ln -s dash $1/bin/sh
[ -e $1/usr/bin/awk ] || ln -s mawk $1/usr/bin/awk
mount --bind $2 $1/usr/src
mount --bind $3 $1/mnt
mount -t proc proc $1/proc
exec chroot $1 /usr/bin/make -s -C /usr/src/linux-headers-$4 M=/mnt KBUILD_MODPOST_WARN= modules";

/// Makes sure that the module is built for a kernel of the cache.
///
/// # Errors
/// When it does not compile; the compiler's words are in the error.
pub(crate) fn ensure(cache: &Cache, version: &str, say: &dyn Fn(&str)) -> Result<(), LabError> {
    if find(cache, version).is_some() {
        return Ok(());
    }
    let folder = cache.kernel_folder(version);
    let compiler = cache.compiler(&folder).filter(|tree| tree.is_dir());
    let compiler = compiler.ok_or_else(|| LabError::Unavailable {
        reason: format!("the compiler of kernel {version} is no longer in the cache"),
        fix: format!("remove {} and run `cargo xtask lab build` again", folder.display()),
    })?;
    say(&format!("building plant.ko for {version}"));
    let work = cache.work_folder()?;
    for (name, text) in SOURCES {
        host::write(&work.path().join(name), text)?;
    }
    let mut make = host::enclosed("sh");
    make.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").args(["-c", COMPILE, "sh"]).arg(compiler);
    make.arg(folder.join("headers")).arg(work.path()).arg(version);
    host::run(&mut make)?;
    let place = place(cache, version);
    let memtype = work.path().join("whylate_memtype.ko");
    // Memory types are those of x86.
    if memtype.is_file() {
        cache::rename(&memtype, &place.with_extension(MEMTYPE))?;
    }
    cache::rename(&work.path().join("plant.ko"), &place)
}
