//! The list of runs.

use crate::section::{Block, Cell, Column, Page, Row, Section, Table, Tone};
use whylate_core::result::{RunState, RunSummary, RunsResult, Verdict};

/// The runs of a folder; `all` is how many there are before the search. `address` is where a run is shown by a web server.
pub fn runs(result: &RunsResult, all: usize, address: Option<fn(&RunSummary) -> String>) -> Page {
    let columns = vec![
        Column::text("started"),
        Column::text("plan"),
        Column::text("verdict"),
        Column::text("kernel").importance(4),
        Column::text("host").importance(3),
        Column::text("tags and note").wraps().importance(6),
        Column::text("run"),
    ];
    let name = |run: &RunSummary| {
        run.path.strip_prefix(&*result.folder).unwrap_or(&run.path).trim_start_matches('/').to_owned()
    };
    let link = |run: &RunSummary| address.map(|of| (of(run), name(run)));
    let rows: Vec<Row> =
        result.runs.iter().map(|run| Row { link: link(run), ..row(run, name(run)) }).collect();
    let shown = rows.len();
    let note = match (shown, all) {
        (_, 0) => format!("No runs in {}.", result.folder),
        (shown, all) if shown == all => format!("{all} runs in {}.", result.folder),
        (shown, all) => format!("{shown} of {all} runs in {}.", result.folder),
    };
    let section = Section::new("runs", "").with(Table::new(columns, rows)).with(Block::note(note));
    let title = if address.is_some() { "Runs" } else { "" };
    Page { title: title.to_owned(), sections: vec![section], ..Page::default() }
}

fn row(run: &RunSummary, name: String) -> Row {
    let (verdict, tone) = match (run.verdict, run.state) {
        (Some(Verdict::Fail), _) => ("fail", Tone::Bad),
        (Some(Verdict::Pass), _) => ("pass", Tone::Good),
        (Some(Verdict::Incomplete), _) => ("incomplete", Tone::Warn),
        (Some(Verdict::NoLimit), _) => ("no limit", Tone::Plain),
        (None, RunState::Running) if run.running => ("running", Tone::Plain),
        (None, RunState::Running) => ("no end", Tone::Warn),
        (None, _) => ("-", Tone::Plain),
    };
    let labels = run.tags.iter().map(|tag| format!("#{tag}")).chain(run.note.clone());
    Row::of::<Cell>([
        run.started_at.as_str().into(),
        run.plan.as_str().into(),
        Cell { tone, ..verdict.into() },
        run.kernel.as_str().into(),
        run.host.as_str().into(),
        labels.collect::<Vec<_>>().join(" ").into(),
        name.into(),
    ])
}
