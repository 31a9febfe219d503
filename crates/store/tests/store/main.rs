//! The run directory from outside: written runs are read back, whatever happened in between.

mod assembled;
mod attacks;
mod coarse;
mod damage;
mod directory;
mod listed;
mod made;
mod memory;
mod merged;
mod mutations;
mod sealed;
mod size;
