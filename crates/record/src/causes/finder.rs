//! Finds the causes of spikes while probes measure: reads what was recorded soon after each spike, and keeps the
//! explanations of the largest.

use super::account::Account;
use super::own::Own;
use super::stack_threshold::StackThresholds;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use whylate_bpf::{Activities, BpfError, IpisByKind, Missed, device};
use whylate_core::order::InOrder;
use whylate_core::record::{IpiRecord, OwnRecord, SourceRecord, SpikeCauses, SpikeRecord};
use whylate_core::recording::{FAIR_SERVER, RT_THROTTLING};
use whylate_core::result::CauseKind;
use whylate_core::{CpuId, CpuSet, Facts, Nanos, Warning, WarningCode};
use whylate_explain::segments::{Surroundings, Window, decompose, looks_back, within_throttled};
use whylate_host::HostRoot;
use whylate_host::cpu_stat::StealTimes;
use whylate_host::interrupts::Counts;
use whylate_host::smi::SmiCounter;
use whylate_stats::summary::keep_first;

/// How many explanations of simultaneous spikes are kept on each CPU, the largest first. The other spikes are only
/// counted by cause.
const AT_ONCE_MAX: usize = 64;
/// How much of each twentieth of a second may be spent on its spikes; the rest is not explained.
const COUNTED_WITHIN: Duration = Duration::from_millis(10);
/// At most this many explanations are kept.
const KEPT_MAX: usize = 16_384;
/// Reading the counter of firmware interrupts interrupts its CPU: not more often than this.
const SMIS_READ_EVERY: Duration = Duration::from_secs(1);

/// The probe whose spikes are to be explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    pub cpus: CpuSet,
    /// Whether it waits for a timer, or is running all the time.
    pub is_timer: bool,
    /// Priority of its threads, as tools print it; -21 for an ordinary one.
    pub priority: i32,
    /// How many of the largest spikes of a CPU it keeps.
    pub spikes_kept: usize,
    /// Spikes from this latency on are counted by cause, in ns; 0 for all.
    pub late_above_ns: u64,
    /// Whether its latency less what the hypervisor or the firmware took is counted.
    pub counts_own: bool,
}

/// A search for the causes of spikes; a trait so that tests need no kernel. Each error says why causes can no longer
/// be found.
#[allow(clippy::missing_errors_doc, reason = "one sentence for all of them is above")]
pub trait FindsCauses {
    /// What is not recorded.
    fn warnings(&self) -> &[Warning];
    /// These probes are about to measure; what was found until now is forgotten. If several probes of one CPU measure
    /// one after another, each is announced by a call of this.
    fn begin(&mut self, probes: &[Measured]) -> Result<(), BpfError>;
    /// The process that measures on these CPUs, and the moment from which its samples count. Call it before its first
    /// spike.
    fn armed(&mut self, cpus: &CpuSet, process: u32, start_ns: u64) -> Result<(), BpfError>;
    /// Explains spikes; call it soon after they happened.
    fn explain(&mut self, spikes: &[SpikeRecord]) -> Result<(), BpfError>;
    /// What was found of the spike that ended then; `None` when it was not explained.
    fn causes_of(&self, cpu: CpuId, at_ns: u64) -> Option<SpikeCauses>;
    /// Forgets what was found of the spike that ended then.
    fn forget(&mut self, cpu: CpuId, at_ns: u64);
    /// The interrupts that other CPUs sent to the measured ones since the last call. If the kernel does not report the
    /// senders, they are counted by their kind alone.
    fn ipis(&mut self) -> Result<Vec<IpiRecord>, BpfError>;
    /// What took the time of loops that never sleep since the last call, as far as it is known.
    fn sources(&mut self) -> Vec<SourceRecord>;
    /// What the hypervisor and the firmware took of samples since the last call; at least one row for each CPU whose
    /// samples are checked.
    fn own(&mut self) -> Vec<OwnRecord> {
        Vec::new()
    }
    /// The wake-ups of threads that wait for a timer that were seen since the last call; no CPU if they are not
    /// counted.
    fn wakeups(&mut self) -> Result<Vec<(CpuId, u64)>, BpfError> {
        Ok(Vec::new())
    }
    /// What was lost up to now.
    fn losses(&self) -> Vec<Warning>;
}

struct Probe {
    measured: Measured,
    /// 0 until it is known.
    process: u32,
}

/// The counter of firmware interrupts of one CPU.
struct Smis {
    counter: SmiCounter,
    before: u32,
    read_at: Instant,
}

