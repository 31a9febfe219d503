//! All of whylate's requests to the kernel and the CPU.
//!
//! This is the only crate with hand-written unsafe code; each block says why it is needed and why it is sound. Its
//! interface is safe to call.

pub mod allocation;
pub mod clock;
mod control;
pub mod counter;
pub mod device_memory;
pub mod disturb;
pub mod drm;
pub mod ethtool;
pub mod interrupt_source;
pub mod latency_request;
pub mod memory;
pub mod message;
pub mod perf_counter;
pub mod posix_timer;
pub mod private;
pub mod process;
pub mod sample_clock;
pub mod schedule;
pub mod shared;
pub mod switch_ring;
pub mod terminal;
pub mod timer_file;
pub mod tracing;
