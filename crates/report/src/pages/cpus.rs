//! The CPU table, and below it what remains on the shielded CPUs.

use crate::section::{ALWAYS, Block, Cell, Page, Row, Section, Table, Tone};
use crate::sections::warnings;
use whylate_core::figure;
use whylate_core::result::{CpuRow, CpuTable, CpuTableAt, IdleLimit, L3Domain, Shielding, ThreadKind};

/// Lists of names are cut after this number, with the number of the others, unless all are requested.
const NAMES_MAX: usize = 24;

struct Column {
    title: &'static str,
    importance: u8,
    is_text: bool,
    value: fn(&CpuRow, &CpuTable) -> Option<String>,
}

const fn column(
    title: &'static str,
    importance: u8,
    is_text: bool,
    value: fn(&CpuRow, &CpuTable) -> Option<String>,
) -> Column {
    Column { title, importance, is_text, value }
}

static COLUMNS: [Column; 19] = [
    column("cpu", ALWAYS, false, |row, _| Some(row.cpu.to_string())),
    column("chip", ALWAYS, false, |row, _| row.chip.map(|id| id.to_string())),
    column("core", ALWAYS, false, |row, _| row.core.map(|id| id.to_string())),
    column("ht", ALWAYS, false, |row, _| row.hardware_thread.map(|number| number.to_string())),
    column("ht-siblings", ALWAYS, true, |row, _| {
        Some(row.siblings.to_string()).filter(|list| !list.is_empty())
    }),
    column("state", ALWAYS, true, |row, _| Some(if row.online { "up" } else { "down" }.to_owned())),
    column("shielding", ALWAYS, true, |row, _| row.online.then(|| shielding(&row.shielding))),
    column("movable", 8, false, |row, _| row.threads.map(|threads| figure::count(threads.movable))),
    column("bound", 4, false, |row, _| row.threads.map(|threads| figure::count(threads.bound))),
    column("pinned", 7, false, |row, _| row.threads.map(|threads| figure::count(threads.pinned))),
    column("workers", 4, false, |row, _| row.threads.map(|threads| figure::count(threads.workers))),
    column("irq/s", 8, false, |row, table| row.online.then(|| interrupts_per_second(row, table))),
    column("tick", 6, true, |row, _| {
        row.tick_stopped.map(|stopped| if stopped { "stopped" } else { "runs" }.to_owned())
    }),
    column("MHz", 5, false, |row, _| row.frequency_hz.map(|hertz| (hertz / 1_000_000).to_string())),
    column("governor", 1, true, |row, _| row.governor.clone()),
    column("idle limit", 5, true, |row, _| row.idle_limit.as_ref().map(idle_limit)),
    column("L3", 3, true, |row, _| row.l3.as_ref().map(l3)),
    column("node", 2, false, |row, _| row.node.map(|node| node.to_string())),
    column("kind", 2, true, |row, _| row.kind.clone()),
];

/// The report of `whylate cpus`; with `all`, it lists by name what is on every CPU, otherwise only for shielded CPUs.
pub fn cpus(table: &CpuTable, all: bool) -> Page {
    let columns = COLUMNS.iter().map(|column| crate::section::Column {
        is_text: column.is_text,
        ..crate::section::Column::number(column.title).importance(column.importance)
    });
    let rows = table.cpus.iter().map(|row| self::row(row, table));
    let rows = Table { folds: true, ..Table::new(columns.collect(), rows.collect()) };
    let mut sections = vec![Section::new("cpus", "").with(rows)];
    let listed = table.cpus.iter().filter(|row| row.online && (all || is_shielded(row)));
    sections.extend(listed.map(|row| remaining(table, row, if all { usize::MAX } else { NAMES_MAX })));
    sections.extend(warnings::section(&table.warnings));
    Page { origin: "whylate cpus".to_owned(), sections, ..Page::default() }
}

/// The columns that are always shown, for several moments of a run.
pub(crate) fn at_moments(tables: &[CpuTableAt]) -> Table {
    let always = || COLUMNS.iter().filter(|column| column.importance == ALWAYS);
    let mut columns = vec![crate::section::Column::text("when")];
    columns.extend(always().map(|column| crate::section::Column {
        is_text: column.is_text,
        ..crate::section::Column::number(column.title)
    }));
    let of = |at: &CpuTableAt| -> Vec<Row> {
        let none = CpuTable::default();
        let value =
            |row: &CpuRow, column: &Column| (column.value)(row, &none).unwrap_or_else(|| "-".to_owned());
        let cells = |row: &CpuRow| {
            let values = always().map(|column| value(row, column));
            Row::of(std::iter::once(at.at.clone()).chain(values.collect::<Vec<_>>()))
        };
        at.cpus.iter().map(cells).collect()
    };
    Table::new(columns, tables.iter().flat_map(of).collect())
}

