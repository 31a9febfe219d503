//! Last step: which of the pieces is the cause, which contributed, and how sure that is.

mod agree;
pub(crate) mod divide;
mod hypervisor;
pub(crate) mod judge;

pub use agree::combine_run;
