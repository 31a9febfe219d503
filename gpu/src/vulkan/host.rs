//! The device's memory that this process sees, by memory type: for the table of copies.

use super::{Gpu, GpuError, Vulkan, check, list};
use ash::vk;
use std::io;
use std::path::Path;
use std::rc::Rc;
use whylate_core::MemoryMode;
use whylate_load::GPU_BACKENDS;
use whylate_sys::memory::typed::{Backend, Memory, Offer};

/// Every memory type of every device that the host can map, named `DEVICE:typeTYPE`.
#[derive(Debug)]
pub(crate) struct HostVisible;

impl Backend for HostVisible {
    fn name(&self) -> &'static str {
        GPU_BACKENDS[0].0
    }
    fn meaning(&self) -> &'static str {
        GPU_BACKENDS[0].1
    }
    fn offers(&self, device: Option<&Path>) -> Result<Vec<Offer>, String> {
        offers(device, false)
    }
    // Not free: drivers are only started on demand.
    fn open(&self, offer: &Offer, bytes: usize) -> io::Result<Box<dyn Memory>> {
        open(offer, bytes)
    }
}

/// Those of the types that are a card's own memory, past the caches of the processor: its window on the bus.
#[derive(Debug)]
pub(crate) struct CardMemory;

impl Backend for CardMemory {
    fn name(&self) -> &'static str {
        GPU_BACKENDS[2].0
    }
    fn meaning(&self) -> &'static str {
        GPU_BACKENDS[2].1
    }
    fn offers(&self, device: Option<&Path>) -> Result<Vec<Offer>, String> {
        offers(device, true)
    }
    fn open(&self, offer: &Offer, bytes: usize) -> io::Result<Box<dyn Memory>> {
        open(offer, bytes)
    }
}

/// What the devices offer, or the one that is named: `1` is a device, `1:type3` one of its types.
fn offers(device: Option<&Path>, is_card: bool) -> Result<Vec<Offer>, String> {
    let mut offers = Vec::new();
    let vulkan = Vulkan::load().map_err(|error| error.to_string())?;
    let all = list(&vulkan).map_err(|error| error.to_string())?;
    for listed in all {
        let gpu = Gpu::open(Some(&listed.number.to_string())).map_err(|error| error.to_string())?;
        offers.extend(gpu.host_visible(is_card));
    }
    offers.retain(|offer| {
        let place = offer.place.to_string_lossy();
        device
            .map(Path::to_string_lossy)
            .is_none_or(|named| place == named || place.split(':').next() == Some(named.as_ref()))
    });
    let what = if is_card {
        "memory of its own that the host maps past its caches"
    } else {
        "memory that the host can map"
    };
    match (offers.is_empty(), device) {
        (false, _) => Ok(offers),
        (true, Some(named)) => Err(format!("there is no {what} at {}", named.display())),
        (true, None) => Err(format!("no device has {what}")),
    }
}

fn open(offer: &Offer, bytes: usize) -> io::Result<Box<dyn Memory>> {
    let place = offer.place.to_string_lossy();
    let (device, index) = place.split_once(":type").unwrap_or_default();
    let index = index.parse().map_err(|_| io::Error::other(format!("{place} is not a memory type")))?;
    let gpu = Gpu::open(Some(device))?;
    Ok(Box::new(Mapped::new(gpu, index, bytes)?))
}

impl Gpu {
    /// `is_card`: only the device's own, past the caches.
    fn host_visible(&self, is_card: bool) -> impl Iterator<Item = Offer> + '_ {
        use vk::MemoryPropertyFlags as Flags;
        let seen = move |(_, memory): &(usize, &vk::MemoryType)| {
            let flags = memory.property_flags;
            // Memory that only protected queues may touch cannot be mapped.
            let is_meant =
                !is_card || flags.contains(Flags::DEVICE_LOCAL) && !flags.contains(Flags::HOST_CACHED);
            is_meant && flags.contains(Flags::HOST_VISIBLE) && !flags.contains(Flags::PROTECTED)
        };
        self.types.iter().enumerate().filter(seen).map(|(index, memory)| {
            let is_cached = memory.property_flags.contains(Flags::HOST_CACHED);
            let is_uncached = memory.property_flags.contains(Flags::DEVICE_UNCACHED_AMD);
            let mode = match (is_cached, is_uncached) {
                (true, _) => MemoryMode::WriteBack,
                (false, true) => MemoryMode::Uncached,
                (false, false) => MemoryMode::WriteCombining,
            };
            Offer { mode, place: format!("{}:type{index}", self.listed.number).into(), is_free: false }
        })
    }
}

/// Memory of a type, mapped as a whole, with the device opened for it alone.
struct Mapped {
    memory: vk::DeviceMemory,
    start: *mut u8,
    bytes: usize,
    gpu: Rc<Gpu>,
}

// SAFETY: nothing else holds the device or its loader: both were opened for this value, and go where it goes.
unsafe impl Send for Mapped {}

impl Mapped {
    fn new(gpu: Rc<Gpu>, index: u32, bytes: usize) -> Result<Self, GpuError> {
        let bytes = bytes.next_multiple_of(4096);
        let info = vk::MemoryAllocateInfo::default().allocation_size(bytes as u64).memory_type_index(index);
        // SAFETY: the structures live during the call; the type is one of this device.
        let memory =
            check(&format!("allocating {bytes} bytes"), unsafe { gpu.device.allocate_memory(&info, None) })?;
        let mut mapped = Self { memory, start: std::ptr::null_mut(), bytes, gpu };
        // SAFETY: memory of a type that the host sees, mapped once, as a whole.
        let start =
            unsafe { mapped.gpu.device.map_memory(memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty()) };
        mapped.start = check("mapping memory", start)?.cast();
        // SAFETY: as long as that, and only this value knows where. New memory need not be initialised.
        unsafe { mapped.start.write_bytes(0, bytes) };
        Ok(mapped)
    }
}

impl Memory for Mapped {
    fn as_slice(&self) -> &[u8] {
        // SAFETY: mapped as long as this value lives; no command of the device uses it.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }
    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: nothing uses it any more; freeing memory unmaps it.
        unsafe { self.gpu.device.free_memory(self.memory, None) };
    }
}
