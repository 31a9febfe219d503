//! Buffers that are mapped for a load alone: page-aligned, present before use, on a chosen node, on huge pages.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::ptr::NonNull;

/// Size of the huge pages that are asked for: that of x86-64 and of arm64 with 4 KiB pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Steps in which pages are touched if the kernel cannot populate a mapping: the smallest page size.
const TOUCH_BYTES: usize = 4096;
/// The most nodes that Linux can be built for (`MAX_NUMNODES`).
const NODES_MAX: u32 = 1024;

/// Why there is no buffer.
#[derive(Debug, thiserror::Error)]
pub enum BufferError {
    /// A size of 0, or one that no address space holds.
    #[error("a buffer of {bytes} bytes cannot be allocated")]
    Size { bytes: usize },
    /// The kernel refused the mapping or its pages.
    #[error("mapping {bytes} bytes failed: {source}")]
    Map { bytes: usize, source: io::Error },
    /// The memory cannot be on that NUMA node.
    #[error(
        "the kernel refuses memory on NUMA node {node}: {source}; /sys/devices/system/node/has_memory lists the nodes"
    )]
    Node { node: u32, source: io::Error },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// None were asked for; the system's own policy applies.
    NotAsked,
    /// All of it is on pages reserved for hugetlbfs (`vm.nr_hugepages`).
    Reserved,
    /// Transparent huge pages: how many bytes the kernel gave at allocation (it may add more later).
    Transparent {
        /// Bytes on huge pages.
        bytes: u64,
    },
    /// Asked for, and not available.
    Unavailable { reason: String },
}

/// Private anonymous memory, page-aligned, every page present.
#[derive(Debug)]
pub struct Buffer {
    address: NonNull<u8>,
    bytes: usize,
    mapped: usize,
    huge_pages: HugePages,
}

