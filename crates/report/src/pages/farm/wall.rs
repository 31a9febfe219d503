//! The wall: a card for each board; boards that need attention come first.

use super::{FarmAnswer, LEFT_OUT, about, age, sentence, shortened, state};
use crate::pictures::{Card, Cards, Strip};
use crate::section::{Block, Page, Section};
use crate::words::counted;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use whylate_core::figure::nanoseconds;
use whylate_core::order::InOrder;
use whylate_core::result::{FarmBoard, FarmRun, FarmSeries, Verdict};

/// The boards of a lake; `all` is their number before the search. Boards without an alarm are grouped by the label
/// `by`, if it is not empty. `address` gives the address of a board.
pub fn wall(
    boards: &[FarmBoard],
    all: usize,
    by: &str,
    answer: &FarmAnswer,
    address: fn(&str) -> String,
) -> Page {
    let mut boards: Vec<&FarmBoard> = boards.iter().collect();
    boards.order_by_key(|board| Reverse((alarms(board), is_failed(board))));
    let (bad, others): (Vec<&FarmBoard>, Vec<&FarmBoard>) =
        boards.iter().partition(|board| board.needs_attention());
    let range = range(&boards);
    let cards = |boards: &[&FarmBoard]| {
        let cards = boards.iter().map(|board| card(board, answer.now_s, address(&board.host)));
        Cards { cards: cards.collect(), range }
    };
    let attention = match bad.len() {
        1 => "1 board needs attention".to_owned(),
        count => format!("{count} boards need attention"),
    };
    let mut sections = Vec::from_iter((!bad.is_empty()).then_some((attention, bad)));
    let mut groups: BTreeMap<String, Vec<&FarmBoard>> = BTreeMap::new();
    others.into_iter().for_each(|board| groups.entry(group(board, by)).or_default().push(board));
    sections.extend(groups.into_iter().map(|(name, boards)| {
        let count = format!("{} without an alarm", counted(boards.len(), "board"));
        (if name.is_empty() { count } else { format!("{name}: {count}") }, boards)
    }));
    let mut page = answer.page("Boards");
    page.about.insert(
        0,
        vec![match boards.len() == all {
            true => counted(all, "board"),
            false => format!("{} of {}", boards.len(), counted(all, "board")),
        }],
    );
    page.sections =
        sections.iter().map(|(title, boards)| Section::new("", title.as_str()).with(cards(boards))).collect();
    if boards.is_empty() {
        let note = if all == 0 { "No runs are stored yet." } else { "No board matches the search." };
        page.sections.push(Section::new("boards", "").with(Block::note(note)));
    }
    page
}

/// The label of a board with that key.
fn group(board: &FarmBoard, by: &str) -> String {
    let labels = newest(board).map_or(&[][..], |run| &run.labels);
    let own = labels.iter().find(|it| it.split_once('=').is_some_and(|(key, _)| key == by));
    match own {
        Some(label) => shortened(label),
        None if by.is_empty() => String::new(),
        None => format!("no {}", shortened(by)),
    }
}

fn alarms(board: &FarmBoard) -> usize {
    board.series.iter().map(|series| series.alarms.len()).sum()
}

fn is_failed(board: &FarmBoard) -> bool {
    board.series.iter().filter_map(|series| series.runs.last()).any(|run| run.verdict == Some(Verdict::Fail))
}

fn newest(board: &FarmBoard) -> Option<&FarmRun> {
    board.series.iter().filter_map(|series| series.runs.last()).max_by_key(|run| run.started_s)
}

/// The smallest and the largest figure of all boards, in ns: their charts have one scale.
fn range(boards: &[&FarmBoard]) -> (f64, f64) {
    let runs = boards.iter().flat_map(|board| &board.series).flat_map(|series| &series.runs);
    let figures = runs.flat_map(|run| run.quantiles_ns.into_iter().chain([run.max_ns]).flatten());
    let ends = figures
        .filter(|ns| *ns > 0)
        .fold((f64::MAX, 0.0f64), |(low, high), ns| (low.min(ns as f64), high.max(ns as f64)));
    if ends.0 < ends.1 { ends } else { (ends.1.max(1.0) / 2.0, ends.1.max(1.0) * 2.0) }
}

