//! From the tables to the result of a run.

use crate::made::{SECOND, add, execution, info, interval, key, rate_key, rows, three_segments};
use std::path::Path;
use whylate_core::WarningCode;
use whylate_core::quantity::{CORRECTED, GAPS, LOST_NS, OVERRUNS, OWN, OWN_MAX_NS, Quantities, SOURCES};
use whylate_core::record::{
    CounterRecord, HwlatRecord, Interval, OwnRecord, RateRecord, SpikeCauses, SpikeRecord,
};
use whylate_core::result::{Cause, CauseKind, CellResult, HwlatSample, RunResult, RunState, Verdict};
use whylate_core::{CpuId, Nanos};
use whylate_store::{
    ExecutionState, NOISE_FLOOR, Reader, RunDirectory, RunInfo, Sink as _, Span, StoreError, assemble,
};
use whylate_testing::says;

/// Writes a run and reads its result; the directory is closed before.
fn result_of(info: &RunInfo, fill: impl FnOnce(&mut RunDirectory)) -> RunResult {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut directory = RunDirectory::create(&path, info).unwrap();
    fill(&mut directory);
    directory.flush().unwrap();
    directory.seal(info).unwrap();
    drop(directory);
    assembled(&path)
}

fn assembled(path: &Path) -> RunResult {
    assemble(&Reader::open(path).unwrap()).unwrap()
}

fn complete_info() -> RunInfo {
    let mut info = info();
    info.state = RunState::Complete;
    info.restored = Some(true);
    for repeat in 1..=2 {
        for cell in ["idle", "l3"] {
            info.executions.push(execution(cell, repeat, 1, ExecutionState::Done));
        }
    }
    info
}

fn fill_complete(directory: &mut RunDirectory) {
    for (second, (repeat, cell)) in [(1, "idle"), (1, "l3"), (2, "idle"), (2, "l3")].into_iter().enumerate() {
        add(directory, &rows(cell, repeat, second as u64));
        directory.flush().unwrap();
    }
}

/// As many samples of every probe as a pass needs.
fn fill_enough(directory: &mut RunDirectory) {
    fill_cells(directory, &["idle", "l3"], &[25; 100]);
}

fn fill_cells(directory: &mut RunDirectory, cells: &[&str], timer: &[u64]) {
    for (repeat, cell) in [1, 2].into_iter().flat_map(|repeat| cells.iter().map(move |cell| (repeat, cell))) {
        let second = u64::from(repeat) * 2;
        directory.rows().add_intervals(&key(cell, repeat, 1, "timer"), [interval(0, second, timer)]);
        directory.rows().add_intervals(&key(cell, repeat, 1, "stall"), [interval(0, second + 1, &[9; 100])]);
    }
}

fn samples(cell: &CellResult, probe: &str) -> Vec<(u32, u64)> {
    let probe = cell.probes.iter().find(|result| result.probe == probe).unwrap();
    probe.cpus.iter().map(|cpu| (cpu.cpu.0, cpu.samples)).collect()
}

