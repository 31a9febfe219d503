//! The processor and its CPUs: sets, topology, kinds of core, caches, frequency, idle states.

use super::{FactReader, value_of};
use crate::cpuinfo::CpuInfo;
use crate::shield;
use whylate_core::cpus::CpuSet;
use whylate_core::facts::{CacheFacts, CpuFacts, CpuSetFacts, IdleStateFacts, ProcessorFacts};
use whylate_core::order::InOrder;
use whylate_core::units::CpuId;

const CPUS: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";

pub(super) fn processor(reader: &FactReader, info: &CpuInfo) -> ProcessorFacts {
    // arm64 calls its vector unit `asimd`; compilers and people call it NEON.
    let features = [("avx2", "avx2"), ("avx512f", "avx512f"), ("asimd", "neon")];
    let known = features.iter().filter(|(flag, _)| info.has_flag(flag));
    ProcessorFacts {
        model: model(reader, info),
        microcode: info.microcode.clone().or_else(|| reader.text(&format!("{CPUS}/cpu0/microcode/version"))),
        features: known.map(|(_, name)| (*name).to_owned()).collect(),
    }
}

/// x86 names the model; arm64 gives numbers of the cores, and the device tree names the board.
fn model(reader: &FactReader, info: &CpuInfo) -> String {
    if let Some(model) = &info.model {
        return model.clone();
    }
    let cores: Vec<String> = info.core_kinds.iter().map(|(maker, part)| core_name(maker, part)).collect();
    let board = reader.text("/proc/device-tree/model");
    match (board, cores.is_empty()) {
        (Some(board), true) => board,
        (Some(board), false) => format!("{} ({board})", cores.join(" + ")),
        (None, _) => cores.join(" + "),
    }
}

/// Names of Arm's cores by their MIDR part number (arch/arm64/include/asm/cputype.h); the numbers for others.
fn core_name(maker: &str, part: &str) -> String {
    let name = match (maker, part) {
        ("0x41", "0xd03") => "Cortex-A53",
        ("0x41", "0xd04") => "Cortex-A35",
        ("0x41", "0xd05") => "Cortex-A55",
        ("0x41", "0xd07") => "Cortex-A57",
        ("0x41", "0xd08") => "Cortex-A72",
        ("0x41", "0xd09") => "Cortex-A73",
        ("0x41", "0xd0a") => "Cortex-A75",
        ("0x41", "0xd0b") => "Cortex-A76",
        ("0x41", "0xd0c") => "Neoverse-N1",
        ("0x41", "0xd40") => "Neoverse-V1",
        ("0x41", "0xd42") => "Cortex-A78AE",
        ("0x41", "0xd49") => "Neoverse-N2",
        ("0x41", "0xd4f") => "Neoverse-V2",
        _ => return format!("CPU implementer {maker} part {part}"),
    };
    format!("Arm {name}")
}

pub(super) fn cpu_sets(reader: &FactReader, info: &CpuInfo) -> CpuSetFacts {
    let online = reader.cpus(&format!("{CPUS}/online")).unwrap_or_else(|| info.processors.clone());
    let present = reader.cpus(&format!("{CPUS}/present")).unwrap_or_else(|| online.clone());
    let boot_isolated = reader.cpus(&format!("{CPUS}/isolated")).unwrap_or_default();
    // Isolated partitions of cgroup v2 (root group only, since Linux 6.7); `unified` on hybrid mounts.
    let partitions = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .iter()
        .filter_map(|mount| reader.cpus(&format!("{mount}/cpuset.cpus.isolated")))
        .fold(CpuSet::default(), |all, cpus| all.union(&cpus));
    // A shield that a treatment made: isolated, and open to threads that enter its group.
    let shielded = reader.kept(shield::shielded(reader.root)).unwrap_or_default();
    let open =
        reader.kept(shield::open_to_this_process(reader.root)).unwrap_or_default().intersection(&online);
    CpuSetFacts {
        isolated: boot_isolated.union(&partitions).union(&shielded).intersection(&present),
        nohz_full: reader.cpus(&format!("{CPUS}/nohz_full")).unwrap_or_default().intersection(&present),
        allowed: allowed(reader).unwrap_or_else(|| online.clone()).union(&open),
        present,
        online,
    }
}

