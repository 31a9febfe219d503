//! Memory that is mapped for a purpose: buffers of loads and probes, and memory of a chosen type.
//!
//! What moves bytes in them is in `whylate-copy`.

mod buffer;
pub mod typed;

pub use buffer::{Buffer, BufferError, HugePages};
