//! `membarrier`: makes the kernel interrupt other CPUs so that they pass a memory barrier.

use std::io;

const GLOBAL_EXPEDITED: libc::c_int = 1 << 1;
const REGISTER_GLOBAL_EXPEDITED: libc::c_int = 1 << 2;
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// CPUs that run a thread of this process.
    Private,
    /// CPUs that run a thread of any process that has registered for it.
    Global,
}

/// A barrier that this process is registered for.
#[derive(Clone, Copy, Debug)]
pub struct Barrier {
    command: libc::c_int,
}

impl Barrier {
    /// Registers this process.
    ///
    /// # Errors
    /// ENOSYS or EINVAL on kernels without expedited barriers (before 4.14 and 4.16).
    pub fn register(reach: Reach) -> io::Result<Self> {
        let (register, command) = match reach {
            Reach::Private => (REGISTER_PRIVATE_EXPEDITED, PRIVATE_EXPEDITED),
            Reach::Global => (REGISTER_GLOBAL_EXPEDITED, GLOBAL_EXPEDITED),
        };
        membarrier(register)?;
        Ok(Self { command })
    }

    /// Interrupts every CPU that it reaches, and waits until all have passed the barrier.
    ///
    /// # Errors
    /// When the kernel has no memory for the list of CPUs.
    pub fn pass(self) -> io::Result<()> {
        membarrier(self.command)
    }
}

fn membarrier(command: libc::c_int) -> io::Result<()> {
    let (flags, cpu) = (0, 0);
    // SAFETY: membarrier takes three numbers and touches no memory of the caller.
    let outcome = unsafe { libc::syscall(libc::SYS_membarrier, command, flags, cpu) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
