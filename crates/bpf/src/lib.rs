//! BPF programs, their loader, and what they report: latency histograms and what took a CPU.
//!
//! The programs are C (`bpf/`), compiled beforehand and kept in `objects/`, so that building whylate needs no C
//! compiler. With the feature `bpf` switched off, the types stay and [`Histograms::start`] says that the build lacks
//! the programs.

#[cfg(not(feature = "bpf"))]
mod absent;
pub mod error;
#[cfg(feature = "bpf")]
mod histograms;
#[cfg(feature = "bpf")]
mod layout;
#[cfg(feature = "bpf")]
mod object;
mod settings;
mod snapshot;
#[cfg(feature = "bpf")]
mod syscall;

#[cfg(not(feature = "bpf"))]
pub use absent::Histograms;
pub use error::BpfError;
#[cfg(feature = "bpf")]
pub use histograms::Histograms;
pub use settings::{HistogramsConfig, TaskFilter};
pub use snapshot::{HistogramsSnapshot, ProgramCost, WakeupCounts};
