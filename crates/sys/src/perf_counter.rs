//! Counting performance events of one CPU or thread: `perf_event_open` without sampling.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd, OwnedFd};
use whylate_core::CpuId;

/// `struct perf_event_attr` of the kernel (include/uapi/linux/perf_event.h), as far as its size of Linux 3.7
/// (`PERF_ATTR_SIZE_VER3`): the kernel takes the rest for zero.
#[repr(C)]
#[derive(Default)]
pub(crate) struct EventAttributes {
    pub(crate) kind: u32,
    pub(crate) size: u32,
    pub(crate) config: u64,
    pub(crate) sample_period: u64,
    pub(crate) sample_type: u64,
    pub(crate) read_format: u64,
    pub(crate) flags: u64,
    pub(crate) wakeup_events: u32,
    pub(crate) breakpoint_type: u32,
    pub(crate) config1: u64,
    pub(crate) config2: u64,
    pub(crate) branch_sample_type: u64,
    pub(crate) user_registers: u64,
    pub(crate) user_stack: u32,
    pub(crate) clock_id: i32,
}

const _: () = assert!(size_of::<EventAttributes>() == 96);

/// `PERF_TYPE_HARDWARE`, `PERF_TYPE_SOFTWARE` and `PERF_TYPE_HW_CACHE` of the same header.
pub const TYPE_HARDWARE: u32 = 0;
pub const TYPE_SOFTWARE: u32 = 1;
pub const TYPE_CACHE: u32 = 3;
/// `BPF_MAP_UPDATE_ELEM` of include/uapi/linux/bpf.h, and the part of `union bpf_attr` for it.
const MAP_UPDATE: libc::c_long = 2;

#[repr(C)]
#[derive(Default)]
struct MapChange {
    map: u32,
    unused: u32,
    /// Addresses.
    key: u64,
    value: u64,
    flags: u64,
}

const _: () = assert!(size_of::<MapChange>() == 32);

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
        Self::of(kind, config, any_process, Some(cpu))
    }

    /// Counts the event of one thread, wherever it runs.
    pub fn of_thread(kind: u32, config: u64, thread: u32) -> io::Result<Self> {
        Self::of(kind, config, thread as libc::pid_t, None)
    }

    fn of(kind: u32, config: u64, thread: libc::pid_t, cpu: Option<CpuId>) -> io::Result<Self> {
        let attributes = EventAttributes { kind, config, ..EventAttributes::default() };
        Ok(Self { file: open(attributes, thread, cpu)? })
    }

    /// Puts the counter into a BPF map of the type `BPF_MAP_TYPE_PERF_EVENT_ARRAY`, for programs on its CPU.
    ///
    /// # Errors
    /// EINVAL for another map, E2BIG for a place that the map does not have.
    pub fn put_into(&self, map: BorrowedFd<'_>, place: u32) -> io::Result<()> {
        let value = self.file.as_raw_fd();
        let attributes = MapChange {
            map: map.as_raw_fd() as u32,
            key: (&raw const place).addr() as u64,
            value: (&raw const value).addr() as u64,
            ..MapChange::default()
        };
        // SAFETY: the kernel reads `size_of::<MapChange>()` bytes from the pointer, and the key and the value, which this map's
        // type fixes at 4 bytes each, from the addresses there; all three live until the call is over.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                MAP_UPDATE,
                std::ptr::from_ref(&attributes).expose_provenance(),
                size_of::<MapChange>(),
            )
        };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// How often the event happened since the counter was opened.
    pub fn read(&self) -> io::Result<u64> {
        let mut count = [0; 8];
        (&self.file).read_exact(&mut count)?;
        Ok(u64::from_ne_bytes(count))
    }
}

/// Opens an event of a thread, or of any (-1), on a CPU, or on any.
pub(crate) fn open(attributes: EventAttributes, thread: libc::pid_t, cpu: Option<CpuId>) -> io::Result<File> {
    let attributes = EventAttributes { size: size_of::<EventAttributes>() as u32, ..attributes };
    let no_group = -1;
    // SAFETY: perf_event_open reads `size` bytes from the pointer, which points to a structure of that size, and
    // keeps no reference to it.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            thread,
            cpu.map_or(-1, |cpu| cpu.0 as libc::c_int),
            no_group,
            CLOSE_ON_EXEC,
        )
    };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) }.into())
}
