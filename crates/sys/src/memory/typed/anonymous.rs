//! Ordinary memory: always write-back.

use super::{Backend, Memory, Offer};
use crate::memory::{Buffer, HugePages};
use std::io;
use std::path::Path;
use whylate_core::MemoryMode;

/// Private memory of this process, on ordinary or on huge pages.
#[derive(Debug)]
pub(super) struct Anonymous {
    pub(super) huge_pages: bool,
}

impl Backend for Anonymous {
    fn name(&self) -> &'static str {
        if self.huge_pages { "huge-pages" } else { "anonymous" }
    }
    fn meaning(&self) -> &'static str {
        if self.huge_pages { "ordinary memory on huge pages" } else { "ordinary memory" }
    }
    fn offers(&self, _: Option<&Path>) -> Result<Vec<Offer>, String> {
        if self.huge_pages {
            // Only a request shows whether the kernel has any left.
            self.buffer(1).map_err(|error| error.to_string())?;
        }
        Ok(vec![Offer { mode: MemoryMode::WriteBack, place: "".into(), is_free: !self.huge_pages }])
    }
    fn open(&self, _: &Offer, bytes: usize) -> io::Result<Box<dyn Memory>> {
        Ok(Box::new(self.buffer(bytes)?))
    }
}

impl Anonymous {
    fn buffer(&self, bytes: usize) -> io::Result<Buffer> {
        let buffer = Buffer::allocate(bytes, self.huge_pages, None).map_err(io::Error::other)?;
        match buffer.huge_pages() {
            HugePages::Unavailable { reason } => Err(io::Error::other(reason.clone())),
            _ => Ok(buffer),
        }
    }
}

impl Memory for Buffer {
    fn as_slice(&self) -> &[u8] {
        self.as_slice()
    }
    fn as_mut_slice(&mut self) -> &mut [u8] {
        self.as_mut_slice()
    }
}
