//! The kernel's own counters of the measured CPUs: interrupts, softirqs, steal, system-management interrupts.
//!
//! They show how often, not how long or when: they are evidence for a spike, never its cause.
//!
//! Reading the counter of system-management interrupts interrupts its CPU, so it is read only before and after the
//! measurement. Its count is in the last stored interval.

use std::collections::BTreeMap;
use whylate_core::record::{CounterRecord, InterruptRecord};
use whylate_core::{CpuId, CpuSet, Warning, WarningCode};
use whylate_host::HostRoot;
use whylate_host::cpu_stat::StealTimes;
use whylate_host::interrupts::Counts;
use whylate_host::smi::SmiCounter;

/// Counters since the last look.
pub(crate) struct Accounting {
    root: HostRoot,
    cpus: CpuSet,
    /// As they were read last; absent while they could not be read.
    interrupts: Option<Counts>,
    stat: Option<StealTimes>,
    smis: BTreeMap<CpuId, (SmiCounter, u32)>,
}

impl Accounting {
    /// Begins to count on `cpus`; a counter that cannot be read becomes a warning.
    pub(crate) fn start(root: &HostRoot, cpus: &CpuSet, warnings: &mut Vec<Warning>) -> Self {
        let interrupts = read_interrupts(root);
        if interrupts.is_none() {
            warnings.push(Warning::new(
                WarningCode::NoInterruptCounts,
                "/proc/interrupts cannot be read here: interrupts are not counted",
            ));
        }
        let mut smis = BTreeMap::new();
        for cpu in cpus.iter().filter(|_| SmiCounter::HAS_SMIS) {
            match SmiCounter::open(root, cpu).and_then(|counter| counter.read().map(|now| (counter, now))) {
                Ok(counter) => {
                    smis.insert(cpu, counter);
                }
                Err(unavailable) => {
                    let text = format!("system-management interrupts are not counted: {unavailable}");
                    whylate_core::warning::push_once(warnings, Warning::new(WarningCode::NoSmiCounter, text));
                    break;
                }
            }
        }
        let stat = StealTimes::read(root).ok();
        Self { root: root.clone(), cpus: cpus.clone(), interrupts, stat, smis }
    }

    /// What was counted since the last call, at the end of the measurement.
    pub(crate) fn finish(&mut self) -> (Vec<InterruptRecord>, Vec<CounterRecord>) {
        let (interrupts, mut counters) = self.take();
        for counter in &mut counters {
            if let Some((source, before)) = self.smis.get_mut(&counter.cpu)
                && let Ok(after) = source.read()
            {
                counter.smis = Some(SmiCounter::delta(*before, after));
                *before = after;
            }
        }
        (interrupts, counters)
    }

    /// What was counted since the last call, without counters whose reading would interrupt the CPUs.
    pub(crate) fn take(&mut self) -> (Vec<InterruptRecord>, Vec<CounterRecord>) {
        // The next read includes the counts that a failed read missed.
        let now = read_interrupts(&self.root);
        let interrupts = match (&self.interrupts, &now) {
            (Some(before), Some(now)) => Counts::delta(before, now, &self.cpus),
            _ => Vec::new(),
        };
        self.interrupts = now.or(self.interrupts.take());
        let stat = StealTimes::read(&self.root).ok();
        let steal = |cpu| match (&self.stat, &stat) {
            (Some(before), Some(after)) => StealTimes::delta(before, after, cpu).map(|nanos| nanos.0),
            _ => None,
        };
        let counters = self
            .cpus
            .iter()
            .map(|cpu| CounterRecord { cpu, steal_ns: steal(cpu), ..CounterRecord::default() })
            .collect();
        self.stat = stat.or(self.stat.take());
        (interrupts, counters)
    }
}

/// `None` if nothing is counted.
fn read_interrupts(root: &HostRoot) -> Option<Counts> {
    Counts::read(root).ok().filter(|counts| !counts.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_failed_loses_nothing_and_brings_nothing_from_before() {
        let folder = tempfile::tempdir().unwrap();
        let root = HostRoot::at(folder.path());
        let proc = folder.path().join("proc");
        std::fs::create_dir(&proc).unwrap();
        let path = proc.join("interrupts");
        let write =
            |count: u64| std::fs::write(&path, format!("CPU0\n RES: {count} Rescheduling\n")).unwrap();
        let mut accounting = Accounting {
            interrupts: None,
            root,
            cpus: "0".parse().unwrap(),
            stat: None,
            smis: BTreeMap::new(),
        };
        let counted = |accounting: &mut Accounting| -> Vec<u64> {
            accounting.take().0.iter().map(|record| record.count).collect()
        };
        write(1_000);
        assert!(counted(&mut accounting).is_empty(), "since boot, not since the start");
        write(1_003);
        assert_eq!(counted(&mut accounting), [3]);
        std::fs::remove_file(&path).unwrap();
        assert!(counted(&mut accounting).is_empty());
        write(1_010);
        assert_eq!(counted(&mut accounting), [7]);
    }
}
