//! `cache-partition`: a part of the last-level cache, and of the memory bandwidth, for the target CPUs alone.
//!
//! It uses resctrl: a group of its own gets the CPUs and some ways of the cache in each of their domains, and the
//! default group, in which everything else is, loses those ways. Masks are contiguous at one end of the cache, so that
//! the rest is contiguous, too, and away from the ways that devices share (`shareable_bits`). If code and data are
//! apart (CDP), both get the same ways.
//!
//! If resctrl is not mounted, it is mounted first, and unmounted at the end. Only then it shows what it offers: the
//! other changes are planned after that one was made ([`Planner::again`]).

use crate::change::{Change, Target, Undoing};
use crate::kinds::writable;
use crate::planner::{Impossible, Planned, Planner, Surroundings};
use crate::reading::Reading;
use std::collections::BTreeSet;
use whylate_core::plan::CachePartitionPlan;
use whylate_core::{CpuSet, Warning, WarningCode};
use whylate_host::HostRoot;
use whylate_host::cpuinfo::CpuInfo;

pub(crate) const MOUNT: &str = "/sys/fs/resctrl";
/// Name of the group of the targets.
pub(crate) const GROUP: &str = "whylate";

/// What the kernel says of one cache resource.
struct Cache {
    /// `L3`, or `L3CODE` and `L3DATA`.
    resources: Vec<String>,
    level: u32,
    /// Every way.
    mask: u64,
    ways_min: u32,
    shared: u64,
    groups_max: usize,
}

/// The ways of the targets and those of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Split {
    target: u64,
    others: u64,
}

impl Planner for CachePartitionPlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        let root = &surroundings.root;
        let cpus = surroundings.resolve("cpus", &self.cpus)?;
        if surroundings.cpus.online.difference(&cpus).is_empty() {
            return Err(Impossible::new(
                "cpus: all online CPUs are listed; leave out at least one CPU, for other tasks",
            ));
        }
        if !root.exists(&format!("{MOUNT}/schemata")) {
            return mounted(root);
        }
        let cache = cache(root)?;
        let schemata = format!("{MOUNT}/schemata");
        writable(surroundings, &schemata)?;
        let group = format!("{MOUNT}/{GROUP}");
        let others = groups(root)?;
        if root.exists(&group) {
            return Err(Impossible::new(format!("{group} exists already; see `whylate treat status`")));
        }
        if others.len() + 1 >= cache.groups_max {
            let reason = format!(
                "the processor supports {} resctrl groups, and all are in use; remove a group in {MOUNT}",
                cache.groups_max
            );
            return Err(Impossible::new(reason));
        }
        let domains = domains(root, &cpus, cache.level)?;
        let split = split(&cache, self.share_percent)?;
        let lines = |ways: u64| schema(&cache.resources, &domains, &format!("{ways:x}"));
        let file = |path: String, reading| Target::file_with(path, reading);
        let inside = |target, new: String, effect: String| {
            Change::required(target, new, effect).undone(Undoing::WithFolder)
        };
        let count = split.target.count_ones();
        let of = cache.mask.count_ones();
        let directory = Target::Directory { path: group.clone() };
        let mut planned = Planned::changes(vec![
            Change::required(directory, Target::PRESENT, format!("a group for CPU {cpus}")),
            inside(
                file(format!("{group}/schemata"), Reading::Schemata),
                lines(split.target),
                format!("CPU {cpus} gets {count} of {of} cache ways"),
            ),
            Change::required(
                file(schemata.clone(), Reading::Schemata),
                lines(split.others),
                "all other tasks get the remaining cache ways",
            ),
            inside(
                file(format!("{group}/cpus_list"), Reading::CpuList),
                cpus.to_string(),
                format!("tasks on CPU {cpus} use these cache ways"),
            ),
        ]);
        planned.warnings = warnings(&cache, split, &others, &domains, root)?;
        if let Some(percent) = self.others_bandwidth_percent {
            let value = bandwidth(root, percent)?;
            let new = schema(&["MB".to_owned()], &domains, &value);
            let effect = format!("all other tasks get {value} % of the memory bandwidth");
            planned.changes.insert(3, Change::required(file(schemata, Reading::Schemata), new, effect));
        }
        Ok(planned)
    }

    fn again(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        // The group is there when everything is done: made by this treatment, or the plan was refused.
        if surroundings.root.exists(&format!("{MOUNT}/{GROUP}")) {
            return Ok(Planned::default());
        }
        self.plan(surroundings)
    }
}

