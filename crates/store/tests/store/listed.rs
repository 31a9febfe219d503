//! A list shows the verdict of the report.

use crate::sealed::{complete, failing_run};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use whylate_core::result::{RunFigures, RunSummary, Verdict};
use whylate_store::{Folder, Reader, RunDirectory, RunList, VerdictCache, assemble, list};

/// Ends the run as `whylate run` does.
fn with_result(run: &Path) {
    let (mut directory, info) = RunDirectory::reopen(run).unwrap();
    directory.seal(&info).unwrap();
    let result = assemble(&Reader::of(directory.opened().clone()).unwrap()).unwrap();
    directory.write_result(&result).unwrap();
}

type Judged = (Option<Verdict>, Option<RunFigures>);

fn reported(run: &Path) -> Judged {
    let result = assemble(&Reader::open(run).unwrap()).ok();
    (result.as_ref().map(|it| it.verdict), result.as_ref().and_then(RunFigures::of))
}

fn judged(run: &RunSummary) -> Judged {
    (run.verdict, run.figures.clone())
}

fn listed(run: &Path) -> Judged {
    let listed = list(run.parent().unwrap(), None);
    listed.iter().find(|it| Path::new(&it.path) == run).map(judged).unwrap_or_default()
}

#[test]
fn a_verdict_that_was_edited_and_a_run_with_missing_data_are_listed_as_they_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let edit = |name: &str, change: &dyn Fn(String) -> String| {
        let path = run.join(name);
        let text = change(fs::read_to_string(&path).unwrap());
        fs::write(path, text).unwrap();
    };
    let first = |table: &str| {
        let mut files: Vec<_> = fs::read_dir(run.join(table)).unwrap().map(|it| it.unwrap().path()).collect();
        files.sort();
        files.remove(0)
    };
    let to_pass = |text: String| text.replace("\"fail\"", "\"pass\"");
    type Damage<'a> = (&'a str, &'a dyn Fn());
    let damages: [Damage<'_>; 8] = [
        ("nothing", &|| {}),
        ("result edited", &|| edit("result.json", &to_pass)),
        ("result removed", &|| fs::remove_file(run.join("result.json")).unwrap()),
        ("result and manifest edited", &|| {
            edit("result.json", &to_pass);
            edit("manifest.jsonl", &to_pass);
        }),
        ("segment deleted", &|| fs::remove_file(first("intervals")).unwrap()),
        ("table deleted", &|| fs::remove_dir_all(run.join("histograms")).unwrap()),
        ("byte flipped", &|| {
            let path = first("histograms");
            let mut bytes = fs::read(&path).unwrap();
            bytes[30] ^= 1;
            fs::write(path, bytes).unwrap();
        }),
        ("last line of the manifest removed", &|| {
            edit("manifest.jsonl", &|text| {
                let end = text.trim_end().rfind('\n').unwrap() + 1;
                text[..end].to_owned()
            });
        }),
    ];
    for (what, damage) in damages {
        failing_run(&run);
        with_result(&run);
        assert!(fs::read_to_string(run.join("result.json")).unwrap().contains("\"fail\""));
        let mut seen = RunList::default();
        let opened = Folder::open(folder.path()).unwrap();
        assert_eq!(seen.read(&opened)[0].verdict, Some(Verdict::Fail));
        damage();
        assert_eq!(listed(&run), reported(&run), "{what}");
        assert_ne!(listed(&run).0, Some(Verdict::Pass), "{what}");
        // A list that goes on sees it within seconds.
        let until = Instant::now() + Duration::from_secs(30);
        while judged(&seen.read(&opened)[0]) != reported(&run) {
            assert!(Instant::now() < until, "{what}: the list that goes on does not see it");
            std::thread::sleep(Duration::from_millis(200));
        }
        fs::remove_dir_all(&run).unwrap();
    }
}

