//! Finds the causes of spikes while a probe measures: reads what was recorded soon after each, and keeps the
//! explanations of the largest.

use crate::causes::Causes;
use crate::decompose::{Surroundings, Window, decompose};
use crate::error::BpfError;
use crate::settings::{HistogramsConfig, Measured};
use crate::snapshot::{Facility, ProgramCost};
use std::collections::BTreeMap;
use whylate_core::record::{IpiRecord, SpikeRecord};
use whylate_core::result::{Cause, CauseKind, Spike};
use whylate_core::{CpuId, Facts, Warning};
use whylate_sys::host::HostRoot;
use whylate_sys::host::cpu_stat::StealTimes;
use whylate_sys::host::interrupts::Counts;
use whylate_sys::host::smi::SmiCounter;

/// So many of the spikes that come at once are explained on each CPU, the largest first.
const AT_ONCE_MAX: usize = 64;
/// So many explanations are kept.
const KEPT_MAX: usize = 4_096;

/// The explanation of one spike.
struct Explained {
    latency_ns: u64,
    causes: Vec<Cause>,
    lost: u64,
}

/// Finds causes. The programs go when it is dropped.
pub struct CauseFinder {
    causes: Causes,
    measured: Measured,
    process: u32,
    surroundings: Surroundings,
    steal: Option<StealTimes>,
    smis: BTreeMap<CpuId, (SmiCounter, u32)>,
    explained: BTreeMap<(CpuId, u64), Explained>,
    warnings: Vec<Warning>,
}

impl CauseFinder {
    /// Begins to record what takes the measured CPUs.
    ///
    /// # Errors
    /// As [`Causes::start`], and in a container whose process ids are not the kernel's.
    pub fn start(measured: &Measured, facts: &Facts) -> Result<Self, BpfError> {
        if !sees_all_processes() {
            return Err(BpfError::Namespace);
        }
        let mut config = HistogramsConfig::new(measured.cpus.clone());
        config.kinds.clear();
        config.priority_min = config.priority_min.min(measured.priority);
        let mut causes = Causes::start(&measured.cpus, &config)?;
        // What attaching the programs itself sent to the CPUs is none of the measurement's.
        causes.ipis()?;
        let root = HostRoot::real();
        let counted = Counts::read(&root).unwrap_or_default();
        let lines = Counts::delta(&Counts::default(), &counted, &facts.cpu_sets.online);
        let lines = lines
            .into_iter()
            .filter_map(|record| Some((record.line.parse().ok()?, device(&record.description))))
            .collect();
        let smis = measured.cpus.iter().filter_map(|cpu| {
            let counter = SmiCounter::open(&root, cpu).ok()?;
            let now = counter.read().ok()?;
            Some((cpu, (counter, now)))
        });
        Ok(Self {
            warnings: causes.facilities().iter().filter_map(warning).collect(),
            causes,
            measured: measured.clone(),
            process: 0,
            surroundings: Surroundings {
                is_virtual: facts.environment.hypervisor.is_some(),
                lines,
                ..Surroundings::default()
            },
            steal: StealTimes::read(&root).ok(),
            smis: smis.collect(),
            explained: BTreeMap::new(),
        })
    }

    /// What is not recorded, as warnings.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// What is recorded, and what is not.
    pub fn facilities(&self) -> &[Facility] {
        self.causes.facilities()
    }

    /// What the programs cost so far.
    pub fn costs(&mut self) -> Vec<ProgramCost> {
        self.causes.histograms().costs()
    }

    /// The process that measures; to be told before its first spike.
    ///
    /// # Errors
    /// When the kernel does not take the change.
    pub fn armed(&mut self, process: u32) -> Result<(), BpfError> {
        self.process = process;
        self.causes.watch_process(process)
    }

