//! Runs in a lake: cut off, damaged, replaced, merged.

mod made;

use made::{Made, PLAN, answers, files, is_same, make, make_lake, make_run};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use whylate_core::Plan;
use whylate_core::plan::Source;
use whylate_farm::{Asked, Engine, FarmError, Lake, Push, Rows, library};

/// All answers of an engine over a lake.
fn all_answers(lake: &Lake) -> Option<Vec<Rows>> {
    answers(Engine::DuckDb, lake, &library().iter().map(|question| question.sql).collect::<Vec<_>>())
}

#[test]
fn months_that_are_merged_give_the_same_answers_wherever_a_merge_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lake");
    let (lake, runs) = make_lake(folder.path());
    let (before, loose) = (all_answers(&lake), files(&place));
    let is_same_as_before = |what: &str| {
        let Some(before) = &before else { return };
        for (question, (a, b)) in library().iter().zip(before.iter().zip(all_answers(&lake).unwrap())) {
            assert!(is_same(a, &b), "{what}: {}:\n{a:?}\n{b:?}", question.name);
        }
    };
    let merged = lake.merge("9999-01", false).unwrap();
    assert_eq!(merged.iter().map(|it| it.runs).sum::<usize>(), runs.len());
    let whole = files(&place);
    assert!(whole.len() < loose.len() / 2, "{} of {}", whole.len(), loose.len());
    is_same_as_before("merged");
    assert_eq!(lake.merge("9999-01", false).unwrap(), [], "there is nothing left to do");
    assert!(lake.check_merged().unwrap().iter().all(Result::is_ok));
    for run in lake.runs().unwrap() {
        lake.check(&run).unwrap();
    }
    assert_eq!(lake.push(&runs[0], &Push::default()).unwrap().objects, 0, "it is there");
    let replaces = Push { replace: true, ..Push::default() };
    assert_eq!(lake.push(&runs[0], &replaces).unwrap().objects, 2, "archive and manifest alone");
    let folder_of_other = folder.path().join("other");
    let other = make_run(&folder_of_other, "a", "6.12", 0, 9000);
    assert!(matches!(lake.push(&other, &replaces).unwrap_err(), FarmError::IsMerged(_)));
    assert!(files(&place) == whole);
    // The month's row says that nothing of what was asked for is missing.
    let asked = Asked { kernel: Some("0.1".to_owned()), ..Asked::default() };
    let other = Push { asked, ..replaces.clone() };
    assert!(matches!(lake.push(&runs[0], &other).unwrap_err(), FarmError::IsMerged(_)));
    assert!(files(&place) == whole);
    // Nobody knows where the rows of the run are.
    let manifest = place.join("runs/a/night-000/manifest.json");
    let kept = std::fs::read(&manifest).unwrap();
    std::fs::write(&manifest, "garbage").unwrap();
    let said = lake.push(&runs[0], &replaces).unwrap_err();
    assert!(matches!(said, FarmError::MaybeMerged(_)), "{said}");
    assert!(said.to_string().contains("runs/a/night-000/manifest.json"), "{said}");
    std::fs::write(&manifest, kept).unwrap();
    assert!(files(&place) == whole);

    // Cut off before its manifest, and when a part of the runs' own files was deleted.
    let name = |end: &str| whole.keys().find(|it| it.to_string_lossy().ends_with(end)).unwrap().clone();
    let manifest = whole.keys().find(|it| it.starts_with("merged/parts")).unwrap().clone();
    let mark = manifest.with_extension("begun");
    let first = merged[0].month.clone();
    let is_of_month = |name: &Path| name.to_string_lossy().contains(&format!("month={first}/"));
    let doomed: BTreeMap<(String, String), Vec<String>> = loose
        .keys()
        .filter(|name| is_of_month(name))
        .map(|name| {
            let text = name.to_str().unwrap().to_owned();
            let host = text.split("host=").nth(1).unwrap().split('/').next().unwrap().to_owned();
            ((host, name.file_stem().unwrap().to_str().unwrap().to_owned()), text)
        })
        .fold(BTreeMap::new(), |mut all, (key, name)| {
            all.entry(key).or_insert_with(Vec::new).push(name);
            all
        });
    let marked: Vec<Value> = doomed
        .iter()
        .map(|((host, run), objects)| serde_json::json!({"host": host, "run": run, "objects": objects}))
        .collect();
    for cut in ["before its manifest", "before the first deletion", "between deletions"] {
        for (number, (name, content)) in loose.iter().filter(|(name, _)| is_of_month(name)).enumerate() {
            if cut != "between deletions" || number % 2 == 0 {
                std::fs::create_dir_all(place.join(name).parent().unwrap()).unwrap();
                std::fs::write(place.join(name), content).unwrap();
            }
        }
        if cut != "between deletions" {
            for (host, run) in doomed.keys() {
                let manifest = PathBuf::from(format!("runs/{host}/{run}/manifest.json"));
                std::fs::write(place.join(&manifest), &loose[&manifest]).unwrap();
            }
        }
        if cut == "before its manifest" {
            std::fs::remove_file(place.join(&manifest)).unwrap();
        }
        std::fs::write(place.join(&mark), serde_json::to_vec(&marked).unwrap()).unwrap();
        is_same_as_before(cut);
        std::fs::write(place.join("merged/lock.json"), "{}").unwrap();
        assert!(matches!(lake.merge("9999-01", false).unwrap_err(), FarmError::Merging(_)), "{cut}");
        lake.merge("9999-01", true).unwrap();
        assert!(files(&place) == whole, "{cut}");
    }
    std::fs::write(place.join(name("parquet")), "garbage").unwrap();
    assert!(lake.check_merged().unwrap().iter().any(Result::is_err));
}

