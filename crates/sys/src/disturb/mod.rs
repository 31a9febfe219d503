//! Small acts that make a kernel interrupt other CPUs: changes of mappings, memory barriers, write-combining buffers.
//!
//! Each is done once per call; how often, where and beside whom is the caller's business.

pub mod barrier;
pub mod mapping;
pub mod pages;
