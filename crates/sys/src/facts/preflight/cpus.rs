//! Findings about the CPUs to be measured.

use super::{Finding, named, verb};
use std::collections::BTreeSet;
use whylate_core::Facts;
use whylate_core::cpus::CpuSet;
use whylate_core::facts::CpuFacts;
use whylate_core::units::{CpuId, Nanos};
use whylate_core::warning::Warning;

/// States that take longer to leave count as deep; shallow ones (`POLL`, x86 `C1`, Arm `WFI`) state about 1 us.
const EXIT_LATENCY_SHALLOW_NS: u64 = 10_000;

fn targets_where(facts: &Facts, targets: &CpuSet, wanted: impl Fn(&CpuFacts) -> bool) -> CpuSet {
    targets.iter().filter(|&cpu| facts.cpu(cpu).is_some_and(&wanted)).collect()
}

pub(super) fn isolation(facts: &Facts, targets: &CpuSet) -> Option<Warning> {
    let open = targets.difference(&facts.cpu_sets.isolated);
    if open.is_empty() {
        return None;
    }
    let text = format!(
        "{} {} not isolated: other tasks, kernel threads and interrupts may run there and delay the measured task",
        named(&open),
        verb(&open, "is", "are")
    );
    let left = facts.cpu_sets.online.difference(&facts.cpu_sets.isolated).difference(&open);
    if facts.cpu_sets.online.len() == 1 {
        return Some(Finding::NotIsolated.warning_without_fix(format!("{text}; it is the only CPU")));
    }
    let fewer = if left.is_empty() { "leave at least one CPU out of the targets, then " } else { "" };
    let example = if left.is_empty() { "LIST".to_owned() } else { open.to_string() };
    let fix = format!(
        "{fewer}boot with `isolcpus=managed_irq,domain,{example} nohz_full={example} rcu_nocbs={example}`, or put the \
         targets into an isolated cpuset partition"
    );
    Some(Finding::NotIsolated.warning(text, fix))
}

/// Documentation/timers/no_hz.rst: CPUs outside `nohz_full` take the tick HZ times a second while they are busy.
pub(super) fn tick(facts: &Facts, targets: &CpuSet) -> Option<Warning> {
    let ticking = targets.intersection(&facts.cpu_sets.isolated).difference(&facts.cpu_sets.nohz_full);
    (!ticking.is_empty()).then(|| {
        Finding::TickOnTarget.warning(
            format!(
                "{} {} isolated but {} the periodic timer tick while busy: each tick is a short interruption",
                named(&ticking),
                verb(&ticking, "is", "are"),
                verb(&ticking, "keeps", "keep")
            ),
            format!("boot with `nohz_full={ticking}` on a kernel with CONFIG_NO_HZ_FULL"),
        )
    })
}

pub(super) fn first_cpu(facts: &Facts, targets: &CpuSet) -> Option<Warning> {
    const TEXT: &str = "CPU 0 is a target: unless told otherwise it keeps the time and handles many of the interrupts \
         for the whole machine";
    match (targets.contains(CpuId(0)), facts.cpu_sets.online.len()) {
        (false, _) => None,
        (true, 0 | 1) => {
            Some(Finding::CpuZeroTarget.warning_without_fix(format!("{TEXT}; it is the only CPU")))
        }
        (true, _) => Some(Finding::CpuZeroTarget.warning(TEXT, "measure another CPU (`--cpu last`)")),
    }
}

pub(super) fn siblings(facts: &Facts, targets: &CpuSet) -> Option<Warning> {
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
    // A sibling that is itself measured is switched off only after dropping it from the targets.
    let siblings: CpuSet = siblings.into_iter().collect();
    let unmeasured = siblings.difference(targets);
    if shared.is_empty() {
        return None;
    }
    let text = format!(
        "{} {} the core with {} (SMT): what runs there takes execution units and caches from the measured task",
        named(&shared),
        verb(&shared, "shares", "share"),
        named(&siblings)
    );
    let fix = if unmeasured.is_empty() {
        "measure one CPU of each core and switch its sibling off, or boot with `nosmt`".to_owned()
    } else {
        format!(
            "switch the sibling off (`echo 0 | sudo tee /sys/devices/system/cpu/cpuN/online` for {}), or boot with \
             `nosmt`",
            named(&unmeasured)
        )
    };
    Some(Finding::SmtSiblingOnline.warning(text, fix))
}

pub(super) fn governor(facts: &Facts, targets: &CpuSet) -> Option<Warning> {
    let other = |cpu: &CpuFacts| cpu.governor.as_deref().is_some_and(|governor| governor != "performance");
    let changing = targets_where(facts, targets, other);
    let governors: BTreeSet<&str> =
        changing.iter().filter_map(|cpu| facts.cpu(cpu)?.governor.as_deref()).collect();
    let governors: Vec<&str> = governors.into_iter().collect();
    (!changing.is_empty()).then(|| {
        Finding::GovernorNotPerformance.warning(
            format!(
                "{} {} the frequency governor {}: after a pause the core may run slower for a while, which lengthens \
                 latencies at low load",
                named(&changing),
                verb(&changing, "uses", "use"),
                governors.join(", ")
            ),
            format!("sudo cpupower -c {changing} frequency-set -g performance"),
        )
    })
}

/// Silent where `/dev/cpu_dma_latency` can be written: the probes then keep deep states off while they measure.
pub(super) fn idle_states(facts: &Facts, targets: &CpuSet) -> Option<Warning> {
    if facts.privileges.cpu_dma_latency {
        return None;
    }
    let deepest = |cpu: &CpuFacts| cpu.idle_states.iter().filter_map(|state| state.exit_latency_ns).max();
    let is_deep = |cpu: &CpuFacts| deepest(cpu).is_some_and(|latency| latency > EXIT_LATENCY_SHALLOW_NS);
    let sleepy = targets_where(facts, targets, is_deep);
    let worst = sleepy.iter().filter_map(|cpu| deepest(facts.cpu(cpu)?)).max()?;
    Some(Finding::DeepIdleStates.warning(
        format!(
            "{} may enter idle states that take up to {} to leave (as the kernel states): a wake-up from idle is late \
             by that",
            named(&sleepy),
            Nanos(worst)
        ),
        format!("sudo cpupower -c {sleepy} idle-set -D {}", EXIT_LATENCY_SHALLOW_NS / 1_000),
    ))
}

pub(super) fn kinds(facts: &Facts, targets: &CpuSet) -> Option<Warning> {
    let kinds: BTreeSet<&str> = targets.iter().filter_map(|cpu| facts.cpu(cpu)?.kind.as_deref()).collect();
    (kinds.len() > 1).then(|| {
        Finding::MixedCoreKinds.warning(
            "the targets are performance and efficiency cores: figures of one kind do not hold for the other",
            "read the figures per CPU, or measure each kind by itself",
        )
    })
}

pub(super) fn cache_sizes(facts: &Facts, targets: &CpuSet) -> Option<Warning> {
    let silent = targets_where(facts, targets, |cpu| cpu.online && cpu.caches.is_empty());
    (!silent.is_empty()).then(|| {
        Finding::NoCacheSizes.warning(
            format!(
                "{} {} no cache sizes: loads with sizes relative to a cache (`l3/2`) cannot be resolved",
                named(&silent),
                verb(&silent, "reports", "report")
            ),
            "give such sizes in bytes (`8MiB`); for a virtual machine, have the host pass its caches on",
        )
    })
}
