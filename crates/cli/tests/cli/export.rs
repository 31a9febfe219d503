//! `whylate export`: the forms of other tools say what the run says.

use crate::tool::{SMALL_PLAN, alone, folder, text, whylate, write};
use serde_json::Value;
use std::process::Command;
use whylate_testing::{Need, skip};

#[test]
fn a_measurement_in_a_file_is_shown_compared_and_exported() {
    let _alone = alone();
    let folder = folder();
    let measured = whylate(&["measure", "timer", "--cpu", "0", "-D", "300ms", "--json", "-q"]);
    let document = measured.json();
    let file = write(&folder, "measure.json", &measured.stdout);
    assert_eq!(whylate(&["report", &file, "--json", "--histograms"]).json(), document);
    let compared = whylate(&["compare", &file, &file, "--json"]).document();
    assert_eq!(compared["contrasts"][0]["cell_ns"], compared["contrasts"][0]["baseline_ns"], "{compared}");
    let table = whylate(&["export", &file, "--to", "csv", "--table", "histogram"]).stdout;
    let count = |line: &str| line.rsplit(',').next().unwrap().parse::<u64>().unwrap();
    assert_eq!(Some(table.lines().skip(1).map(count).sum()), document["cpus"][0]["samples"].as_u64());
    let cut = write(&folder, "cut.json", &measured.stdout[..measured.stdout.len() / 2]);
    for command in [&["report", &cut][..], &["export", &cut, "--to", "csv"]] {
        let said = whylate(command);
        assert!(said.code == Some(1) && said.error().contains("line"), "{said:?}");
    }
}

#[test]
fn other_forms_say_what_the_run_says() {
    let _alone = alone();
    let folder = folder();
    let plan = write(&folder, "plan.toml", SMALL_PLAN);
    let run = folder.path().join("run");
    let said = whylate(&["run", &plan, "-o", text(&run), "--quiet", "--json"]);
    let result = said.json();
    let cells = result["cells"].as_array().unwrap();
    let cpus: Vec<(&Value, &Value, &Value)> = cells
        .iter()
        .flat_map(|cell| cell["probes"].as_array().unwrap().iter().map(move |probe| (cell, probe)))
        .flat_map(|(cell, probe)| probe["cpus"].as_array().unwrap().iter().map(move |cpu| (cell, probe, cpu)))
        .collect();
    let export = |more: &[&str]| {
        let said =
            whylate(&["export", text(&run)].into_iter().chain(more.iter().copied()).collect::<Vec<_>>());
        assert_eq!(said.code, Some(0), "{said:?}");
        said.stdout
    };

    let table = export(&["--to", "csv"]);
    assert_eq!(table.lines().count(), 1 + cpus.len(), "{table}");
    for (cell, probe, cpu) in &cpus {
        let begin = format!(
            "{},{},{},{},",
            cell["name"].as_str().unwrap(),
            probe["probe"].as_str().unwrap(),
            cpu["cpu"],
            cpu["samples"]
        );
        let row =
            table.lines().find(|line| line.starts_with(&begin)).unwrap_or_else(|| panic!("{begin}: {table}"));
        assert!(row.contains(&format!(",{},", cpu["max_ns"])), "{row}");
    }
    let histogram = export(&["--to", "csv", "--table", "histogram"]);
    let counted: u64 =
        histogram.lines().skip(1).map(|line| line.rsplit(',').next().unwrap().parse::<u64>().unwrap()).sum();
    let samples: u64 = cpus.iter().map(|(_, _, cpu)| cpu["samples"].as_u64().unwrap()).sum();
    assert_eq!(counted, samples);
    for table in ["timeline", "spikes", "rates"] {
        assert!(export(&["--to", "csv", "--table", table]).lines().count() >= 1, "{table}");
    }

    let perfetto: Value = serde_json::from_str(&export(&["--to", "perfetto"])).unwrap();
    let events = perfetto["traceEvents"].as_array().unwrap();
    assert!(
        events
            .iter()
            .any(|event| event["ph"] == "C" && event["name"].as_str().unwrap().starts_with("timer max"))
    );
    assert!(events.iter().all(|event| event["ts"].as_f64().is_none_or(|at| at >= 0.0)));

    let log = export(&["--to", "hdr"]);
    let lines = log.lines().filter(|line| line.starts_with("Tag=")).count();
    assert_eq!(lines, cpus.len(), "{log}");
    // It reads what it writes: each series by its tag, with the samples and, within a bucket, the quantiles of the
    // run.
    let hdr = write(&folder, "run.hlog", &log);
    let back = whylate(&["report", &hdr, "--json"]).json();
    let back = back["cpus"].as_array().unwrap();
    assert_eq!(back.len(), cpus.len());
    for (cell, probe, cpu) in &cpus {
        let name = |value: &Value| value["name"].as_str().or(value["probe"].as_str()).unwrap().to_owned();
        let tag = format!("{}:{}:cpu{}", name(cell), probe["probe"].as_str().unwrap(), cpu["cpu"]);
        let own = back.iter().find(|it| it["series"] == *tag).unwrap_or_else(|| panic!("{tag}: {back:?}"));
        assert_eq!(own["samples"], cpu["samples"], "{tag}");
        if cpu["samples"].as_u64() == Some(0) {
            continue;
        }
        for key in ["p50_ns", "p99_ns", "max_ns"] {
            let (read, wrote) = (own[key].as_f64().unwrap(), cpu[key].as_f64().unwrap());
            assert!((read - wrote).abs() <= wrote * 0.02 + 2.0, "{tag} {key}: {read} of {wrote}");
        }
    }

    let tree = folder.path().join("tree");
    export(&["--to", "osadl", "-o", text(&tree)]);
    for (cell, probe, cpu) in &cpus {
        let file = tree
            .join(cell["name"].as_str().unwrap())
            .join(probe["probe"].as_str().unwrap())
            .join(format!("CPU{}", cpu["cpu"]));
        let lines = std::fs::read_to_string(&file).unwrap();
        assert!(lines.contains(&format!("#Total samples: {}\n", cpu["samples"])), "{}", file.display());
    }
    let again = whylate(&["export", text(&run), "--to", "osadl", "-o", text(&tree)]);
    assert!(again.code == Some(1) && again.stderr.contains("cannot create"), "{again:?}");
    assert!(whylate(&["export", text(&run), "--to", "osadl"]).code == Some(1));
}

