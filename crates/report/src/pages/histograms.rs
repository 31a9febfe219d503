//! The in-kernel latency histograms as a table, with the late task of each maximum.

use crate::section::{Block, Cell, Column, Page, Row, Section, Table, Tone, sentences};
use crate::sections::{records, warnings};
use crate::words;
use whylate_core::figure::{count, nanoseconds};
use whylate_core::record::IpiRecord;
use whylate_core::result::{HistogramsResult, KernelHistogram, Quantiles};
use whylate_core::{CpuId, CpuSet};

/// The most interrupts of other CPUs that are listed.
const IPIS_SHOWN: usize = 12;

/// The report of `whylate histograms`.
pub fn histograms(result: &HistogramsResult) -> Page {
    let cpus: CpuSet = result.cpus.iter().map(|cpu| cpu.cpu).collect();
    let mut machine = words::machine(&result.facts, &cpus);
    machine.push(format!("events from {}", result.source));
    machine.push(nanoseconds(result.duration_ns));
    let mut sections = vec![Section::new("histograms", "").with(table(result))];
    if sections[0].blocks.is_empty() {
        let text = "every histogram is off: `whylate histograms enable` switches them on";
        sections[0].blocks.push(Block::note(text));
    }
    let records =
        Section::new("late", "Largest latency since the last reset").with(sentences(records(result)));
    sections.extend(records.unless_empty());
    sections.extend(result.ipis.as_deref().map(ipis));
    sections.push(wakeups(result));
    sections.extend(warnings::section(&result.warnings));
    Page { origin: "whylate histograms".to_owned(), about: vec![machine], sections, ..Page::default() }
}

fn table(result: &HistogramsResult) -> Table {
    let columns = vec![
        Column::number("CPU"),
        Column::text("histogram"),
        Column::number("samples"),
        Column::number("min").importance(2),
        Column::number("median").importance(3),
        Column::number("p99").importance(1),
        Column::number("p99.9"),
        Column::number("max"),
    ];
    let rows = result.cpus.iter().flat_map(|cpu| cpu.histograms.iter().map(|one| row(cpu.cpu, one)));
    Table::new(columns, rows.collect())
}

fn row(cpu: CpuId, histogram: &KernelHistogram) -> Row {
    let time = |figure: fn(&Quantiles) -> u64| {
        Cell::from(histogram.quantiles.as_ref().map(|figures| nanoseconds(figure(figures))))
    };
    Row::of([
        cpu.to_string().into(),
        histogram.kind.to_string().into(),
        count(histogram.samples).into(),
        time(|figures| figures.min_ns),
        time(|figures| figures.p50_ns),
        time(|figures| figures.p99_ns),
        time(|figures| figures.p999_ns),
        time(|figures| figures.max_ns),
    ])
}

/// The late task of the largest latency of each CPU, by the histogram that holds most of its way.
fn records(result: &HistogramsResult) -> impl Iterator<Item = String> {
    result.cpus.iter().filter_map(|cpu| {
        let records = cpu.histograms.iter().map(|one| (one.kind, one.max_record.as_ref()));
        let (kind, record) = records::largest(records)?;
        Some(format!("CPU {}, {kind}: {}", cpu.cpu, records::record(record)))
    })
}

fn ipis(ipis: &[IpiRecord]) -> Section {
    let line = |ipi: &IpiRecord| {
        let caller = ipi.caller.as_ref().map(|caller| format!(", requested by {caller}")).unwrap_or_default();
        let from = ipi.from_cpu.map(|cpu| format!(" from CPU {cpu}")).unwrap_or_default();
        let task = ipi.from_task.as_ref().map(|task| format!(" ({task})")).unwrap_or_default();
        format!("CPU {}: {} x {}{caller}{from}{task}", ipi.cpu, count(ipi.count), ipi.function)
    };
    let more = match ipis.len().saturating_sub(IPIS_SHOWN) {
        0 if ipis.is_empty() => Some("none".to_owned()),
        0 => None,
        more => Some(format!("and {}; --json lists all", words::counted(more, "more kind"))),
    };
    let lines = ipis.iter().take(IPIS_SHOWN).map(line).chain(more);
    Section::new("ipis", "Interrupts from other CPUs").with(sentences(lines))
}

fn wakeups(result: &HistogramsResult) -> Section {
    let wakeups = &result.wakeups;
    let mut text = format!("{} wake-ups since the start", count(wakeups.seen));
    for (number, what) in [
        (wakeups.without_switch, "of tasks that were still running"),
        (wakeups.elsewhere, "of tasks that ran on CPUs that are not measured"),
    ] {
        if number > 0 {
            text.push_str(&format!(", {} {what}", count(number)));
        }
    }
    let lost = (result.lost > 0).then(|| {
        let text = format!("The histograms do not count lost events: {}.", count(result.lost));
        Block::Text(text.into(), Tone::Warn)
    });
    Section::new("wakeups", "").with(Block::note(format!("{text}."))).with_all(lost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::Style;
    use whylate_core::Facts;
    use whylate_core::result::{
        CpuHistograms, HISTOGRAMS_FORMAT, HistogramKind, HistogramSource, Quantiles, WakeupTotals,
    };

    fn result() -> HistogramsResult {
        let figures = Quantiles {
            min_ns: 1_234,
            p50_ns: 12_345,
            p99_ns: 1_234_567,
            p999_ns: 2_345_678,
            max_ns: 9_876_543,
            ..Quantiles::default()
        };
        let one = |kind| KernelHistogram {
            kind,
            samples: 123_456_789,
            quantiles: Some(figures),
            max_record: None,
            histogram: Vec::new(),
        };
        let cpu = |cpu| CpuHistograms { cpu: CpuId(cpu), histograms: HistogramKind::ALL.map(one).to_vec() };
        HistogramsResult {
            format: HISTOGRAMS_FORMAT.to_owned(),
            facts: Facts::default(),
            source: HistogramSource::Bpf,
            duration_ns: 1_000_000_000,
            cpus: vec![cpu(0), cpu(101)],
            ipis: None,
            wakeups: WakeupTotals::default(),
            lost: 0,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for (width, left_out) in [(80, ""), (74, "p99"), (64, "min, p99"), (56, "min, median, p99")] {
            let text = histograms(&result()).terminal(Style { color: false, width });
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            let note = format!("Not shown at this width: {left_out}.");
            assert_eq!(text.contains("Not shown"), !left_out.is_empty(), "{width}:\n{text}");
            assert!(left_out.is_empty() || text.contains(&note), "{width}:\n{text}");
        }
    }
}
