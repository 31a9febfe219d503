//! Options for explaining a trace.

use whylate_core::result::LateWhat;

/// The threshold if nothing else gives one.
pub const THRESHOLD_NS: u64 = 100_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The task whose spikes are explained; `None` looks for the measured task.
    pub task: Option<TaskChoice>,
    /// Its period, for traces without its timers; `None` infers it from its rhythm.
    pub period_ns: Option<u64>,
    /// A latency at or below it is not a spike; `None` takes that of the break marker, of the tracer or of the
    /// header, else [`THRESHOLD_NS`].
    pub threshold_ns: Option<u64>,
    /// The kind of lateness; `None` means from timer or wake-up to run, and for real-time tasks everything that takes their
    /// CPU.
    pub what: Option<LateWhat>,
    /// Spikes that are explained, largest first.
    pub top: usize,
    /// Whether the machine was the guest of a hypervisor, if known; `None` checks the names in the trace.
    pub is_virtual: Option<bool>,
}

impl Default for Options {
    /// Any task, the ten largest.
    fn default() -> Self {
        Self { task: None, period_ns: None, threshold_ns: None, what: None, top: 10, is_virtual: None }
    }
}

impl Options {
    /// The latencies to keep in the first pass: the marker's threshold is known only at its end.
    pub(crate) fn least_ns(&self) -> u64 {
        self.threshold_ns.unwrap_or(THRESHOLD_NS)
    }
}

/// A task by name or number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskChoice {
    Pid(u32),
    /// A command; all threads of that name.
    Name(String),
}

impl std::str::FromStr for TaskChoice {
    type Err = std::convert::Infallible;

    /// A number is a thread id.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.parse().map_or_else(|_| Self::Name(text.to_owned()), Self::Pid))
    }
}
