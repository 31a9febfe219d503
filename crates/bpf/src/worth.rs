//! From which lateness on a stack is worth its cost: where the probe would keep the spike.

use std::collections::BTreeMap;
use whylate_core::CpuId;
use whylate_core::record::SpikeRecord;
use whylate_stats::Largest;

/// A stack costs 3 us and more: what is less late than this is worth none.
const LEAST_NS: u64 = 10_000;
/// A spike is late by its timer and by its wake-up: each may have half of it.
const PARTS: u64 = 2;

/// The largest spikes of each CPU whose probe waits for a timer, and what the programs were told of them.
#[derive(Default)]
pub(crate) struct Worth {
    cpus: BTreeMap<CpuId, CpuWorth>,
}

/// One CPU.
struct CpuWorth {
    /// Latency and moment of what the probe keeps.
    largest: Largest<(u64, u64)>,
    told_ns: u64,
}

impl Worth {
    /// Nothing is known yet of these CPUs, whose probes keep so many spikes of each.
    pub(crate) fn new(cpus: impl Iterator<Item = (CpuId, usize)>) -> Self {
        let unknown = |kept| CpuWorth { largest: Largest::new(kept), told_ns: LEAST_NS };
        Self { cpus: cpus.map(|(cpu, kept)| (cpu, unknown(kept))).collect() }
    }

    /// What the programs are to be told at the begin.
    pub(crate) fn told(&self) -> Vec<(CpuId, u64)> {
        self.cpus.iter().map(|(cpu, worth)| (*cpu, worth.told_ns)).collect()
    }

    /// Spikes that the probes have kept, at least for now; from which lateness on stacks are worth keeping now, where that has
    /// become much more.
    pub(crate) fn learn(&mut self, spikes: &[SpikeRecord]) -> Vec<(CpuId, u64)> {
        for spike in spikes {
            if let Some(worth) = self.cpus.get_mut(&spike.cpu) {
                worth.largest.offer((spike.latency_ns, spike.at_ns));
            }
        }
        self.cpus.iter_mut().filter_map(|(cpu, worth)| Some((*cpu, worth.rise()?))).collect()
    }
}

impl CpuWorth {
    /// The new bound; `None` while it is about what was told.
    fn rise(&mut self) -> Option<u64> {
        let (least_ns, _) = self.largest.least()?;
        let bound_ns = (least_ns / PARTS).max(LEAST_NS);
        if bound_ns <= self.told_ns + self.told_ns / 8 {
            return None;
        }
        self.told_ns = bound_ns;
        Some(bound_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spikes(cpu: u32, latencies_us: &[u64]) -> Vec<SpikeRecord> {
        let spike = |(number, latency_us): (usize, &u64)| SpikeRecord {
            cpu: CpuId(cpu),
            series: None,
            at_ns: number as u64,
            latency_ns: latency_us * 1000,
            sample: number as u64,
        };
        latencies_us.iter().enumerate().map(spike).collect()
    }

    #[test]
    fn only_what_a_probe_would_keep_is_worth_a_stack() {
        let mut worth = Worth::new([(CpuId(1), 3)].into_iter());
        assert_eq!(worth.told(), [(CpuId(1), LEAST_NS)]);
        assert_eq!(worth.learn(&spikes(1, &[400, 300])), [], "a third one is kept, however small");
        assert_eq!(worth.learn(&spikes(1, &[200])), [(CpuId(1), 100_000)]);
        assert_eq!(worth.learn(&spikes(1, &[210])), [], "about the same");
        assert_eq!(worth.learn(&spikes(1, &[900, 800])), [(CpuId(1), 200_000)]);
        assert_eq!(worth.learn(&spikes(0, &[900, 900, 900])), [], "of a CPU whose stacks nobody wants");
    }

    #[test]
    fn the_bound_never_falls_below_what_a_stack_costs() {
        let mut worth = Worth::new([(CpuId(0), 1)].into_iter());
        assert_eq!(worth.learn(&spikes(0, &[12])), []);
        assert_eq!(worth.learn(&spikes(0, &[24])), [(CpuId(0), 12_000)]);
    }
}
