//! Orders the steps of an experiment: for each repeat, for each cell: treatments, noise floor, loads, settle, probes,
//! stop, undo.
//!
//! The only crate that sees probes, loads and the run directory together. It decides when something happens and what
//! is done when something fails; it measures nothing itself and computes no figure.

mod causes;
mod error;
mod experiment;
mod follow;
mod histograms;
mod machine;
mod prepare;
mod repeat;
mod tracer;
mod tracing;
mod treating;

pub use causes::{CauseSearch, assemble, measured};
pub use error::RunError;
pub use experiment::{Audience, RunOptions, Stage, resume, run};
pub use machine::{LoadEnd, Machine, RealMachine, RunningLoad};
pub use prepare::{Experiment, NOISE_FLOOR_THRESHOLD, PreparedCell, PreparedLoad, prepare};
pub use tracer::check_tracers;
pub use tracing::moment as kept_moment;
pub use treating::{Held, Treating, check_treatments, recover_treatments, recovery};
