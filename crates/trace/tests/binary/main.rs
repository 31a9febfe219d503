//! The readers of binary traces: against `trace-cmd report`, against the kernel's text, and on files made here.

mod builder;
mod damage;
mod golden;
mod made;
mod raw_pages;
mod trace_dat;
