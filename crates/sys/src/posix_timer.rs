//! A periodic POSIX timer that signals the thread that made it.

use crate::clock::timespec;
use std::io;
use whylate_core::{MonoTime, Nanos};

/// A timer that expires at fixed moments and is waited for.
#[derive(Debug)]
pub struct PosixTimer {
    timer: libc::timer_t,
    signals: libc::sigset_t,
}

impl PosixTimer {
    /// A timer of the calling thread that expires at `first` and then every `period`.
    ///
    /// # Errors
    /// When the kernel has no timers left for this user (RLIMIT_SIGPENDING).
    pub fn start(first: MonoTime, period: Nanos) -> io::Result<Self> {
        let signal = libc::SIGRTMIN() + 1;
        // SAFETY: all structures are initialised here (zero is valid for each) and outlive the calls; the signal is
        // blocked before the timer exists, so it is only ever taken by `wait`.
        unsafe {
            let mut signals: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut signals);
            libc::sigaddset(&raw mut signals, signal);
            if libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal;
            event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
            let mut timer: libc::timer_t = std::mem::zeroed();
            if libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) != 0 {
                return Err(io::Error::last_os_error());
            }
            let created = Self { timer, signals };
            let times =
                libc::itimerspec { it_interval: to_libc(period.0), it_value: to_libc(first.0.max(1)) };
            if libc::timer_settime(timer, libc::TIMER_ABSTIME, &raw const times, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(created)
        }
    }

    /// Waits for the next expiry: one system call.
    #[inline(always)]
    pub fn wait(&self) {
        // SAFETY: the set was initialised by `start`; the answer is not wanted, so the pointer may be null. An
        // interrupted wait only makes the caller look at the clock early.
        unsafe { libc::sigwaitinfo(&raw const self.signals, std::ptr::null_mut()) };
    }
}

impl Drop for PosixTimer {
    fn drop(&mut self) {
        // SAFETY: the timer was created by `start` and is deleted once.
        unsafe { libc::timer_delete(self.timer) };
    }
}

fn to_libc(nanos: u64) -> libc::timespec {
    let time = timespec(nanos);
    // SAFETY: zero is valid for a timespec; musl pads it on some targets, so it has no literal that fits all.
    let mut converted: libc::timespec = unsafe { std::mem::zeroed() };
    converted.tv_sec = time.tv_sec as _;
    converted.tv_nsec = time.tv_nsec as libc::c_long;
    converted
}
