//! The order of the steps of a run, and what is left of one that is disturbed, on a machine that only records.

mod boot_scripts;
mod campaign;
mod crashes;
mod disk;
mod failures;
mod fix;
mod gpus;
mod mock;
mod ring;
mod steps;
mod traces;
mod treatments;
