//! Buffers that are made for devices: udmabuf (of ordinary memory) and the DMA heaps.

use super::{Backend, Memory, Offer};
use crate::control::{control, read_write, write};
use crate::device_memory::DeviceMemory;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use whylate_core::MemoryMode;

/// `struct udmabuf_create` of include/uapi/linux/udmabuf.h.
#[repr(C)]
struct CreateUdmabuf {
    memfd: u32,
    flags: u32,
    offset: u64,
    size: u64,
}
const CREATE: u64 = write::<CreateUdmabuf>(b'u', 0x42);
const DEVICE: &str = "/dev/udmabuf";
const PAGE: usize = 4096;

/// A file in memory as a buffer for devices.
#[derive(Debug)]
pub(super) struct Udmabuf;

impl Backend for Udmabuf {
    fn name(&self) -> &'static str {
        "udmabuf"
    }
    fn meaning(&self) -> &'static str {
        "ordinary memory as a DMA-BUF (a buffer for devices)"
    }
    fn offers(&self, _: Option<&Path>) -> Result<Vec<Offer>, String> {
        let opened = File::options().read(true).write(true).open(DEVICE);
        opened.map_err(|error| format!("cannot open {DEVICE}: {error}; run `modprobe udmabuf` as root"))?;
        Ok(vec![Offer { is_free: false, ..Offer::free(MemoryMode::WriteBack, DEVICE) }])
    }
    fn open(&self, _: &Offer, bytes: usize) -> io::Result<Box<dyn Memory>> {
        let size = bytes.next_multiple_of(PAGE) as u64;
        let memory = memfd_create("whylate", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&memory, size)?;
        fcntl_add_seals(&memory, SealFlags::SHRINK)?;
        let device = File::options().read(true).write(true).open(DEVICE)?;
        let mut create = CreateUdmabuf { memfd: memory.as_raw_fd() as u32, flags: 1, offset: 0, size };
        // SAFETY: the request's structure, without padding.
        let buffer = unsafe { control(&device, CREATE, &mut create)? };
        // SAFETY: the answer is a new descriptor without another owner.
        let buffer = unsafe { OwnedFd::from_raw_fd(buffer) };
        Ok(Box::new(DeviceMemory::map_present(&buffer, 0, size as usize)?))
    }
}

/// `struct dma_heap_allocation_data` of include/uapi/linux/dma-heap.h.
#[repr(C)]
struct Allocate {
    len: u64,
    fd: u32,
    fd_flags: u32,
    heap_flags: u64,
}
const ALLOCATE: u64 = read_write::<Allocate>(b'H', 0);
const HEAPS: &str = "/dev/dma_heap";

/// The kernel's heaps of buffers for devices.
#[derive(Debug)]
pub(super) struct DmaHeap;

impl Backend for DmaHeap {
    fn name(&self) -> &'static str {
        "dma-heap"
    }
    fn meaning(&self) -> &'static str {
        "buffers for devices, from a DMA-BUF heap"
    }
    fn offers(&self, device: Option<&Path>) -> Result<Vec<Offer>, String> {
        let heaps: Vec<_> = match device {
            Some(device) => vec![device.to_owned()],
            None => fs::read_dir(HEAPS)
                .map_err(|_| format!("there is no {HEAPS}: the kernel has no CONFIG_DMABUF_HEAPS_SYSTEM"))?
                .flatten()
                .map(|entry| entry.path())
                .collect(),
        };
        let heaps = heaps.into_iter().filter(|heap| File::open(heap).is_ok());
        let offers: Vec<Offer> = heaps
            .map(|heap| {
                let is_uncached = heap.to_string_lossy().ends_with("-uncached");
                let mode = if is_uncached { MemoryMode::WriteCombining } else { MemoryMode::WriteBack };
                Offer { is_free: is_uncached, ..Offer::free(mode, heap) }
            })
            .collect();
        if offers.is_empty() {
            Err(format!("no heap in {HEAPS} can be opened: run as root"))
        } else {
            Ok(offers)
        }
    }
    fn open(&self, offer: &Offer, bytes: usize) -> io::Result<Box<dyn Memory>> {
        let heap = File::open(&offer.place)?;
        let len = bytes.next_multiple_of(PAGE) as u64;
        let flags = (libc::O_RDWR | libc::O_CLOEXEC) as u32;
        let mut allocate = Allocate { len, fd: 0, fd_flags: flags, heap_flags: 0 };
        // SAFETY: the request's structure, without padding.
        unsafe { control(&heap, ALLOCATE, &mut allocate)? };
        // SAFETY: the kernel filled in a new descriptor without another owner.
        let buffer = unsafe { OwnedFd::from_raw_fd(allocate.fd as i32) };
        Ok(Box::new(DeviceMemory::map_present(&buffer, 0, len as usize)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requests_are_those_of_the_kernel() {
        assert_eq!((CREATE, ALLOCATE), (0x4018_7542, 0xc018_4800));
    }
}
