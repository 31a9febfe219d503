//! Statistics of latencies: histograms, quantiles, the correction for coordinated omission, summaries of a probe,
//! comparisons between cells, and the verdict against a limit.
//!
//! Everything here is a pure function of recorded data: it uses no file, no clock, and only a random generator with a
//! fixed seed, so the same run always gives the same figures. Nothing here extrapolates beyond the measurement.

mod answers;
pub mod bisect;
pub mod buckets;
pub mod by_cause;
pub mod changes;
pub mod compare;
mod comparisons;
pub mod contrast;
mod copies;
pub mod error;
mod exposure;
pub mod histogram;
mod idle;
mod largest;
mod loaded;
pub mod meta;
mod moments;
mod omission;
pub mod order;
pub mod random;
pub mod search;
mod simultaneity;
pub mod summary;
pub mod throttling;
pub mod verdict;

pub use answers::{answers, so_far};
pub use comparisons::{comparisons, contrasts, contrasts_of_cells};
pub use copies::copy_choice;
pub use error::StatsError;
pub use exposure::{WATCHED_MIN_NS, watched_ns};
pub use histogram::Histogram;
pub use idle::idle_exits;
pub use largest::Largest;
pub use loaded::loaded_latency;
pub use omission::corrected;
pub use simultaneity::number_events;
pub use summary::{SampleShape, Summary, join_parts, largest_of_each, largest_spikes, repeat_probe};
pub use verdict::{EarlierMaximum, Judgement, judge, may_hide};
