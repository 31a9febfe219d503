//! Processes: what `std::process` does not offer.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// How to start this binary again for a hidden command, in a process of its own.
#[derive(Clone, Debug)]
pub struct Launcher {
    pub program: PathBuf,
}

impl Launcher {
    /// The running binary.
    pub fn current() -> io::Result<Self> {
        Ok(Self { program: std::env::current_exe()? })
    }

    /// The hidden command `name`, in a process group of its own: a Ctrl-C in the terminal reaches the runner alone,
    /// which then stops it in order.
    pub fn command(&self, name: &str) -> Command {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(&self.program);
        command.arg(name).process_group(0);
        command
    }
}

/// Makes the kernel send SIGKILL to this process when the thread that started it ends: a killed runner leaves no
/// measuring process behind.
pub fn die_with_parent(parent: u32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let is_parent = rustix::process::getppid().is_some_and(|now| now.as_raw_nonzero().get() as u32 == parent);
    if is_parent { Ok(()) } else { Err(io::Error::other("the process that started this one is gone")) }
}

/// Makes the kernel end (SIGKILL) what `command` starts when the thread that starts it ends, for whatever reason.
pub fn end_with_this_thread(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    let ask = || Ok(rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?);
    // SAFETY: it makes one system call, and takes no lock and no memory.
    unsafe { command.pre_exec(ask) };
}

/// Leaves a file open in processes that are started from now on; returns the number by which they take it
/// ([`inherited`]).
pub fn leave_open(file: &OwnedFd) -> io::Result<RawFd> {
    rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty())?;
    Ok(file.as_raw_fd())
}

/// Takes a file that the parent of this process has left open ([`leave_open`]); once.
///
/// # Errors
/// When no file with that number is open, or when it is one of the standard streams.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    if number <= 2 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the file is a standard stream"));
    }
    // SAFETY: the number is only asked about here; a file that is not open is an error.
    rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) })?;
    // SAFETY: the file is open, and this process owns it: it was left open for this process, under a number that only
    // its arguments contain, and which is taken once, before any other file is opened under it.
    let file = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::CLOEXEC)?;
    Ok(file)
}

/// Ignores a signal whose default is in force. Asks the kernel directly: C libraries refuse the numbers that they keep for
/// themselves, which end the process all the same when they are sent before the library uses them.
pub fn ignore_unless_handled(signal: i32) {
    // struct kernel_sigaction: handler, flags, restorer, mask; the handler is the first word on every architecture.
    let mut action = [0usize; 8];
    let size = size_of::<u64>();
    // SAFETY: the kernel writes one action, which is shorter than the buffer.
    let got = unsafe {
        libc::syscall(libc::SYS_rt_sigaction, signal, std::ptr::null::<usize>(), action.as_mut_ptr(), size)
    };
    if got == 0 && action[0] == libc::SIG_DFL {
        let ignored = [libc::SIG_IGN, 0, 0, 0, 0, 0, 0, 0];
        // SAFETY: the kernel reads one action, which runs no code of this process.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                ignored.as_ptr(),
                std::ptr::null_mut::<usize>(),
                size,
            )
        };
    }
}

/// Signals that mean something else than to end, a bit for each.
static CLAIMED: AtomicU64 = AtomicU64::new(0);

/// Gives a signal a meaning of its own, or takes it away.
pub fn claim_signal(number: i32, is_claimed: bool) {
    let bit = 1 << (number & 63);
    if is_claimed {
        CLAIMED.fetch_or(bit, Ordering::Relaxed)
    } else {
        CLAIMED.fetch_and(!bit, Ordering::Relaxed)
    };
}

/// Whether a signal has a meaning of its own, so that it does not ask this process to end.
pub fn has_claimed(number: i32) -> bool {
    CLAIMED.load(Ordering::Relaxed) & (1 << (number & 63)) != 0
}

/// Whether a child of this process was stopped (SIGSTOP, a debugger) since the last call. Takes no lock that its threads
/// need while they run.
pub fn is_stopped(child: u32) -> bool {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    let Some(pid) = i32::try_from(child).ok().and_then(Pid::from_raw) else { return false };
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
    waitid(WaitId::Pid(pid), options).is_ok_and(|status| status.is_some())
}

/// When a process started, in clock ticks since boot (field 22 of proc_pid_stat(5)). Together with its number this
/// distinguishes it from a later one. `None` if there is no such process.
pub fn started_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in brackets, which may hold anything.
    stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The same for a process that has not ended; a zombie has ended.
pub fn runs_since(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let has_ended = stat.get(stat.rfind(')')? + 1..)?.trim_start().starts_with(['Z', 'X']);
    if has_ended { None } else { started_ticks(pid) }
}

/// Inode of the PID namespace of this process; `None` if /proc does not say.
pub fn pid_namespace() -> Option<u64> {
    let name = std::fs::read_link("/proc/self/ns/pid").ok()?;
    name.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// Whether this process sees the kernel's own process ids: not so in most containers.
pub fn sees_kernel_ids() -> bool {
    // The first namespace has a number of its own in every kernel (PROC_PID_INIT_INO).
    std::fs::read_link("/proc/self/ns/pid").map_or(true, |name| name.as_os_str() == "pid:[4026531836]")
}

/// Whether CLOCK_MONOTONIC of this process is that of the kernel's own records: not so in a time namespace with an
/// offset (`unshare --time --monotonic`, a container that was restored from a checkpoint).
pub fn sees_kernel_clock() -> bool {
    // Without the file the kernel has no such namespaces.
    std::fs::read_to_string("/proc/self/timens_offsets").map_or(true, |text| has_no_offset(&text))
}

fn has_no_offset(offsets: &str) -> bool {
    let monotonic = offsets.lines().find_map(|line| line.strip_prefix("monotonic"));
    monotonic.is_none_or(|numbers| numbers.split_ascii_whitespace().all(|number| number == "0"))
}

/// Ends this process at once, without destructors: for a watchdog that finds a thread spinning past its end.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: _exit takes any status and does not return; nothing of this process is used afterwards.
    unsafe { libc::_exit(status) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_of_the_monotonic_clock_is_seen() {
        assert!(has_no_offset("monotonic           0         0\nboottime            0         0\n"));
        assert!(has_no_offset("monotonic           0         0\nboottime           50         0\n"));
        assert!(!has_no_offset("monotonic       86400         0\nboottime            0         0\n"));
        assert!(!has_no_offset("monotonic           0       100\n"));
    }
}
