//! `whylate compare`.

mod caveats;
mod mechanism;

use super::report;
use crate::arguments::{CompareArguments, CompareFormat, ExitOn, ReportFormat};
use crate::exit::Ending;
use crate::output;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use whylate_core::figure::nanoseconds;
use whylate_core::order::InOrder;
use whylate_core::plan::{Plan, SeriesStatistic};
use whylate_core::quantity::CORRECTED;
use whylate_core::result::{
    COMPARE_FORMAT, CauseDifference, CauseKind, CellResult, CompareOutcome, CompareResult, CompareSide,
    Comparison, CpuResult, Described, LateResponses, MeasureResult, Outcome, ProbeResult, RunContrast,
    RunResult, Spike, differences,
};
use whylate_core::{SeriesName, Warning, WarningCode};
use whylate_stats::compare::{self, Basis, CauseBasis, CauseUnit, Question, RunValues};
use whylate_store::{Folder, Labels, Reader, StoreError};

/// More runs of a history add little.
const HISTORY_MAX: usize = 30;
/// A quantile of 0.9 decides with this many samples, one of 0.99 with ten times as many.
const QUANTILE_LEAST: u64 = 100;
/// The margin if neither the plan nor the caller sets one.
const MARGIN: f64 = 0.05;

/// The facts about one side.
struct ComparedSide {
    name: String,
    parts: Vec<ComparedPart>,
    cell: Option<String>,
    /// Those that all its runs have.
    tags: Vec<String>,
}

/// One run, or one result of another tool.
enum ComparedPart {
    Run(PathBuf, Box<RunResult>),
    Foreign(PathBuf, Box<MeasureResult>),
}

pub(super) fn execute(arguments: &CompareArguments) -> Result<Ending> {
    let format = format(arguments)?;
    let sides = arguments.sides.iter().zip(names()).map(|(text, name)| side(text, name));
    let result = match sides.collect::<Result<Vec<ComparedSide>>>() {
        Ok(mut sides) => {
            let is_recorded = compare_as_recorded(&mut sides);
            let mut result = compared(arguments, &sides)?;
            result.warnings.extend(is_recorded);
            result
        }
        Err(error) => nothing_measured(&arguments.sides, &error).ok_or(error)?,
    };
    let text = match (arguments.json, format) {
        (true, _) => format!("{}\n", output::json(&result)?),
        (_, CompareFormat::Junit) => whylate_report::junit(&result),
        (_, CompareFormat::Github) => whylate_report::annotations(&result),
        (_, other) => {
            let width = arguments.output.is_some().then_some(report::FILE_WIDTH);
            let page = whylate_report::compare(&result).detailed(arguments.details);
            report::draw(&page, drawn(other), width)
        }
    };
    report::deliver(arguments.output.as_deref(), &text)?;
    Ok(match result.outcome {
        CompareOutcome::Worse => Ending::Exceeded,
        CompareOutcome::Better | CompareOutcome::Equivalent => Ending::Pass,
        CompareOutcome::CannotTell if arguments.exit_on == Some(ExitOn::Regression) => Ending::CannotTell,
        CompareOutcome::CannotTell | CompareOutcome::Nothing => Ending::Incomplete,
    })
}

/// Results of some tools do not say which periods were missed. With such a result on a side, quantiles of all sides are those of
/// the recorded samples; returns the warning that says so.
fn compare_as_recorded(sides: &mut [ComparedSide]) -> Option<Warning> {
    let is_corrected = |cpu: &CpuResult| cpu.quantities.of(CORRECTED).is_some();
    let is_bare = |part: &ComparedPart| {
        part.foreign().is_some_and(|(_, measure)| !measure.probe.cpus.iter().any(is_corrected))
    };
    if !sides.iter().flat_map(|side| &side.parts).any(is_bare) {
        return None;
    }
    let mut was_corrected = false;
    for part in sides.iter_mut().flat_map(|side| &mut side.parts) {
        match part {
            ComparedPart::Foreign(_, measure) => {
                for cpu in &mut measure.probe.cpus {
                    was_corrected |= is_corrected(cpu);
                    cpu.quantities.set(CORRECTED, None);
                }
            }
            ComparedPart::Run(_, run) => {
                let repeats = run.cells.iter_mut().flat_map(|cell| &mut cell.repeats);
                for probe in repeats.flat_map(|it| &mut it.probes) {
                    was_corrected |= probe.corrected.take().is_some();
                }
            }
        }
    }
    let text = "quantiles are compared as recorded, without missed periods: not all results say how many periods a late task missed";
    was_corrected.then(|| Warning::new(WarningCode::ComparedMixed, text))
}

