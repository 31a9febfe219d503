//! Whether the measuring threads could measure at all: a thread that never gets its CPU, a CPU that goes offline, a
//! process that is stopped, a machine that is suspended.
//!
//! A starved thread is the worst possible latency: the time that it has waited counts as a sample. In the other cases the
//! measured values say nothing about the CPU, and do not count.
//!
//! The code here neither touches the measuring threads while they measure nor takes one of their locks: the files of their
//! process in /proc are read only once they are overdue.

use crate::error::ProbeError;
use crate::measure::Batch;
use crate::session::{Session, Unfinished};
use std::collections::BTreeMap;
use std::time::Duration;
use whylate_core::figure::{nanoseconds, scheduled};
use whylate_core::quantity::{GAPS, LOST_NS, Quantities};
use whylate_core::record::{Interval, SourceRecord, SpikeCauses, SpikeRecord};
use whylate_core::result::{Cause, CauseKind};
use whylate_core::{CpuId, CpuSet, Nanos, Warning, WarningCode};
use whylate_host::HostRoot;
use whylate_host::threads::{self, Stat};
use whylate_stats::buckets;
use whylate_sys::{clock, process};

/// How overdue a thread may be before its state is read.
const OVERDUE_NS: u64 = 1_000_000_000;
/// A thread that wants to run and has used no processor time for this long is starved.
const LOOK_TWICE: Duration = Duration::from_millis(100);
/// A pause of this process of this length is not due to scheduling.
const STANDSTILL_NS: u64 = 1_000_000_000;
/// The number of this policy in sched(7), and the priority of its threads as tools print it.
const SCHED_DEADLINE: u64 = 6;
const PRIORITY_DEADLINE: i32 = 100;
const PRIORITY_NICE_0: i32 = -21;
/// How sure it is that the thread with the highest priority kept the CPU: if it was seen to run, or only to be runnable. What
/// happened before the end of the measurement was not seen.
const SEEN_RUNNING: f64 = 0.8;
const SEEN_RUNNABLE: f64 = 0.5;
const ONLINE: &str = "/sys/devices/system/cpu/online";
/// Shorter differences are not suspensions: the clocks are read one after the other.
const SUSPENDED_MIN_NS: u64 = 1_000_000;

/// A thread that wants to run, and does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Starved {
    /// The lane that its samples go to.
    pub(crate) lane: usize,
    pub(crate) cpu: CpuId,
    pub(crate) waited: Nanos,
    /// Its priority, as tools print it.
    priority: i32,
    /// The thread that has its CPU, if it is known.
    by: Option<Occupant>,
}

/// The runnable real-time thread of the highest priority on a CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Occupant {
    tid: u32,
    name: String,
    /// As tools print it.
    priority: i32,
    /// Whether it belongs to another whylate.
    is_whylate: bool,
    /// How long it had run since its start, and when this was read; absent if the kernel does not count it.
    ran: Option<(u64, u64)>,
    /// How long it ran between two looks, and the time between them.
    ran_between: Option<(u64, u64)>,
}

/// What to check while threads measure.
pub(crate) struct Condition<'h> {
    host: &'h HostRoot,
    cpus: CpuSet,
    suspended_ns: u64,
    looked_ns: u64,
    /// A pause of this process: start and end.
    pause: Option<(u64, u64)>,
    /// Whether starved threads were looked for.
    looked_overdue: bool,
}

impl<'h> Condition<'h> {
    /// Before the threads measure.
    pub(crate) fn new(host: &'h HostRoot, cpus: &CpuSet) -> Self {
        // In some containers the list is not that of the machine; a CPU cannot leave such a list.
        let online = host.read_cpus(ONLINE).ok().flatten().unwrap_or_default();
        Self {
            host,
            cpus: cpus.intersection(&online),
            suspended_ns: clock::suspended().0,
            looked_ns: clock::now().0,
            pause: None,
            looked_overdue: false,
        }
    }

