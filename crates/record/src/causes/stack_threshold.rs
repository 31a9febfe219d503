//! The latency above which a stack is recorded: if the probe would keep the spike.

use std::collections::BTreeMap;
use whylate_core::CpuId;
use whylate_core::record::SpikeRecord;
use whylate_stats::Largest;

/// Recording a stack takes 3 us and more: never below this latency.
const LEAST_NS: u64 = 10_000;
/// A spike is late through its timer and through its wake-up: each may have half of it.
const PARTS: u64 = 2;

/// The largest spikes of each CPU whose probe waits for a timer, and the thresholds of the programs.
#[derive(Default)]
pub(crate) struct StackThresholds {
    cpus: BTreeMap<CpuId, CpuThreshold>,
}

/// One CPU.
struct CpuThreshold {
    /// Latency and time of the spikes that the probe keeps.
    largest: Largest<(u64, u64)>,
    /// Spikes from here on are counted by cause.
    late_above_ns: u64,
    current_ns: u64,
}

impl StackThresholds {
    /// CPUs with the number of spikes that their probe keeps of each, and the latency from which all are counted, in
    /// ns.
    pub(crate) fn new(cpus: impl Iterator<Item = (CpuId, usize, u64)>) -> Self {
        let new = |kept, late_above_ns| CpuThreshold {
            largest: Largest::new(kept),
            late_above_ns: if late_above_ns == 0 { u64::MAX } else { late_above_ns },
            current_ns: LEAST_NS,
        };
        Self { cpus: cpus.map(|(cpu, kept, late_above_ns)| (cpu, new(kept, late_above_ns))).collect() }
    }

    /// The threshold of each CPU.
    pub(crate) fn current(&self) -> Vec<(CpuId, u64)> {
        self.cpus.iter().map(|(cpu, one)| (*cpu, one.current_ns)).collect()
    }

    /// Takes spikes that the probes keep, at least for now. Returns the thresholds that this raised, by an eighth or
    /// more.
    pub(crate) fn learn(&mut self, spikes: &[SpikeRecord]) -> Vec<(CpuId, u64)> {
        for spike in spikes {
            if let Some(one) = self.cpus.get_mut(&spike.cpu) {
                one.largest.offer((spike.latency_ns, spike.at_ns));
            }
        }
        self.cpus.iter_mut().filter_map(|(cpu, one)| Some((*cpu, one.rise()?))).collect()
    }
}

impl CpuThreshold {
    /// The new threshold; `None` while it is less than an eighth above the current one.
    fn rise(&mut self) -> Option<u64> {
        let (least_ns, _) = self.largest.least()?;
        let new_ns = ((*least_ns).min(self.late_above_ns) / PARTS).max(LEAST_NS);
        if new_ns <= self.current_ns + self.current_ns / 8 {
            return None;
        }
        self.current_ns = new_ns;
        Some(new_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spikes(cpu: u32, latencies_us: &[u64]) -> Vec<SpikeRecord> {
        let spike = |(number, latency_us): (usize, &u64)| SpikeRecord {
            cpu: CpuId(cpu),
            at_ns: number as u64,
            latency_ns: latency_us * 1000,
            sample: number as u64,
            ..SpikeRecord::default()
        };
        latencies_us.iter().enumerate().map(spike).collect()
    }

    #[test]
    fn a_stack_is_recorded_where_the_probe_would_keep_the_spike() {
        let mut thresholds = StackThresholds::new([(CpuId(1), 3, 0)].into_iter());
        assert_eq!(thresholds.current(), [(CpuId(1), LEAST_NS)]);
        assert_eq!(thresholds.learn(&spikes(1, &[400, 300])), [], "a third one is kept, however small");
        assert_eq!(thresholds.learn(&spikes(1, &[200])), [(CpuId(1), 100_000)]);
        assert_eq!(thresholds.learn(&spikes(1, &[210])), [], "about the same");
        assert_eq!(thresholds.learn(&spikes(1, &[900, 800])), [(CpuId(1), 200_000)]);
        assert_eq!(thresholds.learn(&spikes(0, &[900, 900, 900])), [], "of a CPU without a threshold");
    }

    #[test]
    fn the_threshold_never_falls_below_the_cost_of_a_stack() {
        let mut thresholds = StackThresholds::new([(CpuId(0), 1, 0)].into_iter());
        assert_eq!(thresholds.learn(&spikes(0, &[12])), []);
        assert_eq!(thresholds.learn(&spikes(0, &[24])), [(CpuId(0), 12_000)]);
    }

    #[test]
    fn stacks_are_kept_for_all_spikes_that_the_ledger_counts() {
        let mut thresholds = StackThresholds::new([(CpuId(0), 1, 50_000)].into_iter());
        assert_eq!(thresholds.learn(&spikes(0, &[900])), [(CpuId(0), 25_000)]);
        assert_eq!(thresholds.learn(&spikes(0, &[1_800])), []);
    }
}