/// The comparison with a run that measured nothing: a separate page, also for a build server.
fn nothing_measured(sides: &[String], error: &anyhow::Error) -> Option<CompareResult> {
    let is_of_samples = |cause: &(dyn std::error::Error + 'static)| {
        matches!(cause.downcast_ref(), Some(StoreError::NoSamples(_) | StoreError::NothingLeft(..)))
    };
    let is_so = error.chain().any(is_of_samples);
    let side = |(run, name): (&String, String)| CompareSide {
        name,
        runs: vec![run.clone()],
        ..CompareSide::default()
    };
    is_so.then(|| CompareResult {
        format: COMPARE_FORMAT.to_owned(),
        sides: sides.iter().zip(names()).map(side).collect(),
        margin: MARGIN,
        outcome: CompareOutcome::Nothing,
        reason: format!("nothing can be compared: {error:#}"),
        ..CompareResult::default()
    })
}

/// Sides against the first of them, as `whylate compare` without flags does.
pub(super) fn of_runs(sides: &[Vec<Folder>]) -> Result<CompareResult> {
    let part = |run: &Folder| {
        anyhow::Ok(ComparedPart::Run(run.path().to_owned(), Box::new(whylate_runner::assemble_in(run)?)))
    };
    let side = |(runs, name): (&Vec<Folder>, String)| {
        let parts = runs.iter().map(part).collect::<Result<_>>()?;
        Ok(ComparedSide { name, parts, cell: None, tags: tags(runs.iter().cloned()) })
    };
    let sides: Vec<ComparedSide> = sides.iter().zip(names()).map(side).collect::<Result<_>>()?;
    compared(&CompareArguments::default(), &sides)
}

/// The tags that all these runs have.
fn tags(runs: impl Iterator<Item = Folder>) -> Vec<String> {
    let tags = runs.map(|run| Labels::read(&run).unwrap_or_default().tags);
    tags.reduce(|all, own| all.into_iter().filter(|tag| own.contains(tag)).collect()).unwrap_or_default()
}

fn names() -> impl Iterator<Item = String> {
    ('A'..='Z').map(String::from).chain((27..).map(|number| format!("side {number}")))
}

fn format(arguments: &CompareArguments) -> Result<CompareFormat> {
    let is_xml = arguments.output.as_ref().is_some_and(|path| path.extension().is_some_and(|it| it == "xml"));
    match arguments.format {
        Some(format) => Ok(format),
        None if is_xml => Ok(CompareFormat::Junit),
        None => Ok(match report::format_of(None, arguments.output.as_deref(), arguments.json)? {
            ReportFormat::Terminal => CompareFormat::Terminal,
            ReportFormat::Markdown => CompareFormat::Markdown,
            ReportFormat::Html => CompareFormat::Html,
        }),
    }
}

fn drawn(format: CompareFormat) -> ReportFormat {
    match format {
        CompareFormat::Markdown => ReportFormat::Markdown,
        CompareFormat::Html => ReportFormat::Html,
        _ => ReportFormat::Terminal,
    }
}

/// `RUN`, `RUN1,RUN2`, `RUN:CELL`, `FILE`.
fn side(text: &str, name: String) -> Result<ComparedSide> {
    let words: Vec<&str> = if Path::new(text).exists() { vec![text] } else { text.split(',').collect() };
    let mut side = ComparedSide { name, parts: Vec::new(), cell: None, tags: Vec::new() };
    for word in words {
        let (path, cell) = super::runs::with_cell(Path::new(word))?;
        if !side.parts.is_empty() && side.cell != cell {
            bail!("{text}: name the same cell in each run of a side, or no cell");
        }
        side.cell = cell;
        side.parts.push(part(&path)?);
    }
    for part in &side.parts {
        let (ComparedPart::Run(path, run), Some(cell)) = (part, &side.cell) else { continue };
        super::runs::require_cell(path, run, cell)?;
    }
    side.tags =
        tags(side.parts.iter().filter(|it| it.run().is_some()).filter_map(|it| Folder::open(it.path()).ok()));
    Ok(side)
}

