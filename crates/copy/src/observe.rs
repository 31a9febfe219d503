//! What type a piece of memory really has, by timing: a mapping may ask for a type that it does not get.
//!
//! Each figure is compared with the same figure of ordinary memory on the same CPU, in turns, so that a slow or busy
//! machine changes both. Cached memory answers a repeated load from the first-level cache; uncached and
//! write-combining memory answers each load from outside. Write-combining memory gathers stores and streaming loads
//! into whole lines; uncached memory does neither. Write-through memory is read like cached memory and written like
//! memory. An emulated machine models no memory types: all memory is observed as write-back there, and rightly so.
//!
//! Not seen: the difference between strong and weak uncached memory, which have the same speed.

use crate::kernels::{Kernels, StoreMethod};
use std::hint::black_box;
use std::time::Instant;

/// The least memory that can be observed.
pub const BYTES_MIN: usize = 16 << 10;
/// Bytes that are read and written: fits into every first-level cache.
const REGION: usize = 16 << 10;
/// Each figure is the least of that many.
const ROUNDS: usize = 7;
/// A cached figure is within this factor of that of ordinary memory; one from outside the caches is many times off.
const FACTOR: f64 = 6.0;
/// A line at a time is up to 16 times as fast as 4 to 16 bytes at a time; noise is less than this.
const GAIN: f64 = 2.5;

/// The type of memory, as far as timing shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    WriteBack,
    /// Loads are cached, stores go to memory.
    WriteThrough,
    /// Nothing is cached; stores and streaming loads are gathered into lines.
    WriteCombining,
    /// Nothing is cached and nothing is gathered.
    Uncached,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence {
    /// A load of 8 bytes that was loaded just before, in ns.
    pub reread_ns: f64,
    /// The same of ordinary memory.
    pub reread_ordinary_ns: f64,
    /// A store and a load of the same 8 bytes, in ns.
    pub store_load_ns: f64,
    /// The same of ordinary memory.
    pub store_load_ordinary_ns: f64,
    /// A store of 8 bytes, one after another, in ns.
    pub store_ns: f64,
    /// The same of ordinary memory.
    pub store_ordinary_ns: f64,
    /// How many times as fast streaming loads are as plain loads of the same width.
    pub streaming_gain: Option<f64>,
}

impl Evidence {
    /// What it says; `None` if its parts contradict each other.
    pub fn observed(&self) -> Option<Observed> {
        let is_like = |figure: f64, ordinary: f64| figure <= ordinary * FACTOR;
        let loads = is_like(self.reread_ns, self.reread_ordinary_ns);
        let stores = is_like(self.store_ns, self.store_ordinary_ns);
        let both = is_like(self.store_load_ns, self.store_load_ordinary_ns);
        match (loads, stores) {
            (true, true) if both => Some(Observed::WriteBack),
            (true, false) => Some(Observed::WriteThrough),
            // Gathered stores are far cheaper than a load from the same memory.
            (false, _) if both => None,
            (false, _) => {
                let stores_gain = self.reread_ns / self.store_ns;
                match self.streaming_gain {
                    Some(gain) if gain >= GAIN => Some(Observed::WriteCombining),
                    Some(_) if stores_gain < 4.0 * GAIN => Some(Observed::Uncached),
                    // Stores are gathered and streaming loads are not: a CPU without buffers for these.
                    _ if stores_gain >= 4.0 * GAIN => Some(Observed::WriteCombining),
                    _ => Some(Observed::Uncached),
                }
            }
            (true, true) => None,
        }
    }
}

/// Times `memory` and compares it with ordinary memory. Its contents are overwritten. `None` below [`BYTES_MIN`].
pub fn observe(memory: &mut [u8]) -> Option<Evidence> {
    let memory = memory.get_mut(..REGION)?;
    let mut ordinary = vec![1u8; REGION + 64];
    let head = ordinary.as_ptr().align_offset(64).min(64);
    let ordinary = &mut ordinary[head..head + REGION];
    let mut least = [f64::INFINITY; 8];
    for _ in 0..ROUNDS {
        let streaming = [plain_loads(memory), streaming_loads(memory).unwrap_or(f64::NAN)];
        let figures = [
            reread(memory),
            reread(ordinary),
            store_load(memory),
            store_load(ordinary),
            stores(memory),
            stores(ordinary),
            streaming[0],
            streaming[1],
        ];
        for (least, figure) in least.iter_mut().zip(figures) {
            *least = least.min(figure);
        }
    }
    let [
        reread_ns,
        reread_ordinary_ns,
        store_load_ns,
        store_load_ordinary_ns,
        store_ns,
        store_ordinary_ns,
        plain,
        streaming,
    ] = least;
    Some(Evidence {
        reread_ns,
        reread_ordinary_ns,
        store_load_ns,
        store_load_ordinary_ns,
        store_ns,
        store_ordinary_ns,
        streaming_gain: streaming.is_finite().then_some(plain / streaming),
    })
}

