//! Triggers that another process sends by `whylate trigger`.

use super::inbox::{Teller, Watcher};
use crate::error::ProbeError;
use serde::{Deserialize, Serialize};
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use whylate_host::sockets::{self, SocketError};
use whylate_sys::clock;

/// The word in the name of the socket.
const WHAT: &str = "watch";
/// How often it is looked whether to end.
const PERIOD: Duration = Duration::from_millis(5);
/// A moment is not further back than this.
const EARLIEST_NS: u64 = 1_000_000_000;
const TAKEN: &str = "taken";

/// What is sent, as a line of JSON.
#[derive(Debug, Serialize, Deserialize)]
struct TriggerRequest {
    /// When the other process was asked for it.
    at_ns: u64,
    text: Option<String>,
}

/// Sends a trigger to the only watch of this user that waits for it, or to `pid`.
///
/// # Errors
/// [`SocketError`], and when the answer is not that it was taken.
pub fn send_trigger(text: Option<String>, pid: Option<u32>) -> Result<(), SocketError> {
    let request = TriggerRequest { at_ns: clock::now().0, text };
    let failed = |text: String| SocketError::Failed(text);
    let line = serde_json::to_string(&request).map_err(|error| failed(error.to_string()))?;
    let answer = sockets::ask(WHAT, pid, &line).map_err(|error| match error {
        SocketError::Absent(text) => {
            SocketError::Absent(format!("{text}; start the watch with --trigger socket"))
        }
        other => other,
    })?;
    if answer.trim_end() == TAKEN {
        Ok(())
    } else {
        Err(failed(format!("the watch answered: {}", answer.trim_end())))
    }
}

/// Waits for requests.
///
/// # Errors
/// When the socket cannot be made.
pub(super) fn watch(teller: Teller) -> Result<Watcher, ProbeError> {
    let cannot =
        |error: std::io::Error| ProbeError::Failed(format!("cannot wait for `whylate trigger`: {error}"));
    let socket = sockets::listen(WHAT).map_err(cannot)?;
    socket.listener.set_nonblocking(true).map_err(cannot)?;
    let read = move |stop: &AtomicBool| {
        while !stop.load(Ordering::Relaxed) {
            match socket.listener.accept() {
                Ok((stream, _)) => answer(stream, &teller),
                Err(_) => std::thread::sleep(PERIOD),
            }
        }
    };
    Watcher::start("trigger socket", read).map_err(cannot)
}

fn answer(mut stream: UnixStream, teller: &Teller) {
    let now_ns = clock::now().0;
    let line = stream.set_nonblocking(false).and_then(|()| sockets::read_line(&stream)).unwrap_or_default();
    // A process that only looks whether there is a watch sends nothing.
    if line.is_empty() {
        return;
    }
    let answer = match serde_json::from_str::<TriggerRequest>(&line) {
        Ok(request) => {
            let at_ns = request.at_ns.clamp(now_ns.saturating_sub(EARLIEST_NS), now_ns);
            teller.tell(at_ns, request.text.as_deref());
            TAKEN.to_owned()
        }
        Err(error) => format!("cannot read the request: {error}"),
    };
    // The other side may be gone; then it does not need the answer.
    let _ = stream.write_all(format!("{answer}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::inbox::Inbox;
    use super::*;
    use std::io::Read as _;

    #[test]
    fn a_request_is_taken_once_with_its_moment() {
        let inbox = Inbox::default();
        let teller = Teller::new(&inbox, 0);
        let ask = |line: &str| {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            ours.write_all(line.as_bytes()).unwrap();
            ours.shutdown(std::net::Shutdown::Write).unwrap();
            answer(theirs, &teller);
            let mut text = String::new();
            ours.read_to_string(&mut text).unwrap();
            text
        };
        let now_ns = clock::now().0;
        let line =
            serde_json::to_string(&TriggerRequest { at_ns: now_ns - 5_000, text: Some("late".to_owned()) })
                .unwrap();
        assert_eq!(ask(&format!("{line}\n")), "taken\n");
        assert_eq!(ask(""), "");
        assert!(ask("late\n").contains("cannot read the request"));
        let old = serde_json::to_string(&TriggerRequest { at_ns: 1, text: None }).unwrap();
        assert_eq!(ask(&old), "taken\n");
        let come = inbox.take(&mut []);
        assert_eq!(come.len(), 2);
        assert!(come[0].at_ns + EARLIEST_NS >= now_ns, "a wrong moment is bounded");
        assert_eq!((come[1].at_ns, come[1].text.as_deref()), (now_ns - 5_000, Some("late")));
    }
}
