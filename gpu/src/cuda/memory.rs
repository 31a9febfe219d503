//! Memory of a device, page-locked memory of the host, and managed memory.

use super::{Address, Session};
use crate::vulkan::GpuError;
use std::ffi::c_uint;
use std::ptr;
use std::sync::Arc;
use whylate_core::plan::GpuMemory;
use whylate_sys::memory::typed::Memory;

/// `CU_MEMHOSTALLOC_WRITECOMBINED`.
const WRITE_COMBINED: c_uint = 4;
/// `CU_MEM_ATTACH_GLOBAL`.
const GLOBAL: c_uint = 1;

/// Memory that this process and the device see at one address: page-locked pages of the host, or managed memory, whose
/// pages move to the one that uses them.
pub(crate) struct HostMemory {
    start: *mut u8,
    bytes: usize,
    is_managed: bool,
    session: Arc<Session>,
}

// SAFETY: the bytes are this value's alone, and the driver frees them from any thread.
unsafe impl Send for HostMemory {}

impl HostMemory {
    /// Managed memory is refused beyond half of what the device has free: more of it can hang the device.
    pub(crate) fn new(session: &Arc<Session>, bytes: usize, kind: GpuMemory) -> Result<Self, GpuError> {
        let mut start = ptr::null_mut();
        let is_managed = kind == GpuMemory::Managed;
        let what = format!("allocating {bytes} bytes of {kind} memory");
        if is_managed {
            let (mut free, mut all, mut address) = (0, 0, 0);
            // SAFETY: the pointers are the places of the answers.
            session.call(&what, |cuda| unsafe { (cuda.memory_free)(&mut free, &mut all) })?;
            if bytes > free / 2 {
                let text =
                    format!("{what}: at most half of the device's free memory ({free} bytes) may be managed");
                return Err(GpuError::Absent(text));
            }
            // SAFETY: as above.
            session.call(&what, |cuda| unsafe { (cuda.managed_allocate)(&mut address, bytes, GLOBAL) })?;
            start = ptr::with_exposed_provenance_mut(address as usize);
        } else {
            let flags = if kind == GpuMemory::WriteCombined { WRITE_COMBINED } else { 0 };
            // SAFETY: the pointer is the place of the answer.
            session.call(&what, |cuda| unsafe { (cuda.host_allocate)(&mut start, bytes, flags) })?;
        }
        let start = start.cast::<u8>();
        // SAFETY: the memory is as long as that, and no other code has its address. New memory need not be
        // initialised.
        unsafe { start.write_bytes(0, bytes) };
        Ok(Self { start, bytes, is_managed, session: Arc::clone(session) })
    }

    pub(crate) fn address(&self) -> Address {
        self.start.expose_provenance() as Address
    }

    /// Its first words.
    pub(crate) fn words(&self, count: usize) -> Vec<u32> {
        let words = self.as_slice().chunks_exact(4).take(count);
        words.map(|word| u32::from_ne_bytes(word.try_into().unwrap_or_default())).collect()
    }
}

impl Memory for HostMemory {
    fn as_slice(&self) -> &[u8] {
        // SAFETY: mapped as long as this value lives; a copy of the device has ended before the call that asked for it.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }
    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: it was allocated in this session, in that way, and is freed once. An error leaves it to the end of the
        // process.
        let _ = self.session.call("freeing memory", |cuda| unsafe {
            match self.is_managed {
                true => (cuda.device_free)(self.address()),
                false => (cuda.host_free)(self.start.cast()),
            }
        });
    }
}

pub(crate) struct DeviceMemory {
    address: Address,
    bytes: usize,
    session: Arc<Session>,
}

impl DeviceMemory {
    pub(crate) fn new(session: &Arc<Session>, bytes: usize) -> Result<Self, GpuError> {
        let mut address = 0;
        let what = format!("allocating {bytes} bytes of the device");
        // SAFETY: the pointer is the place of the answer.
        session.call(&what, |cuda| unsafe { (cuda.device_allocate)(&mut address, bytes) })?;
        Ok(Self { address, bytes, session: Arc::clone(session) })
    }

    pub(crate) fn address(&self) -> Address {
        self.address
    }

    /// Copies bytes to the start, as far as there is room, and waits for the end.
    pub(crate) fn write(&mut self, from: &[u8]) -> Result<(), GpuError> {
        let bytes = from.len().min(self.bytes);
        // SAFETY: both are as long as what is copied.
        self.session.call("copying to the device", |cuda| unsafe {
            (cuda.copy_up)(self.address, from.as_ptr().cast(), bytes)
        })
    }

    /// Copies bytes from the start, and waits for the end.
    pub(crate) fn read(&self, to: &mut [u8]) -> Result<(), GpuError> {
        let bytes = to.len().min(self.bytes);
        // SAFETY: as above.
        self.session.call("copying from the device", |cuda| unsafe {
            (cuda.copy_down)(to.as_mut_ptr().cast(), self.address, bytes)
        })
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: it was allocated in this session and is freed once. An error leaves it to the end of the process.
        let _ = self.session.call("freeing memory", |cuda| unsafe { (cuda.device_free)(self.address) });
    }
}
