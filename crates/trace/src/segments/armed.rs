//! An armed timer, from the kernel's events.

/// A timer whose clock differs by more than this from CLOCK_MONOTONIC has another clock.
const SAME_CLOCK_NS: u64 = 1_000_000_000;

/// A timer that is set and has not expired.
#[derive(Clone, Copy, Debug)]
pub struct Armed {
    /// Its programmed expiry, on its own clock.
    pub expires_ns: u64,
    /// When it was set, in nanoseconds of CLOCK_MONOTONIC.
    pub at_ns: u64,
}

impl Armed {
    /// Since when its task waited, on CLOCK_MONOTONIC: its expiry, or when it was armed if it was armed in the past. `now_ns`
    /// is its own clock's time when its handler began, at `event_ns`: expiries on other clocks are converted with it.
    pub fn due_ns(self, now_ns: u64, event_ns: u64) -> u64 {
        let is_monotonic = now_ns.abs_diff(event_ns) < SAME_CLOCK_NS;
        let offset_ns = if is_monotonic { 0 } else { event_ns as i64 - now_ns as i64 };
        self.expires_ns.saturating_add_signed(offset_ns).max(self.at_ns)
    }
}
