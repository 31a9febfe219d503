//! Moving bytes through memory of any type: cached, write-combining, uncached; and handing buffers over to devices
//! that do not look into the caches.
//!
//! What goes in are slices. [`Copier`] copies by one named [`Method`], chosen when it is made by what the CPU has;
//! [`handover`] writes cache lines back before a device reads and drops them before the CPU reads; [`observe`] says by
//! timing what type a piece of memory really has. [`Kernels`] makes traffic as fast as the CPU allows: reads, writes,
//! copies, random data; [`Chase`] is the load of latency-bound code. What comes out of a read or a chase is a value
//! that depends on every byte, so that no compiler removes the traffic.
//!
//! There are no dependencies, no threads and no system calls, so that drivers and media code can use it as it is.

mod chase;
pub mod handover;
mod kernels;
mod method;
pub mod observe;
mod portable;
mod random;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod through;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(test)]
mod tests;

pub use chase::{Chase, LINE_BYTES};
pub use kernels::{InstructionSet, Kernels, ReadMethod, StoreMethod};
pub use method::{Copier, Method, Unavailable};
pub use random::Random;
