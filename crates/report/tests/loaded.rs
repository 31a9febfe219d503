//! Latency over the rate of a load: a table, and a picture.

mod fixture;

use whylate_core::result::{LoadedLatency, LoadedPoint};
use whylate_report::Style;

#[test]
fn a_curve_is_a_table_and_a_picture() {
    let point = |cell: &str, rate: f64, p50_ns: u64| LoadedPoint {
        cell: cell.to_owned(),
        rate,
        p50_ns,
        p50_low_ns: p50_ns - 50_000,
        p50_high_ns: p50_ns + 50_000,
        p99_ns: 2 * p50_ns,
        access_ns: Some(p50_ns as f64 / 16_384.0),
        repeats: 8,
    };
    let curve = LoadedLatency {
        load: "copy-1G".to_owned(),
        probe: "access/first".to_owned(),
        unit: "bytes_per_s".to_owned(),
        points: vec![point("idle", 0.0, 1_638_400), point("copy-1G", 998.6e6, 3_276_800)],
    };
    let result = whylate_core::result::RunResult { loaded_latency: vec![curve], ..fixture::run_result(&[1]) };
    let report = whylate_report::run(&result).unwrap();
    let text = report.terminal(Style { color: false, width: 120 });
    let row = text.lines().find(|line| line.contains("998.6 MB/s")).unwrap_or_default();
    let words = row.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words, "copy-1G 998.6 MB/s 3.28 ms 3.23 ms 3.33 ms 6.55 ms 200 ns", "{text}");
    let html = report.html();
    assert!(html.contains("\"kind\":\"loaded\"") && html.contains("access/first under copy-1G"));
}
