//! Compares two groups of runs over all boards of a lake. Each board is compared only with itself if possible.

use crate::engine::AnswerRows;
use crate::lake::TAG;
use crate::verify::begins;
use std::collections::{BTreeMap, BTreeSet};
use whylate_core::result::{FarmComparison, FarmEffect, RunSearch, RunState, RunSummary, SearchError};
use whylate_stats::meta::{Board, BoardEffect, Meta, conclude, meta, meta_apart};

/// The figure of each complete run, for [`compare_groups`].
pub const FIGURES: &str = "SELECT l.plan AS plan, l.cell AS cell, l.probe AS probe, l.host AS host, r.kernel AS kernel, \
    l.figure_ns AS figure_ns, l.recorded_ns AS recorded_ns, l.kind AS kind, r.started_at AS started_at, r.verdict AS verdict, r.labels AS labels \
    FROM levels AS l JOIN runs AS r ON l.host = r.host AND l.run = r.run \
    ORDER BY plan, cell, probe, host, r.started_s, r.run";

/// A group of runs: those that meet all terms.
#[derive(Clone, Debug)]
pub struct RunGroup {
    /// Prefixes of the kernel's release.
    kernels: Vec<String>,
    search: RunSearch,
}

impl RunGroup {
    /// Terms of `whylate runs` (`kernel>=6.12 host~rack-1`; labels are tags: `tag=soc=rk3588`), or the first numbers
    /// of the kernel's release (`6.12`).
    pub fn of(text: &str) -> Result<Self, SearchError> {
        let is_release = |term: &&str| {
            term.starts_with(|c: char| c.is_ascii_digit()) && !term.contains(['=', '<', '>', '~', '!'])
        };
        let (kernels, terms): (Vec<&str>, Vec<&str>) = text.split_whitespace().partition(is_release);
        let kernels = kernels.into_iter().map(str::to_owned).collect();
        Ok(Self { kernels, search: RunSearch::of(&terms)? })
    }

    fn has(&self, run: &RunSummary) -> bool {
        self.kernels.iter().all(|release| begins(&run.kernel, release)) && self.search.matches(run)
    }
}

/// Compares the 0.999 quantiles of the runs of two groups; `rows` answer [`FIGURES`]. A difference of up to `margin`
/// (a share) does not matter. Runs in both groups are left out. If no board has runs of both, boards of one group are
/// compared with boards of the other.
pub fn compare_groups(
    rows: &AnswerRows,
    first: &RunGroup,
    second: &RunGroup,
    margin: f64,
) -> Vec<FarmComparison> {
    let mut series: BTreeMap<[String; 3], Series> = BTreeMap::new();
    for row in rows.by_name() {
        let Some(figure) = row.number("figure_ns") else { continue };
        let recorded = row.number("recorded_ns").unwrap_or(figure);
        let is_recorded = row.text("kind") == "recorded";
        let run = RunSummary {
            path: String::new(),
            plan: row.text("plan"),
            started_at: row.text("started_at"),
            state: RunState::Complete,
            running: false,
            verdict: row.text("verdict").parse().ok(),
            figures: None,
            host: row.text("host"),
            kernel: row.text("kernel"),
            tags: row
                .words("labels")
                .iter()
                .map(|word| word.strip_prefix(TAG).unwrap_or(word).to_owned())
                .collect(),
            note: None,
        };
        let (is_first, is_second) = (first.has(&run), second.has(&run));
        let of_series = series.entry([run.plan.clone(), row.text("cell"), row.text("probe")]).or_default();
        let board = Board { name: run.host.clone(), ..Board::default() };
        let both = of_series.boards.entry(run.host.clone()).or_insert([board.clone(), board]);
        if is_first == is_second {
            continue;
        }
        of_series.leaves_missed_out |= is_recorded;
        for (board, figure) in both.iter_mut().zip([figure, recorded]) {
            if is_first { &mut board.first } else { &mut board.second }.push(figure);
        }
    }
    let mut found: Vec<([String; 3], Meta, bool)> = series.into_iter().filter_map(of_series).collect();
    conclude(found.iter_mut().map(|(_, meta, _)| meta), margin);
    found.into_iter().map(comparison).collect()
}

/// The kernels of the runs in an answer to [`FIGURES`], each once.
pub fn kernels(rows: &AnswerRows) -> Vec<String> {
    let all: BTreeSet<String> = rows.by_name().map(|row| row.text("kernel")).collect();
    all.into_iter().collect()
}

