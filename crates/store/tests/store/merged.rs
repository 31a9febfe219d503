//! Merged segments: each row is there once, whenever the process is killed.

use crate::made::{TABLES, add, enough, execution, info, interval, key, read};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use whylate_core::CpuId;
use whylate_core::record::Interval;
use whylate_core::result::{RunResult, RunState};
use whylate_stats::buckets::lower_edge;
use whylate_store::{
    ExecutionState, Folder, Reader, RunDirectory, RunInfo, Sink as _, assemble, assemble_newest,
};

const FLUSHES: u64 = 12;
const MERGED: &str = "000013.parquet";

fn complete() -> RunInfo {
    let mut info = info();
    (info.state, info.restored) = (RunState::Complete, Some(true));
    info.executions = [1, 2].map(|repeat| execution("idle", repeat, 1, ExecutionState::Done)).to_vec();
    info
}

/// Two repeats of `idle`, each in six flushes.
fn write_flushes(path: &Path) -> RunDirectory {
    let mut directory = RunDirectory::create(path, &complete()).unwrap();
    for nth in 0..FLUSHES {
        add(&mut directory, &enough("idle", 1 + (nth / 6) as u32, 4 * nth));
        directory.flush().unwrap();
    }
    directory
}

fn files(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()) {
        match entry.is_dir() {
            true => found.extend(files(&entry)),
            false => drop(found.insert(entry.clone(), fs::read(&entry).unwrap())),
        }
    }
    found
}

fn assembled(path: &Path) -> RunResult {
    assemble(&Reader::open(path).unwrap()).unwrap()
}

fn texts(result: &RunResult) -> Vec<&str> {
    result.warnings.iter().map(|warning| warning.text.as_str()).collect()
}

#[test]
fn each_row_is_there_once_whenever_the_process_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut directory = write_flushes(&path);
    let before = files(&path);
    directory.seal(&complete()).unwrap();
    drop(directory);
    let after = files(&path);
    for table in TABLES {
        let names: Vec<PathBuf> =
            after.keys().filter(|name| name.starts_with(path.join(table))).cloned().collect();
        assert_eq!(names, [path.join(table).join(MERGED)], "{table}: the single segments are gone");
    }
    let whole = assembled(&path);
    assert_eq!((whole.cells[0].probes[0].cpus[0].samples > 0, texts(&whole)), (true, Vec::new()));
    let manifest = path.join("manifest.jsonl");
    let is_old = |name: &Path| before.contains_key(name) && name.ends_with("parquet");
    // Killed while it removed the single segments; before the manifest listed the merged one; and before that one was
    // written.
    for nth in 0..3 {
        let listed = nth == 0;
        for (name, bytes) in before.iter().chain(&after) {
            let is_merged = name.ends_with(MERGED);
            let bytes = if *name == manifest && !listed { &before[&manifest] } else { bytes };
            fs::write(name, bytes).unwrap();
            if (nth == 2 && is_merged) || (listed && is_old(name) && name.ends_with("000003.parquet")) {
                fs::remove_file(name).unwrap();
            }
        }
        let result = assembled(&path);
        assert_eq!(result.cells[0].probes, whole.cells[0].probes, "{nth}");
        assert_eq!(result.cells[0].rates, whole.cells[0].rates, "{nth}");
        let said: Vec<&str> = texts(&result).into_iter().filter(|text| text.contains("segment")).collect();
        let left_out = ["segment 13 is left out: it is incomplete, because the run was killed"];
        assert_eq!(said, left_out[..usize::from(nth == 1)], "{nth}");
    }
}

#[test]
fn a_reader_that_was_opened_before_reads_the_merged_segment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut directory = write_flushes(&path);
    let reader = Reader::open(&path).unwrap();
    directory.seal(&complete()).unwrap();
    let result = assemble(&reader).unwrap();
    assert_eq!(result.cells[0].probes, assembled(&path).cells[0].probes);
    assert_eq!(texts(&result), Vec::<&str>::new());
}

#[test]
fn the_newest_repeat_is_taken_alone_out_of_a_merged_segment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut directory = write_flushes(&path);
    let apart = assemble_newest(&Folder::open(&path).unwrap(), "idle", 7).unwrap().unwrap();
    directory.seal(&complete()).unwrap();
    let merged = assemble_newest(&Folder::open(&path).unwrap(), "idle", 7).unwrap().unwrap();
    assert_eq!((&merged.probes, &merged.rates), (&apart.probes, &apart.rates));
    assert_eq!(merged.probes[0].cpus[0].samples * 2, assembled(&path).cells[0].probes[0].cpus[0].samples);
}

#[test]
fn segments_that_cannot_be_merged_stay_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut directory = write_flushes(&path);
    let planted = path.join("rates").join(format!("{MERGED}.tmp"));
    fs::create_dir(&planted).unwrap();
    fs::write(planted.join("full"), "").unwrap();
    directory.seal(&complete()).unwrap();
    let result = assembled(&path);
    assert!(path.join("rates/000001.parquet").exists() && !path.join("histograms").join(MERGED).exists());
    assert_eq!(texts(&result), Vec::<&str>::new());
}

#[test]
fn a_running_run_merges_rows_that_take_much_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut directory = RunDirectory::create(&path, &info()).unwrap();
    let histogram: Vec<(u64, u64)> = (256..3_000).map(|index| (lower_edge(index), 1)).collect();
    for nth in 0..6 {
        let wide =
            |cpu| Interval { cpu: CpuId(cpu), histogram: histogram.clone(), ..interval(cpu, nth, &[1]) };
        directory.rows().add_intervals(&key("idle", 1, 1, "timer"), (0..24).map(wide));
        directory.flush().unwrap();
    }
    let segments = fs::read_dir(path.join("intervals")).unwrap().count();
    assert!(segments < 5, "{segments} segments");
    drop(directory);
    let (rows, warnings) = read(&path);
    let starts: Vec<u64> = rows.iter().flat_map(|rows| &rows.intervals).map(|(_, it)| it.start_ns).collect();
    assert!(starts.len() == 6 * 24 && starts.is_sorted() && warnings.is_empty(), "{starts:?} {warnings:?}");
    assert!(rows.iter().flat_map(|rows| &rows.intervals).all(|(_, it)| it.histogram == histogram));
}