// SAFETY: a buffer owns its mapping alone; nothing about it is tied to a thread.
unsafe impl Send for Buffer {}
// SAFETY: shared references only read.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Maps `bytes` bytes of zeros and brings every page into memory.
    ///
    /// `huge_pages`: reserved ones first, else transparent ones; what came of it is in [`Buffer::huge_pages`].
    /// `node`: the NUMA node that must hold it; by default the node of the CPU that calls this.
    ///
    /// # Errors
    /// [`BufferError`] when the kernel refuses the size or the node.
    pub fn allocate(bytes: usize, huge_pages: bool, node: Option<u32>) -> Result<Self, BufferError> {
        if bytes == 0 || bytes > isize::MAX as usize - 2 * HUGE_PAGE_BYTES {
            return Err(BufferError::Size { bytes });
        }
        if !huge_pages {
            return Self::map(bytes, bytes.next_multiple_of(TOUCH_BYTES), MapFlags::PRIVATE, node);
        }
        let mapped = bytes.next_multiple_of(HUGE_PAGE_BYTES);
        match Self::map(bytes, mapped, MapFlags::PRIVATE | MapFlags::HUGETLB, node) {
            Ok(buffer) => Ok(Self { huge_pages: HugePages::Reserved, ..buffer }),
            Err(BufferError::Node { node, source }) => Err(BufferError::Node { node, source }),
            Err(_) => Self::map_transparent(bytes, mapped, node),
        }
    }

    fn map(bytes: usize, mapped: usize, flags: MapFlags, node: Option<u32>) -> Result<Self, BufferError> {
        let mut buffer = Self::reserve(bytes, mapped, flags)?;
        buffer.bind(node)?;
        let strict = flags.contains(MapFlags::HUGETLB);
        buffer.populate(strict).map_err(|source| BufferError::Map { bytes, source })?;
        Ok(buffer)
    }

    /// Maps so that whole huge pages fit, asks for them, and checks what the kernel gave.
    fn map_transparent(bytes: usize, mapped: usize, node: Option<u32>) -> Result<Self, BufferError> {
        let mut buffer = Self::reserve(bytes, mapped + HUGE_PAGE_BYTES, MapFlags::PRIVATE)?;
        buffer.align_to_huge_pages(mapped);
        buffer.bind(node)?;
        // SAFETY: the range is this buffer's own mapping; the advice changes no contents.
        let advised =
            unsafe { madvise(buffer.address.as_ptr().cast(), buffer.mapped, Advice::LinuxHugepage) };
        buffer.populate(false).map_err(|source| BufferError::Map { bytes, source })?;
        buffer.huge_pages = match advised {
            Err(error) => HugePages::Unavailable {
                reason: format!("no reserved huge pages are free, and transparent ones are refused: {error}"),
            },
            Ok(()) => match transparent_bytes(buffer.address.as_ptr() as usize) {
                Some(0) => HugePages::Unavailable {
                    reason: "no reserved huge pages are free, and the kernel gave no transparent ones \
                             (/sys/kernel/mm/transparent_hugepage/enabled, or memory is fragmented)"
                        .to_owned(),
                },
                Some(found) => HugePages::Transparent { bytes: found.min(mapped as u64) },
                None => HugePages::Unavailable { reason: "/proc/self/smaps cannot be read".to_owned() },
            },
        };
        Ok(buffer)
    }

    fn reserve(bytes: usize, mapped: usize, flags: MapFlags) -> Result<Self, BufferError> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no existing memory.
        let address = unsafe { mmap_anonymous(std::ptr::null_mut(), mapped, protection, flags) };
        let address = address.map_err(|source| BufferError::Map { bytes, source: source.into() })?;
        let address = NonNull::new(address.cast::<u8>())
            .ok_or_else(|| BufferError::Map { bytes, source: io::ErrorKind::AddrNotAvailable.into() })?;
        Ok(Self { address, bytes, mapped, huge_pages: HugePages::NotAsked })
    }

    /// Gives back what lies before the first huge-page border and after `mapped` bytes from there.
    fn align_to_huge_pages(&mut self, mapped: usize) {
        let head = (self.address.as_ptr() as usize).next_multiple_of(HUGE_PAGE_BYTES)
            - self.address.as_ptr() as usize;
        let tail = self.mapped - head - mapped;
        // SAFETY: `head + mapped + tail` is the whole mapping (it has one huge page more than `mapped`); both
        // ends are page-aligned, unused, and given up here. Should the kernel refuse, they stay mapped, unused.
        unsafe {
            let start = self.address.as_ptr();
            if head > 0 {
                let _ = munmap(start.cast(), head);
            }
            if tail > 0 {
                let _ = munmap(start.add(head + mapped).cast(), tail);
            }
            self.address = NonNull::new_unchecked(start.add(head));
        }
        self.mapped = mapped;
    }

    /// Binds the pages to `node`.
    fn bind(&mut self, node: Option<u32>) -> Result<(), BufferError> {
        let Some(node) = node else { return Ok(()) };
        if node >= NODES_MAX {
            return Err(BufferError::Node { node, source: io::ErrorKind::InvalidInput.into() });
        }
        let mut mask = [0u64; NODES_MAX as usize / 64];
        mask[node as usize / 64] = 1 << (node % 64);
        let address = self.address.as_ptr();
        // SAFETY: the range is this buffer's own mapping, nothing of it is present yet; the kernel reads
        // NODES_MAX bits (it takes one less than the number given) of the mask, which outlives the call.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                address,
                self.mapped,
                libc::MPOL_BIND,
                mask.as_ptr(),
                u64::from(NODES_MAX) + 1,
                0u32,
            )
        };
        match answer {
            0 => Ok(()),
            _ => Err(BufferError::Node { node, source: io::Error::last_os_error() }),
        }
    }

    /// Brings every page into memory. `strict`: only by the kernel's own means, since touching a reserved huge
    /// page that is not there after all kills the process.
    fn populate(&mut self, strict: bool) -> io::Result<()> {
        // SAFETY: the range is this buffer's own mapping; populating changes no contents.
        let populated =
            unsafe { madvise(self.address.as_ptr().cast(), self.mapped, Advice::LinuxPopulateWrite) };
        match populated {
            Ok(()) => Ok(()),
            // Before Linux 5.14.
            Err(rustix::io::Errno::INVAL) if !strict => {
                for offset in (0..self.mapped).step_by(TOUCH_BYTES) {
                    // SAFETY: the offset is inside the mapping, which no other code knows of.
                    unsafe { self.address.as_ptr().add(offset).write_volatile(0) };
                }
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Size in bytes, as asked for.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Never: a buffer has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub fn huge_pages(&self) -> &HugePages {
        &self.huge_pages
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the mapping holds at least `bytes` initialised bytes for as long as the buffer lives.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.bytes) }
    }

    /// The bytes, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the buffer is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.bytes) }
    }

    /// The whole 64-bit words of it.
    pub fn as_words(&self) -> &[u64] {
        // SAFETY: page-aligned, initialised, and every bit pattern is a u64.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr().cast(), self.bytes / 8) }
    }

    /// The whole 64-bit words of it, to be written.
    pub fn as_words_mut(&mut self) -> &mut [u64] {
        // SAFETY: page-aligned, initialised, every bit pattern is a u64, and the buffer is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr().cast(), self.bytes / 8) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the mapping is this buffer's own and no reference to it outlives the buffer. A refusal would
        // leave it mapped until the process ends, which is all that can be done.
        let _ = unsafe { munmap(self.address.as_ptr().cast(), self.mapped) };
    }
}

