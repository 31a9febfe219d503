//! Counts latencies from the kernel's events, as the BPF programs do in the kernel.
//!
//! In: scheduler and timer events in the order of time. Out: histograms per CPU and kind, each with the record of its
//! maximum. It touches no machine. A trace has neither the end of a switch nor the system call of a task: `switchoff` is
//! not counted, and `timerwakeupswitch` ends with the decision to run the task.

use super::step::{Step, What, Who};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use whylate_bpf::{HistogramsChange, HistogramsConfig, HistogramsSnapshot, TaskFilter, WakeupCounts};
use whylate_core::figure::PRIORITY_TOP;
use whylate_core::result::{CpuHistograms, HistogramKind, KernelHistogram, LatencyRecord};
use whylate_core::{CpuId, CpuSet};
use whylate_stats::Histogram;
use whylate_trace::segments::Armed;

/// Used for a name that is not in the trace.
const UNKNOWN: &str = "<...>";

/// A wake-up whose task does not run yet.
#[derive(Clone, Copy, Debug)]
struct Pending {
    waking_ns: u64,
    /// The programmed expiry of the timer that woke it.
    expires_ns: Option<u64>,
}

/// What is in progress on one CPU.
#[derive(Clone, Debug, Default)]
struct CpuState {
    expires_hard_ns: Option<u64>,
    /// With the thread in which the handler runs.
    expires_soft: Option<(u64, u32)>,
    running: Option<Who>,
    /// The timer that was cancelled last: some kernels report that for one that expires, just before.
    cancelled: Option<(u64, Armed)>,
}

#[derive(Clone, Debug, Default)]
struct Series {
    histogram: Histogram,
    record: Option<LatencyRecord>,
}

#[derive(Debug)]
pub(super) struct Counter {
    cpus: CpuSet,
    priorities: (i32, i32),
    task: Option<TaskFilter>,
    /// Threads of the process that the filter names.
    threads: BTreeSet<u32>,
    enabled: BTreeSet<(CpuId, HistogramKind)>,
    series: BTreeMap<(CpuId, HistogramKind), Series>,
    timers: HashMap<u64, Armed>,
    states: HashMap<CpuId, CpuState>,
    pending: HashMap<u32, Pending>,
    counts: WakeupCounts,
}

impl Counter {
    pub(super) fn new(config: &HistogramsConfig) -> Self {
        let mut counter = Self {
            cpus: config.cpus.clone(),
            priorities: kernel_priorities(config),
            task: config.task.clone(),
            threads: BTreeSet::new(),
            enabled: BTreeSet::new(),
            series: BTreeMap::new(),
            timers: HashMap::new(),
            states: HashMap::new(),
            pending: HashMap::new(),
            counts: WakeupCounts::default(),
        };
        counter.change(HistogramsChange::Enable, &config.kinds, &config.cpus);
        counter
    }

    /// The threads that the process of the filter has had since the events that were counted last.
    pub(super) fn set_threads(&mut self, threads: BTreeSet<u32>) {
        self.threads = threads;
    }

    /// `switchoff` stays off: a trace has no event for the end of a switch.
    pub(super) fn change(&mut self, change: HistogramsChange, kinds: &[HistogramKind], cpus: &CpuSet) {
        let is_meant = |cpu: CpuId, kind: HistogramKind| kinds.contains(&kind) && cpus.contains(cpu);
        match change {
            HistogramsChange::Enable => {
                let possible = kinds.iter().filter(|kind| **kind != HistogramKind::SwitchOff);
                let cpus = self.cpus.intersection(cpus);
                self.enabled.extend(possible.flat_map(|kind| cpus.iter().map(|cpu| (cpu, *kind))));
            }
            HistogramsChange::Disable => self.enabled.retain(|(cpu, kind)| !is_meant(*cpu, *kind)),
            HistogramsChange::Reset => self.series.retain(|(cpu, kind), _| !is_meant(*cpu, *kind)),
        }
    }

    pub(super) fn enabled(&self) -> &BTreeSet<(CpuId, HistogramKind)> {
        &self.enabled
    }

