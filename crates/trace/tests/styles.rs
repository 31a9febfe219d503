//! One recording in the styles of several tools: each reads like the binary original.

mod render;

use std::path::{Path, PathBuf};
use whylate_trace::event::{Event, EventKind};
use whylate_trace::facts::AnalysisKind;
use whylate_trace::parse::{self, Source, TextReader};
use whylate_trace::reader::{Reader, Selection};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces").join(name)
}

/// The parts of an event that every style has: without flags, which some leave out, and without addresses, which some print
/// as names.
fn common(event: &Event, reader: &dyn Reader) -> String {
    let kind = match event.kind {
        EventKind::TimerStart { expires_ns, .. } => format!("TimerStart {expires_ns}"),
        EventKind::TimerExpire { now_ns, .. } => format!("TimerExpire {now_ns}"),
        EventKind::WheelExpire { .. } => "WheelExpire".to_owned(),
        EventKind::WheelExpireExit { .. } => "WheelExpireExit".to_owned(),
        EventKind::Other { name, .. } => format!("Other {}", reader.names().text(name)),
        EventKind::Function { function, caller } => {
            let name = |symbol| reader.symbol(symbol).map(|(name, _)| name.to_owned());
            format!("Function {:?} {:?}", name(function), name(caller))
        }
        _ => render::kind(&event.kind, reader),
    };
    format!("{} {} {:?} {kind}", event.at_ns / 1000, event.cpu, event.pid)
}

fn some(reader: &mut dyn Reader, most: usize) -> Vec<String> {
    let mut found = Vec::new();
    while found.len() < most
        && let Some(event) = reader.next().expect("the fixture is whole")
    {
        found.push(common(&event, reader));
    }
    found
}

/// The events of a text, and whether it was understood to its end.
fn text(name: &str) -> Vec<String> {
    let mut reader = parse::open(&path(&format!("styles/{name}.txt.xz"))).expect("it is a trace");
    let found = some(reader.as_mut(), usize::MAX);
    let info = reader.info();
    assert!(info.remarks.iter().all(|it| !it.contains("skipped")), "{name}: {:?}", info.remarks);
    assert_eq!((info.facts.lines_skipped, info.records), (0, found.len() as u64), "{name}");
    found
}

/// Times of text are rounded; those of the record are cut.
fn assert_same(name: &str, text: &[String], binary: &[String]) {
    for (text, binary) in text.iter().zip(binary) {
        let split = |line: &str| {
            let (at, rest) = line.split_once(' ').expect("a time");
            (at.parse::<u64>().expect("a number"), rest.to_owned())
        };
        let ((text_us, text), (binary_us, binary)) = (split(text), split(binary));
        assert!(text_us.abs_diff(binary_us) <= 1, "{name}: {text_us} {text}, {binary_us} {binary}");
        // A thread that has ended is known to the record alone.
        if !text.contains(" None ") {
            assert_eq!(text, binary, "{name}");
        }
    }
}

#[test]
fn reports_read_as_the_trace_that_they_are_of() {
    for (file, lines) in [("events", 499), ("functions", 399)] {
        let mut reader = parse::open(&path(&format!("{file}-rt-6.1.dat"))).expect("it is a trace");
        let binary = some(reader.as_mut(), lines);
        for style in ["report", "report_l", "report_w", "report_R", "report_tsdiff"] {
            let name = format!("{file}_{style}");
            let text = text(&name);
            assert!(text.len() >= lines, "{name}: {}", text.len());
            assert_same(&name, &text[..lines], &binary);
        }
    }
}

#[test]
fn perf_script_reads_as_the_file_that_it_is_of() {
    let mut reader = parse::open(&path("readers/perf_6.18.data.xz")).expect("it is a trace");
    let binary = some(reader.as_mut(), 60);
    let text = text_of_perf();
    let kernel_only = |lines: &[String]| -> Vec<String> {
        lines.iter().filter(|line| !line.contains("Stack")).cloned().collect()
    };
    let (text, binary) = (kernel_only(&text), kernel_only(&binary));
    assert!(text.len() > 20, "{}", text.len());
    assert_same("perf script", &text[..20], &binary);
}

fn text_of_perf() -> Vec<String> {
    let mut reader = parse::open(&path("styles/perf_script.txt.xz")).expect("it is a trace");
    let found = some(reader.as_mut(), usize::MAX);
    assert_eq!(reader.info().facts.lines_skipped, 0);
    assert!(found.iter().any(|line| line.contains("Stack")), "stacks are events, too");
    found
}

