//! Readers of trace files. Nothing here touches the machine; a file is a sequence of bytes.
//!
//! | to add | files |
//! |---|---|
//! | an event of the kernel | a row in `events/table.rs` |
//! | a style of text | what cuts its lines, in a file of its own in `text/`, and an entry in `STYLES` of `text/machine.rs` |
//! | something that has text inside, or can be made into it | a file in `convert/`, and a row in `convert/mod.rs` |
//! | a binary format | a [`Reader`](crate::reader::Reader) in a folder of its own, and its first bytes in `open.rs`; records of tracepoints are decoded by `tracepoint/` |

mod archive;
pub(crate) mod bytes;
mod convert;
mod error;
mod events;
pub(crate) mod format;
pub(crate) mod input;
mod lines;
mod metadata;
mod open;
mod perf_data;
mod printk;
pub(crate) mod ring_buffer;
pub(crate) mod source;
pub(crate) mod symbols;
mod text;
pub(crate) mod texts;
pub(crate) mod trace_dat;
pub(crate) mod tracepoint;
pub(crate) mod unpack;

pub use bytes::ByteOrder;
pub use error::ParseError;
pub use format::EventFormat;
pub use open::{from_source, is_ctf, open};
pub use ring_buffer::{BufferReader, PageLayout, directory::is as is_folder};
pub use source::Source;
pub use symbols::Symbols;
pub use text::TextReader;
