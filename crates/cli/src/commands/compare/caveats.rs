//! Caveats of a comparison.

use super::{ComparedPart, ComparedSide};
use std::path::Path;
use whylate_core::cpus::CpuSet;
use whylate_core::figure::counted;
use whylate_core::quantity::BUCKET_NS;
use whylate_core::result::{CellResult, Described, MeasureResult, RunResult, differences};
use whylate_core::warning::push_once;
use whylate_core::{Warning, WarningCode};

/// The most differences within a side that are named.
const MIXED_NAMED: usize = 4;

/// Incomplete runs, and sides whose runs differ.
pub(super) fn of(sides: &[ComparedSide]) -> Vec<Warning> {
    let own = incomplete(sides).into_iter().chain(sides.iter().filter_map(mixed));
    own.chain(foreign(sides)).collect()
}

/// How the results of other tools differ, and what to know about their figures.
fn foreign(sides: &[ComparedSide]) -> Vec<Warning> {
    let parts = sides.iter().flat_map(|side| &side.parts);
    let all: Vec<(&Path, &MeasureResult)> = parts.filter_map(ComparedPart::foreign).collect();
    // One warning for all files that have the same one.
    let mut signatures: Vec<(&str, &Path, usize)> = Vec::new();
    for (path, measure) in &all {
        for it in measure.warnings.iter().filter(|it| it.code == WarningCode::KnownSignature) {
            match signatures.iter_mut().find(|(text, ..)| *text == it.text) {
                Some((.., files)) => *files += 1,
                None => signatures.push((&it.text, path, 1)),
            }
        }
    }
    let named = |(text, path, files): (&str, &Path, usize)| {
        let more =
            if files > 1 { format!(" and {}", counted(files - 1, "other file")) } else { String::new() };
        Warning::new(WarningCode::KnownSignature, format!("{}{more}: {text}", path.display()))
    };
    let mut found: Vec<Warning> = signatures.into_iter().map(named).collect();
    let Some(((first_path, first), others)) = all.split_first() else { return found };
    for (path, measure) in others {
        let mut differs = Vec::new();
        let width = |it: &MeasureResult| it.probe.cpus.iter().find_map(|cpu| cpu.get(BUCKET_NS)).unwrap_or(0);
        if width(first) != width(measure) {
            differs.push(
                "the width of their histogram buckets (in wide buckets, quantiles are only upper bounds)"
                    .to_owned(),
            );
        }
        let cpus = |it: &MeasureResult| it.probe.cpus.iter().map(|cpu| cpu.cpu).collect::<CpuSet>();
        if cpus(first) != cpus(measure) {
            differs.push(format!(
                "their CPUs ({} and {}; only the common CPUs are compared one by one)",
                cpus(first),
                cpus(measure)
            ));
        }
        let samples = |it: &MeasureResult| it.probe.cpus.iter().map(|cpu| cpu.samples).max().unwrap_or(0);
        let (few, many) = (samples(first).min(samples(measure)), samples(first).max(samples(measure)));
        if few > 0 && many / few >= 2 {
            differs.push(format!(
                "their length ({few} and {many} samples per CPU; a maximum grows with the number of samples)"
            ));
        }
        if !differs.is_empty() {
            let text =
                format!("{} and {} differ in {}", first_path.display(), path.display(), differs.join(", "));
            found.push(Warning::new(WarningCode::ComparedMixed, text));
        }
    }
    found
}

/// An incomplete measurement may look better than it is.
fn incomplete(sides: &[ComparedSide]) -> Vec<Warning> {
    let of_run = |path: &Path, run: &RunResult| {
        let failed =
            run.cells.iter().flat_map(|cell| &cell.repeats).filter(|repeat| repeat.error.is_some()).count();
        let skipped = run.cells.iter().filter(|cell| cell.skipped.is_some()).count();
        let begun = |cell: &CellResult| cell.repeats.iter().filter(|it| it.error.is_none()).count();
        let asked =
            run.cells.iter().filter(|cell| cell.skipped.is_none()).count() * run.plan.repeats as usize;
        let done: usize = run.cells.iter().map(begun).sum();
        let missing = if run.fix.is_some() { 0 } else { asked.saturating_sub(done + failed) };
        let is_whole = run.error.is_none() && failed + skipped + missing == 0;
        (!is_whole).then(|| {
            let text = format!(
                "{}: the run is incomplete (repeats that failed: {failed}, did not begin: {missing}; cells skipped: {skipped}){}",
                path.display(),
                run.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default()
            );
            Warning::new(WarningCode::ComparedIncomplete, text)
        })
    };
    let parts = sides.iter().flat_map(|side| &side.parts);
    let mut found: Vec<Warning> = Vec::new();
    // Both sides may be cells of one run.
    parts.filter_map(|part| of_run(part.path(), part.run()?)).for_each(|it| push_once(&mut found, it));
    found
}

/// Differences between the runs of a side that are more than chance: plan, kernel, machine.
fn mixed<'s>(side: &'s ComparedSide) -> Option<Warning> {
    let of_run = |run: &'s RunResult| Described {
        facts: &run.facts,
        plan: Some(&run.plan),
        cell: None,
        command: None,
    };
    let runs: Vec<Described<'_>> = side.runs().map(of_run).collect();
    let is_chosen =
        |what: &str| ["kernel.", "processor.", "plan.", "host"].iter().any(|it| what.starts_with(it));
    let (found, _) = differences(&runs);
    let names: Vec<&str> = found.iter().map(|it| &*it.what).filter(|what| is_chosen(what)).collect();
    let more = names.len().saturating_sub(MIXED_NAMED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    let text =
        format!("the runs of side {} differ in {}{rest}", side.name, names[..names.len() - more].join(", "));
    (!names.is_empty()).then(|| Warning::new(WarningCode::ComparedMixed, text))
}
