//! The memory of a table, and the rows that it makes possible.

use super::{CopyRequest, memory_facts, row_of, warn_unless_proven};
use crate::error::ProbeError;
use whylate_copy::{Copier, Method};
use whylate_core::result::{CopyRow, MemoryFacts};
use whylate_core::warning::push_once;
use whylate_core::{CopyMethod, MemoryMode, Warning, WarningCode};
use whylate_sys::memory::typed::{BACKENDS, Backend, Offer, TypedMemory, all};

/// How much of a row is compared byte by byte before it is timed.
const COMPARED: usize = 64 << 10;

/// One side of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Ordinary,
    Other(usize),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    from: Side,
    to: Side,
    method: CopyMethod,
    copier: Copier,
}

/// All memory of a table, each as large as the largest block.
pub(super) struct Stock {
    from: TypedMemory,
    to: TypedMemory,
    others: Vec<TypedMemory>,
}

impl Stock {
    /// Opens the requested memory, or all memory that can be used without being named.
    pub(super) fn open(
        request: &CopyRequest,
        bytes: usize,
        warnings: &mut Vec<Warning>,
    ) -> Result<Self, ProbeError> {
        let ordinary = || {
            let backend = BACKENDS[0];
            let offers = backend.offers(None).map_err(ProbeError::Unavailable)?;
            TypedMemory::open(backend, &offers[0], bytes)
                .map_err(|error| ProbeError::Unavailable(format!("{bytes} bytes of memory: {error}")))
        };
        let mut stock = Self { from: ordinary()?, to: ordinary()?, others: Vec::new() };
        stock.from.as_mut_slice().iter_mut().zip(0u32..).for_each(|(byte, index)| {
            *byte = (index.wrapping_mul(0x9E37_79B9) >> 24) as u8;
        });
        for (backend, offer) in offers(request)? {
            match TypedMemory::open(backend, &offer, bytes) {
                Ok(memory) => {
                    warn_unless_proven(&memory, warnings);
                    stock.others.push(memory);
                }
                Err(error) => {
                    let text = format!(
                        "{} memory of {} ({}) is not in the table: {error}",
                        offer.mode,
                        backend.name(),
                        offer.place.display()
                    );
                    if request.backend.is_some() {
                        return Err(ProbeError::Unavailable(text));
                    }
                    push_once(warnings, Warning::new(WarningCode::MemoryModeRefused, text));
                }
            }
        }
        Ok(stock)
    }

    /// The requested rows.
    pub(super) fn rows(&self, request: &CopyRequest) -> Result<Vec<Row>, ProbeError> {
        let methods = methods(&request.methods)?;
        let mut sides = Vec::new();
        if request.backend.as_deref().is_none_or(|name| name == BACKENDS[0].name()) {
            sides.push((Side::Ordinary, Side::Ordinary));
        }
        for index in 0..self.others.len() {
            sides.extend([(Side::Other(index), Side::Ordinary), (Side::Ordinary, Side::Other(index))]);
        }
        sides.retain(|(from, to)| {
            request.from.is_none_or(|mode| mode == self.mode(*from))
                && request.to.is_none_or(|mode| mode == self.mode(*to))
        });
        if sides.is_empty() {
            return Err(ProbeError::Unavailable(absent(request)));
        }
        let rows = sides.into_iter().flat_map(|(from, to)| {
            methods.iter().map(move |(method, copier)| Row { from, to, method: *method, copier: *copier })
        });
        Ok(rows.collect())
    }

    fn mode(&self, side: Side) -> MemoryMode {
        match side {
            Side::Ordinary => MemoryMode::WriteBack,
            Side::Other(index) => self.others[index].requested,
        }
    }

    /// Copies one block.
    #[inline]
    pub(super) fn copy(&mut self, row: &Row, bytes: usize) {
        let (source, destination) = self.buffers(row);
        row.copier.copy(&source[..bytes], &mut destination[..bytes]);
    }

    fn buffers(&mut self, row: &Row) -> (&[u8], &mut [u8]) {
        match (row.from, row.to) {
            (Side::Other(index), _) => (self.others[index].as_slice(), self.to.as_mut_slice()),
            (_, Side::Other(index)) => (self.from.as_slice(), self.others[index].as_mut_slice()),
            (Side::Ordinary, Side::Ordinary) => (self.from.as_slice(), self.to.as_mut_slice()),
        }
    }

