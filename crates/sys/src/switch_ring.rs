//! When threads got a CPU and left it, which the kernel reports even to an ordinary user for his own threads: records
//! of context switches by `perf_event_open`.
//!
//! One ring for each CPU takes the records of all threads that are added. The event counts page faults from user
//! space, so that these are recorded as well; the records of switches come with any event that asks for them.

use crate::perf_counter::{EventAttributes, TYPE_SOFTWARE, open};
use crate::shared::SharedWords;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use whylate_core::CpuId;

const COUNT_SW_PAGE_FAULTS: u64 = 2;
const SAMPLE_TID_TIME_CPU: u64 = 1 << 1 | 1 << 2 | 1 << 7;
const FLAG_INHERIT: u64 = 1 << 1;
const FLAG_EXCLUDE_KERNEL: u64 = 1 << 5;
const FLAG_EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const FLAG_COMMAND: u64 = 1 << 9;
const FLAG_TASK: u64 = 1 << 13;
const FLAG_SAMPLE_ID_ALL: u64 = 1 << 18;
const FLAG_USE_CLOCK_ID: u64 = 1 << 25;
const FLAG_CONTEXT_SWITCH: u64 = 1 << 26;
const RECORD_LOST: u32 = 2;
const RECORD_COMMAND: u32 = 3;
const RECORD_EXIT: u32 = 4;
const RECORD_SAMPLE: u32 = 9;
const RECORD_SWITCH: u32 = 14;
const MISC_SWITCH_OUT: u16 = 1 << 13;
const MISC_SWITCH_OUT_PREEMPT: u16 = 1 << 14;
/// The words `data_head` and `data_tail` in the page before the records.
const HEAD: usize = 1_024 / 8;
const TAIL: usize = 1_032 / 8;
/// Thread, time and CPU: the last words of each record except those of losses.
const IDENTITY_WORDS: usize = 3;
/// Pages of records. With the page before them a ring takes what an ordinary user may lock for each CPU
/// (`kernel.perf_event_mlock_kb`).
const PAGES: usize = 128;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Switch {
    In,
    /// It left the CPU: because it fell asleep, or although it could have run on.
    Out {
        is_preempted: bool,
    },
    Fault,
    /// It has this name from now on.
    Named(String),
    Ended,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchRecord {
    pub process: u32,
    pub thread: u32,
    /// When, in nanoseconds of CLOCK_MONOTONIC.
    pub at_ns: u64,
    pub what: Switch,
}

/// The records of threads on one CPU.
#[derive(Debug)]
pub struct SwitchRing {
    cpu: CpuId,
    ring: Option<SharedWords>,
    page_words: usize,
    /// An event ends when its file is closed.
    events: Vec<File>,
}

impl SwitchRing {
    /// A ring without threads.
    pub fn new(cpu: CpuId) -> Self {
        Self { cpu, ring: None, page_words: rustix::param::page_size() / 8, events: Vec::new() }
    }

    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// Records what a thread does on this CPU; 0 is the calling one. With `inherits`, also what all threads and
    /// processes do that it starts from now on.
    ///
    /// # Errors
    /// EACCES or EPERM if `kernel.perf_event_paranoid` is above 2 or the thread is another user's, ESRCH if it has
    /// ended, ENODEV if the CPU is offline, EMFILE.
    pub fn add(&mut self, thread: u32, inherits: bool) -> io::Result<()> {
        let flags = FLAG_EXCLUDE_KERNEL
            | FLAG_EXCLUDE_HYPERVISOR
            | FLAG_COMMAND
            | FLAG_TASK
            | FLAG_SAMPLE_ID_ALL
            | FLAG_USE_CLOCK_ID
            | FLAG_CONTEXT_SWITCH;
        let attributes = EventAttributes {
            kind: TYPE_SOFTWARE,
            config: COUNT_SW_PAGE_FAULTS,
            sample_period: 1,
            sample_type: SAMPLE_TID_TIME_CPU,
            flags: flags | if inherits { FLAG_INHERIT } else { 0 },
            clock_id: libc::CLOCK_MONOTONIC,
            ..EventAttributes::default()
        };
        let event = open(attributes, thread as libc::pid_t, Some(self.cpu))?;
        match &self.ring {
            Some(_) => {
                let first = self.events[0].as_raw_fd();
                // SAFETY: the request takes a file descriptor as its argument and touches no memory.
                if unsafe { libc::ioctl(event.as_raw_fd(), SET_OUTPUT, first) } < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            None => {
                let file: OwnedFd = event.try_clone()?.into();
                self.ring = Some(SharedWords::of_event(file, self.page_words * (1 + PAGES))?);
            }
        }
        self.events.push(event);
        Ok(())
    }

    /// Passes on the records since the last call, the oldest first; returns how many found no room.
    pub fn read(&self, take: &mut dyn FnMut(SwitchRecord)) -> u64 {
        let Some(ring) = &self.ring else { return 0 };
        let words = ring.words();
        let head = words[HEAD].load(Acquire) / 8;
        let mut at = words[TAIL].load(Relaxed) / 8;
        let word = |at: u64| words[self.page_words + at as usize % (PAGES * self.page_words)].load(Relaxed);
        let mut lost = 0;
        while at < head {
            let header = word(at);
            let length = header >> 48 >> 3;
            if length == 0 {
                break;
            }
            let record: Vec<u64> = (at..at + length).map(word).collect();
            match header as u32 {
                RECORD_LOST => lost += record.get(2).copied().unwrap_or_default(),
                kind => parsed(kind, (header >> 32) as u16, &record).into_iter().for_each(&mut *take),
            }
            at += length;
        }
        words[TAIL].store(head * 8, Release);
        lost
    }
}

/// `PERF_EVENT_IOC_SET_OUTPUT`.
const SET_OUTPUT: libc::Ioctl = 0x2405;

/// Reads a record whose first word is its header.
fn parsed(kind: u32, misc: u16, record: &[u64]) -> Option<SwitchRecord> {
    let end = record.len().checked_sub(IDENTITY_WORDS).filter(|end| *end > 0)?;
    let what = match kind {
        RECORD_SAMPLE => Switch::Fault,
        RECORD_EXIT => Switch::Ended,
        RECORD_COMMAND => {
            let bytes: Vec<u8> = record.get(2..end)?.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            Switch::Named(String::from_utf8_lossy(name).into_owned())
        }
        RECORD_SWITCH if misc & MISC_SWITCH_OUT == 0 => Switch::In,
        RECORD_SWITCH => Switch::Out { is_preempted: misc & MISC_SWITCH_OUT_PREEMPT != 0 },
        _ => return None,
    };
    let [running, at_ns, _] = record[end..] else { return None };
    // Another thread of the process may give a thread its name.
    let who = if kind == RECORD_COMMAND { record[1] } else { running };
    Some(SwitchRecord { process: who as u32, thread: (who >> 32) as u32, at_ns, what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule;
    use std::time::Duration;

    #[test]
    fn records_are_read_by_kind() {
        let who = [7 | 8 << 32, 123, 1];
        let of = |kind, misc, body: &[u64]| {
            let record: Vec<u64> = [0].iter().chain(body).chain(&who).copied().collect();
            parsed(kind, misc, &record)
        };
        let expected = |what| Some(SwitchRecord { process: 7, thread: 8, at_ns: 123, what });
        assert_eq!(of(RECORD_SWITCH, 0, &[]), expected(Switch::In));
        assert_eq!(of(RECORD_SWITCH, 1 << 13, &[]), expected(Switch::Out { is_preempted: false }));
        assert_eq!(of(RECORD_SWITCH, 3 << 13, &[]), expected(Switch::Out { is_preempted: true }));
        assert_eq!(of(RECORD_SAMPLE, 2, &[]), expected(Switch::Fault));
        let name = u64::from_ne_bytes(*b"audio\0\0\0");
        let named = [7 | 9 << 32, name];
        let of_other = SwitchRecord { thread: 9, ..expected(Switch::Named("audio".to_owned())).unwrap() };
        assert_eq!(of(RECORD_COMMAND, 0, &named), Some(of_other), "its creator named it");
        assert_eq!(of(RECORD_EXIT, 0, &[0, 0, 0]), expected(Switch::Ended));
        assert_eq!(of(99, 0, &[0]), None);
        assert_eq!(parsed(RECORD_SWITCH, 0, &[0, 1]), None);
    }

    #[test]
    fn a_thread_that_sleeps_is_seen_to_leave_its_cpu_and_to_come_back() {
        let Some(cpu) = schedule::allowed_of_this_thread().ok().and_then(|cpus| cpus.iter().next()) else {
            return;
        };
        let mut ring = SwitchRing::new(cpu);
        match ring.add(0, true) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::ENOSYS)) => {
                return;
            }
            result => result.unwrap(),
        }
        let own = schedule::id_of_this_thread();
        let child = std::thread::spawn(move || {
            schedule::pin_this_thread(&std::iter::once(cpu).collect()).unwrap();
            std::thread::sleep(Duration::from_millis(2));
            schedule::id_of_this_thread()
        });
        let child = child.join().unwrap();
        let mut records = Vec::new();
        assert_eq!(ring.read(&mut |record| records.push(record)), 0);
        let of_child: Vec<&Switch> =
            records.iter().filter(|it| it.thread == child).map(|it| &it.what).collect();
        assert_ne!(own, child);
        let slept = of_child.iter().position(|it| **it == Switch::Out { is_preempted: false }).unwrap();
        assert!(of_child[slept..].contains(&&Switch::In), "{of_child:?}");
        assert!(of_child.contains(&&Switch::Ended), "{of_child:?}");
        assert!(records.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns));
    }
}
