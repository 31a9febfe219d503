//! The line between the harness and the agent in a guest.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The line to the agent, with the part of an answer that has arrived.
#[derive(Debug)]
pub(crate) struct Line {
    stream: UnixStream,
    /// What has arrived of a line.
    pending: Vec<u8>,
}

impl Line {
    /// A line of which nothing was read yet.
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream, pending: Vec::new() }
    }

    /// Sends a line, which ends here.
    pub(crate) fn send(&mut self, line: &str) -> std::io::Result<()> {
        self.stream.write_all(format!("{line}\n").as_bytes())
    }

    /// The next line, or `None` when there is none within the limit.
    pub(crate) fn read(&mut self, limit: Duration) -> std::io::Result<Option<String>> {
        self.stream.set_read_timeout(Some(limit))?;
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned()));
            }
            let mut buffer = [0; 512];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.pending.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}