    /// Whether the bytes arrive unchanged.
    pub(super) fn is_exact(&mut self, row: &Row, warnings: &mut Vec<Warning>) -> bool {
        let bytes = COMPARED.min(self.from.as_slice().len());
        if let Side::Other(index) = row.from {
            let Self { from, others, .. } = self;
            others[index].as_mut_slice()[..bytes].copy_from_slice(&from.as_slice()[..bytes]);
        }
        let (_, destination) = self.buffers(row);
        destination[..bytes].fill(0);
        self.copy(row, bytes);
        let (_, destination) = self.buffers(row);
        let arrived = destination[..bytes].to_vec();
        let is_exact = arrived == self.from.as_slice()[..bytes];
        if !is_exact {
            let text = format!(
                "{} from {} to {}: the copy differs from the source",
                row.method,
                self.mode(row.from),
                self.mode(row.to)
            );
            push_once(warnings, Warning::new(WarningCode::CopyAltered, text));
        }
        is_exact
    }

    /// The row, without figures.
    pub(super) fn describe(&self, row: &Row) -> CopyRow {
        let other = match (row.from, row.to) {
            (Side::Other(index), _) | (_, Side::Other(index)) => Some(&self.others[index]),
            _ => None,
        };
        row_of(other, self.mode(row.from), self.mode(row.to), row.method)
    }

    pub(super) fn memory_facts(&self) -> Vec<MemoryFacts> {
        std::iter::once(&self.from).chain(&self.others).filter_map(memory_facts).collect()
    }
}

/// What is to be opened in addition to ordinary memory.
fn offers(request: &CopyRequest) -> Result<Vec<(&'static dyn Backend, Offer)>, ProbeError> {
    let mut found = Vec::new();
    let wanted = |mode| {
        let ordinary = MemoryMode::WriteBack;
        let is_row =
            |from, to| request.from.is_none_or(|it| it == from) && request.to.is_none_or(|it| it == to);
        is_row(mode, ordinary) || is_row(ordinary, mode)
    };
    if let Some(name) = &request.backend {
        let Some(backend) = all().find(|backend| backend.name() == name) else {
            let names: Vec<&str> = all().map(|backend| backend.name()).collect();
            return Err(ProbeError::Failed(format!(
                "`{name}` is not a backend; choose {}",
                names.join(", ")
            )));
        };
        let offers = backend.offers(request.device.as_deref());
        let offers = offers.map_err(|reason| ProbeError::Unavailable(format!("{name}: {reason}")))?;
        found.extend(offers.into_iter().filter(|offer| wanted(offer.mode)).map(|offer| (backend, offer)));
    } else {
        for backend in all() {
            let offers = backend.offers(None).unwrap_or_default();
            let usable = offers.into_iter().filter(|offer| offer.is_free && wanted(offer.mode));
            found.extend(usable.map(|offer| (backend, offer)));
        }
    }
    found.retain(|(backend, _)| backend.name() != BACKENDS[0].name());
    Ok(found)
}

/// Why there is no such row.
fn absent(request: &CopyRequest) -> String {
    let mode = |mode: Option<MemoryMode>| mode.map_or("any", MemoryMode::name);
    let reasons = BACKENDS
        .iter()
        .filter_map(|backend| Some(format!("{}: {}", backend.name(), backend.offers(None).err()?)));
    format!(
        "no backend can copy from memory type {} to memory type {}. One of the two must be ordinary memory (`wb`). {}",
        mode(request.from),
        mode(request.to),
        reasons.collect::<Vec<_>>().join("; ")
    )
}

/// The copiers of those methods; if none are given, all that the CPU supports.
fn methods(asked: &[CopyMethod]) -> Result<Vec<(CopyMethod, Copier)>, ProbeError> {
    let copier = |method: &CopyMethod| {
        let known = Method::from_name(method.name());
        known
            .ok_or_else(|| method.to_string())
            .and_then(|known| Copier::new(known).map_err(|error| error.to_string()))
    };
    if asked.is_empty() {
        return Ok(CopyMethod::ALL
            .iter()
            .filter_map(|method| Some((*method, copier(method).ok()?)))
            .collect());
    }
    asked.iter().map(|method| Ok((*method, copier(method).map_err(ProbeError::Unavailable)?))).collect()
}
