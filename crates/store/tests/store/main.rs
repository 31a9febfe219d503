//! The run directory from outside: what is written is read again, whatever happened in between.

mod assembled;
mod coarse;
mod damage;
mod directory;
mod made;
mod merged;
mod mutations;
mod sealed;
mod size;
