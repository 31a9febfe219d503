//! Compares a reader's events with the output of `trace-cmd report -R -t` for the same file.
//!
//! A golden file has a line for each record: the flags that `report -R -t -l` printed, then the line of `report -R -t`. A
//! line `...` leaves out records up to the last lines of the file, a last line `total N` gives the number of records.

use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;
use whylate_trace::event::{Event, EventKind, Symbol, Task, TaskState, Vector};
use whylate_trace::internal::{Input, open_trace_dat};
use whylate_trace::parse::BufferReader;
use whylate_trace::reader::Reader;

/// A file of `fixtures/traces`.
pub(crate) fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces").join(name)
}

/// The bytes of a fixture that is packed with Zstandard.
pub(crate) fn unpacked(name: &str) -> Vec<u8> {
    let packed = std::fs::read(fixture(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut bytes = Vec::new();
    structured_zstd::decoding::StreamingDecoder::new(packed.as_slice()).read_to_end(&mut bytes).unwrap();
    bytes
}

/// A reader of a trace.dat among the fixtures.
pub(crate) fn open(name: &str) -> BufferReader {
    open_trace_dat(&Input::open(&fixture(name)).unwrap()).unwrap()
}

/// All events.
pub(crate) fn events(reader: &mut dyn Reader) -> Vec<Event> {
    std::iter::from_fn(|| reader.next().unwrap()).collect()
}

/// A line of the report.
#[derive(Debug)]
struct Line<'a> {
    flags: Option<u8>,
    command: &'a str,
    pid: u32,
    cpu: u32,
    at_ns: u64,
    name: &'a str,
    fields: HashMap<&'a str, &'a str>,
    text: &'a str,
}

/// `0xd   trace-cmd-250   [001]   141.850200167: reschedule_entry:      vector=253`.
fn line(text: &str) -> Option<Line<'_>> {
    let (flags, rest) = text.split_once(' ')?;
    let bracket = rest.find("[0").or_else(|| rest.find("[1"))?;
    let (command, pid) = rest[..bracket].trim().rsplit_once('-')?;
    let (cpu, rest) = rest[bracket + 1..].split_once(']')?;
    let (time, rest) = rest.trim_start().split_once(": ")?;
    let (seconds, nanos) = time.split_once('.')?;
    let (name, rest) = rest.trim_start().split_once(':')?;
    let mut fields = HashMap::new();
    let mut key = "";
    // Values may hold blanks: one ends where the next word with `=` begins.
    let mut begin = 0;
    let mut words: Vec<(usize, &str)> = Vec::new();
    for (at, _) in rest.match_indices('=') {
        let start = rest[..at].rfind(' ').map_or(0, |blank| blank + 1);
        words.push((start, &rest[start..at]));
    }
    for (start, next) in words {
        if !key.is_empty() {
            fields.insert(key, rest[begin..start].trim_end());
        }
        key = next;
        begin = start + next.len() + 1;
    }
    if !key.is_empty() {
        fields.insert(key, rest[begin..].trim_end());
    }
    Some(Line {
        flags: flags.strip_prefix("0x").and_then(|digits| u8::from_str_radix(digits, 16).ok()),
        command,
        pid: pid.parse().ok()?,
        cpu: cpu.parse().ok()?,
        at_ns: seconds.parse::<u64>().ok()? * 1_000_000_000 + nanos.parse::<u64>().ok()?,
        name,
        fields,
        text,
    })
}

/// Compares events with the lines of a golden file; how many were compared.
pub(crate) fn compare(reader: &dyn Reader, events: &[Event], golden: &str) -> usize {
    let events: Vec<&Event> =
        events.iter().filter(|event| !matches!(event.kind, EventKind::Lost { .. })).collect();
    let lines: Vec<&str> = golden.lines().collect();
    let total = lines.last().and_then(|last| last.strip_prefix("total ")).map(|count| count.parse().unwrap());
    assert_eq!(events.len(), total.unwrap_or(lines.len()), "number of records");
    let mut compared = 0;
    let mut next = 0;
    for (index, text) in lines.iter().enumerate() {
        if *text == "..." {
            next = events.len() - (lines.len() - index - 2);
            continue;
        }
        if text.starts_with("total ") {
            continue;
        }
        let line = line(text).unwrap_or_else(|| panic!("no line of a report: {text}"));
        check(reader, events[next], &line);
        compared += 1;
        next += 1;
    }
    assert_eq!(next, events.len());
    compared
}

fn check(reader: &dyn Reader, event: &Event, line: &Line<'_>) {
    let text = line.text;
    assert_eq!((event.at_ns, event.cpu.0), (line.at_ns, line.cpu), "{text}\n{event:?}");
    assert_eq!(event.pid, Some(line.pid), "{text}");
    if let Some(command) = event.command {
        assert_eq!(reader.names().text(command), line.command, "{text}");
    } else {
        assert_eq!(line.command, "<...>", "{text}");
    }
    if let Some(flags) = line.flags {
        let context = event.context;
        let shown = u8::from(context.irqs_off == Some(true))
            | u8::from(context.need_resched) << 2
            | u8::from(context.hard_irq) << 3
            | u8::from(context.softirq) << 4
            | u8::from(context.nmi) << 6;
        assert_eq!(shown, flags & 0x5d, "{text}");
    }
    fields(reader, event, line);
}

