//! What a sleep in a system call can be for.

use crate::layout::tasks::RawStretch;
use syscalls::Sysno;
use whylate_core::recording::{Object, Site};

/// A condition variable of glibc has several adjacent words, and its waits alternate between them.
const WORD_BYTES: u64 = 16;

/// Whether a thread may wait for new work in that system call. In all others (write, fsync, flock, fcntl, mmap, ...) it does
/// the work that it was woken for.
pub(super) fn may_wait_for_work(call: &str) -> bool {
    matches!(
        call,
        "read"
            | "readv"
            | "pread64"
            | "preadv"
            | "preadv2"
            | "recv"
            | "recvfrom"
            | "recvmsg"
            | "recvmmsg"
            | "accept"
            | "accept4"
            | "poll"
            | "ppoll"
            | "select"
            | "_newselect"
            | "pselect6"
            | "epoll_wait"
            | "epoll_pwait"
            | "epoll_pwait2"
            | "nanosleep"
            | "clock_nanosleep"
            | "restart_syscall"
            | "pause"
            | "rt_sigsuspend"
            | "rt_sigtimedwait"
            | "futex"
            | "futex_wait"
            | "futex_waitv"
            | "wait4"
            | "waitid"
            | "semop"
            | "semtimedop"
            | "msgrcv"
            | "mq_timedreceive"
            | "io_getevents"
            | "io_pgetevents"
            | "io_uring_enter"
            | "ioctl"
            | "splice"
            | "tee"
            | "getrandom"
            | "ptrace"
            | "sched_yield"
            | "inotify_read"
            | "keyctl"
    )
}

pub(super) fn call(raw: &RawStretch) -> Option<Sysno> {
    u32::try_from(raw.syscall).ok().and_then(|number| Sysno::new(number as usize))
}

/// Where a thread fell asleep.
pub(super) fn site(raw: &RawStretch) -> Site {
    let [first, second] = raw.arguments;
    let (object, mode) = match call(raw).map_or("", |call| call.name()) {
        "futex" => (raw.futex / WORD_BYTES * WORD_BYTES, 0),
        // Until a moment, or for a time, of which clock.
        "clock_nanosleep" => (first, second & 1),
        "ioctl" => (first, second),
        "read" | "readv" | "pread64" | "preadv" | "preadv2" | "recvfrom" | "recvmsg" | "recvmmsg"
        | "accept" | "accept4" | "epoll_wait" | "epoll_pwait" | "epoll_pwait2" | "semop" | "semtimedop"
        | "msgrcv" | "mq_timedreceive" | "io_uring_enter" | "splice" | "tee" => (first, 0),
        // Their first argument may be at any address; the number of files distinguishes two of them.
        "poll" | "ppoll" => (second, 0),
        "select" | "pselect6" => (first, 0),
        _ => (0, 0),
    };
    Site { call: raw.syscall, object, mode, caller: raw.caller }
}

/// What the system call was for.
pub(super) fn object(raw: &RawStretch) -> Object {
    call(raw).map_or(Object::Unknown, |call| object_of(call.name(), raw.arguments[0]))
}

/// The same, by the name of the call and its site.
pub(super) fn object_at(site: &Site) -> Object {
    let call = u32::try_from(site.call).ok().and_then(|number| Sysno::new(number as usize));
    call.map_or(Object::Unknown, |call| object_of(call.name(), site.object))
}

fn object_of(call: &str, first: u64) -> Object {
    match call {
        "futex" => Object::Word(first, None),
        "read" | "readv" | "pread64" | "preadv" | "preadv2" | "recvfrom" | "recvmsg" | "recvmmsg"
        | "accept" | "accept4" | "epoll_wait" | "epoll_pwait" | "epoll_pwait2" | "io_uring_enter"
        | "splice" | "tee" | "write" | "writev" | "pwrite64" | "pwritev" | "sendto" | "sendmsg"
        | "sendmmsg" | "fsync" | "fdatasync" | "flock" | "fcntl" | "ioctl" | "connect" => {
            u32::try_from(first).map_or(Object::Unknown, |number| Object::File(number, None))
        }
        _ => Object::Unknown,
    }
}

/// Whether only its timer wakes a thread there, so that no message can start other work.
pub(super) fn is_sleep(site: &Site) -> bool {
    site.call == Sysno::nanosleep as i32 || site.call == Sysno::clock_nanosleep as i32
}

/// The same of sleeps until a moment, as those of a thread with a period.
pub(super) fn is_until(site: &Site) -> bool {
    site.call == Sysno::clock_nanosleep as i32 && site.mode == 1
}

/// Whether a thread waits there for one of several things, each of which may be work of its own.
pub(super) fn waits_for_several(site: &Site) -> bool {
    let call = u32::try_from(site.call).ok().and_then(|number| Sysno::new(number as usize));
    let begins =
        ["poll", "ppoll", "select", "pselect", "_newselect", "epoll", "io_", "accept", "wait4", "waitid"];
    call.is_some_and(|call| begins.iter().any(|it| call.name().starts_with(it)))
}

/// Whether it continues the previous sleep, which a signal interrupted.
pub(super) fn is_restart(site: &Site) -> bool {
    site.call == Sysno::restart_syscall as i32
}
