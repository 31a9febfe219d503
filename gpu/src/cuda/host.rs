//! Page-locked and managed memory for the table of copies.

use super::{HostMemory, Session, list};
use std::io;
use std::path::Path;
use whylate_core::MemoryMode;
use whylate_core::plan::GpuMemory;
use whylate_load::GPU_BACKENDS;
use whylate_sys::memory::typed::{Backend, Memory, Offer};

/// Types of memory for each device, and the ends of their places' names.
const KINDS: [(MemoryMode, GpuMemory, &str); 3] = [
    (MemoryMode::WriteCombining, GpuMemory::WriteCombined, ""),
    (MemoryMode::WriteBack, GpuMemory::Pinned, ""),
    (MemoryMode::WriteBack, GpuMemory::Managed, ":managed"),
];

/// Page-locked memory of the host for each device, write-combined and cached, and managed memory.
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
        let offer = |number: usize| {
            KINDS.map(|(mode, _, suffix)| Offer {
                mode,
                place: format!("{number}{suffix}").into(),
                is_free: false,
            })
        };
        let offers: Vec<Offer> = numbers.flat_map(offer).collect();
        if offers.is_empty() { Err("CUDA finds no such device".to_owned()) } else { Ok(offers) }
    }
    fn open(&self, offer: &Offer, bytes: usize) -> io::Result<Box<dyn Memory>> {
        let place = offer.place.to_string_lossy();
        let is_meant = |(mode, _, suffix): &&(MemoryMode, GpuMemory, &str)| {
            *mode == offer.mode && place.contains(':') != suffix.is_empty()
        };
        let kind = KINDS.iter().find(is_meant).map_or(GpuMemory::Pinned, |(_, kind, _)| *kind);
        let session = Session::open(place.split(':').next(), false)?;
        Ok(Box::new(HostMemory::new(&session, bytes, kind)?))
    }
}
