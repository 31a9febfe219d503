//! What all CPUs of the machine do, interval by interval: wake-up latencies, interrupts, what takes the CPUs, and
//! which treatments are in force. Nothing is changed and nothing is stored.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};
use whylate_bpf::{HistogramsConfig, HistogramsSnapshot};
use whylate_core::order::InOrder;
use whylate_core::record::{InterruptRecord, IpiRecord, SourceRecord};
use whylate_core::recording::{Activity, Recording};
use whylate_core::result::{
    CauseKind, HistogramKind, KernelHistogram, Quantiles, TOP_FORMAT, TopCpu, TopResult, TreatChange,
};
use whylate_core::{CpuId, Warning};
use whylate_explain::segments;
use whylate_host::HostRoot;
use whylate_host::interrupts::Counts;
use whylate_record::RecordError;
use whylate_record::histograms::LatencyHistograms;
use whylate_stats::Histogram;
use whylate_stats::buckets::{index_of, lower_edge};
use whylate_sys::clock;
use whylate_treat::JournalPlace;
use whylate_treat::journal::TREATMENTS;

/// The columns of the strip of a CPU.
const STRIP: usize = 10;
/// The most entries of a list, the most frequent or longest first.
const LISTED_MAX: usize = 200;
/// More thieves than this are not listed one by one: those that come later are counted by their kind alone.
const THIEVES_MAX: usize = 4_096;
/// Every wake-up is in one of these.
const WAKEUP: &[HistogramKind] = &[HistogramKind::Wakeup, HistogramKind::SharedPriority];
/// Wake-ups by a timer, from its programmed expiry on.
const TIMER: &[HistogramKind] = &[HistogramKind::TimerAndWakeup];

type Thief = (CpuId, CauseKind, Option<String>, Option<String>);
type Thieves = BTreeMap<Thief, SourceRecord>;
type Buckets = BTreeMap<u64, u64>;

/// The watch of a machine, running; it ends when this is dropped or finished.
pub struct Top {
    host: HostRoot,
    histograms: LatencyHistograms,
    /// Threads below this priority are ordinary work, which keeps no task that counts from a CPU.
    priority_min: i32,
    warnings: Vec<Warning>,
    begun: Instant,
    sampled: Instant,
    counts: [Counts; 2],
    ipis_before: Vec<IpiRecord>,
    buckets_before: BTreeMap<CpuId, [Buckets; 2]>,
    strips: BTreeMap<CpuId, VecDeque<u64>>,
    /// Up to when the records of a CPU were read.
    seen_ns: BTreeMap<CpuId, u64>,
    /// In the interval, and since the start.
    thieves: [Thieves; 2],
    records_lost: u64,
}

impl Top {
    /// Begins to watch the CPUs that `config` names; its kinds of histograms do not count.
    pub fn start(host: &HostRoot, config: HistogramsConfig) -> Result<Self, RecordError> {
        let config = HistogramsConfig { kinds: [WAKEUP, TIMER].concat(), ..config };
        let (histograms, warnings) = LatencyHistograms::start(host, &config, None, true)?;
        let counts = Counts::read(host).unwrap_or_default();
        let now_ns = clock::now().0;
        Ok(Self {
            host: host.clone(),
            seen_ns: config.cpus.iter().map(|cpu| (cpu, now_ns)).collect(),
            histograms,
            priority_min: config.priority_min,
            warnings,
            begun: Instant::now(),
            sampled: Instant::now(),
            counts: [counts.clone(), counts],
            ipis_before: Vec::new(),
            buckets_before: BTreeMap::new(),
            strips: BTreeMap::new(),
            thieves: [Thieves::new(), Thieves::new()],
            records_lost: 0,
        })
    }

    /// Since the start.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Reads what the kernel recorded; call it twenty times a second.
    pub fn poll(&mut self) -> Result<(), RecordError> {
        self.histograms.poll()?;
        for (cpu, seen_ns) in &mut self.seen_ns {
            let Some(recording) = self.histograms.activity(*cpu, *seen_ns)? else { return Ok(()) };
            self.records_lost += u64::from(recording.complete_from_ns > *seen_ns);
            for thieves in &mut self.thieves {
                count_thieves(thieves, *cpu, *seen_ns, &recording, self.priority_min, &self.counts[0]);
            }
            *seen_ns = recording.segments.iter().map(|it| it.to_ns).fold(*seen_ns, u64::max);
        }
        Ok(())
    }

