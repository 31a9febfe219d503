//! The clock frequency of each CPU, from the kernel's event `power:cpu_frequency`.
//!
//! If the processor chooses its frequency by itself (intel_pstate and amd-pstate in their active modes), there is no such
//! event, and the frequency is not reported.

use crate::layout::tasks::{RawStretch, TaskEvent};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use whylate_core::recording::{Activity, Segment};
use whylate_core::{CpuId, CpuSet};
use whylate_host::HostRoot;

/// How many changes of a CPU are kept: an activation is explained soon after it has ended.
const CHANGES_MAX: usize = 4_096;
/// Drivers whose hardware chooses the frequency, whatever the governor is called.
const CHOSEN_BY_HARDWARE: [&str; 2] = ["intel_pstate", "amd-pstate-epp"];
/// The file with the frequency of a governor that never changes it. With other governors the frequency is known from the
/// first change on: `scaling_cur_freq` may be a value measured while the CPU was idle.
const CONSTANT: [(&str, &str); 3] = [
    ("performance", "scaling_max_freq"),
    ("powersave", "scaling_min_freq"),
    ("userspace", "scaling_setspeed"),
];

/// The frequencies of the watched CPUs.
#[derive(Default)]
pub(super) struct Frequencies {
    clocks: BTreeMap<CpuId, Clock>,
}

struct Clock {
    highest_khz: u64,
    /// The frequency in kHz from each moment on; oldest first.
    changes: VecDeque<(u64, u64)>,
}

impl Frequencies {
    /// The frequencies at `now_ns`, without CPUs whose frequency the kernel does not set.
    pub(super) fn read(host: &HostRoot, cpus: &CpuSet, now_ns: u64) -> Self {
        let mut frequencies = Self::default();
        for cpu in cpus.iter() {
            let known = clock(host, cpu);
            frequencies.clocks.extend(known.map(|(highest_khz, present)| {
                let changes = present.map(|khz| (now_ns, khz)).into_iter().collect();
                (cpu, Clock { highest_khz, changes })
            }));
        }
        frequencies
    }

    /// What a record says, if it is about that.
    pub(super) fn take(&mut self, host: &HostRoot, raw: &RawStretch) {
        if raw.kind == TaskEvent::Frequency {
            self.note(host, CpuId(raw.next), raw.end_ns, raw.waker.into());
        }
    }

    /// A CPU has that frequency from now on.
    fn note(&mut self, host: &HostRoot, cpu: CpuId, at_ns: u64, khz: u64) {
        // The CPU or its driver may have come later.
        let begun =
            || clock(host, cpu).map(|(highest_khz, _)| Clock { highest_khz, changes: VecDeque::new() });
        let Clock { changes, .. } = match self.clocks.entry(cpu) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => match begun() {
                Some(clock) => place.insert(clock),
                None => return,
            },
        };
        if changes.len() >= CHANGES_MAX {
            changes.pop_front();
        }
        changes.push_back((at_ns, khz));
    }

    /// The times since `from_ns` at which a CPU ran below its highest frequency.
    pub(super) fn slow(&self, cpu: CpuId, from_ns: u64) -> Vec<Segment> {
        let Some(Clock { highest_khz, changes }) = self.clocks.get(&cpu) else { return Vec::new() };
        let ends = changes.iter().skip(1).map(|(at_ns, _)| *at_ns).chain([u64::MAX]);
        let all = changes.iter().zip(ends);
        let slow = all.filter(|((_, khz), to_ns)| khz < highest_khz && *to_ns > from_ns);
        slow.map(|((at_ns, khz), to_ns)| Segment {
            from_ns: *at_ns,
            to_ns,
            what: Activity::SlowClock { khz: *khz, highest_khz: *highest_khz },
        })
        .collect()
    }
}

/// The highest frequency of a CPU, and the present one if it is constant; `None` if the kernel sets no frequency.
fn clock(host: &HostRoot, cpu: CpuId) -> Option<(u64, Option<u64>)> {
    let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq");
    let text = |name: &str| host.read_trimmed(&format!("{folder}/{name}")).ok().flatten();
    let kilohertz = |name: &str| text(name)?.parse::<u64>().ok();
    let driver = text("scaling_driver").filter(|driver| !CHOSEN_BY_HARDWARE.contains(&driver.as_str()));
    let highest_khz = driver.and_then(|_| kilohertz("cpuinfo_max_freq")).filter(|khz| *khz > 0)?;
    let governor = text("scaling_governor");
    let constant = CONSTANT.iter().find(|(name, _)| governor.as_deref() == Some(name));
    Some((highest_khz, constant.and_then(|(_, file)| kilohertz(file))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, HostRoot) {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("sys/devices/system/cpu/cpu1/cpufreq");
        std::fs::create_dir_all(&place).unwrap();
        for (name, text) in files {
            std::fs::write(place.join(name), format!("{text}\n")).unwrap();
        }
        let root = HostRoot::at(folder.path());
        (folder, root)
    }

    fn slow(from_ns: u64, to_ns: u64, khz: u64) -> Segment {
        Segment { from_ns, to_ns, what: Activity::SlowClock { khz, highest_khz: 3_000_000 } }
    }

    #[test]
    fn a_cpu_is_slow_from_one_change_to_the_next() {
        let files = [
            ("scaling_driver", "acpi-cpufreq"),
            ("scaling_governor", "powersave"),
            ("cpuinfo_max_freq", "3000000"),
            ("scaling_min_freq", "800000"),
        ];
        let (_folder, root) = host(&files);
        let (cpus, cpu) = ("0-1".parse().unwrap(), CpuId(1));
        let mut frequencies = Frequencies::read(&root, &cpus, 100);
        assert_eq!(frequencies.slow(cpu, 0), [slow(100, u64::MAX, 800_000)]);
        for (at_ns, khz) in [(200, 1_500_000), (300, 3_000_000), (400, 800_000)] {
            frequencies.note(&root, cpu, at_ns, khz);
        }
        let all = [slow(100, 200, 800_000), slow(200, 300, 1_500_000), slow(400, u64::MAX, 800_000)];
        assert_eq!(frequencies.slow(cpu, 0), all);
        assert_eq!(frequencies.slow(cpu, 250), all[1..]);
        assert_eq!(frequencies.slow(CpuId(0), 0), [], "it has no such files");
    }

    #[test]
    fn a_frequency_that_was_not_set_is_not_known() {
        let files = |driver, governor| {
            [
                ("scaling_driver", driver),
                ("scaling_governor", governor),
                ("cpuinfo_max_freq", "3000000"),
                ("scaling_min_freq", "800000"),
            ]
        };
        let cpus = "1".parse().unwrap();
        let (_folder, root) = host(&files("acpi-cpufreq", "schedutil"));
        let mut frequencies = Frequencies::read(&root, &cpus, 100);
        assert_eq!(frequencies.slow(CpuId(1), 0), []);
        frequencies.note(&root, CpuId(1), 200, 800_000);
        assert_eq!(frequencies.slow(CpuId(1), 0), [slow(200, u64::MAX, 800_000)]);
        let (_folder, root) = host(&files("intel_pstate", "powersave"));
        let mut frequencies = Frequencies::read(&root, &cpus, 100);
        frequencies.note(&root, CpuId(1), 200, 800_000);
        assert_eq!(frequencies.slow(CpuId(1), 0), [], "the hardware chooses, whatever the kernel asks for");
    }
}
