//! Runs in a lake: interrupted, damaged, replaced; and all of them as one file.

mod made;

use made::{ENGINES, Made, PLAN, answers, files, is_same, make, make_lake, make_run};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use whylate_core::Plan;
use whylate_core::plan::Source;
use whylate_core::result::RunState;
use whylate_farm::{AnswerRows, Asked, Engine, FarmError, FarmFile, Lake, Push, library};
use whylate_store::Labels;
use whylate_testing::{Need, skip};

/// The statement of docs/FARM.md that makes one file for each table.
fn copy(from: &Path, to: &Path) -> Option<()> {
    let page = include_str!("../../../docs/FARM.md");
    let sql = page.split("```sql copy\n").nth(1).unwrap().split("```").next().unwrap();
    let tables = std::fs::read_dir(from).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
    let statements: Vec<String> = tables
        .filter_map(|name| Some(name.strip_prefix("table=")?.to_owned()))
        .map(|table| {
            std::fs::create_dir_all(to.join(format!("merged/table={table}"))).unwrap();
            let sql = sql.replace("LAKE", from.to_str().unwrap()).replace("COMPACT", to.to_str().unwrap());
            sql.replace("TABLE", &table)
        })
        .collect();
    assert_eq!(statements.len(), 8);
    let python = std::env::var("WHYLATE_QUERY_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let run = "import sys\ntry:\n    import duckdb\nexcept ImportError:\n    sys.exit(69)\n\
        for it in sys.argv[1:]: duckdb.connect().execute(it)";
    let status = Command::new(&python).args(["-c", run]).args(statements).status();
    match status.ok().and_then(|status| status.code()) {
        Some(0) => Some(()),
        Some(69) | None => {
            skip(Need::Program("duckdb, pyspark (pip)"), format!("{python} has no duckdb"));
            None
        }
        Some(code) => panic!("the statement failed: {code}"),
    }
}

fn is_answered_alike(engine: Engine, one: &[AnswerRows], lake: &Lake) {
    let questions: Vec<&str> = library().iter().map(|question| question.sql).collect();
    let other = answers(engine, lake, &questions).unwrap();
    for (question, (a, b)) in library().iter().zip(one.iter().zip(&other)) {
        assert!(is_same(a, b), "{engine:?}: {}:\n{a:?}\n{b:?}", question.name);
    }
}

/// Moves the files of a lake's tables of a month.
fn move_month(from: &Path, to: &Path, month: &str) {
    let is_of_month = |name: &&PathBuf| {
        let name = name.to_string_lossy();
        name.starts_with("table=") && name.contains(&format!("month={month}/"))
    };
    for name in files(from).keys().filter(is_of_month) {
        std::fs::create_dir_all(to.join(name).parent().unwrap()).unwrap();
        std::fs::rename(from.join(name), to.join(name)).unwrap();
    }
}

/// All runs as one file for each table; and those of a month in one file, next to the files of the other runs.
#[test]
fn one_file_a_table_gives_the_same_answers() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (place, compact) = (path("lake"), path("compact"));
    let (lake, _) = make_lake(folder.path());
    for _ in 0..2 {
        if copy(&place, &compact).is_none() {
            return;
        }
    }
    assert_eq!(files(&compact).len(), 8, "tables without rows are there, too");
    let of_all = Lake::open(compact.to_str().unwrap(), false).unwrap();
    let layouts = [&lake, &of_all].map(|lake| lake.layout().unwrap());
    assert_eq!(layouts.map(|it| (it.has_runs, it.has_months)), [(true, false), (false, true)]);
    let questions: Vec<&str> = library().iter().map(|question| question.sql).collect();
    let known: Vec<(Engine, Vec<AnswerRows>)> = ENGINES
        .into_iter()
        .filter_map(|engine| Some((engine, answers(engine, &lake, &questions)?)))
        .collect();
    known.iter().for_each(|(engine, rows)| is_answered_alike(*engine, rows, &of_all));
    move_month(&place, &path("october"), "2026-10");
    copy(&place, &compact).unwrap();
    move_month(&place, &path("september"), "2026-09");
    move_month(&path("october"), &place, "2026-10");
    std::fs::rename(compact.join("merged"), place.join("merged")).unwrap();
    let layout = lake.layout().unwrap();
    assert!(layout.has_runs && layout.has_months, "{layout:?}");
    known.iter().for_each(|(engine, rows)| is_answered_alike(*engine, rows, &lake));
}