/// A number as the report prints it.
fn number(text: &str) -> i64 {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).map(|value| value as i64),
        None => text.parse(),
    }
    .unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn fields(reader: &dyn Reader, event: &Event, line: &Line<'_>) {
    let text = line.text;
    let field = |name: &str| *line.fields.get(name).unwrap_or_else(|| panic!("no {name}: {text}"));
    let value = |name: &str| number(field(name));
    let symbol = |symbol: Symbol, name: &str| check_symbol(reader, symbol, field(name), text);
    let task = |task: Task, prefix: &str| {
        assert_eq!(reader.names().text(task.command), field(&format!("{prefix}comm")), "{text}");
        assert_eq!(i64::from(task.pid), value(&format!("{prefix}pid")), "{text}");
        assert_eq!(i64::from(task.priority), value(&format!("{prefix}prio")), "{text}");
    };
    match event.kind {
        EventKind::Switch { previous, state, next } => {
            task(previous, "prev_");
            task(next, "next_");
            let bits = value("prev_state") & 0xff;
            assert_eq!(state == TaskState::Runnable, bits == 0, "{text}");
        }
        EventKind::Waking { task: woken, target_cpu } | EventKind::Wakeup { task: woken, target_cpu } => {
            task(woken, "");
            assert_eq!(i64::from(target_cpu.0), value("target_cpu"), "{text}");
            assert_eq!(line.name == "sched_waking", matches!(event.kind, EventKind::Waking { .. }), "{text}");
        }
        EventKind::Migrate { task: moved, from_cpu, to_cpu } => {
            task(moved, "");
            assert_eq!(i64::from(from_cpu.0), value("orig_cpu"), "{text}");
            assert_eq!(i64::from(to_cpu.0), value("dest_cpu"), "{text}");
        }
        EventKind::TimerStart { timer, function, expires_ns } => {
            assert_eq!(timer as i64, value("hrtimer"), "{text}");
            assert_eq!(expires_ns as i64, value("expires"), "{text}");
            symbol(function, "function");
        }
        EventKind::TimerExpire { timer, function, now_ns } => {
            assert_eq!((timer as i64, now_ns as i64), (value("hrtimer"), value("now")), "{text}");
            symbol(function, "function");
        }
        EventKind::TimerCancel { timer } | EventKind::TimerExpireExit { timer } => {
            assert_eq!(timer as i64, value("hrtimer"), "{text}");
        }
        EventKind::Print { text: marker } => assert_eq!(reader.names().text(marker), field("buf"), "{text}"),
        EventKind::Other { name, .. } => assert_eq!(reader.names().text(name), line.name, "{text}"),
        _ => interrupt_fields(reader, event, line),
    }
}

/// Fields of interrupts, system calls and functions.
fn interrupt_fields(reader: &dyn Reader, event: &Event, line: &Line<'_>) {
    let text = line.text;
    let field = |name: &str| *line.fields.get(name).unwrap_or_else(|| panic!("no {name}: {text}"));
    let value = |name: &str| number(field(name));
    let symbol = |symbol: Symbol, name: &str| check_symbol(reader, symbol, field(name), text);
    match event.kind {
        EventKind::IrqEntry { irq, name } => {
            assert_eq!(i64::from(irq), value("irq"), "{text}");
            assert_eq!(reader.names().text(name), field("name"), "{text}");
        }
        EventKind::IrqExit { irq } => assert_eq!(i64::from(irq), value("irq"), "{text}"),
        EventKind::SoftirqEntry { vector }
        | EventKind::SoftirqExit { vector }
        | EventKind::SoftirqRaise { vector } => assert_eq!(i64::from(vector), value("vec"), "{text}"),
        EventKind::VectorEntry { vector } | EventKind::VectorExit { vector } => {
            assert_eq!(vector_name(vector), line.name.rsplit_once('_').unwrap().0, "{text}");
        }
        EventKind::Idle { state } => {
            let shown = value("state") as u32;
            assert_eq!(state, Some(shown).filter(|state| *state != u32::MAX), "{text}");
        }
        EventKind::SyscallEnter { number, .. } | EventKind::SyscallExit { number, .. } => {
            assert_eq!(number.map(i64::from), Some(value("id")), "{text}");
        }
        EventKind::Function { function, caller } => {
            symbol(function, "ip");
            symbol(caller, "parent_ip");
        }
        EventKind::GraphEntry { function, depth } | EventKind::GraphExit { function, depth, .. } => {
            symbol(function, "func");
            assert_eq!(i64::from(depth), value("depth"), "{text}");
        }
        _ => {}
    }
}

/// The report prints a function's name where it knows that a field is one.
fn check_symbol(reader: &dyn Reader, symbol: Symbol, shown: &str, text: &str) {
    match (shown.strip_prefix("0x"), symbol) {
        (Some(_), Symbol::Address(address)) => assert_eq!(address as i64, number(shown), "{text}"),
        _ => assert_eq!(reader.symbol(symbol).unwrap().0, shown, "{text}"),
    }
}

fn vector_name(vector: Vector) -> &'static str {
    match vector {
        Vector::LocalTimer => "local_timer",
        Vector::Reschedule => "reschedule",
        Vector::CallFunction => "call_function",
        Vector::CallFunctionSingle => "call_function_single",
        Vector::IrqWork => "irq_work",
        Vector::Other(_) => "other",
    }
}
