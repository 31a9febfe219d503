//! Orders the steps of an experiment: for each repeat, for each cell: treatments, noise floor, loads, settle, probes,
//! stop, undo.
//!
//! The only crate that sees probes, loads and the run directory together. It decides when something happens and what
//! is done when something fails; it measures nothing itself and computes no figure.

mod alone;
mod audience;
pub mod campaign;
mod causes;
mod copies;
mod error;
mod experiment;
mod fix;
mod follow;
mod gpus;
mod keep;
mod kernel_log;
mod live;
mod machine;
mod prepare;
mod repeat;
mod top;
mod tracing;
mod treating;
mod wakeups;

pub use alone::{LoadAlone, ProbeAlone, load, measure, measure_of_run};
pub use audience::{Audience, Stage};
pub use causes::{assemble, assemble_in};
pub use copies::{backends, copy_table};
pub use error::{RepeatError, RunError, is_not_restored, is_unavailable};
pub use experiment::{RunOptions, drawn_seed, resume, run};
pub use fix::{Adviser, Boot, Proposal, fix, possible, resume_fix};
pub use live::Live;
pub use machine::{LoadEnd, Machine, RealMachine, RunningLoad, hidden_command};
pub use prepare::{Experiment, NOISE_FLOOR_THRESHOLD, PreparedCell, PreparedLoad, check_tracers, prepare};
pub use top::Top;
pub use tracing::{moment as kept_moment, open_trace, thread_of_series};
pub use treating::{Held, Treating, check_treatments, left_behind, recover_treatments, recovery};
pub use whylate_load::gpu_list;
pub use whylate_probe::copy_table::{BLOCKS as COPY_BLOCKS, CopyRequest};
pub use whylate_probe::{
    Happened, LatencyTotals, Progress, TaskLine, TaskSpike, TaskTotals, TriggerLine, find_tasks, move_to,
    present_threads, send_trigger, try_to_watch,
};
pub use whylate_sys::allocation::{ReservingAllocator, hold_reserve};
