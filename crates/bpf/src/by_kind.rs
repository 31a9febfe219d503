//! Interrupts between CPUs by their kind alone, from /proc/interrupts: for kernels that do not show the senders.

use whylate_core::record::{InterruptRecord, IpiRecord};
use whylate_core::{CpuId, CpuSet};
use whylate_host::HostRoot;
use whylate_host::interrupts::Counts;

/// Counts of interrupts that other CPUs sent, without function, caller and sender.
#[derive(Debug)]
pub struct IpisByKind {
    host: HostRoot,
    cpus: CpuSet,
    /// Absent until /proc/interrupts could be read.
    before: Option<Counts>,
}

impl IpisByKind {
    /// Begins to count on these CPUs.
    pub fn start(host: &HostRoot, cpus: &CpuSet) -> Self {
        Self { host: host.clone(), cpus: cpus.clone(), before: Counts::read(host).ok() }
    }

    /// What was counted since the last call; nothing where /proc/interrupts cannot be read.
    pub fn take(&mut self) -> Vec<IpiRecord> {
        self.since_last(Counts::read(&self.host).ok())
    }

    /// The next read includes the counts that a failed read missed.
    fn since_last(&mut self, now: Option<Counts>) -> Vec<IpiRecord> {
        let Some(now) = now else { return Vec::new() };
        let before = self.before.replace(now);
        let records =
            before.zip(self.before.as_ref()).map(|(before, now)| Counts::delta(&before, now, &self.cpus));
        records.map(|records| by_kind(&records)).unwrap_or_default()
    }
}

/// By the descriptions in /proc/interrupts: the names of the lines differ between architectures (CAL, TLB and RES on x86,
/// IPI0 and so on elsewhere), these words do not. Function calls include flushes.
fn by_kind(counts: &[InterruptRecord]) -> Vec<IpiRecord> {
    let count = |cpu: CpuId, description: &str| -> u64 {
        let found = counts.iter().filter(|record| record.cpu == cpu && record.description == description);
        found.map(|record| record.count).sum()
    };
    let cpus: CpuSet = counts.iter().map(|record| record.cpu).collect();
    let mut records = Vec::new();
    for cpu in cpus.iter() {
        let flushes = count(cpu, "TLB shootdowns");
        let kinds = [
            ("call_function", count(cpu, "Function call interrupts").saturating_sub(flushes)),
            ("tlb_flush", flushes),
            ("reschedule", count(cpu, "Rescheduling interrupts")),
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

    const X86: &str = "           CPU0       CPU1
 LOC:        900        500   Local timer interrupts
 RES:          4          0   Rescheduling interrupts
 CAL:         20         30   Function call interrupts
 TLB:         20         10   TLB shootdowns
";

    const ARM64: &str = "           CPU0       CPU1
 11:        900        500    GICv3  26 Level     arch_timer
IPI0:          4          0       Rescheduling interrupts
IPI1:         20         30       Function call interrupts
IPI4:          7          9       Timer broadcast interrupts
";

    fn found(records: &[IpiRecord]) -> Vec<(u32, &str, u64)> {
        records.iter().map(|record| (record.cpu.0, record.function.as_str(), record.count)).collect()
    }

    fn counted(text: &str) -> Vec<IpiRecord> {
        let cpus = "0-1".parse().unwrap();
        by_kind(&Counts::delta(&Counts::default(), &Counts::parse(text, ""), &cpus))
    }

    #[test]
    fn calls_are_counted_without_the_flushes_among_them() {
        let records = counted(X86);
        let expected =
            [(0, "tlb_flush", 20), (0, "reschedule", 4), (1, "call_function", 20), (1, "tlb_flush", 10)];
        assert_eq!(found(&records), expected);
    }

    #[test]
    fn lines_of_other_architectures_are_known_by_their_words() {
        let records = counted(ARM64);
        let expected = [(0, "call_function", 20), (0, "reschedule", 4), (1, "call_function", 30)];
        assert_eq!(found(&records), expected);
    }

    #[test]
    fn a_read_that_failed_loses_nothing_and_brings_nothing_from_before() {
        let at = |count: u64| {
            let text = format!("CPU0\n RES: {count} Rescheduling interrupts\n");
            Some(Counts::parse(&text, ""))
        };
        let mut ipis = IpisByKind { host: HostRoot::real(), cpus: "0".parse().unwrap(), before: None };
        assert_eq!(ipis.since_last(at(1_000)), [], "since boot, not since the start");
        assert_eq!(found(&ipis.since_last(at(1_003))), [(0, "reschedule", 3)]);
        assert_eq!(ipis.since_last(None), []);
        assert_eq!(found(&ipis.since_last(at(1_010))), [(0, "reschedule", 7)]);
    }
}
