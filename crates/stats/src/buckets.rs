//! The bucket layout of every histogram: log-linear, and without an end.
//!
//! Values below 256 have a bucket each. Above, every octave `[2^k, 2^(k+1))` is divided into 128 buckets of equal
//! width, up to the last value of `u64`: a bucket is never wider than 1/128 of its lower edge, and a value is never
//! further than 1/256 of itself from its bucket's midpoint.
//!
//! The layout is part of the run directory's format: stored histograms hold lower edges.

/// Number of buckets: 256 exact ones and 128 in each of the 56 octaves from `2^8` to `2^63`.
pub const BUCKETS: usize = 256 + 56 * 128;

/// Bits of a value that choose the bucket within its octave, the leading one included, less one.
const OCTAVE_BITS: u32 = 7;

/// The bucket that holds `value`, in `0..BUCKETS`.
///
/// Without branches: the measuring thread calls it for every sample.
#[inline(always)]
pub const fn index_of(value: u64) -> usize {
    // This bit makes all values below 256 fall into the case "shift by nothing".
    let shift = (u64::BITS - 1 - OCTAVE_BITS) - (value | (1 << OCTAVE_BITS)).leading_zeros();
    ((shift as usize) << OCTAVE_BITS) + (value >> shift) as usize
}

/// Binary logarithm of the width of bucket `index`.
const fn shift_of(index: usize) -> u32 {
    ((index >> OCTAVE_BITS) as u32).saturating_sub(1)
}

/// Indices beyond the last bucket count as the last one.
const fn limited(index: usize) -> usize {
    if index < BUCKETS { index } else { BUCKETS - 1 }
}

/// The smallest value in bucket `index`; an index beyond the last bucket counts as the last one.
pub const fn lower_edge(index: usize) -> u64 {
    let index = limited(index);
    let shift = shift_of(index);
    ((index - ((shift as usize) << OCTAVE_BITS)) as u64) << shift
}

/// How many values bucket `index` holds; an index beyond the last bucket counts as the last one.
pub const fn width(index: usize) -> u64 {
    1 << shift_of(limited(index))
}

/// The largest value in bucket `index`; an index beyond the last bucket counts as the last one.
pub const fn last_value(index: usize) -> u64 {
    lower_edge(index) + (width(index) - 1)
}

/// The value that stands for bucket `index`: the middle between its smallest and its largest value, rounded down.
pub const fn midpoint(index: usize) -> u64 {
    lower_edge(index) + (width(index) - 1) / 2
}

/// Whether `value` is the smallest value of its bucket.
pub const fn is_lower_edge(value: u64) -> bool {
    lower_edge(index_of(value)) == value
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The layout as its description states it, found by counting instead of by bit operations.
    fn index_by_counting(value: u64) -> usize {
        if value < 256 {
            return value as usize;
        }
        let mut octave = 8;
        while octave < 63 && value >= 1 << (octave + 1) {
            octave += 1;
        }
        let bucket_width = (1u64 << octave) / 128;
        256 + (octave - 8) * 128 + ((value - (1 << octave)) / bucket_width) as usize
    }

    /// Values of every magnitude, with the same chance for each octave.
    fn any_magnitude() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0u32..64).prop_map(|(value, shift)| value >> shift)
    }

    #[test]
    fn the_layout_begins_and_ends_where_it_should() {
        assert_eq!(BUCKETS, 7424);
        assert_eq!(index_of(0), 0);
        assert_eq!(index_of(255), 255);
        assert_eq!(index_of(256), 256);
        assert_eq!(index_of(257), 256);
        assert_eq!(index_of(258), 257);
        assert_eq!(index_of(u64::MAX), BUCKETS - 1);
        assert_eq!(last_value(BUCKETS - 1), u64::MAX);
        assert_eq!(lower_edge(usize::MAX), lower_edge(BUCKETS - 1));
    }

    #[test]
    fn buckets_follow_each_other_without_a_hole() {
        for index in 1..BUCKETS {
            assert_eq!(last_value(index - 1) + 1, lower_edge(index), "bucket {index}");
        }
    }

    #[test]
    fn edges_and_midpoints_are_in_their_own_bucket() {
        for index in 0..BUCKETS {
            assert_eq!(index_of(lower_edge(index)), index);
            assert_eq!(index_of(midpoint(index)), index);
            assert_eq!(index_of(last_value(index)), index);
            assert!(width(index) <= (lower_edge(index) / 128).max(1), "bucket {index} is too wide");
        }
    }

    proptest! {
        #[test]
        fn index_agrees_with_counting(value in any_magnitude()) {
            prop_assert_eq!(index_of(value), index_by_counting(value));
        }

        #[test]
        fn midpoint_is_near(value in any_magnitude()) {
            let distance = midpoint(index_of(value)).abs_diff(value);
            prop_assert!(u128::from(distance) * 256 <= u128::from(value));
        }

        #[test]
        fn order_is_kept(a in any_magnitude(), b in any_magnitude()) {
            prop_assert_eq!(a.cmp(&b).is_lt() && index_of(a) > index_of(b), false);
            prop_assert_eq!(is_lower_edge(a), a == lower_edge(index_of(a)));
        }
    }
}
