//! Simulated runs, lakes of them, and answers of engines.

#![allow(dead_code)] // no test uses all of it

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use whylate_core::plan::Source;
use whylate_core::quantity::{OVERRUNS, Quantities};
use whylate_core::record::{Interval, SpikeCauses, SpikeRecord};
use whylate_core::result::{Cause, CauseKind, RunState};
use whylate_core::{CpuId, Facts, Plan};
use whylate_farm::{AnswerRows, Engine, FarmFile, Lake, Push, Wait};
use whylate_stats::buckets::{index_of, lower_edge};
use whylate_store::{
    Execution, ExecutionState, NOISE_FLOOR, RowKey, RunDirectory, RunInfo, Sink as _, is_being_written,
};
use whylate_testing::{Need, skip};

const DAY: u64 = 86_400;
const SECOND: u64 = 1_000_000_000;
pub(crate) const PLAN: &str = "name = \"nightly\"\nduration = \"10s\"\nrepeats = 2\nlimit = \"1ms\"\n[target]\ncpus = \"0-1\"\n\
    [[probe]]\nkind = \"timer\"\ninterval = \"100ms\"\n[[treatment]]\nname = \"quiet\"\nkind = \"governor\"\ngovernor = \"performance\"\n[[cell]]\n[[cell]]\ntreatments = [\"quiet\"]\n";

/// A reproducible generator of random-looking numbers (SplitMix64).
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
        quantities: Quantities::default().with(OVERRUNS, 0),
        histogram: buckets.into_iter().collect(),
        ..Interval::default()
    }
}

/// A run of the night `night` on a board; `scale` says how late it is.
pub(crate) fn make_run(folder: &Path, host: &str, kernel: &str, night: u64, scale: u64) -> PathBuf {
    make(folder, &Made { host, kernel, night, scale, ..Made::default() })
}

/// A run to make.
pub(crate) struct Made<'a> {
    /// Absent: named by its night.
    pub(crate) name: Option<&'a str>,
    pub(crate) plan: &'a str,
    pub(crate) host: &'a str,
    pub(crate) kernel: &'a str,
    pub(crate) night: u64,
    /// How late it is.
    pub(crate) scale: u64,
    pub(crate) state: RunState,
}

impl Default for Made<'_> {
    fn default() -> Self {
        Self {
            name: None,
            plan: PLAN,
            host: "a",
            kernel: "6.12",
            night: 0,
            scale: 2000,
            state: RunState::Complete,
        }
    }
}

