//! The kernel's log: which messages are about latency, and what they mean.
//!
//! In: lines of a log in any form that people save or post it in, streamed. Out: one `LogMessage` for each kind, CPU, thread
//! and function, with the largest figure, the first and last moment and how often it came. A log says what happened in the
//! kernel. It does not say which task was late because of it, and nothing here claims so.
//!
//! | to add a kind of message | |
//! |---|---|
//! | its row | in `catalogue.rs` |

mod catalogue;
mod line;
mod pattern;
mod reader;

pub use catalogue::{KINDS, MessageKind, kind};
pub use reader::{KernelLog, is_log, read, read_lines};
