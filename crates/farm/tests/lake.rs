//! A made lake: every question gives the same rows in every engine that is installed, quantiles are those of `stats`, and
//! planted facts are found.
//!
//! `WHYLATE_QUERY_PYTHON` names a Python with `duckdb`, `chdb` and `pyspark`; what it lacks is skipped.

#![allow(clippy::print_stderr)] // what was skipped, and why

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use whylate_core::plan::Source;
use whylate_core::record::{Interval, SpikeCauses};
use whylate_core::result::{Cause, CauseKind, RunState};
use whylate_core::{CpuId, Facts, Plan};
use whylate_farm::{Asked, Engine, FarmError, Lake, Push, Rows, ask, library, statements};
use whylate_stats::buckets::{index_of, lower_edge};
use whylate_store::{Execution, ExecutionState, Reader, RowKey, RunDirectory, RunInfo, Sink as _, assemble};

const DAY: u64 = 86_400;
const SECOND: u64 = 1_000_000_000;
const PLAN: &str = "name = \"nightly\"\nduration = \"10s\"\nrepeats = 2\nlimit = \"1ms\"\n[target]\ncpus = \"0-1\"\n\
    [[probe]]\nkind = \"timer\"\n[[treatment]]\nname = \"quiet\"\nkind = \"governor\"\ngovernor = \"performance\"\n[[cell]]\n[[cell]]\ntreatments = [\"quiet\"]\n";

/// A generator of numbers that looks random and is not (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 11
    }

    /// A latency with a tail: products of uniform numbers.
    fn latency(&mut self, scale: u64) -> u64 {
        let uniform = |it: &mut Self| (it.next() % 1000) as f64 / 1000.0;
        let tail = (0..4).fold(1.0, |value, _| value * (0.5 + 2.0 * uniform(self)));
        (scale as f64 * tail) as u64 + 100
    }
}

fn interval(random: &mut Random, cpu: u32, start_ns: u64, scale: u64) -> Interval {
    let values: Vec<u64> = (0..400).map(|_| random.latency(scale)).collect();
    let mut buckets: BTreeMap<u64, u64> = BTreeMap::new();
    for value in &values {
        *buckets.entry(lower_edge(index_of(*value))).or_default() += 1;
    }
    Interval {
        cpu: CpuId(cpu),
        start_ns,
        end_ns: start_ns + 5 * SECOND,
        samples: values.len() as u64,
        sum_ns: values.iter().sum(),
        min_ns: values.iter().min().copied(),
        max_ns: values.iter().max().copied(),
        overruns: Some(0),
        histogram: buckets.into_iter().collect(),
        ..Interval::default()
    }
}

/// A run of the night `night` on a board, of which `scale` says how late it is.
fn make_run(folder: &Path, host: &str, kernel: &str, night: u64, scale: u64) -> PathBuf {
    make_run_of(PLAN, folder, host, kernel, night, scale)
}

