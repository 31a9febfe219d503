//! Run directories with every kind of change: none gives a figure or verdict that differs from the whole run's
//! without a warning, and none makes the reader panic.

use crate::made::{SECOND, add, enough, execution, info, interval, key};
use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use whylate_core::quantity::OVERRUNS;
use whylate_core::result::{HistogramKind, LatencyRecord, RunResult, RunState, SpikeTrace, Verdict};
use whylate_core::{CpuId, Nanos};
use whylate_store::{ExecutionState, Reader, Rows, RunDirectory, RunInfo, Sink as _, StoreError, assemble};

/// A value above the limit of the runs that fail.
const LARGEST_NS: u64 = 10_027_008;
const SEGMENTS: usize = 8;

/// xorshift64*: the same changes each time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % limit.max(1) as u64) as usize
    }
}

fn complete(limit: Nanos) -> RunInfo {
    let mut info = info();
    (info.state, info.restored) = (RunState::Complete, Some(true));
    info.plan.limit = Some(limit);
    // The first attempt at one repeat failed.
    info.executions.push(execution("idle", 1, 1, ExecutionState::Failed));
    for (cell, repeat, attempt) in [("idle", 1, 2), ("idle", 2, 1), ("l3", 1, 1), ("l3", 2, 1)] {
        info.executions.push(execution(cell, repeat, attempt, ExecutionState::Done));
    }
    info
}

/// Rows of each flush: of the failed attempt, of three repeats, and of one with two more flushes.
fn flushes() -> Vec<Rows> {
    let order =
        [("idle", 1), ("idle", 1), ("idle", 2), ("l3", 1), ("l3", 2), ("l3", 2), ("l3", 2), ("l3", 2)];
    let mut flushes: Vec<Rows> =
        (1..).zip(order).map(|(nth, (cell, repeat))| enough(cell, repeat, 4 * nth)).collect();
    // The second one belongs to the attempt that counts.
    let second = &mut flushes[1];
    let newer = |key: &mut Arc<whylate_store::RowKey>| Arc::make_mut(key).attempt = 2;
    second.intervals.iter_mut().for_each(|(key, _)| newer(key));
    second.spikes.iter_mut().for_each(|(key, _)| newer(key));
    second.causes.iter_mut().for_each(|(key, _)| newer(key));
    second.ipis.iter_mut().for_each(|(key, _)| newer(key));
    second.rates.iter_mut().for_each(|(key, _)| Arc::make_mut(key).attempt = 2);
    second.interrupts.iter_mut().for_each(|(key, _)| newer(key));
    second.counters.iter_mut().for_each(|(key, _)| newer(key));
    let worst = interval(0, 31, &[5, LARGEST_NS]);
    flushes[6].intervals.push((key("l3", 2, 1, "timer"), worst));
    flushes
}

fn write_run(path: &Path, limit: Nanos, flushes: &[Rows]) {
    let info = complete(limit);
    let mut directory = RunDirectory::create(path, &info).unwrap();
    for rows in flushes {
        add(&mut directory, rows);
        directory.flush().unwrap();
    }
    let record = LatencyRecord { latency_ns: 7, ..LatencyRecord::default() };
    let histograms = key("idle", 2, 1, "histograms");
    directory.add_latency_record(&histograms, CpuId(0), HistogramKind::Wakeup, &record).unwrap();
    let trace = directory.new_trace_path("l3", 2, 1);
    fs::write(&trace, "a trace").unwrap();
    let note = serde_json::json!({
        "path": RunDirectory::trace_name(&trace), "cell": "l3", "repeat": 2, "attempt": 1, "probe": "timer",
        "cpu": 1, "at_ns": 6 * SECOND + 7, "latency_ns": 21,
    });
    directory.keep_trace_note(&serde_json::from_value::<SpikeTrace>(note).unwrap()).unwrap();
    directory.seal(&info).unwrap();
}

/// Every file of a run, by its relative path.
fn files(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            let name = PathBuf::from(entry.file_name().unwrap());
            found.extend(files(&entry).into_iter().map(|(below, bytes)| (name.join(below), bytes)));
        } else {
            found.insert(entry.file_name().unwrap().into(), fs::read(&entry).unwrap());
        }
    }
    found
}