#[test]
fn a_complete_run_adds_up() {
    let result = result_of(&complete_info(), fill_complete);
    assert_eq!(
        (result.state, result.error.as_deref(), result.restored),
        (RunState::Complete, None, Some(true))
    );
    assert_eq!(result.started_at, "2026-11-21T09:02:29Z");
    assert_eq!(result.warnings, []);
    assert_eq!(result.verdict, Verdict::Incomplete);
    let reason =
        "too little was measured in cell `idle` (probe timer, CPU 0): 8 samples, and a pass needs 100";
    assert!(result.verdict_reason.starts_with(reason), "{}", result.verdict_reason);
    let names: Vec<&str> = result.cells.iter().map(|cell| cell.name.as_str()).collect();
    assert_eq!(names, ["idle", "l3"]);
    let cell = &result.cells[1];
    assert_eq!(cell.loads, ["l3"]);
    assert_eq!(cell.skipped, None);
    let probes: Vec<&str> = cell.probes.iter().map(|probe| probe.probe.as_str()).collect();
    assert_eq!(probes, ["timer", "stall"]);
    assert_eq!(samples(cell, "timer"), [(0, 8), (1, 4)]);
    let cpu = &cell.probes[0].cpus[0];
    assert_eq!(cpu.histogram, [(10, 2), (20, 4), (200, 2)]);
    let quantiles = cpu.quantiles.unwrap();
    assert_eq!((quantiles.min_ns, quantiles.p50_ns, quantiles.max_ns), (10, 20, 200));
    assert_eq!(quantiles.mean_ns, 62.5);
    assert_eq!(cpu.timeline.len(), 2);
    assert_eq!(cpu.get(OVERRUNS), Some(0));
    assert!(cpu.get(CORRECTED).is_some(), "the plan gives the period");
    let stall = &cell.probes[1].cpus[0];
    assert_eq!((stall.get(GAPS), stall.get(LOST_NS), stall.get(OVERRUNS)), (Some(2), Some(198), None));
    let sources: Vec<_> = stall
        .quantities
        .of(SOURCES)
        .unwrap()
        .iter()
        .map(|it| (it.kind, it.gaps, it.total_ns, it.mean_ns, it.max_ns))
        .collect();
    let of_timer = (CauseKind::Irq, 2, 120, 60.0, 60);
    assert_eq!(
        sources,
        [of_timer, (CauseKind::Unattributed, 0, 78, 78.0, 0)],
        "they add up to what was lost"
    );
    let repeats: Vec<_> =
        cell.repeats.iter().map(|it| (it.repeat, it.error.clone(), it.probes.len())).collect();
    assert_eq!(repeats, [(1, None, 4), (2, None, 4)]);
    assert_eq!(cell.spikes.len(), 2);
    let spike = &cell.spikes[0];
    assert_eq!((spike.cause.kind, spike.cause.function.as_deref()), (CauseKind::IrqsOff, Some("unarm")));
    assert_eq!((spike.also.len(), spike.lost), (1, 2));
    let ipis: Vec<_> = cell.ipis.iter().map(|ipi| (ipi.caller.as_deref(), ipi.count)).collect();
    assert_eq!(ipis, [(None, 542), (Some("flush_tlb_all"), 542)]);
    assert_eq!(cell.spikes[0].probe.as_deref(), Some("timer"));
    let interrupts: Vec<_> =
        cell.interrupts.iter().map(|it| (it.cpu.0, it.line.as_str(), it.count)).collect();
    assert_eq!(interrupts, [(0, "LOC", 500), (0, "24", 2)]);
    assert_eq!((cell.steal_ns, cell.smis), (Some(20_000_000), None));
    assert!(!result.comparisons.is_empty());
}

/// The largest sample is the host's: the machine's own latency is below the limit, and the limit is exceeded all the
/// same.
#[test]
fn own_latency_is_shown_with_the_raw_one_and_judges_nothing() {
    let looked_at = |repeats: &'static [u32]| {
        let mut info = complete_info();
        info.plan.limit = Some(Nanos(1_000));
        result_of(&info, move |directory| {
            let timer = [&[25u64; 120][..], &[2_000]].concat();
            fill_cells(directory, &["idle", "l3"], &timer);
            for (cell, repeat) in
                ["idle", "l3"].into_iter().flat_map(|it| repeats.iter().map(move |nr| (it, *nr)))
            {
                let gone = OwnRecord { lower_ns: 2_000, removed: 1, taken_ns: 1_970, ..OwnRecord::default() };
                let left = OwnRecord { lower_ns: 30, added: 1, max_ns: Some(30), ..OwnRecord::default() };
                directory.rows().add_own(&key(cell, repeat, 1, "timer"), Span::default(), [gone, left]);
            }
        })
    };
    let result = looked_at(&[1, 2]);
    let cpu = &result.cells[0].probes[0].cpus[0];
    assert_eq!((cpu.quantiles.unwrap().max_ns, cpu.get(OWN_MAX_NS)), (2_000, Some(30)));
    let own = result.cells[0].repeats[1].probes.iter().find(|it| it.probe == "timer").unwrap().own;
    assert_eq!((own.unwrap().max_ns, own.unwrap().p50_ns), (30, 25));
    assert_eq!(result.verdict, Verdict::Fail, "a limit is judged by what was measured");
    let partly = looked_at(&[1]);
    assert_eq!(partly.cells[0].probes[0].cpus[0].get(OWN), None, "one repeat was not looked at");
    assert!(
        partly.cells[0].repeats[0].probes[0].own.is_some()
            && partly.cells[0].repeats[1].probes[0].own.is_none()
    );
}

