//! `rtla timerlat` and `rtla osnoise`: their histograms, and the last table of `top`.

use crate::lines::{ToolLine, ToolLines, Word};
use crate::series::ToolSeries;
use crate::{Imported, Problem};

/// The series of a column of a histogram, by how its title begins.
const COLUMNS: [(&str, &str); 4] =
    [("IRQ-", "timerlat/irq"), ("Thr-", "timerlat/thread"), ("Usr-", "timerlat/user"), ("CPU-", "osnoise")];

/// `rtla timerlat hist`, `rtla osnoise hist`.
pub(crate) fn histogram(lines: &ToolLines<'_>) -> Result<Imported, Problem> {
    let unit_ns = match lines.behind("# Time unit is ") {
        Some(unit) if unit.text.starts_with("nano") => 1,
        _ => 1000,
    };
    let measured_ns = lines.behind("# Duration:").map(duration).transpose()?.unwrap_or(0);
    let header = lines
        .behind("Index")
        .ok_or_else(|| lines.ends("the table (`Index …`) is missing: the file is cut off"))?;
    let mut series = header.words().map(column).collect::<Result<Vec<ToolSeries>, Problem>>()?;
    let (mut complete, mut is_over) = (false, false);
    for line in lines.iter() {
        let Some(first) = line.words().next() else { continue };
        // Newer versions put the sums of all CPUs behind the table.
        if complete && first.text.starts_with("ALL") {
            break;
        }
        let key = first.text.strip_suffix(':');
        if key.is_some_and(|key| matches!(key, "over" | "count" | "min" | "avg" | "max"))
            || first.text.starts_with(|letter: char| letter.is_ascii_digit())
        {
            row(line, key, unit_ns, &mut series)?;
            complete |= key == Some("max");
            is_over |= key == Some("over");
        }
    }
    // `--no-summary` ends with the row of what is above the histogram.
    let is_rows_alone = is_over && series.iter().all(|it| it.count.is_none() && it.min_ns.is_none());
    if !complete && !is_rows_alone {
        return Err(
            lines.ends("the summary (`count:`, `min:`, `avg:`, `max:`) is missing: the file is cut off")
        );
    }
    series.iter_mut().for_each(|series| series.measured_ns = measured_ns);
    let width_ns = width(&series, unit_ns);
    series.iter_mut().for_each(|series| series.bucket_ns = width_ns);
    let has_samples = |series: &ToolSeries| match series.count {
        Some(count) => count > 0,
        None => series.max_ns.is_some() || is_rows_alone && !(series.buckets.is_empty() && series.over == 0),
    };
    series.retain(has_samples);
    let mut remarks = Vec::new();
    if is_rows_alone {
        remarks.push(
            "the summary is not in the text (--no-summary, or cut off): minima and maxima are taken from the rows"
                .to_owned(),
        );
    }
    if let Some(width_ns) = width_ns.filter(|_| !series.is_empty()) {
        remarks.push(format!(
            "the buckets are {} us wide, so a quantile is exact only to the width of its bucket",
            width_ns / 1000
        ));
    }
    let seconds = measured_ns / 1_000_000_000;
    let nothing = series.is_empty().then(|| {
        let what = if lines.iter().any(|line| line.text.contains("osnoise")) { "noise" } else { "latency" };
        format!("no {what} above the tool's threshold was seen in {seconds} s: the histogram has no samples, and its zeros are not measured values")
    });
    Ok(Imported { probe: "tracer", series, remarks, nothing, ..Imported::default() })
}

