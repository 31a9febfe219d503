//! What hwlatdetect prints: its parameters, and each gap above its threshold.

use crate::lines::{ToolLine, ToolLines};
use crate::series::ToolSeries;
use crate::{Imported, Problem};
use std::collections::BTreeSet;

pub(crate) fn read(lines: &ToolLines<'_>) -> Result<Imported, Problem> {
    let seconds = number(lines, "hwlatdetect:  test duration")?;
    let (window, width) = (number(lines, "Sample window:")?, number(lines, "Sample width:")?);
    if window == 0 || width > window {
        return Err(lines.ends(format!("a sample of {width} us does not fit into a window of {window} us")));
    }
    let gaps = number(lines, "Samples exceeding threshold:")?;
    let max_ns = match lines.behind("Max Latency:") {
        Some(line) if line.text.trim() == "Below threshold" => None,
        _ => Some(number(lines, "Max Latency:")?.saturating_mul(1000)).filter(|_| gaps > 0),
    };
    let watched_ns = u128::from(seconds) * 1_000_000_000 * u128::from(width) / u128::from(window);
    let mut series = ToolSeries {
        series: Some("hwlat".into()),
        max_ns,
        gaps: Some(gaps),
        count: Some(gaps),
        measured_ns: u64::try_from(watched_ns).unwrap_or(u64::MAX),
        ..ToolSeries::of(0)
    };
    let listed = lines.iter().map(gap).filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()?;
    series.buckets = listed.iter().map(|gap| (gap.ns, 1)).collect();
    let end = lines.ends("");
    series.at = (end.line, end.column);
    let sum = listed.iter().map(|gap| gap.ns).sum();
    series.lost_ns = (listed.len() as u64 == gaps).then_some(sum);
    let unlisted = unlisted(&mut series, gaps, number(lines, "Latency threshold:")?.saturating_mul(1000));
    let (cpu, where_from) = cpu(&listed);
    series.cpu = cpu;
    let remarks = where_from.into_iter().chain(unlisted).collect();
    Ok(Imported { probe: "tracer", series: vec![series], remarks, ..Imported::default() })
}

/// Counts the gaps that the file does not list, with the largest of them if it is known, and adds a warning.
fn unlisted(series: &mut ToolSeries, gaps: u64, threshold_ns: u64) -> Option<String> {
    let rest = gaps.checked_sub(series.buckets.len() as u64).filter(|rest| *rest > 0)?;
    let largest = series.max_ns.filter(|max_ns| series.buckets.iter().all(|(ns, _)| ns < max_ns));
    series.buckets.push((threshold_ns, rest - u64::from(largest.is_some())));
    series.buckets.extend(largest.map(|max_ns| (max_ns, 1)));
    let threshold_us = threshold_ns / 1000;
    Some(format!(
        "{rest} of {gaps} gaps are not listed; except the largest, they count as the threshold \
         ({threshold_us} us), so quantiles among them are too low"
    ))
}

/// The CPU of all gaps; if the file names none, its substitute, with the reason.
fn cpu(gaps: &[Gap]) -> (u32, Option<String>) {
    let cpus: BTreeSet<Option<u32>> = gaps.iter().map(|gap| gap.cpu).collect();
    let several: Vec<String> = cpus.iter().flatten().map(u32::to_string).collect();
    match (cpus.first(), cpus.len(), several.len()) {
        (Some(Some(cpu)), 1, _) => (*cpu, None),
        (_, _, 0) => (
            0,
            Some("hwlatdetect does not name the CPU of a gap: all gaps are listed under CPU 0".to_owned()),
        ),
        _ => (
            0,
            Some(format!(
                "all gaps are listed under CPU 0; the file has gaps on CPUs {}",
                several.join(", ")
            )),
        ),
    }
}

/// The number behind `start`, whatever its unit.
fn number(lines: &ToolLines<'_>, start: &str) -> Result<u64, Problem> {
    let line = lines
        .behind(start)
        .ok_or_else(|| lines.ends(format!("`{start}` is missing: the file is cut off")))?;
    let word =
        line.words().next().ok_or_else(|| line.problem(format!("there is no number after `{start}`")))?;
    word.until(|letter| !letter.is_ascii_digit()).number()
}

struct Gap {
    ns: u64,
    cpu: Option<u32>,
}

/// `ts: 1646837351.550312752, inner:46, outer:45`, newer with `, cpu:2`; old versions have `1408928107.0286324723   18      17`.
fn gap(line: ToolLine<'_>) -> Result<Option<Gap>, Problem> {
    let is_time = |text: &str| text.contains('.') && text.trim_end_matches(',').parse::<f64>().is_ok();
    let words: Vec<_> = line.words().collect();
    let (inner, outer, cpu) = match words[..] {
        [mark, time, inner, outer, ref rest @ ..] if mark.text == "ts:" && is_time(time.text) => {
            (inner.behind("inner:"), outer.behind("outer:"), rest.first().map(|word| word.behind("cpu:")))
        }
        [time, inner, outer] if is_time(time.text) => (inner, outer, None),
        [mark, ..] if mark.text == "ts:" => return Err(line.problem("this sample is cut off")),
        _ => return Ok(None),
    };
    let time = |word: crate::lines::Word<'_>| word.until(|letter| letter == ',').number::<u64>();
    let cpu = cpu.map(crate::lines::Word::number).transpose()?;
    Ok(Some(Gap { ns: time(inner)?.max(time(outer)?).saturating_mul(1000), cpu }))
}
