//! cyclictest's histogram (`-h`, `--histfile`) and its lines of threads.

use crate::lines::{ToolLine, ToolLines, Word};
use crate::series::ToolSeries;
use crate::{Imported, Problem};

pub(crate) fn read(lines: &ToolLines<'_>) -> Result<Imported, Problem> {
    let histogram = lines.behind("# Histogram").is_some();
    let series = if histogram { from_histogram(lines)? } else { from_threads(lines)? };
    let remark =
        "the text does not say on which CPU a thread ran: the figures are of threads, by their number";
    Ok(Imported { probe: "timer", series, remarks: vec![remark.to_owned()], ..Imported::default() })
}

/// The numbers behind `start`, one for each thread.
fn summary<T: std::str::FromStr>(
    lines: &ToolLines<'_>,
    start: &str,
    count: Option<usize>,
) -> Result<Vec<T>, Problem> {
    let line = lines
        .behind(start)
        .ok_or_else(|| lines.ends(format!("`{start}` is missing: the file is cut off")))?;
    line.numbers(count.unwrap_or_else(|| line.words().count()))
}

fn from_histogram(lines: &ToolLines<'_>) -> Result<Vec<ToolSeries>, Problem> {
    let min: Vec<u64> = summary(lines, "# Min Latencies:", None)?;
    let threads = Some(min.len());
    let mean: Vec<f64> = summary(lines, "# Avg Latencies:", threads)?;
    let max: Vec<u64> = summary(lines, "# Max Latencies:", threads)?;
    let over: Vec<u64> = match lines.behind("# Histogram Overflows:") {
        // With `-H` the sum of all threads is behind the others.
        Some(line) => line.words().take(min.len()).map(Word::number).collect::<Result<_, _>>()?,
        None => vec![0; min.len()],
    };
    let mut series: Vec<ToolSeries> = (0..min.len()).map(|thread| ToolSeries::of(thread as u32)).collect();
    for line in lines.iter().filter(|line| line.text.starts_with(|first: char| first.is_ascii_digit())) {
        row(line, &mut series)?;
    }
    let end = lines.ends("");
    for (thread, series) in series.iter_mut().enumerate() {
        series.over = over.get(thread).copied().unwrap_or(0);
        series.at = (end.line, end.column);
        // What a thread without samples has for its extremes is not a measurement.
        if series.over > 0 || !series.buckets.is_empty() {
            (series.min_ns, series.max_ns) = (Some(min[thread] * 1000), Some(max[thread] * 1000));
            series.mean_ns = Some(mean[thread] * 1000.0);
        }
    }
    Ok(series)
}

/// `000021 000002 000004`: a value in microseconds, and how often each thread had it.
fn row(line: ToolLine<'_>, series: &mut [ToolSeries]) -> Result<(), Problem> {
    let mut words = line.words();
    let Some(value) = words.next() else { return Ok(()) };
    let value_ns = u64::from(value.number::<u32>()?) * 1000;
    for series in series.iter_mut() {
        let count: u64 = words
            .next()
            .ok_or_else(|| line.problem("a thread has no count here: is the line cut off?"))?
            .number()?;
        if count > 0 {
            series.buckets.push((value_ns, count));
        }
        series.limit_ns = value_ns + 1000;
    }
    Ok(())
}

/// `T: 0 (  163) P:99 I:1000 C:   5000 Min:     27 Act:   30 Avg:   31 Max:      51`; the last line of each thread counts.
fn from_threads(lines: &ToolLines<'_>) -> Result<Vec<ToolSeries>, Problem> {
    let mut all: Vec<ToolSeries> = Vec::new();
    for line in lines.iter() {
        let Some(rest) = line.behind("T:") else { continue };
        let number: u32 =
            rest.words().next().ok_or_else(|| line.problem("the thread's number is missing"))?.number()?;
        let value = |key: &str| -> Result<u64, Problem> {
            let at = rest
                .text
                .find(key)
                .ok_or_else(|| line.problem(format!("`{key}` is missing: is the line cut off?")))?;
            let after = rest.behind(&rest.text[..at + key.len()]).unwrap_or(rest);
            after.words().next().ok_or_else(|| line.problem(format!("`{key}` has no number")))?.number()
        };
        let series = ToolSeries {
            count: Some(value("C:")?),
            min_ns: Some(value("Min:")?.saturating_mul(1000)),
            mean_ns: Some(value("Avg:")? as f64 * 1000.0),
            max_ns: Some(value("Max:")?.saturating_mul(1000)),
            ..ToolSeries::of(number)
        };
        match all.iter_mut().find(|known| known.cpu == number) {
            Some(known) => *known = series,
            None => all.push(series),
        }
    }
    all.sort_by_key(|series| series.cpu);
    if all.is_empty() { Err(lines.ends("there is no line of a thread (`T: 0 …`)")) } else { Ok(all) }
}
