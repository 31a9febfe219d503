//! Latency histograms that BPF programs count: started, changed and read.

use crate::causes::FUNCTION_RUNS;
use crate::configuration;
use crate::error::BpfError;
use crate::events::{Event, Sizes};
use crate::in_progress::in_progress;
use crate::layout::{
    Config, KINDS_STRIDE, MAX_WORD, MIN_WORD, RawCpuState, RawHistogram, Record, STATE_WORDS, Settings,
};
use crate::object::{Object, WHYLATE, possible_cpus};
use crate::parts::{Parts, SwitchEnd};
use crate::settings::{HistogramsChange, HistogramsConfig};
use crate::snapshot::{HistogramsSnapshot, ProgramCost, WakeupCounts};
use crate::watching::{self, Watching};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use syscalls::Sysno;
use whylate_core::record::Interval;
use whylate_core::result::{CpuHistograms, HistogramKind, KernelHistogram, LatencyRecord};
use whylate_core::{CpuId, CpuSet};
use whylate_stats::Histogram;
use whylate_stats::buckets::{BUCKETS, index_of, lower_edge};
use whylate_sys::clock;
use whylate_sys::shared::SharedWords;
use zerocopy::transmute;

/// A histogram that changes while it is read is read again at most this many times.
const READS_MAX: usize = 8;

type CpuStateBytes = [u8; size_of::<RawCpuState>()];

/// The map of the states of CPUs.
const STATES: &str = "cpu_states";

/// What a histogram held when it was reset.
struct Baseline {
    at_ns: u64,
    sum_ns: u64,
    histogram: Box<RawHistogram>,
}

/// Running histograms. They end when this is dropped.
pub struct Histograms {
    object: Object,
    cpus: CpuSet,
    /// The states of all CPUs, mapped.
    states: SharedWords,
    /// What the programs look at on each CPU.
    settings: Vec<Settings>,
    enabled: BTreeSet<(CpuId, HistogramKind)>,
    unavailable: Vec<(HistogramKind, String)>,
    parts: Parts,
    with_causes: bool,
    possible_cpus: usize,
    /// What was counted before the last reset.
    baselines: BTreeMap<(CpuId, HistogramKind), Baseline>,
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
        if let Some(cpu) = cpus.find(|cpu| cpu.0 as usize >= possible_cpus) {
            return Err(BpfError::NoSuchCpu { cpu, count: possible_cpus });
        }
        let end = SwitchEnd::find(&config.kinds)?;
        let is_probed = matches!(end, SwitchEnd::Probe(_));
        match Self::start_with(config, watching, possible_cpus, end) {
            // The kernel may not have such probes, or may refuse them; the rest works without them.
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
        let mut maps = vec![("histograms", histograms), (STATES, possible_cpus as u32)];
        maps.extend(watching.iter().flat_map(|watching| watching.maps()));
        let has_tracepoint = vec![("tells_functions", FUNCTION_RUNS)];
        let mut constants = vec![("sees_switch_end", u32::from(end.is_seen()))];
        constants.extend(watching.iter().flat_map(|watching| watching.constants()));
        let mut object = Object::load(WHYLATE, &Sizes { maps, has_tracepoint, constants })?;
        let bytes: [u8; size_of::<Config>()] = transmute!(configuration::shared(config, watching));
        object.set(".bss.config", 0, &bytes)?;
        let states = SharedWords::of_map(object.array_file(STATES)?, possible_cpus * STATE_WORDS)
            .map_err(|error| BpfError::map(STATES, &error))?;
        let mut running = Self {
            object,
            cpus: config.cpus.clone(),
            states,
            settings: configuration::of_cpus(config, watching, possible_cpus),
            enabled: BTreeSet::new(),
            unavailable: Vec::new(),
            parts: Parts::new(end),
            with_causes: watching.is_some(),
            possible_cpus,
            baselines: BTreeMap::new(),
        };
        for cpu in 0..possible_cpus {
            running.empty_extremes(cpu, &HistogramKind::ALL);
        }
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

    /// Changes the histograms of these CPUs; those that this kernel does not support stay off (see [`Self::unavailable`]).
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
        self.write_settings();
        Ok(())
    }

    fn reset(&mut self, histograms: &[(CpuId, HistogramKind)]) -> Result<(), BpfError> {
        for (cpu, kind) in histograms {
            self.empty_extremes(cpu.0 as usize, &[*kind]);
            let at_ns = clock::now().0;
            let (state, histogram) = self.raw(*cpu, *kind)?;
            let sum_ns = state.sum_ns[*kind as usize];
            self.baselines.insert((*cpu, *kind), Baseline { at_ns, sum_ns, histogram });
        }
        Ok(())
    }

    /// The next latency of these histograms is the longest and the shortest.
    fn empty_extremes(&self, cpu: usize, kinds: &[HistogramKind]) {
        for kind in kinds {
            // Two of them share a word, which a program may write meanwhile.
            let (word, shift) = (*kind as usize / 2, 32 * (*kind as usize % 2));
            let mask = u64::from(u32::MAX) << shift;
            let words = &self.states.words()[cpu * STATE_WORDS..];
            words[MAX_WORD + word].fetch_and(!mask, Relaxed);
            words[MIN_WORD + word].fetch_or(mask, Relaxed);
        }
    }

