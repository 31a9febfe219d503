//! What took the time of loops that never sleep: the sums of the causes of their gaps.

use std::collections::BTreeMap;
use whylate_core::CpuId;
use whylate_core::record::SourceRecord;
use whylate_core::result::{Cause, CauseKind};

/// More sources than this are not listed one by one: those that come later are counted by their kind alone.
const SOURCES_MAX: usize = 1_024;

type Source = (CpuId, CauseKind, Option<String>, Option<String>);

/// The sums since they were last taken.
#[derive(Default)]
pub(crate) struct Account {
    sources: BTreeMap<Source, SourceRecord>,
}

impl Account {
    /// Adds the causes of one gap.
    pub(crate) fn add(&mut self, cpu: CpuId, length_ns: u64, causes: &[Cause]) {
        let mut known_ns = 0;
        for cause in causes.iter().filter(|cause| cause.kind != CauseKind::Unattributed) {
            let took_ns = (cause.share.unwrap_or(0.0) * length_ns as f64).round() as u64;
            known_ns += took_ns;
            self.count(cpu, cause, took_ns);
        }
        if let left_ns @ 1.. = length_ns.saturating_sub(known_ns) {
            self.count(cpu, &Cause::new(CauseKind::Unattributed), left_ns);
        }
    }

    fn count(&mut self, cpu: CpuId, cause: &Cause, took_ns: u64) {
        let whole = (cpu, cause.kind, cause.actor.clone(), cause.function.clone());
        let is_listed = self.sources.len() < SOURCES_MAX || self.sources.contains_key(&whole);
        let source = if is_listed { whole } else { (cpu, cause.kind, None, None) };
        let record = self.sources.entry(source).or_default();
        record.gaps += 1;
        record.total_ns += took_ns;
        record.max_ns = record.max_ns.max(took_ns);
    }

    pub(crate) fn take(&mut self) -> Vec<SourceRecord> {
        let named =
            |((cpu, kind, actor, function), record)| SourceRecord { cpu, kind, actor, function, ..record };
        std::mem::take(&mut self.sources).into_iter().map(named).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(kind: CauseKind, actor: &str, share: f64) -> Cause {
        Cause { actor: Some(actor.to_owned()), share: Some(share), ..Cause::new(kind) }
    }

    #[test]
    fn what_the_sources_took_and_what_is_left_add_up_to_the_gaps() {
        let mut account = Account::default();
        let tick = |share| cause(CauseKind::Irq, "timer", share);
        account.add(CpuId(1), 10_000, &[tick(0.7), cause(CauseKind::Softirq, "RCU", 0.1)]);
        account.add(CpuId(1), 5_000, &[tick(1.0)]);
        account.add(CpuId(2), 3_000, &[Cause::new(CauseKind::Unattributed)]);
        let taken = account.take();
        let of = |kind: CauseKind, cpu: u32| {
            let found = taken.iter().find(|it| it.kind == kind && it.cpu == CpuId(cpu)).unwrap();
            (found.gaps, found.total_ns, found.max_ns)
        };
        assert_eq!(of(CauseKind::Irq, 1), (2, 12_000, 7_000));
        assert_eq!(of(CauseKind::Softirq, 1), (1, 1_000, 1_000));
        assert_eq!(of(CauseKind::Unattributed, 1), (1, 2_000, 2_000));
        assert_eq!(of(CauseKind::Unattributed, 2), (1, 3_000, 3_000));
        assert_eq!(taken.iter().map(|it| it.total_ns).sum::<u64>(), 18_000);
        assert!(account.take().is_empty());
    }

    #[test]
    fn very_many_sources_are_counted_by_their_kind() {
        let mut account = Account::default();
        for nth in 0..2_000 {
            account.add(CpuId(0), 10, &[cause(CauseKind::Thread, &format!("thread-{nth}"), 1.0)]);
        }
        let taken = account.take();
        assert_eq!(taken.len(), SOURCES_MAX + 1);
        assert_eq!(taken.iter().map(|it| it.gaps).sum::<u64>(), 2_000);
    }
}
