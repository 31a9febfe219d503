//! CLOCK_MONOTONIC: reading it and sleeping until one of its moments, and how far other clocks are ahead of it.

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};
use whylate_core::{MonoTime, Nanos, NanosDelta};

/// Nanoseconds of a kernel time; kernel times of these clocks are never negative.
fn nanos(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub(crate) fn timespec(nanos: u64) -> Timespec {
    Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 }
}

/// Now. No system call if the kernel offers its clock in the vDSO.
#[inline(always)]
pub fn now() -> MonoTime {
    MonoTime(nanos(clock_gettime(ClockId::Monotonic)))
}

/// CLOCK_MONOTONIC_RAW: the hardware's pace, not steered by NTP. Nanoseconds from an unspecified origin.
#[inline(always)]
pub fn raw_now() -> Nanos {
    Nanos(nanos(clock_gettime(ClockId::MonotonicRaw)))
}

/// How long the machine was suspended since it was booted: CLOCK_BOOTTIME counts that time, CLOCK_MONOTONIC does not.
pub fn suspended() -> Nanos {
    Nanos(u64::try_from(ahead_of(ClockId::Boottime).0).unwrap_or(0))
}

/// How far CLOCK_BOOTTIME and CLOCK_REALTIME are ahead of CLOCK_MONOTONIC. That changes when the machine is suspended,
/// or when the time of day is set.
pub fn ahead_of_monotonic() -> [NanosDelta; 2] {
    [ClockId::Boottime, ClockId::Realtime].map(ahead_of)
}

fn ahead_of(id: ClockId) -> NanosDelta {
    let clock = |id| nanos(clock_gettime(id));
    difference_of(|| [clock(ClockId::Monotonic), clock(id), clock(ClockId::Monotonic)])
}

/// Readings of the clocks that are closer than this count as one moment.
const CLOSE_NS: u64 = 20_000;
/// The most readings that are tried.
const READINGS: usize = 16;

/// The difference by the reading that took the least time: a thread that does not run between two clocks is no jump.
fn difference_of(mut read: impl FnMut() -> [u64; 3]) -> NanosDelta {
    let mut closest = (u64::MAX, 0);
    for _ in 0..READINGS {
        let [before, other, after] = read();
        closest = closest.min((after.saturating_sub(before), other as i64 - before as i64));
        if closest.0 < CLOSE_NS {
            break;
        }
    }
    NanosDelta(closest.1)
}

/// Processor time that this thread has used.
pub fn thread_cpu_time() -> Nanos {
    Nanos(nanos(clock_gettime(ClockId::ThreadCPUTime)))
}

/// Sleeps until `moment`: one system call, `clock_nanosleep` with an absolute time. Returns early only when a
/// signal handler ran; then the answer is `false`.
#[inline(always)]
pub fn sleep_until(moment: MonoTime) -> bool {
    clock_nanosleep_absolute(ClockId::Monotonic, &timespec(moment.0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_did_not_run_between_two_clocks_is_no_suspension() {
        let mut readings =
            [[100, 6_000_100, 6_000_200], [6_001_000, 6_001_300, 6_001_500]].into_iter().cycle();
        assert_eq!(difference_of(|| readings.next().unwrap()), NanosDelta(300));
        // Nothing is close: the closest.
        let mut readings = [[0, 90_000, 900_000], [0, 70_000, 80_000]].into_iter().cycle();
        assert_eq!(difference_of(|| readings.next().unwrap()), NanosDelta(70_000));
    }
}