    pub(super) fn take(&mut self, step: &Step) {
        match &step.what {
            What::Armed { timer, expires_ns } => {
                self.timers.insert(*timer, Armed { expires_ns: *expires_ns, at_ns: step.at_ns });
            }
            What::Disarmed { timer } => {
                let cancelled = self.timers.remove(timer).map(|armed| (*timer, armed));
                self.states.entry(step.cpu).or_default().cancelled = cancelled;
            }
            What::Expired { timer, now_ns } => self.expired(step, *timer, *now_ns),
            What::Handled => {
                let state = self.states.entry(step.cpu).or_default();
                // A hard interrupt may interrupt a softirq, also for a timer that is not known.
                if step.in_softirq {
                    state.expires_soft = None;
                } else {
                    state.expires_hard_ns = None;
                }
            }
            What::Waking(task) => self.waking(step, task),
            What::Switch { previous, next } => self.switch(step, previous, next),
            What::Lost(events) => self.lost(*events),
        }
    }

    fn expired(&mut self, step: &Step, timer: u64, now_ns: u64) {
        let state = self.states.entry(step.cpu).or_default();
        let cancelled = state.cancelled.take().filter(|(of, _)| *of == timer).map(|(_, armed)| armed);
        let Some(armed) = self.timers.remove(&timer).or(cancelled) else { return };
        let expires_ns = armed.due_ns(now_ns, step.at_ns);
        if step.in_softirq {
            state.expires_soft = Some((expires_ns, step.pid));
        } else {
            state.expires_hard_ns = Some(expires_ns);
        }
    }

    fn counts(&self, task: &Who) -> bool {
        let (min, max) = self.priorities;
        let is_wanted = match &self.task {
            None => true,
            Some(TaskFilter::Pid(pid)) => *pid == task.pid || self.threads.contains(&task.pid),
            // The kernel keeps 15 bytes of a name.
            Some(TaskFilter::Command(command)) => {
                command.as_bytes()[..command.len().min(15)] == *task.command.as_bytes()
            }
        };
        (min..=max).contains(&task.priority) && is_wanted
    }

    fn waking(&mut self, step: &Step, task: &Who) {
        if !self.counts(task) {
            return;
        }
        let state = self.states.entry(step.cpu).or_default();
        let soft_ns =
            state.expires_soft.filter(|(_, thread)| *thread == step.pid).map(|(expires, _)| expires);
        // Timers may expire early by their slack: no latency.
        let expires_ns = state.expires_hard_ns.or(soft_ns).map(|expires_ns| expires_ns.min(step.at_ns));
        let running = state.running.clone().filter(|running| running.pid == step.pid);
        self.counts.wakeups += 1;
        let waking = Pending { waking_ns: step.at_ns, expires_ns };
        if self.pending.insert(task.pid, waking).is_some() {
            self.counts.without_switch += 1;
        }
        if let Some(expires_ns) = expires_ns {
            let unknown = || Who { pid: step.pid, priority: 120, command: UNKNOWN.into() };
            let previous = running.unwrap_or_else(unknown);
            let parts = Parts { expires_ns: Some(expires_ns), waking_ns: None, end_ns: step.at_ns };
            self.count(step.cpu, HistogramKind::MissedTimerOffsets, &parts, task, &previous);
        }
    }

    fn switch(&mut self, step: &Step, previous: &Who, next: &Who) {
        self.states.entry(step.cpu).or_default().running = Some(next.clone());
        // A wake-up while the task was still running has no latency.
        if self.pending.remove(&previous.pid).is_some() {
            self.counts.without_switch += 1;
        }
        let Some(pending) = self.pending.remove(&next.pid) else { return };
        let [first, .., last] = HistogramKind::ALL;
        if self.enabled.range((step.cpu, first)..=(step.cpu, last)).next().is_none() {
            self.counts.elsewhere += 1;
            return;
        }
        let wakeup = Parts { expires_ns: None, waking_ns: Some(pending.waking_ns), end_ns: step.at_ns };
        // It waited for a task that it could not preempt. The idle task has the priority of nice 0.
        if previous.pid != 0 && previous.priority <= next.priority {
            return self.count(step.cpu, HistogramKind::SharedPriority, &wakeup, next, previous);
        }
        self.count(step.cpu, HistogramKind::Wakeup, &wakeup, next, previous);
        if pending.expires_ns.is_some() {
            let whole = Parts { expires_ns: pending.expires_ns, ..wakeup };
            for kind in [HistogramKind::TimerAndWakeup, HistogramKind::TimerWakeupSwitch] {
                self.count(step.cpu, kind, &whole, next, previous);
            }
        }
    }

