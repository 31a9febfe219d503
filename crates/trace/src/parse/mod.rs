//! Readers of trace files. Nothing here touches the machine; a file is a sequence of bytes.

pub mod bytes;
mod error;
mod events;
pub mod format;
pub mod input;
mod lines;
mod open;
pub mod perf_data;
pub mod printk;
pub mod ring_buffer;
mod source;
pub mod symbols;
pub mod text;
pub mod texts;
pub mod trace_dat;
pub mod tracepoint;
pub mod unpack;
mod zstandard;

pub use error::ParseError;
pub use open::{from_source, open};
pub use source::{Compression, Source};
