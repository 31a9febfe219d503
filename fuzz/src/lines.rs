//! Mutations of traces that byte mutations hardly make: lines in another order, and numbers (times, offsets) shifted.

use libfuzzer_sys::fuzzer_mutate;

/// A pseudo-random number below `end`.
fn below(seed: &mut u32, end: usize) -> usize {
    *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    (*seed >> 8) as usize % end.max(1)
}

/// Text: every other time libFuzzer's own mutation, else lines swapped, reversed, moved or repeated, or a digit changed.
pub fn of_text(data: &mut [u8], size: usize, max_size: usize, mut seed: u32) -> usize {
    if below(&mut seed, 2) == 0 {
        return fuzzer_mutate(data, size, max_size);
    }
    let mut lines: Vec<Vec<u8>> = data[..size].split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    if lines.is_empty() {
        return fuzzer_mutate(data, size, max_size);
    }
    let from = below(&mut seed, lines.len());
    let to = (from + 1 + below(&mut seed, 16)).min(lines.len());
    match below(&mut seed, 5) {
        0 => lines[from..to].reverse(),
        1 => {
            let block: Vec<Vec<u8>> = lines.drain(from..to).collect();
            let place = below(&mut seed, lines.len() + 1);
            lines.splice(place..place, block);
        }
        2 => {
            let block = lines[from..to].to_vec();
            lines.splice(from..from, block);
        }
        3 => lines.rotate_left(from),
        _ => {
            let line = &mut lines[from];
            let digits: Vec<usize> = (0..line.len()).filter(|at| line[*at].is_ascii_digit()).collect();
            if !digits.is_empty() {
                line[digits[below(&mut seed, digits.len())]] = b'0' + below(&mut seed, 10) as u8;
            }
        }
    }
    let bytes = lines.concat();
    let length = bytes.len().min(max_size);
    data[..length].copy_from_slice(&bytes[..length]);
    length
}

/// A binary file: every other time libFuzzer's own mutation, else a number of 32 or 64 bits is shifted by up to a page.
pub fn of_binary(data: &mut [u8], size: usize, max_size: usize, mut seed: u32) -> usize {
    if size < 8 || below(&mut seed, 2) == 0 {
        return fuzzer_mutate(data, size, max_size);
    }
    let at = below(&mut seed, size - 7);
    let by = below(&mut seed, 8192) as u64;
    let bytes: [u8; 8] = data[at..at + 8].try_into().expect("eight bytes");
    let number = u64::from_le_bytes(bytes);
    let number = if below(&mut seed, 2) == 0 { number.wrapping_add(by) } else { number.wrapping_sub(by) };
    data[at..at + 8].copy_from_slice(&number.to_le_bytes());
    size
}