    /// Checks everything that makes a measurement void.
    pub(crate) fn check(&mut self, session: &Session<'_>) -> Result<(), ProbeError> {
        let void = |reason: String| Err(ProbeError::Void(reason));
        if process::is_stopped(session.process()) {
            return void("the measuring process was stopped (SIGSTOP, or a debugger)".to_owned());
        }
        if let Ok(Some(online)) = self.host.read_cpus(ONLINE)
            && let Some(cpu) = self.cpus.difference(&online).first()
        {
            return void(format!("CPU {cpu} went offline, and its thread was moved to another CPU"));
        }
        let suspended = clock::suspended().0.saturating_sub(self.suspended_ns);
        if suspended > SUSPENDED_MIN_NS {
            return void(format!("the machine was suspended for {}", nanoseconds(suspended)));
        }
        let now = clock::now().0;
        let looked = std::mem::replace(&mut self.looked_ns, now);
        if now - looked > STANDSTILL_NS {
            self.pause = Some((looked, now));
        }
        // The threads wake up at about the same time, so one of the next checks finds their samples.
        let Some((from, to)) = self.pause else { return Ok(()) };
        if session.all_late_within(from, to) {
            let length = nanoseconds(to - from);
            return void(format!(
                "for {length}, the measuring threads and whylate did not run: they were stopped or frozen \
                 (SIGSTOP, Ctrl-Z, a cgroup's freezer), or the whole machine stood still"
            ));
        }
        if now - to > STANDSTILL_NS {
            self.pause = None;
        }
        Ok(())
    }

    /// Threads that should have ended and cannot run; checks once, a second after `end_ns`.
    pub(crate) fn starved(&mut self, session: &Session<'_>, end_ns: u64) -> Vec<Starved> {
        if self.looked_overdue || clock::now().0 < end_ns.saturating_add(OVERDUE_NS) {
            return Vec::new();
        }
        self.looked_overdue = true;
        starved(self.host, session)
    }
}

/// Threads that want to run, and do not.
pub(crate) fn starved(host: &HostRoot, session: &Session<'_>) -> Vec<Starved> {
    let (unfinished, own) = (session.unfinished(), session.process());
    let used = |tid: u32| processor_time(host, own, tid);
    let before: Vec<Option<u64>> = unfinished.iter().map(|thread| used(thread.tid)).collect();
    let first = if unfinished.is_empty() { BTreeMap::new() } else { occupants(host, own) };
    std::thread::sleep(LOOK_TWICE);
    let now = clock::now().0;
    let still = unfinished.into_iter().zip(before).filter(|(thread, before)| {
        before.is_some() && *before == used(thread.tid) && is_runnable(host, own, thread.tid)
    });
    let still: Vec<Unfinished> = still.map(|(thread, _)| thread).collect();
    let second = if still.is_empty() { BTreeMap::new() } else { occupants(host, own) };
    let starved = |thread: Unfinished| {
        let text = threads::stat(host, own, thread.tid).unwrap_or_default();
        let priority = Stat::parse(&text).map_or(PRIORITY_NICE_0, |stat| priority(&stat));
        // A thread of a lower priority waits as well.
        let by = second.get(&thread.cpu).filter(|by| by.priority >= priority);
        Starved {
            lane: thread.lane,
            cpu: thread.cpu,
            waited: Nanos(now.saturating_sub(thread.ran_ns)),
            priority,
            by: by.map(|by| by.since(first.get(&thread.cpu))),
        }
    };
    still.into_iter().map(starved).collect()
}

/// The error of starved threads, with the thread that has their CPU.
pub(crate) fn error(starved: &[Starved]) -> Option<ProbeError> {
    let worst = starved.iter().max_by_key(|thread| thread.waited)?;
    let by = worst.by.as_ref().map(|who| format!("; {} kept the CPU", who.describe())).unwrap_or_default();
    Some(ProbeError::Starved { cpu: worst.cpu, waited: nanoseconds(worst.waited.0), by })
}