/// The width of the buckets, where it is more than the unit: the extremes of each column must be in its first and last row.
fn width(series: &[ToolSeries], unit_ns: u64) -> Option<u64> {
    let fits = |series: &&ToolSeries| match (
        series.buckets.first(),
        series.buckets.last(),
        series.min_ns,
        series.max_ns,
    ) {
        (Some(first), Some(last), Some(min), Some(max)) => {
            first.0 == min && (last.0 == max || series.over > 0)
        }
        _ => true,
    };
    if series.iter().all(|series| fits(&series)) {
        return None;
    }
    let divisor = |a: u64, b: u64| {
        let (mut a, mut b) = (a, b);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let rows = series.iter().flat_map(|series| &series.buckets).map(|(ns, _)| *ns);
    let width = rows.fold(0, divisor);
    let all = || series.iter().filter_map(|series| series.max_ns).max().unwrap_or(0);
    Some(if width > 0 { width } else { all().saturating_add(unit_ns) }).filter(|width| *width > unit_ns)
}

/// `IRQ-000`.
fn column(title: Word<'_>) -> Result<ToolSeries, Problem> {
    let found = COLUMNS.iter().find_map(|(start, series)| Some((title.text.strip_prefix(start)?, *series)));
    let (cpu, series) =
        found.ok_or_else(|| title.problem(format!("`{}` is not a column of rtla", title.text)))?;
    let cpu = cpu.parse().map_err(|_| title.problem(format!("`{cpu}` is not a CPU number")))?;
    Ok(ToolSeries { series: Some(series.into()), ..ToolSeries::of(cpu) })
}

/// A row of the table: a value with its counts, or a figure of each column. A column without samples has `-` there.
fn row(
    line: ToolLine<'_>,
    key: Option<&str>,
    unit_ns: u64,
    series: &mut [ToolSeries],
) -> Result<(), Problem> {
    let mut words = line.words();
    let Some(first) = words.next() else { return Ok(()) };
    let value_ns = if key.is_none() { first.number::<u64>()?.saturating_mul(unit_ns) } else { 0 };
    for series in series.iter_mut() {
        let word =
            words.next().ok_or_else(|| line.problem("a number is missing here: is the line cut off?"))?;
        // Newer versions give means with two places.
        if key == Some("avg") {
            let mean = if word.text == "-" { None } else { Some(word.number::<f64>()?) };
            series.mean_ns =
                mean.filter(|mean| mean.is_finite() && *mean >= 0.0).map(|mean| mean * unit_ns as f64);
            continue;
        }
        let number = if word.text == "-" { None } else { Some(word.number::<u64>()?) };
        let time_ns = number.map(|number| number.saturating_mul(unit_ns));
        match key {
            None => {
                series.buckets.extend(number.filter(|count| *count > 0).map(|count| (value_ns, count)));
                series.limit_ns = value_ns.saturating_add(unit_ns);
            }
            Some("over") => series.over = number.unwrap_or(0),
            Some("count") => series.count = Some(number.unwrap_or(0)),
            Some("min") => series.min_ns = time_ns,
            Some(_) => series.max_ns = time_ns,
        }
        let end = line.problem("");
        series.at = (end.line, end.column);
    }
    Ok(())
}

/// `0 00:00:05`: days, hours, minutes and seconds, in nanoseconds.
fn duration(line: ToolLine<'_>) -> Result<u64, Problem> {
    let mut seconds = 0u64;
    for (word, factor) in line.words().flat_map(|word| word.parts(':')).zip([24, 60, 60, 1]) {
        seconds = seconds.saturating_add(word.number()?).saturating_mul(factor);
    }
    Ok(seconds.saturating_mul(1_000_000_000))
}

/// `rtla timerlat top`, `rtla osnoise top`: the last row of each CPU counts.
pub(crate) fn top(lines: &ToolLines<'_>) -> Result<Imported, Problem> {
    let osnoise = lines.iter().any(|line| line.text.starts_with("Operating System Noise"));
    let mut series: Vec<ToolSeries> = Vec::new();
    for line in lines.iter() {
        // `<--- CPU with spike`.
        let line = line.before("<");
        let mut words = line.words();
        let (Some(cpu), Some(count)) = (words.next(), words.next()) else { continue };
        if cpu.text.parse::<u32>().is_err() || !count.text.starts_with('#') {
            continue;
        }
        let cpu: u32 = cpu.number()?;
        let count: u64 = count.behind("#").number()?;
        let rest: Vec<Word<'_>> = words.collect();
        let rows = if osnoise { osnoise_row(line, &rest)? } else { timerlat_rows(line, &rest)? };
        series.retain(|series| series.cpu != cpu);
        series.extend(rows.into_iter().map(|row| ToolSeries { cpu, count: Some(count), ..row }));
    }
    if series.is_empty() {
        return Err(lines.ends("the table has no CPU: the file is cut off"));
    }
    let remark =
        "`top` prints only extremes and means; `hist` also prints the histogram, which gives quantiles";
    Ok(Imported { probe: "tracer", series, remarks: vec![remark.to_owned()], ..Imported::default() })
}

/// `cur min avg max`, in the interrupt, in the thread and, in newer versions, in user space.
fn timerlat_rows(line: ToolLine<'_>, words: &[Word<'_>]) -> Result<Vec<ToolSeries>, Problem> {
    if words.is_empty() || !words.len().is_multiple_of(4) {
        return Err(
            line.problem(format!("this row has {} numbers; it needs 4 for each context", words.len()))
        );
    }
    let names = COLUMNS.iter().map(|(_, name)| *name);
    let contexts = words.chunks(4).zip(names).filter(|(context, _)| context[3].text != "-");
    let series = contexts.map(|(context, name)| {
        let time = |place: usize| context[place].number::<u64>().map(|time| time.saturating_mul(1000));
        Ok(ToolSeries {
            series: Some(name.into()),
            min_ns: Some(time(1)?),
            mean_ns: Some(time(2)? as f64),
            max_ns: Some(time(3)?),
            ..ToolSeries::default()
        })
    });
    series.collect()
}

/// `runtime noise %available max-noise max-single hw nmi irq softirq thread`.
fn osnoise_row(line: ToolLine<'_>, words: &[Word<'_>]) -> Result<Vec<ToolSeries>, Problem> {
    let [runtime, noise, _, _, single, counts @ ..] = words else {
        return Err(line.problem(format!("this row has {} numbers; it needs 10", words.len())));
    };
    if counts.len() > 5 {
        return Err(line.problem(format!(
            "this row has {} numbers; it needs 10: did a mail program break the row?",
            words.len()
        )));
    }
    let gaps = counts.iter().map(|count| count.number::<u64>()).sum::<Result<u64, Problem>>()?;
    Ok(vec![ToolSeries {
        series: Some("osnoise".into()),
        max_ns: Some(single.number::<u64>()?.saturating_mul(1000)),
        lost_ns: Some(noise.number::<u64>()?.saturating_mul(1000)),
        measured_ns: runtime.number::<u64>()?.saturating_mul(1000),
        gaps: Some(gaps),
        ..ToolSeries::default()
    }])
}
