//! A message of the kernel's log that is about latency.

use super::{CauseKind, Severity};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Messages of one kind, CPU, thread and function. A log does not say which task was late because of it.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogMessage {
    /// Its kind: `rt_throttling`, `soft_lockup`, …
    pub code: String,
    /// How much it matters.
    pub severity: Severity,
    /// When it came first, since boot.
    pub at_ns: Option<u64>,
    /// The day and time of that, as the log has it.
    pub wall: Option<String>,
    /// When it came last, if it came more than once.
    pub last_at_ns: Option<u64>,
    /// The CPU in the message; `names` says what it is.
    pub cpu: Option<u32>,
    /// The thread in the message; `names` says what it is.
    pub task: Option<String>,
    /// Its thread id.
    pub pid: Option<u32>,
    /// The function, place, device or option in the message.
    pub function: Option<String>,
    /// The largest time in the messages.
    pub figure_ns: Option<u64>,
    /// The largest count in the messages; the kernel counts on from message to message.
    pub count: Option<u64>,
    /// How many such messages the log has.
    pub lines: u64,
    /// The message with the largest figure.
    pub text: String,
    /// What happened, and what it does to latency.
    pub meaning: String,
    /// The meaning of the CPU, the thread and the figure, and what they cannot show.
    pub names: String,
    /// What to do.
    pub fix: String,
    /// The kind of cause that it may be.
    pub cause: Option<CauseKind>,
}

/// What the kernel logged about latency while a run measured.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunMessage {
    /// The cell that was measured; absent between repeats.
    pub cell: Option<String>,
    /// Its repeat, from 1.
    pub repeat: Option<u32>,
    /// The message; its times are those of the log's clock, which is close to CLOCK_MONOTONIC.
    #[serde(flatten)]
    pub message: LogMessage,
}
