//! Random data, made faster than memory takes it.

/// Words made side by side: enough independent chains to keep any vector unit busy.
pub(super) const LANES: usize = 32;

/// A generator of random bytes for working sets: several xorshift64 chains side by side.
///
/// Not for secrets. Its purpose is data that no compression, zero-store or duplicate-page shortcut can exploit.
/// The same seed gives the same bytes on every instruction set.
#[derive(Clone, Debug)]
pub struct Random {
    pub(super) lanes: [u64; LANES],
}

impl Random {
    /// A generator whose sequence is fixed by `seed`; every seed is good, 0 too.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self { lanes: std::array::from_fn(|_| split_mix(&mut state).max(1)) }
    }

    /// A number in `0..bound`; 0 when `bound` is 0. The bias is below `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        let word = advance(self.lanes[0]);
        self.lanes[0] = word;
        // xorshift never yields 0 and its low bits are weak: one multiplication mixes it.
        let mixed = word.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (word >> 29);
        ((u128::from(mixed) * u128::from(bound)) >> 64) as u64
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): turns any seed, also 0, into unrelated words.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// One step of Marsaglia's xorshift64 (period 2^64 - 1 from any state but 0).
#[inline(always)]
fn advance(word: u64) -> u64 {
    let word = word ^ (word << 13);
    let word = word ^ (word >> 7);
    word ^ (word << 17)
}

/// Fills `destination`; compiled once per instruction set, where the compiler turns the lanes into vectors.
#[inline(always)]
pub(super) fn fill(destination: &mut [u8], random: &mut Random) {
    let mut lanes = random.lanes;
    let mut blocks = destination.chunks_exact_mut(LANES * 8);
    for block in &mut blocks {
        for (word, lane) in block.as_chunks_mut::<8>().0.iter_mut().zip(&mut lanes) {
            *lane = advance(*lane);
            *word = lane.to_le_bytes();
        }
    }
    let rest = blocks.into_remainder();
    if !rest.is_empty() {
        for (word, lane) in rest.chunks_mut(8).zip(&mut lanes) {
            *lane = advance(*lane);
            word.copy_from_slice(&lane.to_le_bytes()[..word.len()]);
        }
    }
    random.lanes = lanes;
}
