//! Events that are assembled to segments, and what the segments explain.

use std::collections::BTreeSet;
use whylate_core::figure::PRIORITY_TOP;
use whylate_core::recording::{Activity, Segment, Thread};
use whylate_core::result::CauseKind;
use whylate_core::{CpuId, CpuSet};
use whylate_explain::segments::{Surroundings, Window, decompose};
use whylate_trace::event::{Context, Event, EventKind, Frames, Names, Symbol, Task, TaskState, Vector};
use whylate_trace::parse::ParseError;
use whylate_trace::reader::{Reader, Selection, TraceInfo};
use whylate_trace::segments::{Assembler, OwnThreads};

const OWN: u32 = 42;
const PROCESS: u32 = 40;
const CPU: CpuId = CpuId(1);

/// Assembles events of CPU 1, of which nothing is missing.
struct Bench {
    assembler: Assembler,
    own: OwnThreads,
    reader: OneStack,
}

/// Names and one stack.
struct OneStack {
    info: TraceInfo,
    names: Names,
    frames: Vec<Symbol>,
}

impl Reader for OneStack {
    fn info(&self) -> &TraceInfo {
        &self.info
    }
    fn names(&self) -> &Names {
        &self.names
    }
    fn seek(&mut self, _: Option<u64>, _: Selection) -> Result<(), ParseError> {
        Ok(())
    }
    fn next(&mut self) -> Result<Option<Event>, ParseError> {
        Ok(None)
    }
    fn symbol(&self, _: Symbol) -> Option<(&str, u64)> {
        None
    }
    fn frames(&self, _: Frames) -> &[Symbol] {
        &self.frames
    }
}

impl Bench {
    fn new(own: OwnThreads) -> Self {
        Self {
            assembler: Assembler::new([CPU].into_iter(), 0),
            own,
            reader: OneStack { info: TraceInfo::default(), names: Names::default(), frames: Vec::new() },
        }
    }

    fn task(&mut self, pid: u32, priority: i32, command: &str) -> Task {
        Task { pid, priority: PRIORITY_TOP - priority, command: self.reader.names.intern(command) }
    }

    fn event(&mut self, at_ns: u64, hard_irq: bool, kind: EventKind) {
        let context = Context { hard_irq, ..Context::default() };
        let (pid, command) = (Some(7), Some(self.reader.names.intern("hog")));
        let event = Event { at_ns, cpu: CPU, pid, command, context, offset: 0, kind };
        self.assembler.take(&event, &self.reader, &self.own, &|address| format!("function_{address}"));
    }

    /// A timer that is due at 10,000 ns and comes then; its thread is woken at 11,000 and runs at 60,000, after the `hog`.
    fn late_wakeup(&mut self, hog_priority: i32) {
        let (hog, own) = (self.task(7, hog_priority, "hog"), self.task(OWN, 80, "whylate"));
        let function = Symbol::Address(1);
        self.event(900, false, EventKind::TimerStart { timer: 3, function, expires_ns: 10_000 });
        let (previous, next, state) = (own, hog, TaskState::Blocked('S'));
        self.event(1_000, false, EventKind::Switch { previous, state, next });
        self.event(10_500, true, EventKind::VectorEntry { vector: Vector::LocalTimer });
        self.event(10_700, true, EventKind::TimerExpire { timer: 3, function, now_ns: 10_600 });
        self.event(11_000, true, EventKind::Waking { task: own, target_cpu: CPU });
        self.event(11_100, true, EventKind::TimerExpireExit { timer: 3 });
        self.event(11_500, true, EventKind::VectorExit { vector: Vector::LocalTimer });
        let state = TaskState::Runnable;
        self.event(60_000, false, EventKind::Switch { previous: hog, state, next: own });
    }

    fn since(&self, from_ns: u64) -> Vec<Segment> {
        self.assembler.since(CPU, from_ns).segments
    }
}

fn numbered() -> OwnThreads {
    OwnThreads::Numbered([(OWN, PROCESS)].into())
}

#[test]
fn events_become_what_the_programs_record() {
    let mut bench = Bench::new(numbered());
    bench.late_wakeup(90);
    let thread = |pid, priority, command: &str| Thread { pid, priority, command: command.to_owned() };
    let segment = |from_ns, to_ns, what| Segment { from_ns, to_ns, what };
    let expected = [
        segment(10_000, 11_000, Activity::Timer { pid: OWN, process: PROCESS, stack: Vec::new() }),
        segment(10_500, 11_500, Activity::Vector { vector: 0xec }),
        segment(
            11_000,
            60_000,
            Activity::Wakeup {
                pid: OWN,
                process: PROCESS,
                previous: thread(7, 90, "hog"),
                stack: Vec::new(),
            },
        ),
        segment(
            1_000,
            60_000,
            Activity::Thread {
                thread: thread(7, 90, "hog"),
                process: 7,
                was_runnable: true,
                next_priority: 80,
            },
        ),
    ];
    assert_eq!(bench.since(10_000), expected);
    assert_eq!(bench.since(20_000), expected[2..]);
}

#[test]
fn the_explainer_names_who_had_the_cpu() {
    let cause = |hog_priority| {
        let mut bench = Bench::new(numbered());
        bench.late_wakeup(hog_priority);
        let window = Window {
            cpu: CPU,
            from_ns: 10_000,
            to_ns: 61_000,
            is_timer: true,
            is_probe: true,
            process: PROCESS,
            thread: None,
            priority: 80,
        };
        decompose(&window, &bench.assembler.since(CPU, 10_000), &Surroundings::default()).remove(0)
    };
    let greater = cause(90);
    assert_eq!((greater.kind, greater.actor.as_deref()), (CauseKind::Thread, Some("hog")));
    let lesser = cause(-21);
    assert_eq!((lesser.kind, lesser.actor.as_deref()), (CauseKind::PreemptOff, Some("hog")));
}

