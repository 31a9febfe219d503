//! An X server that the load starts for its command, and that ends with it.

use super::launch;
use super::output::Output;
use crate::child::LoadEvent;
use crate::error::LoadError;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, pipe};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;
use whylate_core::CpuSet;

/// How long a server may take until it has a display; it answers at once or not at all.
const DISPLAY_WITHIN: Duration = Duration::from_secs(5);

/// An X server: a program that says its display's number where `-displayfd` asks it to.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerSpec {
    /// `Xvfb`, `Xorg`.
    pub program: String,
    pub arguments: Vec<String>,
    /// Where it may run; by default wherever the load's process may.
    pub cpus: Option<CpuSet>,
}

/// Starts it and waits for its display: `:1`.
pub(super) fn start(
    spec: &ServerSpec,
    output: &mut Output,
    sender: &Sender<LoadEvent>,
) -> Result<(Pid, String), LoadError> {
    let (reader, writer) = output.channel(false)?;
    // What it prints is kept like the command's; it writes the number of its display to its standard output.
    let (number, answer) = pipe().map_err(LoadError::system("making a pipe for the display"))?;
    let fixed = ["-displayfd", "1", "-nolisten", "tcp", "-noreset"].map(str::to_owned);
    let line = std::iter::once(&spec.program).chain(&fixed).chain(&spec.arguments);
    let pid = launch(spec.cpus.as_ref(), line, answer, writer)?;
    output.collect(reader, sender.clone())?;
    let (to, from) = mpsc::channel();
    super::spawn("display", move || {
        let mut line = String::new();
        // Without a line the server has ended.
        let _ = BufReader::new(number).read_line(&mut line);
        let _ = to.send(line);
    })?;
    let line = from.recv_timeout(DISPLAY_WITHIN).unwrap_or_default();
    match line.trim().parse::<u32>() {
        Ok(number) => Ok((pid, format!(":{number}"))),
        Err(_) => {
            let program = &spec.program;
            let said = output.tail.last_lines();
            Err(LoadError::Unavailable(format!("the X server {program} did not report a display{said}")))
        }
    }
}
