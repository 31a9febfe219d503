//! rteval's `summary.xml`: the statistics of each core that its cyclictest or timerlat measured.

use crate::lines::ToolLines;
use crate::series::ToolSeries;
use crate::{Imported, Problem};

pub(crate) fn read(lines: &ToolLines<'_>) -> Result<Imported, Problem> {
    let text: String = lines.iter().flat_map(|line| [line.text, "\n"]).collect();
    let mut series = Vec::new();
    for part in text.split("<core ").skip(1) {
        let part = part.split("</core>").next().unwrap_or(part);
        let Some(cpu) = attribute(part, "id").and_then(|it| it.parse::<u32>().ok()) else { continue };
        let statistics = part.split("<statistics>").nth(1).unwrap_or(part);
        let figure = |name: &str| {
            let (_, rest) = statistics.split_once(&format!("<{name}"))?;
            let (head, rest) = rest.split_once('>')?;
            let value: f64 = rest.split('<').next()?.trim().parse().ok()?;
            let unit_ns = if attribute(head, "unit").as_deref() == Some("ns") { 1.0 } else { 1000.0 };
            Some((value, value * unit_ns))
        };
        let mut own = ToolSeries::of(cpu);
        own.count = figure("samples").map(|(count, _)| count as u64);
        own.min_ns = figure("minimum").map(|(_, ns)| ns as u64);
        own.mean_ns = figure("mean").map(|(_, ns)| ns);
        own.max_ns = figure("maximum").map(|(_, ns)| ns as u64);
        for bucket in part.split("<bucket ").skip(1) {
            let number = |name| attribute(bucket, name).and_then(|it| it.parse::<u64>().ok());
            if let (Some(us), Some(count)) = (number("index"), number("value")) {
                own.buckets.extend((count > 0).then_some((us.saturating_mul(1000), count)));
            }
        }
        own.limit_ns = own.buckets.last().map_or(0, |(ns, _)| ns.saturating_add(1000));
        let inside: u64 =
            own.buckets.iter().map(|(_, count)| count).fold(0, |sum, it| sum.saturating_add(*it));
        own.over = own.count.map_or(0, |count| count.saturating_sub(inside)).min(if inside > 0 {
            u64::MAX
        } else {
            0
        });
        let end = lines.ends("");
        own.at = (end.line, end.column);
        if own.max_ns.is_some() {
            series.push(own);
        }
    }
    if series.is_empty() {
        return Err(lines.ends("there is no `<core id=…>` with statistics of a latency"));
    }
    let mut facts = whylate_core::Facts::default();
    let inside =
        |name: &str| Some(text.split_once(&format!("<{name}>"))?.1.split('<').next()?.trim().to_owned());
    facts.host = inside("node").unwrap_or_default();
    facts.kernel.release = text
        .split("<kernel")
        .nth(1)
        .and_then(|it| Some(it.split_once('>')?.1.split('<').next()?.trim().to_owned()))
        .unwrap_or_default();
    Ok(Imported { probe: "timer", facts, series, ..Imported::default() })
}

fn attribute(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("{name}=\""))?;
    Some(rest.split('"').next()?.to_owned())
}
