//! Traces of a run in its reports: the culprit's name in every form, timelines on the page, and no section without
//! traces.

mod fixture;

use whylate_core::CpuId;
use whylate_core::result::{
    Cause, CauseKind, ExpectedFrom, ExplainResult, ExplainedSpike, ExplainedTrace, RunResult, SpikeTrace,
    TimelineSegment,
};
use whylate_report::{Style, run as report};

fn spike() -> ExplainedSpike {
    let segment = |from_ns, to_ns, what: &str, kind| TimelineSegment {
        from_ns,
        to_ns,
        cpu: CpuId(1),
        what: what.to_owned(),
        kind,
        function: None,
    };
    ExplainedSpike {
        task: "whylate".into(),
        pid: Some(7),
        priority: Some(4),
        cpu: CpuId(1),
        expected_ns: 1_000_000,
        actual_ns: 4_000_000,
        latency_ns: 3_000_000,
        unended: false,
        expected_from: ExpectedFrom::Timer,
        expected_error_ns: 0,
        cause: Cause {
            actor: Some("<script>stalld".into()),
            pid: Some(9),
            function: Some("stall_pci_readback".into()),
            share: Some(0.98),
            ..Cause::new(CauseKind::IrqsOff)
        },
        also: Vec::new(),
        timeline: vec![
            segment(1_000_000, 3_940_000, "stalld: interrupts disabled", Some(CauseKind::IrqsOff)),
            segment(3_940_000, 4_000_000, "context switch", None),
        ],
        evidence: Vec::new(),
        hwlat: None,
        lost: 0,
        trace: 0,
    }
}

fn trace(latency_ns: u64, explained: Option<ExplainResult>, error: Option<&str>) -> SpikeTrace {
    SpikeTrace {
        path: format!("traces/idle-2-1-{latency_ns}.dat"),
        cell: "idle".into(),
        repeat: 2,
        attempt: 1,
        probe: "timer".into(),
        task: Some("whylate".into()),
        cpu: CpuId(1),
        at_ns: 4_000_000,
        latency_ns,
        unended: false,
        guest: None,
        explained,
        error: error.map(str::to_owned),
    }
}

fn run() -> RunResult {
    let mut run = fixture::run_result(&[1]);
    let explained = ExplainResult {
        traces: vec![ExplainedTrace::default()],
        spikes: vec![spike()],
        ..ExplainResult::default()
    };
    let of = |probe: &str, trace: SpikeTrace| SpikeTrace { probe: probe.to_owned(), ..trace };
    run.cells[0].traces = vec![
        trace(3_000_000, Some(explained), None),
        of("stall", trace(2_000_000, None, Some("the file is cut off at byte 7"))),
        of("dispatch", trace(1_000_000, None, None)),
        trace(500_000, None, None),
    ];
    run
}

#[test]
fn every_form_names_the_culprit_and_its_trace() {
    let run = run();
    let texts = [
        report(&run).unwrap().detailed(true).terminal(Style::default()),
        report(&run).unwrap().markdown().replace('\\', ""),
    ];
    for text in texts {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for expected in [
            "3.00 ms timer in idle, repeat 2, CPU 1: whylate was 3.00 ms late on CPU 1:",
            "(thread 9) disabled interrupts in stall_pci_readback for 2.94 ms",
            "2.00 ms stall in idle, repeat 2, CPU 1: the file is cut off at byte 7",
            "whylate explain",
            "3 more traces; whylate explain",
        ] {
            assert!(text.contains(expected), "`{expected}` is not in\n{text}");
        }
    }
}

#[test]
fn the_page_has_timelines_that_zoom_and_no_foreign_markup() {
    let page = report(&run()).unwrap().html();
    for expected in [
        "id=\"traces\"",
        "data-length=\"3000000\"",
        "stalld: interrupts disabled",
        "or + and -",
        "the file is cut off at byte 7",
        "addEventListener(\"keydown\"",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
    assert!(!page.contains("<script>stalld"), "a thread's name is markup");
}

#[test]
fn a_run_without_traces_has_no_section_about_them() {
    let run = fixture::run_result(&[1]);
    let page = report(&run).unwrap().html();
    assert!(!page.contains("id=\"traces\"") && !page.contains("or + and -"));
    assert!(!report(&run).unwrap().terminal(Style::default()).contains("Traces"));
}