/// The first step if resctrl is not mounted: to mount it.
fn mounted(root: &HostRoot) -> Result<Planned, Impossible> {
    let can = CpuInfo::read(root)?;
    if !can.has_flag("cat_l3") && !can.has_flag("cat_l2") {
        let reason =
            "this processor or kernel cannot partition caches (no `cat_l3` in /proc/cpuinfo, no resctrl)";
        return Err(Impossible::new(reason));
    }
    let filesystems = root.read("/proc/filesystems")?.unwrap_or_default();
    let is_known = filesystems.lines().any(|line| line.split_whitespace().last() == Some("resctrl"));
    if !is_known || !root.exists(MOUNT) {
        let reason = "this kernel has no resctrl; use a kernel with CONFIG_X86_CPU_RESCTRL, and boot without any `rdt=` that switches resctrl off";
        return Err(Impossible::new(reason));
    }
    let (path, filesystem) = (MOUNT.to_owned(), "resctrl".to_owned());
    let target = Target::Mount { path, filesystem, options: String::new() };
    let effect = "shows how this processor can partition its cache";
    Ok(Planned::changes(vec![Change::required(target, Target::PRESENT, effect)]))
}

fn cache(root: &HostRoot) -> Result<Cache, Impossible> {
    for level in [3, 2] {
        let names = [vec![format!("L{level}")], vec![format!("L{level}CODE"), format!("L{level}DATA")]];
        for resources in names {
            let folder = format!("{MOUNT}/info/{}", resources[0]);
            let hex = |name: &str| -> Result<Option<u64>, Impossible> {
                let text = root.read_trimmed(&format!("{folder}/{name}"))?;
                Ok(text.and_then(|text| u64::from_str_radix(&text, 16).ok()))
            };
            if let Some(mask) = hex("cbm_mask")? {
                return Ok(Cache {
                    resources,
                    level,
                    mask,
                    ways_min: root.read_number(&format!("{folder}/min_cbm_bits"))?.unwrap_or(1),
                    shared: hex("shareable_bits")?.unwrap_or(0),
                    groups_max: root.read_number(&format!("{folder}/num_closids"))?.unwrap_or(usize::MAX),
                });
            }
        }
    }
    Err(Impossible::new(format!(
        "{MOUNT}/info lists no cache that can be partitioned, but only memory bandwidth or monitoring"
    )))
}

fn groups(root: &HostRoot) -> Result<Vec<String>, Impossible> {
    let names = root.list(MOUNT)?.into_iter();
    let fixed = ["info", "mon_data", "mon_groups"];
    Ok(names
        .filter(|name| !fixed.contains(&name.as_str()) && root.exists(&format!("{MOUNT}/{name}/schemata")))
        .collect())
}

/// Numbers of the caches of that level that the CPUs use.
fn domains(root: &HostRoot, cpus: &CpuSet, level: u32) -> Result<Vec<u32>, Impossible> {
    let mut domains = BTreeSet::new();
    for cpu in cpus.iter() {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cache");
        for index in root.list_numbered(&folder, "index")? {
            let number = |name: &str| root.read_number::<u32>(&format!("{folder}/index{index}/{name}"));
            if number("level")? == Some(level) {
                domains.extend(number("id")?);
            }
        }
    }
    if domains.is_empty() {
        return Err(Impossible::new(format!(
            "resctrl needs the id of the L{level} cache of CPU {cpus}, and the kernel reports none"
        )));
    }
    Ok(domains.into_iter().collect())
}

