//! Many machines: runs in object storage ([`Lake`]), files for the engines that dispatch jobs ([`render`]), a check
//! of each run against the request (`verify`), and questions over all runs as SQL for existing engines ([`answer`]).
//!
//! This crate does not measure, schedule or answer questions itself.

mod boards;
mod compare;
mod engine;
mod error;
mod farm_file;
mod lake;
mod query;
mod render;
mod verify;

pub use boards::{boards, course, history_of};
pub use compare::{FIGURES, RunGroup, compare_groups, kernels};
pub use engine::{AnswerRows, Engine, Wait, ask};
pub use error::FarmError;
pub use farm_file::{FarmFile, Host, PlanRule};
pub use lake::{Damaged, Lake, LakeLayout, LakeRun, Pulled, Push, Pushed};
pub use query::{Question, answer, answers, library, statements};
pub use render::{Dispatcher, PlanFile, Rendered, render};
pub use verify::{Asked, is_short, mismatches};
