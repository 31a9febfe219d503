//! Runs of many machines: into a lake and back, damaged objects, what was asked for.

use crate::tool::{SMALL_PLAN, alone, folder, text, whylate, write};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The files below a folder, with their content.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => open.push(entry.path()),
                false => {
                    let name = entry.path().strip_prefix(folder).unwrap().to_owned();
                    found.insert(name, fs::read(entry.path()).unwrap());
                }
            }
        }
    }
    found
}

#[test]
fn a_run_comes_back_as_it_was_and_damage_is_named() {
    let _alone = alone();
    let folder = folder();
    let (plan, run) = (write(&folder, "plan.toml", SMALL_PLAN), folder.path().join("run-1"));
    assert_eq!(whylate(&["run", &plan, "-o", text(&run), "--quiet"]).code, Some(0));
    let (lake, back) = (folder.path().join("lake"), folder.path().join("back"));
    let pushed = whylate(&["push", text(&run), text(&lake)]);
    assert!(pushed.code == Some(0) && pushed.stdout.contains("run-1"), "{pushed:?}");
    let there = files(&lake);
    let again = whylate(&["push", text(&run), text(&lake)]);
    assert!(again.code == Some(0) && again.stdout.contains("there already"), "{again:?}");
    assert!(files(&lake) == there, "a second push changes nothing");
    assert_eq!(whylate(&["pull", text(&lake.join("run-1")), text(&back)]).code, Some(0));
    assert!(files(&back) == files(&run), "bit for bit");
    let report = |run: &Path| whylate(&["report", text(run), "--json"]).document()["cells"].clone();
    assert_eq!(report(&back), report(&run));
    let taken = whylate(&["pull", text(&lake.join("run-1")), text(&back)]);
    assert!(taken.error().contains("exists"), "{taken:?}");

    // Cut off before its manifest: not there, and the next push ends it.
    let named = |end: &str| lake.join(there.keys().find(|name| name.ends_with(end)).unwrap());
    let (manifest, archive) = (named("manifest.json"), named("run.tar.gz"));
    fs::remove_file(&manifest).unwrap();
    fs::remove_file(&archive).unwrap();
    let host = archive.parent().unwrap();
    let cut = whylate(&["pull", text(host), text(&folder.path().join("cut"))]);
    assert!(cut.error().contains("did not end"), "{cut:?}");
    assert!(whylate(&["push", text(&run), text(&lake)]).stdout.contains("2 objects"));
    assert!(files(&lake) == there, "the same objects as of one push");

    // Damage of every kind is found and named.
    for (end, damage) in [("run.tar.gz", 3), ("parquet", 3), ("parquet", 0)] {
        let ends = |name: &&PathBuf| name.to_string_lossy().ends_with(end);
        let object = lake.join(there.keys().find(ends).unwrap());
        let whole = fs::read(&object).unwrap();
        let mut bytes = whole.clone();
        match damage {
            0 => bytes.truncate(whole.len() / 2),
            at => bytes[whole.len() / at] ^= 1,
        }
        fs::write(&object, bytes).unwrap();
        let said = whylate(&["pull", text(&lake), "--check"]);
        let name = object.file_name().unwrap().to_str().unwrap();
        assert!(said.code == Some(1) && said.stderr.contains("damaged in the lake"), "{said:?}");
        assert!(said.stderr.contains(name), "{said:?}");
        fs::write(&object, whole).unwrap();
    }
    assert_eq!(whylate(&["pull", text(&lake), "--check"]).code, Some(0));

    // Another content under the same name takes no place unasked.
    fs::write(run.join("labels.json"), r#"{"tags":["other"]}"#).unwrap();
    let other = whylate(&["push", text(&run), text(&lake)]);
    assert!(other.code == Some(1) && other.stderr.contains("another content"), "{other:?}");
    assert!(files(&lake) == there);
    assert_eq!(whylate(&["push", text(&run), text(&lake), "--replace"]).code, Some(0));
    let newer = folder.path().join("newer");
    assert_eq!(whylate(&["pull", text(host), text(&newer)]).code, Some(0));
    assert!(files(&newer) == files(&run));
}

#[test]
fn pushes_at_once_lose_nothing() {
    let _alone = alone();
    let folder = folder();
    let (plan, run) = (write(&folder, "plan.toml", SMALL_PLAN), folder.path().join("run-1"));
    assert_eq!(whylate(&["run", &plan, "-o", text(&run), "--quiet"]).code, Some(0));
    let (lake, back) = (folder.path().join("lake"), folder.path().join("back"));
    std::thread::scope(|scope| {
        let push = || whylate(&["push", text(&run), text(&lake)]);
        let pushes: Vec<_> = (0..4).map(|_| scope.spawn(push)).collect();
        for push in pushes {
            let said = push.join().unwrap();
            assert_eq!(said.code, Some(0), "{said:?}");
        }
    });
    assert_eq!(whylate(&["pull", text(&lake), "--check"]).code, Some(0));
    assert_eq!(whylate(&["pull", text(&lake.join("run-1")), text(&back)]).code, Some(0));
    assert!(files(&back) == files(&run));
}

#[test]
fn what_was_not_measured_is_no_pass() {
    let _alone = alone();
    let folder = folder();
    let (plan, run) = (write(&folder, "plan.toml", SMALL_PLAN), folder.path().join("run"));
    assert_eq!(whylate(&["run", &plan, "-o", text(&run), "--quiet"]).code, Some(0));
    let other = write(&folder, "other.toml", &SMALL_PLAN.replacen("repeats = ", "repeats = 1", 1));
    let wanted: [(&[&str], &str); 3] = [
        (&["--plan", &other], "plan: the run has other values of repeats"),
        (&["--kernel", "0.0"], "kernel: 0.0 asked for"),
        (&["--host", "another"], "host: another asked for"),
    ];
    for (asked, said) in wanted {
        let found = whylate(&[&["farm", "verify", text(&run)], asked].concat());
        assert!(found.code == Some(1) && found.stderr.contains(said), "{found:?}");
    }
    fs::remove_dir_all(run.join("intervals")).unwrap();
    let found = whylate(&["farm", "verify", text(&run)]);
    assert!(found.code == Some(1) && found.stderr.contains("INCOMPLETE: "), "{found:?}");
}
