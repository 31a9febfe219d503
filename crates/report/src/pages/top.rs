//! What `whylate top` prints at its end: the figures of its view, over the whole time.

use crate::section::{Block, Column, Page, Row, Section, Table, Tone, sentences};
use crate::sections::{records, warnings};
use whylate_core::CpuSet;
use whylate_core::figure::{count, nanoseconds, share};
use whylate_core::record::SourceRecord;
use whylate_core::result::{CauseKind, Quantiles, TopCpu, TopResult};

/// Rows of a list; `--json` has all.
const LISTED_MAX: usize = 20;

/// A rate: what, how often, and on which CPUs.
pub type TopRate = (String, u64, CpuSet);

/// The final report of `whylate top` on that host. `interrupts` and `ipis` are its counts, the most frequent first.
pub fn top(result: &TopResult, host: &str, interrupts: &[TopRate], ipis: &[TopRate]) -> Page {
    let mut treatments: Vec<&str> = result.treatments.iter().map(|one| one.treatment.as_str()).collect();
    treatments.dedup();
    let in_force = match treatments.is_empty() {
        true => "no treatment in force".to_owned(),
        false => format!("in force: {}", treatments.join(", ")),
    };
    let about = vec![host.to_owned(), nanoseconds(result.interval_ns), in_force];
    let latency = Section::new("cpus", "Wake-up latency")
        .meaning("only for tasks that --priority selects (by default, real-time tasks)");
    let largest = result.cpus.iter().filter_map(|cpu| {
        let record = records::record(cpu.max_record.as_ref()?);
        Some(format!("CPU {}: {record}", cpu.cpu))
    });
    let listed = [
        Section::new("interrupts", "Interrupts and softirqs").with_all(rates(interrupts, result.interval_ns)),
        Section::new("ipis", "Interrupts that CPUs sent to each other")
            .with_all(rates(ipis, result.interval_ns)),
        Section::new("thieves", "What used the CPUs (thieves)").with_all(thieves(result)),
    ];
    let mut sections = vec![latency.with(cpus(result)).with_all(notes(result))];
    sections.extend(Section::new("late", "Largest latency").with(sentences(largest)).unless_empty());
    sections.extend(listed.into_iter().flat_map(Section::unless_empty));
    sections.extend(warnings::section(&result.warnings));
    Page { origin: "whylate top".to_owned(), about: vec![about], sections, ..Page::default() }
}

fn cpus(result: &TopResult) -> Table {
    let titles = ["CPU", "wake-ups/s", "median", "p99", "p99.9", "max", "timer max"];
    let columns = titles.into_iter().map(Column::number).collect();
    Table::new(columns, result.cpus.iter().map(|cpu| of_cpu(cpu, result.interval_ns)).collect())
}

fn of_cpu(cpu: &TopCpu, interval_ns: u64) -> Row {
    let time = |of: &Option<Quantiles>, figure: fn(&Quantiles) -> u64| {
        of.as_ref().map_or_else(|| "-".to_owned(), |figures| nanoseconds(figure(figures)))
    };
    Row::of([
        cpu.cpu.to_string(),
        per_second(cpu.samples, interval_ns),
        time(&cpu.wakeup, |it| it.p50_ns),
        time(&cpu.wakeup, |it| it.p99_ns),
        time(&cpu.wakeup, |it| it.p999_ns),
        time(&cpu.wakeup, |it| it.max_ns),
        time(&cpu.timer, |it| it.max_ns),
    ])
}

fn notes(result: &TopResult) -> Vec<Block> {
    let is_silent = result.cpus.iter().all(|cpu| cpu.samples == 0);
    let silent = is_silent.then(|| {
        Block::note(
            "No task with a counted priority was woken; without --priority, only real-time tasks are counted.",
        )
    });
    let lost = (result.lost > 0).then(|| {
        let text = format!("The figures do not include lost records: {}.", count(result.lost));
        Block::Text(text.into(), Tone::Warn)
    });
    silent.into_iter().chain(lost).collect()
}

fn rates(rates: &[TopRate], interval_ns: u64) -> Vec<Block> {
    let columns = vec![Column::number("/s"), Column::text("what"), Column::text("CPUs")];
    let row = |(name, number, cpus): &TopRate| {
        Row::of([per_second(*number, interval_ns), name.clone(), cpus.to_string()])
    };
    let rows: Vec<Row> = rates.iter().take(LISTED_MAX).map(row).collect();
    listed(Table::new(columns, rows), rates.len())
}

fn thieves(result: &TopResult) -> Vec<Block> {
    let mut columns: Vec<Column> = ["share", "longest", "/s", "CPU"].map(Column::number).into();
    columns.extend(["kind", "who", "function"].map(Column::text));
    let row = |one: &SourceRecord| {
        let who = match (&one.actor, one.kind) {
            (Some(actor), _) => actor.clone(),
            (None, CauseKind::Thread) => "others".to_owned(),
            (None, _) => String::new(),
        };
        Row::of([
            share(one.total_ns as f64 / result.interval_ns.max(1) as f64),
            nanoseconds(one.max_ns),
            per_second(one.gaps, result.interval_ns),
            one.cpu.to_string(),
            one.kind.words(),
            who,
            one.function.clone().unwrap_or_default(),
        ])
    };
    let rows = result.thieves.iter().take(LISTED_MAX).map(row).collect();
    listed(Table::new(columns, rows), result.thieves.len())
}

/// A list, and the number of rows that it leaves out.
fn listed(table: Table, all: usize) -> Vec<Block> {
    let more = all.saturating_sub(table.rows.len());
    let left_out = (more > 0).then(|| Block::note(format!("and {more} more; --json lists them")));
    if all == 0 { Vec::new() } else { std::iter::once(table.into()).chain(left_out).collect() }
}

fn per_second(number: u64, interval_ns: u64) -> String {
    count((number as f64 * 1e9 / interval_ns.max(1) as f64).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::Style;
    use whylate_core::CpuId;

    #[test]
    fn the_end_is_a_report_with_every_cpu_and_without_keys() {
        let cpu = |cpu| TopCpu { cpu: CpuId(cpu), samples: 1_000, ..TopCpu::default() };
        let thief = SourceRecord {
            kind: CauseKind::Softirq,
            actor: Some("NET_RX".to_owned()),
            gaps: 50,
            total_ns: 30_000_000,
            max_ns: 900_000,
            ..SourceRecord::default()
        };
        let result = TopResult {
            interval_ns: 500_000_000,
            cpus: (0..64).map(cpu).collect(),
            thieves: vec![thief; 30],
            ..TopResult::default()
        };
        let timer = ("TIMER softirq".to_owned(), 500, CpuSet::from_iter([CpuId(0), CpuId(1)]));
        let page = top(&result, "board", &[timer], &[]);
        let text = page.terminal(Style { width: 80, ..Style::default() });
        for part in ["board", "no treatment in force", "63", "1,000  TIMER softirq  0-1", "6.00 %", "10 more"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("help") && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