fn row(row: &CpuRow, table: &CpuTable) -> Row {
    let cell = |column: &Column| {
        let tone = match column.title {
            "shielding" if is_shielded(row) => Tone::Good,
            "state" if !row.online => Tone::Warn,
            _ => Tone::Plain,
        };
        // A column without values is left out, unless it is required.
        let unknown = || (column.importance == ALWAYS).then(|| "-".to_owned());
        Cell { tone, ..(column.value)(row, table).or_else(unknown).into() }
    };
    let tone = if row.online { Tone::Plain } else { Tone::Soft };
    Row { tone, ..Row::of(COLUMNS.iter().map(cell)) }
}

fn is_shielded(row: &CpuRow) -> bool {
    let Shielding { processes, interrupts, local_timer } = row.shielding;
    // Without device interrupts every CPU counts as shielded from them; that alone is not a shield.
    processes == Some(true)
        || local_timer == Some(true)
        || (interrupts == Some(true) && row.threads.is_none())
}

/// `proc irq ltmr`, `none`; `?` after anything that is unknown.
fn shielding(shielding: &Shielding) -> String {
    let parts =
        [("proc", shielding.processes), ("irq", shielding.interrupts), ("ltmr", shielding.local_timer)];
    let words: Vec<String> = parts
        .iter()
        .filter_map(|(name, is)| match is {
            Some(true) => Some((*name).to_owned()),
            Some(false) => None,
            None => Some(format!("{name}?")),
        })
        .collect();
    if words.is_empty() { "none".to_owned() } else { words.join(" ") }
}

fn interrupts_per_second(row: &CpuRow, table: &CpuTable) -> String {
    let count: u64 = row.interrupts.iter().map(|record| record.count).sum();
    let seconds = table.interval_ns as f64 / 1e9;
    if seconds > 0.0 { figure::count((count as f64 / seconds).round() as u64) } else { "-".to_owned() }
}

fn idle_limit(limit: &IdleLimit) -> String {
    match limit.exit_latency_ns {
        Some(latency) => format!("{} {}", limit.name, figure::nanoseconds(latency)),
        None => limit.name.clone(),
    }
}

fn l3(domain: &L3Domain) -> String {
    match domain.id {
        Some(id) => format!("{id} ({})", domain.cpus),
        None => domain.cpus.to_string(),
    }
}

/// What may run on a CPU or interrupt it, by name.
fn remaining(table: &CpuTable, row: &CpuRow, names_max: usize) -> Section {
    let names = |all: Vec<String>| names(all, names_max);
    let threads = |kind| names(table.threads_on(row.cpu, kind).map(|thread| thread.name.clone()).collect());
    let lines = |movable| {
        let lines = table.lines_on(row.cpu, movable);
        names(lines.map(|line| format!("{} {}", line.line, short(&line.description))).collect())
    };
    let interrupts = row.interrupts.iter().map(|record| {
        let name = if record.line.parse::<u32>().is_ok() {
            format!("{} {}", record.line, short(&record.description))
        } else {
            record.line.clone()
        };
        format!("{name}: {}", figure::count(record.count))
    });
    let parts = [
        ("movable threads", threads(ThreadKind::Movable)),
        ("threads bound to this CPU", threads(ThreadKind::Bound)),
        ("pinned kernel threads", threads(ThreadKind::Pinned)),
        ("workers for several CPUs", threads(ThreadKind::Worker)),
        ("movable interrupts", lines(true)),
        ("fixed interrupts", lines(false)),
        ("recent interrupts", names(interrupts.collect())),
    ];
    let pairs = parts.into_iter().filter(|(_, text)| !text.is_empty());
    let pairs = pairs.map(|(title, text)| (title.to_owned(), text)).collect();
    let title = format!("CPU {}: {}", row.cpu, shielding(&row.shielding));
    Section::new("", title).with(Block::Pairs(pairs))
}

/// The device behind a line: the last word of its description.
fn short(description: &str) -> &str {
    description.split_whitespace().last().unwrap_or(description)
}

/// Names in one line, equal ones counted.
fn names(all: Vec<String>, names_max: usize) -> String {
    let mut counted: Vec<(String, usize)> = Vec::new();
    for name in all {
        match counted.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => counted.push((name, 1)),
        }
    }
    let more = counted.len().saturating_sub(names_max);
    let shown = counted.iter().take(names_max);
    let mut text: Vec<String> = shown
        .map(|(name, count)| if *count > 1 { format!("{name} ({count})") } else { name.clone() })
        .collect();
    if more > 0 {
        text.push(format!("and {more} more"));
    }
    text.join(", ")
}
