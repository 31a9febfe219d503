//! What may help: treatments for the causes of spikes and for findings about a machine, each with its reason and a stable id.
//! And the files that install proved treatments.
//!
//! The planner of a treatment decides whether it is possible on the machine. Only a search can show that a treatment helps;
//! nothing here claims it.

mod bandwidth;
mod install;
mod profile;
mod removes;
mod table;

pub use bandwidth::{Paced, asks_who_is_busy};
pub use install::install;
pub use profile::{Profile, profile};
pub use removes::removes;

use crate::vocabulary::{self, ANOTHER_CPU};
use std::collections::BTreeMap;
use table::{ROWS, Row};
use whylate_core::cpus::CpuSelector;
use whylate_core::order::InOrder;
use whylate_core::plan::{
    AffinityPlan, Chain, IrqAffinityPlan, PriorityPlan, SeriesStatistic, Statistic, ThreadPolicy,
    TreatmentKind, TreatmentPlan,
};
use whylate_core::quantity::TASK;
use whylate_core::recording::OWN;
use whylate_core::result::{
    Cause, CauseKind, CellResult, Finding, FixArm, FixCause, FixLeftOut, LateResponses, LateTime,
    ProbeResult, Severity, Spike, lasting_name, shares,
};
use whylate_core::{BusyProgram, CpuSet, Facts, SeriesName};

/// One search tries at most this many treatments; those that answer larger causes come first.
pub const ARMS_MAX: usize = 12;
/// How many lines of interrupts get a treatment of their own; and how many threads.
const LINES_MAX: usize = 3;
const THREADS_MAX: usize = 3;
/// Causes of a smaller part of the spikes do not move their treatments forward.
const SHARE_MIN: f64 = 0.1;
const WEIGHT_OF_SPIKE: f64 = 10.0;
const THREAD: &str = CauseKind::Thread.name();
/// How names of threads that handle interrupts begin.
const IRQ_THREAD: &str = "irq/";

#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The causes of the spikes, largest share first.
    pub causes: &'a [FixCause],
    /// What `check` finds.
    pub findings: &'a [Finding],
    pub facts: &'a Facts,
    pub target: &'a CpuSet,
    /// The other users of the machine; needed only if they may be to blame.
    pub busy: &'a [BusyProgram],
    /// The loads of the cell that move memory.
    pub paced: &'a [Paced],
}

/// The first part of ids of treatments for a named program, thread or interrupt.
const NAMED: [&str; 4] = ["affinity-", "priority-", "quota-", "irq-affinity-"];

/// Whether any measurement can lead to a treatment with that id.
pub fn is_id(id: &str) -> bool {
    ROWS.iter().any(|row| row.id == id) || NAMED.iter().any(|start| id.starts_with(start))
}

/// The causes of the late responses of watched threads to be improved. Otherwise those of the spikes of a cell in the series to be
/// improved, or in all series of its probe, or in all probes, if that has none; causes of most spikes first.
pub fn causes(cell: &CellResult, series: &str) -> Vec<FixCause> {
    if let Some(causes) = causes_of_late_responses(cell, series) {
        return causes;
    }
    let mut sums: BTreeMap<(&str, Option<&str>), (u32, f64)> = BTreeMap::new();
    let wanted = |it: &ProbeResult| it.probe == SeriesName::of(series).probe && !it.spikes.is_empty();
    let is_there = cell.probes.iter().any(wanted);
    let of_goal = cell.probes.iter().filter(|it| !is_there || wanted(it));
    let of_goal: Vec<&Spike> = of_goal.flat_map(|probe| &probe.spikes).collect();
    let is_its = |spike: &Spike| spike.probe.as_deref() == Some(series);
    // The wake-up is a part of a response.
    let is_part = |spike: &Spike| {
        let name = SeriesName::of(spike.probe.as_deref().unwrap_or_default());
        name.part.is_some() && name.is_of_user()
    };
    let has_own = of_goal.iter().any(|spike| is_its(spike));
    let mut total = 0.0;
    for spike in of_goal.into_iter().filter(|spike| if has_own { is_its(spike) } else { !is_part(spike) }) {
        let late = spike.latency_ns as f64;
        total += late;
        for (index, (cause, part)) in shares(spike).0.into_iter().enumerate() {
            let sum = sums.entry((cause.kind.name(), cause.actor.as_deref())).or_default();
            sum.0 += u32::from(index == 0);
            sum.1 += late * part;
        }
    }
    let cause = |((kind, actor), (spikes, late)): ((&str, Option<&str>), (u32, f64))| FixCause {
        kind: kind.to_owned(),
        actor: actor.map(str::to_owned),
        spikes,
        share: if total > 0.0 { late / total } else { 0.0 },
    };
    most_spikes_first(sums.into_iter().map(cause).collect())
}

