//! A script that runs in a guest.

use super::{Guest, read_or_empty};
use crate::error::LabError;
use crate::output::Output;
use std::path::PathBuf;
use std::time::Duration;

/// A script that runs in a guest.
#[derive(Debug)]
pub struct Running<'a> {
    pub(super) guest: &'a mut Guest,
    pub(super) name: String,
    /// What the agent said when it was done.
    pub(super) done: Option<String>,
}

impl Running<'_> {
    /// The guest, to do something to it from outside.
    pub fn guest(&mut self) -> &mut Guest {
        self.guest
    }

    fn job(&self) -> PathBuf {
        self.guest.share().join("jobs").join(&self.name)
    }

    pub(crate) fn files(&self) -> PathBuf {
        self.job().join("out")
    }

    /// Waits at most this long, and says whether the script is done. [`Running::wait`] returns what it left behind.
    pub fn is_done_within(&mut self, duration: Duration) -> Result<bool, LabError> {
        if self.done.is_none() {
            self.done = self.guest.look_for(&format!("done {} ", self.name), duration)?;
        }
        Ok(self.done.is_some())
    }

    /// Waits until the script is done.
    ///
    /// # Errors
    /// When the guest ends or does not answer in time (it is killed then), or when its kernel complains.
    pub fn wait(mut self, limit: Duration) -> Result<Output, LabError> {
        let rest = match self.done.take() {
            Some(rest) => rest,
            None => self.guest.wait_for(&format!("done {} ", self.name), limit)?,
        };
        let status =
            rest.trim().parse().map_err(|_| LabError::Form { what: "an exit status", text: rest })?;
        let job = self.job();
        let kernel_log = read_or_empty(&job.join("kernel.log"));
        self.guest.console_seen = self.guest.console().len();
        self.guest.check_log(&kernel_log)?;
        Ok(Output {
            status,
            stdout: read_or_empty(&job.join("stdout")),
            stderr: read_or_empty(&job.join("stderr")),
            kernel_log,
            files: job.join("out"),
        })
    }
}
