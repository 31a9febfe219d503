//! The worst activations of each hour of a watch.

use std::collections::BTreeMap;
use whylate_core::record::SpikeCauses;
use whylate_core::result::{HourResult, Spike};
use whylate_stats::largest_spikes;

/// By probe, and by hours since its start.
#[derive(Default)]
pub(super) struct Hours {
    of_probe: BTreeMap<String, BTreeMap<u64, Vec<Spike>>>,
}

impl Hours {
    /// Takes an explained response of a series of a probe that began at `begin_ns`.
    pub(super) fn add(&mut self, probe: &str, series: &str, begin_ns: u64, explained: &SpikeCauses) {
        let hour = explained.at_ns.saturating_sub(begin_ns) / HourResult::LENGTH_NS;
        let hours = self.of_probe.entry(probe.to_owned()).or_default();
        let known = hours.entry(hour).or_default();
        let is_new = |spike: &Spike| (spike.at_ns, spike.probe.as_deref()) != (explained.at_ns, Some(series));
        if known.iter().all(is_new) {
            let mut spike = Spike::unexplained(explained.cpu, explained.at_ns, explained.latency_ns);
            spike.probe = Some(series.to_owned());
            spike.explain(explained.clone());
            *known = largest_spikes(std::mem::take(known).into_iter().chain([spike]), HourResult::KEPT);
        }
    }

    /// The hours of a probe; empty if everything was in the first hour.
    pub(super) fn take(&mut self, probe: &str) -> Vec<HourResult> {
        let hours = self.of_probe.remove(probe).unwrap_or_default();
        if hours.keys().all(|hour| *hour == 0) {
            return Vec::new();
        }
        let result = |(hour, spikes)| HourResult { after_ns: hour * HourResult::LENGTH_NS, spikes };
        hours.into_iter().map(result).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::CpuId;

    fn explained(at_ns: u64, latency_ns: u64) -> SpikeCauses {
        let cpu = CpuId(1);
        SpikeCauses { cpu, series: None, at_ns, latency_ns, causes: Vec::new(), lost: 0 }
    }

    #[test]
    fn each_hour_has_its_worst_and_a_short_watch_has_none() {
        let hour = HourResult::LENGTH_NS;
        let mut hours = Hours::default();
        // The first part comes twice, as if stored in two tables.
        let all =
            [(20, 5), (20, 5), (30, 9), (40, 7), (50, 1), (hour + 10, 2), (hour + 2_000, 3), (3 * hour, 4)];
        for (at_ns, latency_ns) in all {
            hours.add("task", "task/audio", 10, &explained(at_ns, latency_ns));
        }
        let found = hours.take("task");
        let by_hour: Vec<(u64, Vec<u64>)> = found
            .iter()
            .map(|it| (it.after_ns / hour, it.spikes.iter().map(|spike| spike.latency_ns).collect()))
            .collect();
        assert_eq!(by_hour, [(0, vec![9, 7, 5]), (1, vec![3, 2]), (2, vec![4])]);
        assert_eq!(found[0].spikes[0].probe.as_deref(), Some("task/audio"));
        hours.add("task", "task/audio", 10, &explained(20, 5));
        assert!(hours.take("task").is_empty());
    }
}