/// The lowest ways for the targets, or the highest if devices share the lowest.
fn split(cache: &Cache, percent: u32) -> Result<Split, Impossible> {
    let ways = cache.mask.count_ones();
    let least = cache.ways_min.max(1);
    if cache.mask == 0 || ways < 2 * least {
        return Err(Impossible::new(format!(
            "the cache cannot be partitioned: of its {ways} ways, each group needs at least {least}"
        )));
    }
    let wanted = (u64::from(ways) * u64::from(percent) + 50) / 100;
    let count = u32::try_from(wanted).unwrap_or(ways).clamp(least, ways - least);
    let first = cache.mask.trailing_zeros();
    let block = |count: u32| if count >= 64 { u64::MAX } else { (1u64 << count) - 1 };
    let low = block(count) << first;
    let high = block(count) << (first + ways - count);
    let overlap = |ways: u64| (ways & cache.shared).count_ones();
    let target = if overlap(low) <= overlap(high) { low } else { high };
    Ok(Split { target, others: cache.mask & !target })
}

/// `L3:0=f;1=f` for each resource.
fn schema(resources: &[String], domains: &[u32], value: &str) -> String {
    let parts = domains.iter().map(|domain| format!("{domain}={value}"));
    let parts = parts.collect::<Vec<_>>().join(";");
    let lines = resources.iter().map(|resource| format!("{resource}:{parts}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// A share of the bandwidth that the hardware offers.
fn bandwidth(root: &HostRoot, percent: u32) -> Result<String, Impossible> {
    let folder = format!("{MOUNT}/info/MB");
    let Some(least) = root.read_number::<u32>(&format!("{folder}/min_bandwidth"))? else {
        return Err(Impossible::new(
            "this processor cannot limit memory bandwidth (no MB in /sys/fs/resctrl/info)",
        ));
    };
    let step = root.read_number::<u32>(&format!("{folder}/bandwidth_gran"))?.unwrap_or(1).max(1);
    let stepped = percent.div_ceil(step) * step;
    Ok(stepped.clamp(least, 100).to_string())
}

fn warnings(
    cache: &Cache,
    split: Split,
    groups: &[String],
    domains: &[u32],
    root: &HostRoot,
) -> Result<Vec<Warning>, Impossible> {
    let mut warnings = Vec::new();
    if split.target & cache.shared != 0 {
        let text = format!(
            "the target CPUs share some of their cache ways with devices, which use the ways of mask {:x}",
            cache.shared
        );
        warnings.push(Warning::new(WarningCode::CacheSharedWithDevices, text));
    }
    let mut overlapping = Vec::new();
    for group in groups {
        let schemata = root.read(&format!("{MOUNT}/{group}/schemata"))?.unwrap_or_default();
        if masks(&schemata, cache, domains).iter().any(|mask| mask & split.target != 0) {
            overlapping.push(group.clone());
        }
    }
    if !overlapping.is_empty() {
        let text = format!(
            "these resctrl groups still use cache ways of the target CPUs: {}",
            overlapping.join(", ")
        );
        warnings.push(Warning::with_fix(
            WarningCode::CacheGroupsOverlap,
            text,
            format!("remove the ways of the target CPUs from the `schemata` of these groups in {MOUNT}"),
        ));
    }
    Ok(warnings)
}

/// The masks of a schemata text in those domains.
fn masks(schemata: &str, cache: &Cache, domains: &[u32]) -> Vec<u64> {
    let mut masks = Vec::new();
    for line in schemata.lines() {
        let Some((resource, parts)) = line.trim().split_once(':') else { continue };
        if !cache.resources.iter().any(|name| name == resource) {
            continue;
        }
        for part in parts.split(';') {
            let Some((domain, mask)) = part.split_once('=') else { continue };
            if domain.trim().parse().is_ok_and(|domain: u32| domains.contains(&domain)) {
                masks.extend(u64::from_str_radix(mask.trim(), 16));
            }
        }
    }
    masks
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
