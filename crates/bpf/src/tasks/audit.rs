//! Audit of watched threads: what they do that a real-time thread should not.
//!
//! The programs in the kernel (`bpf/audit.h`) count system calls; the records of the watch show sleeps, wake-ups and page
//! faults. The start of a thread does not count: it may take memory and open files before its loop.

use super::build::wait_of;
use crate::error::BpfError;
use crate::layout::tasks::{
    AUDIT_CALLS, Began, Detail, RawAuditCount, RawAuditKey, RawAudited, RawStretch, TaskEvent, Waker,
};
use crate::object::Object;
use std::collections::{BTreeMap, BTreeSet};
use syscalls::Sysno;
use whylate_core::recording::{Frame, Wait};
use whylate_core::result::{AuditKind, AuditRecord};
use whylate_host::HostRoot;
use zerocopy::transmute;

/// A thread's start lasts until its first runs are over, or that long after it first ran.
const START_RUNS: u64 = 100;
const START_NS: u64 = 1_000_000_000;
/// The kernel's number of the lowest real-time priority, and 1.
const ORDINARY_PRIO: i32 = 100;
/// Flag of clock_nanosleep, and the clock that can be set.
const TIMER_ABSTIME: u32 = 1;
const CLOCK_REALTIME: u32 = 0;
/// The functions of a place that are named.
const FUNCTIONS_MAX: usize = 4;

type KeyBytes = [u8; size_of::<RawAuditKey>()];
type CountBytes = [u8; size_of::<RawAuditCount>()];
/// Thread, kind, system call, object.
type Identity = (u32, AuditKind, Option<String>, Option<String>);

/// System calls that are audited, and what they are. Those that take a file descriptor are judged by the file.
const CALLS: &[(Sysno, AuditKind, Detail)] = {
    use AuditKind::{File, Memory, Process, RelativeSleep, Yield};
    &[
        (Sysno::mmap, Memory, Detail::None),
        (Sysno::munmap, Memory, Detail::None),
        (Sysno::mremap, Memory, Detail::None),
        (Sysno::mprotect, Memory, Detail::None),
        (Sysno::madvise, Memory, Detail::None),
        (Sysno::brk, Memory, Detail::None),
        (Sysno::shmat, Memory, Detail::None),
        (Sysno::shmdt, Memory, Detail::None),
        (Sysno::read, File, Detail::File),
        (Sysno::readv, File, Detail::File),
        (Sysno::pread64, File, Detail::File),
        (Sysno::preadv, File, Detail::File),
        (Sysno::write, File, Detail::File),
        (Sysno::writev, File, Detail::File),
        (Sysno::pwrite64, File, Detail::File),
        (Sysno::pwritev, File, Detail::File),
        (Sysno::fsync, File, Detail::File),
        (Sysno::fdatasync, File, Detail::File),
        (Sysno::ftruncate, File, Detail::File),
        (Sysno::fallocate, File, Detail::File),
        (Sysno::getdents64, File, Detail::File),
        (Sysno::openat, File, Detail::None),
        (Sysno::openat2, File, Detail::None),
        (Sysno::faccessat, File, Detail::None),
        (Sysno::readlinkat, File, Detail::None),
        (Sysno::statx, File, Detail::None),
        (Sysno::unlinkat, File, Detail::None),
        (Sysno::renameat2, File, Detail::None),
        (Sysno::mkdirat, File, Detail::None),
        (Sysno::sync, File, Detail::None),
        (Sysno::syncfs, File, Detail::None),
        (Sysno::msync, File, Detail::None),
        (Sysno::sendfile, File, Detail::None),
        (Sysno::copy_file_range, File, Detail::None),
        (Sysno::clone, Process, Detail::None),
        (Sysno::clone3, Process, Detail::None),
        (Sysno::execve, Process, Detail::None),
        (Sysno::wait4, Process, Detail::None),
        (Sysno::sched_yield, Yield, Detail::None),
        (Sysno::nanosleep, RelativeSleep, Detail::None),
        (Sysno::clock_nanosleep, RelativeSleep, Detail::Clock),
        #[cfg(target_arch = "x86_64")]
        (Sysno::open, File, Detail::None),
        #[cfg(target_arch = "x86_64")]
        (Sysno::creat, File, Detail::None),
        #[cfg(target_arch = "x86_64")]
        (Sysno::stat, File, Detail::None),
        #[cfg(target_arch = "x86_64")]
        (Sysno::lstat, File, Detail::None),
        #[cfg(target_arch = "x86_64")]
        (Sysno::access, File, Detail::None),
        #[cfg(target_arch = "x86_64")]
        (Sysno::readlink, File, Detail::None),
        #[cfg(target_arch = "x86_64")]
        (Sysno::unlink, File, Detail::None),
        #[cfg(target_arch = "x86_64")]
        (Sysno::rename, File, Detail::None),
        #[cfg(target_arch = "x86_64")]
        (Sysno::mkdir, File, Detail::None),
        #[cfg(target_arch = "x86_64")]
        (Sysno::fork, Process, Detail::None),
        #[cfg(target_arch = "x86_64")]
        (Sysno::vfork, Process, Detail::None),
    ]
};

