//! Readers of trace files. Nothing here touches the machine; a file is a sequence of bytes.

pub mod bytes;
mod error;
pub mod format;

pub use error::ParseError;
