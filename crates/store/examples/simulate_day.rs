//! A day of a large machine through the real store: how much disk it takes, and whether memory grows with time.
//!
//! Usage: `cargo run --release -p whylate-store --example simulate_day [CPUS [HOURS [WIDTH [DIR]]]]`, by default
//! 256 CPUs, 24 hours, WIDTH 0.75 (about 110 non-empty buckets per CPU and interval; 4 makes about 510), and a
//! directory that is removed at the end; DIR is kept.
//!
//! Each simulated minute has, per CPU: one interval of the timer probe at 5,000 periods a second with its own
//! histogram (a body that differs from CPU to CPU and drifts, and a thin tail), 10 interrupt lines, counters, and an
//! occasional spike; and for 2 loads one rate a second.

#![allow(clippy::print_stdout, reason = "an example prints its figures")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use whylate_core::plan::Source;
use whylate_core::quantity::{OVERRUNS, Quantities};
use whylate_core::record::{CounterRecord, InterruptRecord, Interval, RateRecord, SpikeRecord};
use whylate_core::result::RunState;
use whylate_core::{CpuId, Facts, Plan};
use whylate_store::{
    Execution, ExecutionState, RateKey, Reader, RowKey, RunDirectory, RunInfo, Sink as _, Span, assemble,
};

const INTERVAL_NS: u64 = 60_000_000_000;
const SAMPLES: u64 = 300_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let cpus: u32 = arguments.next().map_or(Ok(256), |text| text.parse())?;
    let hours: f64 = arguments.next().map_or(Ok(24.0), |text| text.parse())?;
    let width: f64 = arguments.next().map_or(Ok(0.75), |text| text.parse())?;
    let folder = tempfile::tempdir()?;
    let path = arguments.next().map_or_else(|| folder.path().join("run"), PathBuf::from);
    write_run(&path, cpus, (hours * 60.0) as u64, width)?;
    read_run(&path)
}

fn write_run(path: &Path, cpus: u32, minutes: u64, width: f64) -> Result<(), Box<dyn Error>> {
    let text = "name = \"day\"\nduration = \"24h\"\nrepeats = 1\n[[probe]]\nkind = \"timer\"\n[[load]]\nname = \"l3\"\nkind = \"memory\"\nworking_set = \"l3/2\"\ncpus = \"others\"\n[[cell]]\nloads = [\"l3\"]\n";
    let plan = Plan::parse(&Source { name: "day", text }, &[])?;
    let mut info = RunInfo::new("simulated-day", SystemTime::now(), plan, Facts::default());
    info.executions.push(Execution {
        cell: "l3".to_owned(),
        repeat: 1,
        attempt: 1,
        block: 0,
        state: ExecutionState::Running,
        error: None,
        void: false,
    });
    let mut directory = RunDirectory::create(path, &info)?;
    let mut machine =
        Machine { random: Random(0x9E37_79B9_7F4A_7C15), cpus, width, buckets: 0, cpu_intervals: 0 };
    let began = Instant::now();
    for minute in 0..minutes {
        machine.add_minute(&mut directory, minute);
        directory.flush()?;
        if minute % 120 == 119 || minute + 1 == minutes {
            let bytes = disk_bytes(path)?;
            println!(
                "{:5.1} h  {:7.2} MB on disk  peak memory {}",
                (minute + 1) as f64 / 60.0,
                bytes as f64 / 1e6,
                peak_memory()
            );
        }
    }
    info.executions[0].state = ExecutionState::Done;
    info.state = RunState::Complete;
    directory.seal(&info)?;
    let per = |total: u64| total as f64 / machine.cpu_intervals as f64;
    println!("{:.1} non-empty buckets per CPU and interval", per(machine.buckets));
    println!("{:.1} bytes per CPU and interval", per(disk_bytes(path)?));
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            println!(
                "  {:<11} {:8.2} MB",
                entry.file_name().display(),
                disk_bytes(&entry.path())? as f64 / 1e6
            );
        }
    }
    println!("written in {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}

fn read_run(path: &Path) -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    let result = assemble(&Reader::open(path)?)?;
    let cpus = result.cells.iter().flat_map(|cell| &cell.probes).flat_map(|probe| &probe.cpus);
    let samples: u64 = cpus.map(|cpu| cpu.samples).sum();
    let (seconds, warnings) = (began.elapsed().as_secs_f64(), result.warnings.len());
    println!("read in {seconds:.1} s: {samples} samples, {warnings} warnings, peak memory {}", peak_memory());
    Ok(())
}