#[test]
fn rates_are_weighted_by_time() {
    let result = result_of(&complete_info(), |directory| {
        add(directory, &rows("idle", 1, 1));
        let rate = |at_ns, interval_ns, value| RateRecord { at_ns, interval_ns, value };
        let long = rate(4 * SECOND, 3 * SECOND, 100.0);
        directory.rows().add_rates(&rate_key("l3", 1, 1, "l3"), [long, rate(5 * SECOND, SECOND, 500.0)]);
    });
    let [rate] = &result.cells[1].rates[..] else { panic!("{:?}", result.cells[1].rates) };
    assert_eq!((rate.load.as_str(), rate.unit.as_str(), rate.mean), ("l3", "bytes_per_s", 200.0));
    assert_eq!(rate.series.len(), 2);
}

#[test]
fn only_the_newest_attempt_counts() {
    let mut info = complete_info();
    info.executions[0].state = ExecutionState::Running;
    info.executions.push(execution("idle", 1, 2, ExecutionState::Done));
    let result = result_of(&info, |directory| {
        directory.rows().add_intervals(&key("idle", 1, 1, "timer"), [interval(0, 1, &[250; 5])]);
        directory.rows().add_intervals(&key("idle", 1, 2, "timer"), [interval(0, 8, &[7; 3])]);
        directory
            .rows()
            .add_rates(&rate_key("idle", 1, 1, "l3"), [RateRecord { at_ns: 1, interval_ns: 1, value: 1.0 }]);
    });
    assert_eq!(samples(&result.cells[0], "timer"), [(0, 3)]);
    assert_eq!(result.cells[0].rates, []);
    assert_eq!(result.cells[0].repeats[0].error, None);
    assert_eq!(result.warnings, []);
}

#[test]
fn the_noise_floor_belongs_to_the_cell() {
    let result = result_of(&complete_info(), |directory| {
        let noise = key("idle", 1, 1, NOISE_FLOOR);
        let gaps = |cpu, gaps, values: &[u64]| Interval {
            quantities: Quantities::default().with(GAPS, gaps),
            ..interval(cpu, 1, values)
        };
        directory.rows().add_intervals(&noise, [gaps(0, 0, &[20]), gaps(1, 2, &[20, 230])]);
        let counters = CounterRecord { cpu: CpuId(0), steal_ns: Some(5), ..CounterRecord::default() };
        directory.rows().add_counters(&noise, Span::default(), [counters]);
        directory.rows().add_intervals(&key("idle", 1, 1, "timer"), [interval(0, 2, &[7])]);
    });
    let cell = &result.cells[0];
    let noise = cell.noise_floor.as_ref().unwrap();
    assert_eq!((noise.duration_ns, noise.gaps, noise.threshold_ns), (SECOND, 2, 10_000));
    assert_eq!((noise.max_ns, noise.steal_ns), (Some(230), Some(5)));
    assert_eq!(samples(cell, "timer"), [(0, 1)]);
    assert_eq!((cell.probes.len(), cell.steal_ns), (1, None));
    assert_eq!(result.cells[1].noise_floor, None);
}

