//! Interrupts between CPUs by their kind alone, from /proc/interrupts: what is left where the kernel tells no more.

use whylate_core::record::{InterruptRecord, IpiRecord};
use whylate_core::{CpuId, CpuSet};
use whylate_sys::host::HostRoot;
use whylate_sys::host::interrupts::Counts;

/// Counts of interrupts that other CPUs sent, without function, caller and sender.
#[derive(Debug)]
pub struct IpisByKind {
    cpus: CpuSet,
    before: Counts,
}

impl IpisByKind {
    /// Begins to count on these CPUs.
    pub fn start(cpus: &CpuSet) -> Self {
        Self { cpus: cpus.clone(), before: Counts::read(&HostRoot::real()).unwrap_or_default() }
    }

    /// What was counted since the last call; nothing where /proc/interrupts cannot be read.
    pub fn take(&mut self) -> Vec<IpiRecord> {
        let now = Counts::read(&HostRoot::real()).unwrap_or_default();
        let records = by_kind(&Counts::delta(&self.before, &now, &self.cpus));
        self.before = now;
        records
    }
}

/// By the lines of /proc/interrupts: CAL includes TLB.
fn by_kind(counts: &[InterruptRecord]) -> Vec<IpiRecord> {
    let count = |cpu: CpuId, line: &str| {
        let found = counts.iter().find(|record| record.cpu == cpu && record.line == line);
        found.map_or(0, |record| record.count)
    };
    let cpus: CpuSet = counts.iter().map(|record| record.cpu).collect();
    let mut records = Vec::new();
    for cpu in cpus.iter() {
        let flushes = count(cpu, "TLB");
        let kinds = [
            ("call_function", count(cpu, "CAL").saturating_sub(flushes)),
            ("tlb_flush", flushes),
            ("reschedule", count(cpu, "RES")),
        ];
        let sent = kinds.into_iter().filter(|(_, count)| *count > 0);
        records.extend(sent.map(|(function, count)| IpiRecord {
            cpu,
            function: function.to_owned(),
            count,
            ..IpiRecord::default()
        }));
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_without_the_flushes_among_them() {
        let line = |line: &str, count| InterruptRecord {
            cpu: CpuId(1),
            line: line.to_owned(),
            description: String::new(),
            count,
        };
        let records = by_kind(&[line("CAL", 30), line("TLB", 10), line("LOC", 500)]);
        let found: Vec<(&str, u64)> =
            records.iter().map(|record| (record.function.as_str(), record.count)).collect();
        assert_eq!(found, [("call_function", 20), ("tlb_flush", 10)]);
    }
}
