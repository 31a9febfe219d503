//! Host memory of the CUDA driver, as far as the table of copies needs it. The library is NVIDIA's driver itself, loaded at
//! run time; nothing of CUDA's toolkit is used.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io;
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use whylate_core::MemoryMode;
use whylate_load::GPU_BACKENDS;
use whylate_sys::memory::typed::{Backend, Memory, Offer};

const LIBRARY: &str = "libcuda.so.1";
/// `CU_MEMHOSTALLOC_WRITECOMBINED`.
const WRITE_COMBINED: c_uint = 4;
type Context = *mut c_void;

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
    count = b"cuDeviceGetCount\0"(*mut c_int);
    device = b"cuDeviceGet\0"(*mut c_int, c_int);
    error_name = b"cuGetErrorName\0"(c_int, *mut *const c_char);
    create = b"cuCtxCreate_v2\0"(*mut Context, c_uint, c_int);
    make_current = b"cuCtxSetCurrent\0"(Context);
    destroy = b"cuCtxDestroy_v2\0"(Context);
    allocate = b"cuMemHostAlloc\0"(*mut *mut c_void, usize, c_uint);
    free = b"cuMemFreeHost\0"(*mut c_void);
}

impl Cuda {
    fn load() -> Result<Self, String> {
        let cuda = Self::functions()
            .map_err(|error| format!("there is no CUDA driver ({error}); install NVIDIA's"))?;
        // SAFETY: flags must be 0.
        let code = unsafe { (cuda.init)(0) };
        cuda.check("starting CUDA", code)?;
        Ok(cuda)
    }

    fn check(&self, what: &str, code: c_int) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        let mut name = ptr::null();
        // SAFETY: the pointer is where the answer goes: a text that lives as long as the driver, or nothing.
        let known = unsafe { (self.error_name)(code, &mut name) } == 0 && !name.is_null();
        let name = match known {
            // SAFETY: as above.
            true => unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(),
            false => format!("error {code}"),
        };
        Err(format!("{what}: {name}"))
    }

    fn devices(&self) -> Result<c_int, String> {
        let mut count = 0;
        // SAFETY: the pointer is where the answer goes.
        let code = unsafe { (self.count)(&mut count) };
        self.check("listing devices", code)?;
        Ok(count)
    }
}

/// Page-locked memory of the host for each device: cached, and write-combined.
#[derive(Debug)]
pub(crate) struct HostAllocated;

impl Backend for HostAllocated {
    fn name(&self) -> &'static str {
        GPU_BACKENDS[1].0
    }
    fn meaning(&self) -> &'static str {
        GPU_BACKENDS[1].1
    }
    fn offers(&self, device: Option<&Path>) -> Result<Vec<Offer>, String> {
        let count = Cuda::load()?.devices()?;
        let numbers =
            (0..count).filter(|number| device.is_none_or(|named| named == Path::new(&number.to_string())));
        let modes = [MemoryMode::WriteCombining, MemoryMode::WriteBack];
        let offers: Vec<Offer> = numbers
            .flat_map(|number| {
                modes.map(|mode| Offer { mode, place: number.to_string().into(), is_free: false })
            })
            .collect();
        if offers.is_empty() { Err("CUDA finds no such device".to_owned()) } else { Ok(offers) }
    }
    fn open(&self, offer: &Offer, bytes: usize) -> io::Result<Box<dyn Memory>> {
        let flags = if offer.mode == MemoryMode::WriteCombining { WRITE_COMBINED } else { 0 };
        let number = offer.place.to_string_lossy().parse().map_err(io::Error::other)?;
        let context = OwnContext::new(number).map_err(io::Error::other)?;
        Ok(Box::new(Allocated::new(context, bytes, flags).map_err(io::Error::other)?))
    }
}

/// A context for one allocation.
struct OwnContext {
    cuda: Arc<Cuda>,
    context: Context,
}

impl OwnContext {
    fn new(number: c_int) -> Result<Self, String> {
        let cuda = Arc::new(Cuda::load()?);
        let (mut device, mut context) = (0, ptr::null_mut());
        // SAFETY: the pointers are where the answers go; the device is one of the driver's.
        unsafe {
            cuda.check("opening the device", (cuda.device)(&mut device, number))?;
            cuda.check("opening the device", (cuda.create)(&mut context, 0, device))?;
        }
        Ok(Self { cuda, context })
    }
}

impl Drop for OwnContext {
    fn drop(&mut self) {
        // SAFETY: it was made once and is destroyed once, after what was allocated in it. An error changes nothing.
        unsafe { (self.cuda.destroy)(self.context) };
    }
}

/// Memory that the driver has allocated.
struct Allocated {
    start: *mut u8,
    bytes: usize,
    context: OwnContext,
}

// SAFETY: the driver's functions may be called from any thread; the context is made current before it is used.
unsafe impl Send for Allocated {}

impl Allocated {
    fn new(context: OwnContext, bytes: usize, flags: c_uint) -> Result<Self, String> {
        let (cuda, mut start) = (&context.cuda, ptr::null_mut());
        // SAFETY: the pointer is where the answer goes; the context is the current one since it was made.
        let code = unsafe { (cuda.allocate)(&mut start, bytes, flags) };
        cuda.check(&format!("allocating {bytes} bytes"), code)?;
        let start = start.cast::<u8>();
        // SAFETY: as long as that, and nobody else knows where. New memory need not be initialised.
        unsafe { start.write_bytes(0, bytes) };
        Ok(Self { start, bytes, context })
    }
}

impl Memory for Allocated {
    fn as_slice(&self) -> &[u8] {
        // SAFETY: mapped as long as this value lives; the device does not use it.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }
    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: it was allocated in this context and is freed once. An error leaves it to the end of the process.
        unsafe {
            (self.context.cuda.make_current)(self.context.context);
            (self.context.cuda.free)(self.start.cast());
        }
    }
}
