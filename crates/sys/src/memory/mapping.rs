//! A mapping of a device's or a file's memory.

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

/// Shared, writable, given back when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is owned alone; nothing about it is tied to a thread.
unsafe impl Send for Mapping {}
// SAFETY: shared references only read.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` from `offset` on. The file must be one whose memory this process has for itself, or whose other
    /// users expect any bytes in it at any time.
    pub(crate) fn of(file: impl AsFd, offset: u64, bytes: usize) -> io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, protection, flags, file, offset)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { start, bytes })
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: the mapping is that long for as long as it lives; every bit pattern is a byte.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the mapping is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own and no reference to it outlives the value. A refusal leaves it mapped
        // until the process ends, which is all that can be done.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
