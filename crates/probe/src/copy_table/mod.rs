//! The table of copies: rows (from, to, method) by block sizes.
//!
//! A trial copies one block repeatedly from the start of one buffer to the start of another, for about a millisecond. Small
//! blocks stay in the caches and large ones do not: the rate for a block is the rate of code that has just used it. Trials of
//! all rows take turns, so that other work on the machine affects all of them. How a copy changes the caches for other code
//! is not measured here: the plan `cache-modes` does that.

mod paced;
mod rows;
mod timing;

use crate::error::ProbeError;
use rows::Stock;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use timing::Trials;
use whylate_core::order::InOrder;
use whylate_core::result::{BackendFacts, BackendOffer, CopyRow, CopyTable, MemoryFacts, Plateau};
use whylate_core::warning::push_once;
use whylate_core::{CopyMethod, CpuId, CpuSet, Frame, MemoryMode, Warning, WarningCode};
use whylate_sys::memory::typed::{BACKENDS, Backend, Offer, TypedMemory};
use whylate_sys::schedule;

/// Blocks from the size of a message to that of a frame (1920 × 1080 pixels of 12 bits).
pub const BLOCKS: [u64; 10] =
    [256, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10, 1 << 20, 3_110_400];

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CopyRequest {
    pub cpu: CpuId,
    /// Only rows from this type of memory.
    pub from: Option<MemoryMode>,
    /// Only rows to this type of memory.
    pub to: Option<MemoryMode>,
    /// Only these methods; empty: all that the CPU has.
    pub methods: Vec<CopyMethod>,
    /// Only memory of this backend, in addition to ordinary memory.
    pub backend: Option<String>,
    pub device: Option<PathBuf>,
    pub blocks: Vec<u64>,
    /// The frame whose budget is wanted.
    pub frame: Option<Frame>,
    /// Trials for each row and block, at most.
    pub trials: u32,
}

/// Every backend, with what it offers here.
pub fn backends(device: Option<&std::path::Path>) -> Vec<BackendFacts> {
    BACKENDS.iter().map(|backend| backend_facts(*backend, device)).collect()
}

/// What a backend offers here, or why nothing.
pub fn backend_facts(backend: &dyn Backend, device: Option<&std::path::Path>) -> BackendFacts {
    let offers = backend.offers(device);
    BackendFacts {
        name: backend.name().to_owned(),
        meaning: backend.meaning().to_owned(),
        reason: offers.as_ref().err().cloned(),
        offers: offers.unwrap_or_default().iter().map(offer_facts).collect(),
    }
}

fn offer_facts(offer: &Offer) -> BackendOffer {
    BackendOffer { mode: offer.mode, device: device_of(&offer.place), only_when_named: !offer.is_free }
}

fn device_of(place: &std::path::Path) -> Option<String> {
    (!place.as_os_str().is_empty()).then(|| place.display().to_string())
}

/// Measures the table, in a thread that stays on the CPU afterwards. `progress` gets the share that is done, and returns
/// whether to go on.
///
/// # Errors
/// [`ProbeError`] when a type of memory that was asked for is not available, or the CPU cannot be used.
pub fn copy_table(
    request: &CopyRequest,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<CopyTable, ProbeError> {
    let pin = schedule::pin_this_thread(&CpuSet::from_iter([request.cpu]));
    pin.map_err(|error| ProbeError::Unavailable(format!("CPU {} cannot be used: {error}", request.cpu)))?;
    let mut blocks = request.blocks.clone();
    blocks.extend(request.frame.map(|frame| frame.bytes));
    blocks.order();
    blocks.dedup();
    let largest = blocks.last().copied().unwrap_or(0);
    let mut warnings = Vec::new();
    let mut stock = Stock::open(request, largest as usize, &mut warnings)?;
    let mut rows = stock.rows(request)?;
    rows.retain(|row| stock.is_exact(row, &mut warnings));
    let mut trials = Trials::new(rows.len(), &blocks, request.trials);
    trials.run(&rows, &mut stock, progress);
    let mut finished = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let mut found = stock.describe(row);
        found.blocks = trials.figures(index);
        found.plateau = Plateau::of(&found.blocks);
        if let Some(frame) = request.frame {
            found.frame = paced::cost(&frame, &found, row, &mut stock, progress);
        }
        finished.push(found);
    }
    Ok(CopyTable {
        cpu: request.cpu,
        frame: request.frame,
        rows: finished,
        memory: stock.memory_facts(),
        backends: backends(request.device.as_deref()),
        warnings,
    })
}