fn part(path: &Path) -> Result<ComparedPart> {
    let path = &super::runs::named(path)?;
    if path.is_file() {
        return Ok(ComparedPart::Foreign(path.to_owned(), Box::new(report::imported(path)?)));
    }
    Ok(ComparedPart::Run(path.to_owned(), Box::new(whylate_runner::assemble(path)?)))
}

impl ComparedPart {
    fn path(&self) -> &Path {
        match self {
            Self::Run(path, _) | Self::Foreign(path, _) => path,
        }
    }

    fn foreign(&self) -> Option<(&Path, &MeasureResult)> {
        match self {
            Self::Foreign(path, measure) => Some((path, measure)),
            Self::Run(..) => None,
        }
    }

    fn run(&self) -> Option<&RunResult> {
        match self {
            Self::Run(_, run) => Some(run),
            Self::Foreign(..) => None,
        }
    }
}

impl ComparedSide {
    /// The facts of its first run; for a side with one cell, that cell's loads and treatments too.
    fn facts(&self) -> Option<Described<'_>> {
        Some(match self.parts.first()? {
            ComparedPart::Foreign(_, measure) => Described {
                facts: &measure.facts,
                plan: None,
                cell: None,
                command: measure.tool_command.as_deref(),
            },
            ComparedPart::Run(_, run) => {
                let is_it = |it: &&CellResult| self.cell.as_ref().is_none_or(|cell| *cell == it.name);
                let cell = run.cells.iter().find(is_it).filter(|_| self.is_one_cell());
                Described { facts: &run.facts, plan: Some(&run.plan), cell, command: None }
            }
        })
    }

    fn runs(&self) -> impl Iterator<Item = &RunResult> {
        self.parts.iter().filter_map(ComparedPart::run)
    }

    /// The spikes of its cell, or of all cells.
    fn spikes(&self) -> impl Iterator<Item = &Spike> {
        let cells = self.runs().flat_map(|run| &run.cells);
        let own = cells.filter(|it| self.cell.as_ref().is_none_or(|cell| *cell == it.name));
        own.flat_map(|cell| &cell.spikes)
    }

    fn described(&self) -> CompareSide {
        CompareSide {
            name: self.name.clone(),
            runs: self.parts.iter().map(|part| part.path().display().to_string()).collect(),
            cell: self.cell.clone(),
            started_at: self.runs().map(|run| run.started_at.clone()).min(),
            tags: self.tags.clone(),
        }
    }

    /// `one_cell`: as for a side with one cell, which may have another name.
    fn values(&self, primary: Option<&SeriesStatistic>, one_cell: bool) -> Vec<RunValues> {
        let of = |part: &ComparedPart| match part {
            ComparedPart::Foreign(_, measure) => RunValues::of_measure(measure),
            ComparedPart::Run(_, run) => {
                let only = self.cell.as_deref().or(run.cells.first().map(|cell| cell.name.as_str()));
                RunValues::of_run(run, only.filter(|_| one_cell), primary)
            }
        };
        self.parts.iter().map(of).collect()
    }

    /// Whether only one cell is compared.
    fn is_one_cell(&self) -> bool {
        self.cell.is_some() || self.parts.iter().all(|part| part.run().is_none_or(|run| run.cells.len() == 1))
    }
}

