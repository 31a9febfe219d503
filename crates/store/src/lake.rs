//! The tables of a run for a lake: one Parquet file for each table, with only the rows that count.
//!
//! In: a run directory and its result. Out: files in memory. The caller decides where they go; `docs/FARM.md` is the
//! schema of the tables that only a lake has (`runs`, `cells`, `quantiles`, `contrasts`).

use crate::assemble::{newest_attempts, void_attempts};
use crate::error::StoreError;
use crate::info::RunInfo;
use crate::reader::Reader;
use crate::segment;
use crate::tables::column::{Column, Damage, columns};
use crate::tables::{Key, Rows, Table};
use bytes::Bytes;
use parquet::file::reader::FileReader as _;
use parquet::file::serialized_reader::SerializedFileReader;
use std::sync::Arc;
use whylate_core::moment::utc_seconds;
use whylate_core::order::InOrder;
use whylate_core::plan::TreatmentPlan;
use whylate_core::quantity::CORRECTED;
use whylate_core::result::{CellResult, Comparison, ProbeResult, Quantiles, RunResult, Verdict};

/// A table of a run, as one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LakeTable {
    pub name: &'static str,
    pub rows: u64,
    pub bytes: Vec<u8>,
}

/// Values in a run's row that do not come from the run itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct LakeWords<'a> {
    /// Requests that the run does not meet.
    pub mismatches: &'a [String],
    /// The labels of machine and run, `KEY=VALUE` separated by spaces.
    pub labels: &'a str,
}

/// The tables of a run, each sorted by cell, repeat and probe: those that have rows, and those that every question
/// needs. `runs` comes last: a run without it does not exist in the lake. `result` is absent for a run without
/// samples.
pub fn lake_tables(
    reader: &Reader,
    result: Option<&RunResult>,
    words: &LakeWords<'_>,
) -> Result<Vec<LakeTable>, StoreError> {
    let info = reader.info();
    let mut rows = Rows::default();
    reader.each_segment(|segment| rows.append(segment.rows));
    let (newest, void) = (newest_attempts(info), void_attempts(info));
    rows.retain_attempts(|(cell, repeat, attempt)| {
        newest.get(&(cell, repeat)) == Some(&attempt) && !void.contains(&(cell, repeat, attempt))
    });
    let failed = |error: parquet::errors::ParquetError| {
        StoreError::Encode(reader.path().to_owned(), error.to_string())
    };
    let mut tables = rows.encode_sorted(&info.run).map_err(failed)?;
    let cells = result.map_or(&[][..], |result| &result.cells);
    let comparisons = result.map_or(&[][..], |result| &result.comparisons);
    tables.push(encode(&info.run, cells.iter().map(CellRow::of)).map_err(failed)?);
    tables.push(encode(&info.run, cells.iter().flat_map(QuantileRow::all_of)).map_err(failed)?);
    let contrasts = comparisons.iter().map(|comparison| ContrastRow::of(comparison, info));
    tables.push(encode(&info.run, contrasts).map_err(failed)?);
    tables.push(encode(&info.run, [RunRow::of(info, result, words)].into_iter()).map_err(failed)?);
    Ok(tables)
}

/// Whether the file of a table is unchanged, by the checksum in it. A file that another program wrote or merged has
/// none: only its footer is read.
pub fn check_lake_table(file: Vec<u8>) -> Result<(), String> {
    let verified = segment::verify(&file);
    if !matches!(verified, Err(Damage::NoMark)) {
        return verified.map_err(|damage| damage.to_string());
    }
    let reader = SerializedFileReader::new(Bytes::from(file));
    let reader = reader.map_err(|error| format!("it is cut off, or is not a Parquet file: {error}"))?;
    match reader.metadata().file_metadata().created_by() {
        Some(by) if by.starts_with(segment::CREATED_BY) => Err(Damage::Checksum.to_string()),
        _ => Ok(()),
    }
}

fn encode<R: Table<Key = NoKey>>(
    run: &str,
    rows: impl Iterator<Item = R>,
) -> Result<LakeTable, parquet::errors::ParquetError> {
    let rows: Vec<(Arc<NoKey>, R)> = rows.map(|row| (Arc::default(), row)).collect();
    Ok(LakeTable { name: R::NAME, rows: rows.len() as u64, bytes: segment::encode(run, &rows)? })
}

/// Rows that belong to the run alone.
#[derive(Clone, Debug, Default, PartialEq)]
struct NoKey;

impl Key for NoKey {
    const COLUMNS: &'static [Column<Self>] = &[];

    fn attempt(&self) -> (&str, u32, u32) {
        ("", 0, 0)
    }
}

