//! A program that keeps CPUs busy: what the host's counters show, as input for advice.

/// An ordinary program: all processes of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct BusyProgram {
    pub name: String,
    /// How many CPUs it keeps busy.
    pub cpus: f64,
    /// What it reads from memory; `None` without a counter for it.
    pub bytes_per_s: Option<f64>,
}