/// Finds causes in a recording, which ends when it is dropped.
struct LiveFinder {
    host: HostRoot,
    activities: Box<dyn Activities>,
    cpus: CpuSet,
    probes: Vec<Probe>,
    surroundings: Surroundings,
    thresholds: StackThresholds,
    /// Stolen time of each CPU up to the last look at its spikes; no entry if the kernel does not count it.
    steal: BTreeMap<CpuId, Nanos>,
    smis: BTreeMap<CpuId, Smis>,
    /// Interrupts from other CPUs by the kernel's counts, if it does not report the senders.
    counted: Option<IpisByKind>,
    /// By CPU and end of the spike.
    explained: BTreeMap<(CpuId, u64), SpikeCauses>,
    account: Account,
    own: Own,
    /// Wake-ups seen up to the last call of `wakeups`.
    woken: BTreeMap<CpuId, u32>,
    /// The events at which programs had not run up to the last look.
    missed: Missed,
    lost_spikes: u64,
    /// The events of their windows at which programs did not run.
    lost_events: Missed,
    warnings: Vec<Warning>,
}

/// Finds the causes of these probes' spikes in that recording; `warnings` say what it does not see.
///
/// # Errors
/// When the recording cannot be read or changed.
pub(super) fn find_causes_in(
    mut activities: Box<dyn Activities>,
    host: &HostRoot,
    probes: &[Measured],
    facts: &Facts,
    warnings: Vec<Warning>,
) -> Result<Box<dyn FindsCauses>, BpfError> {
    let cpus: CpuSet = probes.iter().flat_map(|probe| probe.cpus.iter()).collect();
    let mut finder = LiveFinder {
        host: host.clone(),
        counted: activities.ipis()?.is_none().then(|| IpisByKind::start(host, &cpus)),
        warnings,
        activities,
        cpus,
        probes: Vec::new(),
        surroundings: surroundings(host, facts),
        thresholds: StackThresholds::default(),
        steal: BTreeMap::new(),
        smis: BTreeMap::new(),
        explained: BTreeMap::new(),
        account: Account::default(),
        own: Own::default(),
        woken: BTreeMap::new(),
        missed: Missed::default(),
        lost_spikes: 0,
        lost_events: Missed::default(),
    };
    finder.begin(probes)?;
    Ok(Box::new(finder))
}

impl FindsCauses for LiveFinder {
    fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    fn begin(&mut self, probes: &[Measured]) -> Result<(), BpfError> {
        let probe = |measured: &Measured| Probe { measured: measured.clone(), process: 0 };
        self.probes = probes.iter().map(probe).collect();
        self.explained.clear();
        self.account.take();
        self.own.take(std::iter::empty());
        // The stacks of a loop that never sleeps are not used.
        let timers = probes.iter().filter(|probe| probe.is_timer);
        let kept = timers
            .flat_map(|probe| probe.cpus.iter().map(|cpu| (cpu, probe.spikes_kept, probe.late_above_ns)));
        self.thresholds = StackThresholds::new(kept);
        let none = self.cpus.iter().map(|cpu| (cpu, 0));
        self.activities.keep_stacks(&none.chain(self.thresholds.current()).collect::<Vec<_>>())?;
        self.smis = self.cpus.iter().filter_map(|cpu| Some((cpu, smis_of(&self.host, cpu)?))).collect();
        let steal = StealTimes::read(&self.host).unwrap_or_default();
        self.steal = self.cpus.iter().filter_map(|cpu| Some((cpu, steal.of(cpu)?))).collect();
        self.missed = self.activities.missed();
        self.wakeups()?;
        // Discards interrupts sent before the measurement, also those sent by attaching the programs.
        self.ipis()?;
        Ok(())
    }

    fn armed(&mut self, cpus: &CpuSet, process: u32, start_ns: u64) -> Result<(), BpfError> {
        for probe in self.probes.iter_mut().filter(|probe| probe.measured.cpus == *cpus) {
            probe.process = process;
        }
        self.activities.watch_process(cpus, process, start_ns)
    }

    fn explain(&mut self, spikes: &[SpikeRecord]) -> Result<(), BpfError> {
        let risen = self.thresholds.learn(spikes);
        if !risen.is_empty() {
            self.activities.keep_stacks(&risen)?;
        }
        let steal = StealTimes::read(&self.host).unwrap_or_default();
        let missed = self.activities.missed();
        let missed_now = missed.since(&self.missed);
        self.missed = missed;
        let mut relevant = Missed::default();
        for cpu in self.cpus.clone().iter() {
            let mut own: Vec<&SpikeRecord> = spikes.iter().filter(|spike| spike.cpu == cpu).collect();
            if own.is_empty() {
                continue;
            }
            own.order_by_key(|spike| Reverse(spike.latency_ns));
            self.surroundings.steal_ns = since_last(&mut self.steal, cpu, steal.of(cpu));
            let is_timer = self.probe(cpu).is_some_and(|probe| probe.measured.is_timer);
            let own_missed = missed_now.in_window(is_timer);
            self.explain_cpu(cpu, &own, own_missed.count())?;
            if own_missed.count() > relevant.count() {
                relevant = own_missed;
            }
        }
        self.lost_events.add(&relevant);
        Ok(())
    }