fn card(board: &FarmBoard, now_s: u64, address: String) -> Card {
    let run = newest(board);
    let (sign, word, tone) = state(run.and_then(|run| run.verdict));
    let all_alarms = board.series.iter().flat_map(|series| &series.alarms);
    let alarms: Vec<String> = all_alarms.map(sentence).collect();
    Card {
        address,
        name: board.host.clone(),
        sign,
        state: word,
        tone,
        is_alarming: board.needs_attention(),
        when: run.map(|run| age(run, now_s)).unwrap_or_default(),
        moment: run.map(|run| run.started_at.clone()).unwrap_or_default(),
        about: run.map(about).unwrap_or_default().join(" · "),
        alarms,
        strips: board.series.iter().map(strip).collect(),
    }
}

fn strip(series: &FarmSeries) -> Strip {
    let [p50, p99, p999, _] =
        [0, 1, 2, 3].map(|index| series.runs.iter().map(|run| run.quantiles_ns[index]).collect::<Vec<_>>());
    let largest: Vec<Option<u64>> = series.runs.iter().map(|run| run.max_ns).collect();
    let name = [&series.plan, &series.cell, &series.probe].map(|part| shortened(part));
    let [plan, cell, probe] = &name;
    let last = |values: &[Option<u64>]| values.last().copied().flatten();
    let figures = [("p50", &p50), ("p99", &p99), ("p99.9", &p999), ("max", &largest)];
    let figures = figures
        .into_iter()
        .filter_map(|(name, values)| Some(format!("{name} {}", nanoseconds(last(values)?))));
    let mut figures = figures.collect::<Vec<_>>().join(", ");
    if series.leaves_missed_out && !figures.is_empty() {
        figures += &format!(" ({LEFT_OUT})");
    }
    let runs = counted(series.runs.len(), "run");
    let tails = p999.iter().flatten();
    let course =
        tails.clone().min().zip(tails.max()).map(|(low, high)| {
            format!("; p99.9 from {} to {} in {runs}", nanoseconds(*low), nanoseconds(*high))
        });
    let caption = if cell.is_empty() { plan.clone() } else { format!("{plan}: {cell} {probe}") };
    let without_limit = series.without_limit().map(|text| format!("; {text}")).unwrap_or_default();
    Strip {
        caption: format!("{caption}{without_limit}"),
        label: format!("{plan} {cell} {probe}: {figures}{}", course.unwrap_or_default()),
        figures,
        lines: [p50, p99, p999, largest],
        limit_ns: series.runs.last().and_then(|run| run.limit_ns),
        failed: series.runs.iter().map(|run| run.verdict == Some(Verdict::Fail)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boards_without_an_alarm_are_in_groups_by_a_label() {
        let board = |host: &str, labels: &[&str], verdict| {
            let labels = labels.iter().map(|it| (*it).to_owned()).collect();
            let run = FarmRun { labels, verdict: Some(verdict), ..FarmRun::default() };
            let series = vec![FarmSeries { runs: vec![run], ..FarmSeries::default() }];
            FarmBoard { host: host.to_owned(), series }
        };
        let boards = [
            board("a", &["rack=2", "soc=n100"], Verdict::Pass),
            board("b", &["rack=1"], Verdict::Pass),
            board("c", &["rack=2"], Verdict::Fail),
            board("d", &["racks=7"], Verdict::Pass),
        ];
        let titles = |by: &str| -> Vec<String> {
            let page = wall(&boards, 4, by, &FarmAnswer::default(), |_| String::new());
            page.sections.into_iter().map(|section| section.title).collect()
        };
        assert_eq!(titles(""), ["1 board needs attention", "3 boards without an alarm"]);
        let one = "1 board without an alarm";
        let groups = ["no rack", "rack=1", "rack=2"].map(|group| format!("{group}: {one}"));
        assert_eq!(titles("rack")[1..], groups);
    }

    #[test]
    fn a_card_says_what_its_figures_leave_out_and_that_no_limit_is_learnt() {
        let run = FarmRun { quantiles_ns: [Some(5); 4], ..FarmRun::default() };
        let mut series = FarmSeries {
            plan: "nightly".to_owned(),
            cell: "idle".to_owned(),
            probe: "timer".to_owned(),
            runs: vec![run],
            leaves_missed_out: true,
            teaching_runs: Some(9),
            ..FarmSeries::default()
        };
        let old = strip(&series);
        assert!(old.figures.ends_with(&format!("({LEFT_OUT})")), "{}", old.figures);
        assert_eq!(old.caption, "nightly: idle timer; no learnt limit yet: 9 of 14 needed runs");
        (series.leaves_missed_out, series.teaching_runs) = (false, Some(14));
        let new = strip(&series);
        assert!(!new.figures.contains(LEFT_OUT), "{}", new.figures);
        assert_eq!(new.caption, "nightly: idle timer");
    }
}
