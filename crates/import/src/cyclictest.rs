//! cyclictest's histogram (`-h`, `--histfile`) and its lines of threads.

use crate::lines::{ToolLine, ToolLines, Word};
use crate::options;
use crate::series::ToolSeries;
use crate::{Imported, Problem};
use whylate_core::figure::nanoseconds;
use whylate_core::order::InOrder;

pub(crate) fn read(lines: &ToolLines<'_>) -> Result<Imported, Problem> {
    if lines.behind("# Histogram").is_none() && lines.behind("# Min Latencies:").is_none() {
        return from_threads(lines);
    }
    let series = from_histogram(lines)?;
    let remark = "the text does not say on which CPU a thread ran: the figures are listed by thread number, not by CPU";
    // Without -q, the lines of threads stand before the histogram.
    let threads = lines.iter().filter_map(|line| thread_line(line, line.behind("T:")?).ok());
    let threads: Vec<ThreadLine> = threads.collect();
    // cyclictest prints each line of a thread again and again: only the last one counts.
    let last = threads.iter().rev().take(series.len());
    let unit = match threads.is_empty() {
        true => series.iter().filter_map(|it| it.mean_ns).find(|it| *it > MEAN_MAX_NS).map(mean_remark),
        false => maybe_nanoseconds(last),
    };
    let remarks = std::iter::once(remark.to_owned()).chain(unit).collect();
    Ok(Imported { probe: "timer", series, remarks, ..Imported::default() })
}

/// A histogram alone does not say the interval: with a mean above cyclictest's default one, the unit is doubtful.
const MEAN_MAX_NS: f64 = 1e6;

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
    // With `-H` the largest of all threads is behind the others.
    let mut max: Vec<u64> = summary(lines, "# Max Latencies:", None)?;
    if max.len() == min.len() + 1 && max.iter().take(min.len()).max() == max.last() {
        max.pop();
    }
    if max.len() != min.len() {
        return Err(lines.ends(format!(
            "{} threads have a minimum, but {} have a maximum",
            min.len(),
            max.len()
        )));
    }
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
    let is_summary_alone = series.iter().all(|series| series.limit_ns == 0);
    let totals: Vec<u64> = match lines.behind("# Total:").or_else(|| lines.behind("#  Total:")) {
        Some(line) => line.words().take(min.len()).map(Word::number).collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    for (thread, series) in series.iter_mut().enumerate() {
        series.over = over.get(thread).copied().unwrap_or(0);
        series.at = (end.line, end.column);
        let total = totals.get(thread).copied();
        let inside: u64 = series.buckets.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count));
        if let Some(total) = total.filter(|total| !series.buckets.is_empty() && *total != inside) {
            return Err(lines.ends(format!("`# Total:` has {total} samples of thread {thread}, but the rows have {inside}: lines are missing or changed")));
        }
        series.count = total.filter(|_| series.buckets.is_empty());
        // The extremes of a thread without samples are not measured values.
        if series.over > 0 || !series.buckets.is_empty() || is_summary_alone && max[thread] > 0 {
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

/// Letters of a run's name.
const HEADING_MAX: usize = 60;

/// The command in a line of a shell: `$ sudo cyclictest -S -p90`, `root@box:~# taskset -c 2 cyclictest`.
fn command(line: &str) -> Option<&str> {
    let at = line
        .find(['$', '#', '>'])
        .filter(|_| line.contains("cyclictest ") || line.contains("jitterdebugger "))?;
    let command = line[at..].trim_start_matches(['$', '#', '>', ' ']);
    let known = [
        "sudo",
        "cyclictest",
        "./cyclictest",
        "taskset",
        "chrt",
        "numactl",
        "jitterdebugger",
        "./jitterdebugger",
    ];
    known.iter().any(|name| command.starts_with(name)).then_some(command)
}

/// A thread that is late by more than its interval on average may have been read in the wrong unit.
fn maybe_nanoseconds<'l>(threads: impl IntoIterator<Item = &'l ThreadLine>) -> Option<String> {
    let interval_us = threads.into_iter().find_map(|thread| {
        let us = thread.interval_us.filter(|us| *us > 0)?;
        thread.figures.mean_ns.filter(|mean_ns| *mean_ns > f64::from(us) * 1000.0).map(|_| us)
    })?;
    Some(nanoseconds_remark(interval_us.into()))
}

fn mean_remark(mean_ns: f64) -> String {
    format!(
        "the mean latency is {}: the figures may be nanoseconds (-N), and are read as microseconds",
        nanoseconds(mean_ns as u64)
    )
}

pub(crate) fn nanoseconds_remark(interval_us: u64) -> String {
    format!(
        "the mean latency is longer than the interval ({}): the figures may be nanoseconds (-N), and are read as microseconds",
        nanoseconds(interval_us.saturating_mul(1000))
    )
}

/// A line of a thread, as cyclictest and jitterdebugger print it.
struct ThreadLine {
    number: u32,
    /// The thread id; another one for the same number is another run.
    tid: u32,
    priority: Option<u32>,
    interval_us: Option<u32>,
    /// jitterdebugger's `A:`.
    cpu: Option<u32>,
    figures: ToolSeries,
}