    fn causes_of(&self, cpu: CpuId, at_ns: u64) -> Option<SpikeCauses> {
        self.explained.get(&(cpu, at_ns)).cloned()
    }

    fn forget(&mut self, cpu: CpuId, at_ns: u64) {
        self.explained.remove(&(cpu, at_ns));
    }

    fn ipis(&mut self) -> Result<Vec<IpiRecord>, BpfError> {
        match &mut self.counted {
            Some(counted) => Ok(counted.take()),
            None => Ok(self.activities.ipis()?.unwrap_or_default()),
        }
    }

    fn sources(&mut self) -> Vec<SourceRecord> {
        self.account.take()
    }

    fn own(&mut self) -> Vec<OwnRecord> {
        let looked_at = self.probes.iter().filter(|probe| probe.measured.counts_own);
        let cpus: CpuSet = looked_at.flat_map(|probe| probe.measured.cpus.iter()).collect();
        self.own.take(cpus.iter())
    }

    fn wakeups(&mut self) -> Result<Vec<(CpuId, u64)>, BpfError> {
        let timers = self.probes.iter().filter(|probe| probe.measured.is_timer);
        let cpus: CpuSet = timers.flat_map(|probe| probe.measured.cpus.iter()).collect();
        let mut seen = Vec::new();
        for cpu in cpus.iter() {
            let Some(now) = self.activities.wakeups(cpu)? else { continue };
            let before = self.woken.insert(cpu, now).unwrap_or(now);
            seen.push((cpu, now.wrapping_sub(before).into()));
        }
        Ok(seen)
    }

    fn losses(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        if self.lost_spikes > 0 {
            let mut text = format!(
                "records were lost in some spikes ({}): the confidence of their causes is halved",
                self.lost_spikes
            );
            if self.lost_events.count() > 0 {
                text.push_str(&format!(" (missed events: {})", self.lost_events));
            }
            let fix = "raise the threshold, or measure fewer spikes at a time";
            warnings.push(Warning::with_fix(WarningCode::CauseRecordsLost, text, fix));
        }
        let ipis = self.activities.ipis_lost();
        if ipis > 0 {
            let text = format!(
                "the table of senders was full: {ipis} interrupts from other CPUs are missing from it"
            );
            warnings.push(Warning::new(WarningCode::IpiRecordsLost, text));
        }
        warnings
    }
}

impl LiveFinder {
    fn explain_cpu(&mut self, cpu: CpuId, spikes: &[&SpikeRecord], missed: u64) -> Result<(), BpfError> {
        let begin = |spike: &SpikeRecord| spike.at_ns.saturating_sub(spike.latency_ns);
        let Some(first_ns) = spikes.iter().map(|spike| begin(spike)).min() else { return Ok(()) };
        let measured = self.probe(cpu).map(|probe| &probe.measured);
        let (priority, late_above_ns, counts_own) =
            measured.map_or((0, 0, false), |it| (it.priority, it.late_above_ns, it.counts_own));
        let longest_ns = spikes.iter().map(|spike| spike.latency_ns).max().unwrap_or(0);
        let before_ns = looks_back(priority, longest_ns).unwrap_or(0);
        let recording = self.activities.since(cpu, first_ns.saturating_sub(before_ns))?;
        let began = Instant::now();
        for (nth, spike) in spikes.iter().enumerate() {
            let is_kept = nth < AT_ONCE_MAX;
            if !is_kept && began.elapsed() > COUNTED_WITHIN {
                let left = spikes[nth..].iter();
                let late = left.filter(|spike| spike.latency_ns >= late_above_ns);
                late.for_each(|spike| self.account.add(cpu, spike.latency_ns, &[]));
                break;
            }
            let Some(window) = self.window(cpu, begin(spike), spike.at_ns) else { continue };
            let mut within = within_throttled(&recording, &window);
            within.lost += missed;
            self.surroundings.smis = None;
            let mut causes = decompose(&window, &within, &self.surroundings);
            if causes.iter().any(|cause| cause.kind == CauseKind::Hardware)
                && let Some(smis) = self.smis_since(cpu)
            {
                self.surroundings.smis = Some(smis);
                causes = decompose(&window, &within, &self.surroundings);
            }
            let (at_ns, latency_ns) = (spike.at_ns, spike.latency_ns);
            if latency_ns >= late_above_ns {
                self.account.add(cpu, latency_ns, &causes);
                if counts_own {
                    self.own.add(cpu, latency_ns, &causes);
                }
            }
            if !is_kept {
                continue;
            }
            self.lost_spikes += u64::from(within.lost > 0);
            let found = SpikeCauses { cpu, series: None, at_ns, latency_ns, causes, lost: within.lost };
            self.explained.insert((cpu, at_ns), found);
        }
        if self.explained.len() > KEPT_MAX {
            keep_first(&mut self.explained, KEPT_MAX / 2, |(cpu, at_ns), one| {
                (Reverse(one.latency_ns), *at_ns, *cpu)
            });
        }
        Ok(())
    }

