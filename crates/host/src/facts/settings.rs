//! Clock, settings that matter to latency, and memory.

use super::processor::is_x86;
use super::{FactReader, value_of};
use crate::cpuinfo::CpuInfo;
use crate::idle_driver::idle_driver;
use whylate_core::cpus::CpuSet;
use whylate_core::facts::{ClockFacts, MemoryFacts, SettingsFacts};

const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0";

pub(super) fn clock(reader: &FactReader, info: &CpuInfo, architecture: &str) -> ClockFacts {
    let available = reader.text(&format!("{CLOCK}/available_clocksource")).unwrap_or_default();
    // The Arm architecture's generic timer has a constant rate and never stops; x86 states both per processor.
    let x86_invariant = info.has_flag("constant_tsc") && info.has_flag("nonstop_tsc");
    ClockFacts {
        source: reader.text(&format!("{CLOCK}/current_clocksource")),
        available: available.split_whitespace().map(str::to_owned).collect(),
        counter_invariant: if is_x86(architecture) { x86_invariant } else { architecture == "aarch64" },
    }
}

pub(super) fn settings(reader: &FactReader, online: &CpuSet) -> SettingsFacts {
    let huge_pages = reader.text("/sys/kernel/mm/transparent_hugepage/enabled");
    let driver = |cpu| reader.text(&format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_driver"));
    SettingsFacts {
        rt_runtime_us: reader.number("/proc/sys/kernel/sched_rt_runtime_us"),
        rt_period_us: reader.number("/proc/sys/kernel/sched_rt_period_us"),
        transparent_huge_pages: huge_pages.as_deref().and_then(chosen).map(str::to_owned),
        smt_active: reader.flag("/sys/devices/system/cpu/smt/active"),
        idle_driver: idle_driver(|path| reader.text(path)),
        frequency_driver: online.iter().find_map(driver),
        watchdog: reader.flag("/proc/sys/kernel/watchdog"),
        numa_balancing: reader.flag("/proc/sys/kernel/numa_balancing"),
    }
}

/// The marked word of `always [madvise] never`.
fn chosen(choices: &str) -> Option<&str> {
    choices.split_once('[')?.1.split_once(']').map(|(word, _)| word)
}

pub(super) fn memory(reader: &FactReader) -> MemoryFacts {
    let text = reader.raw("/proc/meminfo").unwrap_or_default();
    let kibibytes = |key: &str| {
        let number = value_of(&text, key)?.strip_suffix("kB")?.trim_end();
        number.parse::<u64>().ok()?.checked_mul(1_024)
    };
    let nodes = reader.list_numbered("/sys/devices/system/node", "node").len();
    MemoryFacts {
        total_bytes: kibibytes("MemTotal"),
        available_bytes: kibibytes("MemAvailable"),
        swap_bytes: kibibytes("SwapTotal"),
        nodes: u32::try_from(nodes).ok().filter(|&nodes| nodes > 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marked_choice() {
        assert_eq!(chosen("always [madvise] never"), Some("madvise"));
        assert_eq!(chosen("always"), None);
        assert_eq!(chosen("]["), None);
    }
}
