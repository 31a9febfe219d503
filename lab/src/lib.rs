//! The lab: boots real kernels in QEMU, plants causes of latency in them, and lets tests check whether they are found.
//!
//! [`build`] puts kernels, QEMU and the root file systems into a cache; [`Lab::boot`] starts a [`Machine`];
//! [`Guest::run`] runs a script in it; [`suite`] runs tests that share guests. The kernels are Debian's own, emulated
//! in software, so that the lab works wherever QEMU does; the profile `icount` counts instructions as time, so that
//! lengths can be asserted there.
//!
//! [`archive`] makes fake roots of machines for tests that need no kernel.
//!
//! It does not measure performance: an emulated CPU has no caches, no speculation and no firmware.

pub mod archive;
mod boot_folder;
mod bzimage;
mod cache;
pub mod corpus;
mod counter;
mod emulator;
mod error;
mod grub;
mod guest;
mod hang;
mod host;
pub mod host_stall;
mod initramfs;
mod kernel;
mod kernel_log;
mod line;
mod machine;
mod output;
mod packages;
mod plant;
mod plant_module;
mod qemu;
mod rootfs;
mod stuck;
pub mod suite;

pub use cache::Cache;
pub use error::LabError;
pub use guest::{Guest, Running};
pub use kernel_log::trouble;
pub use machine::{Architecture, Device, Image, Kernel, Machine, Profile};
pub use output::Output;
pub use plant::{LOAD_PLANT, Stall};