#[test]
fn a_killed_run_says_so_and_shows_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut info = info();
    info.executions =
        vec![execution("idle", 1, 1, ExecutionState::Done), execution("l3", 1, 1, ExecutionState::Running)];
    let mut directory = RunDirectory::create(&path, &info).unwrap();
    add(&mut directory, &rows("idle", 1, 1));
    directory.flush().unwrap();
    let alive = assembled(&path);
    assert_eq!(alive.error.as_deref(), Some("the run is still in progress"));
    assert_eq!(alive.cells[1].repeats[0].error.as_deref(), Some("still running"));
    // Rows that were not flushed are lost with the process.
    add(&mut directory, &rows("l3", 1, 2));
    drop(directory);
    let killed = assembled(&path);
    assert_eq!(killed.state, RunState::Running);
    assert!(killed.error.unwrap().contains("was killed"));
    assert_eq!(killed.verdict, Verdict::Incomplete);
    assert_eq!(samples(&killed.cells[0], "timer"), [(0, 4), (1, 2)]);
    assert!(killed.cells[1].repeats[0].error.as_ref().unwrap().contains("ended during this repeat"));
    assert_eq!(killed.cells[1].probes, []);
}

#[test]
fn cells_that_did_not_run_say_why() {
    let mut info = info();
    info.state = RunState::Interrupted;
    info.error = Some("stopped by Ctrl-C".to_owned());
    info.executions = vec![execution("idle", 1, 1, ExecutionState::Failed)];
    info.executions[0].error = Some("load `l3` ended early".to_owned());
    let fill = |directory: &mut RunDirectory| add(directory, &rows("idle", 1, 1));
    let result = result_of(&info, fill);
    assert_eq!(result.error.as_deref(), Some("stopped by Ctrl-C"));
    assert_eq!(result.cells[0].repeats[0].error.as_deref(), Some("load `l3` ended early"));
    assert_eq!(result.cells[1].skipped.as_deref(), Some("the run ended before this cell began"));
    info.cells[1].skipped = Some("needs a GPU".to_owned());
    assert_eq!(result_of(&info, fill).cells[1].skipped.as_deref(), Some("needs a GPU"));
}

/// A verdict does not wait for a repeat that failed, but for one that has not begun.
#[test]
fn the_verdict_comes_once_no_repeat_is_left() {
    let is_so_far = |last: ExecutionState| {
        let mut info = complete_info();
        info.state = RunState::Interrupted;
        info.executions.last_mut().unwrap().state = last;
        let result = result_of(&info, fill_complete);
        assert!(!result.comparisons.is_empty());
        result.comparisons.iter().all(|it| it.refused.as_ref().is_some_and(|why| why.contains("so far")))
    };
    assert_eq!([ExecutionState::Failed, ExecutionState::Running].map(is_so_far), [false, true]);
}

#[test]
fn a_limit_is_judged_by_the_exact_maximum() {
    let mut info = complete_info();
    info.plan.limit = Some(Nanos(100));
    let result = result_of(&info, fill_complete);
    assert_eq!(result.verdict, Verdict::Fail);
    assert!(result.verdict_reason.contains("200 ns"), "{}", result.verdict_reason);
}

#[test]
fn a_violation_stays_when_its_repeat_is_run_again() {
    let mut info = complete_info();
    info.plan.limit = Some(Nanos(240));
    info.executions[0].state = ExecutionState::Failed;
    info.executions.push(execution("idle", 1, 2, ExecutionState::Done));
    let fill = |directory: &mut RunDirectory| {
        directory.rows().add_intervals(&key("idle", 1, 1, "timer"), [interval(0, 1, &[250; 5])]);
        directory.rows().add_intervals(&key("idle", 1, 2, "timer"), [interval(0, 8, &[7; 100])]);
        directory.rows().add_intervals(&key("idle", 1, 2, "stall"), [interval(0, 9, &[9; 100])]);
        fill_enough(directory);
    };
    let result = result_of(&info, fill);
    assert_eq!(result.verdict, Verdict::Fail);
    assert!(says("ns-cell-idle", &result.verdict_reason), "{}", result.verdict_reason);
    info.plan.limit = Some(Nanos(250));
    let result = result_of(&info, fill);
    assert_eq!(result.verdict, Verdict::Pass, "{}", result.verdict_reason);
}

