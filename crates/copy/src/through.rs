//! x86-64 copies that go past the caches on the side of the loads, and 64-byte direct stores.
//!
//! A streaming load (`movntdqa`) fetches a whole line of write-combining memory into a buffer of the CPU, where a plain
//! load fetches its own bytes alone. These buffers are few and stores take them too, so a piece is first loaded into
//! a bounce buffer in the first-level cache, and stored from there.

use crate::handover::{all_before_all, stores_before_stores};
use core::arch::x86_64::*;

/// Size of the bounce buffer: a page, which fits in the first-level cache together with everything else.
const BOUNCE_BYTES: usize = 4096;

#[repr(align(64))]
struct Bounce([u8; BOUNCE_BYTES]);

macro_rules! streaming_loads {
    ($name:ident, $to_streaming:ident, $load_piece:ident, $features:literal, $vector:ty, $load:ident, $store:ident,
     $table:ident) => {
        /// Streaming loads into the bounce buffer, ordinary stores out of it.
        #[target_feature(enable = $features)]
        pub(super) fn $name(source: &[u8], destination: &mut [u8]) {
            // SAFETY: the CPU has the instruction set: it is the one of this function.
            in_pieces(source, destination, $load_piece, |from, to| unsafe {
                (crate::x86_64::$table::TABLE.copy)(from, to)
            });
        }

        /// Streaming loads into the bounce buffer, streaming stores out of it.
        #[target_feature(enable = $features)]
        pub(super) fn $to_streaming(source: &[u8], destination: &mut [u8]) {
            // SAFETY: as above.
            in_pieces(source, destination, $load_piece, |from, to| unsafe {
                (crate::x86_64::$table::TABLE.copy_streaming)(from, to)
            });
        }

        /// Loads `source`, aligned and of whole vectors, into the bounce buffer.
        fn $load_piece(source: &[u8], bounce: &mut Bounce) {
            #[target_feature(enable = $features)]
            fn load(source: &[u8], bounce: &mut Bounce) {
                const VECTOR: usize = size_of::<$vector>();
                let (from, to) = (source.as_ptr(), bounce.0.as_mut_ptr());
                for at in (0..source.len().min(BOUNCE_BYTES)).step_by(VECTOR) {
                    // SAFETY: inside both (the source is a multiple of 64 bytes long and starts at one); aligned.
                    unsafe { $store(to.add(at).cast(), $load(from.add(at).cast())) };
                }
            }
            // SAFETY: the functions above, which have the instruction set, are the only callers.
            unsafe { load(source, bounce) }
        }
    };
}

streaming_loads!(
    movntdqa_sse,
    movntdqa_sse_nt,
    load_sse,
    "sse4.1",
    __m128i,
    _mm_stream_load_si128,
    _mm_store_si128,
    sse2
);
streaming_loads!(
    movntdqa_avx2,
    movntdqa_avx2_nt,
    load_avx2,
    "avx2",
    __m256i,
    _mm256_stream_load_si256,
    _mm256_store_si256,
    avx2
);
streaming_loads!(
    movntdqa_avx512,
    movntdqa_avx512_nt,
    load_avx512,
    "avx512f",
    __m512i,
    _mm512_stream_load_si512,
    _mm512_store_si512,
    avx512
);

/// Takes the source through the bounce buffer, piece by piece from line to line; what lies before the first whole line
/// and behind the last is copied plainly.
#[inline(always)]
fn in_pieces(
    source: &[u8],
    destination: &mut [u8],
    load: impl Fn(&[u8], &mut Bounce),
    store: impl Fn(&[u8], &mut [u8]),
) {
    let len = source.len().min(destination.len());
    let (source, destination) = (&source[..len], &mut destination[..len]);
    let head = source.as_ptr().align_offset(64).min(len);
    let body = (len - head) / 64 * 64;
    destination[..head].copy_from_slice(&source[..head]);
    // Streaming loads are weakly ordered: none may be made before what came before, and none of a line that a former
    // one left in a buffer of the CPU.
    all_before_all();
    let mut bounce = Bounce([0; BOUNCE_BYTES]);
    let pieces = source[head..head + body].chunks(BOUNCE_BYTES);
    for (from, to) in pieces.zip(destination[head..head + body].chunks_mut(BOUNCE_BYTES)) {
        load(from, &mut bounce);
        store(&bounce.0[..from.len()], to);
    }
    destination[head + body..].copy_from_slice(&source[head + body..]);
}

/// `movdir64b`: each line goes to memory as one store of 64 bytes, past the caches.
pub(super) fn movdir64b(source: &[u8], destination: &mut [u8]) {
    let len = source.len().min(destination.len());
    let head = destination.as_ptr().align_offset(64).min(len);
    let body = (len - head) / 64 * 64;
    destination[..head].copy_from_slice(&source[..head]);
    for at in (head..head + body).step_by(64) {
        // SAFETY: 64 bytes from `at` on are inside both; the destination is at a multiple of 64; `Method` lets only
        // CPUs with the instruction come here.
        unsafe {
            core::arch::asm!(
                "movdir64b {to}, [{from}]",
                to = in(reg) destination.as_mut_ptr().add(at),
                from = in(reg) source.as_ptr().add(at),
                options(nostack, preserves_flags)
            );
        }
    }
    destination[head + body..len].copy_from_slice(&source[head + body..len]);
    stores_before_stores();
}
