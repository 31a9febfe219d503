//! Traces of spikes: when it records, what is kept, and that a recording that fails disturbs nothing else.

use crate::mock::{MockMachine, PLAN, experiment, folder, options};
use std::fs;
use std::path::Path;
use whylate_core::WarningCode;
use whylate_core::result::{RunResult, RunState};
use whylate_runner::run;
use whylate_store::{Reader, RunInfo, assemble};

/// A plan that keeps the two largest spikes above 100 us of each cell.
fn plan() -> String {
    format!("{PLAN}[trace]\nworst = 2\nabove = \"100us\"\n")
}

fn run_plan(path: &Path, plan: &str, machine: &MockMachine) -> (RunInfo, RunResult) {
    let info = run(&experiment(plan), path, &options(), machine, &mut machine.audience()).unwrap();
    (info, assemble(&Reader::open(path).unwrap()).unwrap())
}

fn files(run: &Path) -> Vec<String> {
    let entries = fs::read_dir(run.join("traces")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn has(info: &RunInfo, code: &str, text: &str) -> bool {
    info.warnings.iter().any(|warning| warning.code == code && warning.text.contains(text))
}

#[test]
fn it_is_recorded_while_probes_measure_and_not_in_the_noise_floor() {
    let folder = folder();
    let machine = MockMachine::default();
    let (info, _) = run_plan(&folder.path().join("run"), &plan(), &machine);
    let log = machine.log_of(&["trace ", "begin ", "end ", "facts"]);
    let expected = [
        "trace nop on 0-3",
        "trace pause",
        "begin noise on 3",
        "end noise",
        "trace resume",
        "begin timer on 3",
        "end timer",
        "trace pause",
        "trace resume",
        "begin stall on 3",
        "end stall",
        "trace pause",
    ];
    assert_eq!(log[..expected.len()], expected);
    assert_eq!(log[log.len() - 2..], ["trace finish", "facts"]);
    assert!(has(&info, "traced", "contains the cost of the recording") && has(&info, "mock-trace", ""));
}

/// Whatever else is done about a spike would push its moment out of the ring.
#[test]
fn a_trace_is_stopped_before_its_spike_is_explained() {
    let folder = folder();
    let machine = MockMachine { late: vec![500_000], ..MockMachine::default() };
    run_plan(
        &folder.path().join("run"),
        &plan().replace("repeats = 2", "repeats = 1\ncauses = true"),
        &machine,
    );
    let log = machine.log_of(&["trace pause", "trace save", "causes: explain"]);
    let saved: Vec<usize> = (0..log.len()).filter(|at| log[*at] == "trace save").collect();
    assert!(!saved.is_empty(), "{log:?}");
    for at in saved {
        assert_eq!(log[at - 3..at], ["trace pause", "causes: explain 1", "trace pause"], "{log:?}");
    }
}

#[test]
fn the_largest_of_each_cell_are_kept_with_notes_of_what_they_are() {
    let folder = folder();
    let path = folder.path().join("run");
    let machine = MockMachine { late: vec![90_000, 500_000], ..MockMachine::default() };
    let (_, result) = run_plan(&path, &plan(), &machine);
    // Two repeats and two probes with the same latency: each probe keeps its first two.
    let names = (1..=2).flat_map(|repeat| {
        (1..=2)
            .flat_map(move |number| ["dat", "json"].map(|ending| format!("a+b-{repeat}-1-{number}.{ending}")))
    });
    assert_eq!(files(&path)[..8], names.collect::<Vec<_>>());
    assert_eq!(files(&path).len(), 16);
    for cell in &result.cells {
        let mut probes: Vec<(&str, u32)> =
            cell.traces.iter().map(|trace| (trace.probe.as_str(), trace.repeat)).collect();
        probes.sort_unstable();
        assert_eq!(probes, [("stall", 1), ("stall", 2), ("timer", 1), ("timer", 2)], "{}", cell.name);
        for trace in &cell.traces {
            assert_eq!((trace.latency_ns, trace.cell.as_str()), (500_000, cell.name.as_str()));
            // It is not a trace that could be explained, and the note says so.
            assert!(trace.explained.is_none() && trace.error.is_some(), "{trace:?}");
        }
    }
}

#[test]
fn a_larger_one_takes_the_place_of_a_smaller_one() {
    let folder = folder();
    let path = folder.path().join("run");
    let machine = MockMachine { late: vec![200_000], ..MockMachine::default() };
    run_plan(&path, &plan().replace("worst = 2", "worst = 1"), &machine);
    let names = ["a+b-1-1-1", "a+b-1-1-2", "idle-1-1-1", "idle-1-1-2"];
    let both = names.iter().flat_map(|name| ["dat", "json"].map(|ending| format!("{name}.{ending}")));
    assert_eq!(files(&path), both.collect::<Vec<_>>());
    // A trace whose file was removed is not in the result.
    fs::remove_file(path.join("traces/idle-1-1-1.dat")).unwrap();
    fs::write(path.join("traces/a+b-1-1-1.json"), "{").unwrap();
    let result = assemble(&Reader::open(&path).unwrap()).unwrap();
    let left: Vec<&str> =
        result.cells.iter().flat_map(|cell| &cell.traces).map(|trace| trace.path.as_str()).collect();
    assert_eq!(left, ["traces/idle-1-1-2.dat", "traces/a+b-1-1-2.dat"]);
    assert!(result.warnings.iter().any(|warning| warning.code == "unreadable-trace-note"));
}

#[test]
fn a_recording_that_fails_ends_and_the_measurement_goes_on() {
    for failing in ["start", "pause", "resume", "save", "finish"] {
        let folder = folder();
        let machine =
            MockMachine { late: vec![500_000], failing_trace: Some(failing), ..MockMachine::default() };
        let (info, result) = run_plan(&folder.path().join("run"), &plan(), &machine);
        assert_eq!((info.state, &info.error), (RunState::Complete, &None), "{failing}");
        assert!(result.cells.iter().all(|cell| cell.repeats.iter().all(|repeat| repeat.error.is_none())));
        match failing {
            // Settings were not restored: the exit code says so.
            "finish" => assert!(
                has(&info, WarningCode::TreatmentNotRestored.name(), "planted")
                    && info.restored == Some(false)
            ),
            _ => assert!(
                has(&info, "no-traces", "traces of spikes cannot be recorded"),
                "{failing}: {:?}",
                info.warnings
            ),
        }
        let finished = machine.log_of(&["trace finish"]).len();
        assert_eq!(finished, usize::from(failing != "start"), "{failing}");
    }
}

#[test]
fn without_the_key_nothing_is_recorded() {
    let folder = folder();
    let machine = MockMachine { late: vec![500_000], ..MockMachine::default() };
    let off = format!("trace = \"off\"\n{PLAN}");
    let (info, result) = run_plan(&folder.path().join("run"), &off, &machine);
    assert_eq!(machine.log_of(&["trace "]), Vec::<String>::new());
    assert!(!has(&info, "traced", "") && result.cells.iter().all(|cell| cell.traces.is_empty()));
}
