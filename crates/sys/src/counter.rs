//! The time-stamp counter: the cheapest clock there is, and how it relates to the kernel's clock.
//!
//! x86-64 reads the TSC, arm64 the virtual counter CNTVCT; elsewhere, or where the TSC does not run at a constant
//! rate, CLOCK_MONOTONIC_RAW stands in, at the price of a slower read.

use crate::clock;
use whylate_core::{Cycles, Facts, Hz, MonoTime, Nanos, TscTime};

pub trait Counter: Copy + Send + 'static {
    /// What it is called in results.
    const NAME: &'static str;
    fn now() -> TscTime;
    /// Now, after everything that comes before it in the program: it overtakes neither earlier loads nor the execution
    /// of earlier stores. Costs a few nanoseconds more.
    #[inline(always)]
    fn now_in_order() -> TscTime {
        Self::now()
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Hardware;

/// CLOCK_MONOTONIC_RAW, one tick a nanosecond.
#[derive(Clone, Copy, Debug)]
pub struct KernelClock;

impl Counter for Hardware {
    const NAME: &'static str = if cfg!(target_arch = "aarch64") { "cntvct" } else { "tsc" };

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn now() -> TscTime {
        // SAFETY: rdtsc exists on every x86-64 CPU; `select` has checked that user mode may read it by reading it.
        TscTime(unsafe { core::arch::x86_64::_rdtsc() })
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn now_in_order() -> TscTime {
        // SAFETY: lfence is part of SSE2, which every x86-64 CPU has; it has no effect but on order.
        unsafe { core::arch::x86_64::_mm_lfence() };
        Self::now()
    }

    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    fn now_in_order() -> TscTime {
        // SAFETY: the barrier has no effect but on order.
        unsafe { core::arch::asm!("isb", options(nostack)) };
        Self::now()
    }

    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    fn now() -> TscTime {
        let ticks: u64;
        // SAFETY: Linux lets user mode read CNTVCT_EL0; reading it has no effect.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        TscTime(ticks)
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    #[inline(always)]
    fn now() -> TscTime {
        KernelClock::now()
    }
}

impl Counter for KernelClock {
    const NAME: &'static str = "CLOCK_MONOTONIC_RAW";

    #[inline(always)]
    fn now() -> TscTime {
        TscTime(clock::raw_now().0)
    }
}

/// Which counter to use on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterKind {
    /// [`Hardware`].
    Hardware,
    /// [`KernelClock`].
    KernelClock,
}

impl CounterKind {
    /// The hardware counter if it runs at a constant rate, otherwise the kernel's clock.
    pub fn select(facts: &Facts) -> Self {
        let built_for_it = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
        if built_for_it && facts.clock.counter_invariant { Self::Hardware } else { Self::KernelClock }
    }

    pub fn now(self) -> TscTime {
        match self {
            Self::Hardware => Hardware::now(),
            Self::KernelClock => KernelClock::now(),
        }
    }

    /// What it is called in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hardware => Hardware::NAME,
            Self::KernelClock => KernelClock::NAME,
        }
    }

    /// Measures the counter's frequency against CLOCK_MONOTONIC_RAW over `duration`.
    pub fn calibrate(self, duration: Nanos) -> Calibration {
        if self == Self::KernelClock {
            return Calibration::of_multiplier(1 << 32);
        }
        let (ticks_before, raw_before, bracket_before) = self.pair(|| clock::raw_now().0);
        clock::sleep_until(MonoTime(clock::now().0 + duration.0));
        let (ticks_after, raw_after, bracket_after) = self.pair(|| clock::raw_now().0);
        let ticks = (ticks_after.0 - ticks_before.0) as f64;
        let frequency = ticks / (raw_after - raw_before) as f64 * 1e9;
        let error = (bracket_before.0 + bracket_after.0) as f64 / ticks;
        Calibration::new(Hz(frequency.round() as u64), error)
    }

    /// One moment on both clocks.
    pub fn anchor(self) -> Anchor {
        let (counter, monotonic, _) = self.pair(|| clock::now().0);
        Anchor { counter, monotonic: MonoTime(monotonic) }
    }

    /// Reads a clock between two reads of the counter, several times, and keeps the narrowest bracket.
    fn pair(self, read: impl Fn() -> u64) -> (TscTime, u64, Cycles) {
        let attempt = || {
            let before = self.now();
            let value = read();
            let bracket = self.now().0.saturating_sub(before.0);
            (TscTime(before.0 + bracket / 2), value, Cycles(bracket))
        };
        let mut best = attempt();
        for _ in 0..50 {
            let next = attempt();
            if next.2 < best.2 {
                best = next;
            }
        }
        best
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// Ticks per second.
    pub frequency: Hz,
    /// Bound of the relative error of `frequency`.
    pub error: f64,
    /// Nanoseconds per tick, times 2^32.
    pub multiplier: u64,
}

impl Calibration {
    fn new(frequency: Hz, error: f64) -> Self {
        let multiplier = (1e9 * f64::from(u32::MAX) + 1e9) / frequency.0.max(1) as f64;
        Self { frequency, error, multiplier: multiplier.round() as u64 }
    }

    /// A calibration that was made elsewhere and passed on; its error is no longer known.
    pub fn of_multiplier(multiplier: u64) -> Self {
        let frequency = (1_000_000_000u128 << 32) / u128::from(multiplier.max(1));
        Self { frequency: Hz(frequency as u64), error: 0.0, multiplier }
    }

    /// The length of `cycles`, rounded to the nearest nanosecond.
    #[inline(always)]
    pub fn nanos(&self, cycles: Cycles) -> Nanos {
        let half = 1 << 31;
        Nanos(((u128::from(cycles.0) * u128::from(self.multiplier) + half) >> 32) as u64)
    }

    /// How many ticks `nanos` takes, rounded up.
    pub fn cycles(&self, nanos: Nanos) -> Cycles {
        Cycles((u128::from(nanos.0) * u128::from(self.frequency.0)).div_ceil(1_000_000_000) as u64)
    }
}

/// One moment on the counter and on CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    pub counter: TscTime,
    pub monotonic: MonoTime,
}