/// Calls that write: a pipe or a terminal can block them.
const WRITES: [Sysno; 4] = [Sysno::write, Sysno::writev, Sysno::pwrite64, Sysno::pwritev];

/// Fills the table of audited calls.
pub(super) fn choose_calls(object: &mut Object) -> Result<(), BpfError> {
    for (call, _, detail) in CALLS {
        let number = *call as u32;
        if number < AUDIT_CALLS {
            object.set("audit_calls", number, &(*detail as u32))?;
        }
    }
    Ok(())
}

/// What a thread fell asleep for.
#[derive(Clone, Copy, PartialEq)]
enum Slept {
    Lock { inherits: bool },
    Page,
    Other,
}

#[derive(Default)]
struct AuditedThread {
    process: u32,
    /// When it first ran with its class of priority; whether its start is over.
    since_ns: u64,
    is_real_time: bool,
    is_settled: bool,
    is_gone: bool,
    /// 1 + the number of the run in which it ended, as `RawAuditCount::last_run`.
    last_run: u64,
    /// All its runs, those since its start, and those since the last time findings were taken.
    runs: u64,
    audited_runs: u64,
    runs_now: u64,
    ordinary_now: u64,
    /// A finding of it, so that later runs are counted as well.
    known: Option<AuditRecord>,
    /// When and for what it fell asleep.
    slept: Option<(u64, Slept)>,
}

struct Found {
    record: AuditRecord,
    /// The number of the run in which it was seen last.
    last_run: u64,
}

/// The audit, running.
pub(super) struct Audit {
    /// Threads that were there before the watch.
    present: BTreeSet<u32>,
    threads: BTreeMap<u32, AuditedThread>,
    found: BTreeMap<Identity, Found>,
    /// The counts of the kernel when findings were last taken.
    before: BTreeMap<RawAuditKey, RawAuditCount>,
    /// What calls with a detail are about: the finding and its object; `None`: it is no finding.
    judged: BTreeMap<RawAuditKey, Option<(AuditKind, Option<String>)>>,
    /// Where the longest call was made.
    places: BTreeMap<RawAuditKey, String>,
    /// Whether the memory of each process was locked when it was last looked at.
    locked: BTreeMap<u32, bool>,
    /// Whether the kernel tells when page faults end.
    times_faults: bool,
}

impl Audit {
    pub(super) fn new(present: BTreeSet<u32>, times_faults: bool) -> Self {
        Self {
            present,
            times_faults,
            threads: BTreeMap::new(),
            found: BTreeMap::new(),
            before: BTreeMap::new(),
            judged: BTreeMap::new(),
            places: BTreeMap::new(),
            locked: BTreeMap::new(),
        }
    }

    /// Takes the next record. `names` finds the functions at the addresses of a stack.
    pub(super) fn take(
        &mut self,
        host: &HostRoot,
        object: &mut Object,
        raw: &RawStretch,
        names: impl FnOnce(&RawAudited) -> Vec<Frame>,
    ) {
        match raw.kind {
            TaskEvent::Stretch => {
                self.stretch(object, raw);
                // A process may end before findings are taken.
                let is_settled = self.threads.get(&raw.thread).is_some_and(|thread| thread.is_settled);
                if is_settled && !self.locked.contains_key(&raw.process) {
                    self.locked
                        .extend(is_locked(host, raw.process).map(|is_locked| (raw.process, is_locked)));
                }
            }
            // Its findings are still to be taken.
            TaskEvent::Gone => {
                if let Some(thread) = self.threads.get_mut(&raw.thread) {
                    thread.is_gone = true;
                    thread.last_run = raw.futex + 1;
                }
            }
            TaskEvent::New => {
                self.threads.remove(&raw.thread);
            }
            TaskEvent::Audited => {
                let Some(audited) = raw.audited() else { return };
                let key = key(raw.thread, &audited);
                self.judged
                    .entry(key)
                    .or_insert_with(|| judge(host, raw.process, audited.call, audited.detail));
                if let Some(place) = place(&names(&audited)) {
                    self.places.insert(key, place);
                }
            }
            _ => {}
        }
    }

