//! Statements of latency tracers and other tools: such a statement is the answer, and its events only illustrate it.

pub(crate) mod analysed;
pub(crate) mod device;
pub(crate) mod sampled;
pub(crate) mod section;
