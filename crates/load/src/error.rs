//! Why a load cannot start, or ended early.

use std::io;
use std::path::PathBuf;
use std::time::Duration;
use whylate_core::cpus::CpuError;
use whylate_core::plan::SizeError;
use whylate_core::{Bytes, CpuId};
use whylate_sys::memory::BufferError;

/// Why a load cannot start, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The named CPUs do not exist.
    #[error("{key}: {source}")]
    Cpus { key: &'static str, source: CpuError },
    /// The working set has no size on that CPU.
    #[error("working_set: {0}")]
    Size(#[from] SizeError),
    /// A load without CPUs.
    #[error("the load has no CPU to run on; name at least one")]
    NoCpus,
    /// A working set of 0 bytes, or smaller than what the access needs.
    #[error("a working set of {working_set} is too small for `{access}`; the smallest is {smallest}")]
    WorkingSet { working_set: Bytes, access: &'static str, smallest: Bytes },
    /// The buffers together would take more than half of the available memory.
    #[error(
        "{workers} buffers of {working_set} are {wanted}, more than half of the available memory ({available}); \
         choose a smaller working set or fewer CPUs"
    )]
    Memory {
        /// Number of buffers, one per CPU.
        workers: usize,
        /// Size of each.
        working_set: Bytes,
        /// All together.
        wanted: Bytes,
        available: Bytes,
    },
    /// A pace that is not a positive rate or a share in (0, 1].
    #[error(
        "the rate {pace} is not possible; give a positive rate or a share of time above 0 % and up to 100 %"
    )]
    Pace { pace: String },
    /// A reporting interval of 0.
    #[error("the interval between two rates must be above 0")]
    Interval,
    /// A buffer could not be allocated.
    #[error("the buffer for CPU {cpu}: {source}")]
    Buffer { cpu: CpuId, source: BufferError },
    /// The kernel refused to pin a thread.
    #[error("{0}")]
    Pin(String),
    /// A thread of the load ended on its own.
    #[error("the load's thread on CPU {cpu} ended before it was stopped")]
    Worker { cpu: CpuId },
    /// A turn of a load does not end: its driver or its device hangs.
    #[error("the {what} load hangs: its device or driver does not respond (see the kernel's log)")]
    Hung { what: &'static str },
    /// The helper is of another version than this program.
    #[error(
        "{program} has version {found}, but this whylate has version {own}: install both from the same build"
    )]
    Version { program: PathBuf, found: String, own: &'static str },
    /// A command load without a command.
    #[error(
        "the command is empty; give the program and its arguments, for example [\"stress-ng\", \"--vm\", \"1\"]"
    )]
    CommandEmpty,
    /// There is no such program.
    #[error("the command `{command}` was not found{place}; install it or give its full path")]
    CommandNotFound {
        command: String,
        /// Where the command was looked for, as the end of a sentence.
        place: String,
    },
    /// The command ended before the load was stopped.
    #[error("the command `{command}` ended too early ({how}){output}")]
    CommandEnded {
        command: String,
        /// Exit status or signal.
        how: String,
        /// Its last lines, as the end of a sentence; empty without output.
        output: String,
    },
    /// Some process of the command survives SIGKILL.
    #[error("processes of the command `{command}` do not end on SIGKILL (blocked in the kernel?): {pids}")]
    CommandSurvives { command: String, pids: String },
    /// The rate pattern is not a regular expression.
    #[error("the rate pattern `{pattern}` is not a regular expression: {reason}")]
    Pattern { pattern: String, reason: String },
    /// The rate pattern does not say which part of a line is the number.
    #[error(
        "the rate pattern `{pattern}` has {groups} groups; it needs exactly one, around the number: `([0-9.]+) MB/s`"
    )]
    PatternGroups { pattern: String, groups: usize },
    /// The file for the command's output cannot be written.
    #[error("the output file {path}: {source}")]
    Output { path: PathBuf, source: io::Error },
    /// A process or thread of the load could not be started, or could not be reached.
    #[error("{what} failed: {source}")]
    System { what: String, source: io::Error },
    /// The process of the load did not understand its request (another version of the binary?).
    #[error("the load's process got a request that it cannot read: {0}")]
    Request(String),
    /// The machine lacks what the load needs.
    #[error("{0}")]
    Unavailable(String),
    /// The process of the load reported an error and ended. The text is the child's own.
    #[error("{0}")]
    Reported(String),
    /// The process of the load ended without a message.
    #[error("the load's process ended early ({how}){output}")]
    Died {
        /// Exit status or signal.
        how: String,
        /// Its last lines on standard error, as the end of a sentence.
        output: String,
    },
    /// The load was not running after that time.
    #[error("the load was not ready after {:.1} s", .0.as_secs_f64())]
    NotReady(Duration),
    /// The process of the load survives SIGKILL.
    #[error("the load's process {pid} does not end on SIGKILL (blocked in the kernel?)")]
    Survives { pid: u32 },
}

impl LoadError {
    /// For `map_err`: what was tried.
    pub(crate) fn system<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |source| Self::System { what, source: source.into() }
    }
}
