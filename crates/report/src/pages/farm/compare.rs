//! Two groups of runs over all boards: the verdict, and the boards that disagree.

use super::{FarmAnswer, shortened};
use crate::pictures::{Forest, ForestRow};
use crate::reading::{Reading, times};
use crate::section::{Block, Cell, Column, Depth, Page, Row, Section, Table, Tone, Verdict};
use crate::words::counted;
use whylate_core::figure::{probability, share};
use whylate_core::order::InOrder;
use whylate_core::result::{FarmComparison, FarmEffect, Outcome};

#[derive(Clone, Copy, Debug)]
pub struct FarmGroups<'a> {
    /// The first group, as requested.
    pub first: &'a str,
    /// The second one.
    pub second: &'a str,
    /// A difference of up to this share does not matter.
    pub margin: f64,
}

/// What can be compared, before two groups are chosen: the kernels that boards ran.
pub fn farm_groups(kernels: &[String], answer: &FarmAnswer) -> Page {
    let select = "Each group is either the beginning of a kernel release (`6.12`) or a list of conditions. Examples of \
        conditions: `kernel>=6.12`, `started<2026-10`, `plan=nightly`, `host~rack-1`, `verdict!=fail`. The condition \
        `tag=soc=n100` selects boards whose label `soc` in the farm file is `n100`.";
    let compared = "A board needs three runs of each group; whylate then compares the board with itself. If no board has \
        runs of both groups, whylate compares boards of one group with boards of the other group. This evidence is \
        much weaker. A run that is in both groups does not count.";
    let known: Vec<String> = kernels.iter().map(|kernel| format!("`{}`", shortened(kernel))).collect();
    let section = Section::new("groups", "Two groups of runs")
        .with(Block::Text(select.into(), Tone::Plain))
        .with(Block::Text(compared.into(), Tone::Plain));
    let kernels =
        (!known.is_empty()).then(|| Block::note(format!("Kernels of stored runs: {}.", known.join(", "))));
    Page { sections: vec![section.with_all(kernels)], ..answer.page("Compare") }
}

/// The second group over the first one.
pub fn farm_compare(found: &[FarmComparison], groups: FarmGroups<'_>, answer: &FarmAnswer) -> Page {
    let mut page = answer.page(format!("{} against {}", groups.second, groups.first));
    page.verdict = Some(verdict(found));
    if found.is_empty() {
        return page;
    }
    let forest = Forest { rows: found.iter().filter_map(comparison_row).collect(), margin: groups.margin };
    let about = format!(
        "Ratios divide p99.9 of the runs of `{}` by p99.9 of the runs of `{}`. If any board has runs of both \
         groups, boards are compared with themselves. Each board counts once, however many runs it has. \
         Differences of up to {} do not matter.",
        groups.second,
        groups.first,
        share(groups.margin)
    );
    let heterogeneity = "Heterogeneity is the share of the differences between the boards' ratios that the \
        spread of their runs does not explain. If heterogeneity is large, the boards react differently, and \
        the ratio describes no single board.";
    let section =
        Section::new("contrasts", "Verdicts").with(Block::note(about)).with(forest).with(table(found));
    let left_out = found.iter().any(|it| it.leaves_missed_out).then(|| {
        Block::note(format!(
            "p99.9 leaves out missed periods in these comparisons: {}. An earlier version of whylate stored \
             some of the runs without counting missed periods.",
            found.iter().filter(|it| it.leaves_missed_out).map(name).collect::<Vec<_>>().join(", ")
        ))
    });
    page.sections.push(section.with(Block::note(heterogeneity)).with_all(left_out));
    page.sections.extend(found.iter().flat_map(|it| boards(it, groups.margin)));
    page
}

fn verdict(found: &[FarmComparison]) -> Verdict {
    let worst = [Outcome::Worse, Outcome::CannotTell, Outcome::Better, Outcome::Equivalent];
    let worst = worst.into_iter().find_map(|outcome| found.iter().find(|it| it.outcome == outcome));
    let Some(worst) = worst else {
        let reason =
            "too few complete runs: either one board needs three runs of each group, or each group needs two boards \
             with three runs"
                .to_owned();
        return Verdict { word: "NOTHING TO COMPARE", reason, tone: Tone::Warn };
    };
    let (word, tone) = match worst.outcome {
        Outcome::Worse => ("REGRESSION", Tone::Bad),
        Outcome::CannotTell => ("CANNOT TELL", Tone::Plain),
        Outcome::Better => ("BETTER", Tone::Good),
        Outcome::Equivalent => ("EQUIVALENT", Tone::Good),
    };
    let reason = format!("{}: {} × {}, {}", name(worst), times(worst.ratio), interval(worst), number(worst));
    Verdict { word, reason, tone }
}

fn name(found: &FarmComparison) -> String {
    [&found.plan, &found.cell, &found.probe].map(|part| shortened(part)).join(" ")
}

/// `40 boards`; `12 and 9 boards` if boards of one group are compared with boards of the other.
fn number(found: &FarmComparison) -> String {
    match found.apart {
        Some((first, second)) => format!("{first} and {second} boards"),
        None => counted(found.boards.len(), "board"),
    }
}