/// The remains of a month that an earlier version merged.
#[test]
fn a_month_that_an_earlier_version_merged_is_checked_and_its_runs_are_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lake");
    let lake = Lake::open(place.to_str().unwrap(), true).unwrap();
    let run = make_run(folder.path(), "a", "6.12", 0, 2000);
    lake.push(&run, &Push::default()).unwrap();
    let manifest = place.join("runs/a/night-000/manifest.json");
    let mut of_run: Value = serde_json::from_slice(&std::fs::read(&manifest).unwrap()).unwrap();
    let is_table = |object: &Value| object["name"].as_str().unwrap().starts_with("table=");
    let (tables, others): (Vec<Value>, Vec<Value>) =
        of_run["objects"].as_array().unwrap().iter().cloned().partition(is_table);
    let moved: Vec<Value> = tables
        .into_iter()
        .map(|mut object| {
            let from = object["name"].as_str().unwrap().to_owned();
            let table = from.split('/').next().unwrap();
            let to = format!("merged/{table}/month=2026-09/0123456789abcdef.parquet");
            std::fs::create_dir_all(place.join(&to).parent().unwrap()).unwrap();
            std::fs::rename(place.join(&from), place.join(&to)).unwrap();
            object["name"] = to.into();
            object
        })
        .collect();
    let month = serde_json::json!({"format": "whylate.lake-run/1", "runs": 1, "objects": moved});
    of_run["merged"] = "2026-09/0123456789abcdef".into();
    of_run["objects"] = others.into();
    std::fs::write(&manifest, of_run.to_string()).unwrap();
    let parts = place.join("merged/parts/2026-09");
    std::fs::create_dir_all(&parts).unwrap();
    std::fs::write(parts.join("0123456789abcdef.json"), month.to_string()).unwrap();
    let layout = lake.layout().unwrap();
    assert_eq!((layout.has_runs, layout.has_months), (false, true));
    let checked = lake.check_months().unwrap();
    assert!(matches!(&checked[..], [Ok((month, 1..))] if month == "2026-09"), "{checked:?}");
    lake.check(&lake.find("night-000").unwrap()).unwrap();
    assert_eq!(lake.push(&run, &Push::default()).unwrap().objects, 0, "it is there");
    let whole = files(&place);
    let replaces = Push { replace: true, ..Push::default() };
    for damage in [false, true] {
        if damage {
            std::fs::write(&manifest, "garbage").unwrap();
        }
        let said = lake.push(&run, &replaces).unwrap_err();
        assert!(matches!(said, FarmError::IsMerged(_)), "{said}");
    }
    std::fs::write(&manifest, &whole[Path::new("runs/a/night-000/manifest.json")]).unwrap();
    assert!(files(&place) == whole);
    std::fs::write(place.join("merged/table=runs/month=2026-09/0123456789abcdef.parquet"), "garbage")
        .unwrap();
    assert!(lake.check_months().unwrap().iter().all(Result::is_err));
    std::fs::write(parts.join("0123456789abcdef.begun"), "[]").unwrap();
    let said = lake.layout().unwrap_err();
    assert!(matches!(said, FarmError::HalfMerged(_)), "{said}");
}

#[test]
fn the_next_push_completes_one_that_was_interrupted_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let run = make_run(folder.path(), "a", "6.12", 1, 2000);
    let place = folder.path().join("lake");
    let lake = Lake::open(place.to_str().unwrap(), true).unwrap();
    let pushed = lake.push(&run, &Push::default()).unwrap();
    let objects = files(&place);
    // Objects get their names in order; an interruption leaves the first ones.
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

