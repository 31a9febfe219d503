//! CLOCK_MONOTONIC: reading it and sleeping until one of its moments.

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};
use whylate_core::{MonoTime, Nanos};

/// Nanoseconds of a kernel time; kernel times of these clocks are never negative.
fn nanos(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub(crate) fn timespec(nanos: u64) -> Timespec {
    Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 }
}

/// Now. No system call where the kernel offers its clock in the vDSO.
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
    let monotonic = now().0;
    Nanos(nanos(clock_gettime(ClockId::Boottime)).saturating_sub(monotonic))
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
