//! BPF programs, their loader, and what they report: latency histograms and what took a CPU.
//!
//! The programs are C (`bpf/`), compiled beforehand and kept in `objects/`, so that building whylate needs no C
//! compiler. With the feature `bpf` switched off nothing can be loaded, and whatever is started fails with
//! [`BpfError::NotBuilt`].

mod activity;
mod by_kind;
mod causes;
mod configuration;
mod counters;
mod device;
pub mod dispatch;
mod error;
#[cfg_attr(not(feature = "bpf"), allow(dead_code, reason = "only the loader reads all of it"))]
mod events;
mod facilities;
mod grace;
mod histograms;
mod in_progress;
mod layout;
mod missed;
#[cfg_attr(not(feature = "bpf"), path = "absent.rs")]
mod object;
mod parts;
mod rings;
mod settings;
mod snapshot;
mod symbols;
pub mod tasks;
mod watching;

pub use by_kind::IpisByKind;
pub use causes::Causes;
pub use device::device;
pub use dispatch::DispatchSteps;
pub use error::BpfError;
pub use facilities::facilities;
pub use grace::check_grace_periods;
pub use histograms::Histograms;
pub use missed::Missed;
pub use settings::{Activities, HistogramsChange, HistogramsConfig, TaskFilter};
pub use snapshot::{Facility, HistogramsSnapshot, ProgramCost, WakeupCounts};
pub use symbols::{Symbols, kernel_functions};

/// What tests and the example `hold` use besides.
#[doc(hidden)]
pub mod internal {
    pub use crate::facilities::facility_names;
    #[cfg(feature = "bpf")]
    pub use crate::object::{CostCounting, costs_of_all};
}
