//! Loads that ask the driver and let the device do nothing.

use super::Job;
use crate::vulkan::{Commands, Gpu, GpuError};
use std::io;
use std::rc::Rc;
use whylate_load::Act;

/// Empty lists of commands, each waited for.
pub(super) struct Submits(Commands, String);

impl Submits {
    pub(super) fn new(job: &Job) -> Result<Self, GpuError> {
        Ok(Self(Commands::record(&job.gpu, job.spins, |_| {})?, format!("empty submissions, {}", job.on())))
    }
}

impl Act for Submits {
    fn describe(&self) -> String {
        self.1.clone()
    }
    fn turn(&mut self) -> io::Result<u64> {
        self.0.run()?;
        Ok(1)
    }
}

pub(super) struct Queries(Rc<Gpu>, String);

impl Queries {
    pub(super) fn new(job: &Job) -> Self {
        Self(Rc::clone(&job.gpu), format!("{}, {}", job.gpu.query_name(), job.on()))
    }
}

impl Act for Queries {
    fn describe(&self) -> String {
        self.1.clone()
    }
    fn turn(&mut self) -> io::Result<u64> {
        std::hint::black_box(self.0.query());
        Ok(1)
    }
}
