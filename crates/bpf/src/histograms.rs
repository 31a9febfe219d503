//! Latency histograms that BPF programs count: started, changed and read.

use crate::causes::FUNCTION_RUNS;
use crate::error::BpfError;
use crate::events::{Event, Sizes};
use crate::layout::{CPUS_MAX, Command, Config, KINDS_STRIDE, RawCpuState, RawHistogram, Record};
use crate::object::{Object, WHYLATE, possible_cpus};
use crate::parts::{Parts, SwitchEnd};
use crate::settings::{HistogramsChange, HistogramsConfig, TaskFilter};
use crate::snapshot::{HistogramsSnapshot, ProgramCost, WakeupCounts};
use crate::watching::{self, Watching};
use std::collections::{BTreeMap, BTreeSet};
use syscalls::Sysno;
use whylate_core::record::Interval;
use whylate_core::result::{CpuHistograms, HistogramKind, KernelHistogram, LatencyRecord};
use whylate_core::{CpuId, CpuSet};
use whylate_stats::Histogram;
use whylate_stats::buckets::{BUCKETS, lower_edge};
use zerocopy::{FromZeros as _, transmute, transmute_ref};

/// At most this many times a histogram that changes while it is read is read again.
const READS_MAX: usize = 8;

type CpuStateBytes = [u8; size_of::<RawCpuState>()];

/// Running histograms. They end when this is dropped.
pub struct Histograms {
    object: Object,
    cpus: CpuSet,
    config: Box<Config>,
    enabled: BTreeSet<(CpuId, HistogramKind)>,
    unavailable: Vec<(HistogramKind, String)>,
    parts: Parts,
    with_causes: bool,
    possible_cpus: usize,
    /// What was counted before the last reset.
    baselines: BTreeMap<(CpuId, HistogramKind), Box<RawHistogram>>,
}

impl Histograms {
    /// Starts the histograms.
    ///
    /// # Errors
    /// When the kernel refuses programs, has no type information, lacks the events of the scheduler, or nothing is
    /// left to measure.
    pub fn start(config: &HistogramsConfig) -> Result<Self, BpfError> {
        Self::start_watching(config, None)
    }

    /// As [`Self::start`]; with `watching`, the programs for causes have their maps, and there may be no histogram.
    pub(crate) fn start_watching(
        config: &HistogramsConfig,
        watching: Option<&Watching>,
    ) -> Result<Self, BpfError> {
        let possible_cpus = possible_cpus()?;
        let watched = watching.iter().flat_map(|watching| watching.cpus.iter());
        let mut cpus = config.cpus.iter().chain(watched);
        if let Some(cpu) = cpus.find(|cpu| cpu.0 as usize >= possible_cpus.min(CPUS_MAX)) {
            return Err(BpfError::NoSuchCpu { cpu, count: possible_cpus });
        }
        let end = SwitchEnd::find(&config.kinds)?;
        let is_probed = matches!(end, SwitchEnd::Probe(_));
        match Self::start_with(config, watching, possible_cpus, end) {
            // The kernel may have no such probes, or refuse them: the rest goes without.
            Err(BpfError::Program { reason, .. }) if is_probed => {
                let end = SwitchEnd::missing(&format!("no probe can be set for it: {reason}"));
                Self::start_with(config, watching, possible_cpus, end)
            }
            started => started,
        }
    }

