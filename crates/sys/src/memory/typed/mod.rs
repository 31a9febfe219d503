//! Memory of a chosen type: write-back, write-through, write-combining, uncached.
//!
//! A [`Backend`] is a way to get such memory from the kernel. The type of a piece of memory has three answers: what
//! was `requested`, what the page table says (`mapped`, if it can be read), and what timing shows (`effective`). A
//! driver may map ordinary memory with a write-combining page protection and still get write-back.

mod anonymous;
mod device;
mod dma;
mod gem;
mod listed;
mod module;

pub use module::{MODULE_DEVICE, Module};

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use whylate_copy::observe::{Evidence, Observed, observe};
use whylate_core::MemoryMode;

/// A way to get memory of some types.
pub trait Backend: fmt::Debug + Sync {
    /// The name in flags and results.
    fn name(&self) -> &'static str;
    /// What it is, in a line.
    fn meaning(&self) -> &'static str;
    /// What it offers here. `device` is what the user named, for backends that need or allow it.
    ///
    /// # Errors
    /// Why it offers nothing, and what to do.
    fn offers(&self, device: Option<&Path>) -> Result<Vec<Offer>, String>;
    /// Memory of at least that size, or the kernel's refusal.
    fn open(&self, offer: &Offer, bytes: usize) -> io::Result<Box<dyn Memory>>;
}

/// Memory of one type from one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The type that is asked for.
    pub mode: MemoryMode,
    /// The place: a device, or nothing for ordinary memory.
    pub place: PathBuf,
    /// Writing there has no visible effect, so it is used without being named.
    pub is_free: bool,
}

impl Offer {
    fn free(mode: MemoryMode, place: impl Into<PathBuf>) -> Self {
        Self { mode, place: place.into(), is_free: true }
    }
}

/// All backends.
pub const BACKENDS: &[&dyn Backend] = &[
    &anonymous::Anonymous { huge_pages: false },
    &anonymous::Anonymous { huge_pages: true },
    &module::Memtype,
    &device::Dumb,
    &gem::Gem,
    &device::PciResource,
    &device::Framebuffer,
    &device::CarveOut,
    &dma::Udmabuf,
    &dma::DmaHeap,
];

static MORE: OnceLock<&'static [&'static dyn Backend]> = OnceLock::new();

/// Adds backends that only some programs have: once, before any is asked for.
pub fn add(backends: &'static [&'static dyn Backend]) {
    // Later calls have no effect.
    let _ = MORE.set(backends);
}

/// [`BACKENDS`], and those that were added.
pub fn all() -> impl Iterator<Item = &'static dyn Backend> {
    BACKENDS.iter().chain(MORE.get().copied().unwrap_or_default()).copied()
}

/// Bytes of some mapping, given back when dropped.
pub trait Memory: Send {
    /// The bytes.
    fn as_slice(&self) -> &[u8];
    /// The bytes, to be written.
    fn as_mut_slice(&mut self) -> &mut [u8];
}

/// Memory, with what is known of its type.
pub struct TypedMemory {
    memory: Box<dyn Memory>,
    bytes: usize,
    /// Where it comes from.
    pub backend: &'static str,
    /// The device; empty for ordinary memory.
    pub place: PathBuf,
    pub requested: MemoryMode,
    /// What the page table says, or the kernel's list of memory types; `None` if neither can be read.
    pub mapped: Option<MemoryMode>,
    /// What timing shows; `None` if its figures contradict each other.
    pub effective: Option<MemoryMode>,
    pub evidence: Option<Evidence>,
}

impl fmt::Debug for TypedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TypedMemory({} {} bytes of {})", self.requested, self.bytes, self.backend)
    }
}

