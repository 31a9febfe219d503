//! The rates of loads while the probes ran, and figures of graphics devices.

use crate::section::{Column, Depth, Row, Section, Table};
use whylate_core::figure::{bytes, rate};
use whylate_core::result::{CellResult, GpuResult, RateResult, RunResult};

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let rates = run.cells.iter().flat_map(|cell| cell.rates.iter().map(move |rate| (cell, rate)));
    let row = |(cell, load): (&CellResult, &RateResult)| {
        Row::of([cell.name.clone(), load.load.clone(), rate(load.mean, &load.unit)])
    };
    let columns = vec![Column::text("cell"), Column::text("load"), Column::number("mean rate")];
    let section = Section::new("loads", "Loads").meaning("the rate of each load while the probes ran");
    let loads = section.depth(Depth::Detail).with(Table::new(columns, rates.map(row).collect()));
    [loads, of_gpus(&run.cells)].into_iter().flat_map(Section::unless_empty).collect()
}

fn of_gpus(cells: &[CellResult]) -> Section {
    let rows = cells.iter().flat_map(|cell| cell.gpus.iter().map(move |gpu| (&cell.name, gpu)));
    let row = |(cell, gpu): (&String, &GpuResult)| {
        let (what, show) = quantity(&gpu.quantity);
        Row::of([cell.clone(), gpu.device.clone(), what, show(gpu.mean), show(gpu.max)])
    };
    let mut columns = vec![Column::text("cell"), Column::text("device"), Column::text("what")];
    columns.extend([Column::number("mean"), Column::number("largest")]);
    let section = Section::new("gpus", "Graphics devices").meaning(
        "sampled while the probes ran; values that only the device itself can report were read just before and after the probes",
    );
    section.depth(Depth::Detail).with(Table::new(columns, rows.map(row).collect()))
}

/// What a quantity is, and how its values are shown.
fn quantity(name: &str) -> (String, fn(f64) -> String) {
    let (kind, engine) = name.split_once('/').unwrap_or((name, ""));
    let what: (&str, fn(f64) -> String) = match kind {
        "busy_percent" => ("busy", |value| format!("{value:.0} %")),
        "memory_bytes" => ("device memory", |value| bytes(value as u64)),
        "system_bytes" => ("system memory", |value| bytes(value as u64)),
        "clock_mhz" => ("clock", |value| format!("{value:.0} MHz")),
        "requested_clock_mhz" => ("requested clock", |value| format!("{value:.0} MHz")),
        "power_w" => ("power", |value| format!("{value:.1} W")),
        "temperature_c" => ("temperature", |value| format!("{value:.0} degrees C")),
        other => (other, |value| format!("{value:.1}")),
    };
    let separator = if engine.is_empty() { "" } else { ", engine " };
    (format!("{}{separator}{engine}", what.0), what.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_graphics_devices_follow_the_loads() {
        let of = |quantity: &str, mean: f64, max: f64| GpuResult {
            device: "card1".to_owned(),
            quantity: quantity.to_owned(),
            mean,
            max,
            ..GpuResult::default()
        };
        let gpus =
            vec![of("busy_percent/gfx", 25.4, 80.0), of("memory_bytes", 2_147_483_648.0, 3_221_225_472.0)];
        let cell = CellResult { name: "idle".to_owned(), gpus, ..CellResult::default() };
        let shown = format!("{:?}", of_gpus(&[cell]));
        for word in ["busy, engine gfx", "25 %", "80 %", "device memory"] {
            assert!(shown.contains(word), "{word}: {shown}");
        }
        assert!(of_gpus(&[CellResult::default()]).unless_empty().is_empty());
    }
}