/// All late responses count, of which the spikes of a cell are only the largest; `None` without a deadline or without any that was
/// explained.
fn causes_of_late_responses(cell: &CellResult, series: &str) -> Option<Vec<FixCause>> {
    let wanted = SeriesStatistic { series: series.to_owned(), statistic: Statistic::Max };
    let is_chain = |name: &str| SeriesName::of(name).series.and_then(Chain::of_series).is_some();
    let is_its = |name: &str| name == series || (wanted.is_of(name) && !is_chain(name));
    let late = cell.probes.iter().flat_map(|probe| &probe.late_responses).filter(|it| is_its(&it.probe));
    let rows = LateResponses::late_time(late);
    if rows.iter().all(|row| row.main == 0) {
        return None;
    }
    // The rows have names without numbers, and a treatment needs the whole name.
    let spikes = cell.probes.iter().flat_map(|probe| &probe.spikes);
    let seen: Vec<&Cause> =
        spikes.flat_map(|spike| std::iter::once(&spike.cause).chain(&spike.also)).collect();
    let full = |row: &LateTime| {
        let is_it = |it: &&&Cause| {
            it.kind == row.kind
                && it.actor.as_deref().map(lasting_name).is_some_and(|it| row.actor == Some(it))
        };
        seen.iter().find(is_it).map_or_else(|| row.actor.clone(), |it| it.actor.clone())
    };
    let mut causes: Vec<FixCause> = Vec::new();
    for row in &rows {
        let (kind, actor) = (row.kind.name(), full(row));
        let spikes = u32::try_from(row.main).unwrap_or(u32::MAX);
        match causes.iter_mut().find(|it| it.kind == kind && it.actor == actor) {
            Some(known) => {
                known.spikes = known.spikes.saturating_add(spikes);
                known.share += row.share;
            }
            None => causes.push(FixCause { kind: kind.to_owned(), actor, spikes, share: row.share }),
        }
    }
    // What is not known is no cause of its own.
    causes.retain(|it| it.kind != CauseKind::Unattributed.name() || it.spikes > 0);
    Some(most_spikes_first(causes))
}

fn most_spikes_first(mut causes: Vec<FixCause>) -> Vec<FixCause> {
    causes.order_by(|a, b| {
        (b.spikes, b.share).partial_cmp(&(a.spikes, a.share)).unwrap_or(std::cmp::Ordering::Equal)
    });
    causes
}

/// The id of the advice to give the measured thread a real-time priority.
pub const TASK_PRIORITY: &str = "task-priority";

/// What helps a watched thread of ordinary priority that waits for a CPU; only its user may decide that.
pub fn task_priority(cell: &CellResult, causes: &[FixCause]) -> Option<FixLeftOut> {
    let waits: Vec<&FixCause> = causes.iter().filter(|it| it.kind == CauseKind::Thread.name()).collect();
    let share: f64 = waits.iter().map(|cause| cause.share).sum();
    if share < SHARE_MIN {
        return None;
    }
    let tasks = cell.probes.iter().flat_map(|probe| &probe.cpus).filter_map(|cpu| cpu.quantities.of(TASK));
    let ordinary = tasks.filter(|task| task.priority <= 0).max_by_key(|task| task.preempted_ns)?;
    Some(FixLeftOut {
        id: TASK_PRIORITY.to_owned(),
        reason: caused_reason(&waits, causes),
        why: ordinary.real_time_advice()?,
    })
}

/// What may be tried, and what may not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Candidates {
    /// The treatments, those that answer the largest causes first.
    pub arms: Vec<FixArm>,
    /// How many of the first arms answer causes of a tenth of the spikes or more.
    pub first: u32,
    /// What is not tried, with why.
    pub left_out: Vec<FixLeftOut>,
}

