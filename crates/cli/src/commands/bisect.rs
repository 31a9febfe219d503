//! `whylate bisect`.

use super::runs;
use crate::arguments::BisectArguments;
use crate::exit::{self, Ending};
use crate::output;
use anyhow::{Context, Result, bail};
use std::path::Path;
use whylate_core::plan::SeriesStatistic;
use whylate_core::result::{BISECT_FORMAT, BisectOutcome, BisectResult, CellResult, FixGoal, RunResult};
use whylate_stats::bisect::bisect;
use whylate_stats::search::figure_of;

pub(super) fn execute(arguments: &BisectArguments) -> Result<Ending> {
    let judged = judged(arguments).unwrap_or_else(|error| {
        output::message(&format!("whylate: {error:#}"));
        exit::at_once(exit::STOPS_BISECTION)
    });
    if arguments.json {
        output::print_json(&judged)?;
    } else {
        output::print(&judged.sentence)?;
    }
    Ok(match judged.outcome {
        BisectOutcome::Good => Ending::Pass,
        BisectOutcome::Bad => Ending::Incomplete,
        BisectOutcome::CannotTell => Ending::CannotTell,
    })
}

/// An error is one of the runs that judge: no other commit could be judged either. A run that cannot be judged is no error.
fn judged(arguments: &BisectArguments) -> Result<BisectResult> {
    if !(0.0..0.5).contains(&arguments.error.0) || arguments.error.0 == 0.0 {
        bail!("--error {}: give a probability between 0 and 50 %", arguments.error);
    }
    let (first, _) = read(arguments.good.first().context("name a good run")?)?;
    let statistic = match &arguments.statistic {
        Some(statistic) => statistic.clone(),
        None => first.plan.primary_statistic().context("the good run has no probe")?,
    };
    require_distinct(arguments)?;
    let group = |runs: &[std::path::PathBuf]| -> Result<Vec<f64>> {
        let values = runs.iter().map(|run| values(run, &statistic)).collect::<Result<Vec<_>>>()?;
        Ok(values.concat())
    };
    let (good, bad) = (group(&arguments.good)?, group(&arguments.bad)?);
    let margin = first.plan.margin.0;
    let of_run = values(&arguments.run, &statistic);
    let (run, unread) = of_run.map_or_else(|error| (Vec::new(), Some(error)), |run| (run, None));
    let mut result = bisect(&good, &bad, &run, margin, arguments.error.0).map_err(anyhow::Error::msg)?;
    if let Some(error) = unread {
        result.sentence = format!("cannot tell: {error:#}");
    }
    Ok(BisectResult { format: BISECT_FORMAT.to_owned(), statistic: Some(statistic), ..result })
}

/// Each cell of each run judges once.
fn require_distinct(arguments: &BisectArguments) -> Result<()> {
    let words = arguments.good.iter().chain(&arguments.bad);
    let judges = words.map(|word| Ok((word, read(word)?))).collect::<Result<Vec<_>>>()?;
    judges.iter().try_for_each(|(_, (_, cell))| {
        let of_cell = judges.iter().filter(|(_, (_, own))| own == cell);
        runs::require_distinct(of_cell.map(|(word, (run, _))| (word.as_path(), run)))
    })
}

fn read(word: &Path) -> Result<(RunResult, String)> {
    let (path, cell) = runs::with_cell(word)?;
    let run = whylate_runner::assemble(&path)?;
    let cell = match (cell, run.cells.as_slice()) {
        (Some(cell), _) => cell,
        (None, [only]) => only.name.clone(),
        (None, cells) => {
            let names: Vec<&str> = cells.iter().map(|cell| cell.name.as_str()).collect();
            bail!("{}: it has several cells; name one: RUN:{}", path.display(), names.join(", RUN:"));
        }
    };
    runs::require_cell(&path, &run, &cell)?;
    Ok((run, cell))
}

/// That of each complete repeat.
fn values(word: &Path, statistic: &SeriesStatistic) -> Result<Vec<f64>> {
    let (run, name) = read(word)?;
    let SeriesStatistic { series, statistic: which } = statistic.clone();
    let goal = FixGoal { series: Some(series), statistic: which, below: None };
    let of_cell = |cell: &CellResult| -> Vec<f64> {
        let complete = cell.repeats.iter().filter(|repeat| repeat.error.is_none());
        complete.filter_map(|it| Some(figure_of(cell, it.repeat, &goal)?.value)).collect()
    };
    let values: Vec<f64> = run.cells.iter().filter(|cell| cell.name == name).flat_map(of_cell).collect();
    if values.is_empty() {
        bail!("{}: no complete repeat has {statistic}", word.display());
    }
    Ok(values)
}
