//! The disk that a run takes: a small version of `examples/simulate_day.rs`.

use crate::made::{SECOND, info, key};
use std::fs;
use std::path::Path;
use whylate_core::CpuId;
use whylate_core::quantity::{OVERRUNS, Quantities};
use whylate_core::record::{InterruptRecord, Interval};
use whylate_store::{RunDirectory, Sink as _, Span};

const CPUS: u32 = 64;
const MINUTES: u64 = 4;
const BUCKETS: u64 = 120;
/// 200 MB over the 256 CPUs and 1440 minutes of a day.
const BYTES_PER_CPU_AND_MINUTE_MAX: u64 = 200_000_000 / (256 * 1440);

/// Counts like those of 5,000 samples a second around 2 us, different in each interval.
fn minute(cpu: u32, minute: u64, random: &mut u64) -> Interval {
    let mut histogram = Vec::new();
    for bucket in 0..BUCKETS {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let distance = bucket.abs_diff(BUCKETS / 2) as f64 / 18.0;
        let expected = 6_600.0 * (-0.5 * distance * distance).exp();
        let noise = expected.sqrt() * ((*random >> 40) as f64 / f64::from(1 << 22) - 2.0);
        histogram.push((2_048 + 16 * (bucket + u64::from(cpu) % 8), (expected + noise).max(1.0) as u64));
    }
    let samples = histogram.iter().map(|(_, count)| count).sum();
    Interval {
        cpu: CpuId(cpu),
        start_ns: minute * 60 * SECOND + u64::from(cpu),
        end_ns: (minute + 1) * 60 * SECOND + u64::from(cpu),
        samples,
        sum_ns: histogram.iter().map(|(lower, count)| lower * count).sum(),
        min_ns: Some(histogram[0].0),
        max_ns: Some(4_000 + (*random >> 50)),
        quantities: Quantities::default().with(OVERRUNS, 0),
        spikes_dropped: 0,
        histogram,
        ..Interval::default()
    }
}

fn disk_bytes(path: &Path) -> u64 {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| match entry.metadata().unwrap() {
            metadata if metadata.is_dir() => disk_bytes(&entry.path()),
            metadata => metadata.len(),
        })
        .sum()
}

#[test]
fn a_day_of_256_cpus_fits_200_megabytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut directory = RunDirectory::create(&path, &info()).unwrap();
    let before = disk_bytes(&path);
    let timer = key("idle", 1, 1, "timer");
    let mut random = 1;
    for now in 0..MINUTES {
        let span = Span { start_ns: now * 60 * SECOND, end_ns: (now + 1) * 60 * SECOND };
        for cpu in 0..CPUS {
            directory.rows().add_intervals(&timer, [minute(cpu, now, &mut random)]);
            let lines = (0..10).map(|line: u32| InterruptRecord {
                cpu: CpuId(cpu),
                line: line.to_string(),
                description: format!("PCI-MSI device {line}"),
                count: 1 + (random >> 50) % 1_000,
            });
            directory.rows().add_interrupts(&timer, span, lines);
        }
        directory.flush().unwrap();
    }
    let bytes = (disk_bytes(&path) - before) / (u64::from(CPUS) * MINUTES);
    assert!(bytes < BYTES_PER_CPU_AND_MINUTE_MAX, "{bytes} bytes per CPU and minute");
}
