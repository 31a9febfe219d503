//! BPF programs, their loader, and what they report: latency histograms and what took a CPU.
//!
//! The programs are C (`bpf/`), compiled beforehand and kept in `objects/`, so that building whylate needs no C
//! compiler. With the feature `bpf` switched off, the types stay and [`Histograms::start`] says that the build lacks
//! the programs.

#[cfg(not(feature = "bpf"))]
mod absent;
mod by_kind;
#[cfg(feature = "bpf")]
mod causes;
#[cfg(feature = "bpf")]
mod cost;
pub mod dispatch;
pub mod error;
#[cfg(feature = "bpf")]
mod facilities;
#[cfg(feature = "bpf")]
mod finder;
#[cfg(feature = "bpf")]
mod histograms;
#[cfg(feature = "bpf")]
mod layout;
#[cfg(feature = "bpf")]
mod missed;
#[cfg(feature = "bpf")]
mod object;
#[cfg(feature = "bpf")]
mod rings;
mod settings;
mod snapshot;
#[cfg(feature = "bpf")]
mod symbols;
#[cfg(feature = "bpf")]
mod syscall;
#[cfg(feature = "bpf")]
mod worth;

#[cfg(not(feature = "bpf"))]
pub use absent::{Causes, CostCounting, Histograms, facilities, facility_names, find_causes};
pub use by_kind::IpisByKind;
#[cfg(feature = "bpf")]
pub use causes::Causes;
#[cfg(feature = "bpf")]
pub use cost::{CostCounting, costs_of_all};
pub use dispatch::DispatchSteps;
pub use error::BpfError;
#[cfg(feature = "bpf")]
pub use facilities::{facilities, facility_names};
#[cfg(feature = "bpf")]
pub use finder::find_causes;
#[cfg(feature = "bpf")]
pub use histograms::Histograms;
pub use settings::{FindsCauses, HistogramsConfig, Measured, TaskFilter};
pub use snapshot::{Facility, HistogramsSnapshot, ProgramCost, WakeupCounts};
