//! `whylate runs`: lists, searches, tags and removes.

use super::{report, variable};
use crate::arguments::{RunsArguments, RunsCommand};
use crate::exit::Ending;
use crate::output;
use anyhow::{Context, Result, bail};
use std::io::{IsTerminal as _, stdin};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use whylate_core::order::InOrder;
use whylate_core::plan::SeriesStatistic;
use whylate_core::result::{
    RUNS_FORMAT, RunChange, RunPoint, RunResult, RunSearch, RunSeries, RunState, RunSummary, RunsResult,
};
use whylate_stats::changes::{self, Change};
use whylate_stats::compare::RunValues;
use whylate_store::{Folder, Labels, VerdictCache, default_path, user_folder};

const LATEST: &str = "latest";

pub(super) fn execute(arguments: &RunsArguments) -> Result<Ending> {
    match &arguments.action {
        None => show(arguments)?,
        Some(RunsCommand::Tag { tags, .. }) if tags.iter().any(|tag| tag.trim().is_empty()) => {
            bail!("a tag is empty; give a word");
        }
        Some(RunsCommand::Tag { run, tags }) => label(run, |labels| labels.tags.extend(tags.clone()))?,
        Some(RunsCommand::Untag { run, tags }) => {
            label(run, |labels| {
                for tag in tags.iter().filter(|tag| !labels.tags.contains(tag)) {
                    output::message(&format!("the run has no tag `{tag}`"));
                }
                labels.tags.retain(|tag| !tags.contains(tag));
            })?;
        }
        Some(RunsCommand::Note { run, note }) => {
            label(run, |labels| labels.note = Some(note.clone()).filter(|note| !note.is_empty()))?;
        }
        Some(RunsCommand::Remove { runs, yes }) => remove(runs, *yes)?,
    }
    Ok(Ending::Pass)
}

/// The named run or file: a path, `-`, or `latest` if nothing here has that name.
///
/// # Errors
/// A path without a file or folder.
pub(super) fn named(run: &Path) -> Result<PathBuf> {
    if run == Path::new("-") || run.symlink_metadata().is_ok() {
        return Ok(run.to_owned());
    }
    if run != Path::new(LATEST) {
        bail!(
            "{}: there is no such file or folder; `whylate runs` lists the runs, `latest` is the newest",
            run.display()
        );
    }
    let folder = folder(None)?;
    let newest = whylate_store::newest(&folder);
    let newest = newest.with_context(|| {
        format!("{} has no run yet; name a run, or begin with `whylate run`", folder.display())
    })?;
    output::message(&format!("latest: {}", newest.display()));
    Ok(newest)
}

/// The named run, and the cell in `RUN:CELL`; an existing path takes precedence.
pub(super) fn with_cell(word: &Path) -> Result<(PathBuf, Option<String>)> {
    let text = word.to_string_lossy();
    match text.rsplit_once(':') {
        Some((run, cell)) if !word.exists() => Ok((named(Path::new(run))?, Some(cell.to_owned()))),
        _ => Ok((named(word)?, None)),
    }
}

/// Refuses a cell that the run does not have.
pub(super) fn require_cell(path: &Path, run: &RunResult, cell: &str) -> Result<()> {
    if !run.cells.iter().any(|it| it.name == cell) {
        let names: Vec<&str> = run.cells.iter().map(|cell| cell.name.as_str()).collect();
        bail!("{}: there is no cell `{cell}`; the run has {}", path.display(), names.join(", "));
    }
    Ok(())
}

/// Refuses one run, or a copy of it, that is given as several: its repeats were measured only once.
pub(super) fn require_distinct<'r>(runs: impl IntoIterator<Item = (&'r Path, &'r RunResult)>) -> Result<()> {
    let mut seen: Vec<(&Path, &RunResult)> = Vec::new();
    for (path, run) in runs {
        if let Some((first, _)) = seen.iter().find(|(_, known)| is_same(known, run)) {
            bail!("{} and {} are the same run: name each run once", first.display(), path.display());
        }
        seen.push((path, run));
    }
    Ok(())
}

/// Whether both are the same run, or copies of it.
pub(super) fn is_same(one: &RunResult, other: &RunResult) -> bool {
    let of = |run: &RunResult| (run.started_at.clone(), run.facts.host.clone(), run.plan.seed);
    of(one) == of(other) && one.plan.name == other.plan.name
}

pub(super) fn folder(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(named) = named {
        std::fs::read_dir(named).with_context(|| format!("cannot read {}", named.display()))?;
        return Ok(named.to_owned());
    }
    let any = default_path(
        variable("XDG_DATA_HOME").as_deref(),
        variable("HOME").as_deref(),
        SystemTime::UNIX_EPOCH,
        "",
    );
    let folder = any.as_deref().and_then(Path::parent).map(Path::to_owned);
    folder.context("neither XDG_DATA_HOME nor HOME is set; name a folder with --dir")
}