impl Starved {
    /// The thread that kept the CPU as the cause of the wait; `None` if no such thread is known.
    fn cause(&self) -> Option<Cause> {
        let by = self.by.as_ref()?;
        // It has taken no more than it ran in all.
        let share = by.ran.map_or(1.0, |(ran_ns, _)| ran_ns as f64 / self.waited.0.max(1) as f64);
        let seen = by.ran_between.filter(|(ran_ns, of_ns)| *ran_ns >= of_ns / 10 * 9);
        let ran = seen.map(|(ran_ns, of_ns)| {
            format!(" and ran for {} of the last {}", nanoseconds(ran_ns), nanoseconds(of_ns))
        });
        let evidence = format!(
            "at the end, {} was runnable on CPU {}{}; the measuring thread ({}) was runnable and \
             did not run",
            by.describe(),
            self.cpu,
            ran.unwrap_or_default(),
            scheduled(self.priority)
        );
        Some(Cause {
            actor: Some(by.name.clone()),
            pid: Some(by.tid),
            share: Some(share.min(1.0)),
            confidence: Some(if seen.is_some() { SEEN_RUNNING } else { SEEN_RUNNABLE }),
            evidence: vec![evidence],
            ..Cause::new(CauseKind::Thread)
        })
    }
}

impl Occupant {
    /// The same thread with what it ran since an earlier look.
    fn since(&self, earlier: Option<&Self>) -> Self {
        let before = earlier.filter(|earlier| earlier.tid == self.tid).and_then(|earlier| earlier.ran);
        let between = |((ran_ns, at_ns), (before_ns, from_ns)): ((u64, u64), (u64, u64))| {
            (ran_ns.saturating_sub(before_ns), at_ns.saturating_sub(from_ns))
        };
        Self { ran_between: self.ran.zip(before).map(between), ..self.clone() }
    }

    fn describe(&self) -> String {
        let what = if self.is_whylate { "another whylate, " } else { "" };
        format!("{what}{} (pid {}, {})", self.name, self.tid, scheduled(self.priority))
    }
}

/// Counts the unfinished latencies of starved threads as samples, with their length so far, and the threads that kept their
/// CPUs as causes.
pub(crate) fn add_open_latencies(batch: &mut Batch, session: &Session<'_>, starved: &[Starved]) {
    for thread in starved {
        let Some((cpu, series)) = session.lane(thread.lane) else { continue };
        let is_own = |interval: &&mut Interval| interval.cpu == cpu && interval.series == series;
        if let Some(interval) = batch.intervals.iter_mut().find(is_own) {
            let (at_ns, latency_ns, sample) = (batch.end_ns, thread.waited.0, interval.samples);
            add_sample(interval, latency_ns);
            batch.spikes.push(SpikeRecord {
                at_ns,
                latency_ns,
                sample,
                ..SpikeRecord::of(cpu, series.clone())
            });
            let Some(cause) = thread.cause() else { continue };
            let total_ns = (cause.share.unwrap_or_default() * latency_ns as f64) as u64;
            let source = SourceRecord {
                cpu,
                kind: cause.kind,
                actor: cause.actor.clone(),
                function: None,
                gaps: 1,
                total_ns,
                max_ns: total_ns,
            };
            batch.sources.push((series.clone(), source));
            batch.causes.push(SpikeCauses { cpu, series, at_ns, latency_ns, causes: vec![cause], lost: 0 });
        }
    }
}

