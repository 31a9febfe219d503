//! Runs made for tests.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use whylate_core::plan::Source;
use whylate_core::quantity::{GAPS, LOST_NS, OVERRUNS, Quantities};
use whylate_core::record::{
    CounterRecord, GpuRecord, HwlatRecord, InterruptRecord, Interval, IpiRecord, OwnRecord, RateRecord,
    SourceRecord, SpikeCauses, SpikeRecord, TaskRecord,
};
use whylate_core::result::{
    AuditKind, AuditRecord, Cause, CauseKind, ChainDoing, ChainPart, ChainPath, ChainRecord, CountedWork,
    HwlatSample, OwnCounters, TriggerMoment, TriggerRecord, TriggerThread, WorkChange,
};
use whylate_core::{CpuId, Facts, Plan};
use whylate_store::{
    Execution, ExecutionState, RateKey, Reader, RowKey, Rows, RunDirectory, RunInfo, Sink as _, Span, Spanned,
};

pub(crate) const SECOND: u64 = 1_000_000_000;
/// Latency of the spikes of [`rows`].
pub(crate) const SPIKE_NS: u64 = 21;

const PLAN: &str = r#"
name = "two-cells"
duration = "2s"
repeats = 2
limit = "1ms"
[target]
cpus = "0-1"
[[probe]]
kind = "timer"
interval = "200us"
[[probe]]
kind = "stall"
[[load]]
name = "l3"
kind = "memory"
working_set = "l3/2"
cpus = "target"
"#;

/// A run with the cells `idle` and `l3`, two repeats, CPUs 0 and 1; nothing executed.
pub(crate) fn info() -> RunInfo {
    let plan = Plan::parse(&Source { name: "two-cells", text: PLAN }, &[]).unwrap();
    let mut facts = Facts::default();
    let cpus: whylate_core::CpuSet = "0-1".parse().unwrap();
    facts.cpu_sets.present = cpus.clone();
    facts.cpu_sets.online = cpus.clone();
    facts.cpu_sets.allowed = cpus;
    let mut info = RunInfo::new("test-run", UNIX_EPOCH + Duration::from_secs(1_795_251_749), plan, facts);
    info.noise_floor_threshold_ns = Some(10_000);
    info
}

pub(crate) fn execution(cell: &str, repeat: u32, attempt: u32, state: ExecutionState) -> Execution {
    Execution {
        cell: cell.to_owned(),
        repeat,
        attempt,
        block: (repeat - 1) / 2,
        state,
        error: None,
        void: false,
    }
}

pub(crate) fn key(cell: &str, repeat: u32, attempt: u32, probe: &str) -> Arc<RowKey> {
    Arc::new(RowKey { cell: cell.to_owned(), repeat, attempt, probe: probe.to_owned() })
}

pub(crate) fn rate_key(cell: &str, repeat: u32, attempt: u32, load: &str) -> Arc<RateKey> {
    let unit = "bytes_per_s".to_owned();
    Arc::new(RateKey { cell: cell.to_owned(), repeat, attempt, load: load.to_owned(), unit })
}

/// One second of a probe: `values` are its samples, below 256 ns so that each has a bucket of its own.
pub(crate) fn interval(cpu: u32, second: u64, values: &[u64]) -> Interval {
    let mut histogram: Vec<(u64, u64)> = Vec::new();
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    for value in &sorted {
        match histogram.last_mut() {
            Some((lower, count)) if lower == value => *count += 1,
            _ => histogram.push((*value, 1)),
        }
    }
    Interval {
        cpu: CpuId(cpu),
        start_ns: second * SECOND,
        end_ns: (second + 1) * SECOND,
        samples: values.len() as u64,
        sum_ns: values.iter().sum(),
        min_ns: sorted.first().copied(),
        max_ns: sorted.last().copied(),
        quantities: Quantities::default().with(OVERRUNS, 0),
        spikes_dropped: 0,
        histogram,
        ..Interval::default()
    }
}

