//! Findings about frequency and idle states of the targets.

use super::{FindingCode, Inquiry, named, verb};
use std::collections::BTreeSet;
use whylate_core::cpus::CpuSet;
use whylate_core::facts::CpuFacts;
use whylate_core::figure::nanoseconds;
use whylate_core::result::{Finding, Severity};
use whylate_core::units::Nanos;

/// States that take longer to leave count as deep; shallow ones (`POLL`, x86 `C1`, Arm `WFI`) state about 1 us.
const EXIT_LATENCY_SHALLOW_NS: u64 = 10_000;
/// Above this, leaving an idle state alone takes longer than the usual limit of a real-time task.
const EXIT_LATENCY_SERIOUS_NS: u64 = 100_000;

fn targets_where(inquiry: &Inquiry, wanted: impl Fn(&CpuFacts) -> bool) -> CpuSet {
    inquiry.targets.iter().filter(|&cpu| inquiry.facts.cpu(cpu).is_some_and(&wanted)).collect()
}

pub(super) fn governor(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let seen = "/sys/devices/system/cpu/cpuN/cpufreq/scaling_governor";
    let governor = |cpu| inquiry.facts.cpu(cpu)?.governor.as_deref();
    let other = |cpu: &CpuFacts| cpu.governor.as_deref().is_some_and(|governor| governor != "performance");
    let changing = targets_where(inquiry, other);
    if changing.is_empty() {
        let known = inquiry.targets.iter().any(|cpu| governor(cpu).is_some());
        return known.then(|| code.fine("the frequency governor is performance").seen(seen, "performance"));
    }
    let governors: BTreeSet<&str> = changing.iter().filter_map(governor).collect();
    let governors = governors.into_iter().collect::<Vec<_>>().join(", ");
    code.advice(format!(
        "{} {} the frequency governor {governors}",
        named(&changing),
        verb(&changing, "uses", "use"),
    ))
    .effect("after an idle period the core may run slower for a while, which increases latencies at low load")
    .seen(seen, governors)
    .now(format!("sudo cpupower -c {changing} frequency-set -g performance"))
    .into()
}

/// Before a measurement, nothing is reported if `/dev/cpu_dma_latency` can be written: the probes then keep deep
/// states off while they measure. A real-time task has to do that for itself, so `check` reports what is allowed now.
pub(super) fn idle_states(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let deepest = |cpu: &CpuFacts| match &inquiry.live {
        None => cpu.idle_states.iter().filter_map(|state| state.exit_latency_ns).max(),
        Some(live) => live.table.row(cpu.cpu)?.idle_limit.as_ref()?.exit_latency_ns,
    };
    if inquiry.live.is_none() && inquiry.facts.privileges.cpu_dma_latency {
        return None;
    }
    let seen = "/sys/devices/system/cpu/cpuN/cpuidle";
    let sleepy = targets_where(inquiry, |cpu| deepest(cpu).is_some_and(|ns| ns > EXIT_LATENCY_SHALLOW_NS));
    let Some(worst) = sleepy.iter().filter_map(|cpu| deepest(inquiry.facts.cpu(cpu)?)).max() else {
        let shallow = inquiry.targets.iter().filter_map(|cpu| deepest(inquiry.facts.cpu(cpu)?)).max()?;
        let text =
            format!("leaving an idle state takes at most {} (according to the kernel)", Nanos(shallow));
        return code.well(text, seen, Nanos(shallow).to_string());
    };
    let severity = if worst > EXIT_LATENCY_SERIOUS_NS { Severity::Serious } else { Severity::Advice };
    let finding = code
        .found(
            severity,
            format!(
                "{} may enter idle states that take up to {} to leave (according to the kernel)",
                named(&sleepy),
                Nanos(worst)
            ),
        )
        .effect("a wake-up is late by the time that the CPU needs to leave its idle state")
        .seen(seen, format!("exit latency {}", Nanos(worst)))
        .now(format!("sudo cpupower -c {sleepy} idle-set -D {}", EXIT_LATENCY_SHALLOW_NS / 1_000));
    let is_x86 = super::super::processor::is_x86(&inquiry.facts.kernel.architecture);
    let boot = if is_x86 {
        "boot with `intel_idle.max_cstate=1 processor.max_cstate=1`"
    } else {
        "boot with `cpuidle.off=1`"
    };
    Some(inquiry.boot(finding, boot))
}

