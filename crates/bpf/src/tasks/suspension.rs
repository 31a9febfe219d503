//! Activations during which the machine was suspended or its clock set.
//!
//! Times here are on CLOCK_MONOTONIC, which stands still while the machine is suspended. Two things still go wrong. Threads
//! are frozen before the suspension and thawed after it. And the expiry of a timer of CLOCK_BOOTTIME or CLOCK_REALTIME,
//! converted to CLOCK_MONOTONIC by the difference of the clocks, is too early by the growth of that difference. An activation
//! that began before the jump was noticed is dropped and counted.

use whylate_core::recording::Activation;
use whylate_sys::clock;

/// Smaller differences come from reading two clocks one after another.
const JUMP_MIN_NS: u64 = 1_000_000;

/// How far apart the clocks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clocks {
    /// CLOCK_BOOTTIME and CLOCK_REALTIME, each less CLOCK_MONOTONIC.
    ahead_ns: [i64; 2],
}

impl Clocks {
    pub(super) fn read() -> Self {
        Self { ahead_ns: clock::ahead_of_monotonic().map(|it| it.0) }
    }

    fn jumped(self, before: Self) -> bool {
        let pairs = self.ahead_ns.iter().zip(before.ahead_ns);
        pairs.into_iter().any(|(now, before)| now.abs_diff(before) >= JUMP_MIN_NS)
    }
}

/// Finds the jumps, and drops the activations that contain one.
pub(super) struct Suspension {
    clocks: Clocks,
    /// Activations that were due before it are not complete.
    whole_from_ns: u64,
    pub(super) jumps: u64,
    /// Activations that are not counted because a clock jumped.
    pub(super) dropped: u64,
}

impl Suspension {
    pub(super) fn new(clocks: Clocks) -> Self {
        Self { clocks, whole_from_ns: 0, jumps: 0, dropped: 0 }
    }

    /// Whether clocks have jumped since the last look; this one is at `now_ns`, and its clocks were read before that.
    pub(super) fn look(&mut self, clocks: Clocks, now_ns: u64) -> bool {
        let jumped = clocks.jumped(std::mem::replace(&mut self.clocks, clocks));
        if jumped {
            self.whole_from_ns = now_ns;
            self.jumps += 1;
        }
        jumped
    }

    /// Those without a jump.
    pub(super) fn whole(&mut self, mut ended: Vec<Activation>) -> Vec<Activation> {
        let before = ended.len();
        ended.retain(|it| it.due_ns >= self.whole_from_ns);
        self.dropped += (before - ended.len()) as u64;
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::CpuId;
    use whylate_core::recording::{Doing, Stage};

    const SECOND: i64 = 1_000_000_000;

    fn clocks(boot_ns: i64, real_ns: i64) -> Clocks {
        Clocks { ahead_ns: [boot_ns, real_ns] }
    }

    fn activation(due_ns: u64, end_ns: u64) -> Activation {
        let ran = Stage { from_ns: due_ns, to_ns: end_ns, cpu: CpuId(0), what: Doing::Running };
        Activation { due_ns, woken_ns: due_ns, stages: vec![ran], ..Activation::default() }
    }

    #[test]
    fn an_activation_over_a_suspension_is_no_spike() {
        let mut suspension = Suspension::new(clocks(0, 1_700 * SECOND));
        assert!(!suspension.look(clocks(20_000, 1_700 * SECOND - 900_000), 1_000));
        assert_eq!(suspension.whole(vec![activation(900, 990)]).len(), 1);
        // The machine was suspended for an hour; a timer that expired meanwhile seems to be due an hour ago.
        assert!(suspension.look(clocks(3_600 * SECOND, 5_300 * SECOND), 9_000_000));
        let ended = vec![
            activation(1, 8_999_000),
            activation(8_990_000, 9_001_000),
            activation(9_000_500, 9_002_000),
        ];
        let whole = suspension.whole(ended);
        assert_eq!(whole.iter().map(|it| it.due_ns).collect::<Vec<_>>(), [9_000_500]);
        assert!(!suspension.look(clocks(3_600 * SECOND, 5_300 * SECOND), 9_100_000));
        assert_eq!((suspension.jumps, suspension.dropped), (1, 2));
    }

    #[test]
    fn a_clock_that_is_set_is_noticed_in_both_directions() {
        for step in [2 * SECOND, -2 * SECOND] {
            let mut suspension = Suspension::new(clocks(0, 100 * SECOND));
            assert!(suspension.look(clocks(0, 100 * SECOND + step), 50));
        }
    }

    #[test]
    fn the_clocks_of_this_machine_do_not_jump_by_being_read() {
        let mut suspension = Suspension::new(Clocks::read());
        assert!((1..20).all(|nth| !suspension.look(Clocks::read(), nth)));
    }
}
