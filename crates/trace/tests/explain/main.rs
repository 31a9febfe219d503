//! Traces written by hand, and what the explanation makes of them.

mod cases;
mod found;
mod script;
mod waits;