fn allowed(reader: &FactReader) -> Option<CpuSet> {
    let status = reader.text("/proc/self/status")?;
    let list = value_of(&status, "Cpus_allowed_list")?;
    let parsed = list.parse();
    parsed.map_err(|error| reader.warn_of_unreadable(&format!("/proc/self/status: {error}"))).ok()
}

pub(super) fn cpus(reader: &FactReader, sets: &CpuSetFacts, architecture: &str) -> Vec<CpuFacts> {
    let nodes = nodes(reader);
    let mut cpus: Vec<CpuFacts> = sets
        .present
        .iter()
        .map(|cpu| {
            let folder = format!("{CPUS}/cpu{cpu}");
            let listed = nodes.iter().find(|(_, cpus)| cpus.contains(cpu)).map(|(node, _)| *node);
            let linked = || reader.list_numbered(&folder, "node").first().copied();
            CpuFacts {
                cpu,
                online: sets.online.contains(cpu),
                node: listed.or_else(linked),
                capacity: reader.number(&format!("{folder}/cpu_capacity")),
                ..running(reader, &folder)
            }
        })
        .collect();
    set_kinds(reader, &mut cpus, architecture);
    cpus
}

/// What sysfs shows of a CPU while it is online.
fn running(reader: &FactReader, folder: &str) -> CpuFacts {
    let siblings = ["core_cpus_list", "thread_siblings_list"]
        .iter()
        .find_map(|name| reader.cpus(&format!("{folder}/topology/{name}")));
    let kilohertz = |name: &str| {
        let frequency: Option<u64> = reader.number(&format!("{folder}/cpufreq/{name}"));
        frequency.and_then(|khz| khz.checked_mul(1_000))
    };
    CpuFacts {
        package: topology_id(reader, &format!("{folder}/topology/physical_package_id")),
        core: topology_id(reader, &format!("{folder}/topology/core_id")),
        siblings: siblings.unwrap_or_default(),
        caches: caches(reader, &format!("{folder}/cache")),
        governor: reader.text(&format!("{folder}/cpufreq/scaling_governor")),
        frequency_min_hz: kilohertz("scaling_min_freq"),
        frequency_max_hz: kilohertz("scaling_max_freq"),
        idle_states: idle_states(reader, &format!("{folder}/cpuidle")),
        ..CpuFacts::default()
    }
}

/// A number of the topology; the kernel writes -1 for one that it does not know.
fn topology_id(reader: &FactReader, path: &str) -> Option<u32> {
    reader.number::<i64>(path).and_then(|id| u32::try_from(id).ok())
}

fn nodes(reader: &FactReader) -> Vec<(u32, CpuSet)> {
    let numbers = reader.list_numbered(NODES, "node").into_iter();
    numbers.filter_map(|node| Some((node, reader.cpus(&format!("{NODES}/node{node}/cpulist"))?))).collect()
}

/// Data and unified caches, nearest first; many virtual machines show none, and offline CPUs never do.
fn caches(reader: &FactReader, folder: &str) -> Vec<CacheFacts> {
    let mut caches: Vec<CacheFacts> = reader
        .list_numbered(folder, "index")
        .into_iter()
        .filter_map(|index| {
            let path = |name: &str| format!("{folder}/index{index}/{name}");
            let kind = reader.text(&path("type")).filter(|kind| kind != "Instruction")?;
            let size = reader.text(&path("size"))?;
            let Some(size_bytes) = cache_size(&size) else {
                let problem =
                    format!("{}: `{size}` is not a cache size", reader.root.path(&path("size")).display());
                reader.warn_of_unreadable(&problem);
                return None;
            };
            (size_bytes > 0).then_some(CacheFacts {
                level: reader.number(&path("level"))?,
                kind,
                size_bytes,
                line_bytes: reader.number(&path("coherency_line_size")),
                shared_by: reader.cpus(&path("shared_cpu_list")).unwrap_or_default(),
            })
        })
        .collect();
    caches.order_by_key(|cache| cache.level);
    caches
}

