//! Many explained spikes through the real store: whether memory grows with time.
//!
//! Usage: `cargo run --release -p whylate-store --example simulate_spikes [PER_SECOND [HOURS]]`, by default 1,000 a second
//! for 24 hours. Prints memory, disk and segments as the simulated time goes on.

#![allow(clippy::print_stdout, reason = "an example prints its figures")]

use std::error::Error;
use std::sync::Arc;
use std::time::SystemTime;
use whylate_core::plan::Source;
use whylate_core::record::{Interval, SpikeCauses, SpikeRecord};
use whylate_core::result::{Cause, CauseKind};
use whylate_core::{CpuId, Facts, Plan};
use whylate_store::{RowKey, RunDirectory, RunInfo, Sink as _};

const SECOND: u64 = 1_000_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let per_second: u64 = arguments.next().map_or(Ok(1_000), |text| text.parse())?;
    let hours: f64 = arguments.next().map_or(Ok(24.0), |text| text.parse())?;
    let folder = tempfile::tempdir()?;
    let source = Source { name: "spikes", text: "name = \"spikes\"\n[[probe]]\nkind = \"stall\"\n" };
    let info = RunInfo::new("spikes", SystemTime::now(), Plan::parse(&source, &[])?, Facts::default());
    let mut directory = RunDirectory::create(&folder.path().join("run"), &info)?;
    let key = Arc::new(RowKey { cell: "idle".into(), repeat: 1, attempt: 1, probe: "stall".into() });
    let seconds = (hours * 3_600.0) as u64;
    for second in 0..seconds {
        let at = |nth: u64| second * SECOND + nth * (SECOND / per_second);
        let spikes = (0..per_second).map(|nth| spike(at(nth), second * per_second + nth));
        let spikes: Vec<SpikeRecord> = spikes.collect();
        directory.rows().add_intervals(&key, [interval(second, per_second)]);
        directory.rows().add_causes(&key, spikes.iter().map(explained));
        directory.rows().add_spikes(&key, spikes);
        directory.flush_if_large()?;
        if second % (seconds / 12).max(1) == 0 {
            println!(
                "{:6.2} h  memory now {}, at most {}",
                second as f64 / 3_600.0,
                memory("VmRSS:"),
                memory("VmHWM:")
            );
        }
    }
    directory.flush()?;
    println!("{:6.2} h  memory now {}, at most {}", hours, memory("VmRSS:"), memory("VmHWM:"));
    let segments = std::fs::read_dir(folder.path().join("run/causes"))?.count();
    println!("{} spikes in {segments} segments", seconds * per_second);
    Ok(())
}

fn spike(at_ns: u64, sample: u64) -> SpikeRecord {
    let latency_ns = 10_000 + at_ns.wrapping_mul(2_654_435_761) % 100_000;
    SpikeRecord { cpu: CpuId(1), at_ns, latency_ns, sample, ..SpikeRecord::default() }
}

fn interval(second: u64, samples: u64) -> Interval {
    let (start_ns, end_ns) = (second * SECOND, (second + 1) * SECOND);
    let histogram = vec![(10_240, samples)];
    Interval {
        cpu: CpuId(1),
        start_ns,
        end_ns,
        samples,
        sum_ns: 10_240 * samples,
        histogram,
        ..Interval::default()
    }
}

/// Two causes with texts like those of real measurements.
fn explained(spike: &SpikeRecord) -> SpikeCauses {
    let SpikeRecord { cpu, at_ns, latency_ns, .. } = *spike;
    let cause = |kind, share: f64| Cause {
        actor: Some(format!("kworker/{}:{}", at_ns % 64, at_ns % 7)),
        pid: Some((at_ns % 30_000) as u32),
        function: Some("smp_call_function_many_cond".to_owned()),
        callers: ["on_each_cpu_cond_mask", "flush_tlb_kernel_range", "__purge_vmap_area_lazy"]
            .map(str::to_owned)
            .to_vec(),
        from_ns: Some(at_ns - latency_ns.min(at_ns)),
        to_ns: Some(at_ns),
        share: Some(share),
        confidence: Some(0.9),
        evidence: vec![format!("ran for {latency_ns} ns of it"), format!("sched_switch at {at_ns} ns")],
        ..Cause::new(kind)
    };
    let causes = vec![cause(CauseKind::Thread, 0.7), cause(CauseKind::IrqsOff, 0.3)];
    SpikeCauses { cpu, series: None, at_ns, latency_ns, causes, lost: 0 }
}

fn memory(name: &str) -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.map_or_else(|| "unknown".to_owned(), |value| value.trim().to_owned())
}
