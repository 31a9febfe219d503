//! Who made a task late: pure functions of a trace, and of what the BPF programs recorded.
//!
//! Both front ends ([`explain`] for traces, [`segments`] for BPF recordings) divide the time between the expected and the
//! actual moment into pieces and say who had the CPU in each. What names mean (`vocabulary`, `stack`), how sure an
//! answer is (`confidence`) and how pieces become causes (`divide`) is said once for both; where both saw the same
//! spike, [`combine`] makes one answer of the two. A kind of cause is claimed only on evidence; what nothing explains is
//! `unattributed`.

pub mod activation;
pub mod advice;
mod combine;
mod confidence;
mod divide;
pub mod segments;
mod stack;
mod time;
mod trace;
mod vocabulary;

pub use combine::{Explained, combine, combine_run};
pub use trace::{Export, KeptMoment, Options, THRESHOLD_NS, TaskChoice, explain, explain_kept, export};
