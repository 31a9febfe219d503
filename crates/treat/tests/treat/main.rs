//! Changes on a fake root, through the journal and back; and what planners make of invented machines.

mod damage;
mod gpu;
mod guard;
mod machine;
mod planners;
mod quota;
mod real;
mod refusals;
