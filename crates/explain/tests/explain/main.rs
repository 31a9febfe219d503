//! Traces written by hand, and what the explanation makes of them.

mod cases;
mod exports;
mod found;
mod kept;
mod planted;
mod properties;
mod script;
mod waits;
