//! Copies between the host and the device.

use super::{Job, wrong};
use crate::vulkan::{Buffer, Commands, GpuError, Kind};
use std::io;
use std::rc::Rc;
use whylate_core::plan::GpuMemory;
use whylate_load::Act;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Up,
    Down,
}

pub(super) struct Copy {
    commands: Commands,
    host: Rc<Buffer>,
    data: Vec<u8>,
    /// Where a staged copy from the device ends.
    arrived: Vec<u8>,
    is_staged: bool,
    way: Way,
    /// Fetches what is on the device.
    fetch: Commands,
    fetched: Rc<Buffer>,
    turns: u64,
    how: String,
}

impl Copy {
    pub(super) fn new(job: &Job, way: Way, memory: GpuMemory) -> Result<Self, GpuError> {
        // The device's end is always its own memory; the plan says how the host's end is made.
        let kind = if memory == GpuMemory::Device { Kind::Pinned } else { job.kind };
        let host = Buffer::new(&job.gpu, job.bytes, kind)?;
        let device = Buffer::new(&job.gpu, job.bytes, Kind::Device)?;
        let fetched = Buffer::new(&job.gpu, job.bytes, Kind::Pinned)?;
        let data = super::random(job.bytes);
        host.write(&data);
        let up = Commands::record(&job.gpu, job.spins, |list| list.copy(&host, &device))?;
        up.run()?;
        if way == Way::Down {
            // What is there afterwards has come from the device.
            host.write(&vec![0; job.bytes]);
        }
        let commands = match way {
            Way::Up => up,
            Way::Down => Commands::record(&job.gpu, job.spins, |list| list.copy(&device, &host))?,
        };
        let fetch = Commands::record(&job.gpu, job.spins, |list| list.copy(&device, &fetched))?;
        let is_staged = memory == GpuMemory::Staged;
        let end = if is_staged { "staged" } else { kind.name() };
        let direction = if way == Way::Up { "to" } else { "from" };
        let how = format!("copies of {} bytes {direction} the device, {end} memory, {}", job.bytes, job.on());
        let arrived = vec![0; job.bytes];
        Ok(Self { commands, host, data, arrived, is_staged, way, fetch, fetched, turns: 0, how })
    }

    /// What has arrived is what was sent.
    fn check(&mut self) -> Result<(), GpuError> {
        let end = match self.way {
            Way::Up => {
                self.fetch.run()?;
                &self.fetched
            }
            Way::Down => &self.host,
        };
        end.read(&mut self.arrived);
        if self.arrived == self.data { Ok(()) } else { Err(wrong("copy")) }
    }
}

impl Act for Copy {
    fn describe(&self) -> String {
        self.how.clone()
    }
    fn turn(&mut self) -> io::Result<u64> {
        if self.is_staged && self.way == Way::Up {
            self.host.write(&self.data);
        }
        self.commands.run()?;
        if self.is_staged && self.way == Way::Down {
            self.host.read(&mut self.arrived);
        }
        if self.turns.is_multiple_of(super::CHECKED_EACH) {
            self.check()?;
        }
        self.turns += 1;
        Ok(1)
    }
}