    /// The probe that measures on a CPU.
    fn probe(&self, cpu: CpuId) -> Option<&Probe> {
        self.probes.iter().find(|probe| probe.measured.cpus.contains(cpu))
    }

    /// The window of a spike on a CPU; `None` if no probe measures.
    fn window(&self, cpu: CpuId, from_ns: u64, to_ns: u64) -> Option<Window> {
        let Probe { measured, process } = self.probe(cpu)?;
        let (is_timer, priority) = (measured.is_timer, measured.priority);
        Some(Window {
            cpu,
            from_ns,
            to_ns,
            is_timer,
            is_probe: true,
            process: *process,
            thread: None,
            priority,
        })
    }

    /// Firmware interrupts since the counter was last read; `None` without a counter, and if it was read just before.
    fn smis_since(&mut self, cpu: CpuId) -> Option<u64> {
        let smis = self.smis.get_mut(&cpu).filter(|smis| smis.read_at.elapsed() >= SMIS_READ_EVERY)?;
        let now = smis.counter.read().ok()?;
        smis.read_at = Instant::now();
        Some(SmiCounter::delta(std::mem::replace(&mut smis.before, now), now))
    }
}

/// What is known of the machine in addition to the recordings.
pub(crate) fn surroundings(host: &HostRoot, facts: &Facts) -> Surroundings {
    Surroundings {
        is_virtual: facts.environment.hypervisor.is_some(),
        own_process: std::process::id(),
        siblings: siblings(facts),
        lines: lines(host, &facts.cpu_sets.online),
        throttler: throttler(facts),
        ..Surroundings::default()
    }
}

/// From Linux 6.12 on the fair server gives ordinary threads their time, and otherwise only control groups have a
/// real-time runtime.
fn throttler(facts: &Facts) -> Option<&'static str> {
    let is_known = !facts.kernel.release.is_empty();
    is_known.then_some(if facts.kernel.is_from((6, 12)) { FAIR_SERVER } else { RT_THROTTLING })
}

/// The other threads of each core that may run at the same time.
fn siblings(facts: &Facts) -> BTreeMap<CpuId, CpuSet> {
    let online = facts.cpus.iter().filter(|cpu| cpu.online);
    let others = online.map(|cpu| {
        let others = cpu.siblings.iter().filter(|it| *it != cpu.cpu && facts.cpu_sets.online.contains(*it));
        (cpu.cpu, others.collect::<CpuSet>())
    });
    others.filter(|(_, others)| !others.is_empty()).collect()
}

/// The devices of the interrupt lines.
fn lines(host: &HostRoot, online: &CpuSet) -> BTreeMap<u32, String> {
    let counted = Counts::read(host).unwrap_or_default();
    let lines = Counts::delta(&Counts::default(), &counted, online).into_iter();
    lines.filter_map(|record| Some((record.line.parse().ok()?, device(&record.description)))).collect()
}

/// Time stolen from a CPU since the last call for it; `None` if the kernel does not report it.
fn since_last(steal: &mut BTreeMap<CpuId, Nanos>, cpu: CpuId, now: Option<Nanos>) -> Option<u64> {
    let before = steal.get_mut(&cpu)?;
    let now = now?;
    Some(now.0.saturating_sub(std::mem::replace(before, now).0))
}

/// The counter of a CPU; `None` without one.
fn smis_of(host: &HostRoot, cpu: CpuId) -> Option<Smis> {
    let counter = SmiCounter::open(host, cpu).ok()?;
    let before = counter.read().ok()?;
    // The next read may come at once: this one is before the measurement, and interrupts nothing that is measured.
    let read_at = Instant::now().checked_sub(SMIS_READ_EVERY).unwrap_or_else(Instant::now);
    Some(Smis { counter, before, read_at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cpu_reports_the_steal_since_its_own_last_look() {
        let mut steal: BTreeMap<CpuId, Nanos> = (0..2).map(|cpu| (CpuId(cpu), Nanos(100))).collect();
        let mut since = |cpu, now| since_last(&mut steal, CpuId(cpu), now);
        assert_eq!(since(0, Some(Nanos(130))), Some(30));
        assert_eq!(since(0, Some(Nanos(130))), Some(0));
        assert_eq!(since(1, Some(Nanos(140))), Some(40), "the look at the other one took nothing of it");
        assert_eq!(since(1, Some(Nanos(90))), Some(0), "a counter may go back");
        assert_eq!(since(1, None), None);
        assert_eq!(since(2, Some(Nanos(140))), None, "not counted when the measurement began");
    }
}
