//! The CPU table, and below it what remains on the CPUs that are shielded.

use super::page::Page;
use super::{Style, page};
use crate::figure::{self, MISSING};
use whylate_core::result::{CpuRow, CpuTable, IdleLimit, L3Domain, Shielding, ThreadKind};

const GAP: usize = 2;

/// Names of a list are cut after so many, with the number of the others, unless all are asked for.
const NAMES_MAX: usize = 24;

/// A column: its title, and how much is lost without it (9 is never left out).
struct Column {
    title: &'static str,
    importance: u8,
    to_the_left: bool,
    value: fn(&CpuRow, &CpuTable) -> Option<String>,
}

const fn column(
    title: &'static str,
    importance: u8,
    to_the_left: bool,
    value: fn(&CpuRow, &CpuTable) -> Option<String>,
) -> Column {
    Column { title, importance, to_the_left, value }
}

static COLUMNS: [Column; 19] = [
    column("cpu", 9, false, |row, _| Some(row.cpu.to_string())),
    column("chip", 9, false, |row, _| row.chip.map(|id| id.to_string())),
    column("core", 9, false, |row, _| row.core.map(|id| id.to_string())),
    column("ht", 9, false, |row, _| row.hardware_thread.map(|number| number.to_string())),
    column("ht-siblings", 9, true, |row, _| Some(row.siblings.to_string()).filter(|list| !list.is_empty())),
    column("state", 9, true, |row, _| Some(if row.online { "up" } else { "down" }.to_owned())),
    column("shielding", 9, true, |row, _| row.online.then(|| shielding(&row.shielding))),
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

/// The table of `whylate cpus`; with `all`, what is on every CPU is listed by name, else only on shielded ones.
pub fn cpus(table: &CpuTable, all: bool, style: Style) -> String {
    let mut page = Page::new(style);
    push_table(&mut page, table, style);
    let listed = table.cpus.iter().filter(|row| row.online && (all || is_shielded(row)));
    for row in listed {
        push_remaining(&mut page, table, row, if all { usize::MAX } else { NAMES_MAX });
    }
    page.warnings(&table.warnings);
    page.finish()
}

fn push_table(page: &mut Page, table: &CpuTable, style: Style) {
    let is_known = |column: &&Column| {
        column.importance == 9 || table.cpus.iter().any(|row| (column.value)(row, table).is_some())
    };
    let width = |column: &Column| {
        let values = table.cpus.iter().map(|row| page::length(&value(column, row, table)));
        values.chain([column.title.len()]).max().unwrap_or(0)
    };
    let mut columns: Vec<(&'static Column, usize)> =
        COLUMNS.iter().filter(is_known).map(|column| (column, width(column))).collect();
    loop {
        let folded = fit(&mut columns, style.width);
        push_lines(page, table, &columns);
        if folded.is_empty() || columns.len() < 2 {
            return;
        }
        page.blank();
        columns = columns.into_iter().take(1).chain(folded).collect();
    }
}

fn push_lines(page: &mut Page, table: &CpuTable, columns: &[(&Column, usize)]) {
    let titles = columns.iter().map(|(column, width)| aligned(column, *width, column.title));
    page.line(&titles.collect::<Vec<_>>().join("  "), "1");
    for row in &table.cpus {
        let cells = columns.iter().map(|(column, width)| {
            let text = aligned(column, *width, &value(column, row, table));
            match column.title {
                "shielding" if is_shielded(row) => page.paint(&text, "32"),
                "state" if !row.online => page.paint(&text, "33"),
                _ => text,
            }
        });
        page.line(&cells.collect::<Vec<_>>().join("  "), if row.online { "" } else { "2" });
    }
}

fn value(column: &Column, row: &CpuRow, table: &CpuTable) -> String {
    page::clean(&(column.value)(row, table).unwrap_or_else(|| MISSING.to_owned()))
}

/// Takes the least important columns away until the rest fits; gives them in the table's order, for a second table.
fn fit(columns: &mut Vec<(&'static Column, usize)>, width: usize) -> Vec<(&'static Column, usize)> {
    let mut left_out = Vec::new();
    while columns.iter().map(|(_, width)| width + GAP).sum::<usize>() > width + GAP {
        let candidates = columns.iter().enumerate().filter(|(_, (column, _))| column.importance < 9);
        let Some((index, _)) = candidates.min_by_key(|(_, (column, _))| column.importance) else { break };
        left_out.push(columns.remove(index));
    }
    left_out.sort_by_key(|(left, _)| COLUMNS.iter().position(|column| column.title == left.title));
    left_out
}

fn aligned(column: &Column, width: usize, text: &str) -> String {
    let padding = " ".repeat(width.saturating_sub(page::length(text)));
    if column.to_the_left { format!("{text}{padding}") } else { format!("{padding}{text}") }
}

fn is_shielded(row: &CpuRow) -> bool {
    let Shielding { processes, interrupts, local_timer } = row.shielding;
    // A machine without device interrupts shields every CPU from them; that alone is no shield.
    processes == Some(true)
        || local_timer == Some(true)
        || (interrupts == Some(true) && row.threads.is_none())
}

/// `proc irq ltmr`, `none`; `?` behind what cannot be told.
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
    if seconds > 0.0 { figure::count((count as f64 / seconds).round() as u64) } else { MISSING.to_owned() }
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
fn push_remaining(page: &mut Page, table: &CpuTable, row: &CpuRow, names_max: usize) {
    page.heading(&format!("CPU {}: {}", row.cpu, shielding(&row.shielding)));
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
        ("threads bound here", threads(ThreadKind::Bound)),
        ("pinned kernel threads", threads(ThreadKind::Pinned)),
        ("workers of several CPUs", threads(ThreadKind::Worker)),
        ("movable interrupts", lines(true)),
        ("fixed interrupts", lines(false)),
        ("interrupts just now", names(interrupts.collect())),
    ];
    for (title, text) in parts {
        if !text.is_empty() {
            page.item(&format!("{title}: {text}"), None);
        }
    }
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
