//! The in-kernel latency histograms as a table, with who was late in each maximum.

use super::Style;
use super::page::{Colour, Page, clean, length};
use crate::figure::{MISSING, count, nanoseconds};
use crate::{latency, words};
use whylate_core::result::{HistogramsResult, KernelHistogram};
use whylate_core::{CpuId, CpuSet};

/// Titles of the columns; those after the second are figures.
const TITLES: [&str; 8] = ["CPU", "histogram", "samples", "min", "median", "p99", "p99.9", "max"];
/// Columns that are left out where the terminal is too narrow, the first one first.
const OPTIONAL: [&str; 3] = ["p99", "min", "median"];
/// Between two columns.
const GAP: &str = "  ";
/// Interrupts of other CPUs that are listed.
const IPIS_SHOWN: usize = 12;

/// The report of `whylate histograms`.
pub fn histograms(result: &HistogramsResult, style: Style) -> String {
    let mut page = Page::new(style);
    let cpus: CpuSet = result.cpus.iter().map(|cpu| cpu.cpu).collect();
    let mut machine = words::machine(&result.facts, &cpus);
    machine.push(format!("events from {}", result.source));
    machine.push(nanoseconds(result.duration_ns));
    page.dim_list(&machine);
    page.blank();
    push_table(&mut page, result, style.width);
    push_records(&mut page, result);
    push_ipis(&mut page, result);
    page.blank();
    push_wakeups(&mut page, result);
    page.warnings(&result.warnings);
    page.finish()
}

fn push_table(page: &mut Page, result: &HistogramsResult, width_max: usize) {
    let mut rows = vec![TITLES.map(str::to_owned)];
    for cpu in &result.cpus {
        rows.extend(cpu.histograms.iter().map(|histogram| row(cpu.cpu, histogram)));
    }
    let width = |column: usize| rows.iter().map(|row| length(&row[column])).max().unwrap_or(0);
    let widths: Vec<usize> = (0..TITLES.len()).map(width).collect();
    let (shown, left_out) = fit(&widths, width_max);
    let mut last_cpu = String::new();
    for (index, row) in rows.iter().enumerate() {
        let cells = shown.iter().map(|column| {
            let (text, width) = (&row[*column], widths[*column]);
            match column {
                0 if *text == last_cpu => " ".repeat(width),
                1 => format!("{text:<width$}"),
                _ => format!("{text:>width$}"),
            }
        });
        page.line(&cells.collect::<Vec<_>>().join(GAP), if index == 0 { "2" } else { "" });
        last_cpu.clone_from(&row[0]);
    }
    if !left_out.is_empty() {
        page.note(&format!("Not shown at this width: {}.", left_out.join(", ")));
    }
    if rows.len() == 1 {
        page.note("every histogram is off: `whylate histograms enable` switches them on");
    }
}

/// The columns that there is room for, and the titles of the others.
fn fit(widths: &[usize], width_max: usize) -> (Vec<usize>, Vec<&'static str>) {
    let mut shown: Vec<usize> = (0..widths.len()).collect();
    let mut left_out = Vec::new();
    for title in OPTIONAL {
        let total: usize = shown.iter().map(|column| widths[*column] + GAP.len()).sum();
        if total <= width_max + GAP.len() {
            break;
        }
        shown.retain(|column| TITLES[*column] != title);
        left_out.push(title);
    }
    (shown, left_out)
}

fn row(cpu: CpuId, histogram: &KernelHistogram) -> [String; TITLES.len()] {
    let figures = histogram.quantiles.as_ref();
    let text = |value: Option<u64>| value.map_or_else(|| MISSING.to_owned(), nanoseconds);
    [
        cpu.to_string(),
        histogram.kind.to_string(),
        count(histogram.samples),
        text(figures.map(|figures| figures.min_ns)),
        text(figures.map(|figures| figures.p50_ns)),
        text(figures.map(|figures| figures.p99_ns)),
        text(figures.map(|figures| figures.p999_ns)),
        text(figures.map(|figures| figures.max_ns)),
    ]
}

/// Who was late in the largest latency of each CPU, by the histogram that holds most of its way.
fn push_records(page: &mut Page, result: &HistogramsResult) {
    let records: Vec<String> = result
        .cpus
        .iter()
        .filter_map(|cpu| {
            let records = cpu.histograms.iter().map(|one| (one.kind, one.max_record.as_ref()));
            let (kind, record) = latency::largest(records)?;
            Some(format!("CPU {}, {kind}: {}", cpu.cpu, latency::record(record)))
        })
        .collect();
    if !records.is_empty() {
        page.heading("Largest since the last reset");
        records.iter().for_each(|record| page.item(record, None));
    }
}

fn push_ipis(page: &mut Page, result: &HistogramsResult) {
    let Some(ipis) = &result.ipis else { return };
    page.heading("Interrupts from other CPUs");
    for ipi in ipis.iter().take(IPIS_SHOWN) {
        let caller = ipi.caller.as_ref().map(|caller| format!(", asked for by {caller}")).unwrap_or_default();
        let from = ipi.from_cpu.map(|cpu| format!(" from CPU {cpu}")).unwrap_or_default();
        let task = ipi.from_task.as_ref().map(|task| format!(" ({})", clean(task))).unwrap_or_default();
        let line = format!("CPU {}: {} x {}{caller}{from}{task}", ipi.cpu, count(ipi.count), ipi.function);
        page.item(&line, None);
    }
    match ipis.len().checked_sub(IPIS_SHOWN) {
        Some(more) if more > 0 => page.item(&format!("and {more} more kinds; --json has them"), None),
        _ if ipis.is_empty() => page.item("none", None),
        _ => {}
    }
}

fn push_wakeups(page: &mut Page, result: &HistogramsResult) {
    let wakeups = &result.wakeups;
    let mut text = format!("{} wake-ups seen since the start", count(wakeups.seen));
    for (number, what) in [
        (wakeups.without_switch, "of tasks that were running still"),
        (wakeups.elsewhere, "that ended where nothing is measured"),
    ] {
        if number > 0 {
            text.push_str(&format!(", {} {what}", count(number)));
        }
    }
    page.dim(&format!("{text}."));
    if result.lost > 0 {
        let text = format!("{} lost: the histograms lack as many.", count(result.lost));
        page.coloured(&text, Colour::Yellow);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        for (width, left_out) in [(80, ""), (74, "p99"), (64, "p99, min"), (56, "p99, min, median")] {
            let text = histograms(&result(), Style { color: false, width });
            assert!(text.lines().all(|line| length(line) <= width), "{width}:\n{text}");
            let note = format!("Not shown at this width: {left_out}.");
            assert_eq!(text.contains("Not shown"), !left_out.is_empty(), "{width}:\n{text}");
            assert!(left_out.is_empty() || text.contains(&note), "{width}:\n{text}");
        }
    }
}