/// The runs of a cell and probe of a plan.
#[derive(Default)]
struct Series {
    /// Each board with figures that count missed periods where that is known, and with those that never do.
    boards: BTreeMap<String, [Board; 2]>,
    /// Whether a run has only the latter: a change of the kind of figure is no difference between the groups.
    leaves_missed_out: bool,
}

fn of_series((key, series): ([String; 3], Series)) -> Option<([String; 3], Meta, bool)> {
    let kind = usize::from(series.leaves_missed_out);
    let boards: Vec<Board> = series.boards.into_values().map(|both| both[kind].clone()).collect();
    let has_both = |it: &&Board| !it.first.is_empty() && !it.second.is_empty();
    let both: Vec<Board> = boards.iter().filter(has_both).cloned().collect();
    // A board that ran only one of them can be compared only with other boards.
    let found = if both.is_empty() { meta_apart(&boards) } else { meta(&both) };
    Some((key, found?, series.leaves_missed_out))
}

fn comparison(([plan, cell, probe], meta, leaves_missed_out): ([String; 3], Meta, bool)) -> FarmComparison {
    let effect = |it: BoardEffect| FarmEffect {
        host: it.name,
        runs: [it.runs.0, it.runs.1],
        ratio: it.ratio,
        ratio_low: it.interval_95.0,
        ratio_high: it.interval_95.1,
        disagrees: it.disagrees,
    };
    FarmComparison {
        plan,
        cell,
        probe,
        outcome: meta.outcome,
        ratio: meta.ratio,
        ratio_low: meta.interval_95.map(|it| it.0),
        ratio_high: meta.interval_95.map(|it| it.1),
        p_value: meta.p_value,
        heterogeneity: meta.heterogeneity,
        spread: meta.spread,
        too_few_boards: meta.apart.is_none() && meta.boards.len() < FarmComparison::BOARDS_MIN,
        leaves_missed_out,
        boards: meta.boards.into_iter().map(effect).collect(),
        left_out: meta.left_out,
        apart: meta.apart,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::result::Outcome;

    #[test]
    fn boards_are_compared_with_themselves_and_kernels_by_their_releases() {
        let mut rows = Vec::new();
        for (board, level) in [1000.0, 9000.0, 80_000.0, 700_000.0].into_iter().enumerate() {
            for run in 0..5 {
                let noise = 1.0 + 0.002 * f64::from((run * 7 + board as u32 * 3) % 5);
                for (kernel, factor) in [("6.1.9", 1.0), ("6.18.3", 1.2), ("7.2", 9.0)] {
                    let host = format!("board-{board}");
                    rows.push(serde_json::json!([
                        "nightly",
                        "idle",
                        "timer",
                        host,
                        kernel,
                        level * factor * noise
                    ]));
                }
            }
        }
        // A board that ran only one kernel is not among them.
        rows.push(serde_json::json!(["nightly", "idle", "timer", "other", "6.1.9", 5.0]));
        let rows = rows.into_iter().map(|row| row.as_array().unwrap().clone()).collect();
        let columns = ["plan", "cell", "probe", "host", "kernel", "figure_ns"].map(str::to_owned).to_vec();
        let rows = AnswerRows { columns, rows, ..AnswerRows::default() };
        let compare = |first: &str, second: &str| {
            let [first, second] = [first, second].map(|it| RunGroup::of(it).unwrap());
            compare_groups(&rows, &first, &second, 0.05)
        };
        let found = compare("6.1", "6.18");
        assert_eq!(found.len(), 1);
        assert!((found[0].ratio - 1.2).abs() < 0.01 && found[0].outcome == Outcome::Worse, "{found:?}");
        assert_eq!((found[0].boards.len(), found[0].left_out.len()), (4, 0));
        assert!(found[0].too_few_boards, "four boards do not show that one of them differs");
        assert_eq!(compare("6.6", "6.18"), []);
        // The same by terms; runs in both groups count for neither.
        assert_eq!(compare("kernel<6.18", "kernel>=6.18 kernel<7"), found);
        assert_eq!(compare("kernel<7", "kernel>=6.18"), compare("6.1", "7.2"));
        assert_eq!(compare("6.1 host=board-1", "6.18 host~board-1")[0].boards.len(), 1);
        assert!(RunGroup::of("colour=red").is_err());
        // No board is in both groups: their boards are compared.
        let apart = compare("6.1 host!=board-2 host!=board-3", "6.1 host>=board-2");
        assert!(apart[0].apart == Some((2, 2)) && apart[0].boards.is_empty(), "{apart:?}");
        assert!(apart[0].outcome == Outcome::CannotTell && apart[0].ratio > 10.0, "{apart:?}");
    }
}
