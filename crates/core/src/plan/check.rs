//! What the types of a plan cannot say: names that refer to each other, ranges, nonsense.

mod tracing;

use super::document::{Document, PlanError, suggestion};
use super::{LoadKind, Plan, Policy, ProbePlan, RoundtripMethod, RoundtripPlan, TreatmentKind, check_period};
use crate::cpus::CpuSelector;
use std::collections::BTreeSet;

/// Checks a decoded plan.
pub(super) fn check(plan: &Plan, document: &Document<'_>) -> Result<(), PlanError> {
    check_head(plan, document)?;
    tracing::check_trace(plan, document)?;
    if plan.probe.is_empty() {
        let message = "a plan needs at least one [[probe]]; the kinds are timer, stall, dispatch, roundtrip, \
                       histograms, tracer";
        return Err(document.error_at("probe", message));
    }
    for (index, probe) in plan.probe.iter().enumerate() {
        check_probe(probe, &format!("probe[{index}]"), document)?;
    }
    check_loads(plan, document)?;
    check_treatments(plan, document)?;
    check_cells(plan, document)
}

fn check_head(plan: &Plan, document: &Document<'_>) -> Result<(), PlanError> {
    let named = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    };
    if !named(&plan.name) {
        let message = format!("`{}` is not a name; use letters, digits, `-` and `_`", plan.name);
        return Err(document.error_at("name", message));
    }
    if plan.duration.0 == 0 {
        return Err(document.error_at("duration", "must be above 0s"));
    }
    if plan.duration.0 > 400 * 86_400_000_000_000 {
        return Err(document.error_at("duration", "is longer than 400d; write a shorter one"));
    }
    if plan.repeats == 0 || plan.repeats > 10_000 {
        return Err(document.error_at("repeats", "must be 1 to 10000"));
    }
    if plan.interval.is_some_and(|interval| interval.0 < 100_000_000) {
        return Err(document.error_at("interval", "must be at least 100ms"));
    }
    if plan.limit.is_some_and(|limit| limit.0 == 0) {
        return Err(document.error_at("limit", "must be above 0s; leave it out for no limit"));
    }
    match plan.target.cpus {
        CpuSelector::Target | CpuSelector::Others => {
            let message = format!("`{}` has no meaning here; name the CPUs to measure", plan.target.cpus);
            Err(document.error_at("target.cpus", message))
        }
        _ => Ok(()),
    }
}

fn check_probe(probe: &ProbePlan, key: &str, document: &Document<'_>) -> Result<(), PlanError> {
    let (policy, priority) = probe.scheduling();
    if !(1..=99).contains(&priority) {
        let message = format!("{priority} is out of range; a real-time priority is 1 to 99");
        return Err(document.error_at(&format!("{key}.priority"), message));
    }
    match probe {
        ProbePlan::Stall(_) if policy == Policy::Deadline => {
            let message = "a loop that never sleeps cannot run as SCHED_DEADLINE; choose fifo, rr or other";
            Err(document.error_at(&format!("{key}.policy"), message))
        }
        ProbePlan::Timer(timer) => check_period(timer.interval)
            .map_err(|message| document.error_at(&format!("{key}.interval"), message)),
        ProbePlan::Dispatch(_) | ProbePlan::Roundtrip(_) if policy == Policy::Deadline => {
            let message = "only the timer probe can run as SCHED_DEADLINE; choose fifo, rr or other";
            Err(document.error_at(&format!("{key}.policy"), message))
        }
        ProbePlan::Dispatch(dispatch) => match dispatch.period() {
            Ok(_) if dispatch.samples == Some(0) => Err(no_samples(key, document)),
            Ok(_) => Ok(()),
            Err(message) => Err(document.error_at(&format!("{key}.interval"), message)),
        },
        ProbePlan::Histograms(histograms) if histograms.kinds.is_empty() => {
            Err(document
                .error_at(&format!("{key}.kinds"), "is empty; name histograms, or leave it out for all"))
        }
        ProbePlan::Histograms(histograms) if histograms.priority_min > histograms.priority_max => {
            let message = format!("is above priority_max, which is {}", histograms.priority_max);
            Err(document.error_at(&format!("{key}.priority_min"), message))
        }
        ProbePlan::Tracer(tracer) => tracing::check_tracer(tracer, key, document),
        ProbePlan::Roundtrip(roundtrip) if roundtrip.samples == Some(0) => Err(no_samples(key, document)),
        ProbePlan::Roundtrip(RoundtripPlan { cpus: Some(pair), method, .. })
            if pair.is_one_cpu() && !method.is_all() && method.contains(RoundtripMethod::Spin) =>
        {
            let message =
                "spin needs two CPUs: on one, the loop that waits keeps the one that answers from running";
            Err(document.error_at(&format!("{key}.method"), message))
        }
        _ => Ok(()),
    }
}

