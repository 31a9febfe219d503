//! The sentences of a report, the same in every format: the machine, the comparisons, the noise floor, what went
//! wrong.

use crate::figure::{nanoseconds, probability};
use crate::table::{measured_cpus, probe_names};
use whylate_core::result::{
    Cause, CauseKind, CellResult, Comparison, NoiseFloor, Outcome, ProbeResult, RunResult, RunState, Spike,
    Verdict,
};
use whylate_core::{CpuSet, Facts, SeriesName};

/// What recorded and corrected figures are.
pub(crate) const CORRECTED_NOTE: &str = "Lines marked corrected count each missed period as late as it would have \
    been (coordinated omission undone); the others are as recorded: a task that is still late when its next period \
    begins misses that period and records nothing for it.";

/// Why some columns are the same for every probe of a cell.
pub(crate) const WHOLE_CELL_NOTE: &str =
    "Steal and interrupts are of the whole cell: all its probes and repeats.";

/// What a probe measures, in half a sentence.
pub(crate) fn probe_meaning(probe: &str) -> &'static str {
    SeriesName::of(probe).facts().map_or("latency", |facts| facts.meaning)
}

/// Processor, kernel, preemption, CPUs and, in a virtual machine or container, what it is.
pub(crate) fn machine(facts: &Facts, cpus: &CpuSet) -> Vec<String> {
    let mut parts = Vec::new();
    if !facts.processor.model.is_empty() {
        parts.push(facts.processor.model.clone());
    }
    if !facts.kernel.release.is_empty() {
        parts.push(format!("Linux {}", facts.kernel.release));
    }
    if !facts.kernel.preemption.is_empty() {
        parts.push(match facts.kernel.preemption.as_str() {
            "none" => "no preemption".to_owned(),
            preemption => preemption.to_owned(),
        });
    }
    parts.push(cpu_list(cpus));
    if let Some(hypervisor) = &facts.environment.hypervisor {
        parts.push(format!("{hypervisor} guest"));
    }
    if let Some(container) = &facts.environment.container {
        parts.push(format!("in {container}"));
    }
    parts
}

/// `CPU 1`, `CPUs 1,3-5`.
pub(crate) fn cpu_list(cpus: &CpuSet) -> String {
    if cpus.len() == 1 { format!("CPU {cpus}") } else { format!("CPUs {cpus}") }
}

/// How long and how often: `4 repeats of 60 s per probe and cell, limit 100 us`.
pub(crate) fn extent(run: &RunResult) -> String {
    let plan = &run.plan;
    let repeats = match plan.repeats {
        1 => "1 repeat".to_owned(),
        repeats => format!("{repeats} repeats"),
    };
    let limit = match plan.limit {
        Some(limit) => format!("limit {}", limit),
        None => "no limit".to_owned(),
    };
    format!("{repeats} of {} per probe and cell, {limit}", plan.duration)
}

/// The word of a verdict.
pub(crate) fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "PASS",
        Verdict::Fail => "FAIL",
        Verdict::NoLimit => "NO LIMIT",
        Verdict::Incomplete => "INCOMPLETE",
    }
}

/// What went wrong: the run's end, cells that were skipped, repeats that failed, settings that were not restored.
pub(crate) fn failures(run: &RunResult) -> Vec<String> {
    let mut sentences = Vec::new();
    let why = run.error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
    match run.state {
        RunState::Complete if run.error.is_none() => {}
        RunState::Complete => sentences.push(format!("the run reported an error{why}")),
        RunState::Interrupted => sentences.push(format!("the run was interrupted{why}")),
        RunState::Running => {
            sentences.push(format!("the run has no end: it is still going on, or was killed{why}"));
        }
    }
    if run.restored == Some(false) {
        sentences.push("the machine's settings after the run are not those before it".to_owned());
    }
    for cell in &run.cells {
        if let Some(reason) = &cell.skipped {
            sentences.push(format!("{} was skipped: {reason}", cell.name));
        }
        for repeat in &cell.repeats {
            if let Some(error) = &repeat.error {
                sentences.push(format!("repeat {} of {} is not complete: {error}", repeat.repeat, cell.name));
            }
        }
    }
    sentences
}

/// A comparison in words.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    pub(crate) outcome: Outcome,
    pub(crate) text: String,
}