pub(crate) fn make(folder: &Path, made: &Made<'_>) -> PathBuf {
    let Made { plan, host, kernel, night, scale, .. } = *made;
    let by_night = format!("night-{night:03}");
    let name = made.name.unwrap_or(&by_night);
    let mut facts = Facts { host: host.to_owned(), ..Facts::default() };
    facts.kernel.release = kernel.to_owned();
    facts.privileges.realtime_priority_max = 99;
    let cpus: whylate_core::CpuSet = "0-1".parse().unwrap();
    (facts.cpu_sets.present, facts.cpu_sets.online, facts.cpu_sets.allowed) =
        (cpus.clone(), cpus.clone(), cpus);
    let plan = Plan::parse(&Source { name: "nightly", text: plan }, &[]).unwrap();
    let started: SystemTime = UNIX_EPOCH + Duration::from_secs(1_790_000_000 + night * DAY);
    let mut info = RunInfo::new(name, started, plan, facts);
    let path = folder.join(host).join(name);
    let mut directory = RunDirectory::create(&path, &info).unwrap();
    let mut random = Random(night * 1000 + host.bytes().map(u64::from).sum::<u64>());
    for (slot, cell) in ["idle", "quiet", "idle", "quiet"].into_iter().enumerate() {
        let (slot, repeat) = (slot as u64, slot as u32 / 2 + 1);
        let key = RowKey { cell: cell.to_owned(), repeat, attempt: 1, probe: "timer".to_owned() };
        let key = Arc::new(key);
        let scale = if cell == "quiet" { scale / 2 } else { scale };
        for (cpu, part) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            // Planted: a CPU that is not measured any more, and half of the time.
            let (no_cpu, no_half) = (host == "a" && night == 23, host == "c" && night >= 7);
            if no_cpu && cpu == 1 || no_half && part == 1 {
                continue;
            }
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
        directory.rows().add_spikes(
            &key,
            [SpikeRecord { cpu: CpuId(0), at_ns, latency_ns: 100, ..SpikeRecord::default() }],
        );
        directory.rows().add_causes(&key, [spike]);
        let noise = Arc::new(RowKey { probe: NOISE_FLOOR.to_owned(), ..RowKey::clone(&key) });
        directory.rows().add_intervals(&noise, [interval(&mut random, 0, slot * 20 * SECOND, 100 * scale)]);
        let of_host = Cause { share: Some(1.0), ..Cause::new(CauseKind::HostStall) };
        let noisy = SpikeCauses {
            cpu: CpuId(0),
            series: None,
            at_ns,
            latency_ns: 1_000_000,
            causes: vec![of_host],
            lost: 0,
        };
        directory.rows().add_causes(&noise, [noisy]);
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
    info.state = made.state;
    info.restored = Some(true);
    directory.seal(&info).unwrap();
    drop(directory);
    // A process that another test starts has all open files until its program begins, including the lock of the run.
    for _ in 0..200 {
        if !is_being_written(&path) {
            return path;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} never ends", path.display());
}

/// Two boards with labels, and one without.
const FARM: &str = "name = \"rack\"\nlake = \"/srv\"\n[[host]]\nname = \"a\"\nlabels = { soc = \"rk3588\", rack = \"1\" }\n\
    [[host]]\nname = \"b\"\nlabels = { soc = \"n100\", rack = \"1\" }\n[[host]]\nname = \"c\"\n";

/// Boards `a`, `b` and `c` over 24 nights: `b` becomes later with a new kernel, `c` has fewer periods than its plan asks for
/// and stops after 12 nights.
pub(crate) fn make_lake(folder: &Path) -> (Lake, Vec<PathBuf>) {
    let lake = Lake::open(folder.join("lake").to_str().unwrap(), true).unwrap();
    let farm = Some(FarmFile::parse("farm.toml", FARM).unwrap());
    let mut runs = Vec::new();
    for night in 0..24 {
        for host in ["a", "b", "c"] {
            if host == "c" && night >= 12 {
                continue;
            }
            let is_new = night >= 14;
            let kernel = if is_new { "7.2.0-rt" } else { "6.12.0-rt" };
            let scale = if host == "b" && is_new { 8000 } else { 2000 };
            let plan = if host == "c" { PLAN.replace("100ms", "10ms") } else { PLAN.to_owned() };
            let run = make(folder, &Made { plan: &plan, host, kernel, night, scale, ..Made::default() });
            lake.push(&run, &Push { farm: farm.clone(), ..Push::default() }).unwrap();
            runs.push(run);
        }
    }
    (lake, runs)
}

pub(crate) const ENGINES: [Engine; 2] = [Engine::DuckDb, Engine::Spark];

/// The answer of an engine; `None` if it is not installed.
pub(crate) fn answer(engine: Engine, lake: &Lake, sql: &str) -> Option<AnswerRows> {
    answers(engine, lake, &[sql])?.pop()
}

/// The same for several questions: a session of Spark takes half a minute to start.
pub(crate) fn answers(engine: Engine, lake: &Lake, questions: &[&str]) -> Option<Vec<AnswerRows>> {
    match whylate_farm::answers(engine, lake, None, questions, Wait::default) {
        Ok(rows) => Some(rows),
        Err(error) if error.is_unavailable() => {
            skip(Need::Program("duckdb, pyspark (pip)"), error);
            None
        }
        Err(error) => panic!("{engine:?}: {error}\n{questions:?}"),
    }
}

/// Whether two tables are equal, with fractions compared to nine digits: engines add in different orders.
pub(crate) fn is_same(a: &AnswerRows, b: &AnswerRows) -> bool {
    let equal = |(a, b): (&Value, &Value)| match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * a.abs().max(b.abs()),
        _ => a == b,
    };
    let is_row = |(a, b): (&Vec<Value>, &Vec<Value>)| a.len() == b.len() && a.iter().zip(b).all(equal);
    a.columns == b.columns && a.rows.len() == b.rows.len() && a.rows.iter().zip(&b.rows).all(is_row)
}

pub(crate) fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
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