impl Anchor {
    /// The moment of CLOCK_MONOTONIC at which the counter stood at `time`. The further from the anchor, the more
    /// NTP's steering of CLOCK_MONOTONIC (at most 500 parts in a million) shows.
    pub fn monotonic(&self, time: TscTime, calibration: &Calibration) -> MonoTime {
        let distance = calibration.nanos(Cycles(time.0.abs_diff(self.counter.0))).0;
        MonoTime(if time.0 >= self.counter.0 {
            self.monotonic.0 + distance
        } else {
            self.monotonic.0.saturating_sub(distance)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_agree_with_the_frequency() {
        let calibration = Calibration::new(Hz(2_300_000_000), 0.0);
        assert_eq!(calibration.nanos(Cycles(2_300)), Nanos(1_000));
        // The multiplier has 32 fractional bits: the error is below 1 us per hour.
        let hour = calibration.nanos(Cycles(2_300_000_000 * 3600)).0;
        assert!(hour.abs_diff(3_600_000_000_000) < 1_000, "{hour}");
        assert_eq!(calibration.cycles(Nanos(1_000)), Cycles(2_300));
        assert_eq!(calibration.cycles(Nanos(1)), Cycles(3));
    }

    #[test]
    fn the_kernel_clock_ticks_nanoseconds() {
        let calibration = CounterKind::KernelClock.calibrate(Nanos(0));
        assert_eq!(calibration.nanos(Cycles(12_345)), Nanos(12_345));
    }

    #[test]
    fn a_moment_on_the_counter_is_found_on_the_clock() {
        let kind = CounterKind::Hardware;
        let calibration = kind.calibrate(Nanos::from_millis(20));
        let anchor = kind.anchor();
        let before = clock::now();
        let ticks = kind.now();
        let after = clock::now();
        let found = anchor.monotonic(ticks, &calibration);
        // Both clocks run on the same hardware here; a millisecond is far more than the calibration's error.
        assert!(found.0 + 1_000_000 >= before.0 && found.0 <= after.0 + 1_000_000);
        assert!(calibration.error < 0.01, "{calibration:?}");
    }
}