/// Every comparison: differences one by one, the rest gathered per cell.
pub(crate) fn findings(run: &RunResult) -> Vec<Finding> {
    let mut findings: Vec<Finding> = run.comparisons.iter().filter_map(difference).collect();
    for outcome in [Outcome::NoEffect, Outcome::TooFewRepeats] {
        for (index, comparison) in run.comparisons.iter().enumerate() {
            let same = |other: &&Comparison| {
                other.outcome == outcome
                    && other.cell == comparison.cell
                    && other.baseline == comparison.baseline
            };
            if comparison.outcome == outcome && !run.comparisons[..index].iter().any(|other| same(&other)) {
                let members: Vec<&Comparison> = run.comparisons[index..].iter().filter(same).collect();
                findings.push(Finding { outcome, text: gathered(outcome, &members) });
            }
        }
    }
    findings
}

fn difference(comparison: &Comparison) -> Option<Finding> {
    let word = match comparison.outcome {
        Outcome::Better => "better",
        Outcome::Worse => "worse",
        Outcome::NoEffect | Outcome::TooFewRepeats => return None,
    };
    let text = format!(
        "{} against {}: {} {} {word}, {}{}",
        comparison.cell,
        comparison.baseline,
        comparison.probe,
        statistic(&comparison.statistic),
        change(comparison),
        comparison.p_value.map(|p| format!(" ({})", probability(p))).unwrap_or_default(),
    );
    Some(Finding { outcome: comparison.outcome, text })
}

/// `4.10 -> 6.30 us`: the unit once where both have the same.
fn change(comparison: &Comparison) -> String {
    let (before, after) = (nanoseconds(comparison.baseline_ns), nanoseconds(comparison.cell_ns));
    match (before.split_once(' '), after.split_once(' ')) {
        (Some((number, unit)), Some((_, after_unit))) if unit == after_unit => format!("{number} -> {after}"),
        _ => format!("{before} -> {after}"),
    }
}

/// All comparisons of one cell with the same outcome, which is one of those that show nothing.
fn gathered(outcome: Outcome, members: &[&Comparison]) -> String {
    let mut subjects: Vec<String> = Vec::new();
    let mut probe_before = None;
    for member in members {
        let name = statistic(&member.statistic);
        match subjects.last_mut() {
            Some(subject) if probe_before == Some(&member.probe) => {
                subject.push_str(", ");
                subject.push_str(name);
            }
            _ => subjects.push(format!("{} {name}", member.probe)),
        }
        probe_before = Some(&member.probe);
    }
    let (subjects, first) = (subjects.join("; "), members.first());
    let pair = first.map(|first| format!("{} against {}", first.cell, first.baseline)).unwrap_or_default();
    match outcome {
        Outcome::TooFewRepeats => format!("{pair}: too few repeats to tell: {subjects}"),
        _ => {
            let smallest = members.iter().filter_map(|member| member.p_value).reduce(f64::min);
            // Of several, the smallest p stands for all.
            let sign = if members.len() > 1 { ">= " } else { "= " };
            let least =
                smallest.map(|p| format!(" ({})", probability(p).replace("= ", sign))).unwrap_or_default();
            format!("{pair}: no effect shown on {subjects}{least}")
        }
    }
}

/// The name of a statistic as the table prints it.
fn statistic(name: &str) -> &str {
    match name {
        "p50" => "median",
        "p999" => "p99.9",
        "p9999" => "p99.99",
        name => name,
    }
}

/// What the stall check without load saw beside a cell; `None` where it saw nothing.
fn noise_floor(cell: &CellResult, facts: &Facts) -> Option<String> {
    let floor = cell.noise_floor.as_ref()?;
    let stolen = floor.steal_ns.is_some_and(|steal| steal > 0);
    if floor.gaps == 0 && !stolen {
        return None;
    }
    let source = match (stolen, &facts.environment.hypervisor) {
        (true, _) | (_, Some(_)) => "the hypervisor",
        _ => "the machine itself (its interrupts, its firmware), not from the load",
    };
    Some(format!("{}: spikes of this size may come from {source}", noise_figures(floor)))
}

/// Each of those sentences with the name of its cell.
pub(crate) fn noise_floors(run: &RunResult) -> Vec<String> {
    let sentences = run
        .cells
        .iter()
        .filter_map(|cell| Some(format!("{}: {}", cell.name, noise_floor(cell, &run.facts)?)));
    sentences.collect()
}

/// `3 gaps > 10.0 us in 2.00 s without load, max 1.20 ms, steal 10.0 ms`.
fn noise_figures(floor: &NoiseFloor) -> String {
    let gaps = if floor.gaps == 1 { "gap" } else { "gaps" };
    let max = floor.max_ns.map(|max| format!(", max {}", nanoseconds(max))).unwrap_or_default();
    let steal = floor.steal_ns.filter(|steal| *steal > 0).map(nanoseconds);
    format!(
        "{} {gaps} > {} in {} without load{max}{}",
        floor.gaps,
        nanoseconds(floor.threshold_ns),
        nanoseconds(floor.duration_ns),
        steal.map(|steal| format!(", steal {steal}")).unwrap_or_default(),
    )
}

