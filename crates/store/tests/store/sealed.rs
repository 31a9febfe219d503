//! A directory that was damaged after its run never passes, and says what is lost.

use crate::made::{SECOND, TABLES, add, enough, execution, info, interval, key, rows};
use std::fs;
use std::path::Path;
use whylate_core::Nanos;
use whylate_core::record::Interval;
use whylate_core::result::{RunResult, RunState, Verdict};
use whylate_store::{ExecutionState, Reader, RunDirectory, RunInfo, Sink as _, StoreError, assemble};
use whylate_testing::says;

/// The largest value of the run, in its sixth segment.
const LARGEST_NS: u64 = 10_027_008;

pub(crate) fn complete() -> RunInfo {
    let mut info = info();
    (info.state, info.restored) = (RunState::Complete, Some(true));
    info.plan.limit = Some(Nanos::from_millis(6));
    let cells = ["idle", "l3"].into_iter();
    info.executions = cells
        .flat_map(|cell| [1, 2].map(|repeat| execution(cell, repeat, 1, ExecutionState::Done)))
        .collect();
    info
}

/// A run of two cells and two repeats, with two segments each: it fails by one sample in `l3`.
pub(crate) fn failing_run(path: &Path) {
    let mut directory = RunDirectory::create(path, &complete()).unwrap();
    for (nth, (cell, repeat)) in [("idle", 1), ("idle", 2), ("l3", 1), ("l3", 2)].into_iter().enumerate() {
        for second in [8 * nth as u64, 8 * nth as u64 + 4] {
            add(&mut directory, &enough(cell, repeat, second));
            if second == 20 {
                let worst = interval(0, 100, &[5, LARGEST_NS]);
                directory.rows().add_intervals(&key(cell, repeat, 1, "timer"), [worst]);
            }
            directory.flush().unwrap();
        }
    }
    directory.seal(&complete()).unwrap();
}

fn assembled(path: &Path) -> RunResult {
    assemble(&Reader::open(path).unwrap()).unwrap()
}

/// Damages the failing run and returns its result.
fn after(damage: impl FnOnce(&Path)) -> RunResult {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    failing_run(&path);
    let whole = assembled(&path);
    assert_eq!((whole.verdict, whole.warnings), (Verdict::Fail, Vec::new()));
    damage(&path);
    assembled(&path)
}

fn said(result: &RunResult, code: &str) -> String {
    let found = result.warnings.iter().find(|warning| warning.code == code);
    found.unwrap_or_else(|| panic!("{code}: {:?}", result.warnings)).text.clone()
}

#[test]
fn a_damaged_segment_with_the_maximum_makes_no_pass() {
    let result = after(|path| {
        let file = path.join("intervals/000006.parquet");
        let mut bytes = fs::read(&file).unwrap();
        bytes[40] ^= 1;
        fs::write(file, bytes).unwrap();
    });
    assert_eq!(result.verdict, Verdict::Incomplete);
    let lost = "data are lost or damaged: cell `l3`, repeat 1: timer, stall,";
    assert!(result.verdict_reason.contains(lost), "{}", result.verdict_reason);
    assert!(says("intervals-parquet-skipped-its", said(&result, "damaged-segment")));
    let errors: Vec<bool> = result.cells[1].repeats.iter().map(|repeat| repeat.error.is_some()).collect();
    assert_eq!(errors, [true, false], "the repeat is not compared");
}

#[test]
fn missing_segments_are_named_with_what_they_held() {
    let result = after(|path| {
        TABLES.iter().for_each(|table| fs::remove_file(path.join(table).join("000006.parquet")).unwrap());
    });
    assert_eq!(result.verdict, Verdict::Incomplete);
    let text = said(&result, "damaged-segment");
    assert!(text.contains("intervals/000006.parquet"), "{text}");
    assert!(says("skipped-missing-cell-l3", &text), "{text}");
}

