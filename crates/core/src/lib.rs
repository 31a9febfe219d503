//! The vocabulary of whylate: units, CPU lists, plans, facts about a machine, and results.
//!
//! Nothing here reads a file, asks the kernel or looks at a clock: every other crate can depend on it, and
//! everything in it can be tested anywhere.

mod busy;
mod copying;
pub mod cpus;
pub mod facts;
pub mod figure;
mod frequency;
mod mask;
pub mod moment;
pub mod order;
pub mod plan;
pub mod quantity;
pub mod record;
pub mod recording;
pub mod result;
pub mod schema;
pub mod series;
pub mod text;
pub mod units;
pub mod warning;
mod words;

pub use busy::BusyProgram;
pub use copying::{CopyMethod, Frame, MemoryMode, PixelFormat};
pub use cpus::{CpuContext, CpuSelector, CpuSet};
pub use facts::Facts;
pub use plan::Plan;
pub use series::SeriesName;
pub use units::{Bytes, BytesPerSec, CpuId, Cycles, Hz, MonoTime, Nanos, NanosDelta, TscTime};
pub use warning::{Warning, WarningCode};
