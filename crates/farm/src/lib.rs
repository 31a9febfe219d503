//! Many machines: runs in object storage ([`Lake`]), files for the engines that dispatch jobs ([`render`]), what was asked for
//! against what was measured (`verify`), and questions over all runs as SQL for engines that exist (`query`).
//!
//! Nothing here measures, schedules or answers a question itself.

mod error;
mod farm_file;
mod lake;
mod query;
mod render;
mod verify;

pub use error::FarmError;
pub use farm_file::{FarmFile, Host, PlanRule};
pub use lake::{Lake, LakeRun, Pulled, Push, Pushed};
pub use query::{Engine, Question, Rows, ask, library, statements};
pub use render::{Dispatcher, PlanFile, Rendered, render};
pub use verify::{Asked, mismatches};