/// Verdicts of earlier lists; `None` without a cache folder that belongs to the user alone.
pub(super) fn verdicts() -> Option<VerdictCache> {
    let [named, home] = ["XDG_CACHE_HOME", "HOME"].map(variable);
    let caches = user_folder(named.as_deref(), home.as_deref(), ".cache")?;
    VerdictCache::open(&caches.join("whylate")).ok()
}

fn show(arguments: &RunsArguments) -> Result<()> {
    let folder = folder(arguments.dir.as_deref())?;
    let search = RunSearch::of(&arguments.terms)?;
    let mut runs = whylate_store::list(&folder, verdicts());
    let all = runs.len();
    runs.retain(|run| search.matches(run));
    let series = arguments
        .series
        .as_ref()
        .map(|of| series(&runs, &opened, of, arguments.cell.as_deref()))
        .transpose()?;
    let folder = folder.display().to_string();
    let result = RunsResult { format: RUNS_FORMAT.to_owned(), folder, runs, series };
    let output = arguments.output.as_deref();
    let format = report::format_of(arguments.format, output, arguments.json)?;
    let text = match arguments.json {
        true => format!("{}\n", output::json(&result)?),
        false => {
            let width = output.map(|_| report::FILE_WIDTH);
            report::draw(&whylate_report::runs(&result, all, None), format, width)
        }
    };
    report::deliver(output, &text)
}

/// The trend of a statistic over the runs of the newest run's plan.
pub(super) fn series(
    runs: &[RunSummary],
    open: &dyn Fn(&RunSummary) -> Result<Folder, String>,
    of: &SeriesStatistic,
    cell: Option<&str>,
) -> Result<RunSeries> {
    let newest = runs.iter().find(|run| run.state == RunState::Complete).context("no run is complete")?;
    let (plan, mut cell) = (newest.plan.clone(), cell.map(str::to_owned));
    let mut points = Vec::new();
    for run in runs.iter().filter(|run| run.plan == plan && run.state == RunState::Complete) {
        let result =
            open(run).and_then(|it| whylate_runner::assemble_in(&it).map_err(|error| error.to_string()));
        let result = match result {
            Ok(result) => result,
            Err(error) => {
                output::message(&format!("left out: {}: {error}", run.path));
                continue;
            }
        };
        let first = result.cells.first().map(|cell| cell.name.clone());
        let Some(cell) = cell.clone().or(first).inspect(|name| cell = Some(name.clone())) else { continue };
        let value = RunValues::of_run(&result, None, Some(of)).of_statistic(&cell, of);
        points.extend(value.map(|value| RunPoint {
            path: run.path.clone(),
            started_at: run.started_at.clone(),
            kernel: run.kernel.clone(),
            tags: run.tags.clone(),
            value,
        }));
    }
    let Some(cell) = cell.filter(|_| !points.is_empty()) else {
        bail!("no run of plan {plan} has {of}; `whylate report RUN` shows the statistics of a run");
    };
    points.reverse();
    let values: Vec<f64> = points.iter().map(|point| point.value).collect();
    let change = |it: Change| RunChange { point: it.at, p_value: it.p_value, ratio: it.ratio };
    let changes: Vec<RunChange> = changes::changes(&values).into_iter().map(change).collect();
    let levels = changes::levels(&values, changes.iter().map(|change| change.point));
    Ok(RunSeries { plan, cell, statistic: of.to_string(), points, changes, levels })
}

fn opened(run: &RunSummary) -> Result<Folder, String> {
    Folder::open(Path::new(&run.path)).map_err(|error| error.to_string())
}

fn label(run: &Path, change: impl FnOnce(&mut Labels)) -> Result<()> {
    let run = named(run)?;
    let mut labels = Labels::read(&Folder::open(&run)?)?;
    change(&mut labels);
    labels.tags.order();
    labels.tags.dedup();
    labels.write(&run)?;
    let note = labels.note.map(|note| format!("; note: {note}")).unwrap_or_default();
    let tags = if labels.tags.is_empty() { "none".to_owned() } else { labels.tags.join(", ") };
    output::print(&format!("{}: tags: {tags}{note}", run.display()))
}

fn remove(runs: &[PathBuf], yes: bool) -> Result<()> {
    if !yes {
        let names: Vec<String> = runs.iter().map(|run| run.display().to_string()).collect();
        if !stdin().is_terminal() {
            bail!("{}: without a terminal, add --yes to delete", names.join(", "));
        }
        output::message(&format!("delete {} with all measurements? [y/N]", names.join(", ")));
        let mut answer = String::new();
        stdin().read_line(&mut answer)?;
        if !answer.trim().eq_ignore_ascii_case("y") {
            bail!("nothing was deleted");
        }
    }
    for run in runs {
        // All of them or none: a run that cannot be deleted is reported before any is.
        whylate_store::require_run(run)?;
    }
    for run in runs {
        let kept = whylate_store::remove(run)?;
        let (run, kept) = (run.display(), kept.join(", "));
        match kept.is_empty() {
            true => output::message(&format!("deleted {run}")),
            false => output::message(&format!(
                "deleted the run in {run}; kept files that are not part of the run: {kept}"
            )),
        }
    }
    Ok(())
}
