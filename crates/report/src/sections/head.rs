//! The head of a report: the plan, its question, the verdict, the machine, and failures.

use crate::section::{Page, Tone, Verdict};
use crate::words;
use whylate_core::result::{RunResult, RunState, Verdict as Outcome, incomplete_repeats};
use whylate_core::{Plan, Warning, WarningCode};

/// The page of a run, with its head and no sections.
pub(crate) fn page(run: &RunResult) -> Page {
    let (word, tone) = match run.verdict {
        Outcome::Pass => ("PASS", Tone::Good),
        Outcome::Fail => ("FAIL", Tone::Bad),
        Outcome::NoLimit => ("NO LIMIT", Tone::Plain),
        Outcome::Incomplete => ("INCOMPLETE", Tone::Warn),
    };
    let host = if run.facts.host.is_empty() { String::new() } else { format!(" on {}", run.facts.host) };
    Page {
        origin: format!("whylate run{host}, {}", run.started_at),
        title: run.plan.name.clone(),
        question: run.plan.question.clone(),
        about: vec![
            words::machine(&run.facts, &words::measured_cpus(run)),
            vec![format!("{}, started {}", extent(run), run.started_at)],
        ],
        verdict: Some(Verdict { word, reason: run.verdict_reason.clone(), tone }),
        failures: failures(run),
        ..Page::default()
    }
}

/// How long and how often: `4 repeats of 60 s per probe and cell, limit 100 us`.
pub(crate) fn extent(run: &RunResult) -> String {
    let plan = &run.plan;
    let repeats = match (plan.repeats, &run.fix) {
        (_, Some(fix)) => format!("search of {}", words::counted(fix.repeats, "repeat")),
        (repeats, None) => words::counted(repeats, "repeat"),
    };
    let how_long = match plan.duration < Plan::ENDLESS {
        true => format!("{repeats} of {} per probe and cell", plan.duration),
        false => "until it was ended".to_owned(),
    };
    let limit = match (plan.limit, plan.deadline().or(plan.chain_deadline())) {
        (Some(limit), _) => format!("limit {limit}"),
        (None, Some(deadline)) => format!("deadline {deadline}"),
        (None, None) => "no limit".to_owned(),
    };
    format!("{how_long}, {limit}")
}

/// Failures: the run's end, cells that were skipped, repeats that failed, settings that were not restored.
pub(crate) fn failures(run: &RunResult) -> Vec<String> {
    let mut sentences = Vec::new();
    let why = run.error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
    match run.state {
        RunState::Complete if run.error.is_none() => {}
        RunState::Complete => sentences.push(format!("the run reported an error{why}")),
        RunState::Interrupted => sentences.push(format!("the run is not complete{why}")),
        RunState::Running => {
            sentences.push(format!("the run has not ended: it is still going on, or was killed{why}"));
        }
    }
    if run.restored == Some(false) {
        sentences.push(format!("{} after the run", not_restored(&run.warnings)));
    }
    sentences.extend(skipped(run));
    sentences.extend(incomplete_repeats(&run.cells));
    sentences
}

/// Whether a setting that whylate changed was left changed, or only others differ from before.
pub(crate) fn not_restored(warnings: &[Warning]) -> &'static str {
    let has = |code: WarningCode| warnings.iter().any(|warning| warning.code == code.name());
    if has(WarningCode::MachineChanged) && !has(WarningCode::TreatmentNotRestored) {
        return "all treatments were undone, but other settings of the machine (warning `machine-changed`) differ";
    }
    "the machine's settings were not restored"
}

/// The cells that did not run, and why: cells with the same reason together.
fn skipped(run: &RunResult) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for cell in &run.cells {
        let Some(reason) = &cell.skipped else { continue };
        // The name of the load is part of the cell's name.
        let reason =
            reason.strip_prefix("load `").and_then(|rest| Some(rest.split_once("`: ")?.1)).unwrap_or(reason);
        match reasons.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, cells)) => cells.push(&cell.name),
            None => reasons.push((reason, vec![&cell.name])),
        }
    }
    let sentence = |(reason, cells): (&str, Vec<&str>)| {
        let were = if cells.len() == 1 { "was" } else { "were" };
        format!("{} {were} skipped: {reason}", cells.join(", "))
    };
    reasons.into_iter().map(sentence).collect()
}
