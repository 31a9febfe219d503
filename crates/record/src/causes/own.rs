//! The machine's own latency: samples less what the hypervisor or the firmware provably took of them.

use std::collections::BTreeMap;
use whylate_core::CpuId;
use whylate_core::record::OwnRecord;
use whylate_core::result::{Cause, CauseKind};
use whylate_stats::buckets::{index_of, lower_edge};

/// The confidence that a stall needs which the host does not count.
const SURE: f64 = 0.85;

/// What is subtracted from a sample: counted firmware interrupts, stolen time that was counted, and stalls by the host in which
/// neither the kernel nor the task can have had the CPU.
fn taken_ns(latency_ns: u64, causes: &[Cause]) -> u64 {
    let is_proved = |cause: &&Cause| match cause.kind {
        CauseKind::Smi | CauseKind::Steal => true,
        CauseKind::HostStall => cause.confidence.is_some_and(|it| it >= SURE),
        _ => false,
    };
    let share: f64 = causes.iter().filter(is_proved).filter_map(|cause| cause.share).sum();
    ((share * latency_ns as f64).round() as u64).min(latency_ns)
}

/// The moves from bucket to bucket since they were last taken: bounded by the number of buckets.
#[derive(Default)]
pub(crate) struct Own {
    moves: BTreeMap<(CpuId, u64), OwnRecord>,
}

impl Own {
    /// Looks at one sample.
    pub(crate) fn add(&mut self, cpu: CpuId, latency_ns: u64, causes: &[Cause]) {
        let taken_ns = taken_ns(latency_ns, causes);
        if taken_ns == 0 {
            return;
        }
        let own_ns = latency_ns - taken_ns;
        let from = self.bucket(cpu, latency_ns);
        from.removed += 1;
        from.taken_ns += taken_ns;
        let to = self.bucket(cpu, own_ns);
        to.added += 1;
        to.max_ns = to.max_ns.max(Some(own_ns));
    }

    fn bucket(&mut self, cpu: CpuId, value_ns: u64) -> &mut OwnRecord {
        let lower_ns = lower_edge(index_of(value_ns));
        self.moves.entry((cpu, lower_ns)).or_insert(OwnRecord { cpu, lower_ns, ..OwnRecord::default() })
    }

    /// The moves, with a row for each of these CPUs, which were looked at.
    pub(crate) fn take(&mut self, looked_at: impl Iterator<Item = CpuId>) -> Vec<OwnRecord> {
        for cpu in looked_at {
            self.bucket(cpu, 0);
        }
        std::mem::take(&mut self.moves).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(kind: CauseKind, share: f64, confidence: f64) -> Cause {
        Cause { share: Some(share), confidence: Some(confidence), ..Cause::new(kind) }
    }

    #[test]
    fn what_the_host_took_is_subtracted_and_nothing_else() {
        let cpu = CpuId(1);
        let mut own = Own::default();
        let thread = cause(CauseKind::Thread, 0.25, 1.0);
        own.add(cpu, 1_000_000, &[cause(CauseKind::Steal, 0.75, 0.95), thread.clone()]);
        own.add(cpu, 2_000_000, &[cause(CauseKind::HostStall, 0.9, 0.89), cause(CauseKind::Smi, 0.1, 0.95)]);
        for kept in [
            cause(CauseKind::HostStall, 1.0, 0.75),
            cause(CauseKind::Hardware, 1.0, 0.95),
            cause(CauseKind::TimerLate, 1.0, 0.89),
            cause(CauseKind::Unattributed, 1.0, 0.0),
            thread,
        ] {
            own.add(cpu, 3_000_000, &[kept]);
        }
        let moves = own.take([cpu, CpuId(2)].into_iter());
        let sum = |of: fn(&OwnRecord) -> u64| moves.iter().map(of).sum::<u64>();
        assert_eq!((sum(|it| it.removed), sum(|it| it.added), sum(|it| it.taken_ns)), (2, 2, 2_750_000));
        let largest = moves.iter().filter_map(|it| it.max_ns).max();
        assert_eq!(largest, Some(250_000));
        assert_eq!(moves.iter().filter(|it| it.cpu == CpuId(2)).count(), 1, "looked at, and nothing taken");
        assert!(own.take(std::iter::empty()).is_empty());
    }
}