    fn stretch(&mut self, object: &mut Object, raw: &RawStretch) {
        let was_present = self.present.contains(&raw.thread);
        let is_real_time = raw.prio < ORDINARY_PRIO;
        let thread = self.threads.entry(raw.thread).or_insert_with(|| AuditedThread {
            since_ns: raw.end_ns,
            is_real_time,
            is_settled: was_present,
            ..AuditedThread::default()
        });
        thread.process = raw.process;
        if thread.is_real_time != is_real_time && !thread.is_settled {
            (thread.since_ns, thread.runs, thread.is_real_time) = (raw.end_ns, 0, is_real_time);
        }
        let is_asleep = raw.is_runnable == 0;
        thread.runs += u64::from(is_asleep);
        if !thread.is_settled {
            thread.is_settled = thread.runs >= START_RUNS || raw.end_ns > thread.since_ns + START_NS;
            if !thread.is_settled {
                return;
            }
            // What it did so far was its start.
            for (key, _) in object.entries::<KeyBytes, CountBytes>("audited").unwrap_or_default() {
                let known: RawAuditKey = transmute!(key);
                if known.thread == raw.thread {
                    object.remove::<KeyBytes, CountBytes>("audited", &key);
                    self.before.remove(&known);
                }
            }
            return;
        }
        thread.runs_now += u64::from(is_asleep);
        thread.audited_runs += u64::from(is_asleep);
        thread.ordinary_now += u64::from(is_asleep && !is_real_time);
        let slept = thread.slept.take();
        let mut seen: Vec<(AuditKind, Option<String>, u64, u64)> = Vec::new();
        let woken_after = |at_ns: u64| raw.ready_ns.saturating_sub(at_ns);
        let is_woken = raw.began == Began::Woken;
        if let Some((at_ns, Slept::Page)) = slept.filter(|_| is_woken) {
            seen.push((AuditKind::MajorFault, None, 1, woken_after(at_ns)));
        }
        let by_thread = matches!(raw.waker_kind, Waker::Thread | Waker::Sender) && raw.waker != 0;
        // The niceness of ordinary threads decides nothing.
        if is_woken && is_real_time && by_thread && raw.waker_prio > raw.prio {
            let waker = Some(raw.waker_command.text());
            match slept {
                Some((at_ns, Slept::Lock { inherits: false })) => {
                    seen.push((AuditKind::PlainLock, waker, 1, woken_after(at_ns)));
                }
                Some((_, Slept::Lock { inherits: true } | Slept::Page)) | None => {}
                Some((_, Slept::Other)) => seen.push((AuditKind::WokenByLower, waker, 1, 0)),
            }
        }
        if raw.faults > 0 {
            let took_ns = if self.times_faults { raw.faults_took_ns } else { 0 };
            seen.push((AuditKind::MinorFault, None, raw.faults.into(), took_ns));
        }
        if is_asleep {
            thread.slept = Some((raw.end_ns, slept_for(raw)));
        }
        let run = thread.runs - u64::from(is_asleep);
        for (kind, object, count, took_ns) in seen {
            let identity = (raw.thread, kind, None, object);
            let found = self.found.entry(identity).or_insert_with_key(|(_, kind, _, object)| Found {
                record: AuditRecord { object: object.clone(), ..AuditRecord::new(*kind) },
                last_run: u64::MAX,
            });
            found.record.count += count;
            found.record.took_ns += took_ns;
            // Page faults that come together have only a sum.
            found.record.longest_ns = found.record.longest_ns.max(took_ns / count.max(1));
            found.record.runs += u64::from(found.last_run != run);
            found.last_run = run;
        }
    }