    /// The histograms that are on, CPU by CPU.
    pub fn enabled(&self) -> impl Iterator<Item = (CpuId, HistogramKind)> + '_ {
        self.enabled.iter().copied()
    }

    /// The histograms that this kernel does not support, each with the reason.
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
    pub fn counts(&self) -> Result<WakeupCounts, BpfError> {
        let mut counts = WakeupCounts::default();
        for cpu in 0..self.possible_cpus as u32 {
            let raw = self.cpu_state(cpu)?;
            counts.wakeups += raw.wakings;
            counts.without_switch += raw.without_switch;
            counts.elsewhere += raw.elsewhere;
            counts.lost += raw.collisions + raw.unfinished;
        }
        counts.lost += self.object.costs().iter().map(|cost| cost.missed).sum::<u64>();
        Ok(counts)
    }

    pub(crate) fn cpu_state(&self, cpu: u32) -> Result<RawCpuState, BpfError> {
        Ok(transmute!(self.object.get::<CpuStateBytes>("cpu_states", cpu)?))
    }

    /// The process whose page faults and migrations are recorded from now on, and whose wake-ups are counted from then on.
    pub(crate) fn watch_process(&mut self, cpus: &CpuSet, process: u32, start_ns: u64) {
        for cpu in cpus.iter() {
            if let Some(settings) = self.settings.get_mut(cpu.0 as usize) {
                (settings.process, settings.starts_ns) = (process, start_ns);
            }
        }
        self.write_settings();
    }

    /// The latency above which a stack is recorded on these CPUs; 0: never.
    pub(crate) fn keep_stacks(&mut self, from_ns: &[(CpuId, u64)]) {
        for (cpu, from_ns) in from_ns {
            if let Some(settings) = self.settings.get_mut(cpu.0 as usize) {
                settings.late_ns = u32::try_from(*from_ns).unwrap_or(u32::MAX);
            }
        }
        self.write_settings();
    }

    pub(crate) fn object(&self) -> &Object {
        &self.object
    }

    pub(crate) fn object_mut(&mut self) -> &mut Object {
        &mut self.object
    }

    fn write_settings(&self) {
        for (cpu, settings) in self.settings.iter().enumerate() {
            let is_on = |kind: &HistogramKind| self.enabled.contains(&(CpuId(cpu as u32), *kind));
            let enabled = HistogramKind::ALL.into_iter().filter(is_on).map(|kind| 1 << kind as u32).sum();
            let settings = Settings { enabled, ..settings.clone() };
            let words: [u64; size_of::<Settings>() / 8] = transmute!(settings);
            for (word, value) in self.states.words()[cpu * STATE_WORDS..].iter().zip(words) {
                word.store(value, Relaxed);
            }
        }
    }

    /// A histogram as it is in its map, with the state of its CPU, and with what is not counted yet; read again until nothing was
    /// counted meanwhile.
    fn raw(&self, cpu: CpuId, kind: HistogramKind) -> Result<(RawCpuState, Box<RawHistogram>), BpfError> {
        let index = (cpu.0 as usize * KINDS_STRIDE + kind as usize) as u32;
        let mut reads = 0;
        loop {
            let mut state = self.cpu_state(cpu.0)?;
            let mut raw: RawHistogram =
                transmute!(self.object.get::<[u8; size_of::<RawHistogram>()]>("histograms", index)?);
            reads += 1;
            let after = self.cpu_state(cpu.0)?;
            let [current_ns, current_after_ns] =
                [&state, &after].map(|state| in_progress(state, kind, self.sees_switch_end()));
            let is_whole = state.countings % 2 == 0
                && after.countings == state.countings
                && current_ns == current_after_ns;
            if is_whole || reads == READS_MAX {
                // One that is being written just now is in the next reading.
                if let Some(latency_ns) = current_ns.filter(|_| is_whole) {
                    raw.buckets[index_of(latency_ns)] += 1;
                    state.sum_ns[kind as usize] += latency_ns;
                }
                return Ok((state, Box::new(raw)));
            }
        }
    }

    fn histogram(&self, cpu: CpuId, kind: HistogramKind) -> Result<KernelHistogram, BpfError> {
        let (state, raw) = self.raw(cpu, kind)?;
        let baseline = self.baselines.get(&(cpu, kind));
        let before = |index: usize| baseline.map_or(0, |baseline| baseline.histogram.buckets[index]);
        let count = |index: usize| raw.buckets[index].saturating_sub(before(index));
        let counts = (0..BUCKETS).map(|index| (lower_edge(index), count(index)));
        let rows: Vec<(u64, u64)> = counts.filter(|(_, count)| *count > 0).collect();
        let [min_ns, max_ns] = [state.min_ns, state.max_ns].map(|of| u64::from(of[kind as usize]));
        let record = Some(&raw.record).filter(|record| {
            let is_current = baseline.is_none_or(|baseline| record.at_ns >= baseline.at_ns);
            is_current && record.latency_ns > 0 && record.latency_ns.min(u32::MAX.into()) == max_ns
        });
        let interval = Interval {
            cpu,
            samples: rows.iter().map(|(_, count)| count).sum(),
            sum_ns: state.sum_ns[kind as usize]
                .saturating_sub(baseline.map_or(0, |baseline| baseline.sum_ns)),
            min_ns: Some(min_ns).filter(|_| !rows.is_empty()),
            max_ns: Some(record.map_or(max_ns, |record| record.latency_ns)).filter(|_| !rows.is_empty()),
            histogram: rows,
            ..Interval::default()
        };
        let histogram =
            Histogram::from_interval(&interval).map_err(|error| BpfError::map("histograms", &error))?;
        Ok(KernelHistogram {
            kind,
            samples: histogram.count(),
            quantiles: histogram.quantiles(),
            max_record: record.map(|record| latency_record(kind, record, self.sees_switch_end())),
            histogram: interval.histogram,
        })
    }
}

/// The record with only the parts of this kind's latency.
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
