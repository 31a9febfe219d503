//! What hwlatdetect prints: its parameters, and each gap above its threshold.

use crate::lines::{Line, Lines};
use crate::series::Series;
use crate::{Imported, Problem};

pub(crate) fn read(lines: &Lines<'_>) -> Result<Imported, Problem> {
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
    let mut series = Series {
        series: Some("hwlat"),
        max_ns,
        gaps: Some(gaps),
        count: Some(gaps),
        measured_ns: u64::try_from(watched_ns).unwrap_or(u64::MAX),
        ..Series::of(0)
    };
    for line in lines.iter() {
        if let Some(gap_ns) = gap(line)? {
            series.buckets.push((gap_ns, 1));
        }
    }
    let end = lines.ends("");
    series.at = (end.line, end.column);
    let sum = series.buckets.iter().map(|(gap_ns, _)| gap_ns).sum();
    series.lost_ns = (series.buckets.len() as u64 == gaps).then_some(sum);
    let remark = "hwlatdetect does not say on which CPU a gap was: all are listed under CPU 0";
    Ok(Imported {
        probe: "tracer",
        series: vec![series],
        remarks: vec![remark.to_owned()],
        ..Imported::default()
    })
}

/// The number behind `start`, whatever its unit.
fn number(lines: &Lines<'_>, start: &str) -> Result<u64, Problem> {
    let line = lines
        .behind(start)
        .ok_or_else(|| lines.ends(format!("`{start}` is missing: the file is cut off")))?;
    let word = line.words().next().ok_or_else(|| line.problem(format!("`{start}` has no number")))?;
    word.until(|letter| !letter.is_ascii_digit()).number()
}

/// `ts: 1646837351.550312752, inner:46, outer:45`; old versions have `1408928107.0286324723   18      17`.
fn gap(line: Line<'_>) -> Result<Option<u64>, Problem> {
    let is_time = |text: &str| text.contains('.') && text.trim_end_matches(',').parse::<f64>().is_ok();
    let words: Vec<_> = line.words().collect();
    let [inner, outer] = match words[..] {
        [mark, time, inner, outer] if mark.text == "ts:" && is_time(time.text) => {
            [inner.behind("inner:"), outer.behind("outer:")]
        }
        [time, inner, outer] if is_time(time.text) => [inner, outer],
        [mark, ..] if mark.text == "ts:" => return Err(line.problem("a sample that is cut off")),
        _ => return Ok(None),
    };
    let time = |word: crate::lines::Word<'_>| word.until(|letter| letter == ',').number::<u64>();
    Ok(Some(time(inner)?.max(time(outer)?).saturating_mul(1000)))
}
