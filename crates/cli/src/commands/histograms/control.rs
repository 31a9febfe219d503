//! The local socket on which a running `whylate histograms` takes requests: lines of JSON, and so are the answers.

use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use whylate_core::result::HistogramKind;
use whylate_core::{CpuSet, Warning, WarningCode};
use whylate_host::sockets::{self, Listening};

/// The word in the name of the socket.
const WHAT: &str = "histograms";
/// Pause after a connection that could not be accepted.
const REST: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Act {
    Enable,
    Disable,
    Reset,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) act: Act,
    /// Empty: all.
    pub(super) kinds: Vec<HistogramKind>,
    /// Absent: all measured ones.
    pub(super) cpus: Option<CpuSet>,
}

/// An answer: what was done, or why not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Reply {
    Done(String),
    Error(String),
}

/// Where the answer to a request goes.
pub(super) struct Answer {
    stream: UnixStream,
}

impl Answer {
    pub(super) fn send(mut self, outcome: std::result::Result<String, String>) {
        let reply = outcome.map_or_else(Reply::Error, Reply::Done);
        // The other side may be gone; then it does not need the answer.
        if let Ok(line) = serde_json::to_string(&reply) {
            let _ = self.stream.write_all(format!("{line}\n").as_bytes());
        }
    }
}

/// Takes requests; dropping it removes the socket.
pub(super) struct Server {
    _socket: Listening,
    requests: Receiver<(Request, Answer)>,
}

impl Server {
    /// Makes the socket. Without one the histograms still count, and a warning says what is missing.
    pub(super) fn start() -> (Option<Self>, Option<Warning>) {
        match Self::listen() {
            Ok(server) => (Some(server), None),
            Err(error) => {
                let text =
                    format!("requests to enable, disable or reset cannot reach this process: {error:#}");
                (None, Some(Warning::new(WarningCode::NoControlSocket, text)))
            }
        }
    }

    fn listen() -> Result<Self> {
        let socket = sockets::listen(WHAT)?;
        let listener = socket.listener.try_clone()?;
        let (sender, requests) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                match stream {
                    Ok(stream) => accept(stream, &sender),
                    // Usually out of file descriptors: wait before the next attempt.
                    Err(_) => std::thread::sleep(REST),
                }
            }
        });
        Ok(Self { _socket: socket, requests })
    }

    /// The next request, if there is one.
    pub(super) fn next(&self) -> Option<(Request, Answer)> {
        self.requests.try_recv().ok()
    }
}

/// Reads a request and passes it on; answers an unreadable one at once.
fn accept(stream: UnixStream, requests: &Sender<(Request, Answer)>) {
    let line = sockets::read_line(&stream);
    let answer = Answer { stream };
    match line.map_err(anyhow::Error::from).and_then(|line| Ok(serde_json::from_str(&line)?)) {
        Ok(request) => {
            // The receiver is gone only while the process is ending.
            let _ = requests.send((request, answer));
        }
        Err(error) => answer.send(Err(format!("cannot read the request: {error}"))),
    }
}

/// Sends the request to the running process, or to `pid`, and returns its answer.
pub(super) fn tell(request: &Request, pid: Option<u32>) -> Result<String> {
    let answer = sockets::ask(WHAT, pid, &serde_json::to_string(request)?)
        .map_err(|error| anyhow!(error.to_string()))?;
    match serde_json::from_str(&answer).context("cannot read the answer of `whylate histograms`")? {
        Reply::Done(text) => Ok(text),
        Reply::Error(text) => Err(anyhow!(text)),
    }
}
