//! What disturbs: memory traffic, single acts that interrupt CPUs, and any command.
//!
//! A load runs in a process of its own (the same binary with a hidden subcommand), so that its mappings, page
//! faults and unmappings never reach the runner or the probe. [`Load`] is the side of the runner: it starts the
//! process, collects the achieved rates, and stops it within a bounded time. [`child_main`] is the other side.
//!
//! The two speak lines of JSON: one [`LoadSpec`] on the child's standard input, [`protocol::Message`]s on its
//! standard output. The child ends when its standard input is closed, which the kernel does even when the parent
//! was killed.
//!
//! Nothing here measures latency, changes a setting of the machine, or decides when a load runs.

mod child;
mod error;
mod kinds;
mod parent;
pub mod protocol;
mod rates;
pub mod spec;

pub use child::{child_main, gpu_main};
pub use error::LoadError;
pub use kinds::LoadWork;
pub use kinds::events::{Act, Events};
pub use kinds::exec::{ExecSpec, ServerSpec, exec_main};
pub use kinds::gpu::{GPU_BACKENDS, Maker, gpu_backends, gpu_copies, gpu_helper, gpu_list};
pub use kinds::graphics::GraphicsSpec;
pub use kinds::memory::MemorySpec;
pub use parent::{Load, LoadOutcome, LoadStatus, StoppedBy};
pub use spec::LoadSpec;
