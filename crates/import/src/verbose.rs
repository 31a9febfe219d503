//! `cyclictest -v`: a line for each sample, `thread: cycle: value`.

use crate::lines::ToolLines;
use crate::series::ToolSeries;
use crate::signatures::{self, Moment};
use crate::{Imported, Problem};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn read(lines: &ToolLines<'_>) -> Result<Imported, Problem> {
    let mut threads: BTreeMap<u32, BTreeMap<u64, u64>> = BTreeMap::new();
    let mut intervals: BTreeMap<u32, u64> = BTreeMap::new();
    let mut largest: BTreeMap<u32, BTreeSet<(u64, u64)>> = BTreeMap::new();
    let (mut odd, mut first_odd) = (0u64, None);
    for line in lines.iter() {
        if let Some(rest) = line.behind("Thread ") {
            let mut words = rest.words();
            if let (Some(thread), Some(_), Some(us)) = (words.next(), words.next(), words.next())
                && let (Ok(thread), Ok(us)) = (thread.number(), us.number())
            {
                intervals.insert(thread, us);
            }
            continue;
        }
        if !line.text.starts_with(|it: char| it.is_ascii_digit()) {
            continue;
        }
        let parts: Vec<Option<u64>> = line.text.split(':').map(|it| it.trim().parse().ok()).collect();
        match parts[..] {
            [Some(thread), Some(cycle), Some(us)] if thread < 4096 && us < u64::from(u32::MAX) => {
                *threads.entry(thread as u32).or_default().entry(us * 1000).or_default() += 1;
                let largest = largest.entry(thread as u32).or_default();
                largest.insert((us, cycle));
                if largest.len() > LARGEST_MAX {
                    largest.pop_first();
                }
            }
            _ => {
                odd += 1;
                first_odd = first_odd.or(Some(line.problem("").line));
            }
        }
    }
    if threads.is_empty() {
        return Err(lines.ends("no line has a sample (`thread: cycle: value`)"));
    }
    let end = lines.ends("");
    let count = |values: &BTreeMap<u64, u64>| values.values().sum::<u64>();
    let mut remarks = vec![
        "the text does not say on which CPU a thread ran: the figures are listed by thread number, not by CPU"
            .to_owned(),
    ];
    if let Some(line) = first_odd {
        remarks.push(format!("lines that are not samples were left out: {odd}, the first at line {line}"));
    }
    // The mean of a thread is longer than its interval.
    let is_too_long = |(thread, values): (&u32, &BTreeMap<u64, u64>)| {
        let interval_us = *intervals.get(thread)?;
        let sum = |(value_ns, count): (&u64, &u64)| *value_ns as f64 * *count as f64;
        let mean_ns = values.iter().map(sum).sum::<f64>() / count(values).max(1) as f64;
        (interval_us > 0 && mean_ns > interval_us as f64 * 1000.0).then_some(interval_us)
    };
    remarks.extend(threads.iter().find_map(is_too_long).map(crate::cyclictest::nanoseconds_remark));
    // All threads measure for the same time.
    let times: Vec<u64> = threads
        .iter()
        .filter_map(|(thread, values)| Some(intervals.get(thread)?.saturating_mul(count(values))))
        .collect();
    if let (Some(least), Some(most)) = (times.iter().min(), times.iter().max())
        && *most as f64 > *least as f64 * 1.1
    {
        remarks.push(
            "the intervals in the header (`Thread N Interval`) do not match the numbers of samples and are \
             not used; some versions of cyclictest print them one step too long"
                .to_owned(),
        );
    }
    let counts: BTreeMap<u32, u64> =
        threads.iter().map(|(thread, values)| (*thread, count(values))).collect();
    let signatures = measured_intervals(&intervals, &counts).map_or_else(Vec::new, |intervals| {
        let mut moments: Vec<Moment> = Vec::new();
        for (thread, samples) in &largest {
            let Some(us) = intervals.get(thread) else { continue };
            let least = threads[thread]
                .keys()
                .next()
                .copied()
                .unwrap_or(0)
                .saturating_mul(TIMES_ORDINARY)
                .max(LATE_NS_MIN);
            let late = samples.iter().filter(|(value, _)| value * 1000 >= least);
            moments.extend(late.map(|(value, cycle)| Moment {
                at_ns: cycle.saturating_mul(us * 1000),
                thread: *thread,
                ns: value * 1000,
            }));
        }
        signatures::of_moments(&moments, threads.len())
    });
    let series = threads.into_iter().map(|(thread, values)| ToolSeries {
        count: Some(count(&values)),
        min_ns: values.keys().next().copied(),
        max_ns: values.keys().next_back().copied(),
        buckets: values.into_iter().collect(),
        at: (end.line, end.column),
        ..ToolSeries::of(thread)
    });
    Ok(Imported { probe: "timer", series: series.collect(), remarks, signatures, ..Imported::default() })
}

/// The largest samples of a thread that are kept with their moments.
const LARGEST_MAX: usize = 256;
/// As many times the smallest sample, and this, are late.
const TIMES_ORDINARY: u64 = 10;
const LATE_NS_MIN: u64 = 50_000;

/// The interval of each thread in us, by the head where it fits the numbers of samples, else one step less, which some versions
/// print too much; `None` if neither fits.
fn measured_intervals(head: &BTreeMap<u32, u64>, counts: &BTreeMap<u32, u64>) -> Option<BTreeMap<u32, u64>> {
    let mut values = head.values();
    let step = values.next().zip(values.next()).map_or(0, |(first, second)| second.saturating_sub(*first));
    let fits = |intervals: &BTreeMap<u32, u64>| {
        let times =
            counts.iter().filter_map(|(thread, count)| Some(intervals.get(thread)?.saturating_mul(*count)));
        let (least, most) = times.fold((u64::MAX, 0), |(least, most), it| (it.min(least), it.max(most)));
        least > 0 && most as f64 <= least as f64 * 1.05
    };
    let less = |by: u64| head.iter().map(|(thread, us)| (*thread, us.saturating_sub(by))).collect();
    [0, step].into_iter().map(less).find(fits)
}
