//! What can be wrong with recorded data that this crate receives.

use whylate_core::CpuId;

/// Recorded data that cannot be summarised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatsError {
    /// A histogram row whose edge belongs to another bucket layout, or to a damaged file.
    #[error(
        "{lower_edge_ns} ns is not the lower edge of a bucket: the histogram is damaged or of another version"
    )]
    NotALowerEdge { lower_edge_ns: u64 },
    /// Data of one CPU given to the summary of another one.
    #[error("data of CPU {found} was given to the summary of CPU {expected}")]
    ForeignCpu {
        /// The CPU that the summary is about.
        expected: CpuId,
        /// The CPU that the data is about.
        found: CpuId,
    },
    /// The steps of a search do not follow from its rules.
    #[error(
        "step {0} of the search does not follow from the rules in run.json: the step or run.json was changed"
    )]
    OtherSearch(
        /// Its number, from 1.
        usize,
    ),
}
