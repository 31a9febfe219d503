//! The programs of `shaders/cuda.cu`, which the driver translates for the device.

use super::{Address, Session};
use crate::vulkan::GpuError;
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::Arc;

/// As build commands in `shaders/cuda_ptx.py` made it.
const PTX: &[u8] = concat!(include_str!("../../shaders/cuda.ptx"), "\0").as_bytes();
/// Threads of a block: what `add_numbers` has room for.
const BLOCK: u32 = 256;

/// A program, with the module that it is in.
pub(crate) struct Program {
    function: *mut c_void,
    module: *mut c_void,
    session: Arc<Session>,
}

impl Program {
    pub(crate) fn new(session: &Arc<Session>, name: &CStr) -> Result<Self, GpuError> {
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the pointer is the place of the answer; the text ends with a zero.
        session.call("translating the programs", |cuda| unsafe {
            (cuda.module_load)(&mut module, PTX.as_ptr().cast())
        })?;
        let mut program = Self { function, module, session: Arc::clone(session) };
        // SAFETY: as above; the module is loaded.
        session.call(&format!("finding the program {name:?}"), |cuda| unsafe {
            (cuda.module_function)(&mut function, module, name.as_ptr())
        })?;
        program.function = function;
        Ok(program)
    }

    /// Starts this many blocks. Each argument is an address, or a number of 32 bits.
    pub(crate) fn launch(&self, blocks: u32, arguments: &[Address]) -> Result<(), GpuError> {
        // A parameter of 32 bits is read from the first half: processors of this driver are little-endian.
        let mut places: Vec<*mut c_void> =
            arguments.iter().map(|argument| ptr::from_ref(argument).cast_mut().cast()).collect();
        // SAFETY: the callers give each program the parameters that its source has, and buffers as long as their counts say;
        // the driver copies the arguments before it returns.
        self.session.call("starting a program", |cuda| unsafe {
            (cuda.launch)(
                self.function,
                blocks,
                1,
                1,
                BLOCK,
                1,
                1,
                0,
                ptr::null_mut(),
                places.as_mut_ptr(),
                ptr::null_mut(),
            )
        })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: it was loaded in this session and is unloaded once. An error leaves it to the end of the process.
        let _ = self.session.call("unloading programs", |cuda| unsafe { (cuda.module_unload)(self.module) });
    }
}