    /// What was found since the last call, by thread.
    pub(super) fn drain(&mut self, host: &HostRoot, object: &Object) -> Vec<(u32, AuditRecord)> {
        let mut records: Vec<(u32, AuditRecord)> = std::mem::take(&mut self.found)
            .into_iter()
            .map(|((thread, ..), it)| (thread, it.record))
            .collect();
        for (key, count) in object.entries::<KeyBytes, CountBytes>("audited").unwrap_or_default() {
            let (key, count): (RawAuditKey, RawAuditCount) = (transmute!(key), transmute!(count));
            let Some(thread) = self.threads.get(&key.thread).filter(|thread| thread.is_settled) else {
                continue;
            };
            let before = self.before.insert(key, count).unwrap_or_default();
            let (calls, runs) =
                (count.calls.saturating_sub(before.calls), count.runs.saturating_sub(before.runs));
            // A thread that ends unmaps its stack, for example. Its cycles do not.
            if thread.is_gone && runs == 1 && count.last_run == thread.last_run {
                continue;
            }
            let judged =
                self.judged.entry(key).or_insert_with(|| judge(host, thread.process, key.call, key.detail));
            let Some((kind, about)) = judged.clone().filter(|_| calls > 0) else { continue };
            let is_sleep = matches!(kind, AuditKind::RelativeSleep | AuditKind::SettableClock);
            let time = |ns: u64| if is_sleep { 0 } else { ns };
            records.push((
                key.thread,
                AuditRecord {
                    call: Sysno::new(key.call as usize).map(|call| call.name().to_owned()),
                    object: about,
                    count: calls,
                    runs: runs.min(calls),
                    took_ns: time(count.took_ns.saturating_sub(before.took_ns)),
                    longest_ns: time(count.longest_ns),
                    place: self.places.get(&key).cloned(),
                    ..AuditRecord::new(kind)
                },
            ));
        }
        let processes: BTreeSet<u32> = self.threads.values().map(|thread| thread.process).collect();
        for process in &processes {
            // The last look counts for one that is gone.
            if let Some(is_locked) = is_locked(host, *process) {
                self.locked.insert(*process, is_locked);
            }
        }
        self.locked.retain(|process, _| processes.contains(process));
        for (id, thread) in self.threads.iter_mut().filter(|(_, thread)| thread.runs_now > 0) {
            let (runs, ordinary) =
                (std::mem::take(&mut thread.runs_now), std::mem::take(&mut thread.ordinary_now));
            let state = |kind, count| AuditRecord { count, runs: count, ..AuditRecord::new(kind) };
            if ordinary > 0 {
                records.push((*id, state(AuditKind::NotRealTime, ordinary)));
            }
            if self.locked.get(&thread.process) == Some(&false) {
                records.push((*id, state(AuditKind::NotLocked, runs)));
            }
            match records.iter().find(|(of, _)| of == id) {
                Some((_, any)) => {
                    thread.known = Some(AuditRecord {
                        call: any.call.clone(),
                        object: any.object.clone(),
                        ..AuditRecord::new(any.kind)
                    });
                }
                None => records.extend(thread.known.clone().map(|known| (*id, known))),
            }
        }
        for (id, record) in &mut records {
            record.of_runs = self.threads.get(id).map_or(0, |thread| thread.audited_runs);
        }
        self.threads.retain(|_, thread| !thread.is_gone);
        records
    }
}

fn key(thread: u32, audited: &RawAudited) -> RawAuditKey {
    RawAuditKey { thread, call: audited.call, detail: audited.detail, unused: 0 }
}

fn slept_for(raw: &RawStretch) -> Slept {
    match wait_of(raw, &|_, _, _| None) {
        Wait::Lock { inherits_priority: inherits, .. } => Slept::Lock { inherits },
        Wait::Page => Slept::Page,
        _ => Slept::Other,
    }
}

/// Whether the process has locked memory; `None` for one that is gone, and for threads of the kernel.
fn is_locked(host: &HostRoot, process: u32) -> Option<bool> {
    let status = host.read(&format!("/proc/{process}/status")).ok().flatten().unwrap_or_default();
    let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
    locked.map(|size| size.trim() != "0 kB")
}