use emulator::Emulator;
use packages::PackageRoot;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// How long parts of the cache that newer ones have replaced are kept.
const REPLACED_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Builds what is missing in the cache: the usual kernels and those that are asked for, the module that plants causes,
/// and the root file systems. What was built before stays, so that building again continues a broken build.
///
/// # Errors
/// [`LabError::Unavailable`] when this machine cannot run the lab.
pub fn build(
    cache: &Cache,
    images: &[Image],
    more: &[Kernel],
    say: &(dyn Fn(&str) + Sync),
) -> Result<(), LabError> {
    let _lock = cache.lock()?;
    host::ensure_tools(&host::TOOLS)?;
    for image in images {
        rootfs::may_build(cache, *image)?;
    }
    std::thread::scope(|scope| {
        let kernels = scope.spawn(|| kernels(cache, more, &say));
        for image in images {
            rootfs::ensure(cache, *image, &say)?;
        }
        kernels.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    cache.remove_replaced(REPLACED_AGE)
}

/// Builds QEMU, the kernels and their modules.
fn kernels(cache: &Cache, more: &[Kernel], say: &dyn Fn(&str)) -> Result<(), LabError> {
    let packages = PackageRoot::open(cache, Architecture::X86);
    let tools = packages.as_ref();
    Emulator::ensure(cache, tools, Architecture::X86, say)?;
    grub::ensure(cache, tools, say)?;
    let module = |version: String| plant_module::ensure(cache, &version, say);
    let (of_x86, others): (Vec<Kernel>, Vec<Kernel>) =
        more.iter().partition(|kernel| kernel.architecture() == Architecture::X86);
    let more_of_x86 = of_x86.into_iter().filter(|kernel| !Kernel::USUAL.contains(kernel));
    for kernel in Kernel::USUAL.into_iter().chain(more_of_x86) {
        left_out(kernel, kernel::ensure(cache, tools, tools, kernel, say).and_then(module), say)?;
    }
    for kernel in others {
        let architecture = kernel.architecture();
        let built = Emulator::ensure(cache, tools, architecture, say).and_then(|()| {
            let packages = PackageRoot::open(cache, architecture);
            let version = kernel::ensure(cache, packages.as_ref(), tools, kernel, say)?;
            rootfs::ensure_unpacked(cache, packages.as_ref(), architecture, say)?;
            module(version)
        });
        left_out(kernel, built, say)?;
    }
    Ok(())
}

/// Says which kernel is not available; without those of [`Kernel::NEEDED`] there is no lab.
fn left_out(kernel: Kernel, built: Result<(), LabError>, say: &dyn Fn(&str)) -> Result<(), LabError> {
    match built {
        Err(LabError::Unavailable { reason, .. }) if !Kernel::NEEDED.contains(&kernel) => {
            say(&format!("kernel `{}` is left out: {reason}", kernel.name()));
            Ok(())
        }
        built => built,
    }
}

/// Installs the host's programs that are missing, and checks whether what the cache lacks is available: a cheap way to
/// know whether [`build`] will work.
///
/// # Errors
/// [`LabError::Unavailable`] when this machine cannot run the lab.
pub fn install_tools(cache: &Cache) -> Result<(), LabError> {
    let _lock = cache.lock()?;
    host::ensure_tools(&host::TOOLS)?;
    let mut missing = Kernel::NEEDED.into_iter().filter(|kernel| cache.kernel(*kernel).is_none()).peekable();
    if missing.peek().is_none() {
        return Ok(());
    }
    let packages = PackageRoot::open(cache, Architecture::X86)?;
    missing.try_for_each(|kernel| packages.newest(kernel.package(), kernel.version_prefix()).map(drop))
}

/// A cache from which guests are booted.
#[derive(Clone, Debug)]
pub struct Lab {
    cache: Cache,
    /// The program under test for each architecture, copied to the guests.
    binaries: BTreeMap<Architecture, PathBuf>,
}

impl Lab {
    /// A lab with the program that guests of an architecture get as `/usr/local/bin/whylate`: a static executable.
    #[must_use]
    pub fn new(cache: Cache, binaries: BTreeMap<Architecture, PathBuf>) -> Self {
        Self { cache, binaries }
    }

    /// Why a machine cannot be booted here; `None` when it can.
    #[must_use]
    pub fn lacks(&self, machine: &Machine) -> Option<String> {
        if let Some(reason) = machine.impossible() {
            return Some(reason);
        }
        let build = "run `cargo xtask lab build";
        if machine.devices.contains(&Device::Grub) && grub::tree(&self.cache).is_none() {
            return Some(format!("GRUB is not in the cache: {build}`"));
        }
        let Some((version, _)) = self.cache.kernel(machine.kernel) else {
            return Some(format!(
                "the kernel `{0}` is not in the cache: {build} {0}`",
                machine.kernel.name()
            ));
        };
        if plant_module::find(&self.cache, &version).is_none() {
            return Some(format!("plant.ko of these sources is not in the cache: {build}`"));
        }
        let architecture = machine.kernel.architecture();
        if self.cache.image(machine.image, architecture).is_none() {
            return Some(format!("the image `{0}` is not in the cache: {build} {0}`", machine.image.name()));
        }
        Emulator::of(&self.cache, machine).unable(machine)
    }

    /// Starts a machine and waits until it takes scripts.
    ///
    /// # Errors
    /// [`LabError::Unavailable`] when [`Lab::lacks`] says why; else when the guest does not come up.
    pub fn boot(&self, machine: &Machine) -> Result<Guest, LabError> {
        let unavailable = |reason: String| LabError::Unavailable { reason, fix: "see lab/README.md".into() };
        if let Some(reason) = self.lacks(machine) {
            return Err(unavailable(reason));
        }
        let files = self.cache.kernel(machine.kernel).and_then(|(version, kernel)| {
            let module = plant_module::find(&self.cache, &version)?;
            let architecture = machine.kernel.architecture();
            let root = self.cache.image(machine.image, architecture)?;
            let emulator = Emulator::of(&self.cache, machine);
            let binary = self.binaries.get(&architecture).cloned();
            let grub = grub::tree(&self.cache);
            Some(boot_folder::Files { emulator, kernel, root, module, binary, version, grub })
        });
        let files = files.ok_or_else(|| unavailable("another process has just emptied the cache".into()))?;
        Guest::boot(machine, &files)
    }
}