#[test]
fn a_damaged_month_is_made_anew_from_the_archives_of_its_runs() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lake");
    let (lake, runs) = make_lake(folder.path());
    let before = all_answers(&lake);
    lake.merge("9999-01", false).unwrap();
    let whole = files(&place);
    assert!(lake.repair(false).unwrap().is_empty(), "nothing is damaged");
    let of = |start: &str| {
        let month = |name: &&PathBuf| name.starts_with(start) && name.to_string_lossy().contains("2026-09");
        whole.keys().find(month).unwrap().clone()
    };
    let (table, manifest) = (of("merged/table=quantiles"), of("merged/parts"));
    for object in [&table, &manifest] {
        let parts = lake.layout().unwrap().merged;
        std::fs::write(place.join(object), "garbage").unwrap();
        let said = lake.check_merged().unwrap().into_iter().find_map(Result::err).unwrap().to_string();
        assert!(said.contains(object.to_str().unwrap()) && said.contains("--repair"), "{said}");
        let repaired = lake.repair(false).unwrap();
        assert!(matches!(&repaired[..], [Ok((month, 30))] if month == "2026-09"), "{repaired:?}");
        assert_eq!(lake.layout().unwrap().merged.len(), parts.len() - 1, "its runs have their own files");
        if let Some(before) = &before {
            assert!(before.iter().zip(all_answers(&lake).unwrap()).all(|(a, b)| is_same(a, &b)));
        }
        lake.merge("9999-01", false).unwrap();
        assert!(files(&place) == whole, "{}", object.display());
    }
    // Cut off before the month's manifest is deleted: the next merge leaves the month as it is.
    std::fs::write(place.join(&table), "garbage").unwrap();
    lake.repair(false).unwrap();
    let doomed: Vec<Value> = (files(&place).keys())
        .filter(|name| name.to_string_lossy().contains("month=2026-09/night"))
        .map(|name| {
            let text = name.to_str().unwrap();
            let host = text.split("host=").nth(1).unwrap().split('/').next().unwrap();
            serde_json::json!({"host": host, "run": name.file_stem().unwrap().to_str(), "objects": [text]})
        })
        .collect();
    for name in
        whole.keys().filter(|name| name.starts_with("merged") && name.to_string_lossy().contains("2026-09"))
    {
        std::fs::create_dir_all(place.join(name).parent().unwrap()).unwrap();
        std::fs::write(place.join(name), &whole[name]).unwrap();
    }
    std::fs::write(place.join(manifest.with_extension("begun")), serde_json::to_vec(&doomed).unwrap())
        .unwrap();
    lake.merge("9999-01", false).unwrap();
    assert_eq!(files(&place).keys().collect::<Vec<_>>(), whole.keys().collect::<Vec<_>>());
    // An archive that is damaged, too: nothing changes, until its run is pushed again.
    std::fs::write(place.join(&table), "garbage").unwrap();
    let archive = place.join("runs/b/night-001/run.tar.gz");
    std::fs::write(&archive, "garbage").unwrap();
    let damaged = files(&place);
    // The month after it is repaired all the same.
    let later = whole.keys().find(|name| name.starts_with("merged/table=runs/month=2026-10")).unwrap();
    std::fs::write(place.join(later), "garbage").unwrap();
    let mut repaired = lake.repair(false).unwrap();
    assert!(matches!(&repaired[..], [Err(_), Ok((month, _))] if month == "2026-10"), "{repaired:?}");
    let said = repaired.swap_remove(0).unwrap_err().to_string();
    assert!(said.contains("runs/b/night-001/run.tar.gz") && said.contains("--replace"), "{said}");
    lake.merge("9999-01", false).unwrap();
    assert!(files(&place) == damaged);
    let run = runs.iter().find(|run| run.ends_with("b/night-001")).unwrap();
    lake.push(run, &Push { replace: true, ..Push::default() }).unwrap();
    lake.repair(false).unwrap();
    lake.merge("9999-01", false).unwrap();
    assert!(lake.check_merged().unwrap().iter().all(Result::is_ok));
    assert!(lake.check(&lake.find("b/night-001").unwrap()).is_ok());
}

