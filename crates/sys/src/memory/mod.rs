//! Memory traffic as fast as the CPU allows: reads, writes, copies, streaming stores and random chases.
//!
//! What goes in are slices (of a [`Buffer`], usually); the instruction set is chosen once, when [`Kernels`] is
//! made. What comes out of a read or a chase is a value that depends on every byte, so that no compiler removes
//! the traffic. Nothing here counts bytes, keeps time or starts threads: that is the memory load's job.

mod buffer;
mod chase;
mod kernels;
mod portable;
mod random;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(test)]
mod tests;

pub use buffer::{Buffer, BufferError, HugePages};
pub use chase::{Chase, LINE_BYTES};
pub use kernels::{InstructionSet, Kernels, ReadMethod, StoreMethod};
pub use random::Random;