/// The kind of a cause, as its serialised name with blanks.
pub(crate) fn cause_kind(kind: CauseKind) -> String {
    kind.name().replace('_', " ")
}

/// Kind, actor and function of a cause: `irqs off: irq/45-nvkm in unarm`.
pub(crate) fn cause_name(cause: &Cause) -> String {
    let kind = cause_kind(cause.kind);
    match (&cause.actor, &cause.function) {
        (Some(actor), Some(function)) => format!("{kind}: {actor} in {function}"),
        (Some(only), None) | (None, Some(only)) => format!("{kind}: {only}"),
        (None, None) => kind,
    }
}

/// A cause with its share, and how sure it is where that is not all: `irq: 24 ahci, 81 % of the time, confidence 0.90`.
pub(crate) fn cause_and_share(cause: &Cause) -> String {
    let name = cause_name(cause);
    let share = cause.share.map(|share| format!(", {} of the time", crate::figure::share(share)));
    let sure = cause.confidence.filter(|confidence| *confidence < 1.0);
    let sure = sure.map(|confidence| format!(", confidence {confidence:.2}"));
    format!("{name}{}{}", share.unwrap_or_default(), sure.unwrap_or_default())
}

/// The same with its evidence in brackets.
pub(crate) fn cause(cause: &Cause) -> String {
    let name = cause_and_share(cause);
    if cause.evidence.is_empty() { name } else { format!("{name} ({})", cause.evidence.join("; ")) }
}

/// All spikes of a run with their cells, largest first.
pub(crate) fn spikes(run: &RunResult) -> Vec<(&CellResult, &Spike)> {
    let mut spikes: Vec<(&CellResult, &Spike)> =
        run.cells.iter().flat_map(|cell| cell.spikes.iter().map(move |spike| (cell, spike))).collect();
    spikes.sort_by_key(|(_, spike)| std::cmp::Reverse(spike.latency_ns));
    spikes
}

/// The largest spike of each probe in one line: `largest timer spike: 2.31 ms in above-l3 on CPU 1, repeat 3:
/// unattributed`.
pub(crate) fn largest_spikes(run: &RunResult) -> Vec<String> {
    let all = spikes(run);
    let lines = probe_names(run).into_iter().filter_map(|probe| {
        let name = |spike: &Spike| spike.probe.as_deref().map(|name| SeriesName::of(name).probe.to_owned());
        let (cell, spike) = all.iter().find(|(_, spike)| name(spike).as_deref() == Some(probe))?;
        let probe = spike.probe.as_deref().unwrap_or(probe);
        let repeat = spike.repeat.map(|repeat| format!(", repeat {repeat}")).unwrap_or_default();
        Some(format!(
            "largest {probe} spike: {} in {} on CPU {}{repeat}: {}",
            nanoseconds(spike.latency_ns),
            cell.name,
            spike.cpu,
            cause(&spike.cause),
        ))
    });
    lines.collect()
}

/// Spike records that were lost because a buffer was full; `None` when there are none.
pub(crate) fn dropped_spikes<'a>(probes: impl Iterator<Item = &'a ProbeResult>) -> Option<String> {
    let dropped: u64 = probes.flat_map(|probe| &probe.cpus).map(|cpu| cpu.spikes_dropped).sum();
    (dropped > 0).then(|| {
        format!(
            "{} spike records did not fit their buffer; their latencies are in the figures all the same",
            crate::figure::count(dropped)
        )
    })
}

/// The command that runs the plan again, and what has to be done before it.
pub(crate) fn reproduce(run: &RunResult) -> (String, Option<String>) {
    use whylate_core::plan::{Plan, Source, builtin};
    let name = &run.plan.name;
    let same = builtin::find(name)
        .and_then(|builtin| Plan::parse(&Source { name: builtin.name, text: builtin.text }, &[]).ok());
    if same.as_ref() == Some(&run.plan) {
        return (format!("whylate run {name}"), None);
    }
    // A result from elsewhere may hold any name; the command must stay one word.
    let word: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect();
    let file = format!("{word}.toml");
    (format!("whylate run {file}"), Some(format!("Save the plan below as {file} first.")))
}

/// The plan as TOML, with every default filled in; `None` when it cannot be written so.
pub(crate) fn plan_text(run: &RunResult) -> Option<String> {
    toml::to_string_pretty(&run.plan).ok()
}

/// The headline's machine parts of a run.
pub(crate) fn run_machine(run: &RunResult) -> Vec<String> {
    machine(&run.facts, &measured_cpus(run))
}
