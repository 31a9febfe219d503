//! Readers of trace files. Nothing here touches the machine; a file is a sequence of bytes.

mod error;
mod lines;
mod open;
mod source;
pub mod text;
mod zstandard;

pub use error::ParseError;
pub use open::{from_source, open};
pub use source::{Compression, Source};
