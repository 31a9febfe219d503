//! A periodic timerfd.

use crate::clock::timespec;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::OwnedFd;
use whylate_core::{MonoTime, Nanos};

/// A timer that expires at `first` and then every `period`.
///
/// # Errors
/// When the process has no file descriptor left.
pub fn start(first: MonoTime, period: Nanos) -> io::Result<OwnedFd> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let times = Itimerspec { it_interval: timespec(period.0), it_value: timespec(first.0.max(1)) };
    timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &times)?;
    Ok(timer)
}

/// Waits for the next expiry: one system call. Returns how many there were since the last call, 0 after a signal.
#[inline(always)]
pub fn wait_counted(timer: &OwnedFd) -> u64 {
    let mut expiries = [0u8; 8];
    match rustix::io::read(timer, &mut expiries) {
        Ok(_) => u64::from_ne_bytes(expiries),
        Err(_) => 0,
    }
}

/// Waits for the next expiry: one system call. An interrupted wait only makes the caller look at the clock early.
#[inline(always)]
pub fn wait(timer: &OwnedFd) {
    let mut expiries = [0u8; 8];
    let _ = rustix::io::read(timer, &mut expiries);
}