#[test]
fn a_timer_that_is_late_has_the_stack_of_its_interrupt() {
    let stack_of = |late_ns: u64| {
        let mut bench = Bench::new(numbered());
        bench.reader.frames = [1, 2].map(Symbol::Address).to_vec();
        bench.assembler.keep_stacks(&[(CPU, late_ns)]);
        let own = bench.task(OWN, 80, "whylate");
        let function = Symbol::Address(1);
        bench.event(900, false, EventKind::TimerStart { timer: 3, function, expires_ns: 10_000 });
        bench.event(40_000, true, EventKind::TimerExpire { timer: 3, function, now_ns: 40_000 });
        bench.event(40_100, true, EventKind::Stack { frames: Frames(0) });
        bench.event(41_000, true, EventKind::Waking { task: own, target_cpu: CPU });
        // The next timer has none.
        bench.event(42_000, true, EventKind::TimerStart { timer: 3, function, expires_ns: 50_000 });
        bench.event(90_000, true, EventKind::TimerExpire { timer: 3, function, now_ns: 90_000 });
        bench.event(91_000, true, EventKind::Waking { task: own, target_cpu: CPU });
        let stack = |segment: Segment| match segment.what {
            Activity::Timer { stack, .. } => stack.len(),
            other => panic!("{other:?}"),
        };
        bench.since(0).into_iter().map(stack).collect::<Vec<usize>>()
    };
    assert_eq!(stack_of(31_000), [2, 0]);
    assert_eq!(stack_of(31_001), [0, 0], "not late enough");
    assert_eq!(stack_of(0), [0, 0], "never");
}

#[test]
fn in_a_container_the_measured_threads_are_known_by_name_and_cpu() {
    let named = |cpus: &str| {
        let mut own = OwnThreads::Named { command: "whylate".to_owned(), processes: Vec::new() };
        let cpus: CpuSet = cpus.parse().unwrap();
        own.add(&[(cpus, 9)], |_| BTreeSet::new());
        let mut bench = Bench::new(own);
        bench.late_wakeup(90);
        bench.since(0)
    };
    let of_process = |segments: &[Segment], number: u32| {
        let own = |segment: &&Segment| matches!(segment.what, Activity::Timer { process, .. } | Activity::Wakeup { process, .. } | Activity::Thread { process, .. } if process == number);
        segments.iter().filter(own).count()
    };
    let segments = named("1");
    assert_eq!((of_process(&segments, 9), of_process(&segments, u32::MAX)), (3, 1));
    assert_eq!(of_process(&named("0"), 9), 0, "a program of that name on another CPU is not measured");
}

#[test]
fn where_events_were_lost_the_recording_begins_anew() {
    let mut bench = Bench::new(numbered());
    bench.event(1_000, true, EventKind::IrqEntry { irq: 9, name: Default::default() });
    bench.event(50_000, false, EventKind::Lost { events: Some(3) });
    bench.event(51_000, true, EventKind::IrqExit { irq: 9 });
    assert_eq!(bench.since(0), [], "the handler may have ended meanwhile");
    let recording = bench.assembler.since(CPU, 0);
    assert_eq!(recording.complete_from_ns, 50_000);
    assert_eq!((recording.within(40_000, 60_000).lost, recording.within(50_000, 60_000).lost), (1, 0));
}

#[test]
fn each_kind_of_event_has_its_segment() {
    let mut bench = Bench::new(numbered());
    let at = |step: u64| 1_000 * step;
    let function = Symbol::Address(5);
    let name = bench.reader.names.intern("thermal_apic");
    let lock = 0xabc;
    let mover = bench.task(OWN, 80, "whylate");
    let kinds = [
        EventKind::IrqEntry { irq: 9, name },
        EventKind::IrqExit { irq: 9 },
        EventKind::SoftirqEntry { vector: 3 },
        EventKind::SoftirqExit { vector: 3 },
        EventKind::VectorEntry { vector: Vector::Other(name) },
        EventKind::VectorExit { vector: Vector::Other(name) },
        EventKind::RemoteFunctionEntry { function },
        EventKind::RemoteFunctionExit { function },
        EventKind::Idle { state: Some(2) },
        EventKind::Idle { state: None },
        EventKind::LockWait { lock, flags: 32 },
        EventKind::LockWaitEnd { lock },
        EventKind::Nmi { handler: function, duration_ns: 400 },
        EventKind::Migrate { task: mover, from_cpu: CPU, to_cpu: CpuId(0) },
        // A segment of a thread that is not measured.
        EventKind::PageFault { address: 4_096, instruction: 0, user: true },
    ];
    for (step, kind) in kinds.into_iter().enumerate() {
        bench.event(at(step as u64 + 1), true, kind);
    }
    let whole = |first: u64, what: Activity| Segment { from_ns: at(first), to_ns: at(first + 1), what };
    let name = || "function_5".to_owned();
    let expected = [
        whole(1, Activity::Irq { line: 9 }),
        whole(3, Activity::Softirq { number: 3 }),
        whole(5, Activity::Vector { vector: 0xfa }),
        whole(7, Activity::Function { function: name(), sender: None }),
        whole(9, Activity::Idle { state: 2 }),
        whole(11, Activity::Lock { pid: 7, process: 7, flags: 32 }),
        Segment { from_ns: at(13) - 400, to_ns: at(13), what: Activity::Nmi { handler: name() } },
        Segment {
            from_ns: at(14),
            to_ns: at(14),
            what: Activity::Migration { pid: OWN, process: PROCESS, to: CpuId(0) },
        },
    ];
    assert_eq!(bench.since(0), expected);
}