#[test]
fn a_skipped_cell_prevents_a_pass() {
    let mut info = complete_info();
    info.plan.limit = Some(Nanos(1_000_000));
    let result = result_of(&info, fill_enough);
    assert_eq!(result.verdict, Verdict::Pass);
    let exposure = result.exposure.unwrap();
    assert_eq!((exposure.watched_ns, exposure.cpus, exposure.events), (4 * SECOND, 1, 0));
    assert_eq!(result.cells[0].exposure.unwrap().watched_ns, 2 * SECOND);
    info.cells[1].skipped = Some("needs a GPU".to_owned());
    info.executions.retain(|execution| execution.cell == "idle");
    let result = result_of(&info, |directory| fill_cells(directory, &["idle"], &[25; 100]));
    assert_eq!(result.verdict, Verdict::Incomplete, "{}", result.verdict_reason);
    assert!(says("cell-l3-skipped-needs", &result.verdict_reason), "{}", result.verdict_reason);
}

#[test]
fn a_repeat_that_did_not_run_prevents_a_pass() {
    let mut info = complete_info();
    info.executions.retain(|execution| (execution.cell.as_str(), execution.repeat) != ("l3", 2));
    let result = result_of(&info, |directory| {
        fill_enough(directory);
        directory.rows().intervals.retain(|(key, _)| (key.cell.as_str(), key.repeat) != ("l3", 2));
    });
    assert_eq!(result.verdict, Verdict::Incomplete);
    let reason = "1 of 2 repeats of cell `l3` did not run";
    assert!(result.verdict_reason.starts_with(reason), "{}", result.verdict_reason);
}

#[test]
fn a_spike_of_hwlat_has_the_whole_sample() {
    let mut info = complete_info();
    let tracer = serde_json::json!({ "kind": "tracer", "tracer": "hwlat" });
    info.plan.probe.push(serde_json::from_value(tracer).unwrap());
    let sample = |inner_ns| HwlatSample { inner_ns, nmi_count: Some(2), ..HwlatSample::default() };
    let result = result_of(&info, |directory| {
        let key = key("idle", 1, 1, "tracer");
        let series = Some("hwlat".to_owned());
        let spike = |at_ns, latency_ns| SpikeRecord {
            series: series.clone(),
            cpu: CpuId(1),
            at_ns,
            latency_ns,
            sample: 0,
            ..SpikeRecord::default()
        };
        let seen = Interval {
            series: series.clone(),
            quantities: Quantities::default().with(GAPS, 2),
            ..interval(1, 1, &[30, 50])
        };
        directory.rows().add_intervals(&key, [seen]);
        directory.rows().add_spikes(&key, [spike(SECOND + 5, 50), spike(SECOND + 9, 30)]);
        let record = |at_ns, inner_ns| HwlatRecord { cpu: CpuId(1), at_ns, sample: sample(inner_ns) };
        directory.rows().add_hwlat(&key, [record(SECOND + 5, 50), record(SECOND + 7, 40)]);
    });
    let spikes: Vec<_> = result.cells[0].spikes.iter().map(|spike| (spike.latency_ns, spike.hwlat)).collect();
    assert_eq!(spikes, [(50, Some(sample(50))), (30, None)]);
}

