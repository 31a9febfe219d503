//! The chains of each probe, with where the time of their longest instances went.

use std::collections::BTreeMap;
use whylate_core::plan::Chain;
use whylate_core::result::{ChainPath, ChainRecord, ChainResult, CpuResult};

#[derive(Default)]
pub(super) struct ChainSums {
    /// By probe, in the order of their arrival.
    of_probe: BTreeMap<String, Vec<ChainResult>>,
}

impl ChainSums {
    fn of(&mut self, probe: &str, name: &str) -> &mut ChainResult {
        let all = self.of_probe.entry(probe.to_owned()).or_default();
        let nth = all.iter().position(|it| it.record.name == name).unwrap_or_else(|| {
            let record = ChainRecord { name: name.to_owned(), ..ChainRecord::default() };
            all.push(ChainResult { record, ..ChainResult::default() });
            all.len() - 1
        });
        &mut all[nth]
    }

    pub(super) fn add(&mut self, probe: &str, record: &ChainRecord) {
        self.of(probe, &record.name).record.add(record);
    }

    pub(super) fn add_path(&mut self, probe: &str, path: ChainPath) {
        self.of(probe, &path.name).explain(path);
    }

    /// Those of a probe, which measured for that long, with their series among its results.
    pub(super) fn take(&mut self, probe: &str, measured_ns: u64, series: &[CpuResult]) -> Vec<ChainResult> {
        let mut all = self.of_probe.remove(probe).unwrap_or_default();
        for one in &mut all {
            let name = Chain::series_of(&one.record.name);
            let of_all = series.iter().filter(|it| it.series.as_deref() == Some(&name));
            one.quantiles = of_all.max_by_key(|it| it.samples).and_then(|it| it.quantiles);
            one.per_s =
                if measured_ns == 0 { 0.0 } else { one.record.instances as f64 * 1e9 / measured_ns as f64 };
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::result::Quantiles;

    #[test]
    fn a_chain_has_its_counts_its_quantiles_and_its_longest_path() {
        let mut chains = ChainSums::default();
        let record = |instances| ChainRecord {
            name: "frame".to_owned(),
            instances,
            late: 1,
            ..ChainRecord::default()
        };
        chains.add("task", &record(30));
        chains.add("task", &record(20));
        for latency_ns in [7, 9, 8] {
            let name = "frame".to_owned();
            chains.add_path("task", ChainPath { name, latency_ns, ..ChainPath::default() });
        }
        let quantiles = Some(Quantiles { max_ns: 9, ..Quantiles::default() });
        let series = Some("chain frame".to_owned());
        let series = [CpuResult { series, samples: 50, quantiles, ..CpuResult::default() }];
        let found = chains.take("task", 5_000_000_000, &series);
        let one = &found[0];
        assert_eq!((one.record.instances, one.record.late, one.per_s), (50, 2, 10.0));
        assert_eq!((one.worst_ns, one.quantiles.map(|it| it.max_ns)), (Some(9), Some(9)));
        assert!(chains.take("task", 0, &[]).is_empty());
    }
}