/// The treatments that may help and are `possible` on the machine, those that answer the largest causes first; and what is
/// not tried, with reasons. Treatments of `wanted` are tried even if others answer larger causes.
pub fn candidates(
    situation: &Situation<'_>,
    wanted: &[String],
    possible: &dyn Fn(&TreatmentPlan) -> Result<(), String>,
) -> Candidates {
    let mut arms: Vec<(f64, FixArm)> = lines(situation);
    arms.extend(threads(situation));
    arms.extend(bandwidth::quotas(situation));
    arms.extend(ROWS.iter().filter_map(|row| of_row(row, situation)));
    arms.order_by(|a, b| b.0.total_cmp(&a.0));
    let mut left_out: Vec<FixLeftOut> = Vec::new();
    let mut kept: Vec<FixArm> = Vec::new();
    let mut first = 0;
    let spikes: u32 = situation.causes.iter().map(|cause| cause.spikes).sum();
    let large = (f64::from(spikes) * SHARE_MIN).max(1.0) * WEIGHT_OF_SPIKE;
    for (weight, arm) in arms {
        // One thread may be the actor of causes of several kinds: the largest one is the reason.
        let is_known = |id: &str| id == arm.treatment.name;
        if let Some(known) = kept.iter_mut().find(|it| is_known(&it.treatment.name)) {
            known.answers.extend(arm.answers);
            continue;
        }
        if left_out.iter().any(|it| is_known(&it.id)) {
            continue;
        }
        let is_wanted = wanted.contains(&arm.treatment.name);
        let why = match possible(&arm.treatment) {
            Ok(()) if kept.len() < ARMS_MAX || is_wanted => {
                kept.push(arm);
                first += u32::from(weight >= large);
                continue;
            }
            Ok(()) => format!(
                "{ARMS_MAX} other treatments act on larger causes; to test this treatment too, name it with \
                 --yes"
            ),
            Err(why) => why,
        };
        left_out.push(FixLeftOut { id: arm.treatment.name, reason: arm.reason, why });
    }
    left_out.extend(bandwidth::pacing(situation));
    left_out.extend(untreatable(situation));
    Candidates { arms: kept, first, left_out }
}

/// The arm of a row, with its weight: the share of the causes that it answers, and a small weight for a mere finding.
fn of_row(row: &Row, situation: &Situation<'_>) -> Option<(f64, FixArm)> {
    let Situation { causes, findings, .. } = situation;
    // Its own interrupts end with the measurement.
    let is_own = |cause: &FixCause| cause.actor.as_deref() == Some(OWN);
    let is_other =
        |cause: &FixCause| !is_own(cause) && (cause.kind != THREAD || !is_of_chain(cause, situation));
    let caused: Vec<&FixCause> =
        causes.iter().filter(|cause| row.answers(cause) && is_other(cause)).collect();
    let found: Vec<&Finding> = findings
        .iter()
        .filter(|it| it.severity != Severity::Ok && row.findings.contains(&it.id.as_str()))
        .collect();
    let reason = match (caused.first(), found.first()) {
        (Some(_), _) => caused_reason(&caused, causes),
        (None, Some(finding)) => finding.text.clone(),
        (None, None) => return None,
    };
    let kind = row.treatment()?;
    let weight = caused.iter().map(|cause| f64::from(cause.spikes) + cause.share).sum::<f64>()
        * WEIGHT_OF_SPIKE
        + found.len() as f64 * 0.1;
    let answers = caused.iter().map(|cause| cause.kind.clone()).chain(found.iter().map(|it| it.id.clone()));
    let mut answers: Vec<String> = answers.collect();
    answers.dedup();
    Some((weight, arm(row.id, kind, reason, answers)))
}

/// The interrupts that made spikes, by their handlers or by their threads, each line on its own.
fn lines(situation: &Situation<'_>) -> Vec<(f64, FixArm)> {
    let of_line = |cause: &FixCause| {
        let actor = cause.actor.as_deref()?;
        let line = match cause.kind.as_str() {
            kind if kind == CauseKind::Irq.name() => actor.strip_prefix("irq ")?.split(' ').next()?,
            _ => actor.strip_prefix(IRQ_THREAD)?.split('-').next()?,
        };
        let number: u32 = line.parse().ok()?;
        let interrupts = vec![number.to_string()];
        let plan = IrqAffinityPlan { interrupts, cpus: CpuSelector::Others, new_interrupts: false };
        let kind = TreatmentKind::IrqAffinity(plan);
        let reason = caused_reason(&[cause], situation.causes);
        Some((
            own_weight(cause),
            arm(&format!("irq-affinity-{number}"), kind, reason, vec![cause.kind.clone()]),
        ))
    };
    let is_of_line =
        |cause: &&FixCause| [CauseKind::Irq, CauseKind::Thread].iter().any(|kind| kind.name() == cause.kind);
    let mut lines: Vec<(f64, FixArm)> = Vec::new();
    for (weight, arm) in situation.causes.iter().filter(is_of_line).filter_map(of_line) {
        // Its handler and its thread are moved as one.
        if lines.len() < LINES_MAX && !lines.iter().any(|it| it.1.treatment == arm.treatment) {
            lines.push((weight, arm));
        }
    }
    lines
}

