//! Segments that need more memory than several threads may take at once.

use crate::made::{SECOND, execution, info, interval, key, rows};
use whylate_core::CpuId;
use whylate_core::record::{SpikeCauses, SpikeRecord};
use whylate_store::{ExecutionState, Reader, RunDirectory, Sink as _, assemble};

const SEGMENTS: u64 = 6;
/// Each has a text of 60 KiB: 18 MB for a segment, which has a few KiB on disk.
const ROWS: u64 = 300;

#[test]
fn segments_that_are_too_large_to_be_read_at_once_are_read_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut info = info();
    info.executions = vec![execution("idle", 1, 1, ExecutionState::Done)];
    let mut directory = RunDirectory::create(&path, &info).unwrap();
    let (_, mut cause) = rows("idle", 1, 1).causes.remove(0);
    cause.causes.truncate(1);
    cause.causes[0].function = Some("f".repeat(60 << 10));
    let timer = key("idle", 1, 1, "timer");
    for second in 1..=SEGMENTS {
        let largest = 100 + second;
        let latency = |nth| if nth == 0 { largest } else { 21 };
        let latencies: Vec<u64> = (0..ROWS).map(latency).collect();
        directory.rows().add_intervals(&timer, [interval(1, second, &latencies)]);
        for nth in 0..ROWS {
            let (cpu, at_ns, latency_ns) = (CpuId(1), second * SECOND + nth, latency(nth));
            directory.rows().add_spikes(
                &timer,
                [SpikeRecord { cpu, at_ns, latency_ns, sample: nth, ..SpikeRecord::default() }],
            );
            directory.rows().add_causes(&timer, [SpikeCauses { at_ns, latency_ns, ..cause.clone() }]);
        }
        directory.flush().unwrap();
    }
    directory.seal(&info).unwrap();
    let reader = Reader::open(&path).unwrap();
    let found: u64 = reader.segments().map(|segment| segment.rows.causes.len() as u64).sum();
    assert_eq!(found, SEGMENTS * ROWS);
    let result = assemble(&reader).unwrap();
    let texts: Vec<&str> = result.warnings.iter().map(|warning| warning.text.as_str()).collect();
    assert!(!texts.iter().any(|text| text.contains("skipped")), "{texts:?}");
    let spikes = &result.cells[0].spikes;
    let of = |second: u64| spikes.iter().find(|spike| spike.latency_ns == 100 + second);
    for second in 1..=SEGMENTS {
        let named = of(second).and_then(|spike| spike.cause.function.as_deref());
        assert_eq!(named.map(str::len), Some(60 << 10), "{second}");
    }
}
