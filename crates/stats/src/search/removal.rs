//! The second way to a proof: an arm removes the late time of the causes that it answers. The maximum and p99 contain
//! everything, including stalls by the host; a single cause is hardly ever noisy.

/// A pair is won if less than this part of the late time is left.
const LEFT_MAX: f64 = 0.5;
/// The part of the stake that is bet on each pair. An arm that removes its cause wins nearly all pairs, and a large
/// bet proves it soon.
const BET: f64 = 0.9;

/// The evidence after each pair (control, candidate) of rates that the candidate removes most of the late time.
/// Without an effect a pair is won with probability one half at most, since a coin decided the order. The evidence
/// therefore ever reaches 1/α with probability α at most. A pair in which neither side has late time changes nothing.
pub fn removal_evidence(pairs: &[[f64; 2]]) -> Vec<f64> {
    let mut evidence = 1.0;
    let mut after = |&[control, candidate]: &[f64; 2]| {
        evidence *= match () {
            () if control <= 0.0 && candidate <= 0.0 => 1.0,
            () if candidate < LEFT_MAX * control => 1.0 + BET,
            () => 1.0 - BET,
        };
        evidence
    };
    pairs.iter().map(&mut after).collect()
}

/// Pairs that are won, and pairs that count.
pub fn removed_in(pairs: &[[f64; 2]]) -> (u32, u32) {
    let count = |is: &dyn Fn(&&[f64; 2]) -> bool| pairs.iter().filter(is).count() as u32;
    let tells = |pair: &&[f64; 2]| pair.iter().any(|rate| *rate > 0.0);
    (count(&|pair| tells(pair) && pair[1] < LEFT_MAX * pair[0]), count(&tells))
}

/// The largest evidence after that number of further pairs.
pub(super) fn best_evidence(now: f64, more: u32) -> f64 {
    now * (1.0 + BET).powi(more as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seven_pairs_without_the_cause_are_enough_for_half_of_the_first_claim() {
        let gone = [[3e6, 0.0]; 7];
        let evidence = removal_evidence(&gone);
        assert!(evidence[6] >= 80.0 && evidence[5] < 80.0, "{evidence:?}");
        assert_eq!(removed_in(&gone), (7, 7));
        let rare = [[3e6, 0.0], [0.0, 0.0], [0.0, 1e3], [1e6, 6e5]];
        let evidence = removal_evidence(&rare);
        assert_eq!(evidence[0], evidence[1], "a pair without the cause tells nothing");
        assert!((evidence[3] - 0.019).abs() < 1e-9, "{evidence:?}");
        assert_eq!(removed_in(&rare), (1, 3));
    }

    /// The mean over all outcomes is 1 where each pair is won with probability one half.
    #[test]
    fn a_coin_wins_nothing_on_average() {
        for pairs in 1..=12u32 {
            let outcome = |bits: u32| -> Vec<[f64; 2]> {
                (0..pairs).map(|nth| if bits >> nth & 1 == 1 { [1.0, 0.0] } else { [0.0, 1.0] }).collect()
            };
            let sum: f64 =
                (0..1 << pairs).filter_map(|bits| removal_evidence(&outcome(bits)).last().copied()).sum();
            assert!((sum / f64::from(1 << pairs) - 1.0).abs() < 1e-9, "{pairs}: {sum}");
        }
    }
}