/// The run itself: one row.
#[derive(Clone, Debug, Default)]
struct RunRow {
    plan: String,
    started_at: String,
    started_s: u64,
    kernel: String,
    preemption: String,
    architecture: String,
    processor: String,
    drivers: String,
    whylate_version: String,
    state: String,
    verdict: String,
    reason: String,
    mismatches: String,
    labels: String,
    limit_ns: Option<u64>,
    watched_ns: Option<u64>,
    events: Option<u64>,
    samples: u64,
    max_ns: Option<u64>,
}

impl Table for RunRow {
    const NAME: &'static str = "runs";
    type Key = NoKey;
    const COLUMNS: &'static [Column<Self>] = columns![row: Self =>
        Plain "plan" row.plan,
        Plain "started_at" row.started_at,
        Plain "started_s" row.started_s,
        Plain "kernel" row.kernel,
        Plain "preemption" row.preemption,
        Plain "architecture" row.architecture,
        Plain "processor" row.processor,
        Plain "drivers" row.drivers,
        Plain "whylate_version" row.whylate_version,
        Plain "state" row.state,
        Plain "verdict" row.verdict,
        Plain "reason" row.reason,
        Plain "mismatches" row.mismatches,
        Plain "labels" row.labels,
        Plain "limit_ns" row.limit_ns,
        Plain "watched_ns" row.watched_ns,
        Plain "events" row.events,
        Plain "samples" row.samples,
        Plain "max_ns" row.max_ns,
    ];
}

impl RunRow {
    fn of(info: &RunInfo, result: Option<&RunResult>, words: &LakeWords<'_>) -> Self {
        let cpus = || {
            let probes = result.into_iter().flat_map(|it| &it.cells).flat_map(|cell| &cell.probes);
            probes.flat_map(|probe| &probe.cpus)
        };
        let mut drivers: Vec<&str> = info.facts.gpus.iter().filter_map(|gpu| gpu.driver.as_deref()).collect();
        drivers.order();
        drivers.dedup();
        // A run that does not meet its requests does not pass.
        let measured = result.map_or(Verdict::Incomplete, |it| it.verdict);
        let verdict = match measured {
            Verdict::Pass | Verdict::NoLimit if !words.mismatches.is_empty() => Verdict::Incomplete,
            verdict => verdict,
        };
        let exposure = result.and_then(|it| it.exposure);
        Self {
            plan: info.plan.name.clone(),
            started_at: info.started_at.clone(),
            started_s: utc_seconds(&info.started_at).unwrap_or(0),
            kernel: info.facts.kernel.release.clone(),
            preemption: info.facts.kernel.preemption.clone(),
            architecture: info.facts.kernel.architecture.clone(),
            processor: info.facts.processor.model.clone(),
            drivers: drivers.join(" "),
            whylate_version: info.whylate_version.clone(),
            state: info.state.name().to_owned(),
            verdict: verdict.name().to_owned(),
            reason: result.map_or_else(|| "no samples".to_owned(), |it| it.verdict_reason.clone()),
            mismatches: words.mismatches.join("; "),
            labels: words.labels.to_owned(),
            limit_ns: info.plan.limit.map(|limit| limit.0),
            watched_ns: result.and_then(|it| {
                it.cells.iter().filter_map(whylate_stats::watched_ns).reduce(u64::saturating_add)
            }),
            events: exposure.map(|it| it.events),
            samples: cpus().map(|cpu| cpu.samples).sum(),
            max_ns: cpus().filter_map(|cpu| Some(cpu.quantiles.as_ref()?.max_ns)).max(),
        }
    }
}

/// A cell: one row each.
#[derive(Clone, Debug, Default)]
struct CellRow {
    cell: String,
    loads: Vec<String>,
    treatments: Vec<String>,
    repeats: u32,
    skipped: Option<String>,
    watched_ns: Option<u64>,
    events: Option<u64>,
}

impl Table for CellRow {
    const NAME: &'static str = "cells";
    type Key = NoKey;
    const COLUMNS: &'static [Column<Self>] = columns![row: Self =>
        Plain "cell" row.cell,
        Plain "loads" row.loads,
        Plain "treatments" row.treatments,
        Plain "repeats" row.repeats,
        Plain "skipped" row.skipped,
        Plain "watched_ns" row.watched_ns,
        Plain "events" row.events,
    ];
}

impl CellRow {
    fn of(cell: &CellResult) -> Self {
        Self {
            cell: cell.name.clone(),
            loads: cell.loads.clone(),
            treatments: cell.treatments.clone(),
            repeats: cell.repeats.iter().filter(|repeat| repeat.error.is_none()).count() as u32,
            skipped: cell.skipped.clone(),
            watched_ns: whylate_stats::watched_ns(cell),
            events: cell.exposure.map(|it| it.events),
        }
    }
}

