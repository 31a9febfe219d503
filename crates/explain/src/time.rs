//! Arithmetic with times of files, which may go back or be the largest possible ones: nothing here overflows.

/// From `from` to `to`; 0 when that is before it.
pub(crate) fn between(from: u64, to: u64) -> u64 {
    to.saturating_sub(from)
}

/// The moment of `[from, to]` that is closest to `at`; `to` if the two are not in order.
pub(crate) fn within(at: u64, from: u64, to: u64) -> u64 {
    at.max(from).min(to)
}
