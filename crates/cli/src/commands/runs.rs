//! `whylate runs`: lists, searches, tags and removes.

use crate::arguments::{RunsArguments, RunsCommand};
use crate::exit::Ending;
use crate::output;
use anyhow::{Context, Result, bail};
use std::cmp::Ordering;
use std::io::{IsTerminal as _, stdin};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use whylate_core::result::{RUNS_FORMAT, RunState, RunSummary, RunsResult, Verdict};
use whylate_store::{Labels, default_path};

/// Stands for the newest run.
const LATEST: &str = "latest";
/// What compares, the longest first.
const SIGNS: [&str; 7] = [">=", "<=", "!=", "=", "~", "<", ">"];

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

fn folder(named: Option<&Path>) -> Result<PathBuf> {
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
    let terms: Vec<Term> = arguments.terms.iter().map(|text| Term::of(text)).collect::<Result<_>>()?;
    let mut runs = whylate_store::list(&folder);
    let all = runs.len();
    runs.retain(|run| terms.iter().all(|term| term.matches(run)));
    let result = RunsResult { format: RUNS_FORMAT.to_owned(), folder: folder.display().to_string(), runs };
    if arguments.json {
        return output::print_json(&result);
    }
    output::drawn(&whylate_report::runs(&result, all).terminal(output::style()))
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

/// `kernel>=6.12`; without a sign a text that any of the values holds.
#[derive(Debug)]
struct Term {
    key: Option<&'static str>,
    sign: &'static str,
    value: String,
}

const KEYS: [&str; 8] = ["plan", "host", "kernel", "verdict", "state", "tag", "note", "started"];

impl Term {
    fn of(text: &str) -> Result<Self> {
        let at = text.find(['=', '!', '~', '<', '>']);
        let sign = at.and_then(|at| SIGNS.into_iter().find(|sign| text[at..].starts_with(sign)));
        let (Some(at), Some(sign)) = (at, sign) else {
            return Ok(Self { key: None, sign: "~", value: text.to_owned() });
        };
        let (key, value) = (&text[..at], &text[at + sign.len()..]);
        let Some(known) = KEYS.into_iter().find(|known| *known == key) else {
            bail!("{text}: there is no `{key}`; choose {}", KEYS.join(", "));
        };
        Ok(Self { key: Some(known), sign, value: value.to_owned() })
    }

    fn matches(&self, run: &RunSummary) -> bool {
        let keys = KEYS.into_iter().filter(|key| self.key.is_none_or(|own| own == *key));
        let values: Vec<String> = keys.flat_map(|key| values(run, key)).collect();
        let is = |value: &String| match self.sign {
            "=" | "!=" => value.eq_ignore_ascii_case(&self.value),
            "~" => value.to_lowercase().contains(&self.value.to_lowercase()),
            sign => {
                let order = by_numbers(value, &self.value);
                match sign {
                    "<" => order == Ordering::Less,
                    ">" => order == Ordering::Greater,
                    "<=" => order != Ordering::Greater,
                    _ => order != Ordering::Less,
                }
            }
        };
        values.iter().any(is) != (self.sign == "!=")
    }
}

fn values(run: &RunSummary, key: &str) -> Vec<String> {
    let state = match run.state {
        RunState::Running => "running",
        RunState::Complete => "complete",
        RunState::Interrupted => "interrupted",
    };
    let verdict = run.verdict.map(|verdict| match verdict {
        Verdict::Pass => "pass",
        Verdict::Fail => "fail",
        Verdict::NoLimit => "no_limit",
        Verdict::Incomplete => "incomplete",
    });
    match key {
        "plan" => vec![run.plan.clone()],
        "host" => vec![run.host.clone()],
        "kernel" => vec![run.kernel.clone()],
        "verdict" => verdict.map(str::to_owned).into_iter().collect(),
        "state" => vec![state.to_owned()],
        "tag" => run.tags.clone(),
        "note" => run.note.iter().cloned().collect(),
        _ => vec![run.started_at.clone()],
    }
}

/// `6.9` is before `6.12`: numbers in the texts count as numbers, as far as the second goes.
fn by_numbers(a: &str, b: &str) -> Ordering {
    let parts = |text: &str| -> Vec<u64> {
        text.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
    };
    let (a, b) = (parts(a), parts(b));
    a.iter().take(b.len()).cmp(b.iter())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_select_runs() {
        let run = RunSummary {
            path: "runs/a".to_owned(),
            plan: "quick".to_owned(),
            started_at: "2026-11-22T10:00:00Z".to_owned(),
            state: RunState::Complete,
            verdict: Some(Verdict::Fail),
            host: "bench".to_owned(),
            kernel: "6.12.4-rt3".to_owned(),
            tags: vec!["before".to_owned()],
            note: None,
        };
        let matches = |text: &str| Term::of(text).unwrap().matches(&run);
        for text in [
            "kernel>=6.12",
            "kernel<6.13",
            "kernel>6.9",
            "verdict=fail",
            "tag=before",
            "tag!=after",
            "bench",
            "plan~qui",
            "started>=2026-11-01",
        ] {
            assert!(matches(text), "{text}");
        }
        for text in ["kernel<6.12", "kernel>=7", "verdict=pass", "tag=after", "host!=bench", "nowhere"] {
            assert!(!matches(text), "{text}");
        }
        assert!(Term::of("colour=red").unwrap_err().to_string().contains("plan, host"));
    }
}