/// Rows of every table, with and without optional values.
pub(crate) fn rows(cell: &str, repeat: u32, second: u64) -> Rows {
    let timer = key(cell, repeat, 1, "timer");
    let stall = key(cell, repeat, 1, "stall");
    let span = Span { start_ns: second * SECOND, end_ns: (second + 1) * SECOND };
    let spike = SpikeRecord {
        cpu: CpuId(1),
        at_ns: second * SECOND + 7,
        latency_ns: SPIKE_NS,
        sample: 3,
        ..SpikeRecord::default()
    };
    let rate = RateRecord { at_ns: (second + 1) * SECOND, interval_ns: SECOND, value: 1.25e9 };
    let line = |line: &str, description: &str, count| InterruptRecord {
        cpu: CpuId(0),
        line: line.to_owned(),
        description: description.to_owned(),
        count,
    };
    let interrupt = |record| (Arc::clone(&timer), Spanned { span, record });
    let counters = CounterRecord {
        cpu: CpuId(1),
        steal_ns: Some(10_000_000),
        smis: None,
        involuntary_switches: Some(2),
        page_faults: Some(0),
        wakeups_seen: Some(1_000),
    };
    let cause = Cause {
        actor: Some("irq/45-nvkm".to_owned()),
        pid: Some(489),
        function: Some("unarm".to_owned()),
        callers: vec!["mc_intr".to_owned(), "pci_intr".to_owned()],
        from_ns: Some(second * SECOND),
        to_ns: Some(second * SECOND + 7),
        share: Some(0.75),
        confidence: Some(0.95),
        evidence: vec!["late; and so".to_owned(), "90.0 us".to_owned()],
        counters: Some(OwnCounters {
            here: CountedWork { run_ns: 9, instructions: 70, cycles: None, cache_misses: Some(1) },
            usual: Some(CountedWork { run_ns: 3, instructions: 20, ..CountedWork::default() }),
            activations: Some(8),
            change: Some(WorkChange::MoreInstructions),
            confidence: Some(0.75),
        }),
        ..Cause::new(CauseKind::IrqsOff)
    };
    let explained = |causes, at_ns| SpikeCauses {
        cpu: CpuId(1),
        series: None,
        at_ns,
        latency_ns: SPIKE_NS,
        causes,
        lost: 2,
    };
    let ipi = |caller: Option<&str>| {
        let record = IpiRecord {
            cpu: CpuId(1),
            function: "do_flush_tlb_all".to_owned(),
            caller: caller.map(str::to_owned),
            from_cpu: caller.map(|_| CpuId(0)),
            from_task: caller.map(|_| "tlb-0".to_owned()),
            stack: caller
                .iter()
                .flat_map(|caller| ["on_each_cpu".to_owned(), (*caller).to_owned()])
                .collect(),
            count: 271,
        };
        (Arc::clone(&timer), Spanned { span, record })
    };
    let watched = |sleeps_in: Option<&str>| {
        let record = TaskRecord {
            cpu: CpuId(1),
            series: None,
            thread: 812,
            process: 800,
            command: "audio".to_owned(),
            priority: -21,
            run_ns: 9,
            preempted_ns: 8,
            blocked_ns: 7,
            quota_ns: 6,
            migrations: 5,
            faults: 4,
            counted: Some(3),
            instructions: Some(12_100_000),
            cycles: None,
            cache_misses: sleeps_in.map(|_| 42),
            sleeps_in: sleeps_in.map(str::to_owned),
            woken_by: None,
        };
        (key(cell, repeat, 1, "task/audio"), Spanned { span, record })
    };
    let audited = |call: &str, place: Option<&str>| {
        let record = AuditRecord {
            cpu: CpuId(1),
            call: Some(call.to_owned()),
            count: 3,
            runs: 2,
            of_runs: 9,
            took_ns: 70,
            longest_ns: 40,
            place: place.map(str::to_owned),
            allowed: place.is_some(),
            ..AuditRecord::new(AuditKind::File)
        };
        (key(cell, repeat, 1, "task/audio"), Spanned { span, record })
    };
    let trigger = |count| {
        let record = TriggerRecord { trigger: "output:Late".to_owned(), count, shared: 1, unexplained: 0 };
        (key(cell, repeat, 1, "task"), Spanned { span, record })
    };
    let moment = |at_ns: u64, threads: &[&str]| {
        let thread = |name: &&str| TriggerThread {
            thread: (*name).to_owned(),
            due_ns: at_ns.saturating_sub(5),
            response_ns: 9,
            typical_ns: (*name == "audio").then_some(3),
            late: *name == "audio",
            causes: vec![Cause::unattributed()],
            ..TriggerThread::default()
        };
        let moment = TriggerMoment {
            at_ns,
            trigger: "output:Late".to_owned(),
            text: Some("Late by 4 ms".to_owned()),
            others: threads.iter().map(|_| "file:/var/log/a b:Late".to_owned()).collect(),
            count: 2,
            threads: threads.iter().map(thread).collect(),
        };
        (key(cell, repeat, 1, "task"), moment)
    };
    let chain = |deadline_ns| {
        let record = ChainRecord {
            name: "frame".to_owned(),
            deadline_ns,
            instances: 50,
            late: 2,
            dropped: 1,
            ..ChainRecord::default()
        };
        (key(cell, repeat, 1, "task"), Spanned { span, record })
    };
    let path = |at_ns: u64, threads: &[&str]| {
        let part = |(nth, thread): (u64, &&str)| ChainPart {
            thread: (*thread).to_owned(),
            pid: 7,
            cpu: (nth > 0).then_some(CpuId(1)),
            what: if nth > 0 { ChainDoing::Preempted } else { ChainDoing::Running },
            from_ns: at_ns + nth,
            to_ns: at_ns + nth + 1,
            by: (nth > 0).then(|| "a b".to_owned()),
            by_pid: (nth > 0).then_some(9),
        };
        let parts = (0..).zip(threads).map(part).collect();
        let (name, latency_ns, is_whole) = ("frame".to_owned(), 2, !threads.is_empty());
        (key(cell, repeat, 1, "task"), ChainPath { name, at_ns, latency_ns, is_whole, parts })
    };
    let hwlat = |inner_ns, nmi| {
        let sample = HwlatSample {
            inner_ns,
            outer_ns: 17,
            count: nmi,
            nmi_ns: nmi.map(u64::from),
            nmi_count: nmi,
            wall_ns: Some(second * SECOND),
        };
        let record = HwlatRecord { cpu: CpuId(1), at_ns: second * SECOND + inner_ns, sample };
        (key(cell, repeat, 1, "tracer/hwlat"), record)
    };
    let gpu = |quantity: &str, value| {
        let (device, quantity) = ("card1".to_owned(), quantity.to_owned());
        let record = GpuRecord { device, quantity, at_ns: second * SECOND, interval_ns: SECOND, value };
        (Arc::clone(&timer), record)
    };
    Rows {
        hwlat: vec![hwlat(19, Some(3)), hwlat(20, None)],
        gpus: vec![gpu("busy_percent/gfx", 25.5), gpu("memory_bytes", 4096.0)],
        tasks: vec![watched(None), watched(Some("poll"))],
        audit: vec![audited("write", None), audited("openat", Some("log_line <- update"))],
        triggers: vec![trigger(3), trigger(0)],
        moments: vec![moment(second * SECOND, &["audio", "logger"]), moment(second * SECOND + 1, &[])],
        chains: vec![chain(Some(20)), chain(None)],
        paths: vec![path(second * SECOND, &["camera", "show"]), path(second * SECOND + 1, &[])],
        causes: vec![
            (Arc::clone(&timer), explained(vec![cause, Cause::unattributed()], second * SECOND + 7)),
            (Arc::clone(&timer), explained(vec![Cause::unattributed()], second * SECOND + 9)),
        ],
        ipis: vec![ipi(Some("flush_tlb_all")), ipi(None)],
        sources: vec![(
            stall.clone(),
            Spanned {
                span,
                record: SourceRecord {
                    kind: CauseKind::Irq,
                    actor: Some("timer".to_owned()),
                    gaps: 1,
                    total_ns: 60,
                    max_ns: 60,
                    ..SourceRecord::default()
                },
            },
        )],
        own: vec![(
            Arc::clone(&timer),
            Spanned {
                span,
                record: OwnRecord { removed: 1, taken_ns: 190, lower_ns: 200, ..OwnRecord::default() },
            },
        )],
        intervals: vec![
            (Arc::clone(&timer), interval(0, second, &[10, 20, 20, 200])),
            (Arc::clone(&timer), interval(1, second, &[11, 21])),
            (
                stall.clone(),
                Interval {
                    quantities: Quantities::default().with(GAPS, 1).with(LOST_NS, 99),
                    ..interval(0, second, &[15, 99])
                },
            ),
            (stall, Interval { quantities: Quantities::default(), ..interval(1, second, &[]) }),
        ],
        spikes: vec![(Arc::clone(&timer), spike)],
        rates: vec![(rate_key(cell, repeat, 1, "l3"), rate)],
        interrupts: vec![
            interrupt(line("LOC", "Local timer interrupts", 250)),
            interrupt(line("24", "PCI-MSI 1-edge  virtio0-input.0 \u{3bc}", 1)),
        ],
        counters: vec![(timer, Spanned { span, record: counters })],
    }
}

