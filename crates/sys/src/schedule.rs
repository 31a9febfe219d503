//! Where and how a thread runs: CPU affinity, scheduling policy, locked memory.

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::thread::{CpuSet as KernelCpuSet, sched_setaffinity};
use std::sync::OnceLock;
use std::time::Instant;
use std::{fmt, io};
use whylate_core::{CpuId, CpuSet, Nanos};

/// A scheduling policy with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    Other,
    /// SCHED_FIFO with a priority of 1 to 99.
    Fifo(u32),
    /// SCHED_RR with a priority of 1 to 99.
    RoundRobin(u32),
    Deadline {
        /// Processor time guaranteed in each period.
        runtime: Nanos,
        /// The period, which is also the deadline.
        period: Nanos,
    },
}

/// Policy, priority and nice value of a thread, as the kernel numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadScheduling {
    /// `SCHED_OTHER` is 0, `SCHED_FIFO` 1, `SCHED_RR` 2, `SCHED_BATCH` 3, `SCHED_IDLE` 5, `SCHED_DEADLINE` 6.
    pub policy: u32,
    /// Real-time priority; 0 without one.
    pub priority: u32,
    pub nice: i32,
    /// Whether its children are ordinary tasks.
    pub reset_on_fork: bool,
}

/// As tools print it: `SCHED_FIFO 80`, `SCHED_OTHER nice 5`.
impl fmt::Display for ThreadScheduling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match i32::try_from(self.policy).unwrap_or(-1) {
            libc::SCHED_OTHER => "SCHED_OTHER",
            libc::SCHED_FIFO => "SCHED_FIFO",
            libc::SCHED_RR => "SCHED_RR",
            libc::SCHED_BATCH => "SCHED_BATCH",
            libc::SCHED_IDLE => "SCHED_IDLE",
            libc::SCHED_DEADLINE => "SCHED_DEADLINE",
            _ => return write!(f, "policy {}", self.policy),
        };
        match (self.priority, self.nice) {
            (0, 0) => f.write_str(name),
            (0, nice) => write!(f, "{name} nice {nice}"),
            (priority, _) => write!(f, "{name} {priority}"),
        }
    }
}

/// `struct sched_attr` of the kernel (include/uapi/linux/sched/types.h), version 0.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

const _: () = assert!(size_of::<SchedAttr>() == 48);
const SCHED_FLAG_RESET_ON_FORK: u64 = 1;

/// The kernel's number of the calling thread.
pub fn id_of_this_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// Pins the calling thread to `cpus`.
///
/// # Errors
/// When none of the CPUs is online and allowed (EINVAL), or one is beyond what the interface can name.
pub fn pin_this_thread(cpus: &CpuSet) -> io::Result<()> {
    pin(None, cpus)
}

/// Sets the CPUs that another thread may use.
pub fn pin_thread(tid: u32, cpus: &CpuSet) -> io::Result<()> {
    let pid = i32::try_from(tid).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    pin(Some(pid), cpus)
}

