//! Buffers of the i915, xe and amdgpu drivers, whose users choose how they are mapped.

use super::{Backend, Memory, Offer};
use crate::control::{control, read_write, write};
use crate::device_memory::DeviceMemory;
use crate::drm::Card;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use whylate_core::MemoryMode;

/// The first command of a driver.
const DRIVER: u64 = 0x40;

/// `struct drm_i915_gem_create`.
#[repr(C)]
#[derive(Default)]
struct I915Create {
    size: u64,
    handle: u32,
    pad: u32,
}
/// `struct drm_i915_gem_mmap_offset`.
#[repr(C)]
#[derive(Default)]
struct I915Map {
    handle: u32,
    pad: u32,
    offset: u64,
    flags: u64,
    extensions: u64,
}
/// `struct drm_xe_gem_create`.
#[repr(C)]
#[derive(Default)]
struct XeCreate {
    extensions: u64,
    size: u64,
    placement: u32,
    flags: u32,
    vm_id: u32,
    handle: u32,
    cpu_caching: u16,
    pad: [u16; 3],
    reserved: [u64; 2],
}
/// `struct drm_xe_gem_mmap_offset`.
#[repr(C)]
#[derive(Default)]
struct XeMap {
    extensions: u64,
    handle: u32,
    flags: u32,
    offset: u64,
    reserved: [u64; 2],
}
/// `union drm_amdgpu_gem_create`: what is asked for; the answer's handle is where the size was.
#[repr(C)]
#[derive(Default)]
struct AmdgpuCreate {
    size: u64,
    alignment: u64,
    domains: u64,
    flags: u64,
}
/// `union drm_amdgpu_gem_mmap`: the handle, and the offset as the answer.
#[repr(C)]
struct AmdgpuMap(u64);
/// `struct drm_gem_close`.
#[repr(C)]
struct Close {
    handle: u32,
    pad: u32,
}

const I915_CREATE: u64 = read_write::<I915Create>(b'd', DRIVER + 0x1b);
const I915_MAP: u64 = read_write::<I915Map>(b'd', DRIVER + 0x24);
const XE_CREATE: u64 = read_write::<XeCreate>(b'd', DRIVER + 0x01);
const XE_MAP: u64 = read_write::<XeMap>(b'd', DRIVER + 0x02);
const AMDGPU_CREATE: u64 = read_write::<AmdgpuCreate>(b'd', DRIVER);
const AMDGPU_MAP: u64 = read_write::<AmdgpuMap>(b'd', DRIVER + 0x01);
const GEM_CLOSE: u64 = write::<Close>(b'd', 0x09);

/// Drivers whose buffers are known here, and the types that their users can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Driver {
    I915,
    Xe,
    Amdgpu,
}

impl Driver {
    fn of(card: &Path) -> Option<Self> {
        let name = card.file_name()?.to_str()?;
        let driver = std::fs::read_link(format!("/sys/class/drm/{name}/device/driver")).ok()?;
        match driver.file_name()?.to_str()? {
            "i915" => Some(Self::I915),
            "xe" => Some(Self::Xe),
            "amdgpu" => Some(Self::Amdgpu),
            _ => None,
        }
    }

    fn modes(self) -> &'static [MemoryMode] {
        match self {
            Self::I915 => &[MemoryMode::WriteBack, MemoryMode::WriteCombining, MemoryMode::Uncached],
            Self::Xe | Self::Amdgpu => &[MemoryMode::WriteBack, MemoryMode::WriteCombining],
        }
    }

    /// Makes a buffer in system memory: its handle, and where it can be mapped.
    fn make(self, card: &File, mode: MemoryMode, size: u64) -> io::Result<(u32, u64)> {
        let combines = mode == MemoryMode::WriteCombining;
        // SAFETY: each request is used with its structure; padding is a named field and zero.
        unsafe {
            match self {
                Self::I915 => {
                    let mut create = I915Create { size, ..I915Create::default() };
                    control(card, I915_CREATE, &mut create)?;
                    // I915_MMAP_OFFSET_WC, _WB, _UC.
                    let flags = match mode {
                        MemoryMode::WriteCombining => 1,
                        MemoryMode::WriteBack => 2,
                        _ => 3,
                    };
                    let mut map = I915Map { handle: create.handle, flags, ..I915Map::default() };
                    control(card, I915_MAP, &mut map)?;
                    Ok((create.handle, map.offset))
                }
                Self::Xe => {
                    // Placement 1 is system memory; caching is DRM_XE_GEM_CPU_CACHING_WB or _WC.
                    let caching = if combines { 2 } else { 1 };
                    let mut create =
                        XeCreate { size, placement: 1, cpu_caching: caching, ..XeCreate::default() };
                    control(card, XE_CREATE, &mut create)?;
                    let mut map = XeMap { handle: create.handle, ..XeMap::default() };
                    control(card, XE_MAP, &mut map)?;
                    Ok((create.handle, map.offset))
                }
                Self::Amdgpu => {
                    // AMDGPU_GEM_DOMAIN_GTT; AMDGPU_GEM_CREATE_CPU_GTT_USWC.
                    let flags = if combines { 1 << 2 } else { 0 };
                    let mut create = AmdgpuCreate { size, alignment: 4096, domains: 2, flags };
                    control(card, AMDGPU_CREATE, &mut create)?;
                    let handle = create.size as u32;
                    let mut map = AmdgpuMap(u64::from(handle));
                    control(card, AMDGPU_MAP, &mut map)?;
                    Ok((handle, map.0))
                }
            }
        }
    }
}

