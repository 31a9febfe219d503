//! The kernels for x86-64: one text, compiled for 128-, 256- and 512-bit vectors, and the string instructions.

use super::kernels::{Table, as_written};
use super::portable;
use super::random::{Random, fill};
use crate::handover::stores_before_stores;
use core::arch::x86_64::*;

/// How far ahead each stream of a read asks for lines; the hardware prefetchers stop at page borders.
const READ_AHEAD_BYTES: usize = 512;
/// Parts that reads, streaming stores and streaming copies work on side by side.
const STREAMS: usize = 4;

/// `rep movsb`: microcode that moves whole lines where it can.
fn copy_string(source: &[u8], destination: &mut [u8]) {
    let len = source.len().min(destination.len());
    // SAFETY: both slices are valid for `len` bytes and cannot overlap (one is borrowed mutably); the direction
    // flag is clear at function entry by the ABI.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") source.as_ptr() => _,
            inout("rdi") destination.as_mut_ptr() => _,
            options(nostack, preserves_flags)
        );
    }
}

/// `rep stosq`.
fn write_string(destination: &mut [u8], value: u64) {
    let words = destination.len() / 8;
    // SAFETY: the slice is valid for `words * 8` bytes; the direction flag is clear at function entry by the ABI.
    unsafe {
        core::arch::asm!(
            "rep stosq",
            inout("rcx") words => _,
            inout("rdi") destination.as_mut_ptr() => _,
            in("rax") value,
            options(nostack, preserves_flags)
        );
    }
    portable::write(&mut destination[words * 8..], value);
}

/// Splits `destination` where its address becomes a multiple of `bytes`.
fn split_aligned(destination: &mut [u8], bytes: usize) -> (&mut [u8], &mut [u8]) {
    let head = destination.as_ptr().align_offset(bytes).min(destination.len());
    destination.split_at_mut(head)
}

/// As [`portable::write`]; most heads and rests are empty, and then nothing is called.
#[inline]
fn write_rest(destination: &mut [u8], value: u64) {
    if !destination.is_empty() {
        portable::write(destination, value);
    }
}

/// The pattern of `value` as seen from `offset` bytes further on.
fn rotate(value: u64, offset: usize) -> u64 {
    value.rotate_right(8 * (offset % 8) as u32)
}