#[test]
fn swapped_and_extra_segments_are_not_read() {
    let result = after(|path| {
        let file = |number| path.join(format!("intervals/{number:06}.parquet"));
        fs::rename(file(6), path.join("kept")).unwrap();
        fs::rename(file(5), file(6)).unwrap();
        fs::rename(path.join("kept"), file(5)).unwrap();
    });
    assert_eq!(result.verdict, Verdict::Incomplete, "{}", result.verdict_reason);
    assert!(says("not-file-that-manifest", said(&result, "damaged-segment")));
    let extra = after(|path| {
        fs::copy(path.join("intervals/000006.parquet"), path.join("intervals/000009.parquet")).unwrap();
    });
    assert_eq!(extra.verdict, Verdict::Fail, "what was seen stays");
    assert!(says("segment-left-out", said(&extra, "damaged-segment")), "{:?}", extra.warnings);
}

/// A change to a run directory.
type Change<'a> = Box<dyn Fn(&Path) + 'a>;

#[test]
fn a_manifest_that_was_cut_altered_or_removed_is_noticed() {
    let lines = |path: &Path, keep: fn(usize, usize) -> bool| {
        let file = path.join("manifest.jsonl");
        let text = fs::read_to_string(&file).unwrap();
        let count = text.lines().count();
        let kept = text.lines().enumerate().filter(|(nth, _)| keep(*nth, count));
        fs::write(file, kept.map(|(_, line)| format!("{line}\n")).collect::<String>()).unwrap();
    };
    let cases: [(&str, Change<'_>); 5] = [
        ("its last lines are missing", Box::new(|path| lines(path, |nth, count| nth + 1 < count))),
        ("was altered, or lines before it are missing", Box::new(|path| lines(path, |nth, _| nth != 4))),
        ("is missing", Box::new(|path| fs::remove_file(path.join("manifest.jsonl")).unwrap())),
        ("does not begin", Box::new(|path| fs::write(path.join("manifest.jsonl"), "").unwrap())),
        (
            "lists a different checksum for `run.json`",
            Box::new(|path| {
                let file = path.join("run.json");
                let text = fs::read_to_string(&file).unwrap();
                assert!(text.contains("\"limit\": \"6ms\""), "{text}");
                fs::write(file, text.replace("\"limit\": \"6ms\"", "\"limit\": \"60ms\"")).unwrap();
            }),
        ),
    ];
    for (expected, damage) in cases {
        let result = after(|path| damage(path));
        let text = said(&result, "damaged-manifest");
        assert!(text.contains(expected), "{text}");
        assert_ne!(result.verdict, Verdict::Pass, "{expected}");
    }
}

#[test]
fn latency_records_and_trace_notes_belong_to_the_seal() {
    let result = after(|path| fs::write(path.join("latency-records.jsonl"), "").unwrap());
    assert!(said(&result, "altered-file").contains("latency-records.jsonl was altered"));
    let result = after(|path| fs::write(path.join("traces/idle-1-1-1.json"), "{}").unwrap());
    assert!(said(&result, "altered-file").contains("traces/idle-1-1-1.json was altered"));
}

#[test]
fn latency_records_of_unknown_cells_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    failing_run(&path);
    let (mut directory, _) = RunDirectory::reopen(&path).unwrap();
    let (kind, record) = (whylate_core::result::HistogramKind::Wakeup, Default::default());
    directory
        .add_latency_record(&key("unheard-of", 1, 1, "histograms"), whylate_core::CpuId(0), kind, &record)
        .unwrap();
    directory.seal(&complete()).unwrap();
    drop(directory);
    let text = said(&assembled(&path), "unreadable-latency-record");
    assert!(says("skipped-rows-first-because", &text), "{text}");
}