/// Buffers of a graphics driver, of the type that is asked for.
#[derive(Debug)]
pub(super) struct Gem;

impl Gem {
    fn cards(device: Option<&Path>) -> io::Result<Vec<(PathBuf, Driver)>> {
        let cards = device.map_or_else(Card::paths, |device| Ok(vec![device.to_owned()]))?;
        Ok(cards.into_iter().filter_map(|card| Some((card.clone(), Driver::of(&card)?))).collect())
    }
}

impl Backend for Gem {
    fn name(&self) -> &'static str {
        "gem"
    }
    fn meaning(&self) -> &'static str {
        "buffers of the i915, xe and amdgpu drivers, of the requested memory type"
    }
    fn offers(&self, device: Option<&Path>) -> Result<Vec<Offer>, String> {
        let cards = Self::cards(device).map_err(|error| error.to_string())?;
        let mut offers = Vec::new();
        for (card, driver) in cards {
            if File::options().read(true).write(true).open(&card).is_ok() {
                let offer = |mode: &MemoryMode| Offer {
                    is_free: *mode != MemoryMode::WriteBack,
                    ..Offer::free(*mode, &card)
                };
                offers.extend(driver.modes().iter().map(offer));
            }
        }
        let none = "no graphics device of the drivers i915, xe and amdgpu can be opened";
        if offers.is_empty() { Err(none.to_owned()) } else { Ok(offers) }
    }
    fn open(&self, offer: &Offer, bytes: usize) -> io::Result<Box<dyn Memory>> {
        let driver = Driver::of(&offer.place).ok_or(io::ErrorKind::Unsupported)?;
        let card = File::options().read(true).write(true).open(&offer.place)?;
        // xe takes multiples of its page size, which is 64 KiB on some cards.
        let size = bytes.next_multiple_of(64 << 10);
        let (handle, offset) = driver.make(&card, offer.mode, size as u64)?;
        let mut buffer = GemBuffer { mapping: None, handle, card };
        buffer.mapping = Some(DeviceMemory::map_present(&buffer.card, offset, size)?);
        Ok(Box::new(buffer))
    }
}

/// A buffer, mapped; given back when dropped.
struct GemBuffer {
    mapping: Option<DeviceMemory>,
    handle: u32,
    card: File,
}

impl Memory for GemBuffer {
    fn as_slice(&self) -> &[u8] {
        self.mapping.as_ref().map_or(&[], DeviceMemory::as_slice)
    }
    fn as_mut_slice(&mut self) -> &mut [u8] {
        self.mapping.as_mut().map_or(&mut [], DeviceMemory::as_mut_slice)
    }
}

impl Drop for GemBuffer {
    fn drop(&mut self) {
        self.mapping = None;
        // SAFETY: the request's structure; what cannot be given back now is given back when the file is closed.
        let _ = unsafe { control(&self.card, GEM_CLOSE, &mut Close { handle: self.handle, pad: 0 }) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requests_are_those_of_the_kernel() {
        assert_eq!((I915_CREATE, I915_MAP), (0xc010_645b, 0xc020_6464));
        assert_eq!((XE_CREATE, XE_MAP), (0xc038_6441, 0xc028_6442));
        assert_eq!((AMDGPU_CREATE, AMDGPU_MAP, GEM_CLOSE), (0xc020_6440, 0xc008_6441, 0x4008_6409));
    }
}