/// A run as it was written, with its result.
struct Whole {
    files: BTreeMap<PathBuf, Vec<u8>>,
    result: RunResult,
    limit: Nanos,
}

impl Whole {
    fn new(place: &Path, limit: Nanos, verdict: Verdict) -> Self {
        write_run(place, limit, &flushes());
        let result = assembled(place).unwrap();
        assert_eq!((result.verdict, &result.warnings[..]), (verdict, &[][..]));
        let whole = Self { files: files(place), result, limit };
        fs::remove_dir_all(place).unwrap();
        whole
    }

    /// Writes the run there, with the files in `changed` replaced or removed.
    fn write(&self, place: &Path, changed: &BTreeMap<PathBuf, Option<Vec<u8>>>) {
        for (name, bytes) in &self.files {
            if !changed.contains_key(name) {
                put(&place.join(name), bytes);
            }
        }
        for (name, bytes) in changed {
            bytes.iter().for_each(|bytes| put(&place.join(name), bytes));
        }
    }

    /// Checks that the read result is right, or says what is wrong.
    fn check(&self, place: &Path, what: &str) {
        let read = catch_unwind(AssertUnwindSafe(|| assembled(place)));
        let read = read.unwrap_or_else(|_| panic!("{what}: the reader panicked"));
        // An error says so too.
        let Ok(mut result) = read else { return };
        let is_said = !result.warnings.is_empty();
        let is_same = result.verdict == self.result.verdict && result.cells == self.result.cells;
        assert!(is_said || is_same, "{what}: differs and does not say so: {}", result.verdict_reason);
        if result.verdict == Verdict::Pass {
            assert_eq!(self.result.verdict, Verdict::Pass, "{what}");
            // Traces may be lost: no figure rests on them.
            for (cell, whole) in result.cells.iter_mut().zip(&self.result.cells) {
                cell.traces.clone_from(&whole.traces);
            }
            assert_eq!(result.cells, self.result.cells, "{what}: passes with other figures");
        }
    }
}

fn put(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn assembled(path: &Path) -> Result<RunResult, StoreError> {
    assemble(&Reader::open(path)?)
}

/// Changes files as a faulty disk or a person would.
fn change_files(whole: &Whole, random: &mut Random) -> (String, BTreeMap<PathBuf, Option<Vec<u8>>>) {
    let names: Vec<&PathBuf> = whole.files.keys().collect();
    let name = names[random.below(names.len())];
    let mut bytes = whole.files[name].clone();
    let mut changed = BTreeMap::new();
    let at = random.below(bytes.len());
    let kind = random.below(9);
    match kind {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes.truncate(at),
        2 => {
            let end = (at + 1 + random.below(64)).min(bytes.len());
            bytes[at..end].fill(0);
        }
        3 => bytes.insert(at, random.below(256) as u8),
        4 => drop(bytes.remove(at)),
        5 => bytes.extend_from_within(at..),
        // A line, or a piece of that size, is removed.
        6 => {
            let end =
                bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |len| at + len + 1);
            let begin = bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |before| before + 1);
            bytes.drain(begin..end);
        }
        // Exchanged with another file, or a copy of it.
        7 => {
            let other = names[random.below(names.len())];
            changed.insert(other.clone(), Some(std::mem::replace(&mut bytes, whole.files[other].clone())));
        }
        _ => {
            let same_number = |other: &&&PathBuf| name.extension() == other.extension();
            let is_whole_flush = random.below(2) == 0;
            for other in names.iter().filter(same_number).filter(|it| it.file_name() == name.file_name()) {
                if is_whole_flush || *other == name {
                    changed.insert((*other).clone(), None);
                }
            }
        }
    }
    changed.entry(name.clone()).or_insert(Some(bytes));
    (format!("change {kind} at byte {at} of {}", name.display()), changed)
}

