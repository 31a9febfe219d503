//! A dumb buffer of a graphics device, mapped and given back: where the driver maps it write-combining, the kernel
//! changes the attributes of its pages, and with them flushes translations and caches of every CPU.
//!
//! Drivers decide how they map: vgem and most drivers without a cache-coherent device map write-combining.

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

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
    3 << 30 | (size_of::<T>() as u64) << 16 | (b'd' as u64) << 8 | number
}

/// Width and height of a buffer in pixels of four bytes: 1 MiB.
const SIDE: u32 = 512;

/// A graphics device with dumb buffers.
#[derive(Debug)]
pub struct BufferDevice {
    file: File,
    path: PathBuf,
}

impl BufferDevice {
    /// The first device below `/dev/dri` that makes dumb buffers.
    ///
    /// # Errors
    /// When there is none, with what was tried.
    pub fn find() -> io::Result<Self> {
        let none = |reason: String| io::Error::new(io::ErrorKind::NotFound, reason);
        let entries = std::fs::read_dir("/dev/dri")
            .map_err(|_| none("there is no graphics device (/dev/dri is missing)".to_owned()))?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths
            .retain(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"card")));
        paths.sort();
        let mut tried = Vec::new();
        for path in paths {
            match Self::open(&path).and_then(|mut device| device.cycle().map(|()| device)) {
                Ok(device) => return Ok(device),
                Err(error) => tried.push(format!("{}: {error}", path.display())),
            }
        }
        let tried = if tried.is_empty() { "/dev/dri holds no card".to_owned() } else { tried.join("; ") };
        Err(none(format!("no graphics device makes dumb buffers ({tried})")))
    }

    fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        Ok(Self { file, path: path.to_owned() })
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
        let mut create =
            CreateDumb { height: SIDE, width: SIDE, bits_per_pixel: 32, ..CreateDumb::default() };
        self.control(CREATE_DUMB, &mut create)?;
        let used = self.touch(create.handle, create.size as usize);
        self.control(DESTROY_DUMB, &mut DestroyDumb { handle: create.handle })?;
        used
    }

    fn touch(&self, handle: u32, length: usize) -> io::Result<()> {
        let mut map = MapDumb { handle, ..MapDumb::default() };
        self.control(MAP_DUMB, &mut map)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing memory; it is written
        // inside its length only, as bytes that nothing else refers to, and unmapped before this returns.
        unsafe {
            let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
            let start = mmap(std::ptr::null_mut(), length, protection, flags, &self.file, map.offset)?;
            for offset in (0..length).step_by(4096) {
                start.cast::<u8>().add(offset).write_volatile(1);
            }
            munmap(start, length)?;
        }
        Ok(())
    }

    fn control<T>(&self, request: u64, argument: &mut T) -> io::Result<()> {
        // SAFETY: each request is used with the structure that its number carries the size of, which the kernel reads
        // and writes during the call only.
        let outcome =
            unsafe { libc::ioctl(self.file.as_raw_fd(), request as _, std::ptr::from_mut(argument)) };
        if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requests_are_those_of_the_kernel() {
        assert_eq!((CREATE_DUMB, MAP_DUMB, DESTROY_DUMB), (0xc020_64b2, 0xc010_64b3, 0xc004_64b4));
    }
}
