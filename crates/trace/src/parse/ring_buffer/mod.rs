//! Pages of the kernel's ring buffer, as `per_cpu/cpuN/trace_pipe_raw` gives them and trace.dat keeps them.
//!
//! In: the layout of a page (`events/header_page`) and where the pages of each CPU are. Out: the raw records of all CPUs in
//! the order of time, and the losses between them. The meaning of a record is the task of [`super::tracepoint`].

mod cursor;
pub(crate) mod directory;
mod layout;
mod merge;
mod page;
mod pages;
mod reader;

pub use cursor::{Cursor, Item};
pub(super) use layout::PAGE_BYTES_MAX;
pub use layout::{PageHeader, PageLayout};
pub use merge::{Merge, Wanted};
pub(super) use pages::PAGES_BYTES_MAX;
pub use pages::Pages;
pub use reader::{BufferReader, Clock};
