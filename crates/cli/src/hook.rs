//! `--on-threshold COMMAND`: runs a command at the first spike.

use crate::output;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use whylate_core::Nanos;

/// How long the command may run on after the measurement.
const PATIENCE: Duration = Duration::from_secs(10);

/// A command for the first spike.
#[derive(Debug, Default)]
pub(crate) struct Hook {
    command: Option<String>,
    running: Option<Child>,
}

impl Hook {
    pub(crate) fn new(command: Option<String>) -> Self {
        Self { command, running: None }
    }

    /// Starts the command once; the latency is in `WHYLATE_LATENCY_NS`.
    pub(crate) fn fire(&mut self, latency: Nanos) {
        let Some(command) = self.command.take() else { return };
        match shell(&command).env("WHYLATE_LATENCY_NS", latency.0.to_string()).spawn() {
            Ok(child) => self.running = Some(child),
            Err(error) => output::message(&format!("warning: --on-threshold {command}: {error}")),
        }
    }

    /// Waits for the command, but not for ever.
    pub(crate) fn wait(&mut self) {
        let Some(child) = &mut self.running else { return };
        wait_until(|| !matches!(child.try_wait(), Ok(None)), "the command of --on-threshold");
    }
}

/// A command of the user. Standard output is for the result; the command's output goes to standard error.
pub(crate) fn shell(command: &str) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(std::io::stderr());
    shell
}

/// Waits for what the user's commands do, but not for ever: then says that `what` still runs.
pub(crate) fn wait_until(mut is_over: impl FnMut() -> bool, what: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !is_over() {
        if Instant::now() >= deadline {
            return output::message(&format!("warning: {what} still runs; whylate does not stop it"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