    /// The interval since the last call.
    pub fn interval(&mut self) -> Result<TopResult, RecordError> {
        let interval = std::mem::replace(&mut self.sampled, Instant::now()).elapsed();
        let snapshot = self.histograms.read()?;
        let mut cpus = Vec::new();
        for cpu in self.histograms.cpus().iter() {
            let now = [WAKEUP, TIMER].map(|kinds| buckets(&snapshot, cpu, kinds));
            let before = self.buckets_before.insert(cpu, now.clone()).unwrap_or_default();
            let [wakeup, timer] = [0, 1].map(|nth| histogram(&now[nth], &before[nth]));
            let strip = self.strips.entry(cpu).or_default();
            strip.push_back(wakeup.max().max(timer.max()).unwrap_or(0));
            strip.drain(..strip.len().saturating_sub(STRIP));
            cpus.push(self.cpu(cpu, &wakeup, &timer, &snapshot));
        }
        let now = Counts::read(&self.host).unwrap_or_default();
        let before = std::mem::replace(&mut self.counts[1], now);
        let interrupts = Counts::delta(&before, &self.counts[1], self.histograms.cpus());
        let all = self.histograms.ipis()?;
        let before = std::mem::replace(&mut self.ipis_before, all.clone().unwrap_or_default());
        let ipis = all.map(|all| difference(all, &before));
        let thieves = std::mem::take(&mut self.thieves[0]);
        Ok(self.result(interval, cpus, interrupts, ipis, &thieves, &snapshot))
    }

    /// All of the time as one interval, with the warnings. Then the watch is over.
    ///
    /// # Errors
    /// When the kernel's counts cannot be read, or something could not be put back.
    pub fn finish(mut self) -> Result<TopResult, RecordError> {
        self.poll()?;
        let snapshot = self.histograms.read()?;
        let cpus = self.histograms.cpus().iter().map(|cpu| {
            let all = |kinds| histogram(&buckets(&snapshot, cpu, kinds), &Buckets::new());
            self.cpu(cpu, &all(WAKEUP), &all(TIMER), &snapshot)
        });
        let cpus = cpus.collect();
        let now = Counts::read(&self.host).unwrap_or_default();
        let interrupts = Counts::delta(&self.counts[0], &now, self.histograms.cpus());
        let ipis = self.histograms.ipis()?;
        let thieves = std::mem::take(&mut self.thieves[1]);
        let result = self.result(self.begun.elapsed(), cpus, interrupts, ipis, &thieves, &snapshot);
        let warnings = std::mem::take(&mut self.warnings);
        self.histograms.finish()?;
        Ok(TopResult { warnings, ..result })
    }

    fn cpu(
        &self,
        cpu: CpuId,
        wakeup: &Histogram,
        timer: &Histogram,
        snapshot: &HistogramsSnapshot,
    ) -> TopCpu {
        let record = |kinds| {
            let records = of_cpu(snapshot, cpu, kinds).filter_map(|one| one.max_record.clone());
            records.max_by_key(|record| record.latency_ns)
        };
        // A bucket gives only its edge; the kernel kept the exact figure of the largest since the start.
        let figures = |histogram: &Histogram, kinds| {
            let exact_ns = record(kinds).map(|record| record.latency_ns);
            let figures = histogram.quantiles()?;
            let is_largest = exact_ns.is_some_and(|ns| lower_edge(index_of(ns)) == figures.max_ns);
            Some(Quantiles { max_ns: exact_ns.filter(|_| is_largest).unwrap_or(figures.max_ns), ..figures })
        };
        TopCpu {
            cpu,
            samples: wakeup.count(),
            wakeup: figures(wakeup, WAKEUP),
            timer: figures(timer, TIMER),
            max_record: [record(WAKEUP), record(TIMER)].into_iter().flatten().max_by_key(|it| it.latency_ns),
            strip: self.strips.get(&cpu).map(|strip| strip.iter().copied().collect()).unwrap_or_default(),
        }
    }

