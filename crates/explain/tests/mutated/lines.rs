//! Damage to a trace as text: lines in another order, times and places shifted, parts duplicated or missing.

use crate::damage::Random;

/// Lines that are moved together.
const BLOCK_MAX: u64 = 40;

/// The text after one to four changes.
pub(crate) fn mutated(text: &[u8], random: &mut Random) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    for _ in 0..=random.below(3) {
        if lines.is_empty() {
            return Vec::new();
        }
        let count = lines.len() as u64;
        let from = random.below(count) as usize;
        let to = (from + 1 + random.below(BLOCK_MAX) as usize).min(lines.len());
        match random.below(8) {
            0 => lines[from..to].reverse(),
            1 => lines.reverse(),
            2 => {
                let block: Vec<Vec<u8>> = lines.drain(from..to).collect();
                let place = random.below(lines.len() as u64 + 1) as usize;
                lines.splice(place..place, block);
            }
            3 => {
                let block = lines[from..to].to_vec();
                lines.splice(from..from, block);
            }
            4 => lines.rotate_left(from),
            5 => (from..to).for_each(|line| shift_time(&mut lines[line], random)),
            6 => {
                // The rest is at another offset, and this line is another one.
                let line = &mut lines[from];
                let place = random.below(line.len() as u64) as usize;
                line.splice(place..place, b" 0123456789"[..random.below(11) as usize].iter().copied());
            }
            _ => drop(lines.drain(from..to)),
        }
    }
    lines.concat()
}

/// Another digit in the time, which is before the first colon that follows a digit.
fn shift_time(line: &mut [u8], random: &mut Random) {
    let end = (1..line.len()).find(|at| line[*at] == b':' && line[at - 1].is_ascii_digit());
    let digits: Vec<usize> =
        (0..end.unwrap_or(0)).rev().take(12).filter(|at| line[*at].is_ascii_digit()).collect();
    if !digits.is_empty() {
        line[digits[random.below(digits.len() as u64) as usize]] = b'0' + random.below(10) as u8;
    }
}