    fn start_with(
        config: &HistogramsConfig,
        watching: Option<&Watching>,
        possible_cpus: usize,
        end: SwitchEnd,
    ) -> Result<Self, BpfError> {
        let histograms = (possible_cpus * KINDS_STRIDE) as u32;
        let mut maps = vec![("histograms", histograms), ("cpu_states", possible_cpus as u32)];
        maps.extend(watching.iter().flat_map(|watching| watching.maps()));
        let has_tracepoint = vec![("tells_functions", FUNCTION_RUNS)];
        let mut constants = vec![("sees_switch_end", u32::from(end.is_seen()))];
        constants.extend(watching.iter().flat_map(|watching| watching.constants()));
        let mut object = Object::load(WHYLATE, &Sizes { maps, has_tracepoint, constants })?;
        for (ring, cpu) in watching.iter().flat_map(|watching| watching.cpus.iter()).enumerate() {
            let state = RawCpuState { ring: 1 + ring as u32, ..RawCpuState::new_zeroed() };
            let bytes: CpuStateBytes = transmute!(state);
            object.set("cpu_states", cpu.0, &bytes)?;
        }
        let mut running = Self {
            object,
            cpus: config.cpus.clone(),
            config: raw_config(config, watching),
            enabled: BTreeSet::new(),
            unavailable: Vec::new(),
            parts: Parts::new(end),
            with_causes: watching.is_some(),
            possible_cpus,
            baselines: BTreeMap::new(),
        };
        running.change(HistogramsChange::Enable, &config.kinds, &config.cpus)?;
        if watching.is_none() && (running.enabled.is_empty() || running.cpus.is_empty()) {
            return Err(BpfError::Nothing);
        }
        running.attach_tasks(watching::task_events(watching))?;
        Ok(running)
    }

    /// Attaches the programs for wake-ups and switches: counting begins.
    fn attach_tasks(&mut self, events: [Event; 2]) -> Result<(), BpfError> {
        for event in events {
            if let Some(reason) = self.object.attach(event)? {
                return Err(BpfError::program(event.tracepoint, &reason));
            }
        }
        Ok(())
    }

    /// Changes the histograms of these CPUs; those that this kernel cannot do stay off (see [`Self::unavailable`]).
    ///
    /// # Errors
    /// When the kernel does not take the change.
    pub fn change(
        &mut self,
        change: HistogramsChange,
        kinds: &[HistogramKind],
        cpus: &CpuSet,
    ) -> Result<(), BpfError> {
        if change == HistogramsChange::Enable {
            let missing = self.parts.attach(&mut self.object, kinds, self.with_causes)?;
            self.unavailable.extend(missing);
        }
        let cpus = self.cpus.intersection(cpus);
        let all = cpus.iter().flat_map(|cpu| kinds.iter().map(move |kind| (cpu, *kind)));
        let is_possible = |kind: HistogramKind| !self.unavailable.iter().any(|(none, _)| *none == kind);
        match change {
            HistogramsChange::Enable => self.enabled.extend(all.filter(|(_, kind)| is_possible(*kind))),
            HistogramsChange::Disable => {
                self.enabled.retain(|(cpu, kind)| !kinds.contains(kind) || !cpus.contains(*cpu));
            }
            HistogramsChange::Reset => return self.reset(&all.collect::<Vec<_>>()),
        }
        self.write_config()
    }

    fn reset(&mut self, histograms: &[(CpuId, HistogramKind)]) -> Result<(), BpfError> {
        for (cpu, kind) in histograms {
            let epoch = &mut self.config.epochs[cpu.0 as usize][*kind as usize];
            *epoch = epoch.wrapping_add(1).max(1);
        }
        self.write_config()?;
        for (cpu, kind) in histograms {
            let raw = self.raw(*cpu, *kind)?;
            self.baselines.insert((*cpu, *kind), raw);
        }
        Ok(())
    }