/// Makes rows of one flush impossible.
fn make_nonsense(rows: &mut Rows, random: &mut Random) -> usize {
    let kind = random.below(22);
    let nth = random.below(3);
    let (key, interval) = &mut rows.intervals[nth];
    let other = |name: &str| crate::made::key(name, key.repeat, key.attempt, &key.probe);
    match kind {
        0 => interval.histogram[0].1 += 1 + random.below(9) as u64,
        1 => interval.histogram[0].1 = u64::MAX >> 1,
        2 => interval.samples += 1 + random.below(1_000) as u64,
        3 => interval.max_ns = Some(1),
        4 => interval.max_ns = Some(1_000_000 << random.below(30)),
        5 => interval.min_ns = Some(1 << (20 + random.below(30))),
        6 => interval.end_ns = interval.start_ns - 1 - random.below(1_000) as u64,
        7 => interval.sum_ns = 1_000_000 << random.below(30),
        8 => interval.histogram[0].0 = 257 + 2 * random.below(1_000) as u64,
        9 => (interval.min_ns, interval.max_ns) = (None, None),
        10 => interval.quantities.set(OVERRUNS, i64::MAX as u64),
        11 => interval.spikes_dropped = i64::MAX as u64,
        12 => *key = other("unheard-of"),
        13 => Arc::make_mut(key).attempt += 5,
        14 => Arc::make_mut(key).probe = "unheard-of".to_owned(),
        15 => {
            let twice = rows.intervals[nth].clone();
            rows.intervals.push(twice);
        }
        16 => rows.spikes[0].1.latency_ns = 1_000_000 << random.below(30),
        17 => {
            let twice = rows.spikes[0].clone();
            rows.spikes.push(twice);
        }
        18 => rows.rates[0].1.value = [f64::NAN, f64::INFINITY, -1.0][random.below(3)],
        19 => rows.interrupts[0].1.record.count = i64::MAX as u64,
        20 => rows.interrupts[0].1.span.end_ns = 0,
        _ => rows.causes[0].1.causes[0].share = Some([7.0, -0.5, f64::NAN][random.below(3)]),
    }
    kind
}

/// The files of a run with impossible rows in one of its flushes.
fn nonsense(place: &Path, whole: &Whole, random: &mut Random) -> (String, BTreeMap<PathBuf, Vec<u8>>) {
    let mut flushes = flushes();
    let nth = random.below(SEGMENTS);
    let kind = make_nonsense(&mut flushes[nth], random);
    write_run(place, whole.limit, &flushes);
    let files = files(place);
    fs::remove_dir_all(place).unwrap();
    (format!("nonsense {kind} in segment {}", nth + 1), files)
}

fn mutate(count: usize) {
    // In memory, if there is such a place: these tests write much.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let place = folder.path().join("run");
    let wholes = [
        Whole::new(&place, Nanos::from_millis(20), Verdict::Pass),
        Whole::new(&place, Nanos::from_millis(6), Verdict::Fail),
    ];
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for nth in 0..count {
        let whole = &wholes[nth % 2];
        let (what, changed) = match random.below(4) {
            0 | 1 => change_files(whole, &mut random),
            way => {
                let (what, files) = nonsense(&place, whole, &mut random);
                // With the manifest that lists it, or in place of files that the manifest lists.
                let own_manifest = way == 2;
                let is_taken = |name: &Path| own_manifest || name != Path::new("manifest.jsonl");
                let changed = files.into_iter().filter(|(name, _)| is_taken(name));
                let changed = changed.map(|(name, bytes)| (name, Some(bytes))).collect();
                (format!("{what}, listed: {own_manifest}"), changed)
            }
        };
        whole.write(&place, &changed);
        whole.check(&place, &format!("{nth}: {what}"));
        fs::remove_dir_all(&place).unwrap();
    }
}

/// `benches/run_directory_mutations.sh` runs thousands.
#[test]
fn no_change_of_a_run_directory_is_taken_for_a_result() {
    let asked = std::env::var("WHYLATE_MUTATIONS").ok().map(|count| count.parse().unwrap());
    mutate(asked.unwrap_or(240));
}