fn add_sample(interval: &mut Interval, nanos: u64) {
    interval.samples += 1;
    interval.sum_ns = interval.sum_ns.saturating_add(nanos);
    interval.min_ns = Some(interval.min_ns.map_or(nanos, |least| least.min(nanos)));
    interval.max_ns = Some(interval.max_ns.map_or(nanos, |most| most.max(nanos)));
    if interval.quantities.get(GAPS).is_some() {
        interval.quantities.merge(&Quantities::default().with(GAPS, 1).with(LOST_NS, nanos));
    }
    let edge = buckets::lower_edge(buckets::index_of(nanos));
    match interval.histogram.binary_search_by_key(&edge, |(lower, _)| *lower) {
        Ok(place) => interval.histogram[place].1 += 1,
        Err(place) => interval.histogram.insert(place, (edge, 1)),
    }
}

/// utime and stime, in clock ticks.
fn processor_time(host: &HostRoot, pid: u32, tid: u32) -> Option<u64> {
    let text = threads::stat(host, pid, tid)?;
    let stat = Stat::parse(&text)?;
    Some(stat.number(14)? + stat.number(15)?)
}

fn is_runnable(host: &HostRoot, pid: u32, tid: u32) -> bool {
    threads::stat(host, pid, tid)
        .is_some_and(|text| Stat::parse(&text).is_some_and(|stat| stat.is_runnable()))
}

/// The priority of a thread, as tools print it: above 0 for real-time threads.
fn priority(stat: &Stat<'_>) -> i32 {
    let number = |field| stat.field(field)?.parse::<i32>().ok();
    match (stat.number(41), number(40)) {
        (Some(SCHED_DEADLINE), _) => PRIORITY_DEADLINE,
        (_, Some(priority)) if priority > 0 => priority,
        _ => PRIORITY_NICE_0 - number(19).unwrap_or(0),
    }
}

/// The runnable real-time thread of the highest priority on each CPU, without those of process `own`.
fn occupants(host: &HostRoot, own: u32) -> BTreeMap<CpuId, Occupant> {
    let mut found: BTreeMap<CpuId, (u32, Occupant)> = BTreeMap::new();
    let pids = host.list_numbered("/proc", "").unwrap_or_default();
    for pid in pids.into_iter().filter(|pid| *pid != own) {
        for tid in host.list_numbered(&format!("/proc/{pid}/task"), "").unwrap_or_default() {
            let Some(text) = threads::stat(host, pid, tid) else { continue };
            let Some(stat) = Stat::parse(&text) else { continue };
            let cpu = stat.number(39).and_then(|cpu| u32::try_from(cpu).ok()).map(CpuId);
            let (priority, name) = (priority(&stat), stat.name.to_owned());
            let Some(cpu) = cpu.filter(|_| stat.is_runnable() && priority > 0) else { continue };
            if found.get(&cpu).is_none_or(|(_, highest)| highest.priority < priority) {
                found.insert(cpu, (pid, Occupant { tid, name, priority, ..Occupant::default() }));
            }
        }
    }
    let whole = |(cpu, (pid, it)): (CpuId, (u32, Occupant))| {
        let ran = run_ns(host, pid, it.tid).map(|ran_ns| (ran_ns, clock::now().0));
        (cpu, Occupant { is_whylate: whylate_of(host, pid).is_some(), ran, ..it })
    };
    found.into_iter().map(whole).collect()
}