#[test]
fn spikes_of_two_cpus_at_one_moment_are_one_event() {
    let result = result_of(&complete_info(), |directory| {
        let stall = key("idle", 1, 1, "stall");
        let gap = |cpu, at_ns| SpikeRecord {
            cpu: CpuId(cpu),
            at_ns,
            latency_ns: 90_112,
            sample: 0,
            ..SpikeRecord::default()
        };
        directory.rows().add_intervals(&stall, [0, 1].map(|cpu| interval(cpu, 1, &[20, 90_112])));
        directory.rows().add_spikes(&stall, [gap(0, SECOND), gap(1, SECOND + 10_000), gap(1, 2 * SECOND)]);
    });
    let events: Vec<Option<u64>> = result.cells[0].spikes.iter().map(|spike| spike.event).collect();
    assert_eq!(events, [Some(1), Some(1), None]);
    assert_eq!(result.cells[0].probes[0].spikes[0].event, Some(1));
}

#[test]
fn each_watched_thread_keeps_its_worst_activations_although_another_is_later() {
    let mut info = complete_info();
    let task = serde_json::json!({ "kind": "task", "name": "a", "worst": 40 });
    info.plan.probe.push(serde_json::from_value(task).unwrap());
    let result = result_of(&info, |directory| {
        for (thread, latency_ns) in [("loud", 200), ("quiet", 100)] {
            let key = key("idle", 1, 1, &format!("task/{thread}"));
            let samples: Vec<u64> = (0..50).map(|nth| latency_ns + nth).collect();
            directory.rows().add_intervals(&key, [interval(1, 1, &samples)]);
            let spike = |latency_ns: &u64| SpikeRecord {
                cpu: CpuId(1),
                at_ns: SECOND + latency_ns,
                latency_ns: *latency_ns,
                sample: 0,
                ..SpikeRecord::default()
            };
            directory.rows().add_spikes(&key, samples.iter().map(spike));
        }
    });
    let spikes = &result.cells[0].probes.iter().find(|probe| probe.probe == "task").unwrap().spikes;
    let of = |thread: &str| spikes.iter().filter(|spike| spike.probe.as_deref() == Some(thread)).count();
    assert_eq!((of("task/loud"), of("task/quiet")), (40, 40));
}

#[test]
fn throttling_is_labelled_from_the_stored_counters() {
    let mut info = complete_info();
    info.facts.settings.rt_runtime_us = Some(950_000);
    info.facts.settings.rt_period_us = Some(1_000_000);
    info.facts.kernel.release = "6.1.0-rt".to_owned();
    let fill = |directory: &mut RunDirectory| {
        let stall = key("idle", 1, 1, "stall");
        let gap = |second| SpikeRecord {
            cpu: CpuId(0),
            at_ns: second * SECOND,
            latency_ns: 50_000_000,
            sample: second,
            ..SpikeRecord::default()
        };
        // The gap lies in the bucket from 49,807,360 ns.
        let with_gap =
            |second| Interval { max_ns: Some(50_000_000), ..interval(0, second, &[20, 49_807_360]) };
        directory.rows().add_intervals(&stall, (1..6).map(with_gap));
        directory.rows().add_spikes(&stall, (1..6).map(gap));
        let counters =
            CounterRecord { cpu: CpuId(0), involuntary_switches: Some(5), ..CounterRecord::default() };
        directory.rows().add_counters(&stall, Span { start_ns: SECOND, end_ns: 6 * SECOND }, [counters]);
    };
    let kinds = |result: &RunResult| -> Vec<CauseKind> {
        result.cells[0].spikes.iter().map(|spike| spike.cause.kind).collect()
    };
    assert_eq!(kinds(&result_of(&info, fill)), [CauseKind::Throttled; 5]);
    // The probe could not get its real-time priority, so it was not throttled.
    let warning = whylate_core::Warning::new(WarningCode::NoRealtimePriority, "runs as SCHED_OTHER");
    info.warnings.push(warning);
    assert_eq!(kinds(&result_of(&info, fill)), [CauseKind::Unattributed; 5]);
}

