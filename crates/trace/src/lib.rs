//! Traces of any machine, read into one event model in bounded memory. Nothing here touches a machine.

pub mod event;
pub mod parse;
pub mod reader;
