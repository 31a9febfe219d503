//! Words and names that several sections use: probes, CPUs, causes, the machine.

use crate::pages::explain::moment;
pub(crate) use whylate_core::figure::counted;
use whylate_core::figure::{nanoseconds, share};
use whylate_core::result::{
    Cause, CauseKind, CellResult, HwlatSample, ProbeResult, RunResult, WAITED_FOR_CPU,
};
use whylate_core::{CpuSet, Facts, SeriesName};

/// What a probe measures, in half a sentence.
pub(crate) fn probe_meaning(probe: &str) -> &'static str {
    SeriesName::of(probe).facts().map_or("latency", |facts| facts.meaning)
}

/// Processor, kernel, preemption, CPUs and, if there is one, the kind of virtual machine or container.
pub(crate) fn machine(facts: &Facts, cpus: &CpuSet) -> Vec<String> {
    let known = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let preemption = match facts.kernel.preemption.as_str() {
        "none" => Some("no preemption".to_owned()),
        _ => known(&facts.kernel.preemption),
    };
    let parts = [
        known(&facts.processor.model).map(|model| short_model(&model)),
        known(&facts.kernel.release).map(|release| format!("Linux {release}")),
        preemption,
        Some(cpu_list(cpus)),
        facts.environment.hypervisor.as_ref().map(|hypervisor| format!("{hypervisor} guest")),
        facts.environment.container.as_ref().map(|container| format!("in {container}")),
    ];
    parts.into_iter().flatten().collect()
}

/// `AMD EPYC 9555 64-Core Processor` becomes `AMD EPYC 9555`, `Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz` becomes
/// `Intel Xeon Gold 6248`.
fn short_model(model: &str) -> String {
    let model = model.replace("(R)", "").replace("(TM)", "");
    let before_clock = model.split(" @ ").next().unwrap_or_default();
    let is_filler = |word: &&str| !(["CPU", "Processor"].contains(word) || word.ends_with("-Core"));
    before_clock.split_whitespace().filter(is_filler).collect::<Vec<_>>().join(" ")
}

/// `CPU 1`, `CPUs 1,3-5`.
pub(crate) fn cpu_list(cpus: &CpuSet) -> String {
    if cpus.len() == 1 { format!("CPU {cpus}") } else { format!("CPUs {cpus}") }
}

/// Names of the probes of a run, in the order in which they appear.
pub(crate) fn probe_names(run: &RunResult) -> Vec<&str> {
    let mut names = Vec::new();
    for probe in run.cells.iter().flat_map(|cell| &cell.probes) {
        if !names.contains(&probe.probe.as_str()) {
            names.push(&probe.probe);
        }
    }
    names
}

/// The series of a probe, in the order in which they appear; `None` if there is only one.
pub(crate) fn series_names<'r>(run: &'r RunResult, probe: &str) -> Vec<Option<&'r str>> {
    let mut names = Vec::new();
    for cpu in run.cells.iter().filter_map(|cell| cell_probe(cell, probe)).flat_map(|probe| &probe.cpus) {
        if !names.contains(&cpu.series.as_deref()) {
            names.push(cpu.series.as_deref());
        }
    }
    names
}

pub(crate) fn measured_cpus(run: &RunResult) -> CpuSet {
    let probes = run.cells.iter().flat_map(|cell| &cell.probes);
    probes.flat_map(|probe| &probe.cpus).map(|cpu| cpu.cpu).collect()
}

/// What this probe measured in this cell.
pub(crate) fn cell_probe<'a>(cell: &'a CellResult, probe: &str) -> Option<&'a ProbeResult> {
    cell.probes.iter().find(|result| result.probe == probe)
}

/// `inner 41 us, outer 41 us, 9976 gaps, 3 us in 2 NMIs, at 1702045267.016266287 s since 1970`.
pub(crate) fn hwlat(sample: &HwlatSample) -> String {
    let mut parts = vec![
        format!("inner {}", nanoseconds(sample.inner_ns)),
        format!("outer {}", nanoseconds(sample.outer_ns)),
    ];
    parts.extend(sample.count.map(|count| counted(count, "gap")));
    let nmis = sample.nmi_ns.zip(sample.nmi_count);
    parts.extend(nmis.map(|(ns, count)| format!("{} in {}", nanoseconds(ns), counted(count, "NMI"))));
    parts.extend(sample.wall_ns.map(|ns| format!("at {} s since 1970", moment(ns))));
    parts.join(", ")
}

/// Kind, actor and function of a cause: `irqs off: irq/45-nvkm in unarm`.
pub(crate) fn cause_name(cause: &Cause) -> String {
    let kind = match cause.kind {
        CauseKind::Unattributed => "not explained".to_owned(),
        kind => kind.words(),
    };
    match (&cause.actor, &cause.function) {
        (Some(actor), Some(function)) => format!("{kind}: {actor} in {function}"),
        (Some(only), None) | (None, Some(only)) => format!("{kind}: {only}"),
        (None, None) if cause.kind == CauseKind::Thread => WAITED_FOR_CPU.to_owned(),
        (None, None) => kind,
    }
}

/// A cause with its share, and its confidence if it is below 1: `irq: 24 ahci, 81 % of the latency, confidence 0.90`.
pub(crate) fn cause_and_share(cause: &Cause) -> String {
    let name = cause_name(cause);
    let share = cause.share.map(|part| format!(", {} of the latency", share(part)));
    let sure = cause.confidence.filter(|confidence| *confidence < 1.0);
    let sure = sure.map(|confidence| format!(", confidence {confidence:.2}"));
    format!("{name}{}{}", share.unwrap_or_default(), sure.unwrap_or_default())
}

/// The same with its evidence in brackets.
pub(crate) fn cause(cause: &Cause) -> String {
    let name = cause_and_share(cause);
    if cause.evidence.is_empty() { name } else { format!("{name} ({})", cause.evidence.join("; ")) }
}
