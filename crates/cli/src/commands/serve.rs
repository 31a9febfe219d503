//! `whylate serve`.

use super::farm::query::AskedLake;
use super::runs::verdicts;
use crate::arguments::ServeArguments;
use crate::exit::Ending;
use crate::output;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::time::Duration;
use whylate_core::plan::SeriesStatistic;
use whylate_core::result::{CompareResult, RunResult, RunSeries, RunSummary};
use whylate_farm::Wait;
use whylate_serve::{Lake, ResultSource, Runs, Settings};
use whylate_store::{Folder, Owners};

/// A shorter token can be guessed.
const TOKEN_LENGTH_MIN: usize = 16;
/// An engine that takes longer is ended, and the page says so.
const ANSWER_MAX: Duration = Duration::from_secs(300);

pub(super) fn execute(arguments: &ServeArguments) -> Result<Ending> {
    let address = arguments.address;
    if !address.ip().is_loopback() && !arguments.behind_proxy {
        bail!(
            "{address} is not a loopback address, and whylate serves pages without encryption: put a proxy with TLS in \
             front, then add --behind-proxy and a token"
        );
    }
    let settings = Settings { address, token: token(arguments.token_file.as_deref())? };
    let lake = arguments.lake.as_deref().map(|lake| AskedLake::open(lake, arguments.engine)).transpose()?;
    let folder = match (&arguments.dir, &lake) {
        (None, Some(_)) => None,
        (dir, _) => Some(super::runs::folder(dir.as_deref())?),
    };
    let shown = folder.iter().map(|folder| folder.display().to_string());
    let shown = shown.chain(lake.iter().map(|asked| asked.lake.url().to_owned())).collect::<Vec<_>>();
    let (is, shown) = (if shown.len() == 1 { "is" } else { "are" }, shown.join(" and "));
    let runs = folder.map(|folder| opened(&folder, arguments.any_owner)).transpose()?;
    let runs = runs.map(|folder| Runs { folder, cache: verdicts(), source: Box::new(Reports) });
    whylate_serve::serve(settings, runs, lake.map(of_lake), |address| {
        output::message(&format!("{shown} {is} shown at http://{address}/ until Ctrl-C"));
    })?;
    Ok(Ending::Pass)
}

/// The folder of runs: only files of this user and of root, or files of any owner.
fn opened(path: &Path, any_owner: bool) -> Result<Folder> {
    let all = Folder::open(path)?;
    if any_owner {
        return Ok(all);
    }
    let own = all.clone().only(Owners::OwnAndRoot);
    let own = own.with_context(|| format!("{}: --any-owner shows runs of other users", path.display()))?;
    let hidden = whylate_store::foreign_runs(&all);
    if hidden > 0 {
        output::message(&format!("not shown: runs of other users ({hidden}); --any-owner shows these runs"));
    }
    Ok(own)
}

fn of_lake(asked: AskedLake) -> Lake {
    let name = asked.lake.url().to_owned();
    let wait = || Wait { limit: Some(ANSWER_MAX), ..Wait::default() };
    let ask = move |sql: &str| asked.answer(sql, wait).map_err(|error| error.to_string());
    Lake { name, ask: Box::new(ask) }
}

/// The token that readers have to show: from the file or the environment.
pub(super) fn token(file: Option<&Path>) -> Result<Option<String>> {
    let text = match file {
        Some(file) => {
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?
        }
        None => std::env::var("WHYLATE_TOKEN").unwrap_or_default(),
    };
    let token = text.trim();
    let is_plain = token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    match token.len() {
        0 if file.is_none() => Ok(None),
        TOKEN_LENGTH_MIN.. if is_plain => Ok(Some(token.to_owned())),
        _ => bail!(
            "a token needs at least {TOKEN_LENGTH_MIN} characters, only letters, digits, `-`, `_` and `.`: `openssl rand -hex 16` makes one"
        ),
    }
}

/// Makes results as `report` and `compare` do.
struct Reports;

impl ResultSource for Reports {
    fn run(&self, run: &Folder) -> Result<RunResult, String> {
        whylate_runner::assemble_in(run).map_err(|error| format!("{:#}", anyhow::Error::new(error)))
    }

    fn compare(&self, sides: &[Vec<Folder>]) -> Result<CompareResult, String> {
        super::compare::of_runs(sides).map_err(|error| format!("{error:#}"))
    }

    fn series(
        &self,
        runs: &[RunSummary],
        open: &dyn Fn(&RunSummary) -> Result<Folder, String>,
        statistic: &str,
        cell: Option<&str>,
    ) -> Result<RunSeries, String> {
        let statistic: SeriesStatistic = statistic.parse()?;
        super::runs::series(runs, open, &statistic, cell).map_err(|error| format!("{error:#}"))
    }
}
