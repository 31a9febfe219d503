//! How much: turns a pace into pauses between the turns of a worker.

use whylate_core::plan::Pace;
use whylate_core::{BytesPerSec, MonoTime};

/// Length of one cycle of work and pause when a share of time is asked for.
const DUTY_PERIOD_NS: u64 = 10_000_000;
/// How much time lost to other tasks may be caught up by a faster pace afterwards.
const CATCH_UP_NS: u64 = 100_000_000;
/// Pauses shorter than this are saved up: a sleep costs about as much.
const PAUSE_MIN_NS: u64 = 100_000;
/// Payload of one turn without a rate: string instructions like long ones, and it still ends within a millisecond.
const TURN_BYTES_MAX: u64 = 1 << 20;
/// Payload of one turn at the slowest rates.
const TURN_BYTES_MIN: u64 = 4 << 10;
/// Turns per second that a rate is cut into, within those limits.
const TURNS_PER_SECOND: f64 = 1000.0;

/// Decides when one worker rests.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    pace: Pace,
    begin_ns: u64,
    /// Rate: when the bytes so far are due to be done.
    due_ns: f64,
    /// Rate of this worker, in bytes per nanosecond.
    bytes_per_ns: f64,
    /// When the last pause was to end.
    resumed_ns: u64,
}

impl Pacer {
    /// For one of `workers`, which share the pace if it is a rate.
    pub(crate) fn new(pace: Pace, workers: usize, now: MonoTime) -> Self {
        let bytes_per_ns = match pace {
            Pace::Rate(BytesPerSec(rate)) => rate / workers.max(1) as f64 / 1e9,
            _ => f64::INFINITY,
        };
        Self { pace, begin_ns: now.0, due_ns: now.0 as f64, bytes_per_ns, resumed_ns: now.0 }
    }

    /// Payload of one turn: small enough that a rate is even and a stop is prompt.
    pub(crate) fn turn_bytes(&self) -> u64 {
        let even = self.bytes_per_ns * 1e9 / TURNS_PER_SECOND;
        (even.min(TURN_BYTES_MAX as f64) as u64).max(TURN_BYTES_MIN)
    }

    /// How long to rest after a turn that moved `bytes` and ended `now`, in nanoseconds.
    pub(crate) fn pause_ns(&mut self, now: MonoTime, bytes: u64) -> u64 {
        match self.pace {
            Pace::Full => 0,
            Pace::Rate(_) => {
                let now = now.0 as f64;
                self.due_ns = (self.due_ns + bytes as f64 / self.bytes_per_ns).max(now - CATCH_UP_NS as f64);
                let pause = (self.due_ns - now).max(0.0) as u64;
                if pause < PAUSE_MIN_NS { 0 } else { pause }
            }
            Pace::DutyCycle(share) => {
                let busy = now.0.saturating_sub(self.resumed_ns);
                if busy > DUTY_PERIOD_NS {
                    // A turn that is longer than a cycle is followed by its own share of rest.
                    let pause = (busy as f64 * (1.0 - share) / share) as u64;
                    (self.begin_ns, self.resumed_ns) = (now.0 + pause, now.0 + pause);
                    return pause;
                }
                let phase = now.0.saturating_sub(self.begin_ns) % DUTY_PERIOD_NS;
                let work = (share * DUTY_PERIOD_NS as f64) as u64;
                if phase < work {
                    return 0;
                }
                self.resumed_ns = now.0 + DUTY_PERIOD_NS - phase;
                DUTY_PERIOD_NS - phase
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Runs a worker of `speed` bytes/ns for ten seconds of simulated time: its bytes and its busy time.
    fn simulate(pace: Pace, workers: usize, speed: f64) -> (u64, u64) {
        let (mut now, mut total, mut busy) = (7 * SECOND, 0u64, 0u64);
        let end = now + 10 * SECOND;
        let mut pacer = Pacer::new(pace, workers, MonoTime(now));
        while now < end {
            let bytes = pacer.turn_bytes();
            let turn = (bytes as f64 / speed) as u64;
            now += turn;
            busy += turn;
            total += bytes;
            now += pacer.pause_ns(MonoTime(now), bytes);
        }
        (total, busy)
    }

    #[test]
    fn full_pace_never_rests() {
        let mut pacer = Pacer::new(Pace::Full, 1, MonoTime(0));
        assert!((0..1000).all(|turn| pacer.pause_ns(MonoTime(turn * 1000), 1 << 20) == 0));
        assert_eq!(pacer.turn_bytes(), TURN_BYTES_MAX);
    }

    #[test]
    fn a_rate_is_kept_by_all_workers_together() {
        for (rate, workers) in [(5e8, 1), (5e8, 4), (1e6, 1), (2e10, 2), (1e5, 3)] {
            let (bytes, _) = simulate(Pace::Rate(BytesPerSec(rate)), workers, 20.0);
            let achieved = bytes as f64 * workers as f64 / 10.0;
            assert!((achieved / rate - 1.0).abs() < 0.03, "{achieved} instead of {rate}");
        }
    }

    #[test]
    fn a_rate_out_of_reach_runs_at_full_pace() {
        let (_, busy) = simulate(Pace::Rate(BytesPerSec(1e12)), 1, 10.0);
        assert!(busy >= 10 * SECOND);
    }

    #[test]
    fn lost_time_is_caught_up_only_a_little() {
        let mut pacer = Pacer::new(Pace::Rate(BytesPerSec(1e9)), 1, MonoTime(0));
        // One worker preempted for 5 s: at 1 byte/ns, at most 100 ms worth of bytes may go without a pause.
        let now = 5 * SECOND;
        let mut unpaused = 0;
        while pacer.pause_ns(MonoTime(now), 100_000) == 0 {
            unpaused += 100_000;
        }
        assert!((100_000_000..=100_300_000).contains(&unpaused), "{unpaused}");
    }

    #[test]
    fn long_turns_keep_their_share_of_time() {
        let mut pacer = Pacer::new(Pace::DutyCycle(0.25), 1, MonoTime(0));
        let (mut now, mut busy) = (0, 0);
        for turn in 0..100 {
            let took = 50_000_000 + turn * 1_000_000;
            (now, busy) = (now + took, busy + took);
            now += pacer.pause_ns(MonoTime(now), 1);
        }
        let achieved = busy as f64 / now as f64;
        assert!((achieved - 0.25).abs() < 0.01, "{achieved}");
    }

    #[test]
    fn a_duty_cycle_is_a_share_of_time() {
        for share in [0.05, 0.25, 0.9, 1.0] {
            let (_, busy) = simulate(Pace::DutyCycle(share), 2, 10.0);
            let achieved = busy as f64 / (10 * SECOND) as f64;
            assert!((achieved - share).abs() < 0.01, "{achieved} instead of {share}");
        }
    }
}
