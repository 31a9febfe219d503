//! Treatments: changes of the machine that are undone afterwards, each through one journal on disk.
//!
//! A planner ([`planner`], [`kinds`]) turns the parameters of a treatment and the machine as it is into a list of
//! changes ([`change`]) and writes nothing. A [`Guard`] makes changes: each is in the journal ([`journal`]), on disk,
//! before it is made; it is read back; and it is undone in reverse order, by the guard or, after a crash, by the process that
//! takes the journal next. A setting that something else has changed since is left alone.

pub mod change;
mod claims;
mod error;
mod ethernet;
mod guard;
pub mod journal;
pub mod kinds;
pub mod last_words;
mod neighbourhood;
mod neighbours;
mod nvidia;
mod place;
pub mod planner;
mod priority;
mod reading;
mod result;
mod settle;
pub mod tasks;
mod undo;
pub mod whole_file;

pub use change::{Change, EthernetSetting, Hierarchy, Target, Task, Undoing};
pub use error::TreatError;
pub use guard::Guard;
pub use journal::{Fate, Holder, JournalPlace};
pub use planner::{Impossible, Planned, Planner, Surroundings};
pub use reading::Reading;
pub use undo::{Report, Undone, restore};
