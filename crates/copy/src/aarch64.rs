//! The kernels for arm64: 128-bit NEON vectors, streaming pairs (`stnp`).

use super::kernels::{Table, as_written};
use super::portable;
use super::random::{Random, fill};
use core::arch::aarch64::*;

const VECTOR: usize = 16;
/// Vectors per turn of a loop.
const UNROLL: usize = 8;
const BLOCK: usize = VECTOR * UNROLL;

/// NEON is part of every arm64 CPU that runs Linux.
pub(super) static TABLE: Table = Table {
    read,
    read_prefetching: read,
    write,
    write_streaming,
    write_string: None,
    copy,
    copy_streaming,
    copy_string: None,
    fill: fill_random,
};

#[target_feature(enable = "neon")]
fn read(source: &[u8]) -> u64 {
    let (blocks, rest) = source.as_chunks::<BLOCK>();
    let mut sums = [vdupq_n_u64(0); UNROLL];
    for block in blocks {
        for (index, sum) in sums.iter_mut().enumerate() {
            // SAFETY: `index * VECTOR + VECTOR <= BLOCK`, inside the block; the load needs byte alignment only.
            *sum = vaddq_u64(
                *sum,
                vreinterpretq_u64_u8(unsafe { vld1q_u8(block.as_ptr().add(index * VECTOR)) }),
            );
        }
    }
    let total = sums.into_iter().fold(vdupq_n_u64(0), |total, sum| vaddq_u64(total, sum));
    portable::read_words(rest).wrapping_add(vaddvq_u64(total))
}

#[target_feature(enable = "neon")]
fn write(destination: &mut [u8], value: u64) {
    let vector = vreinterpretq_u8_u64(vdupq_n_u64(value));
    let (blocks, rest) = destination.as_chunks_mut::<BLOCK>();
    for block in blocks {
        for index in 0..UNROLL {
            // SAFETY: `index * VECTOR + VECTOR <= BLOCK`, inside the block.
            unsafe { vst1q_u8(block.as_mut_ptr().add(index * VECTOR), vector) };
        }
    }
    portable::write(rest, value);
}

/// Stores 32 bytes with the hint that they will not be read soon.
///
/// # Safety
/// `to` must be valid for writing 32 bytes.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn store_pair(to: *mut u8, first: uint8x16_t, second: uint8x16_t) {
    // SAFETY: the caller guarantees 32 writable bytes; normal memory needs no alignment here.
    unsafe {
        core::arch::asm!(
            "stnp {first:q}, {second:q}, [{to}]",
            to = in(reg) to,
            first = in(vreg) first,
            second = in(vreg) second,
            options(nostack, preserves_flags)
        );
    }
}

#[target_feature(enable = "neon")]
fn write_streaming(destination: &mut [u8], value: u64) {
    let vector = vreinterpretq_u8_u64(vdupq_n_u64(value));
    let (blocks, rest) = destination.as_chunks_mut::<BLOCK>();
    for block in blocks {
        for pair in 0..UNROLL / 2 {
            // SAFETY: `pair * 32 + 32 <= BLOCK`, inside the block.
            unsafe { store_pair(block.as_mut_ptr().add(pair * 2 * VECTOR), vector, vector) };
        }
    }
    portable::write(rest, value);
}

#[target_feature(enable = "neon")]
fn copy(source: &[u8], destination: &mut [u8]) {
    let len = source.len().min(destination.len());
    let (blocks, rest) = destination[..len].as_chunks_mut::<BLOCK>();
    let (source_blocks, source_rest) = source[..len].as_chunks::<BLOCK>();
    for (to, from) in blocks.iter_mut().zip(source_blocks) {
        for index in 0..UNROLL {
            // SAFETY: `index * VECTOR + VECTOR <= BLOCK`, inside both blocks.
            unsafe {
                vst1q_u8(to.as_mut_ptr().add(index * VECTOR), vld1q_u8(from.as_ptr().add(index * VECTOR)))
            };
            as_written();
        }
    }
    rest.copy_from_slice(source_rest);
}

#[target_feature(enable = "neon")]
fn copy_streaming(source: &[u8], destination: &mut [u8]) {
    let len = source.len().min(destination.len());
    let (blocks, rest) = destination[..len].as_chunks_mut::<BLOCK>();
    let (source_blocks, source_rest) = source[..len].as_chunks::<BLOCK>();
    for (to, from) in blocks.iter_mut().zip(source_blocks) {
        for pair in 0..UNROLL / 2 {
            // SAFETY: `pair * 32 + 32 <= BLOCK`, inside both blocks.
            unsafe {
                let from = from.as_ptr().add(pair * 2 * VECTOR);
                store_pair(
                    to.as_mut_ptr().add(pair * 2 * VECTOR),
                    vld1q_u8(from),
                    vld1q_u8(from.add(VECTOR)),
                );
            }
        }
    }
    rest.copy_from_slice(source_rest);
    crate::handover::stores_before_stores();
}

/// As [`copy_streaming`], with the hint on the loads too; the stores come before those that follow.
#[target_feature(enable = "neon")]
pub(super) fn copy_pairs(source: &[u8], destination: &mut [u8]) {
    let len = source.len().min(destination.len());
    let (blocks, rest) = destination[..len].as_chunks_mut::<BLOCK>();
    let (source_blocks, source_rest) = source[..len].as_chunks::<BLOCK>();
    for (to, from) in blocks.iter_mut().zip(source_blocks) {
        for pair in 0..UNROLL / 2 {
            // SAFETY: `pair * 32 + 32 <= BLOCK`, inside both blocks.
            unsafe {
                let (first, second) = load_pair(from.as_ptr().add(pair * 2 * VECTOR));
                store_pair(to.as_mut_ptr().add(pair * 2 * VECTOR), first, second);
            }
        }
    }
    rest.copy_from_slice(source_rest);
    crate::handover::stores_before_stores();
}

/// Loads 32 bytes with the hint that they will not be read again soon.
///
/// # Safety
/// `from` must be valid for reading 32 bytes.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn load_pair(from: *const u8) -> (uint8x16_t, uint8x16_t) {
    let (first, second);
    // SAFETY: the caller guarantees 32 readable bytes; normal memory needs no alignment here.
    unsafe {
        core::arch::asm!(
            "ldnp {first:q}, {second:q}, [{from}]",
            from = in(reg) from,
            first = out(vreg) first,
            second = out(vreg) second,
            options(nostack, readonly, preserves_flags)
        );
    }
    (first, second)
}

#[target_feature(enable = "neon")]
fn fill_random(destination: &mut [u8], random: &mut Random) {
    fill(destination, random);
}
