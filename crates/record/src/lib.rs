//! Records traces: a buffer of its own in tracefs, filled until something is late, saved as `trace.dat`.

mod buffer;
pub mod causes;
mod error;
pub mod histograms;
mod keep;
mod pipe;
mod profile;
mod recorder;
mod stream;
pub mod tasks;
mod trace_dat;
mod tracefs;
mod tracer;

pub use error::RecordError;
pub use keep::{Change, Keeper, Kept, RankedFiles, Ring, own_command};
pub use recorder::{Recorder, Request, try_function_tracer};
pub use trace_dat::Saved;
pub use tracefs::Tracefs;
pub use tracer::{Sample, TracerSession, check_tracer};