#[test]
fn rows_that_cannot_be_right_are_left_out_with_a_warning() {
    let result = result_of(&complete_info(), |directory| {
        add(directory, &rows("idle", 1, 1));
        let foreign = Interval { histogram: vec![(257, 1)], ..interval(0, 2, &[7]) };
        directory.rows().add_intervals(&key("idle", 1, 1, "timer"), [foreign]);
        directory.flush().unwrap();
        directory.rows().add_intervals(&key("unheard-of", 1, 1, "timer"), [interval(0, 3, &[7])]);
    });
    assert_eq!(samples(&result.cells[0], "timer"), [(0, 4), (1, 2)]);
    let [first, second] = &result.warnings[..] else { panic!("{:?}", result.warnings) };
    assert!(says("segment-rows-are-impossible", &first.text), "{}", first.text);
    assert!(says("ns-not-lower-edge", &first.text), "{}", first.text);
    assert!(says("knows-no-attempt-cell", &second.text), "{}", second.text);
    assert_eq!(result.verdict, Verdict::Incomplete);
    assert!(says("cell-idle-repeat-timer", &result.verdict_reason), "{}", result.verdict_reason);
}

#[test]
fn a_run_without_samples_is_an_error_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut directory = RunDirectory::create(&path, &complete_info()).unwrap();
    let no_samples = || assemble(&Reader::open(&path).unwrap()).unwrap_err();
    assert!(matches!(no_samples(), StoreError::NoSamples { .. }));
    directory.rows().add_intervals(&key("idle", 1, 1, "timer"), [interval(0, 1, &[])]);
    directory.rows().add_intervals(&key("idle", 1, 1, NOISE_FLOOR), [interval(0, 1, &[9])]);
    directory.flush().unwrap();
    assert!(no_samples().to_string().ends_with("run: no samples"));
}

#[test]
fn the_result_is_kept_as_json_that_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    three_segments(&path);
    let result = assembled(&path);
    let (mut directory, _) = RunDirectory::reopen(&path).unwrap();
    directory.write_result(&result).unwrap();
    let text = std::fs::read_to_string(path.join("result.json")).unwrap();
    assert_eq!(serde_json::from_str::<RunResult>(&text).unwrap(), result);
}

#[test]
fn the_causes_of_all_late_responses_add_up_not_only_those_of_the_longest() {
    let mut info = complete_info();
    let task = serde_json::json!({ "kind": "task", "name": "audio", "worst": 1, "deadline": "1us" });
    info.plan.probe.push(serde_json::from_value(task).unwrap());
    let result = result_of(&info, |directory| {
        let key = key("idle", 1, 1, "task/audio");
        let mut late = interval(1, 1, &[900, 2_000, 8_960]);
        late.quantities.set(OVERRUNS, 120);
        directory.rows().add_intervals(&key, [late]);
        let explained = |nth: u64| {
            let (latency_ns, actor) = match nth {
                0 => (8_960, "backup"),
                1 => (900, "early"),
                _ => (2_000, "logger"),
            };
            let actor = Some(actor.to_owned());
            let cause = Cause { actor, share: Some(0.5), ..Cause::new(CauseKind::Thread) };
            let at_ns = SECOND + nth;
            SpikeCauses { cpu: CpuId(1), at_ns, latency_ns, causes: vec![cause], ..SpikeCauses::default() }
        };
        directory.rows().add_causes(&key, (0..100).map(explained));
    });
    let probe = result.cells[0].probes.iter().find(|probe| probe.probe == "task").unwrap();
    let late = &probe.late_responses[0];
    assert_eq!((late.probe.as_str(), late.late, late.explained), ("task/audio", 120, 99));
    let rows: Vec<(Option<&str>, u64, u64)> =
        late.causes.iter().map(|row| (row.actor.as_deref(), row.spikes, row.total_ns)).collect();
    let half = 98 * 1_000;
    assert_eq!(rows, [(None, 99, half + 4_480), (Some("logger"), 98, half), (Some("backup"), 1, 4_480)]);
}
