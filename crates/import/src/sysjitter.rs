//! Tables with a row for each figure and a column for each CPU: sysjitter, its second version, and oslat without JSON.

use crate::lines::{ToolLine, ToolLines, Word};
use crate::series::ToolSeries;
use crate::{Imported, Problem};
use whylate_core::result::Quantiles;

/// Quantiles that sysjitter prints, and where they go.
#[derive(Default)]
struct Figures {
    min: Vec<u64>,
    mean: Vec<f64>,
    max: Vec<u64>,
    quantiles: [Vec<u64>; 4],
}

pub(crate) fn read(lines: &ToolLines<'_>) -> Result<Imported, Problem> {
    let header = lines.behind("core_i:").or_else(|| lines.behind("Core:"));
    let header = header.ok_or_else(|| lines.ends("the row of CPUs is missing"))?;
    let cpus = header.words().map(Word::number).collect::<Result<Vec<u32>, Problem>>()?;
    let mut series: Vec<ToolSeries> = cpus.iter().map(|cpu| ToolSeries::of(*cpu)).collect();
    let mut figures = Figures::default();
    for line in lines.iter() {
        row(line, &mut series, &mut figures)?;
    }
    if figures.max.is_empty() {
        return Err(lines.ends("the row of the largest values is missing: the file is cut off"));
    }
    let end = lines.ends("");
    for (place, series) in series.iter_mut().enumerate() {
        series.at = (end.line, end.column);
        // Without an interruption its figures are 0, and of nothing.
        if series.count == Some(0) {
            continue;
        }
        series.min_ns = figures.min.get(place).copied();
        series.mean_ns = figures.mean.get(place).copied();
        series.max_ns = figures.max.get(place).copied();
        series.quantiles = quantiles(&figures, place).filter(|_| series.buckets.is_empty());
        // The last bucket has all that is above it, too.
        if let (Some(max_ns), Some((value, count))) = (series.max_ns, series.buckets.last().copied())
            && max_ns > value
        {
            series.buckets.pop();
            (series.over, series.limit_ns) = (count, value);
        }
    }
    Ok(Imported { probe: "stall", series, ..Imported::default() })
}

fn quantiles(figures: &Figures, place: usize) -> Option<Quantiles> {
    let [p50, p99, p999, p9999] = &figures.quantiles;
    Some(Quantiles {
        min_ns: *figures.min.get(place)?,
        mean_ns: *figures.mean.get(place)?,
        p50_ns: *p50.get(place)?,
        p99_ns: *p99.get(place)?,
        p999_ns: *p999.get(place)?,
        p9999_ns: *p9999.get(place)?,
        max_ns: *figures.max.get(place)?,
    })
}

/// `int_max(ns): 5231 6021`, `001 (us): 4804 51`, `Maximum: 4067 (us)`.
fn row(line: ToolLine<'_>, series: &mut [ToolSeries], figures: &mut Figures) -> Result<(), Problem> {
    let Some((name, _)) = line.text.split_once(':') else { return Ok(()) };
    let Some(values) = line.behind(name).and_then(|rest| rest.behind(":")) else { return Ok(()) };
    let values = values.before("(");
    let count = series.len();
    let whole = |factor: u64| -> Result<Vec<u64>, Problem> {
        let numbers: Vec<u64> = values.numbers(count)?;
        Ok(numbers.into_iter().map(|number| number.saturating_mul(factor)).collect())
    };
    let parts = |factor: f64| -> Result<Vec<f64>, Problem> {
        let numbers: Vec<f64> = values.numbers(count)?;
        Ok(numbers.into_iter().map(|number| number * factor).collect())
    };
    match name.trim() {
        "int_n" => series.iter_mut().zip(whole(1)?).for_each(|(series, gaps)| {
            (series.gaps, series.count) = (Some(gaps), Some(gaps));
        }),
        "runtime(ns)" => {
            series.iter_mut().zip(whole(1)?).for_each(|(series, time)| series.measured_ns = time);
        }
        "int_total(ns)" => {
            series.iter_mut().zip(whole(1)?).for_each(|(series, lost)| series.lost_ns = Some(lost));
        }
        "int_min(ns)" => figures.min = whole(1)?,
        "int_mean(ns)" => figures.mean = parts(1.0)?,
        "int_max(ns)" => figures.max = whole(1)?,
        "int_median(ns)" => figures.quantiles[0] = whole(1)?,
        "int_99(ns)" => figures.quantiles[1] = whole(1)?,
        "int_999(ns)" => figures.quantiles[2] = whole(1)?,
        "int_9999(ns)" => figures.quantiles[3] = whole(1)?,
        "Minimum" | "min_lat (us)" => figures.min = whole(1000)?,
        "Average" | "avg_lat (us)" => figures.mean = parts(1000.0)?,
        "Maximum" | "max_lat (us)" | "maxlat" => figures.max = whole(1000)?,
        "Duration" | "runtime" | "duration" => {
            let seconds = parts(1e9)?;
            series.iter_mut().zip(seconds).for_each(|(series, time)| series.measured_ns = time as u64);
        }
        bucket => {
            let Some(value) = bucket.strip_suffix("(us)").and_then(|value| value.trim().parse::<u64>().ok())
            else {
                return Ok(());
            };
            let counts = whole(1)?;
            for (series, count) in series.iter_mut().zip(counts) {
                series.buckets.extend((count > 0).then_some((value.saturating_mul(1000), count)));
            }
        }
    }
    Ok(())
}