/// `T: 0 (  163) P:99 I:1000 C:   5000 Min:     27 Act:   30 Avg:   31 Max:      51`; `T: 0 ( 1879) A: 0 C:     82959 Min:
/// 7 Avg:   11.88 Max:       103`. The last line of each thread counts.
fn from_threads(lines: &ToolLines<'_>) -> Result<Imported, Problem> {
    let mut runs: Vec<(String, Vec<ThreadLine>)> = Vec::new();
    let mut heading = String::new();
    let mut odd: Option<Problem> = None;
    let (mut is_one_dash, mut is_ns) = (false, false);
    for line in lines.iter() {
        is_one_dash |= line.text.contains("defaulting realtime priority") || line.text.contains(" -smp ");
        let Some(rest) = line.behind("T:") else {
            if let Some(command) = command(line.text) {
                is_ns |= options::is_in_nanoseconds(command);
                if heading.is_empty() {
                    heading = command.chars().take(HEADING_MAX).collect();
                }
                continue;
            }
            let title = line.text.trim_matches(['#', ' ']).trim_end_matches(':');
            let is_title = line.text.starts_with('#') && !title.starts_with('/') && !title.is_empty();
            if is_title {
                title.clone_into(&mut heading);
            }
            continue;
        };
        let read = match thread_line(line, rest) {
            Ok(read) => read,
            Err(problem) => {
                odd = odd.or(Some(problem));
                continue;
            }
        };
        let is_new = |run: &Vec<ThreadLine>| {
            run.iter().any(|known| known.number == read.number && known.tid != read.tid)
        };
        if runs.last().is_none_or(|(_, run)| is_new(run)) {
            runs.push((std::mem::take(&mut heading), Vec::new()));
        }
        let Some((_, run)) = runs.last_mut() else { continue };
        match run.iter_mut().find(|known| known.number == read.number) {
            Some(known) => *known = read,
            None => run.push(read),
        }
    }
    if runs.is_empty() {
        return Err(odd.unwrap_or_else(|| lines.ends("there is no line of a thread (`T: 0 …`)")));
    }
    let mut remarks = remarks(&runs, is_one_dash);
    if is_ns {
        remarks.push("the command line has -N: the values are nanoseconds".to_owned());
    } else {
        remarks.extend(maybe_nanoseconds(runs.iter().flat_map(|(_, run)| run)));
    }
    remarks.extend(
        odd.map(|problem| format!("line {}: {}; this line was left out", problem.line, problem.message)),
    );
    let is_one = runs.len() == 1;
    let mut series = Vec::new();
    for (index, (title, mut run)) in runs.into_iter().enumerate() {
        run.order_by_key(|thread| thread.number);
        let title = if title.is_empty() { String::new() } else { format!(" ({title})") };
        series.extend(run.into_iter().map(|thread| ToolSeries {
            series: (!is_one).then(|| format!("run {}{title}", index + 1).into()),
            cpu: thread.cpu.unwrap_or(thread.number),
            ..if is_ns { thread.figures.in_nanoseconds() } else { thread.figures }
        }));
    }
    remarks.extend(series.iter().filter_map(|series| crate::screens::distrusted(series, 0)));
    Ok(Imported { probe: "timer", series, remarks, ..Imported::default() })
}

fn thread_line(line: ToolLine<'_>, rest: ToolLine<'_>) -> Result<ThreadLine, Problem> {
    let number: u32 =
        rest.words().next().ok_or_else(|| line.problem("the thread's number is missing"))?.number()?;
    let value = |key: &str| {
        let at = rest.text.find(key)?;
        rest.behind(&rest.text[..at + key.len()])?.words().next()
    };
    let figure = |key: &str| -> Result<f64, Problem> {
        let word =
            value(key).ok_or_else(|| line.problem(format!("`{key}` is missing: is the line cut off?")))?;
        let figure: f64 = word.number()?;
        (0.0..1e12).contains(&figure).then_some(figure).ok_or_else(|| word.problem("this is not a latency"))
    };
    let whole = |key: &str| value(key).and_then(|word| word.number::<u32>().ok());
    let tid = rest.text.split(['(', ')']).nth(1).and_then(|it| it.trim().parse().ok()).unwrap_or(0);
    let ns = |us: f64| (us * 1000.0).round();
    let (min, mean, max) = (figure("Min:")?, figure("Avg:")?, figure("Max:")?);
    if min > max {
        return Err(line.problem("the smallest value is above the largest"));
    }
    let figures = ToolSeries {
        count: Some(figure("C:")? as u64),
        min_ns: Some(ns(min) as u64),
        mean_ns: Some(ns(mean)),
        max_ns: Some(ns(max) as u64),
        ..ToolSeries::of(number)
    };
    Ok(ThreadLine {
        number,
        tid,
        priority: whole("P:"),
        interval_us: whole("I:"),
        cpu: whole(" A:"),
        figures,
    })
}

/// What the screens say in addition to their figures, and what they do not say.
fn remarks(runs: &[(String, Vec<ThreadLine>)], is_one_dash: bool) -> Vec<String> {
    let all = || runs.iter().flat_map(|(_, run)| run);
    let mut remarks = Vec::new();
    if all().any(|thread| thread.cpu.is_none()) {
        remarks.push(
            "the text does not say on which CPU a thread ran: the figures are listed by thread number, not by CPU"
                .to_owned(),
        );
    }
    if runs.len() > 1 {
        remarks.push(format!("{} runs in one file: each is a separate series", runs.len()));
    }
    // Threads of interrupts have priority 50.
    if let Some(lowest) = all().filter_map(|thread| thread.priority).min().filter(|lowest| *lowest < 50) {
        let what = match lowest {
            0 => "as ordinary tasks, without a real-time priority".to_owned(),
            _ => format!("at priority {lowest}, below the threads of interrupts (50)"),
        };
        let dash = if is_one_dash {
            "; cyclictest reads `-smp` as -s -m -p: write --smp or -S, and -p followed by the priority"
        } else {
            ""
        };
        remarks.push(format!(
            "the measuring threads ran {what}: a task of a higher priority has other latencies{dash}"
        ));
    }
    remarks
}
