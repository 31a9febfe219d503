//! Last step: which pieces are the cause, which contributed, and how sure that is.

mod agree;
pub(crate) mod divide;
mod hypervisor;
pub(crate) mod judge;

pub use agree::combine_run;
