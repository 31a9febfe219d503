//! The table of copies: the effective type comes before the requested one.

use whylate_core::result::{CopyBlock, CopyResult, CopyRow, CopyTable, FrameCost, Plateau};
use whylate_core::{CopyMethod, MemoryMode};
use whylate_report::Style;
use whylate_testing::says;

fn row(method: CopyMethod, effective: MemoryMode, rates: [f64; 3], share: f64) -> CopyRow {
    let block = |(bytes, rate): (u64, f64)| CopyBlock {
        bytes,
        bytes_per_s: rate,
        low_bytes_per_s: rate * 0.9,
        high_bytes_per_s: rate * 1.1,
        block_ns: bytes as f64 * 1e9 / rate,
        trials: 15,
    };
    let blocks: Vec<CopyBlock> = [256, 4096, 16_384].into_iter().zip(rates).map(block).collect();
    let frame = FrameCost {
        frames_per_s: 60.0 / share,
        frame_time_share: share,
        paced_frames_per_s: 60.0,
        cpu_share: share,
    };
    CopyRow {
        from: MemoryMode::WriteCombining,
        to: MemoryMode::WriteBack,
        method,
        requested: MemoryMode::WriteCombining,
        mapped: Some(MemoryMode::WriteCombining),
        effective: Some(effective),
        backend: "dumb".to_owned(),
        device: Some("/dev/dri/card0".to_owned()),
        plateau: Plateau::of(&blocks),
        blocks,
        frame: Some(frame),
    }
}

fn result(effective: MemoryMode) -> CopyResult {
    // The published rates of an Apollo Lake.
    let rows = vec![
        row(CopyMethod::Memcpy, effective, [41.4e6, 41.4e6, 37.3e6], 4.6),
        row(CopyMethod::Movntdqa, effective, [592.6e6, 629.2e6, 333.5e6], 0.3),
    ];
    let table = CopyTable { rows, frame: "1920x1080:nv12@60".parse().ok(), ..CopyTable::default() };
    CopyResult { table, ..CopyResult::default() }
}

#[test]
fn rates_plateau_knee_and_budget_are_shown() {
    let text = whylate_report::copy(&result(MemoryMode::WriteCombining))
        .terminal(Style { color: false, width: 140 });
    assert!(says("wc-wb-dumb-dev", &text), "{text}");
    let line = |begin: &str| text.lines().find(|line| line.starts_with(begin)).unwrap_or_default().to_owned();
    let words = |begin: &str| line(begin).split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    assert!(
        words("movntdqa").starts_with("movntdqa 629.2 MB/s 256 B 4 KiB 592.6 MB/s 629.2 MB/s 333.5 MB/s"),
        "{text}"
    );
    // The cheapest comes first.
    let budget: Vec<&str> =
        text.lines().filter(|line| line.contains(" %") && line.starts_with("wc to wb")).collect();
    assert!(budget[0].contains("movntdqa") && budget[1].contains("460 %"), "{text}");
}

#[test]
fn a_type_that_did_not_take_effect_is_not_quoted_as_such() {
    let page = whylate_report::copy(&result(MemoryMode::WriteBack));
    let text = page.terminal(Style { color: false, width: 140 });
    assert!(says("wb-asked-for-wc", &text), "{text}");
    let html = page.html();
    assert!(says("wb-asked-for-wc-2", &html) && html.contains("\"kind\":\"copy\""), "{text}");
}