/// As names of files `night-000-2` is before `night-000`, and as names of runs behind it.
#[test]
fn a_damaged_month_is_made_anew_whatever_its_runs_are_called() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lake");
    let lake = Lake::open(place.to_str().unwrap(), true).unwrap();
    for name in ["night-000", "night-000-2"] {
        let run = make(folder.path(), &Made { name: Some(name), ..Made::default() });
        lake.push(&run, &Push::default()).unwrap();
    }
    lake.merge("9999-01", false).unwrap();
    let whole = files(&place);
    let table = whole.keys().find(|name| name.starts_with("merged/table=runs")).unwrap();
    std::fs::write(place.join(table), "garbage").unwrap();
    let repaired = lake.repair(false).unwrap();
    assert!(matches!(&repaired[..], [Ok((_, 2))]), "{repaired:?}");
    lake.merge("9999-01", false).unwrap();
    assert!(files(&place) == whole);
}

#[test]
fn a_push_that_is_cut_off_anywhere_is_ended_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let run = make_run(folder.path(), "a", "6.12", 1, 2000);
    let place = folder.path().join("lake");
    let lake = Lake::open(place.to_str().unwrap(), true).unwrap();
    let pushed = lake.push(&run, &Push::default()).unwrap();
    let objects = files(&place);
    // Objects get their names in an order; a cut leaves the first ones.
    let order: Vec<&PathBuf> = {
        let mut order: Vec<&PathBuf> = objects.keys().collect();
        let rank = |path: &&PathBuf| {
            let name = path.to_string_lossy();
            ["claim.json", "run.tar.gz", "table=histograms", "table=runs", "manifest.json"]
                .iter()
                .position(|part| name.contains(part))
                .unwrap_or(2)
        };
        order.sort_by_key(rank);
        order
    };
    for kept in 0..order.len() {
        for path in &order[kept..] {
            let _ = std::fs::remove_file(place.join(path));
        }
        assert!(lake.runs().unwrap().is_empty(), "no manifest, no run");
        assert!(lake.pull(&pushed.run, &folder.path().join("cut")).is_err());
        lake.push(&run, &Push::default()).unwrap();
        assert_eq!(files(&place), objects, "cut after {kept} objects");
        assert_eq!(lake.push(&run, &Push::default()).unwrap().objects, 0);
    }
}

/// A run in a lake, and the objects there.
fn pushed(folder: &Path) -> (PathBuf, Lake, BTreeMap<PathBuf, Vec<u8>>) {
    let run = make_run(folder, "a", "6.18.3", 1, 2000);
    let lake = Lake::open(folder.join("lake").to_str().unwrap(), true).unwrap();
    lake.push(&run, &Push::default()).unwrap();
    let objects = files(&folder.join("lake"));
    (run, lake, objects)
}

#[test]
fn a_damaged_run_is_named_by_a_push_and_mended_by_one_that_replaces() {
    let folder = tempfile::tempdir().unwrap();
    let (run, lake, objects) = pushed(folder.path());
    let place = folder.path().join("lake");
    let replaces = Push { replace: true, ..Push::default() };
    for name in objects.keys().filter(|name| !name.ends_with("claim.json")) {
        let is_manifest = name.ends_with("manifest.json");
        std::fs::write(place.join(name), "garbage").unwrap();
        let said = lake.push(&run, &Push::default()).unwrap_err().to_string();
        assert!(said.contains(name.to_str().unwrap()) && said.contains("--replace"), "{said}");
        if !is_manifest {
            std::fs::remove_file(place.join(name)).unwrap();
            let said = lake.push(&run, &Push::default()).unwrap_err().to_string();
            assert!(said.contains("it is missing") && said.contains(name.to_str().unwrap()), "{said}");
        }
        // What a check of sizes does not find, with a manifest that cannot be read.
        for (name, content) in &objects {
            let content: Vec<u8> = content.iter().map(|byte| byte ^ 1).collect();
            std::fs::write(place.join(name), content).unwrap();
        }
        // A table that the run of this content does not have.
        let orphan = place.join("table=older/host=a/month=2020-01/night-001.parquet");
        std::fs::create_dir_all(orphan.parent().unwrap()).unwrap();
        std::fs::write(&orphan, "old").unwrap();
        let mended = lake.push(&run, &replaces).unwrap();
        assert_eq!(mended.objects, objects.len() - 1, "all but the claim");
        assert_eq!(files(&place), objects);
        assert!(lake.check(&mended.run).is_ok());
        assert_eq!(lake.push(&run, &Push::default()).unwrap().objects, 0);
    }
}

