//! A shared mapping of a file, usually of a device: graphics buffers, framebuffers, PCI resources, secret memory.
//!
//! How the CPU caches it is the driver's choice; [`DeviceMemory::read_ns`] shows it by the time that reads take.

use crate::clock;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

/// The smallest page size.
const PAGE: usize = 4096;
/// Distance of the reads that are timed.
const LINE: usize = 64;
/// How much of a mapping is read to time it: far less than a first-level cache holds.
const TIMED: usize = 8 << 10;
/// Times that it is read; the fastest counts.
const PASSES: usize = 8;

/// A mapping that is removed when this is dropped.
#[derive(Debug)]
pub struct DeviceMemory {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone, and nothing about it is tied to a thread.
unsafe impl Send for DeviceMemory {}
// SAFETY: shared references only read.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    /// Maps `length` bytes of `file` from `offset` on, for reading and writing; pages come when they are first touched. The
    /// file must be one whose memory this process has for itself, or whose other users expect any bytes in it at any time.
    ///
    /// # Errors
    /// What mmap(2) says: files that cannot be mapped, no memory, no permission.
    pub fn map(file: impl AsFd, offset: u64, length: usize) -> io::Result<Self> {
        Self::map_with(file, offset, length, MapFlags::SHARED)
    }

    /// The same with all pages present.
    pub fn map_present(file: impl AsFd, offset: u64, length: usize) -> io::Result<Self> {
        Self::map_with(file, offset, length, MapFlags::SHARED | MapFlags::POPULATE)
    }

    fn map_with(file: impl AsFd, offset: u64, length: usize, flags: MapFlags) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe { mmap(std::ptr::null_mut(), length, protection, flags, file, offset) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { start, length })
    }

    /// Its bytes. What others write to the device meanwhile may or may not be seen.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the mapping is readable for its whole length while this value lives, and every byte pattern is a valid u8.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    /// The same, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above; it is writable too, and this process reaches it through this value only, which is borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }

    /// Writes a byte of each page.
    pub fn touch(&mut self) {
        for offset in (0..self.length).step_by(PAGE) {
            // SAFETY: inside the mapping, which is writable.
            unsafe { self.start.as_ptr().add(offset).write_volatile(1) };
        }
    }

    /// Nanoseconds that the read of a cache line takes when it has just been read: about 1 from a cache, 50 and more
    /// from memory that is mapped write-combining or uncached.
    pub fn read_ns(&mut self) -> f64 {
        let length = self.length.min(TIMED);
        let mut least = f64::INFINITY;
        for _ in 0..PASSES {
            let begin = clock::now();
            for offset in (0..length).step_by(LINE) {
                // SAFETY: inside the mapping, which is readable.
                unsafe { self.start.as_ptr().add(offset).read_volatile() };
            }
            least = least.min((clock::now().0 - begin.0) as f64);
        }
        least / length.div_ceil(LINE) as f64
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, is unmapped once, and no reference to it outlives this value. A
        // refusal leaves it mapped until the process ends, which is all that can be done.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_in_the_file() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(2 * PAGE as u64).unwrap();
        let mut memory = DeviceMemory::map(&file, PAGE as u64, PAGE).unwrap();
        memory.touch();
        memory.as_mut_slice()[7] = 9;
        drop(memory);
        let mut page = [0; 8];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut page, PAGE as u64).unwrap();
        assert_eq!(page, [1, 0, 0, 0, 0, 0, 0, 9]);
    }
}