/// Which finding a system call is, and its object; `None` if it is none.
fn judge(host: &HostRoot, process: u32, call: u32, detail: u32) -> Option<(AuditKind, Option<String>)> {
    let call = Sysno::new(call as usize)?;
    let (_, kind, kept) = CALLS.iter().find(|(known, ..)| *known == call)?;
    match kept {
        Detail::None => Some((*kind, None)),
        Detail::Clock => {
            let (clock, flags) = (detail & 0xffff, detail >> 16);
            match (flags & TIMER_ABSTIME != 0, clock) {
                (false, _) => Some((AuditKind::RelativeSleep, None)),
                (true, CLOCK_REALTIME) => Some((AuditKind::SettableClock, None)),
                (true, _) => None,
            }
        }
        Detail::File => {
            let path = host.read_link(&format!("/proc/{process}/fd/{detail}"))?;
            file_kind(&path, WRITES.contains(&call)).map(|kind| (kind, Some(path)))
        }
    }
}

/// What use of a file is; `None` for files whose use is work: sockets, devices, timers and events.
fn file_kind(path: &str, writes: bool) -> Option<AuditKind> {
    let is_terminal = ["/dev/pts/", "/dev/tty", "/dev/console"].iter().any(|it| path.starts_with(it));
    match path {
        _ if is_terminal => Some(AuditKind::Terminal),
        _ if path.starts_with("pipe:") => writes.then_some(AuditKind::Pipe),
        _ if path.ends_with("/trace_marker") || path.starts_with("/memfd:") => None,
        _ if path.starts_with("/dev/") && !path.starts_with("/dev/shm/") => None,
        _ => path.starts_with('/').then_some(AuditKind::File),
    }
}

/// The functions that made a call, innermost first: `log_line <- update <- loop`. The library's own are left out.
fn place(stack: &[Frame]) -> Option<String> {
    let is_library = |frame: &&Frame| {
        ["libc.", "libc-", "libpthread", "ld-linux", "ld-musl"].iter().any(|it| frame.file.starts_with(it))
    };
    let own = stack.iter().skip_while(is_library).take(FUNCTIONS_MAX);
    let names: Vec<&str> = own.map(|frame| frame.name.as_str()).collect();
    (!names.is_empty()).then(|| names.join(" <- "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_decides_whether_its_use_is_a_finding() {
        let of = |path, writes| file_kind(path, writes);
        assert_eq!(of("/var/log/control.log", true), Some(AuditKind::File));
        assert_eq!(of("/dev/shm/state", false), Some(AuditKind::File));
        assert_eq!(of("/dev/pts/3", true), Some(AuditKind::Terminal));
        assert_eq!((of("pipe:[77]", true), of("pipe:[77]", false)), (Some(AuditKind::Pipe), None));
        for work in
            ["socket:[9]", "anon_inode:[eventfd]", "/dev/snd/pcmC0D0p", "/sys/kernel/tracing/trace_marker"]
        {
            assert_eq!(of(work, true), None, "{work}");
        }
    }

    #[test]
    fn a_sleep_until_a_moment_of_the_monotonic_clock_is_no_finding() {
        let host = HostRoot::at("/nonexistent");
        let of = |clock: u32, flags: u32| {
            judge(&host, 1, Sysno::clock_nanosleep as u32, flags << 16 | clock).map(|it| it.0)
        };
        assert_eq!(of(1, TIMER_ABSTIME), None);
        assert_eq!(of(1, 0), Some(AuditKind::RelativeSleep));
        assert_eq!(of(CLOCK_REALTIME, TIMER_ABSTIME), Some(AuditKind::SettableClock));
        assert_eq!(judge(&host, 1, Sysno::getpid as u32, 0), None);
        // A file that cannot be looked at accuses no one.
        assert_eq!(judge(&host, 1, Sysno::write as u32, 3), None);
    }

    #[test]
    fn a_place_begins_in_the_program() {
        let frame =
            |name: &str, file: &str| Frame { name: name.to_owned(), is_named: true, file: file.to_owned() };
        let stack = [frame("write", "libc.so.6"), frame("log_line", "control"), frame("update", "control")];
        assert_eq!(place(&stack).as_deref(), Some("log_line <- update"));
        assert_eq!(place(&stack[..1]), None);
    }

    #[test]
    fn every_audited_call_has_one_row_below_the_limit() {
        let numbers: BTreeSet<u32> = CALLS.iter().map(|(call, ..)| *call as u32).collect();
        assert_eq!(numbers.len(), CALLS.len());
        assert!(numbers.iter().all(|number| *number < AUDIT_CALLS));
    }
}
