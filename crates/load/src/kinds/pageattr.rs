//! The pageattr load: write-combining buffers, for which the kernel changes page attributes and flushes every CPU.

use super::events::{Act, Acts, Keys};
use crate::error::LoadError;
use std::io;
use whylate_core::plan::PageattrPlan;
use whylate_sys::disturb::buffer::BufferDevice;

struct Buffers(BufferDevice);

impl Buffers {
    fn new() -> Result<Self, LoadError> {
        BufferDevice::find().map(Self).map_err(|error| {
            LoadError::Unavailable(format!(
                "the pageattr load: {error}; load a driver with write-combining buffers (`modprobe vgem`), as root"
            ))
        })
    }
}

impl Act for Buffers {
    fn describe(&self) -> String {
        format!("buffers of 1 MiB of {} mapped, written and given back", self.0.path().display())
    }
    fn turn(&mut self) -> io::Result<u64> {
        self.0.cycle()?;
        Ok(1)
    }
}

impl Acts for PageattrPlan {
    const NAME: &'static str = "pageattr";
    const UNIT: &'static str = "buffers_per_s";
    fn keys(&self) -> Keys<'_> {
        Keys { cpus: &self.cpus, victims: None, rate: self.rate.as_pace() }
    }
    fn act(&self, _workers: usize) -> Result<Box<dyn Act>, LoadError> {
        Ok(Box::new(Buffers::new()?))
    }
    fn check(&self) -> Result<(), LoadError> {
        Buffers::new().map(drop)
    }
}
