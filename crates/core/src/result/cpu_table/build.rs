//! Makes the table from what was read of a machine.

use super::{
    CPUS_FORMAT, CpuRow, CpuTable, IdleLimit, L3Domain, LineRow, Shielding, ThreadCounts, ThreadKind,
    ThreadRow,
};
use crate::cpus::CpuSet;
use crate::facts::{CpuFacts, Facts};
use crate::order::InOrder;
use crate::record::InterruptRecord;
use crate::units::CpuId;
use crate::warning::Warning;
use std::collections::BTreeMap;

/// What was read of a machine in addition to its facts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The time between the two readings of the interrupt counters.
    pub interval_ns: u64,
    /// Every thread; `Pinned` when the kernel refuses to change its CPUs, else `Movable`. The rest is decided here.
    pub threads: Vec<ThreadRow>,
    /// Whether threads could be read at all.
    pub threads_known: bool,
    /// Every numbered interrupt line.
    pub lines: Vec<LineRow>,
    /// Whether interrupt lines could be read at all.
    pub lines_known: bool,
    pub interrupts: Vec<InterruptRecord>,
    /// CPUs whose tick the kernel shows: stopped or not.
    pub ticks_stopped: BTreeMap<CpuId, bool>,
    /// Frequency of each CPU now.
    pub frequencies_hz: BTreeMap<CpuId, u64>,
    /// The longest exit latency that power management allows each CPU; absent is no limit.
    pub latency_limits_ns: BTreeMap<CpuId, u64>,
    /// The kernel's number of each CPU's cache of level 3.
    pub l3_ids: BTreeMap<CpuId, u32>,
    /// What could not be found out.
    pub warnings: Vec<Warning>,
}

pub fn build(facts: &Facts, observed: &Observed) -> CpuTable {
    let Observed { interval_ns, mut threads, lines, warnings, .. } = observed.clone();
    let online = &facts.cpu_sets.online;
    let open = open_cpus(&threads, online);
    for thread in &mut threads {
        let cpus = thread.cpus.intersection(online);
        thread.kind = match thread.kind {
            ThreadKind::Pinned if cpus.len() > 1 => ThreadKind::Worker,
            ThreadKind::Pinned => ThreadKind::Pinned,
            _ => kind(&cpus, &open),
        };
    }
    let table =
        CpuTable { format: CPUS_FORMAT.to_owned(), interval_ns, cpus: Vec::new(), threads, lines, warnings };
    let rows = facts.cpus.iter().map(|cpu| row(cpu, facts, observed, &table, &open));
    CpuTable { cpus: rows.collect(), ..table }
}

/// CPUs that threads use without having been put there: those that most threads may use, and all that share a thread
/// with one of those.
fn open_cpus(threads: &[ThreadRow], online: &CpuSet) -> CpuSet {
    let movable = threads.iter().filter(|thread| thread.kind != ThreadKind::Pinned);
    let sets: Vec<CpuSet> = movable.map(|thread| thread.cpus.intersection(online)).collect();
    let mut frequency: BTreeMap<String, (usize, &CpuSet)> = BTreeMap::new();
    for set in sets.iter().filter(|set| !set.is_empty()) {
        frequency.entry(set.to_string()).or_insert((0, set)).0 += 1;
    }
    let most = frequency.values().max_by_key(|(count, set)| (*count, set.len()));
    let mut open = most.map(|(_, set)| (*set).clone()).unwrap_or_default();
    loop {
        let touching = sets.iter().filter(|set| !set.intersection(&open).is_empty());
        let wider = touching.fold(open.clone(), |all, set| all.union(set));
        if wider == open {
            return open;
        }
        open = wider;
    }
}

/// A thread on one of several open CPUs was put there, and so was one that may use shielded CPUs only.
fn kind(cpus: &CpuSet, open: &CpuSet) -> ThreadKind {
    let alone = cpus.len() == 1 && open.len() > 1;
    if alone || cpus.intersection(open).is_empty() { ThreadKind::Bound } else { ThreadKind::Movable }
}

