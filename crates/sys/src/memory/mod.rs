//! Memory that is mapped for a purpose: buffers of loads and probes.
//!
//! What moves bytes in them is in `whylate-copy`.

mod buffer;

pub use buffer::{Buffer, BufferError, HugePages};
