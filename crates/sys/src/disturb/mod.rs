//! Small acts that make a kernel interrupt other CPUs: changes of mappings, memory barriers, write-combining buffers.
//!
//! Each is done once per call; the caller chooses how often, on which CPU and next to which task.

pub mod barrier;
pub mod mapping;
pub mod pages;