struct Machine {
    random: Random,
    cpus: u32,
    width: f64,
    buckets: u64,
    cpu_intervals: u64,
}

impl Machine {
    fn add_minute(&mut self, directory: &mut RunDirectory, minute: u64) {
        let key =
            Arc::new(RowKey { cell: "l3".to_owned(), repeat: 1, attempt: 1, probe: "timer".to_owned() });
        let span = Span {
            start_ns: 8_123_456_789_000 + minute * INTERVAL_NS,
            end_ns: 8_123_456_789_000 + (minute + 1) * INTERVAL_NS,
        };
        for cpu in 0..self.cpus {
            // With 64 CPUs this makes 10,000 spikes a day.
            let latency_ns = (self.random.below(9) == 0).then(|| 100_000 + self.random.below(400_000));
            let interval = self.interval(cpu, minute, span, latency_ns);
            self.buckets += interval.histogram.len() as u64;
            self.cpu_intervals += 1;
            if let Some(latency_ns) = latency_ns {
                let at_ns = interval.start_ns + self.random.below(INTERVAL_NS);
                let spike = SpikeRecord {
                    cpu: CpuId(cpu),
                    at_ns,
                    latency_ns,
                    sample: at_ns / 200_000,
                    ..SpikeRecord::default()
                };
                directory.rows().add_spikes(&key, [spike]);
            }
            directory.rows().add_intervals(&key, [interval]);
            directory.rows().add_interrupts(&key, span, self.interrupts(cpu));
        }
        let counters: Vec<CounterRecord> = (0..self.cpus).map(|cpu| self.counters(cpu)).collect();
        directory.rows().add_counters(&key, span, counters);
        for load in ["l3", "copy"] {
            let key = RateKey {
                cell: "l3".to_owned(),
                repeat: 1,
                attempt: 1,
                load: load.to_owned(),
                unit: "bytes_per_s".to_owned(),
            };
            let rates: Vec<RateRecord> = (1..=60)
                .map(|second| RateRecord {
                    at_ns: span.start_ns + second * 1_000_000_000 + self.random.below(50_000),
                    interval_ns: 1_000_000_000 + self.random.below(50_000),
                    value: 1.2e10 * (1.0 + 0.05 * self.random.normal()),
                })
                .collect();
            directory.rows().add_rates(&Arc::new(key), rates);
        }
    }

