//! Who is to blame for each piece of a window, by the states of the CPUs.

pub(crate) mod account;
mod interrupted;
pub(crate) mod label;
mod noises;
pub(crate) mod piece;
pub(crate) mod standstill;
