//! The kernels in plain Rust: what every CPU can do, and what the vector kernels use for heads and tails.

use super::kernels::Table;
use super::random::{Random, fill};

/// The plain kernels. Streaming stores are ordinary stores here.
pub(super) static TABLE: Table = Table {
    read,
    read_prefetching: read,
    write,
    write_streaming: write,
    write_string: None,
    copy,
    copy_streaming: copy,
    copy_string: None,
    fill: fill_random,
};

/// Wrapping sum of the words (native byte order; a shorter last word is padded with zeros).
pub(super) fn read(source: &[u8]) -> u64 {
    let (blocks, rest) = source.as_chunks::<64>();
    let mut sums = [0u64; 8];
    for block in blocks {
        for (sum, word) in sums.iter_mut().zip(block.as_chunks::<8>().0) {
            *sum = sum.wrapping_add(u64::from_ne_bytes(*word));
        }
    }
    sums.into_iter().fold(read_words(rest), u64::wrapping_add)
}

/// The same, word by word: the reference, and the tail of the vector kernels.
pub(super) fn read_words(source: &[u8]) -> u64 {
    let (words, rest) = source.as_chunks::<8>();
    let sum = words.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)));
    let mut last = [0u8; 8];
    last[..rest.len()].copy_from_slice(rest);
    sum.wrapping_add(u64::from_ne_bytes(last))
}

/// Repeats the bytes of `value` (native byte order) from the beginning of `destination`.
pub(super) fn write(destination: &mut [u8], value: u64) {
    let bytes = value.to_ne_bytes();
    let (words, rest) = destination.as_chunks_mut::<8>();
    words.fill(bytes);
    rest.copy_from_slice(&bytes[..rest.len()]);
}

/// Copies the shorter length of the two.
#[inline]
pub(super) fn copy(source: &[u8], destination: &mut [u8]) {
    let len = source.len().min(destination.len());
    destination[..len].copy_from_slice(&source[..len]);
}

fn fill_random(destination: &mut [u8], random: &mut Random) {
    fill(destination, random);
}
