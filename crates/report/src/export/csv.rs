//! Tables of comma-separated values (RFC 4180).

use super::Exported;
use super::{ExportError, all};
use whylate_core::quantity::{ABOVE_HISTOGRAM, CORRECTED, HISTOGRAM_END_NS, Merge, TABLE, Value};
use whylate_core::result::{CauseKind, CpuResult, OTHERS, Quantiles};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsvTable {
    /// One row for each cell, probe and CPU.
    Quantiles,
    /// One row for each bucket with samples.
    Histogram,
    /// One row for each interval.
    Timeline,
    /// One row for each of the largest spikes.
    Spikes,
    /// One row for each interval of a load.
    Rates,
    /// One row for each cause in each repeat.
    Ledger,
}

/// A table of a run. A missing value is an empty field; names end in their unit.
pub fn csv(run: &Exported, table: CsvTable) -> Result<String, ExportError> {
    let rows = match table {
        CsvTable::Quantiles => quantiles(run),
        CsvTable::Histogram => histogram(run),
        CsvTable::Timeline => timeline(run),
        CsvTable::Spikes => spikes(run),
        CsvTable::Rates => rates(run),
        CsvTable::Ledger => ledger(run),
    };
    let failed = |error: ::csv::Error| ExportError::Csv(error.to_string());
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    rows.iter().try_for_each(|row| writer.write_record(row)).map_err(failed)?;
    let bytes = writer.into_inner().map_err(|error| ExportError::Csv(error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| ExportError::Csv(error.to_string()))
}

type Rows = Vec<Vec<String>>;

fn titled(titles: &str) -> Rows {
    vec![titles.split(' ').map(str::to_owned).collect()]
}

fn field<T: ToString>(value: Option<T>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// The figures of a series, as columns.
const FIGURES: [&str; 7] = ["min_ns", "mean_ns", "p50_ns", "p99_ns", "p999_ns", "p9999_ns", "max_ns"];

/// The part of the samples up to each of them, for quantiles.
const PARTS: [Option<f64>; 7] = [None, None, Some(0.5), Some(0.99), Some(0.999), Some(0.9999), None];

/// The columns `p50_ns`, … are of the recorded samples. `corrected_p50_ns`, … also count missed periods, as reports do;
/// probes that cannot miss one do not have them.
fn quantiles(run: &Exported) -> Rows {
    let counted = || TABLE.iter().enumerate().filter(|(_, row)| row.merge == Merge::Sum);
    let mut rows = titled("cell probe cpu samples");
    rows[0].extend(FIGURES.map(str::to_owned));
    rows[0].extend(counted().map(|(_, row)| row.name.to_owned()));
    rows[0].extend(FIGURES.map(|name| format!("corrected_{name}")));
    for series in all(run) {
        let cpu = series.cpu;
        let mut row =
            vec![series.cell.name.clone(), series.name(), cpu.cpu.to_string(), cpu.samples.to_string()];
        row.extend(figures(cpu.quantiles).into_iter().zip(PARTS).map(|(figure, part)| {
            // Above the end of another tool's histogram, a quantile is not known.
            if part.is_none_or(|part| cpu.knows_quantile(part)) { figure } else { String::new() }
        }));
        row.extend(counted().map(|(number, _)| field(cpu.quantities.value(number).and_then(Value::as_f64))));
        row.extend(figures(cpu.quantities.of(CORRECTED).copied()));
        rows.push(row);
    }
    rows
}

/// The fields of [`FIGURES`].
fn figures(of: Option<Quantiles>) -> [String; 7] {
    [
        field(of.map(|it| it.min_ns)),
        field(of.map(|it| it.mean_ns)),
        field(of.map(|it| it.p50_ns)),
        field(of.map(|it| it.p99_ns)),
        field(of.map(|it| it.p999_ns)),
        field(of.map(|it| it.p9999_ns)),
        field(of.map(|it| it.max_ns)),
    ]
}

fn histogram(run: &Exported) -> Rows {
    let mut rows = titled("cell probe cpu lower_ns count");
    for series in all(run) {
        let own = [series.cell.name.clone(), series.name(), series.cpu.cpu.to_string()];
        for (lower_ns, count) in with_end(series.cpu) {
            rows.push(own.iter().cloned().chain([lower_ns.to_string(), count.to_string()]).collect());
        }
    }
    rows
}

/// The buckets. What another tool counted above the end of its histogram is in a bucket of its own that begins there; only the largest
/// sample has its value.
fn with_end(cpu: &CpuResult) -> Vec<(u64, u64)> {
    let mut buckets = cpu.histogram.clone();
    let (Some(above), Some(end_ns)) = (cpu.get(ABOVE_HISTOGRAM), cpu.get(HISTOGRAM_END_NS)) else {
        return buckets;
    };
    let is_largest_known = cpu.quantiles.is_some_and(|it| it.max_ns > end_ns);
    let above = above.saturating_sub(u64::from(is_largest_known));
    let next = buckets.partition_point(|(lower_ns, _)| *lower_ns <= end_ns);
    if let Some((_, count)) =
        next.checked_sub(1).and_then(|at| buckets.get_mut(at)).filter(|it| it.1 >= above)
    {
        *count -= above;
        buckets.insert(next, (end_ns, above));
    }
    buckets.retain(|(_, count)| *count > 0);
    buckets
}

fn timeline(run: &Exported) -> Rows {
    let mut rows = titled("cell probe cpu repeat start_ns end_ns samples p50_ns max_ns");
    for series in all(run) {
        let own = [series.cell.name.clone(), series.name(), series.cpu.cpu.to_string()];
        for point in &series.cpu.timeline {
            let figures = [
                field(point.repeat),
                point.start_ns.to_string(),
                point.end_ns.to_string(),
                point.samples.to_string(),
                field(point.p50_ns),
                field(point.max_ns),
            ];
            rows.push(own.iter().cloned().chain(figures).collect());
        }
    }
    rows
}

fn ledger(run: &Exported) -> Rows {
    let mut rows = titled("cell probe repeat cause actor function spikes total_ns max_ns");
    for cell in &run.cells {
        for (repeat, row) in
            cell.repeats.iter().flat_map(|it| it.ledger.iter().map(move |row| (it.repeat, row)))
        {
            rows.push(vec![
                cell.name.clone(),
                row.probe.clone(),
                repeat.to_string(),
                row.kind.map_or(OTHERS, CauseKind::name).to_owned(),
                row.actor.clone().unwrap_or_default(),
                row.function.clone().unwrap_or_default(),
                row.spikes.to_string(),
                row.total_ns.to_string(),
                row.max_ns.to_string(),
            ]);
        }
    }
    rows
}

fn spikes(run: &Exported) -> Rows {
    let mut rows = titled("cell probe cpu repeat at_ns latency_ns cause actor function share confidence");
    for cell in &run.cells {
        for probe in &cell.probes {
            rows.extend(probe.spikes.iter().map(|spike| {
                vec![
                    cell.name.clone(),
                    spike.probe.clone().unwrap_or_else(|| probe.probe.clone()),
                    spike.shown_cpu().to_string(),
                    field(spike.repeat),
                    spike.at_ns.to_string(),
                    spike.latency_ns.to_string(),
                    spike.cause.kind.name().to_owned(),
                    spike.cause.actor.clone().unwrap_or_default(),
                    spike.cause.function.clone().unwrap_or_default(),
                    field(spike.cause.share),
                    field(spike.cause.confidence),
                ]
            }));
        }
    }
    rows
}

fn rates(run: &Exported) -> Rows {
    let mut rows = titled("cell load at_ns interval_ns value unit");
    for cell in &run.cells {
        for load in &cell.rates {
            rows.extend(load.series.iter().map(|rate| {
                vec![
                    cell.name.clone(),
                    load.load.clone(),
                    rate.at_ns.to_string(),
                    rate.interval_ns.to_string(),
                    rate.value.to_string(),
                    load.unit.clone(),
                ]
            }));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use whylate_core::quantity::{OVERRUNS, Quantities};
    use whylate_core::result::{CpuResult, MeasureResult, ProbeResult};

    #[test]
    fn recorded_and_corrected_quantiles_have_names_of_their_own() {
        let all = |ns: u64| Quantiles {
            min_ns: ns,
            mean_ns: ns as f64,
            p50_ns: ns,
            p99_ns: 2 * ns,
            p999_ns: 3 * ns,
            p9999_ns: 4 * ns,
            max_ns: 5 * ns,
        };
        let cpu = |series: Option<&str>, quantities| CpuResult {
            series: series.map(str::to_owned),
            samples: 10,
            quantiles: Some(all(100)),
            quantities,
            ..CpuResult::default()
        };
        let late = Quantities::default().with(OVERRUNS, 7).with(CORRECTED, all(1_000));
        let cpus = vec![cpu(None, late), cpu(Some("other"), Quantities::default())];
        let probe = ProbeResult { probe: "timer".to_owned(), cpus, ..ProbeResult::default() };
        let run = Exported::from(MeasureResult { probe, ..MeasureResult::default() });
        let table = csv(&run, CsvTable::Quantiles).unwrap();
        let mut rows = ::csv::Reader::from_reader(table.as_bytes());
        let rows: Vec<BTreeMap<String, String>> = rows.deserialize().map(Result::unwrap).collect();
        let of = |row: usize, names: [&str; 3]| names.map(|name| rows[row][name].as_str());
        assert_eq!(of(0, ["p99_ns", "p9999_ns", "max_ns"]), ["200", "400", "500"]);
        let corrected = ["corrected_p99_ns", "corrected_p9999_ns", "corrected_max_ns"];
        assert_eq!(of(0, corrected), ["2000", "4000", "5000"]);
        assert_eq!((rows[0]["overruns"].as_str(), of(1, corrected)), ("7", [""; 3]), "{table}");
        let names: Vec<&str> = table.lines().next().unwrap().split(',').collect();
        let once: std::collections::BTreeSet<&&str> = names.iter().collect();
        assert_eq!(once.len(), names.len(), "{names:?}");
    }
}
