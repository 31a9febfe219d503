//! Compares the request with the measurement, so that a job that did not measure cannot pass.
//!
//! Everything is read back from the run: its plan, scheduling, CPUs, samples, cells, the rates of loads, and the
//! kernel. Latencies are not checked here.

use std::collections::BTreeSet;
use std::str::FromStr as _;
use whylate_core::moment::utc_seconds;
use whylate_core::plan::{Pace, Plan, Policy, ProbePlan};
use whylate_core::quantity::{GAPS, OVERRUNS};
use whylate_core::result::{CellResult, ProbeResult, RunEnd, RunResult, RunState};
use whylate_core::{CpuSet, SeriesName, WarningCode};
use whylate_store::RunInfo;

/// Less than this part of the request is too little.
const ENOUGH: f64 = 0.9;

#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The requested plan; absent: the run's own.
    pub plan: Option<Plan>,
    /// The requested plan in its short form; absent: it has none.
    pub short: Option<Plan>,
    /// Prefix of the kernel's release.
    pub kernel: Option<String>,
    pub host: Option<String>,
    /// Seconds since 1970 by the clock of the comparing machine; absent: the run's clock is not checked.
    pub now_s: Option<u64>,
}

impl Asked {
    /// The plan that a run should have: a short run should have the short form.
    fn plan_of(&self, info: &RunInfo) -> Option<&Plan> {
        self.short.as_ref().filter(|_| is_short(info, self)).or(self.plan.as_ref())
    }
}

/// Whether this is a run of the short form of its plan. Runs of earlier versions do not record it.
pub fn is_short(info: &RunInfo, asked: &Asked) -> bool {
    info.short || asked.short.as_ref().is_some_and(|short| different_keys(short, &info.plan).is_empty())
}

/// The differences, one line each; empty if the run meets the request. `result` is absent for a run without samples.
pub fn mismatches(info: &RunInfo, result: Option<&RunResult>, asked: &Asked) -> Vec<String> {
    let mut found = Vec::new();
    of_machine(info, asked, &mut found);
    of_clock(info, asked, &mut found);
    of_state(info, &mut found);
    match result {
        None => found.push("samples: none".to_owned()),
        Some(result) => {
            of_damage(result, &mut found);
            of_scheduling(info, result, &mut found);
            for cell in &result.cells {
                of_cell(info, cell, &mut found);
            }
        }
    }
    found
}

fn of_machine(info: &RunInfo, asked: &Asked, found: &mut Vec<String>) {
    let (release, host) = (&info.facts.kernel.release, &info.facts.host);
    if let Some(kernel) = asked.kernel.as_ref().filter(|kernel| !begins(release, kernel)) {
        found.push(format!("kernel: {kernel} was requested, {release} ran"));
    }
    if let Some(asked) = asked.host.as_ref().filter(|asked| *asked != host) {
        found.push(format!("host: {asked} was requested, measured on {host}"));
    }
    if let Some(plan) = asked.plan_of(info) {
        let different = different_keys(plan, &info.plan);
        if !different.is_empty() {
            found.push(format!("plan: the run has other values of {}", different.join(", ")));
        }
    }
}

/// Whether a release begins with another one: `6.1` begins 6.1 and 6.1.9, not 6.18.
pub(crate) fn begins(release: &str, with: &str) -> bool {
    let ends_in_digit = with.ends_with(|last: char| last.is_ascii_digit());
    let rest = release.strip_prefix(with).filter(|_| !with.is_empty());
    rest.is_some_and(|rest| !(ends_in_digit && rest.starts_with(|next: char| next.is_ascii_digit())))
}

/// The top-level keys of two plans whose values differ.
fn different_keys(asked: &Plan, ran: &Plan) -> Vec<String> {
    let keys = |plan: &Plan| match serde_json::to_value(plan) {
        Ok(serde_json::Value::Object(keys)) => keys,
        _ => serde_json::Map::new(),
    };
    let (asked, ran) = (keys(asked), keys(ran));
    let names: BTreeSet<&String> = asked.keys().chain(ran.keys()).collect();
    names.into_iter().filter(|name| asked.get(*name) != ran.get(*name)).cloned().collect()
}

/// Checks the clock: boards without a battery start in 1970, or at the date of their image.
fn of_clock(info: &RunInfo, asked: &Asked, found: &mut Vec<String>) {
    /// 2025-01-01: whylate did not exist before.
    const FIRST_S: u64 = 1_735_689_600;
    /// Clocks of two machines differ, and a time zone that is mistaken for UTC adds a day at most.
    const AHEAD_MAX_S: u64 = 86_400;
    let Some(began) = utc_seconds(&info.started_at) else { return };
    let is_ahead = asked.now_s.is_some_and(|now| began > now + AHEAD_MAX_S);
    if began < FIRST_S || is_ahead {
        let why = if is_ahead { "more than a day ahead of this machine" } else { "before whylate existed" };
        found.push(format!("clock: the run began at {}, {why}", info.started_at));
    }
}

fn of_state(info: &RunInfo, found: &mut Vec<String>) {
    if info.state != RunState::Complete {
        let why = info.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
        found.push(format!("state: {}{why}", info.state));
    }
    if info.restored == Some(false) {
        found.push("settings: not restored after the run".to_owned());
    }
}

fn of_damage(result: &RunResult, found: &mut Vec<String>) {
    const DAMAGE: [WarningCode; 3] =
        [WarningCode::DamagedManifest, WarningCode::DamagedSegment, WarningCode::ContradictoryRows];
    let damages =
        result.warnings.iter().filter(|warning| DAMAGE.iter().any(|code| code.name() == warning.code));
    found.extend(damages.take(1).map(|warning| format!("data: {}", warning.text)));
}

