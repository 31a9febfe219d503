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
use crate::session::Session;
use std::time::Duration;
use whylate_core::figure::nanoseconds;
use whylate_core::quantity::{GAPS, LOST_NS, Quantities};
use whylate_core::record::{Interval, SpikeRecord};
use whylate_core::{CpuId, CpuSet, Nanos, Warning, WarningCode};
use whylate_host::HostRoot;
use whylate_host::threads::Stat;
use whylate_stats::buckets;
use whylate_sys::{clock, process};

/// How overdue a thread may be before its state is read.
const OVERDUE_NS: u64 = 1_000_000_000;
/// A thread that wants to run and has used no processor time for this long is starved.
const LOOK_TWICE: Duration = Duration::from_millis(100);
/// A pause of this process of this length is not due to scheduling.
const STANDSTILL_NS: u64 = 1_000_000_000;
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

    /// As [`error`].
    pub(crate) fn error(&self, session: &Session<'_>, starved: &[Starved]) -> Option<ProbeError> {
        error(self.host, session, starved)
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
    let unfinished = session.unfinished();
    let used = |tid: u32| processor_time(host, session.process(), tid);
    let before: Vec<Option<u64>> = unfinished.iter().map(|thread| used(thread.tid)).collect();
    std::thread::sleep(LOOK_TWICE);
    let now = clock::now().0;
    let still = unfinished.into_iter().zip(before).filter(|(thread, before)| {
        before.is_some() && *before == used(thread.tid) && is_runnable(host, session.process(), thread.tid)
    });
    still
        .map(|(thread, _)| Starved {
            lane: thread.lane,
            cpu: thread.cpu,
            waited: Nanos(now.saturating_sub(thread.ran_ns)),
        })
        .collect()
}

/// The error of starved threads, with the thread that has their CPU.
pub(crate) fn error(host: &HostRoot, session: &Session<'_>, starved: &[Starved]) -> Option<ProbeError> {
    let worst = starved.iter().max_by_key(|thread| thread.waited)?;
    let by = occupant(host, worst.cpu, session.process());
    let by = by.map(|who| format!("; {who} kept the CPU")).unwrap_or_default();
    Some(ProbeError::Starved { cpu: worst.cpu, waited: nanoseconds(worst.waited.0), by })
}

/// Counts the unfinished latencies of starved threads as samples, with their length so far.
pub(crate) fn add_open_latencies(batch: &mut Batch, session: &Session<'_>, starved: &[Starved]) {
    for thread in starved {
        let Some((cpu, series)) = session.lane(thread.lane) else { continue };
        let is_own = |interval: &&mut Interval| interval.cpu == cpu && interval.series == series;
        if let Some(interval) = batch.intervals.iter_mut().find(is_own) {
            let (at_ns, latency_ns, sample) = (batch.end_ns, thread.waited.0, interval.samples);
            add_sample(interval, latency_ns);
            batch.spikes.push(SpikeRecord { at_ns, latency_ns, sample, ..SpikeRecord::of(cpu, series) });
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

fn stat_of(host: &HostRoot, pid: u32, tid: u32) -> Option<String> {
    host.read(&format!("/proc/{pid}/task/{tid}/stat")).ok()?
}

/// utime and stime, in clock ticks.
fn processor_time(host: &HostRoot, pid: u32, tid: u32) -> Option<u64> {
    let text = stat_of(host, pid, tid)?;
    let stat = Stat::parse(&text)?;
    Some(stat.number(14)? + stat.number(15)?)
}

fn is_runnable(host: &HostRoot, pid: u32, tid: u32) -> bool {
    stat_of(host, pid, tid)
        .is_some_and(|text| Stat::parse(&text).is_some_and(|stat| stat.field(3) == Some("R")))
}

/// Describes the runnable real-time thread of the highest priority on a CPU, without those of process `own`.
fn occupant(host: &HostRoot, cpu: CpuId, own: u32) -> Option<String> {
    let mut found: Option<(u64, String)> = None;
    for pid in host.list_numbered("/proc", "").ok()?.into_iter().filter(|pid| *pid != own) {
        for tid in host.list_numbered(&format!("/proc/{pid}/task"), "").unwrap_or_default() {
            let Some(text) = stat_of(host, pid, tid) else { continue };
            let Some(stat) = Stat::parse(&text) else { continue };
            let (on, priority) = (stat.number(39), stat.number(40).unwrap_or(0));
            let runs_there = stat.field(3) == Some("R") && on == Some(u64::from(cpu.0)) && priority > 0;
            if runs_there && found.as_ref().is_none_or(|(highest, _)| *highest < priority) {
                let what = if whylate_of(host, pid).is_some() { "another whylate, " } else { "" };
                found = Some((priority, format!("{what}{} (pid {tid}, priority {priority})", stat.name)));
            }
        }
    }
    found.map(|(_, text)| text)
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
pub(crate) fn other_whylate(host: &HostRoot, cpus: &CpuSet) -> Option<Warning> {
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