fn compared(arguments: &CompareArguments, sides: &[ComparedSide]) -> Result<CompareResult> {
    let [baseline, others @ ..] = sides else { bail!("name two runs to compare") };
    // The runs of a side must differ. A single run may be compared with itself, and its cells with one another.
    if sides.iter().any(|side| side.parts.len() > 1) {
        let of_one_cell = |side: &&ComparedSide| side.cell == baseline.cell;
        let parts = sides.iter().filter(of_one_cell).flat_map(|side| &side.parts);
        super::runs::require_distinct(parts.clone().filter_map(|part| Some((part.path(), part.run()?))))?;
        let mut files: Vec<&Path> = parts.filter_map(|part| part.foreign()).map(|(path, _)| path).collect();
        files.order();
        if let Some(twice) = files.windows(2).find(|pair| pair[0] == pair[1]) {
            bail!("{} is named twice; name each result once", twice[0].display());
        }
    }
    // Another tool's file has no plan: the other side's plan decides.
    let plan = sides.iter().flat_map(ComparedSide::runs).next().map(|run| &run.plan);
    let primary = arguments.statistic.clone().or_else(|| plan.and_then(Plan::primary_statistic));
    let (primary, instead) = match primary {
        Some(primary) => (Some(primary), None),
        None => of_foreign(sides),
    };
    let margin = arguments.margin.or(plan.map(|plan| plan.margin)).map_or(MARGIN, |margin| margin.0);
    let one_cell = sides.iter().all(ComparedSide::is_one_cell);
    let past = history(arguments, sides)?;
    let history =
        ComparedSide { name: String::new(), parts: past, cell: baseline.cell.clone(), tags: Vec::new() };
    let history_values = history.values(primary.as_ref(), one_cell);
    let first = baseline.values(primary.as_ref(), one_cell);
    let (differences, unknown) =
        differences(&sides.iter().filter_map(ComparedSide::facts).collect::<Vec<_>>());
    let mut result = CompareResult {
        format: COMPARE_FORMAT.to_owned(),
        sides: sides.iter().map(ComparedSide::described).collect(),
        differences,
        unknown,
        margin,
        warnings: caveats::of(sides).into_iter().chain(instead).collect(),
        ..CompareResult::default()
    };
    let (mut lacking, mut is_one_run): (Vec<String>, bool) = (Vec::new(), true);
    for side in others {
        let values = side.values(primary.as_ref(), one_cell);
        let question = Question {
            baseline: (&baseline.name, &first),
            side: (&side.name, &values),
            history: &history_values,
            primary: primary.as_ref(),
            margin,
        };
        let of_one_run = within_one_run(baseline, side, margin, primary.as_ref());
        result.basis = of_one_run.as_ref().map_or_else(
            || {
                basis(
                    compare::basis(first.len(), values.len(), history_values.len()),
                    first.len(),
                    values.len(),
                )
            },
            |_| {
                "Both sides are cells of one run: their repeats were interleaved, so the cells are compared directly."
                    .to_owned()
            },
        );
        is_one_run &= of_one_run.is_some();
        if of_one_run.is_none() {
            for why in compare::lacking(&question) {
                if !lacking.contains(&why) {
                    lacking.push(why);
                }
            }
        }
        result.contrasts.extend(of_one_run.unwrap_or_else(|| compare::compare(&question)));
        result.causes.extend(causes(baseline, side));
    }
    let shown = others.iter().find_map(|side| mechanism::of_one_side(baseline, side, &mut result.contrasts));
    compare::conclude(&mut result, primary.as_ref(), &lacking);
    if let Some(shown) = shown {
        result.reason = format!("{}: {shown}", result.reason);
        result.basis = "With one file per side, whylate decides only if a known mechanism acts on one side alone, and gives no p-value. Any other decision needs more files."
            .to_owned();
    }
    if result.outcome == CompareOutcome::Nothing {
        result.reason =
            format!("{}: {}", result.reason, sides.iter().map(has).collect::<Vec<_>>().join("; "));
    }
    if is_one_run && result.outcome == CompareOutcome::CannotTell {
        let is_open = |it: &&Comparison| it.primary && it.outcome == Outcome::CannotTell;
        let open: Vec<&Comparison> =
            result.contrasts.iter().map(|it| &it.comparison).filter(is_open).collect();
        let refused = open.iter().find_map(|it| it.refused.clone());
        let more = open.iter().filter_map(|it| it.more_repeats).max();
        let more = more.map(|more| format!("about {more} more repeats would tell (`--set repeats=N`)"));
        if let Some(next) = refused.or(more) {
            result.reason = format!("{}: {next}", result.reason);
        }
    }
    let sizes: Vec<usize> = sides.iter().map(|side| side.parts.len()).collect();
    let least = sizes.iter().copied().min().unwrap_or(0);
    if plan.is_none() && result.outcome == CompareOutcome::CannotTell && least < compare::RUNS_PERMUTED_MIN {
        result.reason = format!(
            "{}: runs differ by boot and time, and {least} file{} per side cannot show how much. Give {} files for each side, separated \
             by commas{}",
            result.reason,
            if least == 1 { "" } else { "s" },
            compare::RUNS_PERMUTED_MIN,
            largest_change(&result)
        );
    }
    Ok(result)
}