#[test]
fn a_run_that_was_sealed_can_be_continued_and_sealed_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    failing_run(&path);
    let (mut directory, mut info) = RunDirectory::reopen(&path).unwrap();
    info.executions.push(execution("idle", 1, 2, ExecutionState::Done));
    directory.update_info(&info).unwrap();
    directory.rows().add_intervals(&key("idle", 1, 2, "timer"), [interval(0, 200, &[9])]);
    directory.flush().unwrap();
    drop(directory);
    // Killed here: not sealed, but no damage either.
    let mut killed = info.clone();
    killed.state = RunState::Running;
    let (mut directory, _) = RunDirectory::reopen(&path).unwrap();
    directory.update_info(&killed).unwrap();
    drop(directory);
    let result = assembled(&path);
    assert_eq!((&result.warnings[..], result.verdict), (&[][..], Verdict::Fail));
    let (mut directory, _) = RunDirectory::reopen(&path).unwrap();
    directory.seal(&info).unwrap();
    drop(directory);
    assert_eq!(assembled(&path).warnings, []);
}

#[test]
fn a_damaged_run_is_not_continued() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    failing_run(&path);
    fs::remove_file(path.join("manifest.jsonl")).unwrap();
    let error = RunDirectory::reopen(&path).unwrap_err();
    assert!(matches!(error, StoreError::Damaged(..)), "{error}");
}

#[test]
fn an_old_run_without_one_whole_segment_does_not_pass() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    failing_run(&path);
    fs::remove_file(path.join("manifest.jsonl")).unwrap();
    let file = path.join("run.json");
    let text = fs::read_to_string(&file).unwrap().replace("  \"manifest\": true,\n", "");
    fs::write(&file, text).unwrap();
    assert_eq!(said(&assembled(&path), "not-sealed").split(':').next(), Some("not sealed"));
    for table in ["histograms", "intervals"] {
        fs::remove_file(path.join(table).join("000006.parquet")).unwrap();
    }
    assert_eq!(assembled(&path).verdict, Verdict::Pass, "other tables of it are there: nothing tells");
    for table in TABLES.into_iter().filter(|table| !["histograms", "intervals"].contains(table)) {
        fs::remove_file(path.join(table).join("000006.parquet")).unwrap();
    }
    let result = assembled(&path);
    assert_eq!(result.verdict, Verdict::Incomplete);
    assert!(says("segment-missing-from-every", said(&result, "damaged-segment")));
}

/// Impossible sums, maxima and clocks in files that are whole.
#[test]
fn figures_that_contradict_each_other_are_damage() {
    let cases: [(&str, Interval); 7] = [
        ("before it begins", Interval { end_ns: SECOND, ..interval(0, 50, &[10]) }),
        ("does not contain the 9 samples", Interval { samples: 9, ..interval(0, 50, &[10]) }),
        (
            "does not contain",
            Interval {
                histogram: vec![(10, u64::MAX >> 1), (11, u64::MAX >> 1)],
                ..interval(0, 50, &[10, 11])
            },
        ),
        (
            "a maximum is above the range of its histogram",
            Interval { max_ns: Some(900), ..interval(0, 50, &[10]) },
        ),
        (
            "a maximum is below the range of its histogram",
            Interval { max_ns: Some(100), ..interval(0, 50, &[10, 240]) },
        ),
        ("does not fit the 5 samples", Interval { sum_ns: 1_000_000, ..interval(0, 50, &[10]) }),
        ("within the previous interval", interval(0, 1, &[10])),
    ];
    for (expected, wrong) in cases {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let mut directory = RunDirectory::create(&path, &complete()).unwrap();
        add(&mut directory, &rows("idle", 1, 1));
        directory.flush().unwrap();
        directory.rows().add_intervals(&key("idle", 1, 1, "timer"), [wrong]);
        directory.seal(&complete()).unwrap();
        directory.flush().unwrap();
        directory.seal(&complete()).unwrap();
        drop(directory);
        let result = assembled(&path);
        let text = said(&result, "contradictory-rows");
        assert!(text.contains(expected) && says("cell-idle-repeat-timer-2", &text), "{expected}: {text}");
        assert_eq!(result.verdict, Verdict::Incomplete, "{expected}");
    }
}
