//! The `whylate` command as its users and their scripts meet it: texts, exit codes, JSON, and how it ends.
//!
//! No latency is asserted anywhere: these tests run on whatever machine, under whatever load.

mod bad_input;
mod experiment;
mod fields;
mod help;
mod interruption;
mod json;
mod load;
mod looks;
mod measure;
mod tool;
mod treat;
mod treat_crashes;
mod unprivileged;
