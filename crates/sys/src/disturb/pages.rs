//! Buffers whose pages the kernel takes out of its own cached mapping: made, written and given back, or made once and
//! written again and again.
//!
//! A dumb buffer of a graphics device that is mapped write-combining changes the attributes of its pages, and with them
//! flushes translations and caches of every CPU. Drivers decide how they map: vgem and most drivers of devices that do
//! not snoop map write-combining. Secret memory (memfd_secret(2)) does the same on any machine: the first touch of a page
//! takes it out of the kernel's direct map.

use crate::device_memory::DeviceMemory;
use crate::drm::{Card, DumbBuffer};
use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// The smallest page size: lengths are multiples of it.
const PAGE: usize = 4096;

/// Where buffers come from.
#[derive(Clone, Debug)]
pub enum Origin {
    Card(Card),
    /// `memfd_secret`.
    Secret,
}

enum Made {
    Dumb(DumbBuffer),
    Secret(DeviceMemory),
}

impl Made {
    fn memory(&mut self) -> &mut DeviceMemory {
        match self {
            Self::Dumb(buffer) => &mut buffer.memory,
            Self::Secret(memory) => memory,
        }
    }
}

/// Makes buffers of one size.
pub struct Buffers {
    origin: Origin,
    length: usize,
    /// The buffer that is used again and again.
    kept: Option<Made>,
}

impl Buffers {
    /// Makes one and gives it back, unless it is used for all turns (`reuse`).
    ///
    /// # Errors
    /// What the driver or the kernel says; ENOSYS where there is no secret memory.
    pub fn new(origin: Origin, bytes: usize, reuse: bool) -> io::Result<Self> {
        let mut buffers = Self { origin, length: bytes.max(1).next_multiple_of(PAGE), kept: None };
        let mut first = buffers.make()?;
        first.memory().touch();
        buffers.kept = reuse.then_some(first);
        Ok(buffers)
    }

    /// Writes to each page of a buffer: of a new one, which is given back, or of the one that is kept.
    ///
    /// # Errors
    /// When no memory is left, or the device is gone.
    pub fn turn(&mut self) -> io::Result<()> {
        match &mut self.kept {
            Some(made) => made.memory().touch(),
            None => self.make()?.memory().touch(),
        }
        Ok(())
    }

    /// Time to read a cached line of such a buffer: see [`DeviceMemory::read_ns`].
    pub fn read_ns(&self) -> io::Result<f64> {
        let mut made = self.make()?;
        Ok(made.memory().read_ns())
    }

    fn make(&self) -> io::Result<Made> {
        match &self.origin {
            Origin::Card(card) => card.buffer_of(self.length).map(Made::Dumb),
            Origin::Secret => secret(self.length).map(Made::Secret),
        }
    }
}

/// Memory that the kernel does not map itself.
fn secret(length: usize) -> io::Result<DeviceMemory> {
    // SAFETY: memfd_secret takes a number and touches no memory of the caller; what it returns is a new file of ours.
    let file = unsafe {
        let number = libc::syscall(libc::SYS_memfd_secret, libc::O_CLOEXEC);
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        File::from(OwnedFd::from_raw_fd(number as i32))
    };
    file.set_len(length as u64)?;
    DeviceMemory::map(&file, 0, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_buffers_are_made_again_or_kept() {
        for reuse in [false, true] {
            let mut buffers = match Buffers::new(Origin::Secret, 10_000, reuse) {
                Ok(buffers) => buffers,
                // Not configured, or not switched on.
                Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => return,
                Err(error) => panic!("{error}"),
            };
            assert_eq!((buffers.length, buffers.kept.is_some()), (12_288, reuse));
            for _ in 0..3 {
                buffers.turn().unwrap();
            }
            // It is ordinary cached memory to its owner.
            assert!(buffers.read_ns().unwrap() > 0.0);
        }
    }
}