    fn result(
        &self,
        interval: Duration,
        cpus: Vec<TopCpu>,
        mut interrupts: Vec<InterruptRecord>,
        mut ipis: Option<Vec<IpiRecord>>,
        thieves: &Thieves,
        snapshot: &HistogramsSnapshot,
    ) -> TopResult {
        interrupts.order_by_key(|one| Reverse(one.count));
        interrupts.truncate(LISTED_MAX);
        if let Some(ipis) = &mut ipis {
            ipis.order_by_key(|one| Reverse(one.count));
            ipis.truncate(LISTED_MAX);
        }
        let named = thieves.iter().map(|((cpu, kind, actor, function), record)| SourceRecord {
            cpu: *cpu,
            kind: *kind,
            actor: actor.clone(),
            function: function.clone(),
            ..record.clone()
        });
        let mut thieves: Vec<SourceRecord> = named.collect();
        thieves.order_by_key(|one| Reverse(one.total_ns));
        thieves.truncate(LISTED_MAX);
        TopResult {
            format: TOP_FORMAT.to_owned(),
            elapsed_ns: self.begun.elapsed().as_nanos() as u64,
            interval_ns: interval.as_nanos() as u64,
            source: self.histograms.source(),
            cpus,
            interrupts,
            ipis,
            thieves,
            treatments: in_force(&self.host),
            lost: snapshot.counts.lost + self.records_lost,
            warnings: Vec::new(),
        }
    }
}

/// What is in force by the journal; nothing if it cannot be read.
fn in_force(host: &HostRoot) -> Vec<TreatChange> {
    let Ok(contents) = JournalPlace::of_this_machine(TREATMENTS).read(host) else { return Vec::new() };
    contents.open().map(TreatChange::from).collect()
}

fn count_thieves(
    thieves: &mut Thieves,
    cpu: CpuId,
    seen_ns: u64,
    recording: &Recording,
    priority_min: i32,
    counts: &Counts,
) {
    let device = |line: u32| counts.description(&line.to_string()).map(whylate_bpf::device);
    for segment in recording.segments.iter().filter(|segment| segment.to_ns > seen_ns) {
        if matches!(&segment.what, Activity::Thread { thread, .. } if thread.priority < priority_min) {
            continue;
        }
        let Some((kind, actor, function)) = segments::actor(&segment.what, device) else { continue };
        let took_ns = segment.to_ns.saturating_sub(segment.from_ns);
        let whole = (cpu, kind, Some(actor), function);
        let is_listed = thieves.len() < THIEVES_MAX || thieves.contains_key(&whole);
        let record = thieves.entry(if is_listed { whole } else { (cpu, kind, None, None) }).or_default();
        record.gaps += 1;
        record.total_ns += took_ns;
        record.max_ns = record.max_ns.max(took_ns);
    }
}

fn of_cpu<'s>(
    snapshot: &'s HistogramsSnapshot,
    cpu: CpuId,
    kinds: &'s [HistogramKind],
) -> impl Iterator<Item = &'s KernelHistogram> {
    let all = snapshot.cpus.iter().filter(move |one| one.cpu == cpu).flat_map(|one| &one.histograms);
    all.filter(|one| kinds.contains(&one.kind))
}

/// The counts of a CPU by the lower edge of their bucket.
fn buckets(snapshot: &HistogramsSnapshot, cpu: CpuId, kinds: &[HistogramKind]) -> Buckets {
    let mut all = Buckets::new();
    for (edge_ns, count) in of_cpu(snapshot, cpu, kinds).flat_map(|one| &one.histogram) {
        *all.entry(*edge_ns).or_default() += count;
    }
    all
}

fn histogram(now: &Buckets, before: &Buckets) -> Histogram {
    let mut histogram = Histogram::new();
    for (edge_ns, count) in now {
        histogram.record_n(*edge_ns, count.saturating_sub(before.get(edge_ns).copied().unwrap_or(0)));
    }
    histogram
}

/// What has come since `before`.
fn difference(now: Vec<IpiRecord>, before: &[IpiRecord]) -> Vec<IpiRecord> {
    let is_same = |a: &IpiRecord, b: &IpiRecord| {
        (a.cpu, &a.function, &a.caller, a.from_cpu, &a.from_task)
            == (b.cpu, &b.function, &b.caller, b.from_cpu, &b.from_task)
    };
    let since = |one: IpiRecord| {
        let former = before.iter().find(|former| is_same(former, &one)).map_or(0, |former| former.count);
        IpiRecord { count: one.count.saturating_sub(former), ..one }
    };
    now.into_iter().map(since).filter(|one| one.count > 0).collect()
}
