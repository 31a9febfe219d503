//! The order of the steps when nothing goes wrong.

use crate::mock::{Behaviour, MockMachine, PLAN, counts, experiment, facts, folder, info, options};
use std::sync::atomic::Ordering;
use whylate_core::quantity::SOURCES;
use whylate_core::result::{CauseKind, RunState, Verdict};
use whylate_core::{CpuSet, Facts, Nanos, Plan, WarningCode};
use whylate_runner::run;
use whylate_store::{Reader, assemble};
use whylate_sys::schedule;

/// Runs a plan and gives the machine it ran on.
fn run_plan(plan: &str, machine: MockMachine) -> (MockMachine, Vec<String>) {
    let folder = folder();
    let path = folder.path().join("run");
    let info = run(&experiment(plan), &path, &options(), &machine, &mut machine.audience()).unwrap();
    assert_eq!((info.state, info.error), (RunState::Complete, None));
    let counts = counts(&path);
    (machine, counts)
}

#[test]
fn spikes_have_causes_where_the_plan_wants_them() {
    let folder = folder();
    let path = folder.path().join("run");
    let machine = MockMachine::default();
    let plan = PLAN.replace("repeats = 2", "repeats = 1\ncauses = true");
    run(&experiment(&plan), &path, &options(), &machine, &mut machine.audience()).unwrap();
    let log = machine.log_of(&["find", "causes"]);
    let of_probe = |probe: &str| {
        [format!("causes: begin {probe}"), "causes: process 4711 on 3".into(), "causes: explain 1".into()]
    };
    let mut expected = vec!["find causes of 2 probes".to_owned()];
    // The noise floor of each of the two cells is a stall check.
    for probe in ["stall", "timer", "stall", "stall", "timer", "stall"] {
        expected.extend(of_probe(probe));
    }
    assert_eq!(log, expected);
    let result = assemble(&Reader::open(&path).unwrap()).unwrap();
    for cell in &result.cells {
        assert!(cell.spikes.iter().all(|spike| spike.cause.kind == CauseKind::Irq), "{:?}", cell.spikes);
        let sent: Vec<(u32, u64)> = cell.ipis.iter().map(|ipi| (ipi.cpu.0, ipi.count)).collect();
        assert_eq!(sent, [(3, 4)], "two of each probe, none of the noise floor");
        let stall = cell.probes.iter().find(|probe| probe.probe == "stall").unwrap();
        let took: Vec<(CauseKind, u64)> = stall.cpus[0]
            .quantities
            .of(SOURCES)
            .unwrap()
            .iter()
            .map(|source| (source.kind, source.total_ns))
            .collect();
        assert_eq!(took, [(CauseKind::Irq, 70)], "of the probe, none of the noise floor");
    }
    let codes: Vec<&str> = result.warnings.iter().map(|warning| warning.code.as_str()).collect();
    assert!(codes.contains(&"mock-causes") && codes.contains(&"mock-losses"), "{codes:?}");
}

#[test]
fn probes_without_late_moments_are_not_searched() {
    let plan = |probes: &str| {
        let all = "[[probe]]\nkind = \"timer\"\n[[probe]]\nkind = \"stall\"\n";
        PLAN.replace(all, probes)
            .replace("repeats = 2", "repeats = 1\ncauses = true")
            .replace("noise_floor = \"7ms\"", "noise_floor = \"0s\"")
            .replace("[[cell]]\nloads = [\"a\", \"b\"]\n", "")
    };
    let counters = "[[probe]]\nkind = \"histograms\"\n[[probe]]\nkind = \"tracer\"\ntracer = \"hwlat\"\n";
    let of_companion = || vec![("idle: histograms", Behaviour::UntilStopped)];
    let machine = MockMachine { behaviours: of_companion(), ..MockMachine::default() };
    let (machine, _) = run_plan(&plan(&format!("{counters}[[probe]]\nkind = \"timer\"\n")), machine);
    let log = machine.log_of(&["find", "causes: begin", "causes: process"]);
    // The search hears of neither hwlat nor the histograms, and of no process of the latter.
    let expected = [
        "find causes of 1 probes",
        "causes: begin ",
        "causes: process 4711 on 3",
        "causes: begin timer",
        "causes: process 4711 on 3",
    ];
    assert_eq!(log, expected);
    let machine = MockMachine { behaviours: of_companion(), ..MockMachine::default() };
    let (machine, _) = run_plan(&plan(counters), machine);
    assert!(machine.log_of(&["find", "causes"]).is_empty(), "there is nothing to look for");
}