/// How long a thread has run since its start.
fn run_ns(host: &HostRoot, pid: u32, tid: u32) -> Option<u64> {
    let text = host.read(&format!("/proc/{pid}/task/{tid}/schedstat")).ok()??;
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// The measured CPUs of a measuring process of whylate.
fn whylate_of(host: &HostRoot, pid: u32) -> Option<CpuSet> {
    let text = host.read(&format!("/proc/{pid}/cmdline")).ok()??;
    let mut words = text.split('\0').skip(1);
    let is_probe = words.next() == Some("internal-probe");
    let spec: serde_json::Value = serde_json::from_str(words.next().filter(|_| is_probe)?).ok()?;
    let is_ours = words.next() == Some(std::process::id().to_string().as_str());
    serde_json::from_value(spec.get("cpus")?.clone()).ok().filter(|_| !is_ours)
}

/// A warning if another whylate measures on one of `cpus`.
pub fn other_whylate(host: &HostRoot, cpus: &CpuSet) -> Option<Warning> {
    let pids = host.list_numbered("/proc", "").ok()?;
    let (pid, shared) = pids.into_iter().find_map(|pid| {
        let shared = whylate_of(host, pid)?.intersection(cpus);
        (!shared.is_empty()).then_some((pid, shared))
    })?;
    let text = format!(
        "another whylate (pid {pid}) also measures CPU {shared}: their measuring threads delay each other"
    );
    Some(Warning::with_fix(
        WarningCode::OtherWhylate,
        text,
        "wait until the other whylate has ended, or measure other CPUs",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A thread that is a process of its own.
    fn write(root: &std::path::Path, tid: u32, name: &str, state: &str, priority: u32, policy: u32) {
        let folder = root.join(format!("proc/{tid}/task/{tid}"));
        fs::create_dir_all(&folder).unwrap();
        let before = "0 ".repeat(15) + "5 " + &"0 ".repeat(19);
        let stat = format!("{tid} ({name}) {state} {before}1 {priority} {policy} 0 0\n");
        fs::write(folder.join("stat"), stat).unwrap();
        fs::write(folder.join("schedstat"), "3000000000 12 7\n").unwrap();
        fs::write(root.join(format!("proc/{tid}/cmdline")), name).unwrap();
    }

    #[test]
    fn the_runnable_thread_of_the_highest_priority_has_the_cpu() {
        let folder = tempfile::tempdir().unwrap();
        for (tid, name, state, priority, policy) in [
            (7, "sleeper", "S", 99, 1),
            (8, "thief", "R", 98, 1),
            (9, "waiter", "R", 50, 1),
            (10, "make", "R", 0, 0),
            (11, "own", "R", 99, 1),
        ] {
            write(folder.path(), tid, name, state, priority, policy);
        }
        let host = HostRoot::at(folder.path());
        let found = |own| occupants(&host, own).remove(&CpuId(1)).map(|it| (it.name, it.priority));
        assert_eq!(found(11), Some(("thief".to_owned(), 98)));
        write(folder.path(), 12, "budget", "R", 0, 6);
        assert_eq!(found(11), Some(("budget".to_owned(), PRIORITY_DEADLINE)));
        let text = threads::stat(&host, 10, 10).unwrap();
        assert_eq!(priority(&Stat::parse(&text).unwrap()), PRIORITY_NICE_0 - 5);
    }

    #[test]
    fn the_thread_that_kept_the_cpu_is_the_cause_of_the_wait() {
        let thief =
            |ran| Occupant { tid: 8, name: "thief".to_owned(), priority: 98, ran, ..Occupant::default() };
        let starved = |by| Starved { lane: 0, cpu: CpuId(1), waited: Nanos(4_000_000_000), priority: 80, by };
        let looked_twice = thief(Some((3_000_000_000, 200_000_000)));
        let looked_twice = looked_twice.since(Some(&thief(Some((2_900_000_000, 100_000_000)))));
        assert_eq!(looked_twice.ran_between, Some((100_000_000, 100_000_000)));
        let cause = starved(Some(looked_twice)).cause().unwrap();
        assert_eq!((cause.kind, cause.actor.as_deref()), (CauseKind::Thread, Some("thief")));
        assert_eq!(
            (cause.pid, cause.share, cause.confidence),
            (Some(8), Some(0.75), Some(SEEN_RUNNING)),
            "it ran for 3 s of the 4 s at most"
        );
        let only_runnable = starved(Some(thief(None))).cause().unwrap();
        assert_eq!((only_runnable.share, only_runnable.confidence), (Some(1.0), Some(SEEN_RUNNABLE)));
        assert_eq!(starved(None).cause(), None);
    }
}
