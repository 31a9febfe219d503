//! Trace events in the JSON form that ui.perfetto.dev and chrome://tracing open: the largest latency of each interval
//! and the rates of loads as counters, spikes as slices, on one time line.

use super::Exported;
use super::all;
use serde_json::{Value, json};
use whylate_core::order::InOrder;
use whylate_core::result::Spike;

/// Spikes are in processes from this number on, one for each cell.
const FIRST_PROCESS: u64 = 1;

/// The whole run. Moments count from the first one.
pub fn perfetto(run: &Exported) -> String {
    let begin = begin(run);
    let at = |ns: u64| ns.saturating_sub(begin) as f64 / 1e3;
    let mut events = Vec::new();
    let process = |name: &str| {
        let place = run.cells.iter().position(|cell| cell.name == name).unwrap_or_default();
        FIRST_PROCESS + place as u64
    };
    for cell in &run.cells {
        let pid = process(&cell.name);
        events.push(named("process_name", pid, 0, &cell.name));
        for load in &cell.rates {
            let name = format!("{} ({})", load.load, load.unit);
            events.extend(load.series.iter().map(|rate| {
                counter(pid, &name, at(rate.at_ns.saturating_sub(rate.interval_ns)), rate.value)
            }));
        }
        for gpu in &cell.gpus {
            let name = format!("{} ({})", gpu.device, gpu.quantity);
            events
                .extend(gpu.series.iter().map(|record| counter(pid, &name, at(record.at_ns), record.value)));
        }
        for spike in cell.probes.iter().flat_map(|probe| &probe.spikes) {
            events.push(slice(pid, spike, at(spike.at_ns.saturating_sub(spike.latency_ns))));
        }
        let mut rows: Vec<u32> =
            cell.probes.iter().flat_map(|probe| &probe.spikes).map(|it| it.cpu.0).collect();
        rows.order();
        rows.dedup();
        events
            .extend(rows.iter().map(|cpu| named("thread_name", pid, *cpu, &format!("spikes of CPU {cpu}"))));
    }
    for it in &run.kernel_log {
        let Some(at_ns) = it.message.at_ns else { continue };
        let pid = it.cell.as_deref().map_or(0, process);
        let name = format!("kernel log: {}", it.message.code);
        let text = json!({ "text": it.message.text });
        events.push(
            json!({ "ph": "i", "s": "g", "name": name, "pid": pid, "tid": 0, "ts": at(at_ns), "args": text }),
        );
    }
    for series in all(run) {
        let name = format!("{} max, CPU {} (us)", series.name(), series.cpu.cpu);
        for point in &series.cpu.timeline {
            let value = point.max_ns.unwrap_or_default() as f64 / 1e3;
            events.push(counter(process(&series.cell.name), &name, at(point.start_ns), value));
        }
    }
    json!({ "displayTimeUnit": "ns", "traceEvents": events }).to_string()
}

fn begin(run: &Exported) -> u64 {
    let intervals = all(run).flat_map(|series| series.cpu.timeline.iter().map(|point| point.start_ns));
    let rates = run.cells.iter().flat_map(|cell| &cell.rates).flat_map(|load| &load.series);
    let rates = rates.map(|rate| rate.at_ns.saturating_sub(rate.interval_ns));
    let spikes = run.cells.iter().flat_map(|cell| &cell.probes).flat_map(|probe| &probe.spikes);
    let spikes = spikes.map(|spike| spike.at_ns.saturating_sub(spike.latency_ns));
    intervals.chain(rates).chain(spikes).min().unwrap_or_default()
}

fn named(what: &str, pid: u64, tid: u32, name: &str) -> Value {
    json!({ "ph": "M", "name": what, "pid": pid, "tid": tid, "args": { "name": name } })
}

fn counter(pid: u64, name: &str, at_us: f64, value: f64) -> Value {
    json!({ "ph": "C", "pid": pid, "name": name, "ts": at_us, "args": { "value": value } })
}

fn slice(pid: u64, spike: &Spike, at_us: f64) -> Value {
    let cause = &spike.cause;
    json!({
        "ph": "X", "pid": pid, "tid": spike.cpu.0, "ts": at_us, "dur": spike.latency_ns as f64 / 1e3,
        "name": cause.actor.as_deref().unwrap_or_else(|| cause.kind.name()),
        "args": {
            "probe": spike.probe, "repeat": spike.repeat, "cause": cause.kind.name(), "function": cause.function,
            "share": cause.share, "confidence": cause.confidence, "monotonic_ns": spike.at_ns,
        },
    })
}
