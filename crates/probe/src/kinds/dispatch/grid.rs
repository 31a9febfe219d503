//! The moment for which an interrupt was due.

/// Interrupts between two corrections of a grid that is known only from its interrupts.
const BLOCK: u32 = 64;

/// What a source says when the process runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Nothing: a signal ended the waiting.
    Nothing,
    /// That many interrupts, at least 1.
    Counted(u64),
    /// The source does not count them: as many as were due by now.
    AsDue,
}

/// A process that ran after an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Late {
    /// How late it was for the first interrupt not seen before.
    pub(super) by_ns: u64,
    /// How many interrupts it had not seen.
    pub(super) interrupts: u64,
}

/// Moments at which interrupts are due.
pub(super) trait Grid {
    /// Whether the moments are those that were programmed.
    const IS_PROGRAMMED: bool;
    /// The next moment that is due; waiting sources are programmed for it.
    fn next_ns(&self) -> u64;
    /// Takes the moment at which the process ran; `None` if nothing was due yet.
    fn take(&mut self, now_ns: u64, arrival: Arrival) -> Option<Late>;
}

/// A grid that was programmed, so that it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Programmed {
    next_ns: u64,
    interval_ns: u64,
}

impl Programmed {
    pub(super) fn new(first_ns: u64, interval_ns: u64) -> Self {
        Self { next_ns: first_ns, interval_ns }
    }
}

impl Grid for Programmed {
    const IS_PROGRAMMED: bool = true;

    #[inline(always)]
    fn next_ns(&self) -> u64 {
        self.next_ns
    }

    #[inline(always)]
    fn take(&mut self, now_ns: u64, arrival: Arrival) -> Option<Late> {
        let by_ns = now_ns.checked_sub(self.next_ns)?;
        let interrupts = match arrival {
            Arrival::Nothing => return None,
            Arrival::Counted(interrupts) => interrupts,
            Arrival::AsDue => by_ns / self.interval_ns + 1,
        };
        self.next_ns += interrupts * self.interval_ns;
        Some(Late { by_ns, interrupts })
    }
}

/// A grid of which only the approximate period is known: the earliest arrivals show where it lies.
///
/// Each arrival that is earlier than due moves the grid there. After every [`BLOCK`] interrupts the grid moves to the
/// earliest of them, and the period is corrected by the amount of the move. Lateness is therefore measured against the
/// earliest of the last interrupts, and does not contain that interrupt's own latency.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed {
    due_ns: f64,
    interval_ns: f64,
    /// The least lateness of the block so far.
    least_ns: f64,
    /// How far the grid was moved to earlier moments in this block.
    pulled_ns: f64,
    in_block: u32,
    begun: bool,
}

impl Observed {
    pub(super) fn new(interval_ns: u64) -> Self {
        Self {
            due_ns: 0.0,
            interval_ns: interval_ns as f64,
            least_ns: f64::INFINITY,
            pulled_ns: 0.0,
            in_block: 0,
            begun: false,
        }
    }

    #[inline(always)]
    fn end_block(&mut self) {
        self.due_ns += self.least_ns;
        self.interval_ns += (self.least_ns - self.pulled_ns) / f64::from(BLOCK);
        (self.least_ns, self.pulled_ns, self.in_block) = (f64::INFINITY, 0.0, 0);
    }
}

impl Grid for Observed {
    const IS_PROGRAMMED: bool = false;

    #[inline(always)]
    fn next_ns(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn take(&mut self, now_ns: u64, arrival: Arrival) -> Option<Late> {
        let interrupts = match arrival {
            Arrival::Nothing => return None,
            Arrival::Counted(interrupts) => interrupts,
            Arrival::AsDue => 1,
        };
        let now = now_ns as f64;
        if !self.begun {
            (self.begun, self.due_ns) = (true, now);
            return Some(Late { by_ns: 0, interrupts });
        }
        // The first of several interrupts counts, and the grid goes on from the last.
        let first_due = self.due_ns + self.interval_ns;
        self.due_ns += interrupts as f64 * self.interval_ns;
        let mut lateness = now - first_due;
        if lateness < 0.0 {
            self.due_ns += lateness;
            self.pulled_ns -= lateness;
            lateness = 0.0;
        }
        self.least_ns = self.least_ns.min(lateness);
        self.in_block += 1;
        if self.in_block >= BLOCK {
            self.end_block();
        }
        Some(Late { by_ns: lateness as u64, interrupts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "reads as what it is compared with")]
    fn late(by_ns: u64, interrupts: u64) -> Option<Late> {
        Some(Late { by_ns, interrupts })
    }

    #[test]
    fn a_programmed_grid_counts_from_the_first_expiry_that_was_served() {
        let mut grid = Programmed::new(1_000, 100);
        assert_eq!(grid.take(900, Arrival::Counted(1)), None);
        assert_eq!(grid.take(1_007, Arrival::Nothing), None);
        assert_eq!((grid.take(1_007, Arrival::Counted(1)), grid.next_ns()), (late(7, 1), 1_100));
        // Late for three: the lateness is that for the first of them.
        assert_eq!((grid.take(1_350, Arrival::Counted(3)), grid.next_ns()), (late(250, 3), 1_400));
        assert_eq!((grid.take(1_650, Arrival::AsDue), grid.next_ns()), (late(250, 3), 1_700));
    }

    /// Latenesses that the grid sees of interrupts every `period`, each `delays[n]` late.
    fn observe(nominal: u64, period: f64, delays: &[u64]) -> Vec<u64> {
        let mut grid = Observed::new(nominal);
        let moment = |(n, delay): (usize, &u64)| 1_000_000_000 + (n as f64 * period) as u64 + delay;
        delays
            .iter()
            .enumerate()
            .map(|it| grid.take(moment(it), Arrival::Counted(1)).unwrap().by_ns)
            .collect()
    }

    #[test]
    fn an_observed_grid_finds_the_delays_above_the_smallest_one() {
        // Delays of 5,000 to 5,900 ns, and one of 105,000.
        let mut delays: Vec<u64> = (0..5_000).map(|n| 5_000 + n * 7 % 10 * 100).collect();
        delays[4_321] = 105_000;
        for (nominal, period) in [(1_000_000, 1_000_000.0), (1_000_000, 1_000_050.0), (1_000_000, 999_400.0)]
        {
            let seen = observe(nominal, period, &delays);
            let late = &seen[1_000..];
            let expected = delays[1_000..].iter().map(|delay| delay - 5_000);
            let worst = late.iter().zip(expected).map(|(seen, delay)| seen.abs_diff(delay)).max().unwrap();
            assert!(worst < 1_000, "nominal {nominal}, period {period}: {worst} ns off");
            assert!(seen[4_321].abs_diff(100_000) < 1_000, "{}", seen[4_321]);
        }
    }

    #[test]
    fn missed_interrupts_do_not_move_an_observed_grid() {
        let mut grid = Observed::new(1_000_000);
        for n in 0..200u64 {
            grid.take(5_000_000 + n * 1_000_000, Arrival::Counted(1));
        }
        // Interrupts 200, 201 and 202 are seen together, 2.5 periods late for the first.
        assert_eq!(grid.take(5_000_000 + 202_500_000, Arrival::Counted(3)), late(2_500_000, 3));
        assert_eq!(grid.take(5_000_000 + 203_000_010, Arrival::Counted(1)), late(10, 1));
    }
}
