//! What programs cost, by the kernel's own statistics.

use crate::error::BpfError;
use crate::object::{one_line, refused};
use crate::snapshot::ProgramCost;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

/// While this lives, the kernel counts what BPF programs cost, which itself costs each of them some 30 ns.
#[derive(Debug)]
pub struct CostCounting {
    _statistics: OwnedFd,
}

impl CostCounting {
    /// Switches the counting on, beside whoever else wants it.
    ///
    /// # Errors
    /// When the kernel does not allow it (before 5.8 it is only `sysctl kernel.bpf_stats_enabled=1`).
    pub fn start() -> Result<Self, BpfError> {
        match aya::sys::enable_stats(aya::sys::Stats::RunTime) {
            Ok(statistics) => Ok(Self { _statistics: statistics }),
            Err(error) => Err(refused(&error.io_error).unwrap_or_else(|| BpfError::Object(one_line(&error)))),
        }
    }
}

/// What each program of the machine has cost, by its id; its function's name, of which the kernel keeps 15 bytes, stands for
/// its event. Times are counted only while somebody has switched the counting on.
///
/// # Errors
/// When the kernel does not list its programs.
pub fn costs_of_all() -> Result<HashMap<u32, ProgramCost>, BpfError> {
    let mut costs = HashMap::new();
    for program in aya::programs::loaded_programs() {
        let program = program.map_err(|error| BpfError::Object(one_line(&error)))?;
        // A program may have gone since it was listed.
        let Ok(fd) = program.fd() else { continue };
        costs.extend(
            of(program.name_as_str().unwrap_or_default(), fd.as_fd()).map(|cost| (program.id(), cost)),
        );
    }
    Ok(costs)
}

/// What the kernel says of a program in the information about its file descriptor.
pub(crate) fn of(event: &str, program: BorrowedFd<'_>) -> Option<ProgramCost> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", program.as_raw_fd())).ok()?;
    let fields: BTreeMap<&str, u64> = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter_map(|(name, value)| Some((name, value.trim().parse().ok()?)))
        .collect();
    let field = |name: &str| fields.get(name).copied().unwrap_or(0);
    Some(ProgramCost {
        event: event.to_owned(),
        runs: field("run_cnt"),
        time_ns: field("run_time_ns"),
        missed: field("recursion_misses"),
    })
}
