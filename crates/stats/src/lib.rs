//! Statistics of latencies: histograms, quantiles, the correction for coordinated omission, summaries of a probe,
//! comparisons between cells, and the verdict against a limit.
//!
//! Everything here is a pure function of recorded data: no file, no clock, no random source but a generator with
//! a fixed seed, so the same run always gives the same figures. Nothing here extrapolates beyond what was
//! measured.

pub mod buckets;
pub mod compare;
pub mod error;
pub mod format;
pub mod histogram;
mod largest;
mod omission;
mod permutation;
mod simultaneity;
pub mod summary;
pub mod throttling;
pub mod verdict;

pub use compare::{benjamini_hochberg, compare, comparisons};
pub use error::StatsError;
pub use format::format_ns;
pub use histogram::Histogram;
pub use largest::Largest;
pub use omission::corrected;
pub use simultaneity::number_events;
pub use summary::{SampleShape, Summary, join_parts, largest_spikes, repeat_probe};
pub use verdict::verdict;
