//! Traces: `record` makes them, `parse` reads them, `explain` says who was late and why.
//!
//! `parse` and `explain` work from files alone: they use nothing of `record`, `whylate_sys` or `whylate_treat`.

pub mod event;
pub mod explain;
pub mod parse;
pub mod reader;
pub mod record;