fn make_run_of(plan: &str, folder: &Path, host: &str, kernel: &str, night: u64, scale: u64) -> PathBuf {
    let mut facts = Facts { host: host.to_owned(), ..Facts::default() };
    facts.kernel.release = kernel.to_owned();
    facts.privileges.realtime_priority_max = 99;
    let cpus: whylate_core::CpuSet = "0-1".parse().unwrap();
    (facts.cpu_sets.present, facts.cpu_sets.online, facts.cpu_sets.allowed) =
        (cpus.clone(), cpus.clone(), cpus);
    let plan = Plan::parse(&Source { name: "nightly", text: plan }, &[]).unwrap();
    let name = format!("night-{night:03}");
    let started: SystemTime = UNIX_EPOCH + Duration::from_secs(1_790_000_000 + night * DAY);
    let mut info = RunInfo::new(&name, started, plan, facts);
    let path = folder.join(host).join(&name);
    let mut directory = RunDirectory::create(&path, &info).unwrap();
    let mut random = Random(night * 1000 + host.bytes().map(u64::from).sum::<u64>());
    for (slot, cell) in ["idle", "quiet", "idle", "quiet"].into_iter().enumerate() {
        let (slot, repeat) = (slot as u64, slot as u32 / 2 + 1);
        let key = RowKey { cell: cell.to_owned(), repeat, attempt: 1, probe: "timer".to_owned() };
        let key = Arc::new(key);
        let scale = if cell == "quiet" { scale / 2 } else { scale };
        for (cpu, part) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            let start_ns = (slot * 20 + part * 5) * SECOND;
            directory.rows().add_intervals(&key, [interval(&mut random, cpu, start_ns, scale)]);
        }
        let cause = Cause {
            actor: Some("irq/45-nvkm".to_owned()),
            share: Some(0.5),
            confidence: Some(0.9),
            ..Cause::new(CauseKind::IrqsOff)
        };
        let at_ns = slot * 20 * SECOND + 7;
        let spike =
            SpikeCauses { cpu: CpuId(0), series: None, at_ns, latency_ns: 100, causes: vec![cause], lost: 0 };
        directory.rows().add_causes(&key, [spike]);
        directory.flush().unwrap();
        info.executions.push(Execution {
            cell: cell.to_owned(),
            repeat,
            attempt: 1,
            block: 0,
            state: ExecutionState::Done,
            error: None,
            void: false,
        });
    }
    info.state = RunState::Complete;
    info.restored = Some(true);
    directory.seal(&info).unwrap();
    path
}

/// Boards `a`, `b` and `c` over 24 nights: `b` becomes later with a new kernel, `c` stops after 12 nights.
fn make_lake(folder: &Path) -> (Lake, Vec<PathBuf>) {
    let lake = Lake::open(folder.join("lake").to_str().unwrap(), true).unwrap();
    let mut runs = Vec::new();
    for night in 0..24 {
        for host in ["a", "b", "c"] {
            if host == "c" && night >= 12 {
                continue;
            }
            let is_new = night >= 14;
            let kernel = if is_new { "7.2.0-rt" } else { "6.12.0-rt" };
            let scale = if host == "b" && is_new { 8000 } else { 2000 };
            let run = make_run(folder, host, kernel, night, scale);
            lake.push(&run, &Push::default()).unwrap();
            runs.push(run);
        }
    }
    (lake, runs)
}

/// What an engine answers; `None` where it is not installed.
fn answer(engine: Engine, lake: &Lake, sql: &str) -> Option<Rows> {
    match ask(engine, &statements(engine, lake.url(), sql).unwrap()) {
        Ok(rows) => Some(rows),
        Err(error) if error.is_unavailable() => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}\n{sql}"),
    }
}

/// Whether two tables are equal, numbers with a fraction to nine digits: engines add in different orders.
fn is_same(a: &Rows, b: &Rows) -> bool {
    let equal = |(a, b): (&Value, &Value)| match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * a.abs().max(b.abs()),
        _ => a == b,
    };
    let is_row = |(a, b): (&Vec<Value>, &Vec<Value>)| a.len() == b.len() && a.iter().zip(b).all(equal);
    a.columns == b.columns && a.rows.len() == b.rows.len() && a.rows.iter().zip(&b.rows).all(is_row)
}

#[test]
fn every_engine_gives_the_rows_of_the_others_and_the_quantiles_of_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let (lake, runs) = make_lake(folder.path());
    let mut asked = Vec::new();
    for question in library() {
        let mut first: Option<Rows> = None;
        for engine in [Engine::DuckDb, Engine::ClickHouse, Engine::Spark] {
            // A session of Spark takes half a minute to begin.
            if engine == Engine::Spark && question.name != "regressions" && question.name != "quantiles" {
                continue;
            }
            let Some(rows) = answer(engine, &lake, question.sql) else { continue };
            match &first {
                None => first = Some(rows),
                Some(first) => {
                    assert!(is_same(first, &rows), "{}: {engine:?}:\n{first:?}\n{rows:?}", question.name);
                }
            }
        }
        let Some(rows) = first else { return };
        asked.push(question.name);
        of_question(question.name, &rows, &runs);
    }
    assert_eq!(asked.len(), library().len());
}

