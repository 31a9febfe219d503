//! The measurement: the timer, stall, dispatch and round-trip probes, together with counters of the kernel.
//!
//! A probe runs in a process of its own, so that allocations, writes and unmapping in the caller never affect the measured
//! CPUs. The caller side is [`resolve`] (a probe of a plan, on this machine) and [`measure::measure`]; the other side is
//! [`child::main`], which the binary enters by a hidden command.

mod accounting;
pub mod child;
mod condition;
pub mod copy_table;
mod error;
mod kinds;
mod lane_reader;
mod layout;
pub mod measure;
mod resolve;
mod session;
pub mod spec;

pub use condition::other_whylate;
pub use error::ProbeError;
pub use kinds::{
    AccessSpec, DispatchSpec, ProbeKind, RoundtripSpec, StallSpec, TimerSpec, find_tasks, move_to,
    present_threads, send_trigger, store_after, try_to_watch,
};
pub use measure::{
    Batch, Elsewhere, Happened, LatencyTotals, Observer, Outcome, Progress, TaskLine, TaskSpike, TaskTotals,
    TriggerLine, measure,
};
pub use resolve::{Options, resolve};
pub use spec::{LaneSpec, ProbeSpec};

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_changed;
#[cfg(test)]
mod tests_roundtrip;

/// Counts what each thread allocates, for the test that a measuring thread allocates nothing.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: whylate_sys::allocation::CountingAllocator = whylate_sys::allocation::CountingAllocator;