fn pin(pid: Option<rustix::process::Pid>, cpus: &CpuSet) -> io::Result<()> {
    let mut set = KernelCpuSet::new();
    for cpu in cpus.iter() {
        if cpu.0 as usize >= KernelCpuSet::MAX_CPU {
            let message =
                format!("CPU {cpu} is beyond the {} CPUs of sched_setaffinity", KernelCpuSet::MAX_CPU);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        set.set(cpu.0 as usize);
    }
    Ok(sched_setaffinity(pid, &set)?)
}

/// The CPUs that the calling thread may use.
pub fn allowed_of_this_thread() -> io::Result<CpuSet> {
    let set = rustix::thread::sched_getaffinity(None)?;
    Ok((0..KernelCpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(|cpu| CpuId(cpu as u32)).collect())
}

/// The CPU that the calling thread is on right now.
pub fn current_cpu() -> CpuId {
    CpuId(rustix::thread::sched_getcpu() as u32)
}

/// Gives the calling thread a scheduling policy.
///
/// # Errors
/// EPERM without CAP_SYS_NICE and a sufficient RLIMIT_RTPRIO, in a cgroup without real-time budget, and for
/// [`Scheduling::Deadline`] when the thread is pinned to fewer CPUs than its root domain has.
pub fn schedule_this_thread(scheduling: Scheduling) -> io::Result<()> {
    schedule(0, scheduling)
}

/// Gives another thread a scheduling policy; threads of the kernel too.
pub fn schedule_thread(tid: u32, scheduling: Scheduling) -> io::Result<()> {
    let tid = i32::try_from(tid).ok().filter(|tid| *tid > 0);
    schedule(tid.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?, scheduling)
}

/// How a thread is scheduled.
pub fn scheduling_of_thread(tid: u32) -> io::Result<ThreadScheduling> {
    let attributes = attributes_of(tid)?;
    Ok(ThreadScheduling {
        policy: attributes.policy,
        priority: attributes.priority,
        nice: attributes.nice,
        reset_on_fork: attributes.flags & SCHED_FLAG_RESET_ON_FORK != 0,
    })
}

/// How long after its release a thread of SCHED_DEADLINE has to be done; `None` for another policy, and for a thread
/// that has ended but still exists: the kernel reports 0 for it.
pub fn deadline_of_thread(tid: u32) -> io::Result<Option<Nanos>> {
    let attributes = attributes_of(tid)?;
    let has_one = i32::try_from(attributes.policy) == Ok(libc::SCHED_DEADLINE);
    Ok((has_one && attributes.deadline_ns > 0).then_some(Nanos(attributes.deadline_ns)))
}

fn attributes_of(tid: u32) -> io::Result<SchedAttr> {
    let mut attributes = SchedAttr::default();
    let size = size_of::<SchedAttr>() as u32;
    // SAFETY: sched_getattr writes at most `size` bytes to the pointer, which points to a structure of that size.
    let outcome = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attributes, size, 0) };
    if outcome == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
}

/// How the calling thread is scheduled.
pub fn scheduling_of_this_thread() -> io::Result<ThreadScheduling> {
    scheduling_of_thread(0)
}

/// Sets how a thread is scheduled, all of it; not as `SCHED_DEADLINE`.
pub fn set_scheduling_of_thread(tid: u32, scheduling: ThreadScheduling) -> io::Result<()> {
    let ThreadScheduling { policy, priority, nice, reset_on_fork } = scheduling;
    let flags = if reset_on_fork { SCHED_FLAG_RESET_ON_FORK } else { 0 };
    let size = size_of::<SchedAttr>() as u32;
    set_attributes(tid as i32, &SchedAttr { size, policy, flags, nice, priority, ..SchedAttr::default() })?;
    if [libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&(policy as i32)) {
        return Ok(());
    }
    // Policies that ignore the nice value keep the former one.
    let pid = i32::try_from(tid).ok().and_then(rustix::process::Pid::from_raw);
    Ok(rustix::process::setpriority_process(pid, nice)?)
}

/// Thread 0 is the calling one.
fn schedule(tid: i32, scheduling: Scheduling) -> io::Result<()> {
    let mut attributes = SchedAttr { size: size_of::<SchedAttr>() as u32, ..SchedAttr::default() };
    match scheduling {
        Scheduling::Other => attributes.policy = libc::SCHED_OTHER as u32,
        Scheduling::Fifo(priority) => {
            (attributes.policy, attributes.priority) = (libc::SCHED_FIFO as u32, priority);
        }
        Scheduling::RoundRobin(priority) => {
            (attributes.policy, attributes.priority) = (libc::SCHED_RR as u32, priority);
        }
        Scheduling::Deadline { runtime, period } => {
            attributes.policy = libc::SCHED_DEADLINE as u32;
            (attributes.runtime_ns, attributes.deadline_ns, attributes.period_ns) =
                (runtime.0, period.0, period.0);
        }
    }
    set_attributes(tid, &attributes)
}

fn set_attributes(tid: i32, attributes: &SchedAttr) -> io::Result<()> {
    // SAFETY: sched_setattr reads `size` bytes from the pointer, which points to a structure of that size; musl's
    // own wrapper for policies answers ENOSYS, hence the bare system call.
    let outcome = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const *attributes, 0) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Locks all memory of this process, present and future, so that none of it is paged out or faulted in late.