/// The weight of a treatment for one actor, which is tried before one for many.
fn own_weight(cause: &FixCause) -> f64 {
    (f64::from(cause.spikes) + cause.share) * WEIGHT_OF_SPIKE + 0.5
}

/// The threads that had the CPU, each on its own: elsewhere, or with a priority below that of the measured task.
fn threads(situation: &Situation<'_>) -> Vec<(f64, FixArm)> {
    // A process that sends interrupts to the CPUs that its threads use sends none to a CPU that they leave.
    const KINDS: [CauseKind; 5] =
        [CauseKind::Thread, CauseKind::PreemptOff, CauseKind::IrqsOff, CauseKind::Lock, CauseKind::Ipi];
    let preempting =
        |cause: &FixCause| cause.actor.as_deref().and_then(vocabulary::preempting).map(str::to_owned);
    let named = |cause: &'_ &FixCause| {
        let preempting = preempting(cause);
        let actor = preempting.as_deref().or(cause.actor.as_deref()).unwrap_or_default();
        // Workers follow their work.
        let is_moved_otherwise = ["kworker", OWN, ANOTHER_CPU].iter().any(|first| actor.starts_with(first));
        (preempting.is_some() || KINDS.iter().any(|kind| kind.name() == cause.kind))
            && !actor.is_empty()
            && !is_moved_otherwise
            && !is_of_chain(cause, situation)
    };
    let arms_of = |cause: &FixCause| {
        let preempting = preempting(cause);
        let runs_first = preempting.is_some() || cause.kind == CauseKind::Thread.name();
        let actor = preempting.or_else(|| cause.actor.clone()).unwrap_or_default();
        let reason = caused_reason(&[cause], situation.causes);
        let of = |name: &str, kind: TreatmentKind, more: f64| {
            let answers = vec![cause.kind.clone()];
            (own_weight(cause) + more, arm(&format!("{name}-{actor}"), kind, reason.clone(), answers))
        };
        let plan = AffinityPlan { process: actor.clone(), cpus: CpuSelector::Others };
        // Threads of interrupts follow their interrupts.
        let elsewhere =
            (!actor.starts_with(IRQ_THREAD)).then(|| of("affinity", TreatmentKind::Affinity(plan), 0.1));
        // An ordinary task delays a real-time one by its CPU and its locks, not by its priority.
        let below = runs_first.then(|| {
            let (policy, priority) = (ThreadPolicy::Fifo, Some(1));
            let plan = PriorityPlan { thread: actor.clone(), policy, priority, nice: None };
            of("priority", TreatmentKind::Priority(plan), 0.0)
        });
        [elsewhere, below].into_iter().flatten()
    };
    situation.causes.iter().filter(named).take(THREADS_MAX).flat_map(arms_of).collect()
}

/// Whether a thread did work of a measured chain: only there does own work have an actor. The chain would be slower without it.
fn is_of_chain(cause: &FixCause, situation: &Situation<'_>) -> bool {
    let actor = cause.actor.as_deref().map(|actor| vocabulary::preempting(actor).unwrap_or(actor));
    let is_own = |it: &FixCause| it.kind == CauseKind::OwnWork.name() && it.actor.as_deref() == actor;
    actor.is_some() && situation.causes.iter().any(is_own)
}

fn arm(id: &str, kind: TreatmentKind, reason: String, answers: Vec<String>) -> FixArm {
    let treatment = TreatmentPlan { name: id.to_owned(), optional: false, kind };
    FixArm { treatment, reason, answers, removes: Vec::new(), service: None }
}