/// A quantile of a cell, probe and CPU over all repeats, as in reports: one row each. A question over years of runs
/// would take minutes to compute them from histograms.
#[derive(Clone, Debug, Default)]
struct QuantileRow {
    cell: String,
    probe: String,
    cpu: u32,
    quantile: f64,
    /// Of the recorded samples.
    value_ns: u64,
    /// With missed periods. Absent only in a table of an earlier version: a probe that misses none has the same value.
    corrected_ns: Option<u64>,
}

impl Table for QuantileRow {
    const NAME: &'static str = "quantiles";
    type Key = NoKey;
    const COLUMNS: &'static [Column<Self>] = columns![row: Self =>
        Dictionary "cell" row.cell,
        Dictionary "probe" row.probe,
        Dictionary "cpu" row.cpu,
        Plain "quantile" row.quantile,
        Plain "value_ns" row.value_ns,
        Plain "corrected_ns" row.corrected_ns,
    ];
}

impl QuantileRow {
    fn all_of(cell: &CellResult) -> impl Iterator<Item = Self> {
        cell.probes.iter().flat_map(|probe| Self::of_probe(&cell.name, probe))
    }

    fn of_probe(cell: &str, probe: &ProbeResult) -> impl Iterator<Item = Self> {
        let with = probe.cpus.iter().filter_map(|cpu| {
            let recorded = cpu.quantiles?;
            Some((cpu.cpu.0, recorded, cpu.get(CORRECTED).unwrap_or(recorded)))
        });
        with.flat_map(move |(cpu, recorded, corrected)| {
            let of = |(quantile, figure): (f64, fn(&Quantiles) -> u64)| Self {
                cell: cell.to_owned(),
                probe: probe.probe.clone(),
                cpu,
                quantile,
                value_ns: figure(&recorded),
                corrected_ns: Some(figure(&corrected)),
            };
            type Figure = fn(&Quantiles) -> u64;
            let all: [(f64, Figure); 4] = [
                (0.5, |it| it.p50_ns),
                (0.99, |it| it.p99_ns),
                (0.999, |it| it.p999_ns),
                (0.9999, |it| it.p9999_ns),
            ];
            all.map(of)
        })
    }
}

/// The difference between two cells of the run: one row for each statistic.
#[derive(Clone, Debug, Default)]
struct ContrastRow {
    baseline: String,
    cell: String,
    treatment: String,
    probe: String,
    statistic: String,
    decides: u32,
    ratio: Option<f64>,
    ratio_low: Option<f64>,
    ratio_high: Option<f64>,
    outcome: String,
    p_value: f64,
    repeats: u32,
}

impl Table for ContrastRow {
    const NAME: &'static str = "contrasts";
    type Key = NoKey;
    const COLUMNS: &'static [Column<Self>] = columns![row: Self =>
        Plain "baseline" row.baseline,
        Plain "cell" row.cell,
        Plain "treatment" row.treatment,
        Plain "probe" row.probe,
        Plain "statistic" row.statistic,
        Plain "decides" row.decides,
        Plain "ratio" row.ratio,
        Plain "ratio_low" row.ratio_low,
        Plain "ratio_high" row.ratio_high,
        Plain "outcome" row.outcome,
        Plain "p_value" row.p_value,
        Plain "repeats" row.repeats,
    ];
}

impl ContrastRow {
    fn of(comparison: &Comparison, info: &RunInfo) -> Self {
        Self {
            baseline: comparison.baseline.clone(),
            cell: comparison.cell.clone(),
            treatment: added_treatments(info, &comparison.baseline, &comparison.cell).join("+"),
            probe: comparison.probe.clone(),
            statistic: comparison.statistic.to_string(),
            decides: u32::from(comparison.primary),
            ratio: comparison.ratio,
            ratio_low: comparison.ratio_low,
            ratio_high: comparison.ratio_high,
            outcome: comparison.outcome.name().to_owned(),
            p_value: comparison.p_value,
            repeats: comparison.repeats,
        }
    }
}

/// The kinds of the treatments that a cell has and its baseline lacks.
fn added_treatments(info: &RunInfo, baseline: &str, cell: &str) -> Vec<String> {
    let of = |name: &str| info.cells.iter().find(|it| it.name == name).map(|it| it.treatments.as_slice());
    let (Some(before), Some(after)) = (of(baseline), of(cell)) else { return Vec::new() };
    let kind = |name: &String| {
        let plan: Option<&TreatmentPlan> = info.plan.treatment.iter().find(|it| it.name == *name);
        let document = plan.and_then(|plan| serde_json::to_value(plan).ok());
        document.and_then(|it| Some(it.get("kind")?.as_str()?.to_owned())).unwrap_or_else(|| name.clone())
    };
    after.iter().filter(|name| !before.contains(name)).map(kind).collect()
}