///
/// # Errors
/// EPERM or ENOMEM without CAP_IPC_LOCK and a sufficient RLIMIT_MEMLOCK.
pub fn lock_memory() -> io::Result<()> {
    Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE)?)
}

/// Touches the next `KIB` KiB of the calling thread's stack, so that no later call faults there.
#[inline(never)]
pub fn prefault_stack<const KIB: usize>() {
    let mut stack = [[0u8; 1024]; KIB];
    std::hint::black_box(&mut stack);
}

/// What the kernel counted for the calling thread since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadUsage {
    pub page_faults: u64,
    /// Times the thread was taken off its CPU against its will.
    pub involuntary_switches: u64,
    /// Times it gave up its CPU, by sleeping.
    pub voluntary_switches: u64,
}

/// Reads the counters of the calling thread.
pub fn usage_of_this_thread() -> ThreadUsage {
    // SAFETY: an all-zero rusage is valid, and getrusage writes one to the pointer; RUSAGE_THREAD cannot fail.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    ThreadUsage {
        page_faults: (usage.ru_minflt + usage.ru_majflt) as u64,
        involuntary_switches: usage.ru_nivcsw as u64,
        voluntary_switches: usage.ru_nvcsw as u64,
    }
}

/// The least time that a page fault of fresh memory takes on this machine, by writing to some; `None` if the memory that this process
/// gets is not fresh. Measured once.
pub fn cost_of_page_fault() -> Option<Nanos> {
    static COST: OnceLock<Option<Nanos>> = OnceLock::new();
    *COST.get_or_init(|| {
        // Memory that is freed would not be fresh in the next trial.
        let mut memory = Vec::new();
        let trials: Vec<Nanos> = (0..TRIALS).filter_map(|_| cost_in_one_trial(&mut memory)).collect();
        trials.iter().copied().min().filter(|_| trials.len() >= TRIALS_LEAST)
    })
}

const TRIALS: usize = 8;
/// One trial may have been interrupted.
const TRIALS_LEAST: usize = 3;
/// Fewer faults are too few for a mean, for example with huge pages.
const FAULTS_LEAST: u64 = 64;

fn cost_in_one_trial(all: &mut Vec<Vec<u8>>) -> Option<Nanos> {
    /// Large enough that the allocator maps it anew, and smaller than a huge page.
    const BYTES: usize = 1 << 20;
    const PAGE: usize = 4096;
    let before = usage_of_this_thread().page_faults;
    let began = Instant::now();
    let mut memory = vec![0u8; BYTES];
    memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    std::hint::black_box(&mut memory);
    let took_ns = began.elapsed().as_nanos() as u64;
    let faults = usage_of_this_thread().page_faults.saturating_sub(before);
    all.push(memory);
    (faults >= FAULTS_LEAST).then(|| Nanos(took_ns / faults))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_fault_takes_some_time() {
        assert!(
            cost_of_page_fault().is_none_or(|cost| (10..1_000_000).contains(&cost.0)),
            "{:?}",
            cost_of_page_fault()
        );
    }

    #[test]
    fn a_thread_stays_where_it_is_pinned() {
        std::thread::spawn(|| {
            let cpu = allowed_of_this_thread().unwrap().last().unwrap();
            pin_this_thread(&CpuSet::single(cpu)).unwrap();
            assert_eq!(allowed_of_this_thread().unwrap(), CpuSet::single(cpu));
            assert_eq!(current_cpu(), cpu);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn the_kernel_has_the_policy_that_was_asked_for_or_refuses_it() {
        std::thread::spawn(|| match schedule_this_thread(Scheduling::Fifo(7)) {
            Ok(()) => assert_eq!(scheduling_of_this_thread().unwrap().to_string(), "SCHED_FIFO 7"),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM)),
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_refused() {
        std::thread::spawn(|| assert!(pin_this_thread(&CpuSet::single(CpuId(8000))).is_err()))
            .join()
            .unwrap();
    }

    #[test]
    fn faults_are_counted() {
        let before = usage_of_this_thread();
        let fresh = vec![1u8; 8 << 20];
        std::hint::black_box(&fresh);
        assert!(usage_of_this_thread().page_faults > before.page_faults);
    }
}