/// What was planted is found.
fn of_question(name: &str, rows: &Rows, runs: &[PathBuf]) {
    let column = |name: &str| rows.columns.iter().position(|it| it == name).unwrap();
    let words = |name: &str| -> Vec<&str> {
        rows.rows.iter().map(|row| row[column(name)].as_str().unwrap()).collect()
    };
    match name {
        "worst" => assert_eq!(words("host")[0], "b", "{rows:?}"),
        "silent" => assert_eq!(words("host"), ["c"], "{rows:?}"),
        "incomplete" => assert_eq!(words("host").len(), 3, "too few periods: {rows:?}"),
        "regressions" => {
            assert!(words("host").iter().all(|host| *host == "b"), "{rows:?}");
            assert!(words("first_run_after").contains(&"night-014"), "{rows:?}");
            assert!(words("kernel_after").contains(&"7.2.0-rt"), "{rows:?}");
        }
        "bounds" => {
            assert_eq!(words("kernel"), ["6.12.0-rt", "7.2.0-rt"]);
            let count: u64 = rows.rows.iter().map(|row| row[column("run_count")].as_u64().unwrap()).sum();
            assert_eq!(count, runs.len() as u64);
        }
        "causes" => assert!(words("actor").iter().all(|actor| *actor == "irq/45-nvkm"), "{rows:?}"),
        "treatments" => assert!(words("treatment").iter().all(|kind| *kind == "governor"), "{rows:?}"),
        "quantiles" => assert_eq!(quantiles(rows), quantiles_of(runs)),
        other => panic!("{other}: say what is planted"),
    }
}

type Quantiles = BTreeMap<(String, String, String, u64), Vec<u64>>;

/// Host, run, cell and CPU, with the 0.5, 0.99, 0.999 and 0.9999 quantiles.
fn quantiles(rows: &Rows) -> Quantiles {
    let mut found = Quantiles::new();
    for row in &rows.rows {
        let word = |index: usize| row[index].as_str().unwrap().to_owned();
        let key = (word(0), word(1), word(2), row[4].as_u64().unwrap());
        found.entry(key).or_default().push(row[6].as_u64().unwrap());
    }
    found
}

fn quantiles_of(runs: &[PathBuf]) -> Quantiles {
    let mut found = Quantiles::new();
    for path in runs {
        let reader = Reader::open(path).unwrap();
        let (host, run) = (reader.info().facts.host.clone(), reader.info().run.clone());
        let result = assemble(&reader).unwrap();
        for cell in &result.cells {
            for cpu in cell.probes.iter().flat_map(|probe| &probe.cpus) {
                let figures = cpu.quantiles.as_ref().unwrap();
                let key = (host.clone(), run.clone(), cell.name.clone(), u64::from(cpu.cpu.0));
                found.insert(key, vec![figures.p50_ns, figures.p99_ns, figures.p999_ns, figures.p9999_ns]);
            }
        }
    }
    found
}

#[test]
fn a_push_that_is_cut_off_anywhere_is_ended_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let run = make_run(folder.path(), "a", "6.12", 1, 2000);
    let place = folder.path().join("lake");
    let lake = Lake::open(place.to_str().unwrap(), true).unwrap();
    let pushed = lake.push(&run, &Push::default()).unwrap();
    assert!(
        pushed.mismatches.iter().any(|line| line.contains("periods asked for")),
        "{:?}",
        pushed.mismatches
    );
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

fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => open.push(entry.path()),
                false => {
                    let name = entry.path().strip_prefix(folder).unwrap().to_owned();
                    found.insert(name, std::fs::read(entry.path()).unwrap());
                }
            }
        }
    }
    found
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
    // As few periods as the made run has.
    let plan = PLAN.replace("kind = \"timer\"\n", "kind = \"timer\"\ninterval = \"100ms\"\n");
    let run = make_run_of(&plan, folder.path(), "a", "6.18.3", 1, 2000);
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
    };
    let mut how = Push { replace: false, asked };
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
    ];
    for line in wanted {
        assert!(pushed.mismatches.iter().any(|it| it == line), "{line}: {:?}", pushed.mismatches);
    }
    assert!(row().contains("incomplete") && row().contains(wanted[0]), "the row of the run");
}