fn no_samples(key: &str, document: &Document<'_>) -> PlanError {
    document.error_at(&format!("{key}.samples"), "must be above 0; leave it out for no bound")
}

fn check_loads(plan: &Plan, document: &Document<'_>) -> Result<(), PlanError> {
    let mut names = BTreeSet::new();
    for (index, load) in plan.load.iter().enumerate() {
        check_name(&load.name, &mut names, &format!("load[{index}].name"), document)?;
        if let LoadKind::Exec(exec) = &load.kind
            && exec.command.first().is_none_or(String::is_empty)
        {
            let message = "is empty; write for example `command = [\"stress-ng\", \"--cpu\", \"1\"]`";
            return Err(document.error_at(&format!("load[{index}].command"), message));
        }
    }
    Ok(())
}

/// Cells are named by their loads and treatments, so those share one set of names.
fn check_treatments(plan: &Plan, document: &Document<'_>) -> Result<(), PlanError> {
    let mut names: BTreeSet<&str> = plan.load.iter().map(|load| load.name.as_str()).collect();
    for (index, treatment) in plan.treatment.iter().enumerate() {
        let key = format!("treatment[{index}]");
        check_name(&treatment.name, &mut names, &format!("{key}.name"), document)?;
        if let TreatmentKind::CachePartition(plan) = &treatment.kind {
            for (name, percent) in [
                ("share_percent", Some(plan.share_percent)),
                ("others_bandwidth_percent", plan.others_bandwidth_percent),
            ] {
                if percent.is_some_and(|percent| !(1..=99).contains(&percent)) {
                    return Err(document.error_at(&format!("{key}.{name}"), "is out of range; it is 1 to 99"));
                }
            }
        }
        if let TreatmentKind::IrqAffinity(plan) = &treatment.kind
            && plan.interrupts.is_empty()
        {
            let message = "is empty; name interrupts, or leave it out for all";
            return Err(document.error_at(&format!("{key}.interrupts"), message));
        }
        if let TreatmentKind::Governor(plan) = &treatment.kind
            && plan.governor.is_none()
            && plan.energy_preference.is_none()
            && plan.turbo.is_none()
            && plan.min.is_none()
            && plan.max.is_none()
        {
            let message = "sets nothing; give `governor`, `min`, `max`, `energy_preference` or `turbo`";
            return Err(document.error_at(&key, message));
        }
    }
    Ok(())
}

fn check_name<'p>(
    name: &'p str,
    names: &mut BTreeSet<&'p str>,
    key: &str,
    document: &Document<'_>,
) -> Result<(), PlanError> {
    if name.is_empty() || name.contains(['/', '+']) || name.chars().any(char::is_control) {
        let message = format!("`{name}` is not a name; it must not be empty or hold `/` or `+`");
        return Err(document.error_at(key, message));
    }
    if !names.insert(name) {
        return Err(document.error_at(key, format!("there is another load or treatment named `{name}`")));
    }
    Ok(())
}

fn check_cells(plan: &Plan, document: &Document<'_>) -> Result<(), PlanError> {
    let known: Vec<&str> = plan.load.iter().map(|load| load.name.as_str()).collect();
    let treatments: Vec<&str> = plan.treatment.iter().map(|treatment| treatment.name.as_str()).collect();
    let mut names = BTreeSet::new();
    for (index, cell) in plan.cell.iter().enumerate() {
        for (position, load) in cell.loads.iter().enumerate() {
            if !known.contains(&load.as_str()) {
                let message = format!("unknown load `{load}`{}", suggestion(load, &known));
                return Err(document.error_at(&format!("cell[{index}].loads[{position}]"), message));
            }
        }
        for (position, treatment) in cell.treatments.iter().enumerate() {
            let key = format!("cell[{index}].treatments[{position}]");
            if !treatments.contains(&treatment.as_str()) {
                let message =
                    format!("unknown treatment `{treatment}`{}", suggestion(treatment, &treatments));
                return Err(document.error_at(&key, message));
            }
            if cell.treatments[..position].contains(treatment) {
                return Err(document.error_at(&key, format!("`{treatment}` is there twice")));
            }
        }
        if !names.insert(cell.name()) {
            let message = format!("there is another cell named `{}`; give it a `name`", cell.name());
            return Err(document.error_at(&format!("cell[{index}]"), message));
        }
    }
    Ok(())
}
