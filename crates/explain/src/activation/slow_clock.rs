//! How much longer a task's work took because the clock of its CPU was slow.

use crate::blame::piece::{Blame, Piece};
use crate::confidence::CONCLUDED;
use crate::segments::{Activity, Recording, Segment};
use whylate_core::result::CauseKind as Kind;

/// Cuts off from each piece of a task's own work the time that it would not have taken at the highest frequency, if the work
/// scales with the clock. The pieces end where the frequency changes.
pub(super) fn slowed(pieces: Vec<Piece<()>>, recording: &Recording) -> Vec<Piece<()>> {
    let slow: Vec<_> = recording
        .segments
        .iter()
        .filter_map(|segment| match segment.what {
            Activity::SlowClock { khz, highest_khz } => Some((segment, khz, highest_khz)),
            _ => None,
        })
        .collect();
    let cut = |mut piece: Piece<()>| {
        let covers = |slow: &&(&Segment, u64, u64)| slow.0.from_ns <= piece.from && slow.0.to_ns >= piece.to;
        let is_own = piece.blame.kind == Some(Kind::OwnWork);
        let Some((_, khz, highest_khz)) = slow.iter().find(covers).filter(|_| is_own) else {
            return [Some(piece), None];
        };
        let needed = u128::from(piece.length()) * u128::from(*khz) / u128::from((*highest_khz).max(1));
        let from = piece.from + needed as u64;
        let evidence = format!(
            "the CPU ran at {} MHz; its highest frequency is {} MHz",
            khz / 1_000,
            highest_khz / 1_000
        );
        let blame = Blame::new(Kind::SlowClock, CONCLUDED, evidence);
        let lost = Piece { from, began: from, blame, ..piece.clone() };
        piece.to = from;
        [Some(piece), Some(lost)]
    };
    pieces.into_iter().flat_map(cut).flatten().collect()
}