#[test]
fn causes_are_looked_for_from_cpus_that_are_not_measured() {
    let allowed = schedule::allowed_of_this_thread().unwrap();
    let plan =
        PLAN.replace("cpus = \"3\"", "cpus = \"1\"").replace("repeats = 2", "repeats = 1\ncauses = true");
    let machine = MockMachine::default();
    let looked_from = machine.looked_from.clone();
    run_plan(&plan, machine);
    let looked_from = looked_from.lock().unwrap();
    assert_eq!(looked_from.len(), 6, "one spike of each probe");
    // The plan's other CPUs are 0, 2 and 3; on a machine that has none of them, the thread stays where it is.
    let others: CpuSet = "0,2-3".parse().unwrap();
    let expected =
        Some(allowed.intersection(&others)).filter(|left| !left.is_empty()).unwrap_or(allowed.clone());
    assert!(looked_from.iter().all(|cpus| *cpus == expected), "{looked_from:?}");
    assert_eq!(schedule::allowed_of_this_thread().unwrap(), allowed, "it is put back");
}

#[test]
fn a_machine_without_causes_is_measured_with_a_warning() {
    let machine = MockMachine { refuses_causes: true, ..MockMachine::default() };
    let folder = folder();
    let path = folder.path().join("run");
    let plan = PLAN.replace("repeats = 2", "repeats = 1\ncauses = true");
    let info = run(&experiment(&plan), &path, &options(), &machine, &mut machine.audience()).unwrap();
    assert_eq!(info.state, RunState::Complete);
    let said = info.warnings.iter().find(|warning| warning.code == "no-causes").unwrap();
    assert!(said.text.contains("run it as root"), "{}", said.text);
}

#[test]
fn a_plan_that_wants_no_causes_looks_for_none() {
    let (machine, _) = run_plan(PLAN, MockMachine::default());
    assert!(machine.log_of(&["find", "causes"]).is_empty());
}

#[test]
fn each_repeat_goes_from_the_noise_floor_to_the_end_of_the_loads() {
    let (machine, _) = run_plan(PLAN, MockMachine::default());
    let mut log = machine.log();
    log.retain(|line| !line.starts_with("repeat "));
    log.dedup();
    let expected = [
        "stage noise floor (0/4)",
        "begin noise on 3",
        "end noise",
        "settle",
        "stage timer (0/4)",
        "begin timer on 3",
        "end timer",
        "stage stall (0/4)",
        "begin stall on 3",
        "end stall",
        "stage noise floor (1/4)",
        "begin noise on 3",
        "end noise",
        "stage starting loads (1/4)",
        "start a",
        "stage starting loads (1/4)",
        "start b",
        "settle",
        "rates of a",
        "rates of b",
        "stage timer (1/4)",
        "begin timer on 3",
        "end timer",
        "stage stall (1/4)",
        "begin stall on 3",
        "end stall",
        "stop a",
        "stop b",
        "stage noise floor (2/4)",
    ];
    assert_eq!(log[..expected.len()], expected);
    // The facts are compared once, at the very end.
    assert_eq!(machine.log_of(&["facts"]).len(), 1);
    assert_eq!(log.last().map(String::as_str), Some("facts"));
    assert_eq!(machine.record.loads_alive.load(Ordering::SeqCst), 0);
}

