//! A random chase: every load's address is the value of the load before, through every cache line once.

use super::random::Random;

/// Size of a cache line on every CPU that is supported.
pub const LINE_BYTES: usize = 64;

const LINE_WORDS: usize = LINE_BYTES / 8;

/// One random cycle through all cache lines of a buffer (Sattolo's algorithm), and where the walk stands.
///
/// The first word of each line holds the index of the next line's first word; the other words are left as they
/// were. A step reads 8 bytes of payload and moves one cache line. Neither prefetcher nor out-of-order execution
/// can run ahead, so that this is the load of latency-bound code, not of bandwidth.
#[derive(Debug)]
pub struct Chase<'buffer> {
    words: &'buffer [u64],
    position: usize,
}

impl<'buffer> Chase<'buffer> {
    /// Lays the cycle into `words`; a last incomplete line is left out.
    ///
    /// `None` when there is not one whole line.
    pub fn new(words: &'buffer mut [u64], random: &mut Random) -> Option<Self> {
        let lines = words.len() / LINE_WORDS;
        if lines == 0 {
            return None;
        }
        for line in 0..lines {
            words[line * LINE_WORDS] = (line * LINE_WORDS) as u64;
        }
        // Swapping each with one strictly below it leaves a single cycle: no line is ever left out.
        for line in (1..lines).rev() {
            let other = random.below(line as u64) as usize;
            words.swap(line * LINE_WORDS, other * LINE_WORDS);
        }
        Some(Self { words, position: 0 })
    }

    /// The cycle that was laid into `words` before, from its beginning.
    pub fn laid(words: &'buffer [u64]) -> Self {
        Self { words, position: 0 }
    }

    /// How many lines the cycle has.
    pub fn lines(&self) -> usize {
        self.words.len() / LINE_WORDS
    }

    /// Goes `steps` lines on and returns where the walk stands, as the number of the line.
    pub fn walk(&mut self, steps: usize) -> usize {
        let mut position = self.position;
        for _ in 0..steps {
            // The bounds check is off the chain of dependent loads, and costs nothing next to it.
            position = self.words[position] as usize;
        }
        self.position = std::hint::black_box(position);
        self.position / LINE_WORDS
    }
}
