//! What the kernel says of a machine in /proc, /sys, /dev and /etc: facts, findings and the CPU table.
//!
//! Everything is read under a [`HostRoot`], a folder that tests can replace. Nothing here changes a machine, except
//! for a thread that enters a shield by itself ([`shield`]).

pub mod busy;
pub mod cgroup;
pub mod cpu_frequency;
pub mod cpu_stat;
pub mod cpu_table;
pub mod cpuinfo;
pub mod environment;
pub mod facts;
pub mod family;
pub mod hotplug;
pub mod idle_driver;
pub mod interrupts;
pub mod irq_lines;
pub mod kernel_log;
mod program;
pub mod release;
mod root;
pub mod shield;
pub mod smi;
pub mod sockets;
pub mod threads;
pub mod tick;
mod uevent;

pub use program::{PATH_DEFAULT, find_program};
pub use root::{Host, HostError, HostRoot};
pub use uevent::uevent_value;