    /// A log-normal body around a median that differs by CPU and drifts from minute to minute, and a thin tail.
    fn interval(&mut self, cpu: u32, minute: u64, span: Span, spike_ns: Option<u64>) -> Interval {
        let own = f64::from(cpu.wrapping_mul(2_654_435_761) >> 16) / 65_536.0;
        let drift = ((minute as f64) / 97.0 + own * 6.0).sin() * 0.03;
        let median = 2_000.0 + 1_500.0 * own;
        let spread = (0.045 + 0.04 * own) * self.width;
        let shift = drift + 0.003 * self.random.normal();
        let mut histogram: Vec<(u64, u64)> = Vec::new();
        let mut lower = lower_edge((median * (-5.0 * spread).exp()) as u64);
        let mut below = cumulative(((lower as f64) / median).ln() / spread - shift / spread);
        while (lower as f64) < median * (6.0 * spread).exp() {
            let next = lower + bucket_width(lower);
            let up_to = cumulative(((next as f64) / median).ln() / spread - shift / spread);
            let expected = (up_to - below) * SAMPLES as f64;
            let count = (expected + expected.sqrt() * self.random.normal()).round();
            if count >= 1.0 {
                histogram.push((lower, count as u64));
            }
            (lower, below) = (next, up_to);
        }
        for _ in 0..8 + self.random.below(16) {
            let latency = median * 1.6 * (self.random.unit() * 2.5).exp();
            add(&mut histogram, lower_edge(latency as u64));
        }
        spike_ns.into_iter().for_each(|latency| add(&mut histogram, lower_edge(latency)));
        let samples = histogram.iter().map(|(_, count)| count).sum();
        let sum_ns: u64 =
            histogram.iter().map(|(lower, count)| (lower + bucket_width(*lower) / 2) * count).sum();
        let last = histogram.last().map(|(lower, _)| *lower);
        Interval {
            cpu: CpuId(cpu),
            // Each CPU's thread closes its interval at its own moment.
            start_ns: span.start_ns + u64::from(cpu) * 1_017,
            end_ns: span.end_ns + u64::from(cpu) * 1_017,
            samples,
            sum_ns: sum_ns + self.random.below(SAMPLES),
            min_ns: histogram.first().map(|(lower, _)| *lower + 3),
            max_ns: spike_ns.or_else(|| last.map(|lower| lower + self.random.below(bucket_width(lower)))),
            quantities: Quantities::default().with(OVERRUNS, u64::from(self.random.below(50) == 0)),
            spikes_dropped: 0,
            histogram,
            ..Interval::default()
        }
    }

    fn interrupts(&mut self, cpu: u32) -> Vec<InterruptRecord> {
        let lines =
            ["LOC", "CAL", "TLB", "RES", "NMI", "softirq:TIMER", "softirq:SCHED", "softirq:RCU", "IWI"];
        let mut records: Vec<InterruptRecord> = lines
            .iter()
            .enumerate()
            .map(|(index, line)| InterruptRecord {
                cpu: CpuId(cpu),
                line: (*line).to_owned(),
                description: String::new(),
                count: 1 + self.random.below(20 << (index % 5)),
            })
            .collect();
        records.push(InterruptRecord {
            cpu: CpuId(cpu),
            line: (40 + cpu).to_string(),
            description: format!("PCI-MSIX-0000:c1:00.0 {cpu}-edge nvme0q{cpu}"),
            count: 1 + self.random.below(3_000),
        });
        records
    }

    fn counters(&mut self, cpu: u32) -> CounterRecord {
        CounterRecord {
            cpu: CpuId(cpu),
            steal_ns: Some(self.random.below(3) * 10_000_000),
            smis: None,
            involuntary_switches: Some(self.random.below(3)),
            page_faults: Some(0),
            wakeups_seen: None,
        }
    }
}

fn add(histogram: &mut Vec<(u64, u64)>, lower: u64) {
    match histogram.binary_search_by_key(&lower, |(lower, _)| *lower) {
        Ok(index) => histogram[index].1 += 1,
        Err(index) => histogram.insert(index, (lower, 1)),
    }
}

fn bucket_width(value: u64) -> u64 {
    1 << value.max(1).ilog2().saturating_sub(7)
}

fn lower_edge(value: u64) -> u64 {
    value / bucket_width(value) * bucket_width(value)
}

/// The normal distribution's cumulative function, to about 1e-4 in the logistic approximation.
fn cumulative(z: f64) -> f64 {
    1.0 / (1.0 + (-1.702 * z - 0.0025 * z.powi(3)).exp())
}

/// xorshift64*: the same day each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

fn disk_bytes(path: &Path) -> Result<u64, std::io::Error> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { disk_bytes(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}

/// `VmHWM` of /proc/self/status.
fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or_else(|| "unknown".to_owned(), |value| value.trim().to_owned())
}
