//! `cyclictest -v`: a line for each sample, `thread: cycle: value`.

use crate::lines::ToolLines;
use crate::series::ToolSeries;
use crate::{Imported, Problem};
use std::collections::BTreeMap;

pub(crate) fn read(lines: &ToolLines<'_>) -> Result<Imported, Problem> {
    let mut threads: BTreeMap<u32, BTreeMap<u64, u64>> = BTreeMap::new();
    let mut intervals: BTreeMap<u32, u64> = BTreeMap::new();
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
            [Some(thread), Some(_), Some(us)] if thread < 4096 && us < u64::from(u32::MAX) => {
                *threads.entry(thread as u32).or_default().entry(us * 1000).or_default() += 1;
            }
            _ => {
                odd += 1;
                first_odd = first_odd.or(Some(line.problem("").line));
            }
        }
    }
    if threads.is_empty() {
        return Err(lines.ends("there is no line of a sample (`thread: cycle: value`)"));
    }
    let end = lines.ends("");
    let count = |values: &BTreeMap<u64, u64>| values.values().sum::<u64>();
    let mut remarks = vec![
        "the text does not say on which CPU a thread ran: the figures are of threads, by their number"
            .to_owned(),
    ];
    if let Some(line) = first_odd {
        remarks.push(format!("{odd} lines are no samples and were left out, the first at line {line}"));
    }
    // All threads measure for the same time.
    let times: Vec<u64> = threads
        .iter()
        .filter_map(|(thread, values)| Some(intervals.get(thread)?.saturating_mul(count(values))))
        .collect();
    if let (Some(least), Some(most)) = (times.iter().min(), times.iter().max())
        && *most as f64 > *least as f64 * 1.1
    {
        remarks.push("the intervals of the head (`Thread N Interval`) do not fit the numbers of samples: they are one step too large in some versions; none is taken as measured".to_owned());
    }
    let series = threads.into_iter().map(|(thread, values)| ToolSeries {
        count: Some(count(&values)),
        min_ns: values.keys().next().copied(),
        max_ns: values.keys().next_back().copied(),
        buckets: values.into_iter().collect(),
        at: (end.line, end.column),
        ..ToolSeries::of(thread)
    });
    Ok(Imported { probe: "timer", series: series.collect(), remarks, ..Imported::default() })
}