/// What is known of memory's type.
fn memory_facts(memory: &TypedMemory) -> Option<MemoryFacts> {
    let evidence = memory.evidence?;
    Some(MemoryFacts {
        backend: memory.backend.to_owned(),
        device: device_of(&memory.place),
        requested: memory.requested,
        mapped: memory.mapped,
        effective: memory.effective,
        reread_ns: evidence.reread_ns,
        reread_ordinary_ns: evidence.reread_ordinary_ns,
        store_load_ns: evidence.store_load_ns,
        store_load_ordinary_ns: evidence.store_load_ordinary_ns,
        store_ns: evidence.store_ns,
        store_ordinary_ns: evidence.store_ordinary_ns,
        streaming_gain: evidence.streaming_gain,
    })
}

/// A note that the memory is not of the requested type.
fn warn_unless_proven(memory: &TypedMemory, warnings: &mut Vec<Warning>) {
    if memory.is_proven() {
        return;
    }
    let text =
        format!("{}: this memory is not of the requested type {}", memory.describe(), memory.requested);
    push_once(warnings, Warning::new(WarningCode::MemoryModeNotEffective, text));
}

/// A row without figures.
fn row_of(memory: Option<&TypedMemory>, from: MemoryMode, to: MemoryMode, method: CopyMethod) -> CopyRow {
    CopyRow {
        from,
        to,
        method,
        requested: memory.map_or(MemoryMode::WriteBack, |memory| memory.requested),
        mapped: memory.map_or(Some(MemoryMode::WriteBack), |memory| memory.mapped),
        effective: memory.map_or(Some(MemoryMode::WriteBack), |memory| memory.effective),
        backend: memory.map_or("anonymous", |memory| memory.backend).to_owned(),
        device: memory.and_then(|memory| device_of(&memory.place)),
        blocks: Vec::new(),
        plateau: None,
        frame: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn request() -> CopyRequest {
        CopyRequest {
            cpu: schedule::current_cpu(),
            from: None,
            to: None,
            methods: vec![CopyMethod::Memcpy, CopyMethod::Sse2Nt],
            backend: None,
            device: None,
            blocks: vec![256, 4096],
            frame: None,
            trials: 3,
        }
    }

    #[test]
    fn the_table_has_every_row_and_block() {
        let frame = Some("64x64:nv12@200".parse().unwrap());
        let asked = CopyRequest { frame, backend: Some("anonymous".into()), ..request() };
        let result = copy_table(&asked, &mut |_| true).unwrap();
        let methods: Vec<_> = result.rows.iter().map(|row| row.method).collect();
        assert!(methods.contains(&CopyMethod::Memcpy));
        for row in &result.rows {
            assert_eq!(row.blocks.iter().map(|block| block.bytes).collect::<Vec<_>>(), [256, 4096, 6144]);
            assert!(row.blocks.iter().all(|block| block.bytes_per_s > 0.0 && block.trials > 0));
            assert!(row.blocks.iter().all(|it| it.low_bytes_per_s <= it.high_bytes_per_s));
            assert!(row.plateau.is_some());
            let cost = row.frame.unwrap();
            assert!(cost.frames_per_s > 0.0 && cost.cpu_share >= 0.0 && cost.paced_frames_per_s > 0.0);
        }
        assert_eq!(result.backends.len(), BACKENDS.len());
    }

    #[test]
    fn unavailable_memory_is_an_error_with_its_reason() {
        let asked = CopyRequest { from: Some(MemoryMode::WriteThrough), ..request() };
        if whylate_sys::memory::typed::Module::open().is_err() {
            let error = copy_table(&asked, &mut |_| true).unwrap_err();
            assert!(error.to_string().contains("whylate_memtype"), "{error}");
        }
        let asked = CopyRequest { methods: vec![CopyMethod::LdnpStnp], ..request() };
        if cfg!(target_arch = "x86_64") {
            let error = copy_table(&asked, &mut |_| true).unwrap_err();
            assert!(error.to_string().contains("arm64"), "{error}");
        }
        let asked = CopyRequest { backend: Some("nothing".into()), ..request() };
        let error = copy_table(&asked, &mut |_| true).unwrap_err();
        assert!(error.to_string().contains("memtype"), "{error}");
    }

    #[test]
    fn words_and_methods_agree() {
        let words: Vec<&str> = CopyMethod::ALL.iter().map(|method| method.name()).collect();
        let methods: Vec<&str> = whylate_copy::Method::ALL.iter().map(|method| method.name()).collect();
        assert_eq!(words, methods);
    }
}
