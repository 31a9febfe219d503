//! Making, continuing and reading run directories.

use crate::made::{TABLES, add, info, key, rate_key, read, rows, three_segments};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::SystemTime;
use whylate_core::plan::{Source, builtin};
use whylate_core::result::RunState;
use whylate_core::{Facts, Plan};
use whylate_store::{Reader, RunDirectory, RunInfo, Sink as _, Span, StoreError};
use whylate_testing::{Need, says, skip};

#[test]
fn a_run_is_read_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/run");
    let written = three_segments(&path);
    assert_eq!(read(&path), (written, Vec::new()));
    for name in TABLES {
        let mut names: Vec<_> =
            fs::read_dir(path.join(name)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["000001.parquet", "000002.parquet", "000003.parquet"], "{name}");
    }
}

/// Later versions keep reading the runs that users have on disk.
#[test]
fn runs_of_earlier_versions_are_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/runs/format-1");
    let mut expected = rows("idle", 1, 1);
    expected.spikes[0].1.latency_ns = 120_000;
    expected.causes.iter_mut().for_each(|(_, spike)| spike.latency_ns = 120_000);
    // Columns and tables that were added later.
    expected.counters.iter_mut().for_each(|(_, row)| row.record.wakeups_seen = None);
    expected.causes.iter_mut().flat_map(|(_, spike)| &mut spike.causes).for_each(|it| it.counters = None);
    expected.sources.clear();
    expected.own.clear();
    expected.gpus.clear();
    expected.hwlat.clear();
    expected.tasks.clear();
    expected.audit.clear();
    expected.triggers.clear();
    expected.moments.clear();
    expected.chains.clear();
    expected.paths.clear();
    let (found, warnings) = read(&path);
    assert_eq!(found, [expected]);
    assert!(matches!(&warnings[..], [one] if says("not-sealed-earlier-version", one)), "{warnings:?}");
    assert_eq!(Reader::open(&path).unwrap().info().run, "test-run");
}

#[test]
fn the_directory_is_a_readable_run_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let directory = RunDirectory::create(&path, &info()).unwrap();
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.info(), &info());
    assert!(reader.is_in_progress());
    assert_eq!(reader.segments().count(), 0);
    drop(directory);
    assert!(!Reader::open(&path).unwrap().is_in_progress());
}

#[test]
fn an_empty_directory_is_taken_and_anything_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let occupied = |path: &Path| {
        let error = RunDirectory::create(path, &info()).unwrap_err();
        assert!(matches!(error, StoreError::Occupied { .. }), "{error}");
        let text = error.to_string();
        assert!(text.starts_with(path.to_str().unwrap()) && text.contains("`-o DIR`"), "{text}");
    };
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    RunDirectory::create(&empty, &info()).unwrap();
    occupied(&empty);
    let file = folder.path().join("file");
    fs::write(&file, "mine").unwrap();
    occupied(&file);
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    let below = RunDirectory::create(&file.join("run"), &info()).unwrap_err();
    assert!(matches!(below, StoreError::Io { .. }), "nothing is there that could be taken: {below}");
    let dangling = folder.path().join("link");
    symlink(folder.path().join("nowhere"), &dangling).unwrap();
    occupied(&dangling);
}

#[test]
fn info_survives_the_disk_for_every_built_in_plan() {
    let folder = tempfile::tempdir().unwrap();
    for builtin in builtin::ALL {
        let source = Source { name: builtin.name, text: builtin.text };
        let plan = Plan::parse(&source, &[]).unwrap();
        let mut info = RunInfo::new(builtin.name, SystemTime::now(), plan, Facts::default());
        let path = folder.path().join(builtin.name);
        let mut directory = RunDirectory::create(&path, &info).unwrap();
        info.state = RunState::Complete;
        info.restored = Some(true);
        directory.update_info(&info).unwrap();
        assert_eq!(Reader::open(&path).unwrap().info(), &info);
    }
}

#[test]
fn a_continued_run_never_overwrites_a_segment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut expected = three_segments(&path);
    fs::write(path.join("histograms/000009.parquet.tmp"), "half").unwrap();
    // A flush that was killed after its first table: its number is not reused.
    fs::copy(path.join("spikes/000003.parquet"), path.join("spikes/000004.parquet")).unwrap();
    let (mut directory, read_info) = RunDirectory::reopen(&path).unwrap();
    assert_eq!(read_info.run, "test-run");
    let more = rows("l3", 2, 9);
    add(&mut directory, &more);
    directory.flush().unwrap();
    assert!(path.join("histograms/000005.parquet").exists());
    expected.push(more);
    drop(directory);
    let left_out = "segment 4 is left out: it is incomplete, because the run was killed".to_owned();
    assert_eq!(read(&path), (expected, vec![left_out]));
}

#[test]
fn one_process_at_a_time_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let directory = RunDirectory::create(&path, &info()).unwrap();
    assert!(matches!(RunDirectory::reopen(&path), Err(StoreError::Busy { .. })));
    drop(directory);
    RunDirectory::reopen(&path).unwrap();
}

#[test]
fn paths_that_are_no_runs_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for path in [folder.path(), &file, &folder.path().join("missing")] {
        for error in [Reader::open(path).unwrap_err(), RunDirectory::reopen(path).unwrap_err()] {
            assert!(matches!(error, StoreError::NotARun { .. }), "{error}");
            assert!(error.to_string().contains("not a run directory"), "{error}");
        }
    }
}

