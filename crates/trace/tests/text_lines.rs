//! Lines as kernels from 4.19 to 6.18 and trace-cmd print them, each with its expected event.

mod render;

use whylate_testing::says;
use whylate_trace::event::{Event, EventKind};
use whylate_trace::parse::{Source, TextReader};
use whylate_trace::reader::Reader;

fn reader(text: &str) -> TextReader {
    let source = Source::memory("trace", text.as_bytes()).expect("memory can be read");
    TextReader::new(source).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn all(reader: &mut TextReader) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = reader.next().expect("the text is a trace") {
        events.push(event);
    }
    events
}

/// The event of a text.
fn body(text: &str) -> String {
    let mut reader = reader(&format!("            bash-7       [001] d..1.     5.000001: {text}\n"));
    let events = all(&mut reader);
    assert_eq!(events.len(), 1, "{text}");
    assert_eq!((events[0].at_ns, events[0].cpu.0, events[0].pid), (5_000_001_000, 1, Some(7)));
    render::kind(&events[0].kind, &reader)
}

/// Text of an event, and the expected event.
const BODIES: &[(&str, &str)] = &[
    // Commands can contain what looks like fields.
    (
        "sched_switch: prev_comm=a prev_pid=1 prev_pid=7 prev_prio=-1 prev_state=R+ ==> next_comm=x ==> y next_pid=9 next_prio=0",
        r#"Switch { previous: Task { pid: 7, command: "a prev_pid=1", priority: -1 }, state: Runnable, next: Task { pid: 9, command: "x ==> y", priority: 0 } }"#,
    ),
    (
        "sched_switch:         a [b] c:7 [120] D|K ==> swapper/1:0 [120]",
        r#"Switch { previous: Task { pid: 7, command: "a [b] c", priority: 120 }, state: Blocked('D'), next: Task { pid: 0, command: "swapper/1", priority: 120 } }"#,
    ),
    (
        "sched_wakeup: comm=a pid=1 pid=2 prio=120 success=1 target_cpu=003",
        r#"Wakeup { task: Task { pid: 2, command: "a pid=1", priority: 120 }, target_cpu: CpuId(3) }"#,
    ),
    (
        "sched_wakeup_new: comm=a pid=2 prio=120 target_cpu=003",
        r#"Wakeup { task: Task { pid: 2, command: "a", priority: 120 }, target_cpu: CpuId(3) }"#,
    ),
    (
        "sched_waking: a:2 [9] success=1 CPU:003",
        r#"Waking { task: Task { pid: 2, command: "a", priority: 9 }, target_cpu: CpuId(3) }"#,
    ),
    (
        "sched_migrate_task: comm=a pid=2 prio=9 orig_cpu=1 dest_cpu=0",
        r#"Migrate { task: Task { pid: 2, command: "a", priority: 9 }, from_cpu: CpuId(1), to_cpu: CpuId(0) }"#,
    ),
    (
        "sched_pi_setprio: comm=a pid=2 oldprio=120 newprio=9",
        r#"PriorityInherited { task: Task { pid: 2, command: "a", priority: 120 }, new_priority: 9 }"#,
    ),
    (
        "hrtimer_start: hrtimer=00000000a1b2c3d4 function=hrtimer_wakeup expires=12 softexpires=11 mode=ABS|PINNED was_armed=1",
        r#"TimerStart { timer: 2712847316, function: "hrtimer_wakeup", expires_ns: 12 }"#,
    ),
    (
        "hrtimer_start: hrtimer=(____ptrval____) function=f expires=12",
        r#"Other { system: Some("timer"), name: "hrtimer_start" }"#,
    ),
    (
        "hrtimer_expire_entry: hrtimer=0xff function=f/0x0 now=5",
        r#"TimerExpire { timer: 255, function: "f", now_ns: 5 }"#,
    ),
    (
        "irq_handler_entry: irq=16 name=snd hda intel:card0",
        r#"IrqEntry { irq: 16, name: "snd hda intel:card0" }"#,
    ),
    ("irq_handler_exit: irq=16 ret=handled", "IrqExit { irq: 16 }"),
    ("softirq_raise: vec=9 [action=RCU]", "SoftirqRaise { vector: 9 }"),
    ("thermal_apic_entry: vector=250", r#"VectorEntry { vector: Other("thermal_apic") }"#),
    ("call_function_single_exit: vector=251", "VectorExit { vector: CallFunctionSingle }"),
    ("ipi_entry: (Rescheduling interrupts)", "VectorEntry { vector: Reschedule }"),
    (
        "ipi_raise: target_mask=00000000,00000002 (Function call interrupts)",
        "IpiSend { target_cpu: None, call_site: None, callback: None }",
    ),
    (
        "ipi_send_cpu: cpu=1 callsite=on_each_cpu_cond_mask+0x20/0x60 callback=0x0",
        r#"IpiSend { target_cpu: Some(CpuId(1)), call_site: Some("on_each_cpu_cond_mask"), callback: None }"#,
    ),
    (
        "ipi_send_cpumask: cpumask=0,2-3 callsite=a+0x1/0x2 callback=b+0x0/0x1",
        r#"IpiSend { target_cpu: None, call_site: Some("a"), callback: Some("b") }"#,
    ),
    (
        "csd_function_entry: func=do_flush_tlb_all, csd=00000000abc",
        r#"RemoteFunctionEntry { function: "do_flush_tlb_all" }"#,
    ),
    (
        "csd_function_entry: func=do_flush_tlb_all csd=0000000000000000",
        r#"Other { system: Some("csd"), name: "csd_function_entry" }"#,
    ),
    (
        "nmi_handler: perf_event_nmi_handler() delta_ns: 2358 handled: 1",
        r#"Nmi { handler: "perf_event_nmi_handler", duration_ns: 2358 }"#,
    ),
    ("irq_disable: caller=a+0x1/0x2 parent=b+0x1/0x2", r#"IrqsOff { caller: "a", parent: "b" }"#),
    (
        "preempt_enable: caller=a+0x1/0x2 [m] parent=0xffffffff81000001",
        r#"PreemptOn { caller: "a", parent: Address(18446744071578845185) }"#,
    ),
    (
        "page_fault_user: address=0x7f00 ip=0x5500 error_code=0x6",
        "PageFault { address: 32512, instruction: 21760, user: true }",
    ),
    ("sys_enter: NR 230 (1, 0, 7ffc, 0, 0, 0)", "SyscallEnter { number: Some(230), name: None }"),
    ("sys_exit: NR -1 = -512", "SyscallExit { number: None, name: None }"),
    ("sys_nanosleep(rqtp: 7ffe, rmtp: 0)", r#"SyscallEnter { number: None, name: Some("nanosleep") }"#),
    ("sys_nanosleep -> 0x0", r#"SyscallExit { number: None, name: Some("nanosleep") }"#),
    ("sys_enter_openat: dfd: 0xffffff9c", r#"SyscallEnter { number: None, name: Some("openat") }"#),
    ("cpu_idle: state=1 cpu_id=0", "Idle { state: Some(1) }"),
    ("cpu_idle: state=4294967295 cpu_id=0", "Idle { state: None }"),
    ("contention_begin: 0xff00 (flags=SPIN|WRITE)", "LockWait { lock: 65280, flags: 5 }"),
    ("contention_begin: 0xff00 (flags=0x40)", "LockWait { lock: 65280, flags: 64 }"),
    ("contention_end: 0xff00 (ret=0)", "LockWaitEnd { lock: 65280 }"),
    (
        "schedule <-preempt_schedule_irq",
        r#"Function { function: "schedule", caller: "preempt_schedule_irq" }"#,
    ),
    (
        "schedule+0x0/0x90 <-a.isra.0+0x7/0x20 [module]",
        r#"Function { function: "schedule", caller: "a.isra.0" }"#,
    ),
    ("vfs_read(file=0xff, count=4) <-ksys_read", r#"Function { function: "vfs_read", caller: "ksys_read" }"#),
    (
        "function:             schedule <-- worker_thread",
        r#"Function { function: "schedule", caller: "worker_thread" }"#,
    ),
    (
        "tracing_mark_write: hit latency threshold (3533 > 2000)",
        r#"Print { text: "hit latency threshold (3533 > 2000)" }"#,
    ),
    ("print: tracing_mark_write: a: b <- c", r#"Print { text: "a: b <- c" }"#),
    (
        "#1     inner/outer(us):    3/4     ts:1.000000002",
        "Hwlat { sequence: 1, inner_ns: 3000, outer_ns: 4000, count: None, nmi_ns: None, nmi_count: None, \
         wall_ns: Some(1000000002) }",
    ),
    (
        "#1     inner/outer(us):    3/4     ts:1.000000002 count:5 nmi-total:6 nmi-count:7",
        "Hwlat { sequence: 1, inner_ns: 3000, outer_ns: 4000, count: Some(5), nmi_ns: Some(6000), nmi_count: Some(7), \
         wall_ns: Some(1000000002) }",
    ),
    (
        "#7     context user-ret timer_latency      1042 ns",
        "Timerlat { sequence: 7, context: User, latency_ns: 1042 }",
    ),
    (
        "    1000000       1043  99.89570         45      1      2      3      4      5",
        "Osnoise(OsnoiseSample { runtime_ns: 1000000000, noise_ns: 1043000, noise_max_ns: 45000, counts: [1, 2, 3, 4, 5] })",
    ),
    (
        "nmi_noise: start 1.000000002 duration 3 ns",
        "Noise { source: Nmi, start_ns: 1000000002, duration_ns: 3 }",
    ),
    (
        "softirq_noise:    TIMER:1 start 1.000000002 duration 3 ns",
        "Noise { source: Softirq { vector: 1 }, start_ns: 1000000002, duration_ns: 3 }",
    ),
    (
        "thread_noise: a start 1.5 b:7 start 1.000000002 duration 3 ns",
        r#"Noise { source: Thread { pid: 7, command: "a start 1.5 b" }, start_ns: 1000000002, duration_ns: 3 }"#,
    ),
    (
        "sample_threshold: start 1.000000002 duration 3 ns interference 4",
        "NoiseGap { start_ns: 1000000002, duration_ns: 3, interference: 4 }",
    ),
    // An unknown event keeps its name.
    (
        "sched_switch: prev_comm=cyclictest prev_pid=390094 ...",
        r#"Other { system: Some("sched"), name: "sched_switch" }"#,
    ),
    ("my_event: anything", r#"Other { system: None, name: "my_event" }"#),
];

#[test]
fn bodies() {
    for (text, expected) in BODIES {
        assert_eq!(body(text), *expected, "{text}");
    }
}

/// The flags of a line below a head.
fn context(head: &str, flags: &str) -> String {
    let mut reader =
        reader(&format!("{head}            bash-7       [001] {flags}     5.000001: schedule <-main\n"));
    render::event(&all(&mut reader)[0], &reader).split(' ').nth(4).expect("it has flags").to_owned()
}

#[test]
fn flags_of_kernels() {
    const V4: &str = "# tracer: nop\n#  _-----=> irqs-off\n# / _----=> need-resched\n#| / _---=> hardirq/softirq\n#|| / _--=> preempt-depth\n";
    assert_eq!(context(V4, "dNs3"), "dns/3/-");
    assert_eq!(context("", "dNs3"), "dns/3/-");
    assert_eq!(context(V4, "Xn.."), "n/0/-");
    // 6.12 and later: lazy preemption shares the column.
    assert_eq!(context("", "DLh12"), "dlh/1/2");
    assert_eq!(context("", "bBHa."), "nlhs/10/0");
    assert_eq!(context("", "..Z.."), "hz/0/0");
    // RT kernels.
    assert_eq!(context("", "dn.h2.1"), "dnh/2/1");
    assert_eq!(context("", "d.Lh2.1"), "dlh/2/1");
    assert_eq!(context("", "d.L.2.1"), "dl/2/1");
    // A head with a column that this version does not know, at another place.
    let head = "# tracer: nop\n#  _---=> irqs-off\n# / _--=> new-thing\n#|/ _-=> preempt-depth\n";
    assert_eq!(context(head, "d53"), "d/3/-");
}

#[test]
fn losses_come_before_the_next_event() {
    let mut reader = reader(
        "CPU:1 [LOST 12 EVENTS]\n            bash-7       [001] d..1.     5.000001: schedule <-main\n\
         CPU:0 [EVENTS DROPPED]\n##### CPU 2 buffer started ####\n\
         \x20           bash-7       [001] d..1.     6.000001: schedule <-main\nCPU:1 [LOST 3 EVENTS]\n",
    );
    let events = all(&mut reader);
    let found: Vec<(u64, u32, Option<Option<u64>>)> = events
        .iter()
        .map(|event| {
            let lost = if let EventKind::Lost { events } = event.kind { Some(events) } else { None };
            (event.at_ns / 1_000_000_000, event.cpu.0, lost)
        })
        .collect();
    let expected = vec![
        (5, 1, Some(Some(12))),
        (5, 1, None),
        (6, 0, Some(None)),
        (6, 2, Some(None)),
        (6, 1, None),
        (6, 1, Some(Some(3))),
    ];
    assert_eq!(found, expected);
    let mut lost: Vec<(u32, u64)> = reader.info().lost.iter().map(|(cpu, lost)| (cpu.0, *lost)).collect();
    lost.sort_unstable();
    assert_eq!(lost, [(0, 1), (1, 15)]);
}

#[test]
fn a_line_that_is_cut_is_left_out_and_reported() {
    let mut reader = reader(
        "            bash-7       [001] d..1.     5.000001: hrtimer_cancel: hrtimer=0xff\nwhat is this\n\
         \x20           bash-7       [001] d..1.     6.000001: hrtimer_start: hrtimer=0xff function=f expires=12",
    );
    assert_eq!(all(&mut reader).len(), 1);
    let remarks = &reader.info().remarks;
    assert!(says("last-line-at-byte", &remarks[0]), "{remarks:?}");
    assert!(says("skipped-lines-that-are", &remarks[1]), "{remarks:?}");
}

#[test]
fn function_graph_with_time_task_and_events_between() {
    let mut reader = reader(
        "# tracer: function_graph\n#\n#     TIME        CPU  TASK/PID         DURATION                  FUNCTION CALLS\n\
         \x20   37.000010 |   0)    bash-12    |               |  outer() {\n\
         \x20   37.000011 |   0)    bash-12    |   2.000 us    |    leaf();\n\
         \x20   37.000012 |   1)   <idle>-0    |   0.500 us    |  other();\n\
         \x20   37.000014 |   0)    bash-12    |               |    /* sched_waking: comm=a pid=2 prio=9 target_cpu=000 */\n\
         \x20   37.000015 |   0)    bash-12    |               |    /* a marker */\n\
         \x20   37.000020 |   0)    bash-12    | + 10.000 us   |  } /* outer */\n",
    );
    let events = all(&mut reader);
    let found: Vec<String> = events
        .iter()
        .map(|event| format!("{} {} {}", event.at_ns, event.cpu, render::kind(&event.kind, &reader)))
        .collect();
    assert_eq!(
        found,
        [
            r#"37000010000 0 GraphEntry { function: "outer", depth: 0 }"#,
            r#"37000011000 0 GraphEntry { function: "leaf", depth: 1 }"#,
            r#"37000012000 1 GraphEntry { function: "other", depth: 0 }"#,
            r#"37000012500 1 GraphExit { function: "other", depth: 0, duration_ns: 500 }"#,
            r#"37000013000 0 GraphExit { function: "leaf", depth: 1, duration_ns: 2000 }"#,
            r#"37000014000 0 Waking { task: Task { pid: 2, command: "a", priority: 9 }, target_cpu: CpuId(0) }"#,
            r#"37000015000 0 Print { text: "a marker" }"#,
            r#"37000020000 0 GraphExit { function: "outer", depth: 0, duration_ns: 10000 }"#,
        ]
    );
    assert_eq!((events[0].pid, events[2].pid), (Some(12), Some(0)));
    assert_eq!(reader.info().remarks, [] as [String; 0]);
}

#[test]
fn function_graph_without_time_counts_durations() {
    let mut reader = reader(
        "# tracer: function_graph\n# CPU  DURATION                  FUNCTION CALLS\n 0)               |  outer() {\n\
         \x200)   2.000 us    |    leaf();\n ------------------------------------------\n 0)    bash-12     =>   <idle>-0   \n\
         \x20------------------------------------------\n\n 0) + 10.000 us   |  }\n 0)   1.000 us    |  last();\n",
    );
    let events = all(&mut reader);
    let found: Vec<String> = events
        .iter()
        .map(|event| format!("{} {}", event.at_ns, render::kind(&event.kind, &reader)))
        .collect();
    assert_eq!(
        found,
        [
            r#"0 GraphEntry { function: "outer", depth: 0 }"#,
            r#"0 GraphEntry { function: "leaf", depth: 1 }"#,
            r#"2000 GraphExit { function: "leaf", depth: 1, duration_ns: 2000 }"#,
            r#"10000 GraphExit { function: "outer", depth: 0, duration_ns: 10000 }"#,
            r#"10000 GraphEntry { function: "last", depth: 0 }"#,
            r#"11000 GraphExit { function: "last", depth: 0, duration_ns: 1000 }"#,
        ]
    );
    assert_eq!((events[0].pid, events[4].pid), (None, Some(0)));
    assert!(reader.info().remarks[0].contains("funcgraph-abstime"));
}

#[test]
fn addresses_that_are_printed_as_functions_resolve_to_them() {
    let mut reader = reader(
        "            bash-7       [001] d..1.     5.000001: page_fault_kernel: address=0x7f00 ip=copy_user+0x5/0x9 error_code=0x2\n",
    );
    let events = all(&mut reader);
    let EventKind::PageFault { instruction, .. } = events[0].kind else { panic!("{:?}", events[0].kind) };
    let symbol = whylate_trace::event::Symbol::Address(instruction);
    assert_eq!(reader.symbol(symbol), Some(("copy_user", 0)));
}

#[test]
fn raw_counters_and_nanoseconds() {
    let mut counter = reader("            bash-7       [001] d..1.  123456789: schedule <-main\n");
    assert_eq!(all(&mut counter)[0].at_ns, 123_456_789);
    assert!(counter.info().remarks[0].contains("raw counter"));
    let mut report = reader("            bash-7     [001]  5.000000012: schedule <-main\n");
    assert_eq!((all(&mut report)[0].at_ns, report.info().resolution_ns), (5_000_000_012, 1));
}

#[test]
fn what_other_tools_print_of_the_scheduler_is_refused_by_its_name() {
    for (text, name) in [
        ("  Task   |   Runtime ms  | Switches | Avg delay ms    | Max delay ms    |\n", "perf sched latency"),
        ("  *A0           677979.376013 secs A0 => worker:15\n", "perf sched map"),
        ("Tracing run queue latency higher than 10000 us\nTIME COMM TID LAT(us)\n", "BPF tool"),
        ("     usecs               : count     distribution\n  0 -> 1 : 233 |***  |\n", "BPF tool"),
        ("@usecs:\n[512, 1K)   214 |@@@@@@@@@@@@@@@@@@@|\n", "BPF tool"),
        ("something else\n", "without a single trace line"),
    ] {
        let error = TextReader::new(Source::memory("text", text.as_bytes().to_vec()).unwrap()).err().unwrap();
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn the_time_of_the_kernels_log_is_none_of_a_command() {
    for before in ["[   12.345678] ", "> [12345.345678] ", "Nov  3 10:11:12 host kernel: [   12.345678] "] {
        let line = format!("{before}  worker-7       1d..2. 412us : sched_migrate_task: x\n");
        let mut reader = TextReader::new(Source::memory("text", line.into_bytes()).unwrap()).unwrap();
        let event = reader.next().unwrap().unwrap();
        assert_eq!((reader.names().text(event.command.unwrap()), event.pid), ("worker", Some(7)), "{before}");
    }
}
