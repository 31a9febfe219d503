//! Memory that two processes share: an array of 64-bit words, each atomic.
//!
//! The measuring process writes figures there and the runner reads them. Neither ever asks the other for anything
//! in between, and since each has an address space of its own, the runner's unmappings never interrupt the
//! measuring process.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

/// A shared array of words, all 0 at first.
#[derive(Debug)]
pub struct SharedWords {
    file: OwnedFd,
    start: *mut AtomicU64,
    length: usize,
}

// SAFETY: the memory is only reached through atomics, from whichever thread.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Makes an array of `length` words.
    ///
    /// # Errors
    /// When the kernel has no memory for it.
    pub fn create(length: usize) -> io::Result<Self> {
        let file = memfd_create("whylate-probe", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, (length * size_of::<u64>()) as u64)?;
        // Sealed, so that neither side can shrink the file below what the other has mapped.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        Self::map(file, length)
    }

    /// Maps the array that another process has made and passed on as a file descriptor.
    pub fn open(file: OwnedFd) -> io::Result<Self> {
        let seals = rustix::fs::fcntl_get_seals(&file)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the shared memory is not sealed"));
        }
        let length = fstat(&file)?.st_size as usize / size_of::<u64>();
        Self::map(file, length)
    }

    /// Maps an array map of the kernel's BPF programs that has at least `length` words and may be mapped; such a map
    /// never shrinks.
    pub fn of_map(file: OwnedFd, length: usize) -> io::Result<Self> {
        let information = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
        let field = |name: &str| -> Option<usize> {
            let line = information.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.trim().parse().ok()
        };
        let bytes = field("value_size").zip(field("max_entries")).map_or(0, |(size, count)| size * count);
        if bytes < length * size_of::<u64>() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the file is no BPF map of this size"));
        }
        Self::map(file, length)
    }

    /// Maps the ring of a performance event, which has `length` words with the page before them. The kernel refuses a
    /// length other than one page plus a power of two of pages, and such a mapping does not shrink.
    ///
    /// # Errors
    /// EPERM if more memory would be locked than an ordinary user may (`kernel.perf_event_mlock_kb`).
    pub(crate) fn of_event(file: OwnedFd, length: usize) -> io::Result<Self> {
        Self::map(file, length)
    }

    fn map(file: OwnedFd, length: usize) -> io::Result<Self> {
        let bytes = (length * size_of::<u64>()).max(1);
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing memory, and every access stays
        // inside it, because no caller's file gets shorter: `create` and `open` pass a memfd that is sealed against
        // shrinking and whose size they know; the kernel allocates a BPF array (`of_map`) and the ring of an event
        // (`of_event`) with a fixed size, keeps them as long as the mapping, and refuses to map more than there is.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                // Populated: the first write of a measuring thread takes no page fault.
                MapFlags::SHARED | MapFlags::POPULATE,
                &file,
                0,
            )
        }?;
        Ok(Self { file, start: start.cast(), length })
    }

    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, `length` words long, lives as long as `self`, and holds plain
        // integers, for which every bit pattern is valid; other processes change them only as atomics.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }

    /// The file, to pass on to the other process.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and no slice of it outlives `self`.
        let _ = unsafe { munmap(self.start.cast(), (self.length * size_of::<u64>()).max(1)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn both_mappings_see_the_same_words() {
        let ours = SharedWords::create(1000).unwrap();
        let theirs = SharedWords::open(ours.file().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(theirs.words().len(), 1000);
        ours.words()[999].store(42, Relaxed);
        assert_eq!(theirs.words()[999].load(Relaxed), 42);
    }

    #[test]
    fn a_foreign_file_is_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(SharedWords::open(file.try_clone().unwrap().into()).is_err());
        assert!(SharedWords::of_map(file.into(), 8).is_err());
    }
}