/// `48K`, `2048K`, `32M`, or plain bytes.
fn cache_size(text: &str) -> Option<u64> {
    let (digits, factor) = match text.char_indices().last()? {
        (end, 'K') => (&text[..end], 1 << 10),
        (end, 'M') => (&text[..end], 1 << 20),
        (end, 'G') => (&text[..end], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

fn idle_states(reader: &FactReader, folder: &str) -> Vec<IdleStateFacts> {
    let states =
        reader.list_numbered(folder, "state").into_iter().map(|state| format!("{folder}/state{state}"));
    states
        .filter(|state| reader.flag(&format!("{state}/disable")) != Some(true))
        .filter_map(|state| {
            let micros: Option<u64> = reader.number(&format!("{state}/latency"));
            Some(IdleStateFacts {
                name: reader.text(&format!("{state}/name"))?,
                exit_latency_ns: micros.and_then(|micros| micros.checked_mul(1_000)),
            })
        })
        .collect()
}

/// Names the kinds of core of hybrid processors. On x86 by the PMUs that the kernel registers for each kind; on others
/// by capacity: a core with less than three quarters of the largest capacity is an efficiency core. (The same core
/// design at a lower top frequency stays above that, another design below.)
fn set_kinds(reader: &FactReader, cpus: &mut [CpuFacts], architecture: &str) {
    let fast = reader.cpus("/sys/devices/cpu_core/cpus").unwrap_or_default();
    let small = ["cpu_atom", "cpu_lowpower"]
        .iter()
        .filter_map(|unit| reader.cpus(&format!("/sys/devices/{unit}/cpus")))
        .fold(CpuSet::default(), |all, cpus| all.union(&cpus));
    let capacity_max = cpus.iter().filter_map(|cpu| cpu.capacity).max().unwrap_or(0);
    let is_small = |capacity: u32| u64::from(capacity) * 4 < u64::from(capacity_max) * 3;
    let by_capacity = !is_x86(architecture) && cpus.iter().filter_map(|cpu| cpu.capacity).any(is_small);
    for facts in cpus {
        let efficiency = if !fast.is_empty() && !small.is_empty() {
            kind_by_set(facts.cpu, &fast, &small)
        } else if by_capacity {
            facts.capacity.map(is_small)
        } else {
            None
        };
        facts.kind = efficiency.map(|small| if small { "efficiency" } else { "performance" }.to_owned());
    }
}

fn kind_by_set(cpu: CpuId, fast: &CpuSet, small: &CpuSet) -> Option<bool> {
    (fast.contains(cpu) || small.contains(cpu)).then(|| small.contains(cpu))
}

/// Whether `uname -m` names an x86.
pub(super) fn is_x86(architecture: &str) -> bool {
    matches!(architecture, "x86_64" | "i386" | "i486" | "i586" | "i686")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cache_sizes_carry_a_unit() {
        let sizes =
            ["48K", "32M", "512", "", "K", "-1K", "99999999999999999999K", "18446744073709551615K", "4Ü"];
        let expected = [Some(48 << 10), Some(32 << 20), Some(512), None, None, None, None, None, None];
        assert_eq!(sizes.map(cache_size), expected);
    }

    proptest! {
        #[test]
        fn no_cache_size_panics(text in "[0-9]{0,21}[KMGÜ]?\\PC{0,2}") {
            let _ = cache_size(&text);
        }
    }
}