    /// Explains spikes; call it soon after they happened.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn explain(&mut self, spikes: &[SpikeRecord]) -> Result<(), BpfError> {
        let now = StealTimes::read(&HostRoot::real()).ok();
        for cpu in self.measured.cpus.clone().iter() {
            let mut own: Vec<&SpikeRecord> = spikes.iter().filter(|spike| spike.cpu == cpu).collect();
            if own.is_empty() {
                continue;
            }
            own.sort_by_key(|spike| std::cmp::Reverse(spike.latency_ns));
            own.truncate(AT_ONCE_MAX);
            self.surroundings.steal_ns = match (&self.steal, &now) {
                (Some(before), Some(after)) => StealTimes::delta(before, after, cpu).map(|nanos| nanos.0),
                _ => None,
            };
            self.explain_cpu(cpu, &own)?;
        }
        self.steal = now;
        Ok(())
    }

    fn explain_cpu(&mut self, cpu: CpuId, spikes: &[&SpikeRecord]) -> Result<(), BpfError> {
        let begin = |spike: &SpikeRecord| spike.at_ns.saturating_sub(spike.latency_ns);
        let Some(first_ns) = spikes.iter().map(|spike| begin(spike)).min() else { return Ok(()) };
        let recording = self.causes.since(cpu, first_ns)?;
        for spike in spikes {
            let window = Window {
                cpu,
                from_ns: begin(spike),
                to_ns: spike.at_ns,
                is_timer: self.measured.is_timer,
                process: self.process,
                priority: self.measured.priority,
            };
            let within = recording.within(window.from_ns, window.to_ns);
            self.surroundings.smis = None;
            let mut causes = decompose(&window, &within, &self.surroundings);
            // Reading the counter interrupts the CPU that it is of: only where it may tell something.
            if causes.iter().any(|cause| cause.kind == CauseKind::Hardware) {
                self.surroundings.smis = self.smis_since(cpu);
                causes = decompose(&window, &within, &self.surroundings);
            }
            let explained = Explained { latency_ns: spike.latency_ns, causes, lost: within.lost };
            self.explained.insert((cpu, spike.at_ns), explained);
        }
        if self.explained.len() > KEPT_MAX {
            let mut latencies: Vec<u64> = self.explained.values().map(|one| one.latency_ns).collect();
            latencies.sort_unstable();
            let median = latencies[latencies.len() / 2];
            self.explained.retain(|_, one| one.latency_ns > median);
        }
        Ok(())
    }

    fn smis_since(&mut self, cpu: CpuId) -> Option<u64> {
        let (counter, before) = self.smis.get_mut(&cpu)?;
        let now = counter.read().ok()?;
        Some(SmiCounter::delta(std::mem::replace(before, now), now))
    }

    /// The causes of one spike, the first one and the others; `None` when it was not explained.
    pub fn causes_of(&self, cpu: CpuId, at_ns: u64) -> Option<&[Cause]> {
        self.explained.get(&(cpu, at_ns)).map(|one| one.causes.as_slice())
    }

    /// Puts the causes into the spikes that were explained.
    pub fn label(&self, spikes: &mut [Spike]) {
        for spike in spikes {
            let Some(explained) = self.explained.get(&(spike.cpu, spike.at_ns)) else { continue };
            let mut causes = explained.causes.iter().cloned();
            spike.cause = causes.next().unwrap_or_else(Cause::unattributed);
            spike.also = causes.collect();
            spike.lost = explained.lost;
        }
    }

    /// The interrupts that other CPUs sent to the measured ones since the last call.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn ipis(&mut self) -> Result<Vec<IpiRecord>, BpfError> {
        self.causes.ipis()
    }
}

/// Whether the process ids that this process sees are those of the kernel.
fn sees_all_processes() -> bool {
    // The first namespace has a number of its own in every kernel (PROC_PID_INIT_INO).
    HostRoot::real().read_link("/proc/self/ns/pid").is_none_or(|name| name == "pid:[4026531836]")
}

/// The devices of a line, without its chip: what follows the last word of several that name how it is wired.
fn device(description: &str) -> String {
    let wiring = |word: &str| {
        word.ends_with("-edge") || word.ends_with("-fasteoi") || word == "Edge" || word == "Level"
    };
    let words: Vec<&str> = description.split_ascii_whitespace().collect();
    let after = words.iter().rposition(|word| wiring(word)).map_or(0, |last| last + 1);
    words[after..].join(" ")
}

fn warning(facility: &Facility) -> Option<Warning> {
    let reason = facility.missing.as_ref()?;
    let text = format!("causes: {} are not recorded: {reason}", facility.name);
    Some(Warning::without_fix("causes-incomplete", text))
}

#[cfg(test)]
mod tests {
    use super::device;

    #[test]
    fn a_line_is_named_by_its_devices() {
        assert_eq!(device("IR-PCI-MSI-0000:01:00.0 0-edge nvkm"), "nvkm");
        assert_eq!(device("IO-APIC 2-edge timer"), "timer");
        assert_eq!(device("GICv3 27 Level arch_timer"), "arch_timer");
        assert_eq!(device("virtio0-input.0"), "virtio0-input.0");
    }
}
