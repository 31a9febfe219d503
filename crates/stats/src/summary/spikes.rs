//! The largest spikes of a probe's data.

use crate::Largest;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use whylate_core::CpuId;
use whylate_core::order::InOrder;
use whylate_core::record::SpikeRecord;
use whylate_core::result::Spike;

/// A spike in the order of size; of two equal ones the earlier counts as larger.
type Ordered = (u64, Reverse<u64>, u64, u32, Option<u32>, Option<u32>);

/// Keeps the largest spikes.
#[derive(Clone, Debug)]
pub(super) struct SpikeKeeper {
    kept: Largest<Ordered>,
    /// The largest one, kept even if no spikes are wanted: it has the moment of the maximum.
    largest: Option<Ordered>,
}

impl SpikeKeeper {
    pub(super) fn new(kept_max: usize) -> Self {
        Self { kept: Largest::new(kept_max), largest: None }
    }

    pub(super) fn add(&mut self, spike: &SpikeRecord, repeat: Option<u32>) {
        let ordered = (
            spike.latency_ns,
            Reverse(spike.at_ns),
            spike.sample,
            spike.cpu.0,
            repeat,
            spike.ended_on.map(|cpu| cpu.0),
        );
        self.largest = self.largest.max(Some(ordered));
        self.kept.offer(ordered);
    }

    /// When the largest spike ended, if it has this size.
    pub(super) fn moment_of(&self, latency_ns: u64) -> Option<u64> {
        self.largest.filter(|largest| largest.0 == latency_ns).map(|largest| largest.1.0)
    }

    /// Largest first.
    pub(super) fn into_spikes(self, probe: &str) -> Vec<Spike> {
        let spike = |(latency_ns, Reverse(at_ns), sample, cpu, repeat, ended_on): Ordered| Spike {
            sample,
            probe: Some(probe.to_owned()),
            repeat,
            ended_on: ended_on.map(CpuId),
            ..Spike::unexplained(CpuId(cpu), at_ns, latency_ns)
        };
        self.kept.into_descending().map(spike).collect()
    }
}

/// The `kept_max` largest spikes of the CPUs of a probe or the probes of a cell, largest first, ties by time. Each series
/// keeps as many as the others, if it has that many: those of one series never displace the largest of another.
pub fn largest_of_each(spikes: impl IntoIterator<Item = Spike>, kept_max: usize) -> Vec<Spike> {
    let all = largest_spikes(spikes, usize::MAX);
    let mut numbers: BTreeMap<Option<String>, usize> = BTreeMap::new();
    let mut ranked: Vec<(usize, Spike)> = Vec::with_capacity(all.len());
    for spike in all {
        let rank = numbers.entry(spike.probe.clone()).or_default();
        ranked.push((*rank, spike));
        *rank += 1;
    }
    // The sort is stable: spikes of the same rank stay in the order of size.
    ranked.order_by_key(|(rank, _)| *rank);
    ranked.truncate(kept_max);
    largest_spikes(ranked.into_iter().map(|(_, spike)| spike), kept_max)
}

/// The `kept_max` largest of all spikes, largest first, ties by time.
pub fn largest_spikes(spikes: impl IntoIterator<Item = Spike>, kept_max: usize) -> Vec<Spike> {
    let mut spikes: Vec<Spike> = spikes.into_iter().collect();
    spikes.order_by_key(|spike| (Reverse(spike.latency_ns), spike.at_ns, spike.cpu));
    spikes.truncate(kept_max);
    spikes
}

/// Keeps the `kept_max` entries that come first in an order without ties, such as that of [`largest_spikes`].
pub fn keep_first<K: Ord, V, O: Ord>(
    entries: &mut BTreeMap<K, V>,
    kept_max: usize,
    order: impl Fn(&K, &V) -> O,
) {
    if entries.len() > kept_max {
        let mut places: Vec<O> = entries.iter().map(|(key, value)| order(key, value)).collect();
        let (_, first_left_out, _) = places.select_nth_unstable(kept_max);
        entries.retain(|key, value| order(key, value) < *first_left_out);
    }
}
