//! Page-locked memory for the table of copies.

use super::{HostMemory, Session, list};
use std::io;
use std::path::Path;
use whylate_core::MemoryMode;
use whylate_load::GPU_BACKENDS;
use whylate_sys::memory::typed::{Backend, Memory, Offer};

/// Page-locked memory of the host for each device: write-combined, and cached.
#[derive(Debug)]
pub(crate) struct HostAllocated;

impl Backend for HostAllocated {
    fn name(&self) -> &'static str {
        GPU_BACKENDS[1].0
    }
    fn meaning(&self) -> &'static str {
        GPU_BACKENDS[1].1
    }
    fn offers(&self, device: Option<&Path>) -> Result<Vec<Offer>, String> {
        let numbers = list().map_err(|error| error.to_string())?.into_iter().map(|listed| listed.number);
        let numbers =
            numbers.filter(|number| device.is_none_or(|named| named == Path::new(&number.to_string())));
        let modes = [MemoryMode::WriteCombining, MemoryMode::WriteBack];
        let offer = |number: usize| {
            modes.map(|mode| Offer { mode, place: number.to_string().into(), is_free: false })
        };
        let offers: Vec<Offer> = numbers.flat_map(offer).collect();
        if offers.is_empty() { Err("CUDA finds no such device".to_owned()) } else { Ok(offers) }
    }
    fn open(&self, offer: &Offer, bytes: usize) -> io::Result<Box<dyn Memory>> {
        let session = Session::open(Some(&offer.place.to_string_lossy()), false)?;
        Ok(Box::new(HostMemory::new(&session, bytes, offer.mode == MemoryMode::WriteCombining)?))
    }
}