/// The tables of which [`rows`] has rows.
pub(crate) const TABLES: [&str; 18] = [
    "histograms",
    "intervals",
    "spikes",
    "causes",
    "ipis",
    "sources",
    "own",
    "rates",
    "interrupts",
    "counters",
    "tasks",
    "audit",
    "triggers",
    "moments",
    "chains",
    "paths",
    "gpus",
    "hwlat",
];

/// As [`rows`], with enough samples for a verdict; three seconds.
pub(crate) fn enough(cell: &str, repeat: u32, second: u64) -> Rows {
    let mut rows = rows(cell, repeat, second);
    let series = [("timer", 0), ("timer", 1), ("stall", 0), ("stall", 1)];
    rows.intervals.extend(series.map(|(probe, cpu)| {
        let many = Interval { end_ns: (second + 3) * SECOND, ..interval(cpu, second + 1, &[12; 200]) };
        (key(cell, repeat, 1, probe), many)
    }));
    rows
}

/// Adds rows as a runner does.
pub(crate) fn add(directory: &mut RunDirectory, rows: &Rows) {
    for (key, interval) in &rows.intervals {
        directory.rows().add_intervals(key, [interval.clone()]);
    }
    for (key, spike) in &rows.spikes {
        directory.rows().add_spikes(key, [spike.clone()]);
    }
    for (key, spike) in &rows.causes {
        directory.rows().add_causes(key, [spike.clone()]);
    }
    for (key, row) in &rows.ipis {
        directory.rows().add_ipis(key, row.span, [row.record.clone()]);
    }
    for (key, row) in &rows.sources {
        directory.rows().add_sources(key, row.span, [row.record.clone()]);
    }
    for (key, row) in &rows.own {
        directory.rows().add_own(key, row.span, [row.record]);
    }
    for (key, rate) in &rows.rates {
        directory.rows().add_rates(key, [rate.clone()]);
    }
    for (key, row) in &rows.interrupts {
        directory.rows().add_interrupts(key, row.span, [row.record.clone()]);
    }
    for (key, row) in &rows.tasks {
        directory.rows().add_tasks(key, row.span, [row.record.clone()]);
    }
    for (key, row) in &rows.audit {
        directory.rows().add_audit(key, row.span, [row.record.clone()]);
    }
    for (key, row) in &rows.triggers {
        directory.rows().add_triggers(key, row.span, [row.record.clone()], []);
    }
    for (key, moment) in &rows.moments {
        let span = Span { start_ns: 0, end_ns: 0 };
        directory.rows().add_triggers(key, span, [], [moment.clone()]);
    }
    for (key, row) in &rows.chains {
        directory.rows().add_chains(key, row.span, [row.record.clone()], []);
    }
    for (key, path) in &rows.paths {
        let span = Span { start_ns: 0, end_ns: 0 };
        directory.rows().add_chains(key, span, [], [path.clone()]);
    }
    for (key, row) in &rows.gpus {
        directory.rows().add_gpus(key, [row.clone()]);
    }
    for (key, row) in &rows.hwlat {
        let key = RowKey { probe: "tracer".to_owned(), ..RowKey::clone(key) };
        directory.rows().add_hwlat(&Arc::new(key), [*row]);
    }
    for (key, row) in &rows.counters {
        directory.rows().add_counters(key, row.span, [row.record.clone()]);
    }
}

/// A run of three flushes: two of `idle`, one of `l3`.
pub(crate) fn three_segments(path: &Path) -> Vec<Rows> {
    let mut info = info();
    info.executions =
        vec![execution("idle", 1, 1, ExecutionState::Done), execution("l3", 1, 1, ExecutionState::Done)];
    let mut directory = RunDirectory::create(path, &info).unwrap();
    let all = vec![rows("idle", 1, 1), rows("idle", 1, 2), rows("l3", 1, 3)];
    for rows in &all {
        add(&mut directory, rows);
        directory.flush().unwrap();
    }
    all
}

/// The rows of each segment, and the texts of all warnings.
pub(crate) fn read(path: &Path) -> (Vec<Rows>, Vec<String>) {
    let reader = Reader::open(path).unwrap();
    let (mut rows, mut warnings) = (Vec::new(), Vec::new());
    let found = reader.warnings().iter().chain(reader.damages().iter().map(|damage| &damage.warning));
    warnings.extend(found.map(|warning| warning.text.clone()));
    for segment in reader.segments() {
        rows.push(segment.rows);
        let found = segment.damages.into_iter().map(|damage| damage.warning).chain(segment.warnings);
        warnings.extend(found.map(|warning| warning.text));
    }
    (rows, warnings)
}