fn interval(found: &FarmComparison) -> String {
    let ends = found.ratio_low.zip(found.ratio_high);
    ends.map_or_else(
        || "(no interval)".to_owned(),
        |(low, high)| format!("({} to {})", times(low), times(high)),
    )
}

fn comparison_row(found: &FarmComparison) -> Option<ForestRow> {
    Some(ForestRow {
        label: name(found),
        reading: Reading::of(found.outcome),
        ratio: Some(found.ratio).filter(|ratio| ratio.is_finite() && *ratio > 0.0)?,
        interval: found.ratio_low.zip(found.ratio_high).map(|(low, high)| (Some(low), Some(high))),
    })
}

fn table(found: &[FarmComparison]) -> Table {
    let columns = vec![
        Column::text("plan, cell, probe"),
        Column::text("ratio (95 %)"),
        Column::text("verdict"),
        Column::number("p").importance(2),
        Column::text("boards"),
        Column::number("disagree"),
        Column::number("heterogeneity").importance(3),
        Column::number("boards differ by").importance(2),
    ];
    let row = |it: &FarmComparison| {
        let reading = Reading::of(it.outcome);
        // All of this is unknown for boards that are not compared with themselves.
        let within = |text: String| it.apart.is_none().then_some(text);
        let disagree = it.boards.iter().filter(|board| board.disagrees).count();
        Row::of::<Cell>([
            name(it).into(),
            format!("{} × {}", times(it.ratio), interval(it)).into(),
            Cell { tone: reading.tone, ..format!("{} {}", reading.sign, reading.word).into() },
            probability(it.p_value).into(),
            number(it).into(),
            within(if it.too_few_boards && disagree == 0 {
                "too few boards".to_owned()
            } else {
                disagree.to_string()
            })
            .into(),
            within(share(it.heterogeneity)).into(),
            within(format!("{} ×", times(it.spread))).into(),
        ])
    };
    Table::new(columns, found.iter().map(row).collect())
}

/// Each board's own ratio, boards that disagree first.
fn boards(found: &FarmComparison, margin: f64) -> Option<Section> {
    if found.apart.is_some() {
        return None;
    }
    let mut boards: Vec<&FarmEffect> = found.boards.iter().collect();
    boards.order_by(|a, b| b.disagrees.cmp(&a.disagrees).then(b.ratio.total_cmp(&a.ratio)));
    let row = |board: &&FarmEffect| {
        Some(ForestRow {
            label: format!("{} ({} and {} runs)", shortened(&board.host), board.runs[0], board.runs[1]),
            reading: Reading::of_board(board.disagrees),
            ratio: Some(board.ratio).filter(|ratio| ratio.is_finite() && *ratio > 0.0)?,
            interval: Some((Some(board.ratio_low), Some(board.ratio_high))),
        })
    };
    let forest = Forest { rows: boards.iter().filter_map(row).collect(), margin };
    let left_out = (!found.left_out.is_empty()).then(|| {
        let names: Vec<String> = found.left_out.iter().map(|name| shortened(name)).collect();
        Block::note(format!(
            "Boards with fewer than three runs of a group are left out: {}.",
            names.join(", ")
        ))
    });
    let disagree = boards.iter().filter(|board| board.disagrees).count();
    let line = match disagree {
        0 if found.too_few_boards => format!(
            "{} cannot show whether one board differs from the others: at least {} boards are \
             needed. Compare the ratios of the boards below.",
            counted(boards.len(), "board"),
            FarmComparison::BOARDS_MIN
        ),
        0 => "No board disagrees with the other boards.".to_owned(),
        count => format!(
            "{} with the other boards.",
            if count == 1 { "1 board disagrees".to_owned() } else { format!("{count} boards disagree") }
        ),
    };
    // A few ratios are read as they are.
    let depth = if found.too_few_boards { Depth::Main } else { Depth::Folded };
    let figures = Section::new("", "The ratio of each board")
        .depth(depth)
        .with(of_boards(&boards, found.too_few_boards));
    let section = Section::new("", format!("Boards: {}", name(found)));
    section.with(Block::note(line)).with(forest).with(figures).with_all(left_out).unless_empty().pop()
}

fn of_boards(boards: &[&FarmEffect], too_few: bool) -> Table {
    let columns = vec![
        Column::text("board"),
        Column::number("runs before"),
        Column::number("runs now"),
        Column::text("ratio (95 %)"),
        Column::text("disagrees"),
    ];
    let row = |board: &&FarmEffect| {
        let reading = Reading::of_board(board.disagrees);
        let ends = [board.ratio, board.ratio_low, board.ratio_high].map(times);
        let disagrees = match (board.disagrees, too_few) {
            (true, _) => "yes",
            (false, true) => "too few boards to tell",
            (false, false) => "no",
        };
        Row::of::<Cell>([
            shortened(&board.host).into(),
            board.runs[0].to_string().into(),
            board.runs[1].to_string().into(),
            format!("{} × ({} to {})", ends[0], ends[1], ends[2]).into(),
            Cell { tone: reading.tone, ..disagrees.into() },
        ])
    };
    Table::new(columns, boards.iter().map(row).collect())
}