/// The log as the tool's own Python library reads it, if that is installed.
#[test]
fn hdr_logs_are_read_by_hdrhistogram() {
    let has_library =
        Command::new("python3").args(["-c", "import hdrh.log"]).output().is_ok_and(|it| it.status.success());
    if !has_library {
        skip(Need::Program("hdrhistogram (pip)"), "`pip install hdrhistogram` is missing");
        return;
    }
    let _alone = alone();
    let folder = folder();
    let plan = write(&folder, "plan.toml", SMALL_PLAN);
    let run = folder.path().join("run");
    let result = whylate(&["run", &plan, "-o", text(&run), "--quiet", "--json"]).json();
    let log = folder.path().join("run.hlog");
    assert_eq!(whylate(&["export", text(&run), "--to", "hdr", "-o", text(&log)]).code, Some(0));
    let script = "
import sys
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
reader = HistogramLogReader(sys.argv[1], HdrHistogram(1, 3600 * 10**9, 3))
while True:
    one = reader.get_next_interval_histogram()
    if one is None: break
    print(one.get_tag(), one.get_total_count())
";
    let output = Command::new("python3").args(["-c", script, text(&log)]).output().unwrap();
    let read = String::from_utf8_lossy(&output.stdout).into_owned();
    for cell in result["cells"].as_array().unwrap() {
        for probe in cell["probes"].as_array().unwrap() {
            for cpu in probe["cpus"].as_array().unwrap() {
                let name = format!(
                    "{}:{}:cpu{}",
                    cell["name"].as_str().unwrap(),
                    probe["probe"].as_str().unwrap(),
                    cpu["cpu"]
                );
                assert!(read.contains(&format!("{name} {}\n", cpu["samples"])), "{name}: {read} {output:?}");
            }
        }
    }
}