/// Bytes on transparent huge pages in the mapping that holds `address`; `None` if /proc/self/smaps cannot be read.
fn transparent_bytes(address: usize) -> Option<u64> {
    transparent_bytes_in(&std::fs::read_to_string("/proc/self/smaps").ok()?, address)
}

/// The same from the file's text.
fn transparent_bytes_in(smaps: &str, address: usize) -> Option<u64> {
    let mut inside = false;
    for line in smaps.lines() {
        let first = line.split_ascii_whitespace().next().unwrap_or_default();
        if let Some((from, to)) = first.split_once('-') {
            let parse = |text| usize::from_str_radix(text, 16);
            inside = matches!((parse(from), parse(to)), (Ok(from), Ok(to)) if (from..to).contains(&address));
        } else if inside && first == "AnonHugePages:" {
            let kilobytes = line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()?;
            return Some(kilobytes * 1024);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_there_and_writable() {
        for bytes in [1, 4096, 100_000, 5 << 20] {
            let mut buffer = Buffer::allocate(bytes, false, None).unwrap();
            assert_eq!(buffer.len(), bytes);
            assert!(buffer.as_slice().iter().all(|byte| *byte == 0));
            buffer.as_mut_slice().fill(0xA5);
            assert!(buffer.as_slice().iter().all(|byte| *byte == 0xA5));
            assert_eq!(buffer.as_words_mut().len(), bytes / 8);
            assert_eq!(buffer.huge_pages(), &HugePages::NotAsked);
        }
    }

    #[test]
    fn huge_pages_are_there_or_their_absence_is_reported() {
        let mut buffer = Buffer::allocate((5 << 20) + 17, true, None).unwrap();
        buffer.as_mut_slice().fill(1);
        assert_eq!(buffer.as_slice().as_ptr() as usize % HUGE_PAGE_BYTES, 0);
        match buffer.huge_pages() {
            HugePages::NotAsked => panic!("they were asked for"),
            HugePages::Unavailable { reason } => assert!(!reason.is_empty()),
            HugePages::Transparent { bytes } => assert!((1..=6 << 20).contains(bytes)),
            HugePages::Reserved => {}
        }
    }

    #[test]
    fn a_node_that_is_not_there_is_an_error() {
        for node in [1023, 5000] {
            let error = Buffer::allocate(4096, false, Some(node)).unwrap_err();
            assert!(matches!(error, BufferError::Node { node: refused, .. } if refused == node), "{error}");
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(matches!(Buffer::allocate(0, false, None), Err(BufferError::Size { bytes: 0 })));
        assert!(matches!(Buffer::allocate(usize::MAX, true, None), Err(BufferError::Size { .. })));
        assert!(matches!(Buffer::allocate(1 << 60, false, None), Err(BufferError::Map { .. })));
    }

    #[test]
    fn smaps_are_read_for_the_mapping_asked_for() {
        let smaps = "7f00-7f10 rw-p 00000000 00:00 0\nSize: 64 kB\nAnonHugePages: 2048 kB\n\
                     7f10-7f20 rw-p 00000000 00:00 0 [heap]\nAnonHugePages:     0 kB\n";
        assert_eq!(transparent_bytes_in(smaps, 0x7f0f), Some(2048 * 1024));
        assert_eq!(transparent_bytes_in(smaps, 0x7f10), Some(0));
        assert_eq!(transparent_bytes_in(smaps, 0x9000), None);
    }
}
