//! Findings about memory and caches.

use super::{FindingCode, Inquiry, named, verb};
use whylate_core::cpus::CpuSet;
use whylate_core::plan::ASSUMED_LAST_LEVEL;
use whylate_core::result::Finding;
use whylate_core::units::Bytes;

pub(super) fn cache_sizes(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let facts = inquiry.facts;
    let is_silent = |cpu: &_| facts.cpu(*cpu).is_some_and(|cpu| cpu.online && cpu.caches.is_empty());
    let silent: CpuSet = inquiry.targets.iter().filter(is_silent).collect();
    (!silent.is_empty()).then(|| {
        code.info(format!("{} {} no cache sizes", named(&silent), verb(&silent, "reports", "report")))
            .effect(match ASSUMED_LAST_LEVEL {
                Some(size) => format!(
                    "whylate assumes a last-level cache (`llc`) of {size}, so loads meant to exceed the \
                     cache may fit into it; sizes relative to another cache (`l3/2`) cannot be used"
                ),
                None => "sizes relative to a cache (`l3/2`) cannot be used for loads".to_owned(),
            })
            .seen("/sys/devices/system/cpu/cpuN/cache", "nothing")
            .now("give the sizes of loads in bytes (`8MiB`); in a virtual machine, let the hypervisor expose the cache topology of the host")
    })
}

pub(super) fn huge_pages(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    const PATH: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    let mode = inquiry.facts.settings.transparent_huge_pages.as_deref()?;
    if mode != "always" {
        return code.well(format!("transparent huge pages are `{mode}`"), PATH, mode);
    }
    let finding = code
        .advice("transparent huge pages are `always`")
        .effect(
            "a page fault may clear a whole huge page; khugepaged moves memory of running processes, and \
             these processes wait",
        )
        .seen(PATH, mode)
        .now(format!("echo madvise | sudo tee {PATH}"));
    Some(inquiry.boot(finding, "boot with `transparent_hugepage=madvise`"))
}

pub(super) fn swap(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let bytes = inquiry.facts.memory.swap_bytes?;
    if bytes == 0 {
        return code.well("swap is off", "/proc/meminfo", "SwapTotal 0");
    }
    let finding = code
        .advice(format!("swap is on ({})", Bytes(bytes)))
        .effect("memory that is not locked may be swapped out, and its next use waits for the disk")
        .seen("/proc/meminfo", format!("SwapTotal {}", Bytes(bytes)))
        .now("sudo swapoff -a");
    Some(inquiry.boot(finding, "remove the swap area from /etc/fstab"))
}

pub(super) fn numa_balancing(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    const PATH: &str = "/proc/sys/kernel/numa_balancing";
    if !inquiry.facts.settings.numa_balancing? {
        return code.well("NUMA balancing is off", PATH, "0");
    }
    let finding = code
        .advice("NUMA balancing is on")
        .effect(
            "the kernel unmaps pages to see which tasks use them; this causes page faults, and pages and tasks move \
             between nodes",
        )
        .seen(PATH, "1")
        .now("sudo sysctl -w kernel.numa_balancing=0");
    Some(inquiry.boot(finding, "boot with `numa_balancing=disable`"))
}

pub(super) fn page_merging(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    const PATH: &str = "/sys/kernel/mm/ksm/run";
    let run = inquiry.live.as_ref()?.number(PATH)?;
    if run != 1 {
        return code.well("identical pages are not merged (KSM)", PATH, run.to_string());
    }
    code.advice("the kernel merges identical pages (KSM)")
        .effect("the next write to a merged page is a page fault, and ksmd takes memory bandwidth")
        .seen(PATH, "1")
        .now(format!("echo 0 | sudo tee {PATH}"))
        .into()
}

/// Whether the last-level cache of the targets can be partitioned (resctrl), and is.
pub(super) fn shared_cache(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    const PATH: &str = "/sys/fs/resctrl";
    let live = inquiry.live.as_ref()?;
    let shared = inquiry.targets.iter().filter_map(|cpu| live.table.row(cpu)?.l3.as_ref());
    let others = shared.fold(CpuSet::default(), |all, l3| all.union(&l3.cpus)).difference(inquiry.targets);
    if others.is_empty() {
        return None;
    }
    let flags = crate::cpuinfo::CpuInfo::read(live.root).ok()?;
    let can = flags.has_flag("cat_l3");
    let is_mounted = live.root.exists("/sys/fs/resctrl/schemata");
    let groups = live.root.list(PATH).unwrap_or_default();
    let fixed = ["info", "mon_data", "mon_groups"];
    let own = groups.iter().filter(|name| {
        !fixed.contains(&name.as_str()) && live.root.exists(&format!("{PATH}/{name}/schemata"))
    });
    let own: Vec<String> = own.cloned().collect();
    let text = format!(
        "{} {} the last-level cache of the target CPUs",
        named(&others),
        verb(&others, "shares", "share")
    );
    Some(match (can, own.is_empty()) {
        (_, false) => code.fine(format!("the last-level cache is partitioned by resctrl ({})", own.join(", "))).seen(PATH, own.join(", ")),
        (true, true) => code
            .info(text)
            .effect("memory accesses of the other CPUs evict the task's cache lines; this processor can partition the cache")
            .seen(PATH, if is_mounted { "no resctrl group" } else { "not mounted" })
            .now(if is_mounted { "make a resctrl group for the target CPUs" } else { "mount -t resctrl resctrl /sys/fs/resctrl" }),
        (false, true) => Finding {
            treatment: None,
            ..code
                .info(text)
                .effect("memory accesses of the other CPUs evict the task's cache lines; this processor cannot partition the cache")
                .seen("/proc/cpuinfo", "no flag `cat_l3`")
        },
    })
}
