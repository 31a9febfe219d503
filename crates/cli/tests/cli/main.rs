//! The `whylate` command as its users and their scripts see it: texts, exit codes, JSON, and how it ends.
//!
//! No test asserts a latency: these tests run on any machine, under any load.

mod attacks;
mod bad_input;
mod bisect;
mod causes;
mod compare;
mod condition;
mod copy;
mod documents;
mod experiment;
mod explain;
mod export;
mod farm;
mod farm_engine;
mod fields;
mod fix;
mod gpu;
mod help;
mod histograms;
mod interruption;
mod json;
mod load;
mod looks;
mod manners;
mod measure;
mod measure_series;
mod memory;
mod queries;
mod questions;
mod security;
mod serve;
mod shared_runs;
mod tool;
mod tools;
mod top;
mod trace;
mod treat;
mod treat_crashes;
mod unprivileged;
mod watch;
mod watch_audit;
mod watch_chains;
mod watch_cycles;
mod watch_functions;
mod watch_triggers;
