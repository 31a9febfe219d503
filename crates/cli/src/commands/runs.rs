//! `whylate runs`: lists, searches, tags and removes.

use crate::arguments::{RunsArguments, RunsCommand};
use crate::exit::Ending;
use crate::output;
use anyhow::{Context, Result, bail};
use std::io::{IsTerminal as _, stdin};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use whylate_core::result::{RUNS_FORMAT, RunSearch, RunsResult};
use whylate_store::{Labels, default_path};

/// Stands for the newest run.
const LATEST: &str = "latest";

pub(super) fn execute(arguments: &RunsArguments) -> Result<Ending> {
    match &arguments.action {
        None => show(arguments)?,
        Some(RunsCommand::Tag { run, tags }) => label(run, |labels| labels.tags.extend(tags.clone()))?,
        Some(RunsCommand::Untag { run, tags }) => {
            label(run, |labels| labels.tags.retain(|tag| !tags.contains(tag)))?;
        }
        Some(RunsCommand::Note { run, note }) => {
            label(run, |labels| labels.note = Some(note.clone()).filter(|note| !note.is_empty()))?;
        }
        Some(RunsCommand::Remove { runs, yes }) => remove(runs, *yes)?,
    }
    Ok(Ending::Pass)
}

/// The run that is named: a path, or `latest` where nothing of that name is here.
pub(super) fn named(run: &Path) -> Result<PathBuf> {
    if run != Path::new(LATEST) || run.exists() {
        return Ok(run.to_owned());
    }
    let folder = folder(None)?;
    let newest = whylate_store::list(&folder).into_iter().next();
    let newest = newest.with_context(|| {
        format!("{} holds no run yet; name one, or begin with `whylate run`", folder.display())
    })?;
    output::message(&format!("latest: {}", newest.path));
    Ok(PathBuf::from(newest.path))
}

pub(super) fn folder(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(named) = named {
        std::fs::read_dir(named).with_context(|| format!("cannot read {}", named.display()))?;
        return Ok(named.to_owned());
    }
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let any = default_path(
        variable("XDG_DATA_HOME").as_deref(),
        variable("HOME").as_deref(),
        SystemTime::UNIX_EPOCH,
        "",
    );
    let folder = any.as_deref().and_then(Path::parent).map(Path::to_owned);
    folder.context("neither XDG_DATA_HOME nor HOME is set; name a folder with --dir")
}

fn show(arguments: &RunsArguments) -> Result<()> {
    let folder = folder(arguments.dir.as_deref())?;
    let search = RunSearch::of(&arguments.terms)?;
    let mut runs = whylate_store::list(&folder);
    let all = runs.len();
    runs.retain(|run| search.matches(run));
    let result = RunsResult { format: RUNS_FORMAT.to_owned(), folder: folder.display().to_string(), runs };
    if arguments.json {
        return output::print_json(&result);
    }
    output::drawn(&whylate_report::runs(&result, all, None).terminal(output::style()))
}

fn label(run: &Path, change: impl FnOnce(&mut Labels)) -> Result<()> {
    let run = named(run)?;
    let mut labels = Labels::read(&run)?;
    change(&mut labels);
    labels.tags.sort();
    labels.tags.dedup();
    labels.write(&run)?;
    let note = labels.note.map(|note| format!("; note: {note}")).unwrap_or_default();
    output::print(&format!("{}: tags: {}{note}", run.display(), labels.tags.join(", ")))
}

fn remove(runs: &[PathBuf], yes: bool) -> Result<()> {
    if !yes {
        let names: Vec<String> = runs.iter().map(|run| run.display().to_string()).collect();
        if !stdin().is_terminal() {
            bail!("{}: add --yes to delete", names.join(", "));
        }
        output::message(&format!("delete {} with all that was measured? [y/N]", names.join(", ")));
        let mut answer = String::new();
        stdin().read_line(&mut answer)?;
        if !answer.trim().eq_ignore_ascii_case("y") {
            bail!("nothing was deleted");
        }
    }
    for run in runs {
        whylate_store::remove(run)?;
        output::message(&format!("deleted {}", run.display()));
    }
    Ok(())
}
