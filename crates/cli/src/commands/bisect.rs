//! `whylate bisect`.

use super::runs;
use crate::arguments::BisectArguments;
use crate::exit::{self, Ending};
use crate::output;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
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

/// An error concerns a run that judges: without it no other commit could be judged either. A run that cannot be
/// judged is not an error.
fn judged(arguments: &BisectArguments) -> Result<BisectResult> {
    if !(0.0..0.5).contains(&arguments.error.0) || arguments.error.0 == 0.0 {
        bail!("--error {}: give a probability between 0 and 50 %", arguments.error);
    }
    let read = |words: &[PathBuf]| words.iter().map(|word| Measured::read(word)).collect::<Result<Vec<_>>>();
    let (good, bad) = (read(&arguments.good)?, read(&arguments.bad)?);
    let first = good.first().context("name a good run")?;
    let statistic = match &arguments.statistic {
        Some(statistic) => statistic.clone(),
        None => first.run.plan.primary_statistic().context("the good run has no probe")?,
    };
    require_distinct(&good, &bad)?;
    let group = |judges: &[Measured]| -> Result<Vec<f64>> {
        Ok(judges.iter().map(|judge| judge.values(&statistic)).collect::<Result<Vec<_>>>()?.concat())
    };
    let of_run = Measured::read(&arguments.run).and_then(|run| run.values(&statistic));
    let (run, unread) = of_run.map_or_else(|error| (Vec::new(), Some(error)), |run| (run, None));
    let margin = first.run.plan.margin.0;
    let mut result =
        bisect(&group(&good)?, &group(&bad)?, &run, margin, arguments.error.0).map_err(anyhow::Error::msg)?;
    if let Some(error) = unread {
        result.sentence = format!("cannot tell: {error:#}");
    }
    Ok(BisectResult { format: BISECT_FORMAT.to_owned(), statistic: Some(statistic), ..result })
}

/// Requires distinct cells: each cell of each run judges only once.
fn require_distinct(good: &[Measured], bad: &[Measured]) -> Result<()> {
    let judges = || good.iter().chain(bad);
    judges().try_for_each(|judge| {
        let of_cell = judges().filter(|other| other.cell == judge.cell);
        runs::require_distinct(of_cell.map(|it| (it.word.as_path(), &it.run)))
    })
}

/// A cell of a run, as named by the user.
struct Measured {
    word: PathBuf,
    run: RunResult,
    cell: String,
}

impl Measured {
    fn read(word: &Path) -> Result<Self> {
        let (path, cell) = runs::with_cell(word)?;
        let run = whylate_runner::assemble(&path)?;
        let cell = match (cell, run.cells.as_slice()) {
            (Some(cell), _) => cell,
            (None, [only]) => only.name.clone(),
            (None, cells) => {
                let names: Vec<&str> = cells.iter().map(|cell| cell.name.as_str()).collect();
                bail!("{}: there are several cells; name one: RUN:{}", path.display(), names.join(", RUN:"));
            }
        };
        runs::require_cell(&path, &run, &cell)?;
        Ok(Self { word: word.to_owned(), run, cell })
    }

    /// The statistic of each complete repeat.
    fn values(&self, statistic: &SeriesStatistic) -> Result<Vec<f64>> {
        let SeriesStatistic { series, statistic: which } = statistic.clone();
        let goal = FixGoal { series: Some(series), statistic: which, below: None };
        let of_cell = |cell: &CellResult| -> Vec<f64> {
            let complete = cell.repeats.iter().filter(|repeat| repeat.error.is_none());
            complete.filter_map(|it| Some(figure_of(cell, it.repeat, &goal)?.value)).collect()
        };
        let own = self.run.cells.iter().filter(|cell| cell.name == self.cell);
        let values: Vec<f64> = own.flat_map(of_cell).collect();
        if values.is_empty() {
            bail!("{}: no complete repeat has {statistic}", self.word.display());
        }
        Ok(values)
    }
}