#[test]
fn a_run_of_a_version_that_sealed_no_verdict_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    failing_run(&run);
    fs::write(run.join("result.json"), "{\"verdict\": \"pass\"}").unwrap();
    assert_eq!(listed(&run).0, Some(Verdict::Fail));
    drop(RunDirectory::create(&folder.path().join("empty"), &complete()).unwrap());
    assert_eq!(listed(&folder.path().join("empty")), (None, None), "it has no samples");
}

/// Prints how long lists take; for the records with `WHYLATE_LISTED_RUNS=1000`, `--release` and `--nocapture`.
#[test]
fn a_list_of_many_runs_has_each_run_however_it_is_read() {
    let count: usize = std::env::var("WHYLATE_LISTED_RUNS").map_or(12, |count| count.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("run-0");
    failing_run(&first);
    with_result(&first);
    for number in 1..count {
        let to = folder.path().join(format!("run-{number}"));
        for found in Folder::open(&first).unwrap().tree().unwrap() {
            let at = to.join(&found.name);
            match found.is_folder {
                true => fs::create_dir_all(at).unwrap(),
                false => _ = fs::copy(first.join(&found.name), at).unwrap(),
            }
        }
    }
    let bytes: u64 = Folder::open(&first).unwrap().tree().unwrap().iter().map(|it| it.bytes).sum();
    let opened = Folder::open(folder.path()).unwrap();
    let mut runs = RunList::default();
    for what in ["first", "again", "again"] {
        let begun = Instant::now();
        assert_eq!(runs.read(&opened).len(), count);
        eprintln!("{what}: {count} runs of {bytes} bytes in {:?}", begun.elapsed());
    }
    for run in fs::read_dir(folder.path()).unwrap() {
        // As an earlier version left it.
        let path = run.unwrap().path().join("manifest.jsonl");
        let text = fs::read_to_string(&path).unwrap();
        let end = text.trim_end().rfind('\n').unwrap() + 1;
        fs::write(&path, &text[..end]).unwrap();
    }
    let begun = Instant::now();
    assert_eq!(RunList::default().read(&opened).len(), count);
    eprintln!("without a sealed verdict: {:?}", begun.elapsed());
}

#[test]
fn a_verdict_of_the_cache_counts_only_while_no_file_of_the_run_has_changed() {
    let folder = tempfile::tempdir().unwrap();
    let caches = tempfile::tempdir().unwrap();
    let (cache, known) = (caches.path().join("cache"), caches.path().join("cache/verdicts"));
    let run = folder.path().join("run");
    failing_run(&run);
    with_result(&run);
    let listed = || list(folder.path(), VerdictCache::open(&cache).ok())[0].verdict;
    let until = Instant::now() + Duration::from_secs(60);
    // A recent write is not cached.
    while !known.exists() {
        assert_eq!(listed(), Some(Verdict::Fail));
        assert!(Instant::now() < until, "nothing is noted");
        std::thread::sleep(Duration::from_millis(100));
    }
    // The cache is used: a wrong entry is believed.
    let wrong = fs::read_to_string(&known).unwrap().replace("fail", "pass");
    fs::write(&known, &wrong).unwrap();
    assert_eq!(listed(), Some(Verdict::Pass));
    let segment = fs::read_dir(run.join("histograms")).unwrap().next().unwrap().unwrap().path();
    let (whole, written) = (fs::read(&segment).unwrap(), fs::metadata(&segment).unwrap().modified().unwrap());
    let mut flipped = whole.clone();
    flipped[30] ^= 1;
    // The same length and the same write time.
    fs::write(&segment, &flipped).unwrap();
    fs::File::options().write(true).open(&segment).unwrap().set_modified(written).unwrap();
    assert_eq!(listed(), reported(&run).0, "byte flipped");
    assert_ne!(listed(), Some(Verdict::Pass));
    fs::write(&segment, &whole).unwrap();
    assert_eq!(listed(), Some(Verdict::Fail), "written back");
    // A cache that another user can write is not used.
    fs::set_permissions(&cache, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    assert!(VerdictCache::open(&cache).is_err());
}