/// The statistic that decides between results of other tools, which have no plan: the highest quantile that all of them
/// have, and that enough samples are above; otherwise the largest value. With it a warning, if a result lacks a higher
/// quantile.
fn of_foreign(sides: &[ComparedSide]) -> (Option<SeriesStatistic>, Option<Warning>) {
    let parts = || sides.iter().flat_map(|side| &side.parts);
    let Some((_, first)) = parts().find_map(ComparedPart::foreign) else { return (None, None) };
    let samples = parts()
        .filter_map(ComparedPart::foreign)
        .map(|(_, measure)| measure.probe.cpus.iter().map(|cpu| cpu.samples).sum::<u64>());
    let samples = samples.min().unwrap_or_default();
    let probe = &first.probe.probe;
    // The statistic with the file that lacks it.
    let candidate = |(name, least): (&str, u64)| -> Option<(SeriesStatistic, Option<&Path>)> {
        let statistic: SeriesStatistic =
            format!("{probe} {name}").parse().ok().filter(|_| samples >= least)?;
        let values: Vec<Vec<RunValues>> =
            sides.iter().map(|side| side.values(Some(&statistic), true)).collect();
        let above_ns = |it: &RunValues| it.statistic_above("", &statistic);
        let is_above = |it: &RunValues| above_ns(it).is_some();
        let all = || values.iter().flatten();
        let least_ns = all().filter_map(above_ns).fold(f64::INFINITY, f64::min);
        let is_apart = all().filter_map(|it| it.of_statistic("", &statistic)).all(|known| known < least_ns);
        // If it is above the end of the histogram in all files of one side, and below it in all others, it is larger there.
        let above = values.iter().filter(|of_side| of_side.iter().any(is_above)).count();
        let is_counted = is_apart && above == 1 && values.iter().any(|of_side| of_side.iter().all(is_above));
        let lacks =
            |it: &RunValues| it.of_statistic("", &statistic).is_none() && !(is_counted && is_above(it));
        let path = all().zip(parts()).find(|(it, _)| lacks(it)).map(|(_, part)| part.path());
        Some((statistic, path))
    };
    let candidates = [("p99.9", 100 * QUANTILE_LEAST), ("p99", 10 * QUANTILE_LEAST), ("max", 0)];
    let mut lacking: Option<(SeriesStatistic, &Path)> = None;
    for (statistic, path) in candidates.into_iter().filter_map(candidate) {
        match (path, lacking) {
            (None, None) => return (Some(statistic), None),
            (None, Some((higher, path))) => {
                let text = format!(
                    "{} is missing in {}, so {} decides",
                    higher.statistic,
                    path.display(),
                    statistic.statistic
                );
                return (Some(statistic), Some(Warning::new(WarningCode::ForeignResult, text)));
            }
            (Some(path), known) => lacking = known.or(Some((statistic, path))),
        }
    }
    (format!("{probe} max").parse().ok(), None)
}

/// The most series of a side that a reason names.
const SERIES_NAMED: usize = 6;

/// What a side has: `A has idle timer, watch task/audio`.
fn has(side: &ComparedSide) -> String {
    let named = |cell: &str, probe: &ProbeResult| -> Vec<String> {
        let series = probe.cpus.iter().map(|cpu| SeriesName::in_probe(&probe.probe, cpu.series.as_deref()));
        series.map(|series| format!("{cell} {series}").trim().to_owned()).collect()
    };
    let of_part = |part: &ComparedPart| match part {
        ComparedPart::Foreign(_, measure) => named("", &measure.probe),
        ComparedPart::Run(_, run) => run
            .cells
            .iter()
            .flat_map(|cell| cell.probes.iter().flat_map(|probe| named(&cell.name, probe)))
            .collect(),
    };
    let mut all: Vec<String> = side.parts.iter().flat_map(of_part).collect();
    all.order();
    all.dedup();
    let more = if all.len() > SERIES_NAMED { ", …" } else { "" };
    all.truncate(SERIES_NAMED);
    format!("{} has {}{more}", side.name, if all.is_empty() { "none".to_owned() } else { all.join(", ") })
}

