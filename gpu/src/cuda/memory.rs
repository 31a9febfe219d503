//! Memory of a device, and page-locked memory of the host.

use super::{Address, Session};
use crate::vulkan::GpuError;
use std::ffi::c_uint;
use std::ptr;
use std::sync::Arc;
use whylate_sys::memory::typed::Memory;

/// `CU_MEMHOSTALLOC_WRITECOMBINED`.
const WRITE_COMBINED: c_uint = 4;

/// Page-locked memory of the host, which the device reads and writes by itself.
pub(crate) struct HostMemory {
    start: *mut u8,
    bytes: usize,
    session: Arc<Session>,
}

// SAFETY: the bytes are this value's alone, and the driver frees them from any thread.
unsafe impl Send for HostMemory {}

impl HostMemory {
    pub(crate) fn new(
        session: &Arc<Session>,
        bytes: usize,
        is_write_combined: bool,
    ) -> Result<Self, GpuError> {
        let mut start = ptr::null_mut();
        let flags = if is_write_combined { WRITE_COMBINED } else { 0 };
        let what = format!("allocating {bytes} bytes of the host");
        // SAFETY: the pointer is where the answer goes.
        session.call(&what, |cuda| unsafe { (cuda.host_allocate)(&mut start, bytes, flags) })?;
        let start = start.cast::<u8>();
        // SAFETY: as long as that, and nobody else knows where. New memory need not be initialised.
        unsafe { start.write_bytes(0, bytes) };
        Ok(Self { start, bytes, session: Arc::clone(session) })
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
        let start = self.start.cast();
        // SAFETY: it was allocated in this session and is freed once. An error leaves it to the end of the process.
        let _ = self.session.call("freeing memory", |cuda| unsafe { (cuda.host_free)(start) });
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
        // SAFETY: the pointer is where the answer goes.
        session.call(&what, |cuda| unsafe { (cuda.device_allocate)(&mut address, bytes) })?;
        Ok(Self { address, bytes, session: Arc::clone(session) })
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
