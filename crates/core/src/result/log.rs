//! A message of the kernel's log that is about latency.

use super::{CauseKind, Severity};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Messages of one kind, CPU, thread and function. A log does not say which task was late because of a message.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogMessage {
    /// The kind of message: `rt_throttling`, `soft_lockup`, …
    pub code: String,
    /// How much the message matters.
    pub severity: Severity,
    /// When the first message came, since boot.
    pub at_ns: Option<u64>,
    /// Day and time of the first message, as written in the log.
    pub wall: Option<String>,
    /// When the last message came, if there were several.
    pub last_at_ns: Option<u64>,
    /// The CPU in the message; `names` says what this CPU did.
    pub cpu: Option<u32>,
    /// The thread in the message; `names` says what this thread did.
    pub task: Option<String>,
    /// The thread's id.
    pub pid: Option<u32>,
    /// The function, place, device or option in the message.
    pub function: Option<String>,
    /// The largest time in the messages.
    pub figure_ns: Option<u64>,
    /// The largest count in the messages; the kernel's count goes on from message to message.
    pub count: Option<u64>,
    /// Number of these messages in the log.
    pub lines: u64,
    /// The message with the largest figure.
    pub text: String,
    /// What happened, and its effect on latency.
    pub meaning: String,
    /// The meaning of the CPU, the thread and the figure, and what they cannot show.
    pub names: String,
    /// What to do.
    pub fix: String,
    /// The kind of cause that the message may show.
    pub cause: Option<CauseKind>,
}

/// What the kernel logged about latency while a run measured.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunMessage {
    /// The cell that was measured; absent between repeats.
    pub cell: Option<String>,
    /// The repeat of the cell, from 1.
    pub repeat: Option<u32>,
    /// The message; its times are on the log's clock, which is close to CLOCK_MONOTONIC.
    #[serde(flatten)]
    pub message: LogMessage,
}
