//! How often the firmware stopped a CPU: system-management interrupts, counted by Intel processors.
//!
//! An SMI takes a CPU (in most firmware: all CPUs) away without the kernel noticing. Intel counts them in
//! MSR_SMI_COUNT (0x34; Software Developer's Manual, volume 4, since Nehalem). The kernel offers it as the perf event
//! `msr/smi/`, and with the module `msr` as a device file. AMD counts them only in an event of the core PMU
//! (`ls_smi_rx`), which is not read here. Neither says how long they took. In a virtual machine the counter is the
//! machine's own: SMIs of its host are not in it.

use crate::cpuinfo::CpuInfo;
use crate::{HostError, HostRoot};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use whylate_core::units::CpuId;
use whylate_sys::perf_counter::PerfCounter;

/// MSR_SMI_COUNT: bits 31:0 count the SMIs since reset.
const MSR_SMI_COUNT: u64 = 0x34;

/// The event source of the perf event.
const EVENT_SOURCE: &str = "/sys/bus/event_source/devices/msr";

/// Why a counter cannot be read here: one clause, to be shown behind `not available: `.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unavailable {
    /// The reason, with what to do if something can be done.
    pub reason: String,
}

impl Unavailable {
    fn because(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

/// An open SMI counter of one CPU.
#[derive(Debug)]
pub struct SmiCounter {
    source: SmiSource,
    cpu: CpuId,
}

#[derive(Debug)]
enum SmiSource {
    Event(PerfCounter),
    Msr(File),
}

impl SmiCounter {
    /// Opens the counter of `cpu` and reads it once to see that it works.
    ///
    /// # Errors
    /// [`Unavailable`]: another architecture or maker, no permission, neither the perf event nor the module `msr`, no
    /// such MSR.
    pub fn open(root: &HostRoot, cpu: CpuId) -> Result<Self, Unavailable> {
        let info = CpuInfo::read(root).map_err(|error: HostError| Unavailable::because(error.to_string()))?;
        match info.vendor.as_deref() {
            Some("GenuineIntel") => {}
            Some("AuthenticAMD" | "HygonGenuine") => {
                return Err(Unavailable::because(
                    "AMD processors count SMIs only in an event of the core's performance counters, not in an MSR",
                ));
            }
            Some(_) => return Err(Unavailable::because("only Intel processors count SMIs in an MSR")),
            None => return Err(Unavailable::because("only x86 processors have SMIs")),
        }
        let source = match event(root, cpu) {
            Some(event) => SmiSource::Event(event),
            None => SmiSource::Msr(msr(root, cpu)?),
        };
        let counter = Self { source, cpu };
        counter.read()?;
        Ok(counter)
    }

    /// Whether processors of this kind have such interrupts. Only x86 has them; elsewhere a missing counter is no
    /// loss.
    pub const HAS_SMIS: bool = cfg!(any(target_arch = "x86_64", target_arch = "x86"));

    /// SMIs since some earlier moment, modulo 2^32: only differences mean something.
    ///
    /// # Errors
    /// [`Unavailable`] when the processor lacks the register or the CPU went offline.
    pub fn read(&self) -> Result<u32, Unavailable> {
        let failed =
            |error| Unavailable::because(format!("counting SMIs of CPU {} failed: {error}", self.cpu));
        let msr = match &self.source {
            SmiSource::Event(event) => return event.read().map(|count| count as u32).map_err(failed),
            SmiSource::Msr(msr) => msr,
        };
        let mut value = [0; 8];
        match msr.read_exact_at(&mut value, MSR_SMI_COUNT) {
            Ok(()) => Ok(u64::from_le_bytes(value) as u32),
            Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => {
                Err(Unavailable::because("this processor has no MSR 0x34"))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// SMIs between two reads; the register has 32 bits and may have wrapped once.
    pub fn delta(before: u32, after: u32) -> u64 {
        u64::from(after.wrapping_sub(before))
    }
}

/// The perf event `msr/smi/`; `None` if the kernel or the user's rights do not offer it.
fn event(root: &HostRoot, cpu: CpuId) -> Option<PerfCounter> {
    if !root.is_real() {
        return None;
    }
    let kind = root.read_number(&format!("{EVENT_SOURCE}/type")).ok()??;
    let event = root.read_trimmed(&format!("{EVENT_SOURCE}/events/smi")).ok()??;
    let config = u64::from_str_radix(event.strip_prefix("event=0x")?, 16).ok()?;
    PerfCounter::open(kind, config, cpu).ok()
}

/// The register through the module `msr`.
fn msr(root: &HostRoot, cpu: CpuId) -> Result<File, Unavailable> {
    let path = format!("/dev/cpu/{cpu}/msr");
    File::open(root.path(&path)).map_err(|error| Unavailable::because(open_reason(&path, &error)))
}

fn open_reason(path: &str, error: &io::Error) -> String {
    let errno = error.raw_os_error();
    if error.kind() == io::ErrorKind::PermissionDenied {
        format!("no permission for the perf event msr/smi/ or {path}: run as root")
    } else if [Errno::NOENT, Errno::NOTDIR, Errno::NODEV].iter().any(|e| errno == Some(e.raw_os_error())) {
        format!("there is neither the perf event msr/smi/ nor {path}: load the module with `modprobe msr`")
    } else if errno == Some(Errno::NXIO.raw_os_error()) {
        format!("{path}: the CPU is offline")
    } else {
        format!("{path}: {error}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(cpuinfo: &str, msr: Option<u64>) -> (tempfile::TempDir, HostRoot) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("proc")).unwrap();
        std::fs::write(folder.path().join("proc/cpuinfo"), cpuinfo).unwrap();
        if let Some(value) = msr {
            std::fs::create_dir_all(folder.path().join("dev/cpu/1")).unwrap();
            let mut bytes = vec![0; MSR_SMI_COUNT as usize];
            bytes.extend(value.to_le_bytes());
            std::fs::write(folder.path().join("dev/cpu/1/msr"), bytes).unwrap();
        }
        let root = HostRoot::at(folder.path());
        (folder, root)
    }

    #[test]
    fn an_intel_machine_is_read() {
        let (_folder, root) =
            machine("vendor_id : GenuineIntel\nflags : fpu msr\n", Some(0xffff_ffff_0000_0007));
        assert_eq!(SmiCounter::open(&root, CpuId(1)).unwrap().read(), Ok(7));
        assert_eq!(SmiCounter::delta(u32::MAX, 2), 3);
    }

    #[test]
    fn every_other_machine_says_why_not() {
        let cases = [
            ("vendor_id : AuthenticAMD\n", "performance counters"),
            ("vendor_id : CentaurHauls\n", "only Intel"),
            ("CPU implementer : 0x41\n", "only x86"),
            ("vendor_id : GenuineIntel\nflags : fpu\n", "modprobe msr"),
        ];
        for (cpuinfo, expected) in cases {
            let (_folder, root) = machine(cpuinfo, None);
            let reason = SmiCounter::open(&root, CpuId(1)).unwrap_err().to_string();
            assert!(reason.contains(expected), "{reason}");
        }
    }
}
