//! The offset between the trace's clock and the timers' clock, from events that carry both.
//!
//! `hrtimer_expire_entry` is recorded a moment after the kernel read `now`. The smallest difference seen near a moment is the
//! offset, too large by the shortest such delay. The clocks may drift apart (one is disciplined by NTP, the other is not), so
//! the smallest difference of the last two seconds counts. The size of the offset distinguishes timers of CLOCK_REALTIME from
//! those of CLOCK_MONOTONIC.

/// Clocks of one base differ by less than this between events.
const SAME_BASE_NS: i128 = 3_600_000_000_000;
/// How long a smallest difference counts.
const BUCKET_NS: u64 = 1_000_000_000;

/// The observations of one clock base.
#[derive(Clone, Copy, Debug)]
struct Base {
    bucket: u64,
    /// Smallest difference in this second, and in the last one that had any.
    current: i128,
    before: Option<i128>,
}

/// The known offsets of the timers' clocks to the trace's clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Alignment {
    bases: Vec<Base>,
    /// The trace's clock is the timers' clock.
    same: bool,
    resolution_ns: u64,
}

impl Alignment {
    /// `clock` is the trace's clock, when it is known.
    pub(crate) fn new(clock: Option<&str>, resolution_ns: u64) -> Self {
        Self { bases: Vec::new(), same: clock == Some("mono"), resolution_ns: resolution_ns.max(1) }
    }

    /// An event at `at_ns` on the trace's clock was recorded just after `now_ns` was read from the timers' clock.
    pub(crate) fn observe(&mut self, at_ns: u64, now_ns: u64) {
        let difference = i128::from(at_ns) - i128::from(now_ns);
        let bucket = at_ns / BUCKET_NS;
        let near = |base: &Base| (base.current - difference).abs() < SAME_BASE_NS;
        let known = self.bases.iter().position(near);
        // Three bases exist (monotonic, realtime, TAI); more differences are nonsense from a damaged file.
        let room = self.bases.len() < 4;
        match known.map(|index| &mut self.bases[index]) {
            Some(base) if base.bucket == bucket => base.current = base.current.min(difference),
            Some(base) => *base = Base { bucket, before: Some(base.current), current: difference },
            None if room => self.bases.push(Base { bucket, current: difference, before: None }),
            None => {}
        }
    }

    /// The moment `timer_ns` of the timers' clock on the trace's clock, and its possible error. `armed_ns` is when the timer
    /// was started, on the trace's clock: it distinguishes the bases.
    pub(crate) fn to_trace(&self, timer_ns: u64, armed_ns: u64) -> Option<(u64, u64)> {
        let plausible = |offset: i128| {
            let at = i128::from(timer_ns) + offset;
            ((at - i128::from(armed_ns)).abs() < SAME_BASE_NS).then_some(at)
        };
        let seen = self.bases.iter().find_map(|base| {
            let offset = base.before.map_or(base.current, |before| before.min(base.current));
            let spread = base.before.map_or(0, |before| (before - base.current).unsigned_abs());
            Some((plausible(offset)?, spread))
        });
        let known = if self.same { plausible(0).map(|at| (at, 0)) } else { None };
        let (at, spread) = known.or(seen)?;
        Some((
            u64::try_from(at).ok()?,
            self.resolution_ns.saturating_add(u64::try_from(spread).unwrap_or(u64::MAX)),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_difference_is_the_offset() {
        let mut clock = Alignment::new(Some("local"), 1);
        for (at, now) in [(1_150_040, 1_000_000), (1_250_005, 1_100_000), (1_350_020, 1_200_000)] {
            clock.observe(at, now);
        }
        assert_eq!(clock.to_trace(2_000_000, 1_400_000), Some((2_150_005, 1)));
    }

    #[test]
    fn realtime_timers_do_not_spoil_the_monotonic_offset() {
        let mut clock = Alignment::new(None, 1000);
        clock.observe(10_000_000_000, 1_700_000_000_000_000_000);
        clock.observe(10_000_500_000, 9_000_000_000);
        assert_eq!(clock.to_trace(9_001_000_000, 10_000_600_000), Some((10_001_500_000, 1000)));
        assert_eq!(clock.to_trace(1_700_000_000_002_000_000, 10_000_600_000), Some((10_002_000_000, 1000)));
    }

    #[test]
    fn clocks_that_run_apart_widen_the_error() {
        let mut clock = Alignment::new(None, 1);
        clock.observe(1_500_000_000, 1_400_000_000);
        clock.observe(2_500_000_000, 2_399_990_000);
        let (_, error) = clock.to_trace(2_600_000_000, 2_500_000_001).unwrap();
        assert_eq!(error, 10_001);
    }

    #[test]
    fn without_a_common_moment_the_offset_is_unknown() {
        assert_eq!(Alignment::new(Some("local"), 1).to_trace(5, 5), None);
        assert_eq!(Alignment::new(Some("mono"), 1).to_trace(5, 5), Some((5, 1)));
    }
}