fn of_scheduling(info: &RunInfo, result: &RunResult, found: &mut Vec<String>) {
    const REFUSED: [WarningCode; 4] = [
        WarningCode::NoRealtimePriority,
        WarningCode::RoundtripWithoutPriority,
        WarningCode::SpinWithoutPriority,
        WarningCode::StallWithoutPriority,
    ];
    let mut refused =
        result.warnings.iter().filter(|warning| REFUSED.iter().any(|code| code.name() == warning.code));
    let wanted = info.plan.probe.iter().map(ProbePlan::scheduling);
    let Some((policy, priority)) =
        wanted.filter(|(policy, _)| *policy != Policy::Other).max_by_key(|(_, priority)| *priority)
    else {
        return;
    };
    let allowed = info.facts.privileges.realtime_priority_max;
    if let Some(warning) = refused.next() {
        found.push(format!("scheduling: {policy} was requested: {}", warning.text));
    } else if policy != Policy::Deadline && allowed < priority {
        found.push(format!("priority: {priority} was requested, at most {allowed} is allowed"));
    }
}

fn of_cell(info: &RunInfo, cell: &CellResult, found: &mut Vec<String>) {
    let name = &cell.name;
    if let Some(reason) = &cell.skipped {
        found.push(format!("cell `{name}`: did not run: {reason}"));
        return;
    }
    let whole = cell.repeats.iter().filter(|repeat| repeat.error.is_none()).count() as u32;
    let asked = info.repeats_of(name);
    if whole < asked {
        let why = cell.repeats.iter().find_map(|repeat| repeat.error.as_deref());
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        found.push(format!("cell `{name}`: {asked} repeats were requested, {whole} are complete{why}"));
    }
    let stopped = matches!(info.end, Some(RunEnd::BrokeAbove { .. }));
    for plan in &info.plan.probe {
        of_probe(info, cell, plan, if stopped { 0 } else { whole }, found);
    }
    for load in info.plan.load.iter().filter(|load| cell.loads.contains(&load.name)) {
        let document = serde_json::to_value(&load.kind).unwrap_or_default();
        let asked = document.get("rate").and_then(|rate| Pace::from_str(rate.as_str()?).ok());
        let achieved = cell.rates.iter().find(|rate| rate.load == load.name);
        match (asked, achieved) {
            (_, Some(rate)) if rate.mean <= 0.0 => {
                found.push(format!("cell `{name}`: load `{}` did no work", load.name));
            }
            (Some(Pace::Rate(asked)), Some(rate)) if rate.mean < ENOUGH * asked.0 => {
                let share = 100.0 * rate.mean / asked.0;
                found.push(format!("cell `{name}`: load `{}` achieved {share:.0} % of its rate", load.name));
            }
            // Every load has a rate, except a command, whose output may contain none.
            (Some(_), None) => found.push(format!("cell `{name}`: load `{}` has no rate", load.name)),
            _ => {}
        }
    }
}

/// Checks a probe of the plan in a cell: on all its CPUs, for the requested time, `repeats` times.
fn of_probe(info: &RunInfo, cell: &CellResult, plan: &ProbePlan, repeats: u32, found: &mut Vec<String>) {
    let kind = plan.kind();
    let in_cell = |what: String| format!("cell `{}`: probe `{kind}`: {what}", cell.name);
    let is_of = |probe: &&ProbeResult| SeriesName::of(&probe.probe).probe == kind;
    let probes: Vec<&ProbeResult> = cell.probes.iter().filter(is_of).collect();
    if !probes.iter().any(|probe| probe.has_data()) {
        found.push(in_cell("no samples".to_owned()));
        return;
    }
    let measured = probes.iter().flat_map(|probe| &probe.cpus);
    let context = info.facts.cpu_context();
    let target = info.plan.target.cpus.resolve(&context, None);
    let asked = target.ok().and_then(|target| plan.cpus(&context, &target).ok());
    let on: CpuSet = measured
        .clone()
        .filter(|cpu| cpu.samples > 0 || cpu.get(GAPS).is_some())
        .map(|cpu| cpu.cpu)
        .collect();
    // The kernel's counts of tasks and the user's own tasks choose their CPUs themselves.
    let is_pinned = matches!(plan, ProbePlan::Timer(_) | ProbePlan::Stall(_) | ProbePlan::Dispatch(_));
    if let Some(asked) = asked.filter(|asked| is_pinned && *asked != on) {
        found.push(in_cell(format!("CPUs {asked} were requested, {on} were measured")));
    }
    let ProbePlan::Timer(timer) = plan else { return };
    if timer.samples.is_some() || timer.break_above.is_some() {
        return;
    }
    let expected = u64::from(repeats) * (info.plan.duration.0 / timer.interval.0.max(1));
    let periods = |samples: u64, missed: Option<u64>| samples + missed.unwrap_or(0);
    let fewest = measured.map(|cpu| (periods(cpu.samples, cpu.get(OVERRUNS)), cpu.cpu)).min();
    if let Some((had, cpu)) = fewest.filter(|(had, _)| (*had as f64) < ENOUGH * expected as f64) {
        found.push(in_cell(format!("{expected} periods were requested, {had} measured on CPU {cpu}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_begins_at_the_boundary_of_a_number() {
        for with in ["6", "6.1", "6.1.", "6.1.9", "6.1.9-rt", "6.1.9-rt5"] {
            assert!(begins("6.1.9-rt5", with), "{with}");
        }
        for (release, with) in [("6.18.3", "6.1"), ("16.1", "6.1"), ("6.1-rc12", "6.1-rc1"), ("6.1", "")] {
            assert!(!begins(release, with), "{with}");
        }
    }
}
