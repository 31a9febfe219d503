//! The table of copies: a part with a picture for each pair of memory types, the frame budget, and the memory itself.

use crate::charts::Chart;
use crate::section::{Block, Cell, Column, Depth, Item, Row, Section, Table, Text, Tone};
use serde_json::json;
use whylate_core::MemoryMode;
use whylate_core::figure::{bytes, count, nanoseconds_f64, rate, share};
use whylate_core::order::InOrder;
use whylate_core::result::{BackendFacts, CopyRow, CopyTable, MemoryFacts, RunResult};

/// Rows of one pair of memory types from one place.
type Pair<'c> = (String, Vec<&'c CopyRow>);

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    // Its warnings are among those of the run.
    let without_warnings = |table: &CopyTable| CopyTable { warnings: Vec::new(), ..table.clone() };
    run.copies.as_ref().map(without_warnings).map_or_else(Vec::new, |table| of_table(&table))
}

pub(super) fn of_table(copy: &CopyTable) -> Vec<Section> {
    let pairs = pairs(&copy.rows);
    let meaning =
        "bytes copied per second for each block size (a block is copied repeatedly); median of the trials";
    let table = Section::new("copies", "Copies").meaning(meaning).with_all(pairs.iter().map(part));
    let memory = Section::new("memory", "Memory")
        .meaning("memory type as requested, as mapped in the page table, and as timing shows it (effective)")
        .with(memory(&copy.memory));
    let backends = Section::new("backends", "How to get memory of each type");
    let backends = match copy.rows.is_empty() {
        true => backends.with(offers(&copy.backends)),
        false => backends.depth(Depth::Detail).with(offers(&copy.backends)),
    };
    let warnings = Section::new("warnings", "Warnings").with(Block::Warnings(copy.warnings.clone()));
    [table, budget(copy), memory, backends, warnings].into_iter().flat_map(Section::unless_empty).collect()
}

/// Groups rows that differ only in their method.
fn pairs(rows: &[CopyRow]) -> Vec<Pair<'_>> {
    let same = |one: &CopyRow, next: &CopyRow| {
        (one.from, one.to, &one.backend, &one.device) == (next.from, next.to, &next.backend, &next.device)
    };
    rows.chunk_by(same).map(|rows| (title(&rows[0]), rows.iter().collect())).collect()
}

/// `wc to wb, dumb /dev/dri/card0`; if timing shows another type than the requested one, that type comes first.
fn title(row: &CopyRow) -> String {
    let side = |mode: MemoryMode| match row.is_proven() || mode == MemoryMode::WriteBack {
        true => mode.to_string(),
        false => format!("{} (requested: {mode})", row.effective.map_or("unknown", MemoryMode::name)),
    };
    let place = row.device.iter().map(|device| format!(", {} {device}", row.backend)).collect::<String>();
    format!("{} to {}{place}", side(row.from), side(row.to))
}

fn part((title, rows): &Pair<'_>) -> Section {
    let sizes = sizes(rows);
    let mut columns = vec![
        Column::text("method"),
        Column::number("plateau"),
        Column::number("from"),
        Column::number("knee"),
    ];
    // If there is no room for all sizes, every second one is left out first.
    let size = |(index, size): (usize, &u64)| Column::number(bytes(*size)).importance(5 - (index % 2) as u8);
    columns.extend(sizes.iter().enumerate().map(size));
    let row = |row: &&CopyRow| {
        let mut cells = vec![
            Cell::from(row.method.name()),
            Cell::from(row.plateau.map(|plateau| rate(plateau.bytes_per_s, "bytes_per_s"))),
            Cell::from(row.plateau.map(|plateau| bytes(plateau.from_bytes))),
            Cell::from(row.plateau.and_then(|plateau| plateau.knee_bytes).map(bytes)),
        ];
        cells.extend(sizes.iter().map(|size| {
            let block = row.blocks.iter().find(|block| block.bytes == *size);
            Cell::from(block.map(|block| rate(block.bytes_per_s, "bytes_per_s")))
        }));
        Row::of(cells)
    };
    let table = Table { folds: true, ..Table::new(columns, rows.iter().map(row).collect()) };
    let spread = rows
        .iter()
        .flat_map(|row| &row.blocks)
        .map(|block| (block.high_bytes_per_s - block.low_bytes_per_s) / block.bytes_per_s);
    let mut spread: Vec<f64> = spread.collect();
    spread.order_by(f64::total_cmp);
    let middle = spread.get(spread.len() / 2).copied().unwrap_or(0.0);
    let note = format!(
        "`plateau` is the highest rate; `from` and `knee` are the smallest and the largest block with at \
         least 90 % of this rate. Between trials, a typical rate varies by {} (interquartile range \
         divided by the rate).",
        share(middle)
    );
    Section::new("", title.clone()).with(table).with(Block::note(note)).with(vec![chart(title, rows, &sizes)])
}

fn sizes(rows: &[&CopyRow]) -> Vec<u64> {
    let mut sizes: Vec<u64> = rows.iter().flat_map(|row| &row.blocks).map(|block| block.bytes).collect();
    sizes.order();
    sizes.dedup();
    sizes
}