#[test]
fn a_damaged_run_json_is_a_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    three_segments(&path);
    let file = path.join("run.json");
    let whole = fs::read_to_string(&file).unwrap();
    for len in [0, 1, 20, whole.len() / 2, whole.len() - 3] {
        fs::write(&file, &whole.as_bytes()[..len]).unwrap();
        let error = Reader::open(&path).unwrap_err();
        assert!(matches!(error, StoreError::BadInfo { .. }), "{len}: {error}");
        assert!(error.to_string().contains("run.json: the file is damaged"), "{error}");
    }
    fs::write(&file, whole.replace("whylate.run-directory/1", "whylate.run-directory/2")).unwrap();
    let error = Reader::open(&path).unwrap_err().to_string();
    assert!(error.contains("`whylate.run-directory/2`") && error.contains("reads `whylate.run-directory/1`"));
}

#[test]
fn a_flush_that_fails_loses_nothing_that_was_stored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut stored = three_segments(&path);
    let (mut directory, _) = RunDirectory::reopen(&path).unwrap();
    let more = rows("l3", 2, 9);
    add(&mut directory, &more);
    // This table cannot be written, after others were.
    let planted = path.join("rates/000004.parquet.tmp");
    fs::create_dir(&planted).unwrap();
    fs::write(planted.join("full"), "").unwrap();
    let error = directory.flush().unwrap_err();
    assert!(error.to_string().contains("rates/000004.parquet"), "{error}");
    assert_eq!(read(&path), (stored.clone(), Vec::new()));
    // There is space again: the same flush now succeeds, with all its rows.
    fs::remove_dir_all(&planted).unwrap();
    directory.flush().unwrap();
    stored.push(more);
    assert_eq!(read(&path), (stored, Vec::new()));
}

#[test]
fn a_run_is_written_and_continued_without_following_links() {
    let folder = tempfile::tempdir().unwrap();
    let (path, victim) = (folder.path().join("run"), folder.path().join("victim"));
    fs::write(&victim, "untouched").unwrap();
    three_segments(&path);
    let planted = ["run.json.tmp", "intervals/000004.parquet", "intervals/000004.parquet.tmp"];
    planted.iter().for_each(|name| symlink(&victim, path.join(name)).unwrap());
    let (mut directory, mut info) = RunDirectory::reopen(&path).unwrap();
    add(&mut directory, &rows("l3", 2, 9));
    directory.flush().unwrap();
    info.error = Some("other".to_owned());
    directory.update_info(&info).unwrap();
    symlink(&victim, path.join("treatments.jsonl")).unwrap();
    assert!(directory.add_treatments("{}").is_err());
    drop(directory);
    fs::remove_file(path.join("manifest.jsonl")).unwrap();
    symlink(&victim, path.join("manifest.jsonl")).unwrap();
    assert!(RunDirectory::reopen(&path).is_err());
    assert_eq!(fs::read(&victim).unwrap(), b"untouched");
}

/// Only root can make such a directory, and only root is refused.
#[test]
fn root_writes_only_where_others_cannot() {
    if !rustix::process::geteuid().is_root() {
        skip(Need::Rights, "not root");
        return;
    }
    use std::os::unix::fs::{PermissionsExt as _, chown};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    three_segments(&path);
    let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o777);
    assert!(matches!(RunDirectory::reopen(&path), Err(StoreError::OpenToAll(_))));
    mode(0o755);
    chown(path.join("spikes"), Some(12_345), None).unwrap();
    let error = RunDirectory::reopen(&path).unwrap_err().to_string();
    assert!(says("run-spikes-belongs-user", &error), "{error}");
    chown(path.join("spikes"), Some(0), None).unwrap();
    chown(&path, Some(12_345), None).unwrap();
    assert!(matches!(RunDirectory::reopen(&path), Err(StoreError::Foreign(_, 12_345))));
    Reader::open(&path).unwrap();
}

#[test]
fn interrupts_that_did_not_happen_take_no_row_and_an_empty_flush_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut directory = RunDirectory::create(&path, &info()).unwrap();
    let mut record = rows("idle", 1, 1).interrupts[0].1.record.clone();
    record.count = 0;
    directory.rows().add_interrupts(&key("idle", 1, 1, "timer"), Span::default(), [record]);
    directory.flush().unwrap();
    assert_eq!(fs::read_dir(path.join("interrupts")).unwrap().count(), 0);
}

#[test]
fn output_of_loads_has_a_file_of_its_own_inside_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let directory = RunDirectory::create(&path, &info()).unwrap();
    let output = directory.load_output_path(&rate_key("l3+copy", 2, 1, "../x 11"));
    fs::write(output, "output").unwrap();
    assert!(path.join("loads/l3+copy-2-1-.._x_11.txt").is_file());
}

#[test]
fn text_added_after_a_truncated_line_begins_a_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let directory = RunDirectory::create(&path, &info()).unwrap();
    directory.add_treatments("{\"a\":1}").unwrap();
    drop(directory);
    let file = path.join("treatments.jsonl");
    let content = || fs::read_to_string(&file).unwrap();
    let reopen = || RunDirectory::reopen(&path).unwrap().0;
    reopen().add_treatments("{\"b\":2}").unwrap();
    assert_eq!(content(), "{\"a\":1}\n{\"b\":2}\n", "nothing was cut off");
    fs::write(&file, "{\"a\":1}\n{\"b\":").unwrap();
    reopen().add_treatments("{\"c\":3}").unwrap();
    assert_eq!(content(), "{\"a\":1}\n{\"b\":\n{\"c\":3}\n");
    fs::write(&file, "").unwrap();
    reopen().add_treatments("{\"d\":4}").unwrap();
    assert_eq!(content(), "{\"d\":4}\n");
}
