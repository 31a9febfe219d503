//! Screens of tools that print minima, means and maxima: Xenomai's and EVL's `latency`, RTAI's, LAVA's results of tests,
//! LinuxCNC's latency tests, performance tables of ROS 2, `stress-ng --cyclic`, the kernel's latency_hist.

use crate::lines::{ToolLine, ToolLines, Word};
use crate::series::ToolSeries;
use crate::{Imported, Problem};
use std::collections::BTreeMap;
use whylate_core::figure::nanoseconds;

/// `RTD|`, `RTS|` and their kin: a column by its title, above it in `RTH|`. `RTS` counts, else the last `RTD`.
pub(crate) fn latency(lines: &ToolLines<'_>) -> Result<Imported, Problem> {
    // RTAI counts nanoseconds and does not say so in each version.
    let is_rtai = lines.iter().any(|line| line.text.contains("RTAI") || line.text.contains("ovl max"));
    let unit_ns =
        if is_rtai && !lines.iter().any(|line| line.text.contains("microseconds")) { 1.0 } else { 1000.0 };
    let mut titles: Vec<String> = Vec::new();
    let (mut period_ns, mut priority, mut cpu) = (None, None, None);
    let mut rows: Vec<(ToolLine<'_>, bool, Vec<String>)> = Vec::new();
    for line in lines.iter() {
        let columns = |rest: &str| -> Vec<String> {
            rest.split('|')
                .map(|it| it.trim_matches(|letter: char| letter == '-' || letter.is_whitespace()).to_owned())
                .collect()
        };
        if let Some(rest) = line.behind("RTH|") {
            titles = columns(rest.text);
        } else if let Some(rest) = line.behind("RTT|") {
            let number = |before: &str| {
                rest.text
                    .split(before)
                    .next()
                    .and_then(|it| it.split([' ', '(', ',']).rfind(|it| !it.is_empty())?.parse::<u64>().ok())
            };
            period_ns = number(" us period").map(|us| us * 1000).or(period_ns);
            priority = rest
                .text
                .split("priority ")
                .nth(1)
                .and_then(|it| it.split(|it: char| !it.is_ascii_digit()).next()?.parse::<u64>().ok());
            cpu = rest
                .text
                .split("CPU")
                .nth(1)
                .and_then(|it| it.split(|it: char| !it.is_ascii_digit()).next()?.parse::<u32>().ok());
        } else if let Some(rest) = line.behind("RTD|") {
            rows.push((line, false, values(rest.text)));
            if rows.len() > 1 && !rows[rows.len() - 2].1 {
                rows.remove(rows.len() - 2);
            }
        } else if let Some(rest) = line.behind("RTS|") {
            rows.push((line, true, values(rest.text)));
        }
    }
    let Some((line, is_sum, row)) = rows.iter().rfind(|row| row.1).or(rows.last()) else {
        return Err(lines.ends("there is no row of figures (`RTD|…`, `RTS|…`)"));
    };
    let column = |names: &[&str]| {
        let place = |name: &&str| titles.iter().position(|title| title == name);
        let at = names.iter().find_map(place)?;
        row.get(at)?.parse::<f64>().ok()
    };
    // RTS has the columns of the head without those of one second; its last is the time.
    let (min, mean, max, overruns) = if *is_sum {
        let figure = |at: usize| row.get(at).and_then(|it| it.parse::<f64>().ok());
        (figure(0), figure(1), figure(2), figure(3))
    } else {
        (
            column(&["lat best", "ovl min", "lat min"]),
            None,
            column(&["lat worst", "ovl max", "lat max"]),
            column(&["overrun", "overruns"]),
        )
    };
    let ns = |figure: f64| (figure * unit_ns).round();
    let (Some(min), Some(max)) = (min.map(ns), max.map(ns)) else {
        return Err(line.problem("the row lacks figures: is it cut off?"));
    };
    let time = row.iter().find(|it| it.contains(':')).map_or(0, |text| hours(text));
    let end = line.problem("");
    let mut remarks = Vec::new();
    // A latency below zero is that of a timer that was set too early by its calibration.
    if min < 0.0 {
        remarks.push(format!("the smallest latency is {min} ns: the timer expired early (calibration), and the latency is counted as 0"));
    }
    if !is_sum {
        remarks.push(
            "the closing line (RTS) is missing: the largest and the smallest latency are from the last RTD \
             line, and the mean is not known"
                .to_owned(),
        );
    }
    if cpu.is_none() {
        remarks.push("the text does not say on which CPU the task ran".to_owned());
    }
    if let Some(priority) = priority {
        remarks.push(format!(
            "the task ran at priority {priority}; with Xenomai or EVL, this is the latency of a co-kernel \
             timer, not of a Linux timer"
        ));
    }
    let series = ToolSeries {
        count: Some(period_ns.filter(|ns| *ns > 0).map_or(0, |ns| time / ns)).filter(|count| *count > 0),
        min_ns: Some(min.max(0.0) as u64),
        mean_ns: mean.map(ns).filter(|it| *it >= 0.0),
        max_ns: Some(max.max(0.0) as u64),
        overruns: overruns.map(|count| count as u64),
        measured_ns: time,
        at: (end.line, end.column),
        ..ToolSeries::of(cpu.unwrap_or(0))
    };
    Ok(Imported { probe: "timer", series: vec![series], remarks, ..Imported::default() })
}

fn values(text: &str) -> Vec<String> {
    text.split('|').map(|it| it.trim().to_owned()).collect()
}

/// `00:01:00/00:01:00`, in nanoseconds.
fn hours(text: &str) -> u64 {
    let first = text.split('/').next().unwrap_or_default();
    let seconds =
        first.split(':').try_fold(0u64, |sum, part| sum.checked_mul(60)?.checked_add(part.parse().ok()?));
    seconds.and_then(|it| it.checked_mul(1_000_000_000)).unwrap_or(0)
}

/// `stress-ng --cyclic`: nanoseconds, quantiles that the tool computed.
pub(crate) fn stress_ng(lines: &ToolLines<'_>) -> Result<Imported, Problem> {
    let mut all: Vec<ToolSeries> = Vec::new();
    let mut percentiles: Vec<Vec<(f64, u64)>> = Vec::new();
    let mut remarks = Vec::new();
    for line in lines.iter() {
        let Some((_, text)) = line.text.split_once("cyclic:") else { continue };
        let text = text.trim();
        let number = |key: &str| {
            text.split(key)
                .nth(1)
                .and_then(|rest| rest.trim_start().split([' ', ',']).next()?.parse::<f64>().ok())
        };
        if let Some(policy) = text.strip_prefix("sched ") {
            let run = all.len() as u32;
            let samples = text.split(" samples").next().and_then(|it| it.rsplit(' ').next()?.parse().ok());
            all.push(ToolSeries { count: samples, ..ToolSeries::of(run) });
            percentiles.push(Vec::new());
            remarks.push(format!("stress-ng measured with {policy}, in one thread on an unknown CPU"));
            continue;
        }
        let (Some(series), Some(own)) = (all.last_mut(), percentiles.last_mut()) else { continue };
        let end = line.problem("");
        series.at = (end.line, end.column);
        if let Some(mean) = number("mean:") {
            series.mean_ns = Some(mean);
        }
        if let (Some(min), Some(max)) = (number("min:"), number("max:")) {
            (series.min_ns, series.max_ns) = (Some(min as u64), Some(max as u64));
        }
        if let Some((share, rest)) = text.split_once("%:")
            && let (Ok(share), Some(ns)) = (share.trim().parse::<f64>(), rest.split_whitespace().next())
        {
            own.push((share / 100.0, ns.parse().map_err(|_| line.problem("the percentile has no value"))?));
        }
    }
    if all.iter().all(|series| series.max_ns.is_none()) {
        return Err(lines
            .ends("there is no line `cyclic: min: … max: …`: the run did not end, or the text is cut off"));
    }
    for (series, own) in all.iter_mut().zip(percentiles) {
        series.quantiles = quantiles(series, &own);
    }
    if all.len() > 1 {
        remarks.push(format!(
            "{} runs in one file: they are listed as CPUs 0 to {}",
            all.len(),
            all.len() - 1
        ));
    }
    if all.iter().filter_map(|series| series.count).any(|count| count <= 10_000) {
        remarks.push("with at most 10,000 samples, the 99.99 % value is one sample, the maximum".to_owned());
    }
    Ok(Imported { probe: "timer", series: all, remarks, ..Imported::default() })
}

/// Where median, 0.99, 0.999 and 0.9999 are all there.
fn quantiles(series: &ToolSeries, own: &[(f64, u64)]) -> Option<whylate_core::result::Quantiles> {
    let at = |wanted: f64| own.iter().find(|(share, _)| (share - wanted).abs() < 1e-9).map(|(_, ns)| *ns);
    Some(whylate_core::result::Quantiles {
        min_ns: series.min_ns?,
        mean_ns: series.mean_ns?,
        p50_ns: at(0.5)?,
        p99_ns: at(0.99)?,
        p999_ns: at(0.999)?,
        p9999_ns: at(0.9999)?,
        max_ns: series.max_ns?,
    })
}

/// LAVA: `Test Case t0-max-latency: Test failed` and `Measurement: 9398.0 us` behind it, in mails also with `=20` and broken
/// lines; or the signals of a job's log, `TEST_CASE_ID=t0-max-latency … MEASUREMENT=34`.
pub(crate) fn lava(lines: &ToolLines<'_>) -> Result<Imported, Problem> {
    let mut all: BTreeMap<u32, ToolSeries> = BTreeMap::new();
    let mut case: Option<(u32, String)> = None;
    let mut job_ns = 0;
    let mut soft = String::new();
    for line in lines.iter() {
        // Quoted-printable: `=` at the end of a line joins the next one.
        soft.push_str(&line.text.replace("=20", " ").replace("=3D", "="));
        if soft.ends_with('=') {
            soft.pop();
            continue;
        }
        let text = std::mem::take(&mut soft);
        let text = text.trim();
        if let Some(time) = text.strip_prefix("Duration:") {
            job_ns = hours(time.trim());
        }
        let name = text
            .strip_prefix("Test Case ")
            .and_then(|it| it.split(':').next())
            .or_else(|| text.split("TEST_CASE_ID=").nth(1)?.split_whitespace().next());
        if let Some(name) = name {
            case = latency_case(name);
        }
        let value = text.strip_prefix("Measurement:").or_else(|| text.split("MEASUREMENT=").nth(1));
        if let (Some(value), Some((thread, what))) = (value, &case) {
            let mut words = value.split_whitespace();
            let number: f64 = words
                .next()
                .and_then(|it| it.trim_end_matches('>').parse().ok())
                .ok_or_else(|| line.problem("the measurement has no numeric value"))?;
            let unit = text
                .split("UNITS=")
                .nth(1)
                .and_then(|it| it.split_whitespace().next())
                .or(words.next())
                .unwrap_or("us");
            let unit_ns = match unit {
                "ns" => 1.0,
                "ms" => 1e6,
                // The duration of another case: the line with this one's latency is missing.
                "s" | "seconds" => {
                    case = None;
                    continue;
                }
                _ => 1e3,
            };
            let ns = (number * unit_ns).max(0.0);
            let series = all.entry(*thread).or_insert_with(|| ToolSeries::of(*thread));
            let end = line.problem("");
            series.at = (end.line, end.column);
            match what.as_str() {
                "min" => series.min_ns = Some(ns as u64),
                "avg" => series.mean_ns = Some(ns),
                _ => series.max_ns = Some(ns as u64),
            }
            case = None;
        }
    }
    if all.is_empty() {
        return Err(lines.ends("there is no test case of a latency (`t0-max-latency`) with a measurement"));
    }
    let series: Vec<ToolSeries> = all.into_values().collect();
    let mut remarks = vec![
        "LAVA's \"passed\" and \"failed\" compare with the test's own limit; the file has figures for each thread, but no samples"
            .to_owned(),
    ];
    remarks.extend(series.iter().filter_map(|series| distrusted(series, job_ns)));
    Ok(Imported { probe: "timer", series, remarks, ..Imported::default() })
}

/// `t0-max-latency`.
fn latency_case(name: &str) -> Option<(u32, String)> {
    let (thread, rest) = name.strip_prefix('t')?.split_once('-')?;
    let what = rest.strip_suffix("-latency").filter(|it| matches!(*it, "min" | "avg" | "max"))?;
    Some((thread.parse().ok()?, what.to_owned()))
}

/// Figures that a late task cannot cause.
pub(crate) fn distrusted(series: &ToolSeries, run_ns: u64) -> Option<String> {
    let (min, mean, max) = (series.min_ns?, series.mean_ns?, series.max_ns?);
    let thread = series.cpu;
    let of_run = run_ns > 0 && max as f64 > run_ns as f64 * 0.25;
    if max >= 60_000_000_000 || of_run {
        return Some(format!(
            "thread {thread}: a maximum of {} with a mean of {} is no latency; the measured value kept \
             growing, from an error of the test or of its clock",
            nanoseconds(max),
            nanoseconds(mean as u64)
        ));
    }
    (min > 500_000 && max as f64 <= min as f64 * 1.05).then(|| {
        format!(
            "thread {thread}: all samples are near {}: the timer has no high resolution (the tick is 10 ms \
             at 100 Hz, 4 ms at 250 Hz), and no task is late. Look at CONFIG_HIGH_RES_TIMERS and \
             `.resolution` in /proc/timer_list",
            nanoseconds(mean as u64)
        )
    })
}

/// The kernel's latency_hist (OSADL): microseconds, rows of a value and its count.
pub(crate) fn latency_hist(lines: &ToolLines<'_>) -> Result<Imported, Problem> {
    let figure = |start: &str| -> Result<Option<u64>, Problem> {
        lines
            .behind(start)
            .map(|line| line.words().next().ok_or_else(|| line.problem("the number is missing"))?.number())
            .transpose()
    };
    let mut series = ToolSeries::of(0);
    (series.min_ns, series.max_ns) =
        (figure("#Minimum latency:")?.map(|us| us * 1000), figure("#Maximum latency:")?.map(|us| us * 1000));
    series.mean_ns = figure("#Average latency:")?.map(|us| us as f64 * 1000.0);
    for line in lines.iter() {
        if line.text.contains("greater or equal than") {
            let mut words = line.words().filter(|word| word.text.starts_with(|it: char| it.is_ascii_digit()));
            series.over = words.next().map_or(Ok(0), Word::number)?;
            series.limit_ns = words.next().map_or(Ok(0), Word::number::<u64>)?.saturating_mul(1000);
        }
        if line.text.starts_with(|it: char| it.is_ascii_digit()) {
            let mut words = line.words();
            let (Some(us), Some(count)) = (words.next(), words.next()) else {
                return Err(line.problem("a row needs a value and a count: is this row cut off?"));
            };
            let count: u64 = count.number()?;
            let value_ns = u64::from(us.number::<u32>()?) * 1000;
            series.buckets.extend((count > 0).then_some((value_ns, count)));
            series.limit_ns = series.limit_ns.max(value_ns + 1000);
        }
        let end = line.problem("");
        series.at = (end.line, end.column);
    }
    let samples = figure("#Total samples:")?;
    if samples == Some(0) {
        return Err(lines.ends("the histogram has no sample"));
    }
    if series.buckets.is_empty() && series.over == 0 {
        series.count = samples;
    }
    let remark = "only the file's path names the CPU and the kind of latency; the file itself does not";
    Ok(Imported {
        probe: "histograms",
        series: vec![series],
        remarks: vec![remark.to_owned()],
        ..Imported::default()
    })
}

/// LinuxCNC's `latency-test` and `latency-plot`: rows of threads with their largest interval and jitter, in nanoseconds.
pub(crate) fn linuxcnc(lines: &ToolLines<'_>) -> Result<Imported, Problem> {
    let mut all = Vec::new();
    for line in lines.iter() {
        let name = ["Servo thread", "Base thread"].into_iter().find(|name| line.text.starts_with(name));
        let Some(name) = name else { continue };
        let rest = line.text.split(')').next_back().unwrap_or_default();
        let numbers: Vec<u64> = rest
            .split(|it: char| it.is_whitespace() || it == ':' || it == '|')
            .filter_map(|it| it.replace(',', "").parse().ok())
            .collect();
        // Largest interval, largest jitter, last interval.
        let [_, jitter, ..] = numbers[..] else {
            return Err(
                line.problem("this row needs the largest interval, the largest jitter and the last interval")
            );
        };
        let end = line.problem("");
        all.push(ToolSeries {
            series: Some(if name.starts_with('S') { "servo" } else { "base" }.into()),
            max_ns: Some(jitter),
            at: (end.line, end.column),
            ..ToolSeries::of(0)
        });
    }
    if all.is_empty() {
        return Err(lines.ends("there is no row of a thread (`Servo thread (1.0ms): …`)"));
    }
    let remark = "LinuxCNC's jitter is the largest deviation of an interval from the period, on an unknown CPU; LinuxCNC prints no quantiles";
    Ok(Imported { probe: "timer", series: all, remarks: vec![remark.to_owned()], ..Imported::default() })
}

/// Apex.AI's performance_test for ROS 2: a table, whose columns `latency_min (ms)`, … are of one second each.
pub(crate) fn ros2(lines: &ToolLines<'_>) -> Result<Imported, Problem> {
    let header = lines
        .iter()
        .find(|line| line.text.contains("latency_max (ms)"))
        .ok_or_else(|| lines.ends("the header line of the table is missing"))?;
    let titles: Vec<&str> = header.text.split([',', '\t']).map(str::trim).collect();
    let place = |name: &str| titles.iter().position(|title| title.starts_with(name));
    let (min, max, mean) = (place("latency_min"), place("latency_max"), place("latency_mean"));
    let received = place("received");
    let mut series = ToolSeries::of(0);
    let (mut rows, mut sum, mut count) = (0u64, 0.0, 0.0);
    for line in lines.iter().skip_while(|line| !line.text.contains("latency_max (ms)")).skip(1) {
        let cells: Vec<&str> = line.text.split([',', '\t']).map(str::trim).collect();
        let number = |at: Option<usize>| cells.get(at?)?.parse::<f64>().ok().filter(|it| *it >= 0.0);
        let (Some(min), Some(max)) = (number(min), number(max)) else { continue };
        let ns = |ms: f64| (ms * 1e6).round() as u64;
        let weight = number(received).unwrap_or(1.0);
        rows += 1;
        if weight > 0.0 && max > 0.0 {
            series.min_ns = Some(series.min_ns.map_or(ns(min), |it| it.min(ns(min))));
            series.max_ns = Some(series.max_ns.map_or(ns(max), |it| it.max(ns(max))));
            sum += number(mean).unwrap_or(0.0) * 1e6 * weight;
            count += weight;
        }
        let end = line.problem("");
        series.at = (end.line, end.column);
    }
    if rows == 0 || count <= 0.0 {
        return Err(lines.ends("the table has no row with a latency"));
    }
    series.mean_ns = Some(sum / count);
    series.count = received.is_some().then_some(count as u64);
    let remark = format!(
        "each of the {rows} rows is one interval, without quantiles; the latency is measured between two nodes, and includes waiting for a CPU"
    );
    Ok(Imported { probe: "timer", series: vec![series], remarks: vec![remark], ..Imported::default() })
}
