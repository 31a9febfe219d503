//! A run with limited disk space: older intervals become longer, and no count is lost.

use crate::made::{SECOND, info, interval, key};
use std::path::Path;
use whylate_core::CpuId;
use whylate_core::quantity::{OVERRUNS, Quantities};
use whylate_core::record::{Interval, SourceRecord, SpikeRecord, TaskRecord};
use whylate_core::result::CauseKind;
use whylate_store::{Keeping, Reader, RunDirectory, Sink as _, Span};
use whylate_testing::says;

const FLUSHES: u64 = 250;

/// A flush each second: an interval, the thread's record, a thief, and two spikes; the one of second 3 is the
/// largest.
fn write(path: &Path, keeping: Keeping) -> RunDirectory {
    let mut directory = RunDirectory::create(path, &info()).unwrap();
    directory.limit(keeping);
    let task = key("idle", 1, 1, "task/audio");
    for second in 0..FLUSHES {
        let rows = directory.rows();
        let samples: Vec<u64> = (0..40).map(|nth| (nth * 7 + second) % 250).collect();
        rows.add_intervals(
            &task,
            vec![Interval {
                quantities: Quantities::default().with(OVERRUNS, 2),
                ..interval(1, second, &samples)
            }],
        );
        let span = Span { start_ns: second * SECOND, end_ns: (second + 1) * SECOND };
        let record = TaskRecord { cpu: CpuId(1), thread: 7, run_ns: 5, ..TaskRecord::default() };
        rows.add_tasks(&task, span, vec![record]);
        let thief = SourceRecord {
            cpu: CpuId(1),
            kind: CauseKind::Thread,
            actor: Some("thief".to_owned()),
            gaps: 1,
            total_ns: 10,
            max_ns: second,
            ..SourceRecord::default()
        };
        rows.add_sources(&task, span, vec![thief]);
        let spike = |nth: u64| SpikeRecord {
            cpu: CpuId(1),
            at_ns: second * SECOND + nth,
            latency_ns: if (second, nth) == (3, 1) { 9_000 } else { 100 + second },
            ..SpikeRecord::default()
        };
        rows.add_spikes(&task, [spike(1), spike(2)]);
        directory.flush().unwrap();
    }
    directory
}

/// Intervals, samples, sum, missed, largest; run time of the thread, time of the thief, number of spikes and the largest.
fn sums(path: &Path) -> ([u64; 5], [u64; 2], (usize, u64)) {
    let reader = Reader::open(path).unwrap();
    assert!(reader.damages().is_empty(), "{:?}", reader.damages());
    let (mut counts, mut others, mut spikes) = ([0; 5], [0; 2], (0, 0));
    let mut end_ns = 0;
    for segment in reader.segments() {
        assert!(segment.damages.is_empty(), "{:?}", segment.damages);
        for (_, one) in &segment.rows.intervals {
            assert!(one.start_ns >= end_ns, "the order of time is kept over segments");
            end_ns = one.end_ns;
            assert_eq!(one.histogram.iter().map(|(_, count)| count).sum::<u64>(), one.samples);
            let of = [1, one.samples, one.sum_ns, one.quantities.get(OVERRUNS).unwrap(), 0];
            counts.iter_mut().zip(of).for_each(|(sum, one)| *sum += one);
            counts[4] = counts[4].max(one.max_ns.unwrap());
        }
        others[0] += segment.rows.tasks.iter().map(|(_, it)| it.record.run_ns).sum::<u64>();
        others[1] += segment.rows.sources.iter().map(|(_, it)| it.record.total_ns).sum::<u64>();
        spikes.0 += segment.rows.spikes.len();
        let largest = segment.rows.spikes.iter().map(|(_, it)| it.latency_ns).max().unwrap_or(0);
        spikes.1 = spikes.1.max(largest);
    }
    (counts, others, spikes)
}

fn bytes(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| match entry.path().is_dir() {
            true => bytes(&entry.path()),
            false => {
                entry.metadata().unwrap().len()
                    * u64::from(entry.path().extension().is_some_and(|it| it == "parquet"))
            }
        })
        .sum()
}

#[test]
fn older_intervals_become_longer_and_every_sample_stays() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, small] = ["whole", "small"].map(|name| folder.path().join(name));
    let all = write(&whole, Keeping::default());
    assert_eq!(all.thinned(), None);
    let limited = write(&small, Keeping { bytes: Some(1), whole_ns: None });
    let cost = limited.thinned().expect("more than a byte");
    assert!(cost.contains("into one") && says("spikes-them-are-left", &cost), "{cost}");
    assert!(cost.contains("still takes more"), "{cost}");
    let ((counts, others, spikes), (fewer, same, kept)) = (sums(&whole), sums(&small));
    assert_eq!(
        (counts[1..].to_vec(), others),
        (fewer[1..].to_vec(), same),
        "nothing that was counted is lost"
    );
    assert!(counts[0] == FLUSHES && fewer[0] < FLUSHES * 3 / 4, "{fewer:?}");
    assert_eq!((spikes, kept.1), ((2 * FLUSHES as usize, 9_000), 9_000), "the largest spike stays");
    assert!(kept.0 < spikes.0, "{kept:?}");
    assert!(bytes(&small) < bytes(&whole), "{} of {}", bytes(&small), bytes(&whole));
}

#[test]
fn segments_too_large_to_be_joined_become_coarser_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large");
    let mut directory = RunDirectory::create(&path, &info()).unwrap();
    directory.limit(Keeping { bytes: Some(1), whole_ns: None });
    let task = key("idle", 1, 1, "task/audio");
    const SPIKES: u64 = 50_000;
    for second in 0..4 {
        directory.rows().add_intervals(&task, vec![interval(1, second, &[7])]);
        let spike = |nth| SpikeRecord {
            cpu: CpuId(1),
            at_ns: second * SECOND + nth,
            latency_ns: nth,
            ..SpikeRecord::default()
        };
        directory.rows().add_spikes(&task, (0..SPIKES).map(spike));
        directory.flush().unwrap();
    }
    assert!(directory.thinned().is_some());
    let reader = Reader::open(&path).unwrap();
    let spikes: Vec<usize> = reader.segments().map(|segment| segment.rows.spikes.len()).collect();
    let whole = spikes.iter().filter(|number| **number == SPIKES as usize).count();
    assert!(spikes.len() == 4 && whole == 2, "the last two may be as they were: {spikes:?}");
}

#[test]
fn rows_older_than_the_limit_become_coarser_although_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, aged] = ["whole", "aged"].map(|name| folder.path().join(name));
    write(&whole, Keeping::default());
    let kept = write(&aged, Keeping { bytes: None, whole_ns: Some(60 * SECOND) });
    let cost = kept.thinned().expect("the run is longer than that");
    assert!(!cost.contains("takes more"), "{cost}");
    let ((counts, others, _), (fewer, same, spikes)) = (sums(&whole), sums(&aged));
    assert_eq!((counts[1..].to_vec(), others), (fewer[1..].to_vec(), same));
    assert!(fewer[0] < FLUSHES, "{fewer:?}");
    assert_eq!(spikes.1, 9_000, "the largest spike stays");
}
