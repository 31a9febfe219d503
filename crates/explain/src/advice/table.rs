//! Which treatment answers which causes and findings: a row each. To add one: its row.

use whylate_core::plan::TreatmentKind;
use whylate_core::recording::{FAIR_SERVER, RT_THROTTLING};
use whylate_core::result::{CauseKind, CauseKind::*, FixCause};

/// A treatment, and what it answers.
pub(super) struct Row {
    /// Stable id of the recommendation, and name of the treatment in plans.
    pub(super) id: &'static str,
    kind: &'static str,
    /// Causes that it may remove.
    pub(super) causes: &'static [CauseKind],
    /// Findings of `check` that it changes.
    pub(super) findings: &'static [&'static str],
}

const fn row(
    id: &'static str,
    kind: &'static str,
    causes: &'static [CauseKind],
    findings: &'static [&'static str],
) -> Row {
    Row { id, kind, causes, findings }
}

/// All of them. Causes without a row cannot be changed on a running kernel.
pub(super) const ROWS: &[Row] = &[
    row(
        "irq-affinity",
        r#"{"kind":"irq-affinity"}"#,
        &[Irq, Softirq, Thread],
        &["interrupts-on-target", "default-irq-affinity", "irqbalance"],
    ),
    row(
        "shield",
        r#"{"kind":"shield"}"#,
        &[Ipi, Softirq, Thread, Migration, ContextSwitch, PreemptOff, IrqsOff],
        &["not-isolated", "rcu-callbacks"],
    ),
    row("idle", r#"{"kind":"idle"}"#, &[IdleExit, TimerLate], &["deep-idle-states"]),
    row("rt-throttling", r#"{"kind":"rt-throttling"}"#, &[Throttled], &["rt-throttling"]),
    row("fair-server", r#"{"kind":"fair-server"}"#, &[Throttled], &[]),
    row(
        "vm-stat-interval",
        r#"{"kind":"sysctl","key":"vm.stat_interval","value":"120"}"#,
        &[Ipi, Thread],
        &["vmstat-interval"],
    ),
    row(
        "timer-migration",
        r#"{"kind":"sysctl","key":"kernel.timer_migration","value":"0"}"#,
        &[Ipi, Softirq],
        &[],
    ),
    row(
        "workqueue-mask",
        r#"{"kind":"workqueue"}"#,
        &[Thread, PreemptOff, IrqsOff, Ipi],
        &["workqueue-mask"],
    ),
    row(
        "softirq-priority",
        r#"{"kind":"priority","thread":"ksoftirqd/*","policy":"fifo","priority":1}"#,
        &[Softirq],
        &[],
    ),
    row(
        "governor",
        r#"{"kind":"governor","governor":"performance"}"#,
        &[Hardware, TimerLate, IdleExit, SlowClock],
        &["governor-not-performance"],
    ),
    row("frequency-fixed", r#"{"kind":"governor","turbo":false}"#, &[Hardware], &["turbo"]),
    row("smt-off", r#"{"kind":"smt-off","cpus":"target"}"#, &[Smt, Hardware], &["smt-sibling-online"]),
    row("cache-partition", r#"{"kind":"cache-partition"}"#, &[Hardware], &["cache-shared"]),
    row("memory-bandwidth", r#"{"kind":"cache-partition","others_bandwidth_percent":50}"#, &[Hardware], &[]),
    row("thp", r#"{"kind":"thp","enabled":"never"}"#, &[PageFault], &["huge-pages-always"]),
    row("ksm", r#"{"kind":"ksm"}"#, &[PageFault], &["page-merging"]),
    row("numa-balancing", r#"{"kind":"numa-balancing"}"#, &[PageFault, Migration], &["numa-balancing"]),
    row("watchdog", r#"{"kind":"watchdog"}"#, &[Nmi], &["watchdog-on"]),
    row("network", r#"{"kind":"network"}"#, &[Softirq], &[]),
    row("network-coalescing", r#"{"kind":"ethtool","delay":"500us"}"#, &[Softirq], &[]),
    row("pci-power", r#"{"kind":"pci-power"}"#, &[Hardware], &[]),
    row("gpu-power", r#"{"kind":"gpu-power"}"#, &[], &["gpu-runtime-power", "gpu-frequency"]),
];

/// The kind of throttling that a treatment ends.
const THROTTLERS: [(&str, &str); 2] = [("rt-throttling", RT_THROTTLING), ("fair-server", FAIR_SERVER)];

/// Interrupts of the CPU itself, which no other CPU can take.
const OWN_INTERRUPTS: [&str; 2] = ["local timer", "irq work"];

/// The threads and softirqs that a treatment can answer, by the start of the name; all of them if it is not listed here.
const ACTORS: &[(&str, &[&str])] = &[
    ("irq-affinity", &["irq/", "NET_", "BLOCK", "IRQ_POLL", "TASKLET", "HI "]),
    ("vm-stat-interval", &["kworker/"]),
    ("workqueue-mask", &["kworker/"]),
    ("timer-migration", &["TIMER", "HRTIMER"]),
    ("network", &["NET_"]),
    ("network-coalescing", &["NET_"]),
];

impl Row {
    /// Whether it may remove that cause.
    pub(super) fn answers(&self, cause: &FixCause) -> bool {
        let is_own = cause.actor.as_deref().is_some_and(|actor| OWN_INTERRUPTS.contains(&actor));
        let names_work = [Thread, Softirq, PreemptOff, IrqsOff].iter().any(|kind| kind.name() == cause.kind);
        let of_actor = ACTORS.iter().find(|(id, _)| names_work && *id == self.id).zip(cause.actor.as_deref());
        let is_its = of_actor.is_none_or(|((_, known), actor)| {
            known.iter().any(|it| actor.starts_with(it.trim_end_matches('/')))
        });
        let throttler = cause.actor.as_deref().filter(|_| cause.kind == Throttled.name());
        let ends = THROTTLERS.iter().find(|(id, _)| *id == self.id).zip(throttler);
        let is_its = is_its && ends.is_none_or(|((_, known), actor)| *known == actor);
        !is_own && is_its && self.causes.iter().any(|kind| kind.name() == cause.kind)
    }

    pub(super) fn treatment(&self) -> Option<TreatmentKind> {
        serde_json::from_str(self.kind).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_a_treatment() {
        for row in ROWS {
            let kind: Result<TreatmentKind, _> = serde_json::from_str(row.kind);
            assert!(kind.is_ok(), "{}: {:?}", row.id, kind);
            assert!(!row.causes.is_empty() || !row.findings.is_empty(), "{}", row.id);
        }
    }
}
