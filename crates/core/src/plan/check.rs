//! Checks across the sections of a plan, and of its top level: names that refer to each other, ranges, nonsense. The
//! checks of one kind are next to its type.

use super::document::{Document, PlanError};
use super::hint::suggestion;
use super::kinds::KeyError;
use super::{Plan, ProbePlan, SeriesStatistic, Statistic};
use crate::cpus::CpuSelector;
use std::collections::BTreeSet;

pub(super) fn check(plan: &Plan, document: &Document<'_>) -> Result<(), PlanError> {
    check_head(plan, document)?;
    plan.trace.iter().try_for_each(|trace| trace.check(document))?;
    if plan.probe.is_empty() {
        let kinds = ProbePlan::KINDS.join(", ");
        let message = format!("a plan needs at least one [[probe]]; the kinds are {kinds}");
        return Err(document.error_at("probe", message));
    }
    for (index, probe) in plan.probe.iter().enumerate() {
        probe.check().map_err(|error| placed(error, &format!("probe[{index}]"), document))?;
    }
    check_loads(plan, document)?;
    check_treatments(plan, document)?;
    check_cells(plan, document)?;
    check_questions(plan, document)
}

/// Names in questions: statistics of probes in the plan, and cells.
fn check_questions(plan: &Plan, document: &Document<'_>) -> Result<(), PlanError> {
    let series: Vec<String> = plan.probe.iter().flat_map(ProbePlan::series_names).collect();
    let check_statistic = |statistic: &SeriesStatistic, key: &str| {
        if series.iter().any(|series| statistic.is_of(series)) {
            return check_own(plan, statistic).map_err(|message| document.error_at(key, message));
        }
        let known: Vec<&str> = series.iter().map(String::as_str).collect();
        let message =
            format!("the plan has no probe `{}`{}", statistic.series, suggestion(&statistic.series, &known));
        Err(document.error_at(key, message))
    };
    plan.primary.iter().try_for_each(|primary| check_statistic(primary, "primary"))?;
    let names: Vec<String> = plan.cell.iter().map(super::CellPlan::name).collect();
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    if let Some(baseline) = plan.baseline.as_deref().filter(|baseline| !known.contains(baseline)) {
        let message = format!("there is no cell `{baseline}`{}", suggestion(baseline, &known));
        return Err(document.error_at("baseline", message));
    }
    for (index, answer) in plan.answer.iter().enumerate() {
        let key = format!("answer[{index}]");
        if let Some(statistic) = &answer.statistic {
            check_statistic(statistic, &format!("{key}.statistic"))?;
        }
        for (position, cell) in answer.between.iter().enumerate() {
            if cell.find(&plan.cell).is_none() {
                let message = format!("there is no cell `{cell}`; the cells are {}", known.join(", "));
                return Err(document.error_at(&format!("{key}.between[{position}]"), message));
            }
        }
    }
    Ok(())
}

/// The machine's own latency is only known of `timer`, and only with causes.
fn check_own(plan: &Plan, statistic: &SeriesStatistic) -> Result<(), String> {
    let SeriesStatistic { series, statistic } = statistic;
    let is_timer = || crate::SeriesName::of(series).facts().is_some_and(|facts| facts.name == "timer");
    if !statistic.is_own() || (plan.causes && is_timer()) {
        return Ok(());
    }
    let choices: Vec<&str> = Statistic::ALL.iter().filter(|it| !it.is_own()).map(|it| it.name()).collect();
    let why = match is_timer() {
        true => "needs `causes = true`, which this plan does not have",
        false => "exists only for `timer`",
    };
    Err(format!("`{series} {statistic}` {why}; choose one of {}", choices.join(", ")))
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
    if plan.duration > Plan::ENDLESS {
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
    if plan.causes_from.is_some() && !plan.causes {
        return Err(document.error_at("causes_from", "has no effect without causes; add `causes = true`"));
    }
    match plan.target.cpus {
        CpuSelector::Target | CpuSelector::Others => {
            let message = format!("`{}` has no meaning here; name the CPUs to measure", plan.target.cpus);
            Err(document.error_at("target.cpus", message))
        }
        _ => Ok(()),
    }
}

fn placed(error: KeyError, section: &str, document: &Document<'_>) -> PlanError {
    let separator = if error.key.is_empty() { "" } else { "." };
    document.error_at(&format!("{section}{separator}{}", error.key), error.message)
}

fn check_loads(plan: &Plan, document: &Document<'_>) -> Result<(), PlanError> {
    let mut names = BTreeSet::new();
    for (index, load) in plan.load.iter().enumerate() {
        let key = format!("load[{index}]");
        check_name(&load.name, &mut names, &format!("{key}.name"), document)?;
        load.kind.words().check().map_err(|error| placed(error, &key, document))?;
    }
    Ok(())
}

/// Cells are named by their loads and treatments, so those share one set of names.
fn check_treatments(plan: &Plan, document: &Document<'_>) -> Result<(), PlanError> {
    let mut names: BTreeSet<&str> = plan.load.iter().map(|load| load.name.as_str()).collect();
    for (index, treatment) in plan.treatment.iter().enumerate() {
        let key = format!("treatment[{index}]");
        check_name(&treatment.name, &mut names, &format!("{key}.name"), document)?;
        treatment.kind.words().check().map_err(|error| placed(error, &key, document))?;
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
        let message = format!("`{name}` is not a name; a name must not be empty or contain `/` or `+`");
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
                return Err(document.error_at(&key, format!("`{treatment}` is listed twice")));
            }
        }
        if !names.insert(cell.name()) {
            let message = format!("there is another cell named `{}`; give it a `name`", cell.name());
            return Err(document.error_at(&format!("cell[{index}]"), message));
        }
    }
    Ok(())
}
