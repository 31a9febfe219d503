//! What the trace does not show, and what to record so that it does.

use crate::blame::label::Need;
use crate::evidence::section;
use crate::find::answer;
use crate::find::finder::Seen;
use crate::find::subject::{self, Subject};
use crate::vocabulary;
use std::collections::BTreeSet;
use whylate_core::figure::nanoseconds;
use whylate_core::result::{ExpectedFrom, ExplainAnswer, ExplainedSpike, ExplainedTrace, ThresholdFrom};
use whylate_core::{Warning, WarningCode};
use whylate_trace::reader::TraceInfo;

/// What the task's own work delays, if latencies were found; otherwise the answer says the same.
pub(crate) fn overruns(subject: &Subject, answer: ExplainAnswer) -> Option<Warning> {
    let is_more = subject.overruns.0 > 0 && answer == ExplainAnswer::Found;
    is_more.then(|| Warning::with_fix(WarningCode::OwnOverruns, answer::overran(subject), answer::WATCH))
}

/// Wake-ups without a switch to the task, if latencies were found; otherwise the answer says the same.
pub(crate) fn unseen(subject: &Subject, answer: ExplainAnswer) -> Option<Warning> {
    let is_more = subject.unseen.0 > 0 && answer == ExplainAnswer::Found;
    is_more.then(|| Warning::with_fix(WarningCode::RunsUnseen, answer::unseen(subject), answer::SWITCHES))
}

/// CPUs of the machine without a line: the file does not show what ran there, and who was late there.
pub(crate) fn cpus(info: &TraceInfo, seen: &Seen) -> Option<Warning> {
    let all = info.cpus.filter(|all| *all <= u128::BITS)?;
    let own: Vec<String> =
        (0..u128::BITS).filter(|cpu| seen.cpus >> cpu & 1 == 1).map(|cpu| cpu.to_string()).collect();
    let is_bounded = info.facts.latency_ns.is_some();
    if own.is_empty() || is_bounded || own.len() as u32 >= all {
        return None;
    }
    let name = if own.len() == 1 { "CPU" } else { "CPUs" };
    let text = format!(
        "the machine has {all} CPUs, but the trace has lines only of {name} {}: late tasks on other CPUs \
         cannot be found",
        own.join(", ")
    );
    Some(Warning::with_fix(WarningCode::CpusMissing, text, "give the whole trace, with all CPUs"))
}

/// If fewer tasks than this ran before they were woken, their wake-ups were lost.
const SKEWS_MIN: u64 = 3;

/// Whether lines at the time of the spike are out of order.
pub(crate) fn is_disordered(seen: &Seen, spike: &ExplainedSpike) -> bool {
    seen.back_ns.is_some_and(|(from, to)| spike.expected_ns <= to && spike.actual_ns >= from)
}

/// Contradictions between the head and the lines of a trace, or between the clocks of its CPUs.
pub(crate) fn contradictions(info: &TraceInfo, seen: &Seen, spikes: &[ExplainedSpike]) -> Vec<Warning> {
    let facts = &info.facts;
    let mut found = Vec::new();
    let latency_ns = facts.latency_ns.filter(|latency_ns| *latency_ns > 0);
    if let (Some(latency_ns), Some(first_ns)) = (latency_ns, seen.first_ns) {
        let lines_ns = seen.last_ns.saturating_sub(first_ns);
        if lines_ns > latency_ns.saturating_add(latency_ns / 10).saturating_add(section::BEYOND_NS) {
            found.push(format!(
                "the header states {}, but the lines cover {}: some lines belong to another trace or lie \
                 outside the measured section",
                nanoseconds(latency_ns),
                nanoseconds(lines_ns)
            ));
        }
    }
    if let Some(cpu) = facts.cpu.filter(|cpu| cpu.0 < u128::BITS && latency_ns.is_some())
        && seen.cpus != 0
        && seen.cpus >> cpu.0 & 1 == 0
    {
        found.push(format!(
            "the header names CPU {cpu}, but no line comes from that CPU: lines are missing or belong to another trace"
        ));
    }
    if let Some((ns, ran_on, woken_by)) = seen.skews.largest
        && seen.skews.count >= SKEWS_MIN
        && seen.lost == 0
    {
        found.push(format!(
            "{} tasks ran before another CPU woke them: the clocks of CPU {ran_on} and CPU {woken_by} differ \
             by at least {}. Times between these CPUs are wrong by as much",
            seen.skews.count,
            nanoseconds(ns)
        ));
    }
    if spikes.iter().any(|spike| is_disordered(seen, spike)) {
        found.push(format!(
            "the lines are not in the order of recording (earlier than the line before: {})",
            seen.back
        ));
    }
    let fix = "give the whole trace as it was recorded; if clocks differ, record with the trace clock `mono` or `global`";
    found.into_iter().map(|text| Warning::with_fix(WarningCode::ContradictoryTrace, text, fix)).collect()
}