/// A deeper state cannot be left sooner than a shallower one, or at once. The tables of ACPI and device trees have
/// such figures; limits of latency choose states by them.
pub(super) fn doubtful_exits(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    inquiry.live.as_ref()?;
    let doubtful = |cpu: &CpuFacts| {
        let known: Vec<(&str, u64)> = cpu
            .idle_states
            .iter()
            .filter_map(|state| Some((state.name.as_str(), state.exit_latency_ns?)))
            .filter(|(name, _)| *name != "POLL")
            .collect();
        let odd = |two: &[(&str, u64)]| {
            let [(_, before), (name, ns)] = *two else { return None };
            (ns == 0 || ns < before).then(|| {
                format!("{name} has {}, but a shallower state has {}", nanoseconds(ns), nanoseconds(before))
            })
        };
        known.windows(2).find_map(odd)
    };
    let odd = targets_where(inquiry, |cpu| doubtful(cpu).is_some());
    let what = doubtful(inquiry.facts.cpu(odd.first()?)?)?;
    code.advice(format!("the exit latencies that the kernel states for idle states of {} cannot be right: {what}", named(&odd)))
        .effect("a limit such as /dev/cpu_dma_latency relies on these figures: a wake-up from idle may be late by more than the stated time")
        .seen("/sys/devices/system/cpu/cpuN/cpuidle/stateM/latency", what)
        .now(format!(
            "run `whylate measure timer --cpu {odd}` without and with `--no-cpu-dma-latency`; if only the second run is late, run `sudo cpupower -c {odd} idle-set -D 0`"
        ))
        .into()
}

pub(super) fn frequency_range(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    inquiry.live.as_ref()?;
    let seen = "/sys/devices/system/cpu/cpuN/cpufreq/scaling_{min,max}_freq";
    let limits = |cpu: &CpuFacts| cpu.frequency_min_hz.zip(cpu.frequency_max_hz);
    let known = targets_where(inquiry, |cpu| limits(cpu).is_some());
    let (min, max) = inquiry.facts.cpu(known.first()?).and_then(limits)?;
    let value = format!("{} to {} MHz", min / 1_000_000, max / 1_000_000);
    let moving = targets_where(inquiry, |cpu| limits(cpu).is_some_and(|(min, max)| min < max));
    if moving.is_empty() {
        return code.well("the frequency of the target CPUs is fixed", seen, value);
    }
    code.info(format!("the frequency of {} may change ({value})", named(&moving)))
        .effect("on some processors each change stops the core for a moment, and the run time of code varies")
        .seen(seen, value)
        .now(format!(
            "sudo cpupower -c {moving} frequency-set -d MAX (the highest frequency that the CPU sustains under load)"
        ))
        .into()
}

pub(super) fn turbo(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let live = inquiry.live.as_ref()?;
    let files = [
        ("/sys/devices/system/cpu/intel_pstate/no_turbo", 0, "1"),
        ("/sys/devices/system/cpu/cpufreq/boost", 1, "0"),
    ];
    let (path, is_on, off) =
        files.into_iter().find_map(|(path, on, off)| Some((path, live.number(path)? == on, off)))?;
    if !is_on {
        return code.well("turbo is off: no CPU runs above its nominal frequency", path, off);
    }
    code.info("turbo is on: CPUs run above their nominal frequency while power and temperature allow it")
        .effect("the speed of a core depends on the load of the other cores")
        .seen(path, if off == "1" { "0" } else { "1" })
        .now(format!("echo {off} | sudo tee {path}"))
        .into()
}
