//! NVIDIA's CUDA driver, as far as the loads and the table of copies need it: devices, their memory, page-locked and managed
//! memory, programs. The library is the driver's own, loaded at run time; nothing of CUDA's toolkit is used.

mod host;
mod memory;
mod program;

pub(crate) use host::HostAllocated;
pub(crate) use memory::{DeviceMemory, HostMemory};
pub(crate) use program::Program;

use crate::vulkan::GpuError;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

const LIBRARY: &str = "libcuda.so.1";
/// `CU_CTX_SCHED_SPIN` and `CU_CTX_SCHED_BLOCKING_SYNC`: how the end of a device's work is waited for.
const SPIN: c_uint = 1;
const BLOCK: c_uint = 4;
/// Bytes for the name of a device.
const NAME_BYTES: usize = 256;

type Context = *mut c_void;
/// An address that a device uses; that of page-locked and managed memory is the host's.
pub(crate) type Address = u64;

/// Declares the functions of the driver, by the names that `cuda.h` gives their versions.
macro_rules! functions {
    ($($name:ident = $symbol:literal($($argument:ty),*);)*) => {
        /// The driver.
        struct Cuda {
            $($name: unsafe extern "C" fn($($argument),*) -> c_int,)*
            // The functions are in it.
            _library: libloading::Library,
        }

        impl Cuda {
            fn functions() -> Result<Self, libloading::Error> {
                // SAFETY: the library is the driver's, which is loaded as any program that uses CUDA does; the types of
                // the functions are those of cuda.h.
                unsafe {
                    let library = libloading::Library::new(LIBRARY)?;
                    Ok(Self { $($name: *library.get($symbol)?,)* _library: library })
                }
            }
        }
    };
}

functions! {
    init = b"cuInit\0"(c_uint);
    version = b"cuDriverGetVersion\0"(*mut c_int);
    count = b"cuDeviceGetCount\0"(*mut c_int);
    device = b"cuDeviceGet\0"(*mut c_int, c_int);
    device_name = b"cuDeviceGetName\0"(*mut c_char, c_int, c_int);
    device_memory = b"cuDeviceTotalMem_v2\0"(*mut usize, c_int);
    error_name = b"cuGetErrorName\0"(c_int, *mut *const c_char);
    create = b"cuCtxCreate_v2\0"(*mut Context, c_uint, c_int);
    make_current = b"cuCtxSetCurrent\0"(Context);
    destroy = b"cuCtxDestroy_v2\0"(Context);
    host_allocate = b"cuMemHostAlloc\0"(*mut *mut c_void, usize, c_uint);
    host_free = b"cuMemFreeHost\0"(*mut c_void);
    device_allocate = b"cuMemAlloc_v2\0"(*mut Address, usize);
    device_free = b"cuMemFree_v2\0"(Address);
    managed_allocate = b"cuMemAllocManaged\0"(*mut Address, usize, c_uint);
    memory_free = b"cuMemGetInfo_v2\0"(*mut usize, *mut usize);
    copy_up = b"cuMemcpyHtoD_v2\0"(Address, *const c_void, usize);
    copy_down = b"cuMemcpyDtoH_v2\0"(*mut c_void, Address, usize);
    module_load = b"cuModuleLoadData\0"(*mut *mut c_void, *const c_void);
    module_unload = b"cuModuleUnload\0"(*mut c_void);
    module_function = b"cuModuleGetFunction\0"(*mut *mut c_void, *mut c_void, *const c_char);
    launch = b"cuLaunchKernel\0"(
        *mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, *mut c_void, *mut *mut c_void, *mut *mut c_void
    );
    synchronize = b"cuCtxSynchronize\0"();
}

impl Cuda {
    fn load() -> Result<Self, GpuError> {
        let cuda = Self::functions().map_err(|error| {
            GpuError::Absent(format!("there is no CUDA driver ({error}); install NVIDIA's"))
        })?;
        // SAFETY: flags must be 0.
        let code = unsafe { (cuda.init)(0) };
        cuda.check("starting CUDA", code).map_err(|error| GpuError::Absent(error.to_string()))?;
        Ok(cuda)
    }