/// Lines that were left out of a section's trace.
pub(crate) fn left_out(info: &TraceInfo, seen: &Seen) -> Option<Warning> {
    let is_cut = |latency_ns: u64| seen.last_ns > 0 && seen.last_ns < latency_ns / 2;
    let facts = &info.facts;
    let is_short = facts.latency_ns > Some(0) && facts.is_short(seen.records);
    let is_so = facts
        .latency_ns
        .is_some_and(|latency_ns| !facts.omissions.is_empty() || is_short || is_cut(latency_ns));
    let text = "lines were left out of the trace: the header states the length of the section, but only the remaining lines show where the time went";
    is_so.then(|| Warning::with_fix(WarningCode::CpusMissing, text, "give the whole trace"))
}

pub(crate) fn warnings(
    trace: &ExplainedTrace,
    seen: &Seen,
    needs: &BTreeSet<Need>,
    spikes: &[ExplainedSpike],
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if trace.lost > 0 {
        let text = format!("events were lost ({}): spikes and their causes may be missing", trace.lost);
        warnings.push(Warning::new(WarningCode::LostEvents, text));
    }
    let tracer = trace.tracer.as_deref().unwrap_or("");
    let measured = trace.threshold_from == ThresholdFrom::Header || trace.task_reason == subject::MEASURED;
    let sampled = measured
        || vocabulary::is_section_tracer(tracer)
        || matches!(tracer, "hwlat" | "osnoise" | "timerlat");
    if seen.switches == 0 && seen.samples == 0 && !sampled {
        let text = "the trace has no sched_switch events: switches are inferred from the thread that each \
                    line names";
        warnings.push(Warning::new(WarningCode::NoSwitches, text));
    }
    let is = |from| spikes.iter().any(|spike| spike.expected_from == from);
    if is(ExpectedFrom::Period) {
        let how = if trace.period_inferred { "inferred from the task's runs" } else { "given" };
        let text = format!(
            "the expected moment is estimated as last sleep + period ({how}): latencies are too short by the \
             task's run time"
        );
        warnings.push(Warning::with_fix(WarningCode::ExpectedFromPeriod, text, TIMERS));
    }
    if is(ExpectedFrom::Marker) {
        let text = "the expected moment comes from the latency that the task printed, and is not exact";
        warnings.push(Warning::with_fix(WarningCode::ExpectedFromMarker, text, TIMERS));
    }
    if is(ExpectedFrom::Wakeup) {
        let text = "the latency begins at the wake-up, so a late timer is not seen";
        warnings.push(Warning::with_fix(WarningCode::ExpectedFromWakeup, text, TIMERS));
    }
    for need in needs {
        let (code, text, fix) = match need {
            Need::Sections => (
                WarningCode::NoIrqPreemptEvents,
                "no event says when interrupts and preemption were disabled: both are inferred from late \
                 interrupts and switches",
                "record preemptirq:irq_disable, irq_enable, preempt_disable and preempt_enable too",
            ),
            Need::Functions => (
                WarningCode::NoFunctions,
                "for part of the time, the function that ran is not known",
                "record with the function tracer, or with stacks",
            ),
            Need::IdleStates => (
                WarningCode::NoIdleStates,
                "no event says which idle state the CPU had to leave",
                "record power:cpu_idle too",
            ),
        };
        warnings.push(Warning::with_fix(code, text, fix));
    }
    if trace.task.is_none() && !sampled {
        let text = format!("no task can be explained: {}", trace.task_reason);
        warnings.push(Warning::new(WarningCode::NoTask, text));
    }
    warnings
}

const TIMERS: &str = "record timer:hrtimer_start and timer:hrtimer_expire_entry too";
