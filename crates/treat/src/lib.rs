//! Treatments: changes of the machine that are undone afterwards, each through one journal on disk.
//!
//! A planner ([`planner`]) turns the parameters of a treatment and the machine as it is into a list of changes
//! ([`change`]).

pub mod change;
pub mod kinds;
pub mod planner;
pub mod reading;

pub use change::{Change, Hierarchy, Target, Task};
pub use planner::{Impossible, Planned, Planner, Surroundings};
pub use reading::Reading;