fn row(cpu: &CpuFacts, facts: &Facts, observed: &Observed, table: &CpuTable, open: &CpuSet) -> CpuRow {
    let id = cpu.cpu;
    let own = CpuSet::single(id);
    let several = cpu.siblings.len() > 1;
    let mut interrupts: Vec<InterruptRecord> = observed
        .interrupts
        .iter()
        .filter(|record| record.cpu == id && !record.line.starts_with("softirq:"))
        .cloned()
        .collect();
    interrupts.order_by(|a, b| b.count.cmp(&a.count).then_with(|| a.line.cmp(&b.line)));
    let count = |kind| table.threads_on(id, kind).count() as u64;
    let counted = observed.threads_known && cpu.online;
    CpuRow {
        cpu: id,
        chip: cpu.package,
        core: cpu.core,
        hardware_thread: several
            .then(|| u32::try_from(cpu.siblings.iter().take_while(|sibling| *sibling != id).count()).ok())
            .flatten(),
        siblings: cpu.siblings.difference(&own),
        node: cpu.node,
        kind: cpu.kind.clone(),
        online: cpu.online,
        shielding: Shielding {
            processes: counted.then(|| !open.contains(id)),
            interrupts: (observed.lines_known && cpu.online)
                .then(|| table.lines_on(id, true).next().is_none()),
            local_timer: cpu.online.then(|| facts.cpu_sets.nohz_full.contains(id)),
        },
        threads: counted.then(|| ThreadCounts {
            movable: count(ThreadKind::Movable),
            bound: count(ThreadKind::Bound),
            pinned: count(ThreadKind::Pinned),
            workers: count(ThreadKind::Worker),
        }),
        interrupts,
        tick_stopped: observed.ticks_stopped.get(&id).copied(),
        frequency_hz: observed.frequencies_hz.get(&id).copied(),
        governor: cpu.governor.clone(),
        idle_limit: idle_limit(cpu, observed.latency_limits_ns.get(&id).copied()),
        l3: cpu
            .caches
            .iter()
            .find(|cache| cache.level == 3)
            .map(|cache| L3Domain { id: observed.l3_ids.get(&id).copied(), cpus: cache.shared_by.clone() }),
    }
}

