//! Readers of trace files. Nothing here touches the machine; a file is a sequence of bytes.

mod error;

pub use error::ParseError;
