//! QEMU: the lab's own, unpacked with the libraries of its release, or else the host's.

use crate::cache::Cache;
use crate::error::LabError;
use crate::host;
use crate::machine::{Architecture, Machine};
use crate::packages::PackageRoot;
use std::path::PathBuf;
use std::process::Command;

/// The start of the version of the lab's own QEMU.
const VERSION: &str = "1:10.";
/// Where libraries, modules and data lie below its root.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const DATA: [&str; 3] = ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"];

#[derive(Clone, Debug)]
pub(crate) enum Emulator {
    /// The root that the lab's own was unpacked to.
    Own(PathBuf),
    /// The one in the path.
    Host,
}

impl Emulator {
    /// The QEMU for a machine. The kernels 5.10 and 6.1 run in the host's if it has the profile: in QEMU 10 with one
    /// CPU and counted time, some spikes of rt-6.1 are not explained (records/2026-11-22/kernels.md).
    pub(crate) fn of(cache: &Cache, machine: &Machine) -> Self {
        let is_old = machine.kernel.is_old() && Self::Host.unable(machine).is_none();
        let own = cache.qemu(machine.kernel.architecture());
        if is_old { Self::Host } else { own.map_or(Self::Host, Self::Own) }
    }

    /// Makes sure that there is one for an architecture: the lab's own, otherwise the one in the cache, otherwise the
    /// host's.
    pub(crate) fn ensure(
        cache: &Cache,
        packages: Result<&PackageRoot, &LabError>,
        architecture: Architecture,
        say: &dyn Fn(&str),
    ) -> Result<(), LabError> {
        let (program, package) = architecture.qemu();
        let newest = || -> Result<(), LabError> {
            let packages = packages.map_err(LabError::again)?;
            let offer = packages.newest(package, VERSION)?;
            let tree = packages.tree(cache, &offer.release, &[package])?;
            if cache.qemu(architecture) != Some(cache.tree(&tree)) {
                say(&format!("using {package} {} from {}", offer.version, offer.release));
            }
            cache.set_qemu(architecture, &tree)
        };
        let built = newest().or_else(|error| match packages {
            // Lists that are too old name files that are no longer available.
            Ok(packages) if cache.qemu(architecture).is_none() => packages.refresh().and_then(|()| newest()),
            _ => Err(error),
        });
        match built {
            Err(LabError::Unavailable { reason, .. }) => {
                let which =
                    if cache.qemu(architecture).is_some() { "the cached QEMU" } else { "the host's QEMU" };
                say(&format!("QEMU {VERSION} is not available ({reason}), so {which} is used"));
            }
            built => built?,
        }
        host::ensure_tools(&[(program, package)])
    }

    /// A program of it, which ends when the thread that spawned it ends, for whatever reason.
    pub(crate) fn command(&self, program: &str) -> Command {
        let Self::Own(root) = self else { return host::bound(program) };
        let libraries = root.join(LIBRARIES);
        // Its own loader: the host's may be older than its libraries.
        let mut command = host::bound(libraries.join("ld-linux-x86-64.so.2"));
        command.arg("--library-path").arg(&libraries).arg(root.join("usr/bin").join(program));
        for folder in DATA {
            command.arg("-L").arg(root.join(folder));
        }
        command.env("QEMU_MODULE_DIR", libraries.join("qemu"));
        command
    }

    /// The major version.
    fn major(&self, architecture: Architecture) -> Result<u32, LabError> {
        let version = host::run(self.command(architecture.qemu().0).arg("--version"));
        let text = version.map_err(|error| LabError::Unavailable {
            reason: format!("QEMU does not run: {}", error.brief()),
            fix: "run `cargo xtask lab build`".into(),
        })?;
        let major = text.split("version ").nth(1).and_then(|rest| rest.split('.').next());
        let major = major.and_then(|major| major.trim().parse().ok());
        major.ok_or(LabError::Form { what: "the version of QEMU", text })
    }

    /// Why it cannot run a machine.
    pub(crate) fn unable(&self, machine: &Machine) -> Option<String> {
        let major = match self.major(machine.kernel.architecture()) {
            Err(error) => return Some(error.to_string()),
            Ok(major) => major,
        };
        let needed = machine.qemu_major_min();
        (major < needed).then(|| {
            let label = machine.label();
            format!(
                "the machine {label} needs QEMU {needed}, but only QEMU {major} is installed; `cargo xtask \
                 lab build` says why"
            )
        })
    }
}