fn reader(text: &str) -> TextReader {
    TextReader::new(Source::memory("trace", text.as_bytes()).expect("memory can be read"))
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn functions_by_indentation_have_their_callers() {
    let lines = [
        ("function:             ", "asm_sysvec"),
        ("function:                ", "hrtimer_interrupt"),
        ("function:                   ", "run_queues"),
        ("function:                ", "tick_program_event"),
    ];
    let text: String = lines
        .iter()
        .map(|(lead, name)| format!("        stalld/1-201   [001]    43.854447: {lead}{name}\n"))
        .collect();
    let mut reader = reader(&text);
    let found = some(&mut reader, 9);
    let calls: Vec<&str> =
        found.iter().filter_map(|line| line.split_once("Function ")).map(|it| it.1).collect();
    assert_eq!(
        calls,
        [
            "Some(\"asm_sysvec\") None",
            "Some(\"hrtimer_interrupt\") Some(\"asm_sysvec\")",
            "Some(\"run_queues\") Some(\"hrtimer_interrupt\")",
            "Some(\"tick_program_event\") Some(\"asm_sysvec\")",
        ]
    );
}

#[test]
fn a_cut_command_is_that_of_the_switches() {
    let mut reader = reader(
        "cyclicte-192     0d..2.   489.484241: sched_switch: prev_comm=cyclictest prev_pid=192 prev_prio=9 prev_state=S ==> next_comm=sh next_pid=7 next_prio=120\n\
         cyclicte-192     0.....   489.484242: function: f <-- g\nsh-7     0.....   489.484243: function: f <-- g\n",
    );
    let mut commands = Vec::new();
    while let Some(event) = reader.next().expect("it is a trace") {
        commands.push(event.command.map(|name| reader.names().text(name).to_owned()));
    }
    assert_eq!(commands[1..], [Some("cyclictest".to_owned()), Some("sh".to_owned())]);
}

#[test]
fn the_head_of_a_latency_trace_is_in_its_facts() {
    let text = "\
> # tracer: preemptirqsoff
> #
> # preemptirqsoff latency trace v1.1.5 on 5.15.148-21853-g165fd2387469-dirty
> # latency: 7813 us, #60/60, CPU#1 | (M:preempt VP:0, KP:0, SP:0 HP:0 #P:2)
> #    | task: init-1 (uid:0 nice:0 policy:1 rt_prio:7)
> #  => started at: rwsem_optimistic_spin+0x20/0x194
> #  => ended at:   rwsem_spin
>     <...>-1         128...1.    0us!: rwsem_optimistic_spin+0x20/0x194 <-rwsem_optimistic_spin+0x20/0x194
>     <...>-1         128.N.1. 7824us : <stack trace>
>   => rwsem_optimistic_spin+0x140/0x194
>   => copy_process+0xd08/0x1b8a
";
    let plain: String = text.lines().map(|line| format!("{}\n", &line[2..])).collect();
    for text in [text.to_owned(), plain, text.replace("> # ", "> ")] {
        let mut reader = reader(&text);
        let found = some(&mut reader, 9);
        let facts = reader.info().facts.clone();
        let task = facts.task.expect("it names a task");
        assert_eq!((task.command.as_str(), task.pid, task.rt_priority), ("init", 1, 7));
        assert_eq!((facts.latency_ns, facts.cpu.map(|cpu| cpu.0)), (Some(7_813_000), Some(1)));
        assert_eq!(facts.started_at.as_deref(), Some("rwsem_optimistic_spin"));
        assert_eq!(facts.ended_at.as_deref(), Some("rwsem_spin"));
        assert_eq!(facts.preemption.as_deref(), Some("preempt"));
        assert_eq!(
            (found.len(), reader.info().kernel.as_deref()),
            (2, Some("5.15.148-21853-g165fd2387469-dirty"))
        );
        assert!(found[1].starts_with("7824 128 Some(1) Stack"), "{found:?}");
        reader.seek(None, Selection::Wakeups).expect("it can be read again");
        assert_eq!(reader.info().facts.latency_ns, Some(7_813_000), "facts survive");
    }
}

#[test]
fn the_markers_of_a_stop_are_events_in_every_selection() {
    let mut reader = reader(
        "      timerlat/6-852     [006] ....  2932.676624: timerlat_main: stop tracing hit on cpu 6\n\
         \x20     timerlat/6-852     [006] ....  2932.676625: irq_noise: local_timer:236 start 2932.676615639 duration 2391 ns\n",
    );
    reader.seek(None, Selection::Wakeups).expect("it is memory");
    let found = some(&mut reader, 9);
    assert!(found[0].ends_with(r#"Print { text: "stop tracing hit on cpu 6" }"#), "{found:?}");
    assert!(found[1].contains("Noise"), "{found:?}");
}

#[test]
fn an_analysis_of_rtla_is_a_trace_without_events() {
    let mut reader = reader(
        "                                     Timer Latency\n  0 00:00:01   |          IRQ Timer Latency (us)\n\
         rtla timerlat hit stop tracing\n## CPU 0 hit stop tracing, analyzing it ##\n\
         \x20 IRQ handler delay:                                         0.00 us (0.00 %)\n\
         \x20 IRQ latency:                                            2979.35 us\n  Blocking thread:\n\
         \x20                      swapper/0:189      \n    Blocking thread stack trace\n\
         \x20               -> timerlat_irq\n                -> stall_pci_readback\n----------------\n\
         \x20    IRQ latency:                                         2979.35 us (100%)\n\n\
         Max timerlat IRQ latency from idle: 9.20 us in cpu 0\n  Saving trace to timerlat_trace.txt\n",
    );
    assert_eq!(some(&mut reader, 9), [] as [String; 0]);
    let analysis = &reader.info().facts.analyses[0];
    assert_eq!((analysis.cpu.0, analysis.latency_ns, analysis.of_thread), (0, 2_979_350, false));
    let blocking = analysis.parts.last().expect("it has parts");
    assert_eq!(blocking.what, AnalysisKind::BlockingThread(Some(("swapper/0".to_owned(), 189))));
    assert_eq!(blocking.stack, ["timerlat_irq", "stall_pci_readback"]);
    reader.seek(None, Selection::Wakeups).expect("it is memory");
    assert_eq!((some(&mut reader, 9).len(), reader.info().facts.analyses.len()), (0, 1));
}
