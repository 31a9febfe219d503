//! A run that was killed, or lost data on its disk, at any place.

use crate::made::{TABLES, info, read, rows, three_segments};
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use whylate_store::{Reader, Rows, RunDirectory, Sink as _, assemble};
use whylate_testing::says;

/// Rows of the second segment when `table` of it cannot be read.
fn without(mut rows: Rows, table: &str) -> Rows {
    match table {
        // An interval without its histogram would be in no quantile; one without samples has no histogram.
        "histograms" => rows.intervals.retain(|(_, interval)| interval.samples == 0),
        "intervals" => rows.intervals.clear(),
        "spikes" => rows.spikes.clear(),
        "causes" => rows.causes.clear(),
        "ipis" => rows.ipis.clear(),
        "sources" => rows.sources.clear(),
        "own" => rows.own.clear(),
        "rates" => rows.rates.clear(),
        "interrupts" => rows.interrupts.clear(),
        "counters" => rows.counters.clear(),
        "tasks" => rows.tasks.clear(),
        "audit" => rows.audit.clear(),
        "triggers" => rows.triggers.clear(),
        "moments" => rows.moments.clear(),
        "chains" => rows.chains.clear(),
        "paths" => rows.paths.clear(),
        "gpus" => rows.gpus.clear(),
        "hwlat" => rows.hwlat.clear(),
        other => panic!("no table {other}"),
    }
    rows
}

/// Where the footer of a Parquet file begins.
fn footer_at(file: &[u8]) -> usize {
    let tail = file.len() - 8;
    tail - u32::from_le_bytes(file[tail..tail + 4].try_into().unwrap()) as usize
}

fn assert_only_that_is_lost(path: &Path, written: &[Rows], table: &str, what: &str) {
    let (rows, warnings) = read(path);
    let expected = [written[0].clone(), without(written[1].clone(), table), written[2].clone()];
    assert_eq!(rows, expected, "{table}: {what}");
    let named = format!("skipped {table}/000002.parquet");
    assert_eq!(
        warnings.iter().filter(|text| text.contains(&named)).count(),
        1,
        "{table}, {what}: {warnings:?}"
    );
    let result = assemble(&Reader::open(path).unwrap()).unwrap();
    assert!(result.warnings.iter().any(|warning| warning.text.contains(&named)));
}

#[test]
fn a_file_cut_off_anywhere_costs_only_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let written = three_segments(&path);
    for table in TABLES {
        let file = path.join(table).join("000002.parquet");
        let whole = fs::read(&file).unwrap();
        let footer = footer_at(&whole);
        let lengths = [0, 1, 3, 4, 5, footer / 2, footer - 1, footer, footer + 9, whole.len() - 8];
        for len in lengths.into_iter().chain(whole.len() - 7..whole.len()) {
            fs::write(&file, &whole[..len]).unwrap();
            assert_only_that_is_lost(&path, &written, table, &format!("cut to {len} of {}", whole.len()));
        }
        fs::write(&file, &whole).unwrap();
        assert_eq!(read(&path), (written.clone(), Vec::new()));
    }
}

#[test]
fn every_changed_byte_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut directory = RunDirectory::create(&path, &info()).unwrap();
    for (key, spike) in rows("idle", 1, 1).spikes {
        directory.rows().add_spikes(&key, [spike]);
    }
    directory.flush().unwrap();
    let file = path.join("spikes/000001.parquet");
    let whole = fs::read(&file).unwrap();
    assert_eq!(read(&path).0[0].spikes.len(), 1);
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1 << (at % 8);
        fs::write(&file, &changed).unwrap();
        let (segments, warnings) = read(&path);
        assert_eq!(segments, [Rows::default()], "byte {at}");
        assert_eq!(warnings.len(), 1, "byte {at}: {warnings:?}");
    }
}

#[test]
fn a_missing_file_costs_only_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let written = three_segments(&path);
    fs::remove_file(path.join("histograms/000002.parquet")).unwrap();
    let (rows, warnings) = read(&path);
    assert_eq!(rows[1], without(written[1].clone(), "histograms"));
    let expected = [
        "skipped histograms/000002.parquet: it is missing; lost: cell `idle`, repeat 1: timer, stall, 1.00 s of the repeat",
        "segment 2: skipped 3 intervals with 8 samples (the largest 200 ns): their histograms are missing",
    ];
    assert_eq!(warnings, expected);
}

#[test]
fn incomplete_writes_are_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let written = three_segments(&path);
    for name in ["run.json.tmp", "spikes/000004.parquet.tmp", "spikes/7.parquet", "spikes/notes.txt"] {
        fs::write(path.join(name), "half of som").unwrap();
    }
    assert_eq!(read(&path), (written, Vec::new()));
}

#[test]
fn files_of_other_makers_are_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    three_segments(&path);
    fs::write(path.join("rates/000002.parquet"), "PAR1 but nothing more of a table in it PAR1").unwrap();
    // A whole segment, but from another table.
    fs::copy(path.join("spikes/000001.parquet"), path.join("counters/000002.parquet")).unwrap();
    let (_, warnings) = read(&path);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(says("rates-parquet-skipped-its", &warnings[0]), "{warnings:?}");
    assert!(says("counters-parquet-skipped-not", &warnings[1]), "{warnings:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_content_makes_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), table in 0usize..6) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        three_segments(&path);
        fs::write(path.join(TABLES[table]).join("000002.parquet"), bytes).unwrap();
        let (rows, warnings) = read(&path);
        prop_assert_eq!(rows.len(), 3);
        prop_assert!(!warnings.is_empty());
    }
}
