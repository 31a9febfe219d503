//! Who made a task late: pure functions of traces, and of what the BPF programs recorded.
//!
//! A trace goes *find* (which moment was late) → *window* (its events) → *states* (what each CPU did) → *blame* (who had the
//! CPU in each piece) → *causes*; `trace` calls these in turn, `evidence` has what tracers state themselves. A recording
//! ([`whylate_core::recording`]) is divided by [`segments`], for watched tasks over [`activation`], with the same words
//! (`vocabulary`, `stack`), grades (`confidence`) and causes (`causes::divide`). If both saw the same spike, [`combine_run`]
//! makes one answer of the two. A kind of cause is claimed only on evidence; unexplained time is `unattributed`.

pub mod activation;
pub mod advice;
mod blame;
mod causes;
mod confidence;
mod describe;
mod evidence;
mod find;
mod options;
pub mod segments;
mod stack;
mod states;
mod time;
mod trace;
mod vocabulary;
mod window;

pub use causes::combine_run;
pub use options::{Options, THRESHOLD_NS, TaskChoice};
pub use trace::{Export, KeptMoment, explain, explain_kept, export};
