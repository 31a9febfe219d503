//! Traces of any machine, read into one event model in bounded memory. Nothing here touches a machine.

pub mod event;
pub mod facts;
mod index;
pub mod parse;
pub mod reader;
pub mod segments;

/// What fuzz targets and the tests of this crate use besides.
#[doc(hidden)]
pub mod internal {
    pub use crate::parse::format::{Field, FormatError, Place, Record, Slot};
    pub use crate::parse::input::Input;
    pub use crate::parse::ring_buffer::directory::open as open_folder;
    pub use crate::parse::ring_buffer::{Clock, Cursor, Item, Merge, PageHeader, Pages, Wanted};
    pub use crate::parse::source::Compression;
    pub use crate::parse::symbols::Symbols;
    pub use crate::parse::texts::Texts;
    pub use crate::parse::trace_dat::open as open_trace_dat;
    pub use crate::parse::tracepoint::{Decoded, Decoder, Kernel, Release};
    pub use crate::parse::unpack::{Algorithm, Unpacker};
}