    /// The histograms that are on, CPU by CPU.
    pub fn enabled(&self) -> impl Iterator<Item = (CpuId, HistogramKind)> + '_ {
        self.enabled.iter().copied()
    }

    /// The histograms that this kernel cannot do, each with the reason.
    pub fn unavailable(&self) -> &[(HistogramKind, String)] {
        &self.unavailable
    }

    /// Whether the end of a switch is seen. Without it, `timerwakeupswitch` ends with the decision to
    /// run the task.
    pub fn sees_switch_end(&self) -> bool {
        self.parts.switch_end.is_seen()
    }

    /// What the programs cost so far.
    pub fn costs(&self) -> Vec<ProgramCost> {
        self.object.costs()
    }

    /// Reads everything that is on.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn read(&self) -> Result<HistogramsSnapshot, BpfError> {
        let mut cpus = Vec::with_capacity(self.cpus.len());
        for cpu in self.cpus.iter() {
            let kinds = HistogramKind::ALL.into_iter().filter(|kind| self.enabled.contains(&(cpu, *kind)));
            let histograms = kinds.map(|kind| self.histogram(cpu, kind)).collect::<Result<_, _>>()?;
            cpus.push(CpuHistograms { cpu, histograms });
        }
        Ok(HistogramsSnapshot { cpus, counts: self.counts()? })
    }

    /// What became of the wake-ups.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn counts(&self) -> Result<WakeupCounts, BpfError> {
        let mut counts = WakeupCounts::default();
        for cpu in 0..self.possible_cpus as u32 {
            let raw = self.cpu_state(cpu)?.counters;
            counts.wakeups += raw.wakings;
            counts.without_switch += raw.without_switch;
            counts.elsewhere += raw.elsewhere;
            counts.lost += raw.collisions + raw.unfinished;
        }
        counts.lost += self.object.costs().iter().map(|cost| cost.missed).sum::<u64>();
        Ok(counts)
    }

    /// The state of a CPU.
    pub(crate) fn cpu_state(&self, cpu: u32) -> Result<RawCpuState, BpfError> {
        Ok(transmute!(self.object.get::<CpuStateBytes>("cpu_states", cpu)?))
    }

    /// The process whose page faults and migrations are recorded from now on, and whose wake-ups are counted from then on.
    pub(crate) fn watch_process(
        &mut self,
        cpus: &CpuSet,
        process: u32,
        start_ns: u64,
    ) -> Result<(), BpfError> {
        let config = &mut self.config;
        for cpu in cpus.iter() {
            let known =
                config.processes.get_mut(cpu.0 as usize).zip(config.starts_ns.get_mut(cpu.0 as usize));
            if let Some((known, from_ns)) = known {
                (*known, *from_ns) = (process, start_ns);
            }
        }
        self.write_config()
    }

    /// The latency above which a stack is recorded on these CPUs; 0: never.
    pub(crate) fn keep_stacks(&mut self, from_ns: &[(CpuId, u64)]) -> Result<(), BpfError> {
        for (cpu, from_ns) in from_ns {
            if let Some(known) = self.config.late_ns.get_mut(cpu.0 as usize) {
                *known = u32::try_from(*from_ns).unwrap_or(u32::MAX);
            }
        }
        self.write_config()
    }

    /// The programs and their maps.
    pub(crate) fn object(&self) -> &Object {
        &self.object
    }

    /// The programs and their maps.
    pub(crate) fn object_mut(&mut self) -> &mut Object {
        &mut self.object
    }

    fn write_config(&mut self) -> Result<(), BpfError> {
        self.config.enabled.fill(0);
        for (cpu, kind) in &self.enabled {
            self.config.enabled[cpu.0 as usize] |= 1 << (*kind as u8);
        }
        let bytes: &[u8; size_of::<Config>()] = transmute_ref!(&*self.config);
        self.object.set(".bss.config", 0, bytes)
    }

    /// A histogram as it is in its map, read again until its parts agree.
    fn raw(&self, cpu: CpuId, kind: HistogramKind) -> Result<Box<RawHistogram>, BpfError> {
        let index = (cpu.0 as usize * KINDS_STRIDE + kind as usize) as u32;
        let mut reads = 0;
        loop {
            let raw: RawHistogram =
                transmute!(self.object.get::<[u8; size_of::<RawHistogram>()]>("histograms", index)?);
            reads += 1;
            let agrees =
                raw.buckets.iter().sum::<u64>() == raw.samples && raw.record.latency_ns == raw.max_ns;
            if agrees || reads == READS_MAX {
                return Ok(Box::new(raw));
            }
        }
    }

    fn histogram(&self, cpu: CpuId, kind: HistogramKind) -> Result<KernelHistogram, BpfError> {
        let raw = self.raw(cpu, kind)?;
        let baseline = self.baselines.get(&(cpu, kind));
        let before = |index: usize| baseline.map_or(0, |baseline| baseline.buckets[index]);
        let differences = (0..BUCKETS).map(|index| (lower_edge(index), raw.buckets[index] - before(index)));
        let is_current = raw.epoch == u32::from(self.config.epochs[cpu.0 as usize][kind as usize]);
        let rows: Vec<(u64, u64)> = differences.filter(|(_, count)| *count > 0).collect();
        let interval = Interval {
            cpu,
            samples: raw.samples - baseline.map_or(0, |baseline| baseline.samples),
            sum_ns: raw.sum_ns - baseline.map_or(0, |baseline| baseline.sum_ns),
            min_ns: Some(raw.min_ns).filter(|_| is_current && !rows.is_empty()),
            max_ns: Some(raw.max_ns).filter(|_| is_current && !rows.is_empty()),
            histogram: rows,
            ..Interval::default()
        };
        let histogram =
            Histogram::from_interval(&interval).map_err(|error| BpfError::map("histograms", &error))?;
        let has_record = is_current && raw.record.latency_ns > 0;
        Ok(KernelHistogram {
            kind,
            samples: histogram.count(),
            quantiles: histogram.quantiles(),
            max_record: has_record.then(|| latency_record(kind, &raw.record, self.sees_switch_end())),
            histogram: interval.histogram,
        })
    }
}

