//! What the process of a load tells its parent: one JSON document per line.

use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use whylate_core::Warning;
use whylate_core::record::RateRecord;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Message {
    /// The load is running at full effect.
    Ready(Ready),
    /// What it achieved over one interval.
    Rate(RateRecord),
    /// Something is not as asked for; the load runs all the same.
    Warning(Warning),
    /// The load cannot run, or no longer; the process ends with status 1.
    Error(String),
    /// The same because the machine lacks what the load needs.
    Unavailable(String),
}

/// Said once, when the load is running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The process of the load (`exec`: the command's own).
    pub pid: u32,
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// How it is done, for people: instruction set, kind of stores, pages.
    pub detail: String,
}

/// The child's end of the line.
pub(crate) struct Reporter<'w> {
    output: Box<dyn Write + 'w>,
}

impl<'w> Reporter<'w> {
    pub(crate) fn new(output: impl Write + 'w) -> Self {
        Self { output: Box::new(output) }
    }

    /// Sends one line at once. An error means that nobody listens any more.
    pub(crate) fn send(&mut self, message: &Message) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.output.write_all(&line)?;
        self.output.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_per_message() {
        let mut output = Vec::new();
        let mut reporter = Reporter::new(&mut output);
        let rate = RateRecord { at_ns: 5, interval_ns: 2, value: 1.5 };
        reporter.send(&Message::Rate(rate)).unwrap();
        reporter.send(&Message::Error("a\nb".to_owned())).unwrap();
        drop(reporter);
        let text = String::from_utf8(output).unwrap();
        assert_eq!(text, "{\"rate\":{\"at_ns\":5,\"interval_ns\":2,\"value\":1.5}}\n{\"error\":\"a\\nb\"}\n");
    }
}
