//! Readers of trace files. Nothing here touches the machine; a file is a sequence of bytes.

pub mod bytes;
mod error;
pub mod format;
pub mod input;
pub mod ring_buffer;
pub mod symbols;
pub mod trace_dat;
pub mod tracepoint;
pub mod unpack;

pub use error::ParseError;