    fn count(&mut self, cpu: CpuId, kind: HistogramKind, parts: &Parts, task: &Who, previous: &Who) {
        if !self.enabled.contains(&(cpu, kind)) {
            return;
        }
        let latency_ns = parts.latency_ns();
        let series = self.series.entry((cpu, kind)).or_default();
        series.histogram.record(latency_ns);
        if series.record.as_ref().is_none_or(|record| record.latency_ns < latency_ns) {
            series.record = Some(parts.record(task, previous));
        }
    }

    /// A dropped event may have ended a wake-up or armed a timer: everything that is pending is discarded.
    fn lost(&mut self, events: Option<u64>) {
        self.counts.lost += events.unwrap_or(1).max(1) + self.pending.len() as u64;
        self.pending.clear();
        self.timers.clear();
        for state in self.states.values_mut() {
            *state = CpuState::default();
        }
    }

    pub(super) fn snapshot(&self) -> HistogramsSnapshot {
        let of_cpu = |cpu: CpuId| {
            let kinds = HistogramKind::ALL.into_iter().filter(|kind| self.enabled.contains(&(cpu, *kind)));
            CpuHistograms { cpu, histograms: kinds.map(|kind| self.histogram(cpu, kind)).collect() }
        };
        HistogramsSnapshot { cpus: self.cpus.iter().map(of_cpu).collect(), counts: self.counts }
    }

    fn histogram(&self, cpu: CpuId, kind: HistogramKind) -> KernelHistogram {
        let empty = Series::default();
        let series = self.series.get(&(cpu, kind)).unwrap_or(&empty);
        KernelHistogram {
            kind,
            samples: series.histogram.count(),
            quantiles: series.histogram.quantiles(),
            max_record: series.record.clone(),
            histogram: series.histogram.buckets().collect(),
        }
    }
}

/// The start and the end of a latency.
#[derive(Clone, Copy, Debug)]
struct Parts {
    /// Programmed expiry, where the latency begins with it.
    expires_ns: Option<u64>,
    /// Wake-up, where the latency contains one.
    waking_ns: Option<u64>,
    end_ns: u64,
}

impl Parts {
    fn latency_ns(&self) -> u64 {
        let start_ns = self.expires_ns.or(self.waking_ns).unwrap_or(self.end_ns);
        self.end_ns.saturating_sub(start_ns)
    }

    fn record(&self, task: &Who, previous: &Who) -> LatencyRecord {
        let waking_ns = self.waking_ns.unwrap_or(self.end_ns);
        LatencyRecord {
            pid: task.pid,
            priority: PRIORITY_TOP - task.priority,
            latency_ns: self.latency_ns(),
            timer_offset_ns: self.expires_ns.map(|expires_ns| waking_ns.saturating_sub(expires_ns)),
            wakeup_ns: self.waking_ns.map(|waking_ns| self.end_ns.saturating_sub(waking_ns)),
            switch_ns: None,
            command: task.command.to_string(),
            previous_pid: previous.pid,
            previous_priority: PRIORITY_TOP - previous.priority,
            previous_command: previous.command.to_string(),
            at_ns: self.end_ns,
            syscall: None,
        }
    }
}

/// The lowest and the highest priority that are counted, in the kernel's numbers.
pub(super) fn kernel_priorities(config: &HistogramsConfig) -> (i32, i32) {
    let kernel = |priority: i32| PRIORITY_TOP.saturating_sub(priority);
    (kernel(config.priority_max), kernel(config.priority_min))
}

#[cfg(test)]
#[path = "counter_tests.rs"]
mod tests;