/// The time of one of `times` acts, in ns.
fn each(times: usize, act: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    act();
    (begin.elapsed().as_nanos() as f64 / times as f64).max(0.01)
}

/// Loads that follow each other: the next address depends on the value before.
fn reread(memory: &mut [u8]) -> f64 {
    const TIMES: usize = 512;
    memory[..64].fill(0);
    let start = memory.as_ptr().cast::<u64>();
    each(TIMES, || {
        let mut at = 0usize;
        for _ in 0..TIMES {
            // SAFETY: the value is 0 in all of the first line, so that every load is of its first 8 bytes.
            at = unsafe { start.add(at).read_volatile() } as usize;
        }
        black_box(at);
    })
}

fn store_load(memory: &mut [u8]) -> f64 {
    const TIMES: usize = 256;
    let start = memory.as_mut_ptr().cast::<u64>();
    each(TIMES, || {
        let mut value = 0;
        for turn in 0..TIMES {
            // SAFETY: 64 lines are inside the region, which is at least 64 × 64 bytes long and 8-aligned (mappings
            // begin at a page, the ordinary memory at a line).
            unsafe {
                let line = start.add(turn % 64 * 8);
                line.write_volatile(value);
                // The load has to wait for the store to be done: forwarding would answer it from the store buffer.
                crate::handover::all_before_all();
                value = line.read_volatile() + 1;
            }
        }
        black_box(value);
    })
}

fn stores(memory: &mut [u8]) -> f64 {
    each(memory.len() / 8, || {
        for word in memory.as_chunks_mut::<8>().0 {
            // SAFETY: the word is inside the region and 8-aligned.
            unsafe { word.as_mut_ptr().cast::<u64>().write_volatile(1) };
        }
        crate::handover::stores_before_stores();
    })
}

/// Plain loads of the widest vectors.
fn plain_loads(memory: &[u8]) -> f64 {
    let mut bounce = [0; 4096];
    each(1, || Kernels::best().copy(StoreMethod::Cached, &memory[..4096], &mut bounce))
}

/// Streaming loads of the same; `None` on a CPU without them.
fn streaming_loads(memory: &[u8]) -> Option<f64> {
    let copier = crate::Copier::new(crate::Method::Movntdqa).ok()?;
    let mut bounce = [0; 4096];
    Some(each(1, || copier.copy(&memory[..4096], &mut bounce)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(reread: f64, store: f64, store_load: f64, gain: f64) -> Option<Observed> {
        Evidence {
            reread_ns: reread,
            reread_ordinary_ns: 1.0,
            store_load_ns: store_load,
            store_load_ordinary_ns: 10.0,
            store_ns: store,
            store_ordinary_ns: 0.25,
            streaming_gain: Some(gain),
        }
        .observed()
    }

    #[test]
    fn each_type_is_recognised_by_its_figures() {
        assert_eq!(evidence(1.1, 0.3, 11.0, 0.7), Some(Observed::WriteBack));
        assert_eq!(evidence(1.1, 3.0, 90.0, 0.7), Some(Observed::WriteThrough));
        // Loads of 8 bytes at 41 MB/s take 195 ns; stores at 4.7 GB/s take 1.7 ns.
        assert_eq!(evidence(195.0, 1.7, 300.0, 14.0), Some(Observed::WriteCombining));
        assert_eq!(evidence(195.0, 195.0, 400.0, 1.0), Some(Observed::Uncached));
        assert_eq!(evidence(195.0, 90.0, 400.0, 1.0), Some(Observed::Uncached));
    }

    #[test]
    fn write_combining_without_buffers_for_loads_is_recognised_by_its_stores() {
        assert_eq!(evidence(195.0, 1.7, 300.0, 1.0), Some(Observed::WriteCombining));
    }

    #[test]
    fn contradictions_are_no_answer() {
        assert_eq!(evidence(195.0, 0.25, 10.0, 1.0), None);
        assert_eq!(evidence(1.0, 0.25, 400.0, 1.0), None);
    }

    #[test]
    fn too_little_memory_is_not_observed() {
        assert_eq!(observe(&mut [0; 1024]), None);
    }

    #[test]
    fn ordinary_memory_is_observed_to_the_end() {
        let mut memory = vec![0u64; BYTES_MIN / 8];
        let (_, bytes, _) = {
            // SAFETY: any bytes are words and the other way round.
            unsafe { memory.align_to_mut::<u8>() }
        };
        let evidence = observe(bytes).unwrap();
        assert!(evidence.reread_ns > 0.0 && evidence.store_ns.is_finite(), "{evidence:?}");
    }
}