#[test]
fn repeats_of_cells_are_interleaved() {
    let cells = "[[cell]]\nname = \"A\"\n[[cell]]\nname = \"B\"\nloads = [\"a\"]\n[[cell]]\nname = \"C\"\nloads = [\"b\"]\n";
    let plan =
        format!("{}{cells}", PLAN.split("[[cell]]").next().unwrap()).replace("repeats = 2", "repeats = 3");
    let (machine, _) = run_plan(&plan, MockMachine::default());
    assert_eq!(machine.repeats(), ["A 1", "B 1", "C 1", "A 2", "B 2", "C 2", "A 3", "B 3", "C 3"]);
}

#[test]
fn the_order_is_drawn_in_blocks_and_kept() {
    let plan = PLAN.replace("order = \"plan\"", "seed = 5").replace("repeats = 2", "repeats = 6");
    let folder = folder();
    let path = folder.path().join("run");
    let machine = MockMachine::default();
    let info = run(&experiment(&plan), &path, &options(), &machine, &mut machine.audience()).unwrap();
    assert_eq!(info.seed, 5);
    let drawn: Vec<String> = whylate_stats::order::slots(2, 6, whylate_core::plan::Order::Shuffled, 5)
        .iter()
        .map(|slot| format!("{} {}", ["idle", "a+b"][slot.cell], slot.repeat))
        .collect();
    assert_eq!(machine.repeats(), drawn);
    assert_ne!(
        drawn,
        [
            "idle 1", "a+b 1", "idle 2", "a+b 2", "idle 3", "a+b 3", "idle 4", "a+b 4", "idle 5", "a+b 5",
            "idle 6", "a+b 6"
        ]
    );
    let blocks: Vec<u32> = info.executions.iter().map(|execution| execution.block).collect();
    assert_eq!(blocks, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
    let result = assemble(&Reader::open(&path).unwrap()).unwrap();
    let of_repeats: Vec<u32> = result.cells[1].repeats.iter().map(|repeat| repeat.block).collect();
    assert_eq!(of_repeats, [0, 0, 1, 1, 2, 2]);
}

#[test]
fn probes_on_different_cpus_measure_together_and_those_of_one_cpu_one_after_another() {
    let probes = "[[probe]]\nkind = \"timer\"\ncpus = \"1\"\n[[probe]]\nkind = \"stall\"\ncpus = \"2\"\n\
                  [[probe]]\nkind = \"stall\"\ncpus = \"1\"\n[[probe]]\nkind = \"timer\"\ncpus = \"2\"\n";
    let plan = PLAN
        .replace("[[probe]]\nkind = \"timer\"\n[[probe]]\nkind = \"stall\"\n", probes)
        .replace("cpus = \"3\"", "cpus = \"1-2\"")
        .replace("repeats = 2", "repeats = 1");
    // Neither of a pair ends before the other has begun.
    let (machine, _) = run_plan(&plan, MockMachine { together: 2, ..MockMachine::default() });
    let log = machine.log_of(&["begin timer", "begin stall", "end timer", "end stall"]);
    for (pair, cpus) in
        log.chunks(4).zip([["timer on 1", "stall on 2"], ["stall on 1", "timer on 2"]].iter().cycle())
    {
        let mut begun = pair[..2].to_vec();
        begun.sort_by_key(|line| !line.contains(cpus[0]));
        assert_eq!(begun, [format!("begin {}", cpus[0]), format!("begin {}", cpus[1])], "{log:?}");
        assert!(pair[2..].iter().all(|line| line.starts_with("end ")), "{log:?}");
    }
    assert_eq!(log.len(), 16);
}

#[test]
fn everything_that_was_measured_is_in_the_result_and_nothing_from_before_the_probes() {
    let (_, counts) = run_plan(PLAN, MockMachine::default());
    // Rate 1 is from before the probes; rate 3 is what was left when the load was stopped.
    let expected = [
        "idle 1: timer=10 stall=10 None",
        "idle 2: timer=10 stall=10 None",
        "idle: 40 samples, 12 interrupts, 4 spikes, []",
        "a+b 1: timer=10 stall=10 None",
        "a+b 2: timer=10 stall=10 None",
        "a+b: 40 samples, 12 interrupts, 4 spikes, [[2.0, 3.0, 2.0, 3.0], [2.0, 3.0, 2.0, 3.0]]",
    ];
    assert_eq!(counts, expected);
}

#[test]
fn without_a_noise_floor_there_is_no_check() {
    let (machine, _) =
        run_plan(&PLAN.replace("noise_floor = \"7ms\"", "noise_floor = \"0s\""), MockMachine::default());
    assert!(machine.log_of(&["begin noise", "stage noise"]).is_empty());
}

#[test]
fn a_cell_whose_load_cannot_run_here_is_skipped_with_its_reason() {
    let plan = PLAN.replace("working_set = \"1MiB\"", "working_set = \"l3/2\"").replace(
        "[[cell]]\nloads = [\"a\", \"b\"]",
        "[[cell]]\nloads = [\"a\", \"b\"]\n[[cell]]\nloads = [\"b\"]",
    );
    let folder = folder();
    let path = folder.path().join("run");
    let machine = MockMachine::default();
    let info = run(&experiment(&plan), &path, &options(), &machine, &mut machine.audience()).unwrap();
    assert_eq!(info.state, RunState::Complete);
    assert_eq!(machine.repeats(), ["idle 1", "b 1", "idle 2", "b 2"]);
    let result = assemble(&Reader::open(&path).unwrap()).unwrap();
    let reason = result.cells[1].skipped.clone().unwrap();
    assert!(reason.starts_with("load `a`: ") && reason.contains("l3"), "{reason}");
    assert!(!reason.contains('\n'), "{reason}");
    assert!(result.cells[1].probes.is_empty() && result.cells[1].repeats.is_empty());
    assert_eq!((&result.cells[0].skipped, &result.cells[2].skipped), (&None, &None));
    assert_eq!(result.cells[2].repeats.len(), 2);
    assert_eq!(result.verdict, Verdict::NoLimit);
}

#[test]
fn remarks_of_loads_are_reported_once() {
    let folder = folder();
    let machine = MockMachine::default();
    let path = folder.path().join("run");
    let info = run(&experiment(PLAN), &path, &options(), &machine, &mut machine.audience()).unwrap();
    let said: Vec<&str> =
        info.warnings.iter().filter(|it| it.code == "mock-load").map(|it| it.text.as_str()).collect();
    assert_eq!(said, ["a has something to say", "b has something to say"]);
}

#[test]
fn the_settings_before_and_after_are_compared() {
    let treated = PLAN.replace(
        "[[cell]]\nloads = [\"a\", \"b\"]",
        "[[treatment]]\nname = \"awake\"\nkind = \"idle\"\n[[cell]]\nloads = [\"a\"]\ntreatments = [\"awake\"]",
    );
    let ended = |plan: &str, after: Facts| {
        let folder = folder();
        let path = folder.path().join("run");
        let machine = MockMachine { facts: Some(after), ..MockMachine::default() };
        run(&experiment(plan), &path, &options(), &machine, &mut machine.audience()).unwrap();
        let ended = info(&path);
        let changed = ended.warnings.iter().find(|it| it.code == WarningCode::MachineChanged);
        (ended.restored, changed.map(|it| it.text.clone()))
    };
    let mut governor = facts();
    governor.cpus[1].governor = Some("powersave".to_owned());
    let mut isolated = facts();
    isolated.cpu_sets.isolated = "1".parse().unwrap();
    for plan in [PLAN, &treated] {
        assert_eq!(ended(plan, facts()), (Some(true), None));
    }
    for changed in [&governor, &isolated] {
        assert_eq!(ended(&treated, changed.clone()).0, Some(false));
        // A run without treatments has nothing to restore: another program made the change.
        let (restored, text) = ended(PLAN, changed.clone());
        assert_eq!(restored, Some(true));
        assert!(text.is_some_and(|text| text.starts_with("another program changed settings")));
    }
    let (_, text) = ended(PLAN, isolated);
    assert!(text.is_some_and(|text| text.ends_with("isolated CPUs: none before, 1 after")));
}

#[test]
fn plans_that_cannot_run_here_say_why_and_leave_no_directory() {
    let error = |plan: &str| {
        let plan = Plan::parse(&whylate_core::plan::Source { name: "mock.toml", text: plan }, &[]).unwrap();
        whylate_runner::prepare(plan, facts(), false).unwrap_err().to_string()
    };
    let target = error(&PLAN.replace("cpus = \"3\"", "cpus = \"9\""));
    assert!(
        target.starts_with("target.cpus: ") && target.contains('9') && target.contains("0-3"),
        "{target}"
    );
    let probe = error(&PLAN.replacen("kind = \"stall\"", "kind = \"stall\"\ncpus = \"0-3\"", 1));
    assert!(probe.starts_with("probe[1]: ") && probe.contains("housekeeping"), "{probe}");
    let twice = error(&PLAN.replacen("kind = \"stall\"", "kind = \"timer\"", 1));
    assert!(twice.starts_with("probe[1]: ") && twice.contains("CPU 3"), "{twice}");
    let only = "[[cell]]\nloads = [\"a\"]\n";
    let plan = format!("{}{only}", PLAN.split("[[cell]]").next().unwrap());
    let nothing = error(&plan.replace("working_set = \"1MiB\"", "working_set = \"l3/2\""));
    assert!(nothing.contains("no cell") && nothing.contains("load `a`"), "{nothing}");
}

#[test]
fn a_companion_begins_before_the_others_and_ends_after_them() {
    let plan = PLAN.replace(
        "[[probe]]\nkind = \"timer\"",
        "[[probe]]\nkind = \"histograms\"\nkinds = [\"wakeup\"]\n[[probe]]\nkind = \"timer\"",
    );
    let behaviours = ["idle: histograms", "a+b: histograms"].map(|place| (place, Behaviour::UntilStopped));
    let machine = MockMachine { behaviours: behaviours.to_vec(), ..MockMachine::default() };
    let (machine, _) = run_plan(&plan, machine);
    let log = machine.log_of(&[
        "begin histograms",
        "end histograms",
        "begin timer",
        "end timer",
        "begin stall",
        "end stall",
    ]);
    // For each of the two groups of each repeat of both cells.
    let group = |probe: &str| {
        [
            "begin histograms on 3".to_owned(),
            format!("begin {probe} on 3"),
            format!("end {probe}"),
            "end histograms".to_owned(),
        ]
    };
    let repeat = [group("timer"), group("stall")].concat();
    assert_eq!(log, [repeat.clone(), repeat.clone(), repeat.clone(), repeat].concat());
    let longest = experiment(&plan).plan.repeat_timeout();
    for (name, duration) in machine.durations.lock().unwrap().iter() {
        let planned = if *name == "noise" { Nanos::from_millis(7) } else { Nanos::from_millis(20) };
        assert_eq!(*duration, if *name == "histograms" { longest } else { planned }, "{name}");
    }
}

#[test]
fn a_cell_without_causes_has_no_programs_in_the_kernel() {
    let folder = folder();
    let machine = MockMachine::default();
    let plan = PLAN.replacen("repeats = 2", "repeats = 2\ncauses = true", 1);
    let plan = plan.replacen("loads = [\"a\", \"b\"]", "loads = [\"a\", \"b\"]\ncauses = false", 1);
    run(&experiment(&plan), &folder.path().join("run"), &options(), &machine, &mut machine.audience())
        .unwrap();
    let log = machine.log_of(&["find", "causes:", "start b"]);
    let of_bare = |from: usize| {
        let rest = &log[from + 1..];
        rest.iter()
            .take_while(|line| !line.starts_with("find"))
            .filter(|line| line.starts_with("causes:"))
            .count()
    };
    let bare: Vec<usize> = (0..log.len()).filter(|at| log[*at] == "start b").collect();
    assert_eq!(bare.len(), 2, "{log:?}");
    assert!(bare.iter().all(|at| of_bare(*at) == 0), "{log:?}");
    let loaded = log.iter().filter(|line| line.starts_with("find")).count();
    assert_eq!(loaded, 2, "once at the start, and again behind the first bare repeat: {log:?}");
}