fn chart(title: &str, rows: &[&CopyRow], sizes: &[u64]) -> Chart {
    let series = rows.iter().enumerate().map(|(index, row)| {
        let values = sizes.iter().map(|size| {
            row.blocks.iter().find(|block| block.bytes == *size).map(|block| block.bytes_per_s.round())
        });
        json!({ "cell": index, "name": row.method.name(), "values": values.collect::<Vec<_>>() })
    });
    Chart {
        caption: format!("Copies, {title}"),
        hint: "both axes logarithmic".to_owned(),
        label: format!("Rate by block size, {title}, one line per method"),
        is_wide: true,
        data: json!({ "kind": "copy", "x": sizes, "series": series.collect::<Vec<_>>(), "span_s": 0 }),
    }
}

/// The cost of a frame, cheapest first for each pair.
fn budget(copy: &CopyTable) -> Section {
    let Some(frame) = copy.frame else { return Section::default() };
    let columns = vec![
        Column::text("copy"),
        Column::text("method"),
        Column::number("frames/s"),
        Column::number("share of frame time"),
        Column::number("paced frames/s"),
        Column::number("CPU share, measured"),
    ];
    let row = |title: &str, row: &CopyRow| {
        let cost = row.frame?;
        let fits = cost.frame_time_share <= 1.0;
        let mut cells = Row::of([
            title.to_owned(),
            row.method.to_string(),
            count(cost.frames_per_s.round() as u64),
            share(cost.frame_time_share),
            format!("{:.1}", cost.paced_frames_per_s),
            share(cost.cpu_share),
        ]);
        if !fits {
            cells.tone = Tone::Bad;
        }
        Some((cost.frame_time_share, cells))
    };
    let mut rows = Vec::new();
    for (title, of_pair) in pairs(&copy.rows) {
        let mut found: Vec<_> = of_pair.iter().filter_map(|one| row(&title, one)).collect();
        found.order_by(|one, next| one.0.total_cmp(&next.0));
        rows.extend(found.into_iter().map(|(_, row)| row));
    }
    let text =
        format!("{frame}: {} bytes every {}", count(frame.bytes), nanoseconds_f64(1e9 / frame.frames_per_s));
    Section::new("budget", "Frame budget").with(Table::new(columns, rows)).with(Block::note(text))
}

fn memory(all: &[MemoryFacts]) -> Table {
    let columns = vec![
        Column::text("backend"),
        Column::text("device"),
        Column::text("requested"),
        Column::text("mapped"),
        Column::text("effective"),
        Column::number("re-read"),
        Column::number("store, load"),
        Column::number("store"),
        Column::number("streaming gain"),
    ];
    let with_ordinary = |own: f64, ordinary: f64| format!("{own:.1} ns ({ordinary:.1})");
    let row = |one: &MemoryFacts| {
        let word = |mode: Option<MemoryMode>| Cell::from(mode.map_or("unknown", MemoryMode::name));
        let mut row = Row::of([
            Cell::from(one.backend.clone()),
            Cell::from(one.device.clone()),
            Cell::from(one.requested.name()),
            word(one.mapped),
            word(one.effective),
            Cell::from(with_ordinary(one.reread_ns, one.reread_ordinary_ns)),
            Cell::from(with_ordinary(one.store_load_ns, one.store_load_ordinary_ns)),
            Cell::from(with_ordinary(one.store_ns, one.store_ordinary_ns)),
            Cell::from(one.streaming_gain.map(|gain| format!("{gain:.1}"))),
        ]);
        if !one.is_proven() {
            row.tone = Tone::Warn;
        }
        row
    };
    let mut table = Table::new(columns, all.iter().map(row).collect());
    for column in &mut table.columns[5..8] {
        column.note = "in brackets: the figure of ordinary memory";
    }
    table
}

fn offers(backends: &[BackendFacts]) -> Vec<Item> {
    let item = |one: &BackendFacts| {
        let mut modes: Vec<&str> = one.offers.iter().map(|offer| offer.mode.name()).collect();
        modes.dedup();
        let mut places: Vec<String> = one.offers.iter().filter_map(|offer| offer.device.clone()).collect();
        places.dedup();
        if one.offers.iter().any(|offer| offer.only_when_named) {
            places.push(format!("used only with --backend {}", one.name));
        }
        let types = if modes.is_empty() { String::new() } else { format!(" ({})", modes.join(", ")) };
        let text = Text::code(one.name.clone()).and_plain(format!("{types}: {}", one.meaning));
        let (tone, symbol) = if one.reason.is_some() { (Tone::Soft, "-") } else { (Tone::Good, "✓") };
        let below = match &one.reason {
            Some(reason) => vec![("not here", reason.clone())],
            None if places.is_empty() => Vec::new(),
            None => vec![("where", places.join(", "))],
        };
        Item { tone, symbol, text, below, ..Item::default() }
    };
    backends.iter().map(item).collect()
}
