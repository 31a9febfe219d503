//! Latency over the rate of a load: a table and a picture for each load that cells have at several rates.

use crate::charts::Chart;
use crate::section::{Cell, Column, Row, Section, Table};
use serde_json::json;
use whylate_core::figure::{nanoseconds, nanoseconds_f64, rate};
use whylate_core::result::{LoadedLatency, RunResult};

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let meaning = "cells that differ only in the rate of one load; `median` is the median of the repeats' medians, \
        `lowest` and `highest` are the smallest and largest of these medians";
    let parts = run.loaded_latency.iter().map(part);
    Section::new("loaded", "Latency by rate of a load").meaning(meaning).with_all(parts).unless_empty()
}

fn part(curve: &LoadedLatency) -> Section {
    let has_accesses = curve.points.iter().any(|point| point.access_ns.is_some());
    let mut columns = vec![Column::text("cell")];
    columns.extend(["rate", "median", "lowest", "highest", "p99"].map(Column::number));
    columns.extend(has_accesses.then(|| Column::number("time per access")));
    let row = |point: &whylate_core::result::LoadedPoint| {
        let mut cells = vec![Cell::from(point.cell.clone()), Cell::from(rate(point.rate, &curve.unit))];
        let times = [point.p50_ns, point.p50_low_ns, point.p50_high_ns, point.p99_ns];
        cells.extend(times.map(|time| Cell::from(nanoseconds(time))));
        cells.extend(has_accesses.then(|| Cell::from(point.access_ns.map(nanoseconds_f64))));
        Row::of(cells)
    };
    let table = Table::new(columns, curve.points.iter().map(row).collect());
    Section::new("", format!("{} under {}", curve.probe, curve.load)).with(table).with(vec![chart(curve)])
}

fn chart(curve: &LoadedLatency) -> Chart {
    let values =
        |of: fn(&whylate_core::result::LoadedPoint) -> u64| curve.points.iter().map(of).collect::<Vec<_>>();
    let series = [
        json!({ "cell": 0, "name": "median", "values": values(|point| point.p50_ns) }),
        json!({ "cell": 1, "name": "p99", "values": values(|point| point.p99_ns) }),
    ];
    let x: Vec<f64> = curve.points.iter().map(|point| point.rate.round()).collect();
    Chart {
        caption: format!("{} latency by rate of {}", curve.probe, curve.load),
        hint: "latency axis logarithmic".to_owned(),
        label: format!("Latency of {} by rate of the load {}", curve.probe, curve.load),
        is_wide: true,
        data: json!({ "kind": "loaded", "x": x, "unit": curve.unit, "series": series, "span_s": 0 }),
    }
}
