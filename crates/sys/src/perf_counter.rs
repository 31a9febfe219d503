//! Counting performance events of one CPU or thread: `perf_event_open` without sampling.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};
use whylate_core::CpuId;

/// `struct perf_event_attr` of the kernel (include/uapi/linux/perf_event.h), as far as its first published size
/// (`PERF_ATTR_SIZE_VER0`): the kernel takes the rest for zero.
#[repr(C)]
#[derive(Default)]
struct EventAttributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

const _: () = assert!(size_of::<EventAttributes>() == 64);

/// `PERF_FLAG_FD_CLOEXEC` of the same header.
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

/// A counter of one event on one CPU or of one thread, running.
#[derive(Debug)]
pub struct PerfCounter {
    file: File,
}

impl PerfCounter {
    /// Counts the event `config` of the event source `kind` (`/sys/bus/event_source/devices/NAME/type`) on `cpu`,
    /// whatever runs there.
    ///
    /// # Errors
    /// EACCES or EPERM without CAP_PERFMON (see `kernel.perf_event_paranoid`), ENOENT or EINVAL for an event that
    /// the CPU does not have.
    pub fn open(kind: u32, config: u64, cpu: CpuId) -> io::Result<Self> {
        let any_process = -1;
        Self::of(kind, config, any_process, cpu.0 as libc::c_int)
    }

    /// Counts the event of one thread, wherever it runs.
    ///
    /// # Errors
    /// As [`PerfCounter::open`]; ESRCH when there is no such thread.
    pub fn of_thread(kind: u32, config: u64, thread: u32) -> io::Result<Self> {
        let any_cpu = -1;
        Self::of(kind, config, thread as libc::pid_t, any_cpu)
    }

    fn of(kind: u32, config: u64, process: libc::pid_t, cpu: libc::c_int) -> io::Result<Self> {
        let attributes = EventAttributes {
            kind,
            size: size_of::<EventAttributes>() as u32,
            config,
            ..EventAttributes::default()
        };
        let no_group = -1;
        // SAFETY: perf_event_open reads `size` bytes from the pointer, which points to a structure of that size, and
        // keeps no reference to it.
        let descriptor = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                process,
                cpu,
                no_group,
                CLOSE_ON_EXEC,
            )
        };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor, and nobody else owns it.
        Ok(Self { file: unsafe { OwnedFd::from_raw_fd(descriptor as i32) }.into() })
    }

    /// How often the event happened since the counter was opened.
    ///
    /// # Errors
    /// When the CPU went offline.
    pub fn read(&self) -> io::Result<u64> {
        let mut count = [0; 8];
        (&self.file).read_exact(&mut count)?;
        Ok(u64::from_ne_bytes(count))
    }
}