/// `. Largest change: timer max of CPU 1, from 77.0 us to 50.1 ms`.
fn largest_change(result: &CompareResult) -> String {
    let size = |it: &&RunContrast| it.comparison.ratio.map_or(0.0, |ratio| ratio.ln().abs());
    let known = result.contrasts.iter().filter(|it| it.above_histogram == [0, 0]);
    let Some(largest) = known.max_by(|a, b| size(a).total_cmp(&size(b))) else {
        return String::new();
    };
    let it = &largest.comparison;
    let (Some(before), Some(after)) = (it.baseline_ns, it.cell_ns) else { return String::new() };
    let cell = if largest.of_cell.is_empty() { String::new() } else { format!(" of {}", largest.of_cell) };
    let (before, after) = (nanoseconds(before), nanoseconds(after));
    format!(". Largest change: {} {}{cell}, from {before} to {after}", it.probe, it.statistic)
}

/// Compares two cells of one run as the run itself does.
fn within_one_run(
    baseline: &ComparedSide,
    side: &ComparedSide,
    margin: f64,
    primary: Option<&SeriesStatistic>,
) -> Option<Vec<RunContrast>> {
    let ([ComparedPart::Run(first, run)], [ComparedPart::Run(second, _)]) = (&*baseline.parts, &*side.parts)
    else {
        return None;
    };
    let is_same = first.canonicalize().ok()? == second.canonicalize().ok()?;
    let find = |name: &Option<String>| run.cells.iter().find(|cell| Some(&cell.name) == name.as_ref());
    let (before, after) = (find(&baseline.cell)?, find(&side.cell)?);
    let names = (&*baseline.name, &*side.name);
    is_same.then(|| whylate_stats::contrasts_of_cells((names.0, before), (names.1, after), margin, primary))
}

/// Runs that show how much runs differ: the named ones, or similar ones in the folder of the first run.
fn history(arguments: &CompareArguments, sides: &[ComparedSide]) -> Result<Vec<ComparedPart>> {
    if let Some(named) = &arguments.history {
        let parts = named.iter().map(|path| part(path)).collect::<Result<Vec<_>>>()?;
        super::runs::require_distinct(parts.iter().filter_map(|part| Some((part.path(), part.run()?))))?;
        return Ok(parts);
    }
    let Some(ComparedPart::Run(path, first)) = sides.first().and_then(|side| side.parts.first()) else {
        return Ok(Vec::new());
    };
    let path = path.canonicalize().unwrap_or_else(|_| path.clone());
    let Some(folder) = path.parent() else { return Ok(Vec::new()) };
    let others = || sides.iter().skip(1).flat_map(|side| &side.parts);
    let is_named =
        |candidate: &Path| others().any(|part| part.path().canonicalize().is_ok_and(|it| it == candidate));
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut candidates: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    candidates.retain(|it| whylate_store::is_run(it) && !is_named(it));
    // The newest are most likely to resemble it.
    candidates.order_by(|a, b| b.cmp(a));
    let is_like = |candidate: &&PathBuf| {
        Reader::open(candidate).is_ok_and(|reader| {
            let info = reader.info();
            let same_plan = Plan { seed: first.plan.seed, ..info.plan.clone() } == first.plan;
            let (facts, own) = (&info.facts, &first.facts);
            same_plan
                && facts.host == own.host
                && facts.kernel.release == own.kernel.release
                && reader.has_ended()
        })
    };
    let like = candidates.iter().filter(is_like).take(HISTORY_MAX);
    let mut parts: Vec<ComparedPart> = Vec::new();
    for found in like.filter_map(|path| part(path).ok()) {
        let is_known = |known: &ComparedPart| {
            known.run().zip(found.run()).is_some_and(|(known, run)| super::runs::is_same(known, run))
        };
        if !parts.iter().any(is_known) {
            parts.push(found);
        }
    }
    Ok(parts)
}

fn basis(basis: Basis, before: usize, after: usize) -> String {
    match basis {
        Basis::Runs => format!(
            "A permutation test compares {before} with {after} runs. Runs of both sides should alternate in time."
        ),
        Basis::History(count) => format!(
            "Runs per side: {before} and {after}. A history of {count} runs, if like the baseline, shows how much runs differ."
        ),
        Basis::TooFew => format!(
            "Too few runs ({before} and {after}, without a history of {} runs) to show a difference: runs differ by boot and time. \
             Give {} runs of each side, or --history.",
            compare::HISTORY_MIN,
            compare::RUNS_PERMUTED_MIN
        ),
    }
}