#[test]
fn a_push_that_replaces_leaves_other_runs_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (run, lake, _) = pushed(folder.path());
    let others =
        [make_run(folder.path(), "a", "6.18", 2, 2000), make_run(folder.path(), "b", "6.18", 1, 2000)];
    for other in &others {
        lake.push(other, &Push::default()).unwrap();
    }
    let objects = files(&folder.path().join("lake"));
    lake.push(&run, &Push { replace: true, ..Push::default() }).unwrap();
    assert_eq!(files(&folder.path().join("lake")), objects);
}

#[test]
fn what_was_asked_for_and_is_not_so_is_in_the_lake() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lake");
    let plan = PLAN;
    let run = make_run(folder.path(), "a", "6.18.3", 1, 2000);
    let lake = Lake::open(place.to_str().unwrap(), true).unwrap();
    let first = lake.push(&run, &Push::default()).unwrap();
    assert_eq!(first.mismatches, Vec::<String>::new());
    // The smallest and the largest value of each column stand in a Parquet file as they are.
    let row = || {
        let objects = files(&place);
        let row = objects.iter().find(|(name, _)| name.starts_with("table=runs")).unwrap().1;
        String::from_utf8_lossy(row).into_owned()
    };
    assert!(!row().contains("incomplete"));
    let other = plan.replace("repeats = 2", "repeats = 3");
    let asked = Asked {
        plan: Some(Plan::parse(&Source { name: "nightly", text: &other }, &[]).unwrap()),
        kernel: Some("6.1".to_owned()),
        host: Some("b".to_owned()),
        // The run is of September 2026.
        now_s: Some(1_780_000_000),
    };
    let mut how = Push { asked, ..Push::default() };
    let said = lake.push(&run, &how).unwrap_err();
    assert!(matches!(said, FarmError::OtherMismatches(..)), "the lake does not know them: {said}");
    how.replace = true;
    let pushed = lake.push(&run, &how).unwrap();
    how.replace = false;
    assert_eq!(lake.push(&run, &how).unwrap().objects, 0);
    assert_eq!(lake.push(&run, &Push::default()).unwrap().objects, 0, "it says more than was asked for now");
    let wanted = [
        "kernel: 6.1 asked for, 6.18.3 ran",
        "host: b asked for, measured on a",
        "plan: the run has other values of repeats",
        "clock: the run began at 2026-09-22T14:13:20Z, more than a day ahead of this machine",
    ];
    for line in wanted {
        assert!(pushed.mismatches.iter().any(|it| it == line), "{line}: {:?}", pushed.mismatches);
    }
    assert!(row().contains("incomplete") && row().contains(wanted[0]), "the row of the run");
}

#[test]
fn a_machine_whose_name_cannot_stand_in_a_lake_is_given_one() {
    let folder = tempfile::tempdir().unwrap();
    let run = make_run(folder.path(), "rack/board 1", "6.12", 1, 2000);
    let lake = Lake::open(folder.path().join("lake").to_str().unwrap(), true).unwrap();
    let said = lake.push(&run, &Push::default()).unwrap_err().to_string();
    assert!(said.contains("`rack/board 1`") && said.contains("`--host NAME`"), "{said}");
    let named = |host: &str| {
        let asked = Asked { host: Some(host.to_owned()), ..Asked::default() };
        Push { asked, ..Push::default() }
    };
    assert!(matches!(lake.push(&run, &named("../x")).unwrap_err(), FarmError::BadHost(..)));
    assert!(files(&folder.path().join("lake")).is_empty());
    let pushed = lake.push(&run, &named("board-1")).unwrap();
    assert_eq!(pushed.run.host, "board-1");
    assert_eq!(pushed.mismatches, ["host: board-1 asked for, measured on rack/board 1"]);
    // A name that can stand there is never replaced.
    let other = make_run(folder.path(), "a", "6.12", 1, 2000);
    assert_eq!(lake.push(&other, &named("board-1")).unwrap().run.host, "a");
}