/// The configuration of the programs, with nothing on yet.
fn raw_config(config: &HistogramsConfig, watching: Option<&Watching>) -> Box<Config> {
    let mut raw = Config::nothing();
    if let Some(watching) = watching {
        raw.own_process = std::process::id();
        for (ring, cpu) in watching.cpus.iter().enumerate() {
            raw.rings[cpu.0 as usize] = 1 + ring as u16;
        }
        for (place, cpu) in raw.watched.iter_mut().zip(watching.cpus.iter()) {
            *place = cpu.0 as u16;
            raw.watched_count += 1;
        }
    }
    // In the kernel, 0 is the highest real-time priority.
    raw.prio_min = 99i32.saturating_sub(config.priority_max);
    raw.prio_max = 99i32.saturating_sub(config.priority_min);
    match &config.task {
        None => {}
        Some(TaskFilter::Pid(pid)) => raw.pid = *pid,
        Some(TaskFilter::Command(command)) => {
            raw.command = Command::new(command);
            raw.has_command = 1;
        }
    }
    raw
}

/// The record with those parts that the kind's latency consists of.
fn latency_record(kind: HistogramKind, raw: &Record, sees_switch_end: bool) -> LatencyRecord {
    use HistogramKind as Kind;
    let has_offset =
        matches!(kind, Kind::MissedTimerOffsets | Kind::TimerAndWakeup | Kind::TimerWakeupSwitch);
    let has_wakeup = !matches!(kind, Kind::MissedTimerOffsets | Kind::SwitchOff);
    let has_switch = kind == Kind::SwitchOff || (kind == Kind::TimerWakeupSwitch && sees_switch_end);
    LatencyRecord {
        pid: raw.pid,
        priority: 99 - raw.prio,
        latency_ns: raw.latency_ns,
        timer_offset_ns: Some(raw.timer_offset_ns).filter(|_| has_offset && raw.is_timer != 0),
        wakeup_ns: Some(raw.wakeup_ns).filter(|_| has_wakeup),
        switch_ns: Some(raw.switch_ns).filter(|_| has_switch),
        command: raw.command.text(),
        previous_pid: raw.previous_pid,
        previous_priority: 99 - raw.previous_prio,
        previous_command: raw.previous_command.text(),
        at_ns: raw.at_ns,
        syscall: syscall_name(raw.syscall),
    }
}

/// The name of system call `number` on this architecture; `None` for none or one that is not known. Calls of 32-bit
/// programs, which have other numbers, are named wrongly.
fn syscall_name(number: i64) -> Option<String> {
    let number = usize::try_from(number).ok()?;
    Sysno::new(number).map(|known| known.name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_names_and_no_number_has_none() {
        let sleep = i64::from(Sysno::clock_nanosleep.id());
        assert_eq!(syscall_name(sleep).as_deref(), Some("clock_nanosleep"));
        assert_eq!(syscall_name(-1), None);
        assert_eq!(syscall_name(i64::MAX), None);
    }
}
