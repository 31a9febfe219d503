//! What tracers of latency and other tools state themselves: it is the answer, and its events only show it.

pub(crate) mod analysed;
pub(crate) mod device;
pub(crate) mod sampled;
pub(crate) mod section;
