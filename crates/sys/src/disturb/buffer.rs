//! A dumb buffer of a graphics device, mapped and given back: where the driver maps it write-combining, the kernel
//! changes the attributes of its pages, and with them flushes translations and caches of every CPU.
//!
//! Drivers decide how they map: vgem and most drivers without a cache-coherent device map write-combining.

use crate::memory::control::{control, read_write};
use crate::memory::mapping::Mapping;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `struct drm_mode_create_dumb` of include/uapi/drm/drm_mode.h.
#[repr(C)]
#[derive(Default)]
struct CreateDumb {
    height: u32,
    width: u32,
    bits_per_pixel: u32,
    flags: u32,
    handle: u32,
    pitch: u32,
    size: u64,
}
/// `struct drm_mode_map_dumb`.
#[repr(C)]
#[derive(Default)]
struct MapDumb {
    handle: u32,
    padding: u32,
    offset: u64,
}
/// `struct drm_mode_destroy_dumb`.
#[repr(C)]
struct DestroyDumb {
    handle: u32,
}
const _: () = assert!(size_of::<CreateDumb>() == 32 && size_of::<MapDumb>() == 16);

const CREATE_DUMB: u64 = read_write::<CreateDumb>(b'd', 0xb2);
const MAP_DUMB: u64 = read_write::<MapDumb>(b'd', 0xb3);
const DESTROY_DUMB: u64 = read_write::<DestroyDumb>(b'd', 0xb4);

/// Bytes of the buffer that is made to disturb.
const CYCLE_BYTES: usize = 1 << 20;
/// Pixels of four bytes in a line of a buffer.
const WIDTH: u32 = 512;

/// A graphics device with dumb buffers.
#[derive(Clone, Debug)]
pub struct BufferDevice {
    file: Arc<File>,
    path: PathBuf,
}

impl BufferDevice {
    /// The first device below `/dev/dri` that makes dumb buffers.
    ///
    /// # Errors
    /// When there is none, with what was tried.
    pub fn find() -> io::Result<Self> {
        let mut tried = Vec::new();
        for path in Self::cards()? {
            match Self::open(&path).and_then(|mut device| device.cycle().map(|()| device)) {
                Ok(device) => return Ok(device),
                Err(error) => tried.push(format!("{}: {error}", path.display())),
            }
        }
        let tried = if tried.is_empty() { "/dev/dri holds no card".to_owned() } else { tried.join("; ") };
        Err(none(format!("no graphics device makes dumb buffers ({tried})")))
    }

    /// The devices below `/dev/dri`.
    ///
    /// # Errors
    /// When there is no such folder.
    pub fn cards() -> io::Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir("/dev/dri")
            .map_err(|_| none("there is no graphics device (/dev/dri is missing)".to_owned()))?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths
            .retain(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"card")));
        paths.sort();
        Ok(paths)
    }

    /// The device of that file.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        Ok(Self { file: Arc::new(file), path: path.to_owned() })
    }

    /// The device's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a buffer of 1 MiB, maps it, writes to each page, unmaps it and gives it back.
    ///
    /// # Errors
    /// When the driver makes no such buffers, or has no memory left.
    pub fn cycle(&mut self) -> io::Result<()> {
        let mut buffer = self.buffer(CYCLE_BYTES)?;
        buffer.as_mut_slice().iter_mut().step_by(4096).for_each(|byte| *byte = std::hint::black_box(1));
        Ok(())
    }

    /// Makes a buffer of at least that size and keeps it mapped.
    ///
    /// # Errors
    /// As [`BufferDevice::cycle`].
    pub fn buffer(&self, bytes: usize) -> io::Result<DumbBuffer> {
        let height =
            u32::try_from(bytes.div_ceil(WIDTH as usize * 4)).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut create = CreateDumb { height, width: WIDTH, bits_per_pixel: 32, ..CreateDumb::default() };
        self.control(CREATE_DUMB, &mut create)?;
        let mut buffer = DumbBuffer { mapping: None, handle: create.handle, device: self.clone() };
        let mut map = MapDumb { handle: create.handle, ..MapDumb::default() };
        self.control(MAP_DUMB, &mut map)?;
        buffer.mapping = Some(Mapping::of(&*self.file, map.offset, create.size as usize)?);
        Ok(buffer)
    }

    fn control<T>(&self, request: u64, argument: &mut T) -> io::Result<()> {
        // SAFETY: each request is used with the structure that its number carries the size of; none has padding.
        unsafe { control(&self.file, request, argument) }.map(drop)
    }
}

/// A buffer of the device, mapped; given back when dropped.
#[derive(Debug)]
pub struct DumbBuffer {
    mapping: Option<Mapping>,
    handle: u32,
    device: BufferDevice,
}

impl DumbBuffer {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.mapping.as_ref().map_or(&[], Mapping::as_slice)
    }

    /// The bytes, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.mapping.as_mut().map_or(&mut [], Mapping::as_mut_slice)
    }
}

impl Drop for DumbBuffer {
    fn drop(&mut self) {
        self.mapping = None;
        // What is not given back now is when the device's file is closed.
        let _ = self.device.control(DESTROY_DUMB, &mut DestroyDumb { handle: self.handle });
    }
}

fn none(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requests_are_those_of_the_kernel() {
        assert_eq!((CREATE_DUMB, MAP_DUMB, DESTROY_DUMB), (0xc020_64b2, 0xc010_64b3, 0xc004_64b4));
    }
}
