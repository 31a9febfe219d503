//! Builds the kernel module that plants causes.

use crate::cache::{self, Cache};
use crate::error::LabError;
use crate::host;
use std::path::PathBuf;

/// The sources of the module, by name.
const SOURCES: [(&str, &str); 10] = [
    ("Makefile", include_str!("../kmod/Makefile")),
    ("plant.h", include_str!("../kmod/plant.h")),
    ("plant_main.c", include_str!("../kmod/plant_main.c")),
    ("plant_local.c", include_str!("../kmod/plant_local.c")),
    ("plant_remote.c", include_str!("../kmod/plant_remote.c")),
    ("plant_memory.c", include_str!("../kmod/plant_memory.c")),
    ("plant_thread.c", include_str!("../kmod/plant_thread.c")),
    ("plant_timer.c", include_str!("../kmod/plant_timer.c")),
    ("whylate_memtype.c", include_str!("../../kmod/whylate_memtype/whylate_memtype.c")),
    ("whylate_memtype.h", include_str!("../../kmod/whylate_memtype/whylate_memtype.h")),
];

/// What the name of `whylate_memtype.ko` ends in beside that of `plant.ko`.
pub(crate) const MEMTYPE: &str = "memtype.ko";

/// The module built from these sources for a kernel of the cache, if it has been.
pub(crate) fn find(cache: &Cache, version: &str) -> Option<PathBuf> {
    Some(place(cache, version)).filter(|module| module.is_file())
}

fn place(cache: &Cache, version: &str) -> PathBuf {
    let key = cache::key(SOURCES.iter().map(|(_, text)| text.as_bytes()));
    cache.kernel_folder(version).join(format!("plant-{key}.ko"))
}

/// Makes sure that the module is built for a kernel of the cache.
///
/// # Errors
/// When it does not compile; the compiler's words are in the error.
pub(crate) fn ensure(cache: &Cache, version: &str, say: &dyn Fn(&str)) -> Result<(), LabError> {
    if find(cache, version).is_some() {
        return Ok(());
    }
    let folder = cache.kernel_folder(version);
    say(&format!("plant.ko for {version}"));
    let work = cache.work_folder()?;
    for (name, text) in SOURCES {
        host::write(&work.path().join(name), text)?;
    }
    let mut make = host::bound("make");
    make.arg("-s").arg("-C").arg(folder.join(format!("headers/usr/src/linux-headers-{version}")));
    make.arg(format!("M={}", work.path().display())).args(["CC=gcc", "KBUILD_MODPOST_WARN=", "modules"]);
    host::run(&mut make)?;
    let place = place(cache, version);
    cache::rename(&work.path().join("whylate_memtype.ko"), &place.with_extension(MEMTYPE))?;
    cache::rename(&work.path().join("plant.ko"), &place)
}
