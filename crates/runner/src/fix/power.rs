//! What a repeat costs in power, if the processor counts it (RAPL) and this user may read that.

use std::time::Duration;
use whylate_host::HostRoot;

const ZONES: &str = "/sys/class/powercap";

/// The counters of the packages at one moment: energy, and the value after which each starts again at 0, in
/// microjoules.
pub(super) struct Energy(Vec<[u64; 2]>);

impl Energy {
    /// `None` if nothing can be read.
    pub(super) fn read(root: &HostRoot) -> Option<Self> {
        let zones = root.list(ZONES).ok()?;
        // `intel-rapl:0` is a package, `intel-rapl:0:0` a part of it.
        let packages = zones.iter().filter(|zone| zone.matches(':').count() == 1);
        let counters = packages.filter_map(|zone| {
            let read = |file: &str| root.read_number(&format!("{ZONES}/{zone}/{file}")).ok().flatten();
            Some([read("energy_uj")?, read("max_energy_range_uj")?])
        });
        let counters: Vec<[u64; 2]> = counters.collect();
        (!counters.is_empty()).then_some(Self(counters))
    }

    /// Watts since then.
    pub(super) fn watts(&self, now: &Self, time: Duration) -> f64 {
        let used = |([before, _], [after, most]): (&[u64; 2], &[u64; 2])| {
            if after >= before { after - before } else { most.saturating_sub(*before) + after }
        };
        self.0.iter().zip(&now.0).map(used).sum::<u64>() as f64 / 1e6 / time.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_summed_and_counters_begin_again() {
        let folder = tempfile::tempdir().unwrap();
        let root = HostRoot::at(folder.path());
        assert!(Energy::read(&root).is_none());
        let set = |zone: &str, energy: u64| {
            let zone = folder.path().join("sys/class/powercap").join(zone);
            std::fs::create_dir_all(&zone).unwrap();
            std::fs::write(zone.join("energy_uj"), format!("{energy}\n")).unwrap();
            std::fs::write(zone.join("max_energy_range_uj"), "10000000\n").unwrap();
        };
        let read = |energies: [u64; 3]| {
            let zones = ["intel-rapl:0", "intel-rapl:0:0", "intel-rapl:1"];
            zones.iter().zip(energies).for_each(|(zone, energy)| set(zone, energy));
            Energy::read(&root).unwrap()
        };
        let before = read([1_000_000, 0, 9_000_000]);
        // 4 J and, past the end of the counter, 2 J; the part of the package counts for nothing of its own.
        let watts = before.watts(&read([5_000_000, 3_000_000, 1_000_000]), Duration::from_secs(2));
        assert!((watts - 3.0).abs() < 1e-9, "{watts}");
    }
}