    fn check(&self, what: &str, code: c_int) -> Result<(), GpuError> {
        if code == 0 {
            return Ok(());
        }
        let mut name = ptr::null();
        // SAFETY: the pointer is the place of the answer: a text that lives as long as the driver, or nothing.
        let known = unsafe { (self.error_name)(code, &mut name) } == 0 && !name.is_null();
        let name = match known {
            // SAFETY: as above.
            true => unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(),
            false => format!("error {code}"),
        };
        Err(GpuError::Failed(format!("{what}: {name}")))
    }

    fn listed(&self, number: c_int) -> Result<Listed, GpuError> {
        let (mut device, mut version, mut memory) = (0, 0, 0);
        let mut name = [0 as c_char; NAME_BYTES];
        // SAFETY: the pointers are the places of the answers, the name with its room; the device is one of the
        // driver's.
        let name = unsafe {
            self.check("opening the device", (self.device)(&mut device, number))?;
            self.check(
                "naming the device",
                (self.device_name)(name.as_mut_ptr(), NAME_BYTES as c_int - 1, device),
            )?;
            self.check("asking for its memory", (self.device_memory)(&mut memory, device))?;
            self.check("asking for the version", (self.version)(&mut version))?;
            CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
        };
        let driver = format!("CUDA {}.{}", version / 1000, version % 1000 / 10);
        Ok(Listed { number: number as usize, device, name, driver, memory_bytes: memory as u64 })
    }

    fn list(&self) -> Result<Vec<Listed>, GpuError> {
        let mut count = 0;
        // SAFETY: the pointer is the place of the answer.
        let code = unsafe { (self.count)(&mut count) };
        self.check("listing devices", code)?;
        (0..count).map(|number| self.listed(number)).collect()
    }
}

/// A device.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    /// Its place in CUDA's list.
    pub(crate) number: usize,
    device: c_int,
    pub(crate) name: String,
    /// The version of CUDA that the driver has.
    pub(crate) driver: String,
    pub(crate) memory_bytes: u64,
}

/// The devices that CUDA finds.
pub(crate) fn list() -> Result<Vec<Listed>, GpuError> {
    Cuda::load()?.list()
}

/// A device that is open.
pub(crate) struct Session {
    cuda: Cuda,
    context: Context,
    pub(crate) listed: Listed,
}

// SAFETY: the driver's functions may be called from any thread; the context is made current before each is used.
unsafe impl Send for Session {}
// SAFETY: as above.
unsafe impl Sync for Session {}

impl Session {
    /// The device of that number or with that text in its name; by default the first.
    pub(crate) fn open(named: Option<&str>, spins: bool) -> Result<Arc<Self>, GpuError> {
        let cuda = Cuda::load()?;
        let wanted = |listed: &Listed| {
            named.is_none_or(|text| {
                listed.number.to_string() == text || listed.name.to_lowercase().contains(&text.to_lowercase())
            })
        };
        let listed = cuda.list()?.into_iter().find(wanted).ok_or_else(|| {
            GpuError::Absent(
                format!("CUDA finds no device `{}`", named.unwrap_or_default()).replace(" ``", ""),
            )
        })?;
        let mut context = ptr::null_mut();
        // SAFETY: the pointer is the place of the answer; the device is one of the driver's.
        let code = unsafe { (cuda.create)(&mut context, if spins { SPIN } else { BLOCK }, listed.device) };
        cuda.check("opening the device", code)?;
        Ok(Arc::new(Self { cuda, context, listed }))
    }

    /// Waits until the device has done all that it was given.
    pub(crate) fn wait(&self) -> Result<(), GpuError> {
        // SAFETY: it takes nothing.
        self.call("waiting for the device", |cuda| unsafe { (cuda.synchronize)() })
    }

    /// The driver's answer to `call`, with this device as the current one.
    fn call(&self, what: &str, call: impl FnOnce(&Cuda) -> c_int) -> Result<(), GpuError> {
        // SAFETY: the context lives as long as this value.
        let code = unsafe { (self.cuda.make_current)(self.context) };
        self.cuda.check(what, code)?;
        self.cuda.check(what, call(&self.cuda))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: it was made once and is destroyed once: what was allocated in it holds it. An error changes nothing.
        unsafe { (self.cuda.destroy)(self.context) };
    }
}
