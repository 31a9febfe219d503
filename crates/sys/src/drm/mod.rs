//! Cards of the kernel's Direct Rendering Manager, as far as every driver offers it: dumb buffers, which the CPU draws into,
//! and displays that show them.

mod mode;

pub use mode::{Display, Flips};

use crate::control;
use crate::device_memory::DeviceMemory;
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

const CREATE_DUMB: u64 = read_write::<CreateDumb>(0xb2);
const MAP_DUMB: u64 = read_write::<MapDumb>(0xb3);
const DESTROY_DUMB: u64 = read_write::<DestroyDumb>(0xb4);

/// `DRM_IOWR` with a structure.
const fn read_write<T>(number: u64) -> u64 {
    control::read_write::<T>(b'd', number)
}

/// Pixels of a row of a buffer that is never shown; four bytes each.
const WIDTH: u32 = 512;

#[derive(Clone, Debug)]
pub struct Card {
    file: Arc<File>,
    path: PathBuf,
}

impl Card {
    /// The nodes of cards below `/dev/dri`, in order.
    pub fn paths() -> io::Result<Vec<PathBuf>> {
        let is_card = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"card"))
        };
        let entries = std::fs::read_dir("/dev/dri").map_err(|_| {
            io::Error::new(io::ErrorKind::NotFound, "there is no graphics device (/dev/dri is missing)")
        })?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_card).collect();
        paths.sort();
        Ok(paths)
    }

    /// Opens a node.
    ///
    /// # Errors
    /// When it is missing, or not for this user.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        Ok(Self { file: Arc::new(file), path: path.to_owned() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a buffer of at least that many bytes, and maps it.
    pub fn buffer_of(&self, bytes: usize) -> io::Result<DumbBuffer> {
        let height = bytes.div_ceil(4 * WIDTH as usize);
        self.buffer(WIDTH, u32::try_from(height).map_err(|_| io::ErrorKind::InvalidInput)?)
    }

    /// Makes a buffer of that many pixels of four bytes, and maps it.
    ///
    /// # Errors
    /// When the driver makes no such buffers, or has no memory left.
    pub fn buffer(&self, width: u32, height: u32) -> io::Result<DumbBuffer> {
        let mut create = CreateDumb { height, width, bits_per_pixel: 32, ..CreateDumb::default() };
        control(&self.file, CREATE_DUMB, &mut create)?;
        let handle = Handle { file: Arc::clone(&self.file), number: create.handle };
        let mut map = MapDumb { handle: create.handle, ..MapDumb::default() };
        control(&self.file, MAP_DUMB, &mut map)?;
        let memory = DeviceMemory::map(&self.file, map.offset, create.size as usize)?;
        Ok(DumbBuffer { memory, pitch: create.pitch, handle })
    }
}

/// A buffer of a card, mapped; unmapped and given back when it is dropped.
#[derive(Debug)]
pub struct DumbBuffer {
    // Unmapped before its handle is given back.
    pub memory: DeviceMemory,
    /// Bytes of a row.
    pub pitch: u32,
    handle: Handle,
}

#[derive(Debug)]
struct Handle {
    file: Arc<File>,
    number: u32,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // An error means that the device is gone, and the buffer with it.
        let _ = control(&self.file, DESTROY_DUMB, &mut DestroyDumb { handle: self.number });
    }
}

fn control<T>(file: &File, request: u64, argument: &mut T) -> io::Result<()> {
    // SAFETY: each request is used with the structure that its number carries the size of, without padding; arrays
    // that it points to belong to the caller and have the length in the field next to them.
    unsafe { control::control(file, request, argument) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requests_are_those_of_the_kernel() {
        assert_eq!((CREATE_DUMB, MAP_DUMB, DESTROY_DUMB), (0xc020_64b2, 0xc010_64b3, 0xc004_64b4));
    }
}
