//! A clock of one CPU that interrupts it in equal steps and runs a BPF program, switched on and off while it exists.

use crate::perf_counter::{EventAttributes, TYPE_SOFTWARE, open};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use whylate_core::CpuId;

const COUNT_SW_CPU_CLOCK: u64 = 0;
const FLAG_DISABLED: u64 = 1;
/// `PERF_EVENT_IOC_ENABLE`, `PERF_EVENT_IOC_DISABLE`, `PERF_EVENT_IOC_PERIOD`, `PERF_EVENT_IOC_SET_BPF`.
const ENABLE: libc::Ioctl = 0x2400;
const DISABLE: libc::Ioctl = 0x2401;
const SET_PERIOD: libc::Ioctl = 0x4008_2404;
const SET_PROGRAM: libc::Ioctl = 0x4004_2408;

#[derive(Debug)]
pub struct SampleClock {
    event: File,
}

impl SampleClock {
    /// A clock that is off, for a program of the type `BPF_PROG_TYPE_PERF_EVENT`.
    ///
    /// # Errors
    /// EACCES or EPERM without CAP_PERFMON, ENODEV where the CPU is offline, EMFILE.
    pub fn open(cpu: CpuId, period_ns: u64, program: BorrowedFd<'_>) -> io::Result<Self> {
        let attributes = EventAttributes {
            kind: TYPE_SOFTWARE,
            config: COUNT_SW_CPU_CLOCK,
            sample_period: period_ns,
            flags: FLAG_DISABLED,
            ..EventAttributes::default()
        };
        let any_process = -1;
        let clock = Self { event: open(attributes, any_process, Some(cpu))? };
        clock.request(SET_PROGRAM, program.as_raw_fd())?;
        Ok(clock)
    }

    /// Switches it on or off, by an interrupt of its CPU.
    pub fn switch(&self, on: bool) -> io::Result<()> {
        self.request(if on { ENABLE } else { DISABLE }, 0)
    }

    /// Changes the time from one interrupt to the next, by an interrupt of its CPU.
    pub fn set_period(&self, period_ns: u64) -> io::Result<()> {
        // SAFETY: the request reads one number of 64 bits, which lives as long as the call.
        match unsafe { libc::ioctl(self.event.as_raw_fd(), SET_PERIOD, &raw const period_ns) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn request(&self, request: libc::Ioctl, argument: i32) -> io::Result<()> {
        // SAFETY: these requests take a number as their argument and touch no memory of this process.
        match unsafe { libc::ioctl(self.event.as_raw_fd(), request, argument) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
