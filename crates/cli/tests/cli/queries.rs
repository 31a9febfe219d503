//! The queries of docs/QUERIES.md in the installed engines: their quantiles equal those of a report.
//!
//! `WHYLATE_QUERY_PYTHON` names a Python with `duckdb` and `pyspark`; a missing one is skipped.

use crate::fields::{list, word};
use crate::tool::{SMALL_PLAN, alone, folder, text, whylate, write};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use whylate_testing::{Need, skip};

/// Cell, probe, CPU and the 0.5, 0.99, 0.999 and 0.9999 quantiles.
type Rows = Vec<(String, String, u64, Vec<u64>)>;

fn of_report(run: &Value) -> Rows {
    let mut rows = Rows::new();
    for cell in list(run, "cells") {
        for probe in list(cell, "probes") {
            for cpu in list(probe, "cpus") {
                let value = |key: &str| cpu[key].as_u64().unwrap();
                let quantiles = ["p50_ns", "p99_ns", "p999_ns", "p9999_ns"].map(value).to_vec();
                rows.push((
                    word(cell, "name").to_owned(),
                    word(probe, "probe").to_owned(),
                    value("cpu"),
                    quantiles,
                ));
            }
        }
    }
    rows.sort();
    rows
}

fn of_engine(rows: &[Value]) -> Rows {
    let of = |four: &[Value]| {
        let name = |index: usize| four[0][index].as_str().unwrap().to_owned();
        let quantiles = four.iter().map(|row| row[4].as_u64().unwrap()).collect();
        (name(0), name(1), four[0][2].as_u64().unwrap(), quantiles)
    };
    rows.chunks(4).map(of).collect()
}

#[test]
fn queries_have_the_quantiles_of_the_report() {
    let _alone = alone();
    let folder = folder();
    let (plan, run) = (write(&folder, "plan.toml", SMALL_PLAN), folder.path().join("run"));
    let said = whylate(&["run", &plan, "-o", text(&run), "--quiet"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let expected = of_report(&whylate(&["report", text(&run), "--json"]).document());
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = std::env::var("WHYLATE_QUERY_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    for engine in ["duckdb", "spark"] {
        let mut query = Command::new(&python);
        query.arg(here.join("tests/cli/queries.py")).arg(engine);
        query.arg(here.join("../../docs/QUERIES.md")).arg(&run).current_dir(folder.path());
        let Ok(output) = query.output() else {
            skip(Need::Program("duckdb, pyspark (pip)"), format!("there is no {python}"));
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(77) {
            skip(Need::Program("duckdb, pyspark (pip)"), format!("{engine}: {}", said.trim()));
            continue;
        }
        assert!(output.status.success(), "{engine}: {said}");
        let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(of_engine(&rows), expected, "{engine}");
    }
}