macro_rules! kernels {
    ($module:ident, $features:literal, $vector:ty, $pointer:ty, $load:ident, $store:ident, $stream:ident, $add:ident,
     $set1:ident) => {
        pub(super) mod $module {
            use super::*;

            const VECTOR: usize = size_of::<$vector>();
            /// Vectors per turn of a loop.
            const UNROLL: usize = 8;
            const BLOCK: usize = VECTOR * UNROLL;
            /// Vectors taken from one stream before turning to the next.
            const STEP_VECTORS: usize = 4;
            const STEP: usize = VECTOR * STEP_VECTORS;

            pub(crate) static TABLE: Table = Table {
                read,
                read_prefetching,
                write,
                write_streaming,
                write_string: Some(write_string),
                copy,
                copy_streaming,
                copy_string: Some(copy_string),
                fill: fill_random,
            };

            /// One stream, as inside the caches no prefetcher has to be fed; a single sum of a whole read, whose end
            /// would otherwise take a fifth of the time of 16 KiB.
            #[target_feature(enable = $features)]
            fn read(source: &[u8]) -> u64 {
                let mut sums = [$set1(0); UNROLL];
                let (blocks, rest) = source.as_chunks::<BLOCK>();
                for block in blocks {
                    for (index, sum) in sums.iter_mut().enumerate() {
                        // SAFETY: `index * VECTOR + VECTOR <= BLOCK`, inside the block; no alignment is needed.
                        *sum = $add(*sum, unsafe { $load(block.as_ptr().add(index * VECTOR) as $pointer) });
                    }
                }
                total(sums).wrapping_add(portable::read_words(rest))
            }

            /// The sum of the words of the vectors.
            #[inline]
            #[target_feature(enable = $features)]
            fn total<const COUNT: usize>(sums: [$vector; COUNT]) -> u64 {
                let sum = sums.into_iter().reduce(|a, b| $add(a, b)).unwrap_or($set1(0));
                let mut words = [0u64; VECTOR / 8];
                // SAFETY: the array is as long as the vector; the store needs no alignment.
                unsafe { $store(words.as_mut_ptr().cast(), sum) };
                words.into_iter().fold(0, u64::wrapping_add)
            }

            /// Reads a quarter of `source` in each of four streams side by side, so that four pages are in the
            /// care of the hardware prefetchers at any time; asks for lines [`READ_AHEAD_BYTES`] ahead.
            #[target_feature(enable = $features)]
            fn read_prefetching(source: &[u8]) -> u64 {
                let part = source.len() / STREAMS / STEP * STEP;
                let mut sums = [$set1(0); STEP_VECTORS * 2];
                for offset in (0..part).step_by(STEP) {
                    for stream in 0..STREAMS {
                        let block = &source[stream * part + offset..][..STEP];
                        for line in 0..STEP.div_ceil(64) {
                            // A hint: it never faults, whatever the address.
                            _mm_prefetch::<_MM_HINT_T0>(
                                block.as_ptr().wrapping_add(READ_AHEAD_BYTES + line * 64).cast(),
                            );
                        }
                        for index in 0..STEP_VECTORS {
                            // SAFETY: `index * VECTOR + VECTOR <= STEP`, inside the block; no alignment is needed.
                            let vector = unsafe { $load(block.as_ptr().add(index * VECTOR) as $pointer) };
                            let sum = &mut sums[stream % 2 * STEP_VECTORS + index];
                            *sum = $add(*sum, vector);
                        }
                    }
                }
                total(sums).wrapping_add(portable::read_words(&source[STREAMS * part..]))
            }

            #[target_feature(enable = $features)]
            fn write(destination: &mut [u8], value: u64) {
                let (head, body) = split_aligned(destination, VECTOR);
                write_rest(head, value);
                let value = rotate(value, head.len());
                let vector = $set1(value as i64);
                let (blocks, rest) = body.as_chunks_mut::<BLOCK>();
                for block in blocks {
                    for index in 0..UNROLL {
                        // SAFETY: `index * VECTOR + VECTOR <= BLOCK`, inside the block.
                        unsafe { $store(block.as_mut_ptr().add(index * VECTOR).cast(), vector) };
                    }
                    as_written();
                }
                write_rest(rest, value);
            }

            #[target_feature(enable = $features)]
            fn write_streaming(destination: &mut [u8], value: u64) {
                let (head, body) = split_aligned(destination, VECTOR);
                write_rest(head, value);
                let value = rotate(value, head.len());
                let vector = $set1(value as i64);
                let part = body.len() / STREAMS / STEP * STEP;
                for offset in (0..part).step_by(STEP) {
                    for stream in 0..STREAMS {
                        let block = &mut body[stream * part + offset..][..STEP];
                        for index in 0..STEP_VECTORS {
                            // SAFETY: inside the block, and aligned: the body begins at a multiple of VECTOR and
                            // both `part` and STEP are multiples of it.
                            unsafe { $stream(block.as_mut_ptr().add(index * VECTOR).cast(), vector) };
                        }
                    }
                }
                let (vectors, rest) = body[STREAMS * part..].as_chunks_mut::<VECTOR>();
                for to in vectors {
                    // SAFETY: a whole vector, aligned as above.
                    unsafe { $stream(to.as_mut_ptr().cast(), vector) };
                }
                write_rest(rest, value);
                // Orders the streaming stores before whatever the caller does next, as Rust's memory model expects.
                stores_before_stores();
            }

            /// The first and the last vector are copied where they are, and overlap what lies between, which is stored
            /// aligned: no loop over single bytes.
            #[target_feature(enable = $features)]
            fn copy(source: &[u8], destination: &mut [u8]) {
                let len = source.len().min(destination.len());
                let (from, to) = (source.as_ptr(), destination.as_mut_ptr());
                // SAFETY: both are valid for `len` bytes, and each call is for lengths of its condition.
                unsafe {
                    match len.div_ceil(VECTOR) {
                        _ if len < VECTOR => portable::copy(source, destination),
                        ..=2 => ends::<1>(from, to, len),
                        3..=4 => ends::<2>(from, to, len),
                        5..=8 => ends::<4>(from, to, len),
                        9..=16 => ends::<8>(from, to, len),
                        _ => blocks(from, to, len),
                    }
                }
            }

            /// Copies more than a block.
            ///
            /// # Safety
            /// Both must be valid for `len` bytes, which is more than BLOCK.
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn blocks(from: *const u8, to: *mut u8, len: usize) {
                let mut at = to.align_offset(VECTOR);
                // SAFETY: every access is of whole vectors at or below `len - VECTOR`, by the conditions of the loops;
                // neither loads nor stores need alignment.
                unsafe {
                    if at > 0 {
                        vectors::<1>(from, to);
                    }
                    while at + BLOCK <= len {
                        vectors::<UNROLL>(from.add(at), to.add(at));
                        at += BLOCK;
                    }
                    while at + VECTOR <= len {
                        vectors::<1>(from.add(at), to.add(at));
                        at += VECTOR;
                    }
                    if at < len {
                        vectors::<1>(from.add(len - VECTOR), to.add(len - VECTOR));
                    }
                }
            }

            /// Copies `COUNT` vectors, one after another.
            ///
            /// # Safety
            /// Both must be valid for that.
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn vectors<const COUNT: usize>(from: *const u8, to: *mut u8) {
                for at in (0..COUNT).map(|index| index * VECTOR) {
                    // SAFETY: what the caller guarantees.
                    unsafe { $store(to.add(at).cast(), $load(from.add(at) as $pointer)) };
                    as_written();
                }
            }

            /// Copies `COUNT` vectors from either end, which together cover all.
            ///
            /// # Safety
            /// Both must be valid for `len` bytes, which is at least `COUNT` vectors.
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn ends<const COUNT: usize>(from: *const u8, to: *mut u8, len: usize) {
                let back = len - COUNT * VECTOR;
                // SAFETY: the caller guarantees that vectors from both ends are inside.
                unsafe {
                    vectors::<COUNT>(from, to);
                    vectors::<COUNT>(from.add(back), to.add(back));
                }
            }

            /// Streams as in a read: a single one leaves a fifth of the memory's speed unused.
            #[target_feature(enable = $features)]
            fn copy_streaming(source: &[u8], destination: &mut [u8]) {
                let len = source.len().min(destination.len());
                let (head, body) = split_aligned(&mut destination[..len], VECTOR);
                let (source_head, source) = source[..len].split_at(head.len());
                head.copy_from_slice(source_head);
                let part = body.len() / STREAMS / STEP * STEP;
                for offset in (0..part).step_by(STEP) {
                    for stream in 0..STREAMS {
                        let from = &source[stream * part + offset..][..STEP];
                        let to = &mut body[stream * part + offset..][..STEP];
                        for index in 0..STEP_VECTORS {
                            // SAFETY: inside both blocks; the load needs no alignment, the store has it: the body
                            // begins at a multiple of VECTOR and both `part` and STEP are multiples of it.
                            unsafe {
                                let vector = $load(from.as_ptr().add(index * VECTOR) as $pointer);
                                $stream(to.as_mut_ptr().add(index * VECTOR).cast(), vector);
                            }
                        }
                    }
                }
                let (vectors, rest) = body[STREAMS * part..].as_chunks_mut::<VECTOR>();
                let (source_vectors, source_rest) = source[STREAMS * part..].as_chunks::<VECTOR>();
                for (to, from) in vectors.iter_mut().zip(source_vectors) {
                    // SAFETY: a whole vector each; the destination is aligned as above.
                    unsafe { $stream(to.as_mut_ptr().cast(), $load(from.as_ptr() as $pointer)) };
                }
                rest.copy_from_slice(source_rest);
                stores_before_stores();
            }

            #[target_feature(enable = $features)]
            fn fill_random(destination: &mut [u8], random: &mut Random) {
                fill(destination, random);
            }
        }
    };
}

kernels!(
    sse2,
    "sse2",
    __m128i,
    *const __m128i,
    _mm_loadu_si128,
    _mm_storeu_si128,
    _mm_stream_si128,
    _mm_add_epi64,
    _mm_set1_epi64x
);
kernels!(
    avx2,
    "avx2",
    __m256i,
    *const __m256i,
    _mm256_loadu_si256,
    _mm256_storeu_si256,
    _mm256_stream_si256,
    _mm256_add_epi64,
    _mm256_set1_epi64x
);
kernels!(
    avx512,
    "avx512f",
    __m512i,
    *const __m512i,
    _mm512_loadu_si512,
    _mm512_storeu_si512,
    _mm512_stream_si512,
    _mm512_add_epi64,
    _mm512_set1_epi64
);