/// The deepest enabled state within the limit; the kernel always allows the first.
fn idle_limit(cpu: &CpuFacts, limit_ns: Option<u64>) -> Option<IdleLimit> {
    let fits =
        |latency: Option<u64>| limit_ns.is_none_or(|limit| latency.is_none_or(|latency| latency <= limit));
    let allowed = cpu.idle_states.iter().filter(|state| fits(state.exit_latency_ns));
    let deepest = allowed.max_by_key(|state| state.exit_latency_ns).or_else(|| cpu.idle_states.first())?;
    Some(IdleLimit { name: deepest.name.clone(), exit_latency_ns: deepest.exit_latency_ns })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    fn thread(tid: u32, cpus: &str, pinned: bool) -> ThreadRow {
        let kind = if pinned { ThreadKind::Pinned } else { ThreadKind::Movable };
        let policy = "other".to_owned();
        ThreadRow {
            pid: tid,
            tid,
            name: format!("t{tid}"),
            kind,
            kernel: pinned,
            policy,
            priority: None,
            cpus: set(cpus),
        }
    }

    fn machine(online: &str) -> Facts {
        let mut facts = Facts::default();
        facts.cpu_sets.online = set(online);
        facts.cpu_sets.present = set(online);
        let cpu = |cpu| CpuFacts { cpu, online: true, ..CpuFacts::default() };
        facts.cpus = set(online).iter().map(cpu).collect();
        facts
    }

    fn table(online: &str, threads: Vec<ThreadRow>, lines: Vec<LineRow>) -> CpuTable {
        let observed =
            Observed { threads, lines, threads_known: true, lines_known: true, ..Observed::default() };
        build(&machine(online), &observed)
    }

    fn shielded(table: &CpuTable) -> String {
        let cpus = table.cpus.iter().filter(|row| row.shielding.processes == Some(true));
        cpus.map(|row| row.cpu).collect::<CpuSet>().to_string()
    }

    #[test]
    fn a_cpu_that_most_threads_may_not_use_is_shielded_until_one_of_them_may() {
        let threads = vec![
            thread(1, "0-2", false),
            thread(2, "0-2", false),
            thread(3, "3", true),
            thread(4, "3", false),
        ];
        let all = table("0-3", threads.clone(), vec![]);
        assert_eq!(shielded(&all), "3");
        let counts = all.row(CpuId(3)).unwrap().threads.unwrap();
        assert_eq!(counts, ThreadCounts { movable: 0, bound: 1, pinned: 1, workers: 0 });
        let open = table("0-3", [threads, vec![thread(5, "2-3", false)]].concat(), vec![]);
        assert_eq!(shielded(&open), "");
        assert_eq!(open.row(CpuId(3)).unwrap().threads.unwrap().movable, 1);
    }

    #[test]
    fn threads_confined_to_several_shielded_cpus_are_bound() {
        let threads = vec![thread(1, "0-1", false), thread(2, "0-1", false), thread(3, "2-3", false)];
        let table = table("0-3", threads, vec![]);
        assert_eq!(shielded(&table), "2-3");
        assert_eq!(
            table.row(CpuId(2)).unwrap().threads.unwrap(),
            ThreadCounts { movable: 0, bound: 1, pinned: 0, workers: 0 }
        );
    }

    #[test]
    fn threads_on_the_only_open_cpu_are_there_by_chance() {
        let table =
            table("0-1", vec![thread(1, "0", false), thread(2, "0", false), thread(3, "1", false)], vec![]);
        assert_eq!(shielded(&table), "1");
        let counts = |cpu| table.row(CpuId(cpu)).unwrap().threads.unwrap();
        assert_eq!((counts(0).movable, counts(1).movable, counts(1).bound), (2, 0, 1));
    }

    #[test]
    fn the_only_cpu_is_not_shielded() {
        let table = table("0", vec![thread(1, "0", false)], vec![]);
        assert_eq!(shielded(&table), "");
        assert_eq!(table.row(CpuId(0)).unwrap().threads.unwrap().movable, 1);
    }

    #[test]
    fn lines_that_cannot_be_moved_do_not_undo_a_shield() {
        let line = |line, cpus, effective: &str, movable| LineRow {
            line,
            description: String::new(),
            cpus: set(cpus),
            effective: Some(set(effective)),
            movable,
        };
        let managed = vec![line(1, "0-1", "1", false), line(2, "0", "0", true)];
        let interrupts = |table: &CpuTable| table.row(CpuId(1)).unwrap().shielding.interrupts;
        let shielded = table("0-1", vec![], managed.clone());
        assert_eq!(interrupts(&shielded), Some(true));
        assert_eq!(shielded.lines_on(CpuId(1), false).count(), 1);
        assert_eq!(shielded.lines_on(CpuId(0), false).count(), 0, "it is sent to CPU 1");
        let open = table("0-1", vec![], [managed, vec![line(3, "0-1", "0", true)]].concat());
        assert_eq!(interrupts(&open), Some(false));
    }

    #[test]
    fn idle_states_are_limited_by_power_management() {
        let state = |name: &str, latency: u64| crate::facts::IdleStateFacts {
            name: name.to_owned(),
            exit_latency_ns: Some(latency),
        };
        let cpu = CpuFacts {
            idle_states: vec![state("POLL", 0), state("C1", 1_000), state("C6", 90_000)],
            ..CpuFacts::default()
        };
        let name = |limit| idle_limit(&cpu, limit).map(|state| state.name);
        assert_eq!(name(None).as_deref(), Some("C6"));
        assert_eq!(name(Some(50_000)).as_deref(), Some("C1"));
        assert_eq!(name(Some(0)).as_deref(), Some("POLL"));
        assert_eq!(idle_limit(&CpuFacts::default(), None), None);
    }

    proptest! {
        #[test]
        fn every_thread_is_counted_on_every_cpu_that_it_may_use(
            masks in prop::collection::vec((1u8..16, any::<bool>()), 0..24),
        ) {
            let text = |mask: u8| (0..4u32).filter(|bit| mask >> bit & 1 == 1).map(CpuId).collect::<CpuSet>().to_string();
            let threads: Vec<ThreadRow> = masks.iter().zip(1..)
                .map(|((mask, pinned), tid)| thread(tid, &text(*mask), *pinned)).collect();
            let table = table("0-3", threads.clone(), vec![]);
            for row in &table.cpus {
                let counts = row.threads.unwrap();
                let allowed = threads.iter().filter(|thread| thread.cpus.contains(row.cpu)).count() as u64;
                prop_assert_eq!(counts.movable + counts.bound + counts.pinned + counts.workers, allowed);
                if row.shielding.processes == Some(true) {
                    prop_assert_eq!(counts.movable, 0);
                }
            }
        }
    }
}
