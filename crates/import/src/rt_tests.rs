//! Programs of rt-tests that hand over from one thread to another: pmqtest, ptsematest, sigwaittest, svsematest.

use crate::lines::ToolLines;
use crate::series::ToolSeries;
use crate::{Imported, Problem};
use std::collections::BTreeMap;

/// `#0: ID4181, P80, CPU0, I1000; #1: ID4182, P80, CPU0, TO 0, Cycles 10000` and `#1 -> #0, Min    7, Cur   11, Avg   10, Max
/// 93`. The last row of each pair counts.
pub(crate) fn pairs(lines: &ToolLines<'_>) -> Result<Imported, Problem> {
    let mut cpus: BTreeMap<u32, u32> = BTreeMap::new();
    let mut cycles: BTreeMap<u32, u64> = BTreeMap::new();
    let mut found: BTreeMap<u32, ToolSeries> = BTreeMap::new();
    for line in lines.iter() {
        let number = |text: &str, key: &str| -> Option<u64> {
            let rest = text.split(key).nth(1)?.trim_start();
            rest.split(|it: char| !it.is_ascii_digit()).next()?.parse().ok()
        };
        if let Some((_, to)) = line.text.split_once("-> #").filter(|_| line.text.starts_with('#')) {
            let of = |key| {
                number(line.text, key)
                    .ok_or_else(|| line.problem(format!("`{key}` is missing: is the line cut off?")))
            };
            let to = number(&format!("#{to}"), "#").and_then(|it| u32::try_from(it).ok());
            let to = to.ok_or_else(|| line.problem("a thread number is missing"))?;
            let (min, mean, max) = (of(", Min")?, of(", Avg")?, of(", Max")?);
            let end = line.problem("");
            found.insert(
                to,
                ToolSeries {
                    min_ns: Some(min.saturating_mul(1000)),
                    mean_ns: Some(mean as f64 * 1000.0),
                    max_ns: Some(max.saturating_mul(1000)),
                    at: (end.line, end.column),
                    ..ToolSeries::of(to)
                },
            );
            continue;
        }
        for part in line.text.split(';').filter(|part| part.trim_start().starts_with('#')) {
            let Some(thread) = number(part, "#").and_then(|it| u32::try_from(it).ok()) else { continue };
            if let Some(cpu) = number(part, "CPU").and_then(|it| u32::try_from(it).ok()) {
                cpus.insert(thread, cpu);
            }
            // The count stands with the second thread of a pair.
            if let Some(count) = number(part, "Cycles") {
                cycles.insert(thread & !1, count);
            }
        }
    }
    let is_known = found.keys().all(|thread| cpus.contains_key(thread));
    let series: Vec<ToolSeries> = found
        .into_iter()
        .map(|(thread, series)| ToolSeries {
            cpu: cpus.get(&thread).copied().filter(|_| is_known).unwrap_or(thread),
            count: cycles.get(&(thread & !1)).copied(),
            ..series
        })
        .collect();
    if series.is_empty() {
        return Err(lines.ends("there is no row of a pair of threads (`#1 -> #0, Min …`)"));
    }
    let mut remarks = vec![
        "the values are times from the hand-over by one thread until the other thread runs; the text has no quantiles".to_owned(),
    ];
    if !is_known {
        remarks.push(
            "the text does not say on which CPU a thread ran: the figures are listed by thread number, not by CPU"
                .to_owned(),
        );
    }
    Ok(Imported { probe: "roundtrip", series, remarks, ..Imported::default() })
}
