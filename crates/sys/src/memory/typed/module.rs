//! The kernel module `whylate_memtype`: pages of every type, and what the page table says of any address.
//!
//! Its header is `kmod/whylate_memtype/whylate_memtype.h`.

use super::{Backend, Memory, Offer};
use crate::control::{control, read_write, write};
use crate::device_memory::DeviceMemory;
use std::fs::File;
use std::io;
use std::path::Path;
use whylate_core::MemoryMode;

pub const MODULE_DEVICE: &str = "/dev/whylate_memtype";

/// `struct whylate_memtype_allocate`.
#[repr(C)]
struct Allocate {
    bytes: u64,
    mode: u32,
    reserved: u32,
}
/// `struct whylate_memtype_query`.
#[repr(C)]
struct Query {
    address: u64,
    mapped: u32,
    direct: u32,
}
/// `struct whylate_memtype_status`.
#[repr(C)]
#[derive(Default)]
struct Status {
    pages: u64,
    bytes_max: u64,
}

const ALLOCATE: u64 = write::<Allocate>(b'W', 0x60);
const QUERY: u64 = read_write::<Query>(b'W', 0x61);
const STATUS: u64 = read_write::<Status>(b'W', 0x62);

/// The module's numbers for the types, in this order.
const MODES: [MemoryMode; 5] = [
    MemoryMode::WriteBack,
    MemoryMode::WriteThrough,
    MemoryMode::WriteCombining,
    MemoryMode::UncachedMinus,
    MemoryMode::Uncached,
];

#[derive(Debug)]
pub struct Module(File);

impl Module {
    /// Opens its device.
    ///
    /// # Errors
    /// When the module is not loaded, or this is not root.
    pub fn open() -> io::Result<Self> {
        File::options().read(true).write(true).open(MODULE_DEVICE).map(Self)
    }

    /// What the page tables say of an address of this process: of its own mapping, and of the kernel's direct mapping
    /// of the same page; `None` without a page, or for a type without a name here.
    pub fn query(&self, bytes: &[u8]) -> io::Result<(Option<MemoryMode>, Option<MemoryMode>)> {
        let mut query = Query { address: bytes.as_ptr() as u64, mapped: u32::MAX, direct: u32::MAX };
        // SAFETY: the request's structure, without padding.
        unsafe { control(&self.0, QUERY, &mut query)? };
        let mode = |number: u32| MODES.get(number as usize).copied();
        Ok((mode(query.mapped), mode(query.direct)))
    }

    /// Pages that the module holds for all its users, and the most bytes it may hold.
    pub fn pages(&self) -> io::Result<(u64, u64)> {
        let mut status = Status::default();
        // SAFETY: the request's structure, without padding.
        unsafe { control(&self.0, STATUS, &mut status)? };
        Ok((status.pages, status.bytes_max))
    }

    /// Maps memory of that type; its pages belong to this value's file.
    fn allocate(&self, mode: MemoryMode, bytes: usize) -> io::Result<DeviceMemory> {
        let number = MODES.iter().position(|one| *one == mode).unwrap_or(0) as u32;
        let bytes = bytes.next_multiple_of(4096);
        let mut allocate = Allocate { bytes: bytes as u64, mode: number, reserved: 0 };
        // SAFETY: the request's structure, without padding.
        unsafe { control(&self.0, ALLOCATE, &mut allocate)? };
        DeviceMemory::map_present(&self.0, 0, bytes)
    }
}

/// What the page table says of memory; `None` without the module.
pub(super) fn page_table_mode(bytes: &[u8]) -> Option<MemoryMode> {
    Module::open().and_then(|module| module.query(bytes)).ok()?.0
}

#[derive(Debug)]
pub(super) struct Memtype;

impl Backend for Memtype {
    fn name(&self) -> &'static str {
        "memtype"
    }
    fn meaning(&self) -> &'static str {
        "pages of every memory type, from the module whylate_memtype"
    }
    fn offers(&self, _: Option<&Path>) -> Result<Vec<Offer>, String> {
        Module::open().map_err(|error| {
            let fix = match cfg!(target_arch = "x86_64") {
                true => "build the module in kmod/ (DKMS) and run `modprobe whylate_memtype` as root",
                false => "the module supports the memory types of x86-64 only",
            };
            format!("{MODULE_DEVICE} cannot be opened: {error}; {fix}")
        })?;
        let offer =
            |mode| Offer { is_free: mode != MemoryMode::WriteBack, ..Offer::free(mode, MODULE_DEVICE) };
        Ok(MODES.map(offer).into())
    }
    fn open(&self, offer: &Offer, bytes: usize) -> io::Result<Box<dyn Memory>> {
        Ok(Box::new(Module::open()?.allocate(offer.mode, bytes)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requests_are_those_of_the_header() {
        assert_eq!((ALLOCATE, QUERY, STATUS), (0x4010_5760, 0xc010_5761, 0xc010_5762));
    }
}