/// `irq 45 (nvme0q1) was the main cause of 5 of 9 spikes`; causes of several kinds with the spikes of each:
/// `irqs_off` (3) and `ipi` (1) were the main causes of 4 of 9 spikes.
fn caused_reason(caused: &[&FixCause], all: &[FixCause]) -> String {
    let spikes: u32 = caused.iter().map(|cause| cause.spikes).sum();
    let total: u32 = all.iter().map(|cause| cause.spikes).sum();
    let mut kinds: Vec<(&str, u32)> = Vec::new();
    for cause in caused.iter().filter(|cause| cause.spikes > 0 || spikes == 0) {
        match kinds.iter_mut().find(|(kind, _)| *kind == cause.kind) {
            Some((_, sum)) => *sum += cause.spikes,
            None => kinds.push((&cause.kind, cause.spikes)),
        }
    }
    let first = caused.first();
    let kind = first.map_or("", |cause| cause.kind.as_str());
    let (who, were) = match (first.and_then(|cause| cause.actor.as_deref()), caused.len()) {
        _ if kinds.len() > 1 => (several(&kinds), "were the main causes"),
        (Some(actor), 1) => (format!("{actor} ({kind})"), "was the main cause"),
        (Some(actor), 2) => (format!("{actor} ({kind}) and 1 other"), "were the main causes"),
        (Some(actor), more) => (format!("{actor} ({kind}) and {} others", more - 1), "were the main causes"),
        (None, _) => (format!("`{kind}`"), "was the main cause"),
    };
    match spikes {
        0 => format!("{who} contributed to spikes"),
        _ => format!("{who} {were} of {spikes} of {total} spikes"),
    }
}

/// `irqs_off` (3), `ipi` (2) and `thread` (1).
fn several(kinds: &[(&str, u32)]) -> String {
    let one = |(kind, spikes): &(&str, u32)| match spikes {
        0 => format!("`{kind}`"),
        _ => format!("`{kind}` ({spikes})"),
    };
    let all: Vec<String> = kinds.iter().map(one).collect();
    all.split_last().map_or_else(String::new, |(last, others)| format!("{} and {last}", others.join(", ")))
}

/// What cannot be changed while the machine runs: causes outside the kernel, and findings that need a reboot.
fn untreatable(situation: &Situation<'_>) -> Vec<FixLeftOut> {
    let outside = |cause: &FixCause| {
        let why = match CauseKind::from_name(&cause.kind)? {
            CauseKind::Quota => "the cause is the task's CPU quota; raise `cpu.max` (CPUQuota= of its unit)",
            CauseKind::Wait => {
                "the task itself waits in the kernel; keep waits for disks and memory out of its real-time \
                 part"
            }
            CauseKind::TimerSlack => {
                "ordinary threads have a timer slack; give the task a real-time policy, or a smaller `TimerSlackNSec=`"
            }
            CauseKind::OwnWork => "the time is the task's own work, which no setting shortens",
            CauseKind::Thread if is_of_chain(cause, situation) => {
                "the threads of the chain delay each other; choose their CPUs and priorities in the program"
            }
            CauseKind::Steal | CauseKind::HostStall => {
                "the cause is the hypervisor; pin the virtual CPUs on the host"
            }
            CauseKind::Smi => "the cause is the firmware; look for a setting in the firmware setup",
            CauseKind::Lock => {
                "another thread holds a lock that the task needs; use a mutex with PTHREAD_PRIO_INHERIT and hold it only briefly. For a kernel \
                 lock, avoid the calls that take it"
            }
            CauseKind::PreemptOff | CauseKind::IrqsOff => {
                "the cause is kernel code; avoid the calls to that code, or change the code"
            }
            _ => return None,
        };
        let is_meant =
            |it: &&FixCause| it.kind == cause.kind && (cause.kind != THREAD || is_of_chain(it, situation));
        let of_kind: Vec<&FixCause> = situation.causes.iter().filter(is_meant).collect();
        let reason = caused_reason(&of_kind, situation.causes);
        Some(FixLeftOut { id: cause.kind.clone(), reason, why: why.to_owned() })
    };
    let mut left_out: Vec<FixLeftOut> = Vec::new();
    for one in situation.causes.iter().filter(|cause| cause.spikes > 0).filter_map(outside) {
        if !left_out.iter().any(|known| known.id == one.id) {
            left_out.push(one);
        }
    }
    let boots = situation.findings.iter().filter(|it| it.severity < Severity::Ok && it.treatment.is_none());
    left_out.extend(boots.filter_map(|finding| {
        let why = format!(
            "this treatment needs a reboot (`whylate fix --campaign` tests such treatments): {}",
            finding.fix_boot.as_ref()?
        );
        Some(FixLeftOut { id: finding.id.clone(), reason: finding.text.clone(), why })
    }));
    left_out
}

#[cfg(test)]
mod tests;