/// The causes of late time, series by series: runs against runs, or the repeats of two cells of one run within their
/// blocks.
fn causes(baseline: &ComparedSide, side: &ComparedSide) -> Vec<CauseDifference> {
    let of_one_run = matches!((&baseline.parts[..], &side.parts[..]), ([a], [b]) if a.path() == b.path());
    let mut names: Vec<&str> = [baseline, side]
        .iter()
        .flat_map(|it| it.spikes())
        .filter_map(|spike| spike.probe.as_deref())
        .collect();
    names.order();
    names.dedup();
    names.retain(|name| SeriesName::of(name).facts().is_some());
    // If causes were not looked for, none has disappeared.
    let looked = |side: &ComparedSide| side.runs().all(|run| looks(run, side.cell.as_deref()));
    if looked(baseline) != looked(side) {
        return Vec::new();
    }
    // If all was left unexplained, there is no cause to compare.
    let is_explained = |spike: &Spike| spike.cause.kind != CauseKind::Unattributed;
    if !looked(baseline) && ![baseline, side].iter().flat_map(|it| it.spikes()).any(is_explained) {
        return Vec::new();
    }
    // Runs of earlier versions have no ledger: only their largest spikes are known. A run without late spikes has none, too.
    let is_known = |(run, cell): (&RunResult, &CellResult)| {
        let least_ns = run.plan.late_above().0;
        !cell.ledger.is_empty() || cell.spikes.iter().all(|spike| spike.latency_ns < least_ns)
    };
    let both = || [baseline, side].into_iter().flat_map(cells);
    let by_ledger = both().all(is_known) && both().any(|(_, cell)| !cell.ledger.is_empty());
    // The ledger of a watch leaves out the threads' own work.
    let has_deadline = |run: &RunResult| run.plan.is_watch() && run.plan.deadline().is_some();
    let are_watches = !of_one_run && [baseline, side].iter().flat_map(|it| it.runs()).all(has_deadline);
    let basis = |name: &str| {
        let late = both().flat_map(|(_, cell)| &cell.probes).flat_map(|probe| &probe.late_responses);
        let late: Vec<&LateResponses> = late.filter(|it| it.probe == name).collect();
        // In a storm of late responses, only some of them were explained.
        let are_explained = late.iter().all(|it| it.explained == it.late);
        match by_ledger {
            _ if are_watches && are_explained && !late.is_empty() => CauseBasis::LateResponses,
            true => CauseBasis::Ledger,
            false => CauseBasis::Spikes,
        }
    };
    let units = |side: &ComparedSide, name: &str| cause_units(side, name, of_one_run, basis(name));
    let of_series = |name: &&str| {
        compare::cause_differences(&side.name, name, &units(baseline, name), &units(side, name), names.len())
    };
    names.iter().flat_map(of_series).collect()
}

/// Whether causes were looked for in the cells of a run, or in one of them.
fn looks(run: &RunResult, cell: Option<&str>) -> bool {
    let mut cells =
        run.cells.iter().filter(|it| it.skipped.is_none() && cell.is_none_or(|cell| cell == it.name));
    let is_refused = run.warnings.iter().any(|one| one.code == WarningCode::NoCauses);
    !is_refused && cells.all(|it| run.plan.looks_for_causes(&it.name))
}

/// The cells of a side, each with its run.
fn cells(side: &ComparedSide) -> impl Iterator<Item = (&RunResult, &CellResult)> {
    let of_side = |it: &(&RunResult, &CellResult)| side.cell.as_ref().is_none_or(|cell| *cell == it.1.name);
    side.runs().flat_map(|run| run.cells.iter().map(move |cell| (run, cell))).filter(of_side)
}

/// The units of a side for one series: its repeats, or its runs.
fn cause_units(side: &ComparedSide, name: &str, by_repeat: bool, basis: CauseBasis) -> Vec<CauseUnit> {
    let mut units = Vec::new();
    for run in side.runs() {
        let mut whole = CauseUnit::default();
        for cell in run.cells.iter().filter(|it| side.cell.as_ref().is_none_or(|cell| *cell == it.name)) {
            for repeat in &cell.repeats {
                if by_repeat {
                    let mut unit = CauseUnit { block: repeat.block, ..CauseUnit::default() };
                    unit.add(cell, repeat, name, basis);
                    units.push(unit);
                } else {
                    whole.add(cell, repeat, name, basis);
                }
            }
            if basis == CauseBasis::LateResponses {
                whole.add_late_responses(cell, name);
            }
        }
        if !by_repeat {
            units.push(whole);
        }
    }
    units
}
