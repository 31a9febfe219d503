//! Findings about the CPUs to be measured: who else runs on them and on their siblings.

use super::{FindingCode, Inquiry, named, verb};
use std::collections::BTreeSet;
use whylate_core::cpus::CpuSet;
use whylate_core::result::Finding;
use whylate_core::units::CpuId;

pub(super) fn isolation(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let facts = inquiry.facts;
    // Check what runs on the CPU, not only the boot options: a shield may be made at run time.
    let open: CpuSet = inquiry.targets.difference(&facts.cpu_sets.isolated);
    let is_open = |cpu: &CpuId| {
        let row = inquiry.live.as_ref().and_then(|live| live.table.row(*cpu));
        row.and_then(|row| row.shielding.processes) != Some(true)
    };
    let open: CpuSet = open.iter().filter(is_open).collect();
    if open.is_empty() {
        let text = format!("{} {} isolated", named(inquiry.targets), verb(inquiry.targets, "is", "are"));
        let isolated = facts.cpu_sets.isolated.to_string();
        return code.well(text, "/sys/devices/system/cpu/isolated and partitions", isolated);
    }
    let text = format!("{} {} not isolated", named(&open), verb(&open, "is", "are"));
    let effect =
        "other tasks, kernel threads and interrupts may run on these CPUs and delay the measured task";
    let seen = "/sys/devices/system/cpu/isolated";
    let isolated = facts.cpu_sets.isolated.to_string();
    let left = facts.cpu_sets.online.difference(&facts.cpu_sets.isolated).difference(&open);
    if facts.cpu_sets.online.len() == 1 {
        let effect = format!("{effect}; the machine has no other CPU");
        let finding = code.serious(text).effect(effect).seen(seen, isolated);
        return Some(Finding { treatment: None, ..finding });
    }
    let fewer = if left.is_empty() {
        "name fewer target CPUs, to leave at least one CPU for other tasks, then "
    } else {
        ""
    };
    let example = if left.is_empty() { "LIST".to_owned() } else { open.to_string() };
    code.serious(text)
        .effect(effect)
        .seen(seen, isolated)
        .now(format!("{fewer}put the target CPUs into an isolated cpuset partition"))
        .boot(format!(
            "boot with `isolcpus=managed_irq,domain,{example} nohz_full={example} rcu_nocbs={example}`"
        ))
        .into()
}

/// Documentation/timers/no_hz.rst: CPUs outside `nohz_full` take the tick HZ times a second while they are busy.
/// Before a measurement this is reported only for CPUs that were isolated.
pub(super) fn tick(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let sets = &inquiry.facts.cpu_sets;
    let asked = if inquiry.live.is_some() {
        inquiry.targets.clone()
    } else {
        inquiry.targets.intersection(&sets.isolated)
    };
    let ticking = asked.difference(&sets.nohz_full);
    let seen = "/sys/devices/system/cpu/nohz_full";
    if ticking.is_empty() {
        let text = format!("the tick of {} can stop", named(inquiry.targets));
        return code.well(text, seen, sets.nohz_full.to_string());
    }
    let isolated = if ticking.intersection(&sets.isolated) == ticking { "isolated but " } else { "" };
    let is = if isolated.is_empty() { String::new() } else { format!("{} ", verb(&ticking, "is", "are")) };
    let keeps = verb(&ticking, "keeps", "keep");
    code.advice(format!("{} {is}{isolated}{keeps} the periodic timer tick while busy", named(&ticking)))
        .effect("each tick is a short interruption")
        .seen(seen, sets.nohz_full.to_string())
        .boot(format!("boot with `nohz_full={ticking}` on a kernel with CONFIG_NO_HZ_FULL"))
        .into()
}

pub(super) fn first_cpu(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    if !inquiry.targets.contains(CpuId(0)) {
        return None;
    }
    let finding = code.advice("CPU 0 is a target CPU");
    let effect = "by default, CPU 0 does the timekeeping and handles many interrupts for the whole machine";
    Some(if inquiry.facts.cpu_sets.online.len() > 1 {
        finding.effect(effect).now("measure another CPU (`--cpu last`)")
    } else {
        finding.effect(format!("{effect}; the machine has no other CPU"))
    })
}

pub(super) fn siblings(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let (facts, targets) = (inquiry.facts, inquiry.targets);
    let mut shared = BTreeSet::new();
    let mut siblings = BTreeSet::new();
    for cpu in targets.iter() {
        let known = facts.cpu(cpu).map(|cpu| cpu.siblings.clone()).unwrap_or_default();
        let others = known.intersection(&facts.cpu_sets.online).difference(&CpuSet::single(cpu));
        if !others.is_empty() {
            shared.insert(cpu);
            siblings.extend(others.iter());
        }
    }
    let shared: CpuSet = shared.into_iter().collect();
    let siblings: CpuSet = siblings.into_iter().collect();
    let seen = "/sys/devices/system/cpu/cpuN/topology/core_cpus_list";
    if shared.is_empty() {
        let known = targets.iter().any(|cpu| facts.cpu(cpu).is_some_and(|cpu| !cpu.siblings.is_empty()));
        return known
            .then(|| code.fine("no target CPU shares its core (SMT)").seen(seen, targets.to_string()));
    }
    // A sibling that is itself measured is switched off only after dropping it from the targets.
    let unmeasured = siblings.difference(targets);
    let finding = code
        .serious(format!(
            "{} {} with {} (SMT)",
            named(&shared),
            verb(&shared, "shares its core", "share their cores"),
            named(&siblings)
        ))
        .effect(
            "tasks on the sibling use the same execution units and caches, and slow the measured task down",
        )
        .seen(seen, shared.union(&siblings).to_string());
    let finding = if unmeasured.is_empty() {
        finding.now("measure one CPU of each core and switch its sibling off")
    } else {
        finding.now(format!(
            "switch the sibling off (`echo 0 | sudo tee /sys/devices/system/cpu/cpuN/online` for {})",
            named(&unmeasured)
        ))
    };
    Some(finding.boot("boot with `nosmt`"))
}

pub(super) fn kinds(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let kinds: BTreeSet<&str> =
        inquiry.targets.iter().filter_map(|cpu| inquiry.facts.cpu(cpu)?.kind.as_deref()).collect();
    (kinds.len() > 1).then(|| {
        code.info("the target CPUs are a mix of performance and efficiency cores")
            .effect("figures of one kind of core do not apply to the other kind")
            .now("look at the figures of each CPU, or measure each kind of core separately")
    })
}