impl TypedMemory {
    /// Opens memory, reads its page table and times it.
    ///
    /// # Errors
    /// The kernel's refusal, or less memory than was asked for.
    pub fn open(backend: &dyn Backend, offer: &Offer, bytes: usize) -> io::Result<Self> {
        let room = bytes.max(whylate_copy::observe::BYTES_MIN);
        let listed_before = listed::list();
        let mut memory = backend.open(offer, room)?;
        if memory.as_slice().len() < room {
            let message = format!("the memory has {} bytes, but {room} are needed", memory.as_slice().len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let evidence = observe(memory.as_mut_slice());
        // Drivers map a page on its first touch, which has happened by now.
        let mapped = match offer.place.as_os_str().is_empty() {
            true => Some(offer.mode),
            false => module::page_table_mode(memory.as_slice())
                .or_else(|| listed::added(&listed_before, &listed::list(), memory.as_slice().len())),
        };
        Ok(Self {
            memory,
            bytes,
            backend: backend.name(),
            place: offer.place.clone(),
            requested: offer.mode,
            mapped,
            effective: evidence.and_then(|evidence| evidence.observed()).map(mode),
            evidence,
        })
    }

    /// The bytes that were asked for.
    pub fn as_slice(&self) -> &[u8] {
        &self.memory.as_slice()[..self.bytes]
    }

    /// The bytes that were asked for, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.memory.as_mut_slice()[..self.bytes]
    }

    /// `wc memory of dumb (/dev/dri/card0), mapped as wc (type by timing: wb)`.
    pub fn describe(&self) -> String {
        let word = |mode: Option<MemoryMode>| mode.map_or("unknown", MemoryMode::name);
        if self.place.as_os_str().is_empty() {
            return format!("{} memory", self.requested);
        }
        let (mapped, effective) = (word(self.mapped), word(self.effective));
        let place = self.place.display();
        format!(
            "{} memory of {} ({place}), mapped as {mapped} (type by timing: {effective})",
            self.requested, self.backend
        )
    }

    /// Whether timing shows what was asked for.
    pub fn is_proven(&self) -> bool {
        self.effective.is_some_and(|effective| effective.is_timed_as(self.requested))
    }
}

/// Memory of that type from the first backend that has it, or from the named one.
pub fn open(
    mode: MemoryMode,
    backend: Option<&str>,
    device: Option<&Path>,
    bytes: usize,
) -> Result<TypedMemory, String> {
    let ordinary = mode == MemoryMode::WriteBack;
    let mut reasons = Vec::new();
    for one in all() {
        // A named backend is that of the memory that is not ordinary.
        let is_meant = match backend {
            Some(_) if ordinary => one.name() == BACKENDS[0].name(),
            Some(name) => one.name() == name,
            None => true,
        };
        if !is_meant {
            continue;
        }
        match one.offers(device.filter(|_| backend.is_some() && !ordinary)) {
            Ok(offers) => {
                let has = |offer: &&Offer| offer.mode == mode && (offer.is_free || backend.is_some());
                for offer in offers.iter().filter(has) {
                    match TypedMemory::open(one, offer, bytes) {
                        Ok(memory) => return Ok(memory),
                        Err(error) => reasons.push(format!("{}: {error}", one.name())),
                    }
                }
            }
            Err(reason) => reasons.push(format!("{}: {reason}", one.name())),
        }
    }
    if reasons.is_empty() {
        let names: Vec<&str> = all().map(|backend| backend.name()).collect();
        reasons.push(format!(
            "the backends are {}; `whylate copy --backends` lists the memory types of each",
            names.join(", ")
        ));
    }
    Err(format!("there is no {mode} memory of {bytes} bytes ({})", reasons.join("; ")))
}

fn mode(observed: Observed) -> MemoryMode {
    match observed {
        Observed::WriteBack => MemoryMode::WriteBack,
        Observed::WriteThrough => MemoryMode::WriteThrough,
        Observed::WriteCombining => MemoryMode::WriteCombining,
        Observed::Uncached => MemoryMode::Uncached,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_memory_is_there_and_says_what_it_is() {
        let backend = BACKENDS[0];
        let offers = backend.offers(None).unwrap();
        let mut memory = TypedMemory::open(backend, &offers[0], 10_000).unwrap();
        assert_eq!((memory.backend, memory.requested), ("anonymous", MemoryMode::WriteBack));
        assert_eq!(memory.mapped, Some(MemoryMode::WriteBack));
        assert!(memory.evidence.is_some());
        assert_eq!(memory.as_slice().len(), 10_000);
        memory.as_mut_slice().fill(7);
        assert!(memory.as_slice().iter().all(|byte| *byte == 7));
    }

    #[test]
    fn every_backend_has_a_name_and_offers_or_says_why_not() {
        let mut names: Vec<&str> = BACKENDS.iter().map(|backend| backend.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), BACKENDS.len());
        for backend in BACKENDS {
            match backend.offers(None) {
                Ok(offers) => assert!(!offers.is_empty(), "{}", backend.name()),
                Err(reason) => assert!(reason.len() > 20 && !reason.ends_with('.'), "{reason}"),
            }
        }
    }
}
