//! Tools that print percentiles and no samples: schbench.

use crate::lines::ToolLines;
use crate::series::ToolSeries;
use crate::{Imported, Problem};
use whylate_core::figure::nanoseconds;

/// `Wakeup Latencies percentiles (usec) runtime 100 (s) (941339 total samples)`, rows `* 99.0th: 7448 (84115 samples)` and
/// `min=1, max=15186`; old versions have `Latency percentiles (usec)` alone. The last block of each kind counts.
pub(crate) fn schbench(lines: &ToolLines<'_>) -> Result<Imported, Problem> {
    let mut all: Vec<(ToolSeries, Vec<(String, u64)>)> = Vec::new();
    let mut is_latency = false;
    for line in lines.iter() {
        if let Some((name, rest)) = line.text.split_once("percentiles (") {
            is_latency = rest.starts_with("usec") && name.contains("Latenc");
            if !is_latency {
                continue;
            }
            let name = if name.starts_with("Request") { "request" } else { "wakeup" };
            let number = |before: &str| {
                rest.split(before).next()?.rsplit(['(', ' ']).find(|it| !it.is_empty())?.parse().ok()
            };
            let seconds: Option<u64> =
                rest.split("runtime ").nth(1).and_then(|it| it.split(' ').next()?.parse().ok());
            all.retain(|(series, _)| series.series.as_deref() != Some(name));
            all.push((
                ToolSeries {
                    series: Some(name.into()),
                    count: number(" total samples").filter(|_| rest.contains(" total samples")),
                    measured_ns: seconds.unwrap_or(0).saturating_mul(1_000_000_000),
                    ..ToolSeries::of(0)
                },
                Vec::new(),
            ));
            continue;
        }
        let Some((series, percentiles)) = all.last_mut().filter(|_| is_latency) else { continue };
        let end = line.problem("");
        series.at = (end.line, end.column);
        let text = line.text.trim_start_matches(['*', ' ']);
        if let Some((share, rest)) = text.split_once("th:") {
            let us = rest.split_whitespace().next().and_then(|it| it.parse::<u32>().ok());
            let us = us.ok_or_else(|| line.problem("the percentile has no value"))?;
            percentiles
                .push((share.trim_end_matches('0').trim_end_matches('.').to_owned(), u64::from(us) * 1000));
        } else if let Some((min, max)) = text.strip_prefix("min=").and_then(|it| it.split_once(", max=")) {
            let us = |text: &str| {
                text.trim()
                    .parse::<u32>()
                    .map_err(|_| line.problem("the smallest or largest value is not a number"))
            };
            (series.min_ns, series.max_ns) =
                (Some(u64::from(us(min)?) * 1000), Some(u64::from(us(max)?) * 1000));
        }
    }
    all.retain(|(series, _)| series.max_ns.is_some());
    if all.is_empty() {
        return Err(lines.ends("there is no row of extremes (`min=1, max=15186`): is the text cut off?"));
    }
    let mut remarks = vec![
        "schbench runs many ordinary threads on all CPUs: the figures are waits for a CPU (wakeup) and whole requests of all threads together"
            .to_owned(),
    ];
    for (series, percentiles) in &all {
        let inside = |(_, ns): &&(String, u64)| series.max_ns.is_none_or(|max| *ns <= max);
        let is_sorted =
            percentiles.is_sorted_by_key(|(_, ns)| *ns) && percentiles.iter().all(|it| inside(&it));
        if !is_sorted {
            return Err(lines.ends("the percentiles are not in order: lines are missing or changed"));
        }
        let list: Vec<String> =
            percentiles.iter().map(|(share, ns)| format!("{share} % {}", nanoseconds(*ns))).collect();
        if !list.is_empty() {
            remarks.push(format!(
                "percentiles of {}: {}",
                series.series.as_deref().unwrap_or_default(),
                list.join(", ")
            ));
        }
    }
    let series = all.into_iter().map(|(series, _)| series).collect();
    Ok(Imported { probe: "timer", series, remarks, ..Imported::default() })
}