/// A job that is started again continues its run: it replaces the part that is in the lake, and nothing else does.
#[test]
fn a_run_that_was_continued_replaces_its_earlier_part() {
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::open(folder.path().join("lake").to_str().unwrap(), true).unwrap();
    let run = |part: &str, night: u64, state: RunState| {
        let made = Made { name: Some("nightly-slot"), night, state, ..Made::default() };
        make(&folder.path().join(part), &made)
    };
    let [part, whole] = [("part", RunState::Interrupted), ("whole", RunState::Complete)]
        .map(|(name, state)| run(name, 1, state));
    let first = lake.push(&part, &Push::default()).unwrap();
    assert!(first.mismatches.iter().any(|line| line.starts_with("state: ")), "{first:?}");
    let other = run("other", 2, RunState::Complete);
    let said = lake.push(&other, &Push::default()).unwrap_err().to_string();
    assert!(said.contains("--replace"), "another run of the same name: {said}");
    // An interrupted push of the part is no obstacle either.
    std::fs::remove_file(folder.path().join("lake/runs/a/nightly-slot/manifest.json")).unwrap();
    let second = lake.push(&whole, &Push::default()).unwrap();
    assert!(second.objects > 0 && second.mismatches.is_empty(), "{second:?}");
    lake.check(&second.run).unwrap();
    assert_eq!(lake.push(&whole, &Push::default()).unwrap().objects, 0);
    assert!(lake.push(&part, &Push::default()).is_err(), "a complete run stays");
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
        // Damage that a check of sizes does not find, with a manifest that cannot be read.
        for (name, content) in &objects {
            let content: Vec<u8> = content.iter().map(|byte| byte ^ 1).collect();
            std::fs::write(place.join(name), content).unwrap();
        }
        // A table that the run with this content does not have.
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
fn a_file_that_does_not_belong_to_a_run_is_not_packed() {
    let folder = tempfile::tempdir().unwrap();
    let run = make_run(folder.path(), "a", "6.18.3", 1, 2000);
    let table = run.join("intervals/000009.parquet");
    std::fs::File::create(&table).unwrap().set_len(16 << 30).unwrap();
    let lake = Lake::open(folder.path().join("lake").to_str().unwrap(), true).unwrap();
    let said = lake.push(&run, &Push::default()).unwrap_err().to_string();
    assert!(said.contains("000009.parquet") && said.contains("17179869184 bytes"), "{said}");
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
fn differences_from_the_request_are_in_the_lake() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lake");
    let plan = PLAN;
    let run = make_run(folder.path(), "a", "6.18.3", 1, 2000);
    let lake = Lake::open(place.to_str().unwrap(), true).unwrap();
    let first = lake.push(&run, &Push::default()).unwrap();
    assert_eq!(first.mismatches, Vec::<String>::new());
    // A Parquet file stores the smallest and the largest value of each column as they are.
    let row = || {
        let objects = files(&place);
        let row = objects.iter().find(|(name, _)| name.starts_with("table=runs")).unwrap().1;
        String::from_utf8_lossy(row).into_owned()
    };
    assert!(!row().contains("incomplete"));
    let other = plan.replace("repeats = 2", "repeats = 3");
    let asked = Asked {
        plan: Some(Plan::parse(&Source { name: "nightly", text: &other }, &[]).unwrap()),
        short: None,
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
        "kernel: 6.1 was requested, 6.18.3 ran",
        "host: b was requested, measured on a",
        "plan: the run has other values of repeats",
        "clock: the run began at 2026-09-22T14:13:20Z, more than a day ahead of this machine",
    ];
    for line in wanted {
        assert!(pushed.mismatches.iter().any(|it| it == line), "{line}: {:?}", pushed.mismatches);
    }
    assert!(row().contains("incomplete") && row().contains(wanted[0]), "the row of the run");
}

#[test]
fn a_run_of_the_short_form_meets_the_request_of_its_plan() {
    let folder = tempfile::tempdir().unwrap();
    let short_form = format!("{PLAN}[short]\nduration = \"10s\"\nrepeats = 2\n");
    let whole = short_form.replacen("\"10s\"", "\"60s\"", 1).replacen("repeats = 2", "repeats = 8", 1);
    let run = make(folder.path(), &Made { plan: &short_form, ..Made::default() });
    let lake = Lake::open(folder.path().join("lake").to_str().unwrap(), true).unwrap();
    let pushed = |text: &str| {
        let source = Source { name: "nightly", text };
        let (plan, short) = (Plan::parse(&source, &[]).unwrap(), Plan::parse_short(&source, &[]).unwrap());
        let asked = Asked { plan: Some(plan), short: Some(short), ..Asked::default() };
        let pushed = lake.push(&run, &Push { asked, replace: true, ..Push::default() }).unwrap();
        (pushed.is_short, pushed.mismatches)
    };
    assert_eq!(pushed(&whole), (true, Vec::new()));
    let other = whole.replace("100ms", "50ms");
    let difference = "plan: the run has other values of duration, probe, repeats".to_owned();
    assert_eq!(pushed(&other), (false, vec![difference]));
}

#[test]
fn a_machine_whose_name_is_not_valid_in_a_lake_gets_another() {
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
    assert_eq!(pushed.mismatches, ["host: board-1 was requested, measured on rack/board 1"]);
    // A valid name is never replaced.
    let other = make_run(folder.path(), "a", "6.12", 1, 2000);
    assert_eq!(lake.push(&other, &named("board-1")).unwrap().run.host, "a");
}

#[test]
fn a_farm_file_gives_labels_and_the_kernel_of_its_machines() {
    let folder = tempfile::tempdir().unwrap();
    let run = make_run(folder.path(), "a", "6.18.3", 1, 2000);
    let place = folder.path().join("lake");
    let lake = Lake::open(place.to_str().unwrap(), true).unwrap();
    let with = |host: &str, replace: bool, kernel: Option<&str>| {
        let text = format!(
            "name = \"rack\"\nlake = \"/srv\"\n[[host]]\nname = \"{host}\"\nkernel = \"6.12\"\nlabels = {{ soc = \"n100\" }}\n"
        );
        let farm = Some(FarmFile::parse("farm.toml", &text).unwrap());
        let asked = Asked { kernel: kernel.map(str::to_owned), ..Asked::default() };
        lake.push(&run, &Push { replace, asked, farm }).unwrap()
    };
    let manifest = || {
        let text = std::fs::read(place.join("runs/a").join(run.file_name().unwrap()).join("manifest.json"));
        let manifest: Value = serde_json::from_slice(&text.unwrap()).unwrap();
        manifest["labels"].as_str().unwrap_or_default().to_owned()
    };
    let pushed = with("a", false, None);
    assert_eq!(pushed.mismatches, ["kernel: 6.12 was requested, 6.18.3 ran"]);
    let again = lake.push(&run, &Push { replace: true, ..Push::default() }).unwrap();
    assert_eq!(again.mismatches, pushed.mismatches, "a push without a request keeps the stored one");
    assert!(!pushed.is_stranger);
    assert_eq!(manifest(), "soc=n100");
    assert!(with("a", true, Some("6.18")).mismatches.is_empty(), "a request comes before the farm file");
    // A repaired run keeps its labels.
    let repaired = lake.push(&run, &Push { replace: true, ..Push::default() }).unwrap();
    assert!(repaired.objects > 1 && !repaired.is_stranger);
    assert_eq!(manifest(), "soc=n100");
    let stranger = with("b", true, None);
    assert!(stranger.is_stranger && stranger.mismatches.is_empty(), "{:?}", stranger.mismatches);
    assert_eq!(manifest(), "soc=n100");
    for (tags, labels) in [(&["new", "two words"][..], "soc=n100 tag=new tag=two_words"), (&[], "soc=n100")] {
        let tags = tags.iter().map(|&tag| tag.to_owned()).collect();
        Labels { tags, note: None }.write(&run).unwrap();
        with("a", true, None);
        assert_eq!(manifest(), labels);
    }
}
