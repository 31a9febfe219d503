//! What the process of a load reports to its parent: one JSON document per line.

use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use whylate_core::Warning;
use whylate_core::record::RateRecord;
use whylate_sys::clock;

/// Time between two signs of life.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// A load that has sent nothing for this long is not at work.
pub(crate) const SILENT_AFTER: Duration = Duration::from_secs(4);

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Message {
    /// The load is running at full effect.
    Ready(Ready),
    /// What it achieved over one interval.
    Rate(RateRecord),
    /// Sent every second in any case: a process that is stopped or frozen sends nothing.
    Alive,
    /// Something differs from the request; the load runs nevertheless.
    Warning(Warning),
    /// The load cannot run, or no longer runs; the process ends with status 1.
    Error(String),
    /// The same because the machine lacks what the load needs.
    Unavailable(String),
}

/// Said once, when the load is running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The process of the load (`exec`: the command's own).
    pub pid: u32,
    pub at_ns: u64,
    /// How it is done, for people: instruction set, kind of stores, pages.
    pub detail: String,
    /// The version of the program that does it.
    pub version: String,
}

impl Ready {
    /// From now on.
    pub(crate) fn now(pid: u32, detail: String) -> Self {
        Self { pid, at_ns: clock::now().0, detail, version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

/// The child's end of the line, shared by its threads.
#[derive(Clone)]
pub(crate) struct Reporter {
    output: Arc<Mutex<dyn Write + Send>>,
}

impl Reporter {
    pub(crate) fn new(output: impl Write + Send + 'static) -> Self {
        Self { output: Arc::new(Mutex::new(output)) }
    }

    /// Sends one line at once. An error means that the parent is gone.
    pub(crate) fn send(&self, message: &Message) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        output.write_all(&line)?;
        output.flush()
    }

    /// Sends a sign of life every second from a thread of its own.
    pub(crate) fn stay_alive(&self) -> io::Result<()> {
        let reporter = self.clone();
        let beat = move || {
            while reporter.send(&Message::Alive).is_ok() {
                thread::sleep(HEARTBEAT);
            }
        };
        thread::Builder::new().name("heartbeat".to_owned()).spawn(beat).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);
    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn one_line_per_message() {
        let output = Shared::default();
        let reporter = Reporter::new(output.clone());
        let rate = RateRecord { at_ns: 5, interval_ns: 2, value: 1.5 };
        reporter.send(&Message::Rate(rate)).unwrap();
        reporter.send(&Message::Error("a\nb".to_owned())).unwrap();
        let text = String::from_utf8(output.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text, "{\"rate\":{\"at_ns\":5,\"interval_ns\":2,\"value\":1.5}}\n{\"error\":\"a\\nb\"}\n");
    }
}
