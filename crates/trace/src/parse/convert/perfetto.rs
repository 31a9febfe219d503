//! Perfetto's protobuf traces: the ftrace events in them. Packets of other kinds (counters, processes, programs' own trace
//! events) are skipped.
//!
//! A packet has the events of one CPU for some time, in order; packets of different CPUs come in any order. So the places of
//! all of them are collected first, and then the CPUs are merged.

use super::ConvertError;
use super::protobuf::{Fields, list, varint};
use crate::parse::input::Input;
use crate::parse::{ParseError, Source};
use crate::reader::CPUS_MAX;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fmt::Write as _;
use std::io::{Read, Write};

/// Fields of a trace and of its packets.
const PACKET_TAG: u8 = 0x0a;
const FTRACE_EVENTS: u64 = 1;
const COMPRESSED_PACKETS: u64 = 50;
/// A packet is at most this long.
const PACKET_BYTES_MAX: u64 = 64 << 20;
/// Compressed packets are at most this long when they are unpacked.
const UNPACKED_BYTES_MAX: u64 = 64 << 20;
/// Places of events, and bytes of the lines that wait for those of other CPUs.
const BUNDLES_MAX: usize = 4 << 20;
const WAITING_BYTES_MAX: usize = 128 << 20;

/// The events that are understood: number of the field, name, fields in the order of their numbers.
const EVENTS: &[(u64, &str, &[&str])] = &[
    (
        4,
        "sched_switch",
        &["prev_comm", "prev_pid", "prev_prio", "prev_state", "next_comm", "next_pid", "next_prio"],
    ),
    (13, "cpu_idle", &["state", "cpu_id"]),
    (17, "sched_wakeup", &["comm", "pid", "prio", "success", "target_cpu"]),
    (20, "sched_waking", &["comm", "pid", "prio", "success", "target_cpu"]),
    (24, "softirq_entry", &["vec"]),
    (25, "softirq_exit", &["vec"]),
    (26, "softirq_raise", &["vec"]),
    (36, "irq_handler_entry", &["irq", "name"]),
    (37, "irq_handler_exit", &["irq", "ret"]),
    (114, "sched_wakeup_new", &["comm", "pid", "prio", "success", "target_cpu"]),
    (353, "sched_pi_setprio", &["comm", "newprio", "oldprio", "pid"]),
];
const PRINT: u64 = 3;
const IPI_ENTRY: u64 = 21;
const IPI_EXIT: u64 = 22;
const GENERIC: u64 = 327;

/// Whether the bytes are those of packets.
pub(super) fn is(head: &[u8]) -> bool {
    let mut rest = head;
    let mut whole = 0;
    while let Some((tag, after)) = rest.split_first() {
        let Some((length, body)) = varint(after).filter(|_| *tag == PACKET_TAG) else { return false };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > body.len() {
            // The last one checked is cut: its own first field must be plausible.
            return body.is_empty() || whole > 0 || matches!(body[0] & 7, 0 | 2);
        }
        whole += 1;
        rest = &body[length..];
    }
    // A text begins so, when its first line is empty.
    whole > 0 && head.iter().any(|byte| !byte.is_ascii_graphic() && !byte.is_ascii_whitespace())
}

/// Where events of a CPU are.
struct Bundle {
    first_ns: u64,
    offset: u64,
    bytes: u64,
}

/// The line of an event, with its time.
type Line = (u64, String);

/// A bundle is at most this long: the kernel's buffers are read by some pages.
const BUNDLE_BYTES_MAX: u64 = 4 << 20;

/// The memory that a line takes.
fn line_bytes(line: &str) -> usize {
    line.len() + 64
}

/// A CPU whose events are written.
#[derive(Default)]
struct Cpu {
    bundles: VecDeque<Bundle>,
    lines: VecDeque<Line>,
    /// The thread that runs since the last switch of a compact list: thread, priority, command.
    running: Option<(u64, i64, String)>,
}

pub(super) fn convert(source: &Source, output: &mut dyn Write) -> Result<(), ConvertError> {
    let file = Input::file(source.unpacked()?, source.path())?;
    let input = match unpack(&file)? {
        Some(unpacked) => unpacked,
        None => file,
    };
    let mut cpus: BTreeMap<u64, Cpu> = BTreeMap::new();
    let mut bundles = 0;
    each_packet(&input, |packet, offset| {
        for (number, value) in Fields::of(packet) {
            if let (FTRACE_EVENTS, Some(bundle)) = (number, value.bytes()) {
                let offset = offset + (bundle.as_ptr() as usize - packet.as_ptr() as usize) as u64;
                if let (cpu, Some(first_ns)) = begin(bundle) {
                    bundles += 1;
                    if bundles > BUNDLES_MAX || cpu >= CPUS_MAX as u64 {
                        return Err(input.damaged(offset, "too many packets, or an impossible CPU").into());
                    }
                    let place = Bundle { first_ns, offset, bytes: bundle.len() as u64 };
                    cpus.entry(cpu).or_default().bundles.push_back(place);
                }
            }
        }
        Ok(())
    })?;
    if cpus.is_empty() {
        let found = "a Perfetto trace without ftrace events: record it with the data source linux.ftrace and sched events";
        return Err(ParseError::Foreign { path: source.path().to_owned(), found: found.to_owned() }.into());
    }
    for cpu in cpus.values_mut() {
        cpu.bundles.make_contiguous().sort_by_key(|bundle| bundle.first_ns);
    }
    merge(&input, &mut cpus, output)
}

/// Calls `take` with each packet and where it is.
fn each_packet(
    input: &Input,
    mut take: impl FnMut(&[u8], u64) -> Result<(), ConvertError>,
) -> Result<(), ConvertError> {
    let mut offset = 0;
    while offset < input.length() {
        let head = input.bytes(offset, (input.length() - offset).min(11))?;
        let length =
            head.split_first().filter(|(tag, _)| **tag == PACKET_TAG).and_then(|(_, rest)| varint(rest));
        let (length, rest) = length.ok_or_else(|| input.damaged(offset, "a packet is expected here"))?;
        let begin = offset + (head.len() - rest.len()) as u64;
        if length > PACKET_BYTES_MAX {
            return Err(input.damaged(offset, format!("a packet of {length} bytes is too long")).into());
        }
        // A trace that was cut off ends within a packet: what is before it is read.
        let Ok(packet) = input.bytes(begin, length) else { return Ok(()) };
        take(&packet, begin)?;
        offset = begin + length;
    }
    Ok(())
}

/// A copy without compressed packets; `None` if there are none.
fn unpack(input: &Input) -> Result<Option<Input>, ConvertError> {
    let mut output: Option<std::io::BufWriter<std::fs::File>> = None;
    each_packet(input, |packet, offset| {
        let found = Fields::of(packet).find(|(number, _)| *number == COMPRESSED_PACKETS);
        let compressed = found.and_then(|(_, value)| value.bytes());
        if let Some(compressed) = compressed {
            let mut packets = Vec::new();
            let mut unpacked = flate2::read::ZlibDecoder::new(compressed).take(UNPACKED_BYTES_MAX);
            let damaged = |error| input.damaged(offset, format!("compressed packets are damaged ({error})"));
            unpacked.read_to_end(&mut packets).map_err(damaged)?;
            let file = match &mut output {
                Some(file) => file,
                None => output.insert(std::io::BufWriter::new(tempfile::tempfile()?)),
            };
            file.write_all(&packets)?;
        } else if let Some(file) = &mut output {
            copy(file, packet)?;
        }
        Ok(())
    })?;
    let Some(output) = output else { return Ok(None) };
    let file = output.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    Ok(Some(Input::file(file, input.path())?))
}

/// Writes a packet with its length before it.
fn copy(file: &mut impl Write, packet: &[u8]) -> std::io::Result<()> {
    let mut length = packet.len();
    file.write_all(&[PACKET_TAG])?;
    while length > 0x7f {
        file.write_all(&[length as u8 | 0x80])?;
        length >>= 7;
    }
    file.write_all(&[length as u8])?;
    file.write_all(packet)
}

/// The CPU of a bundle, and its first time.
fn begin(bundle: &[u8]) -> (u64, Option<u64>) {
    let (mut cpu, mut first_ns) = (0, None::<u64>);
    let mut earlier = |at_ns: Option<u64>| {
        if let Some(at_ns) = at_ns {
            first_ns = Some(first_ns.map_or(at_ns, |first| first.min(at_ns)));
        }
    };
    for (number, value) in Fields::of(bundle) {
        match (number, value.bytes()) {
            (1, _) => cpu = value.number().unwrap_or(0),
            (2, Some(event)) => earlier(Fields::of(event).find(|it| it.0 == 1).and_then(|it| it.1.number())),
            (4, Some(compact)) => {
                for (number, value) in Fields::of(compact).filter(|it| matches!(it.0, 1 | 7)) {
                    let times = value.bytes().filter(|_| number == 1 || number == 7);
                    earlier(times.and_then(varint).map(|(first, _)| first));
                }
            }
            _ => {}
        }
    }
    (cpu, first_ns)
}

/// Writes the lines of all CPUs in the order of time.
fn merge(input: &Input, cpus: &mut BTreeMap<u64, Cpu>, output: &mut dyn Write) -> Result<(), ConvertError> {
    let mut waiting = BinaryHeap::new();
    let mut bytes = 0;
    let enough = |bytes: usize| match bytes <= WAITING_BYTES_MAX {
        true => Ok(()),
        false => Err(input.damaged(0, "the packets have too many events to fit into memory")),
    };
    for (number, cpu) in cpus.iter_mut() {
        bytes += cpu.fill(input, *number)?;
        enough(bytes)?;
        waiting.extend(cpu.lines.front().map(|(at_ns, _)| Reverse((*at_ns, *number))));
    }
    while let Some(Reverse((_, number))) = waiting.pop() {
        let Some(cpu) = cpus.get_mut(&number) else { continue };
        if let Some((_, line)) = cpu.lines.pop_front() {
            output.write_all(line.as_bytes())?;
            bytes -= line_bytes(&line);
        }
        bytes += cpu.fill(input, number)?;
        enough(bytes)?;
        waiting.extend(cpu.lines.front().map(|(at_ns, _)| Reverse((*at_ns, number))));
    }
    Ok(())
}

impl Cpu {
    /// Reads the next bundle when all lines are written; the memory that its lines take.
    fn fill(&mut self, input: &Input, number: u64) -> Result<usize, ConvertError> {
        let filled = self.lines.is_empty();
        while self.lines.is_empty()
            && let Some(bundle) = self.bundles.pop_front()
        {
            if bundle.bytes > BUNDLE_BYTES_MAX {
                return Err(input.damaged(bundle.offset, "a packet has too many events").into());
            }
            let bytes = input.bytes(bundle.offset, bundle.bytes)?;
            let mut lines = Vec::new();
            for (field, value) in Fields::of(&bytes) {
                match (field, value.bytes()) {
                    (2, Some(event)) => lines.extend(event_line(event, number)),
                    (3, _) if value.number() == Some(1) => {
                        lines.push((bundle.first_ns, format!("CPU:{number} [LOST EVENTS]\n")));
                    }
                    (4, Some(compact)) => self.compact(compact, number, &mut lines),
                    _ => {}
                }
            }
            lines.sort_by_key(|(at_ns, _)| *at_ns);
            self.lines = lines.into();
        }
        Ok(if filled { self.lines.iter().map(|(_, line)| line_bytes(line)).sum() } else { 0 })
    }

    /// Switches and wake-ups as columns: each stores only the differences from the previous one.
    fn compact(&mut self, compact: &[u8], number: u64, lines: &mut Vec<Line>) {
        let mut names = Vec::new();
        let mut columns: [Vec<u64>; 12] = Default::default();
        for (field, value) in Fields::of(compact) {
            match (value.bytes(), columns.get_mut(field as usize)) {
                (Some(name), _) if field == 5 => names.push(String::from_utf8_lossy(name).into_owned()),
                (Some(packed), Some(column)) => column.extend(list(packed)),
                _ => {}
            }
        }
        let name = |index: u64| names.get(index as usize).map_or("<...>", String::as_str);
        let [
            _,
            times,
            states,
            pids,
            priorities,
            _,
            commands,
            waking_times,
            waking_pids,
            cpus,
            waking_priorities,
            waking_commands,
        ] = &columns;
        let mut at_ns = 0u64;
        let rows = times.iter().zip(states).zip(pids).zip(priorities).zip(commands);
        for ((((delta, state), pid), priority), command) in rows {
            at_ns = at_ns.wrapping_add(*delta);
            let (next, priority) = (name(*command), *priority as i64);
            if let Some((old, old_priority, comm)) = &self.running {
                let text = format!(
                    "sched_switch: prev_comm={comm} prev_pid={old} prev_prio={old_priority} prev_state={state} \
                     next_comm={next} next_pid={pid} next_prio={priority}"
                );
                lines.push((at_ns, line(number, *old, at_ns, &text)));
            }
            self.running = Some((*pid, priority, next.to_owned()));
        }
        let mut at_ns = 0u64;
        let rows = waking_times.iter().zip(waking_pids).zip(cpus).zip(waking_priorities).zip(waking_commands);
        for ((((delta, pid), cpu), priority), command) in rows {
            at_ns = at_ns.wrapping_add(*delta);
            let text = format!(
                "sched_waking: comm={} pid={pid} prio={} target_cpu={cpu:03}",
                name(*command),
                *priority as i64
            );
            // The compact form does not name the waker.
            lines.push((at_ns, line(number, u64::from(u32::MAX), at_ns, &text)));
        }
    }
}

/// A line of tracefs; commands are learned from the events.
fn line(cpu: u64, pid: u64, at_ns: u64, text: &str) -> String {
    let (seconds, rest) = (at_ns / 1_000_000_000, at_ns % 1_000_000_000);
    let text = text.replace('\n', " ");
    if pid == u64::from(u32::MAX) {
        return format!(":-1 -1 [{cpu:03}] {seconds}.{rest:09}: {text}\n");
    }
    format!("<...>-{pid} [{cpu:03}] {seconds}.{rest:09}: {text}\n")
}

/// The line of an event; `None` for one that is not understood.
fn event_line(event: &[u8], cpu: u64) -> Option<Line> {
    let (mut at_ns, mut pid, mut text) = (None, 0, None);
    for (number, value) in Fields::of(event) {
        match (number, value.bytes()) {
            (1, _) => at_ns = value.number(),
            (2, _) => pid = value.number()? & u64::from(u32::MAX),
            (_, Some(body)) => text = text.or_else(|| event_text(number, body)),
            _ => {}
        }
    }
    let at_ns = at_ns?;
    Some((at_ns, line(cpu, pid, at_ns, &text?)))
}

/// Name and fields of an event.
fn event_text(number: u64, body: &[u8]) -> Option<String> {
    let field = |wanted: u64| Fields::of(body).find(|(number, _)| *number == wanted).map(|(_, value)| value);
    let text = |wanted: u64| {
        field(wanted)?.bytes().map(|bytes| String::from_utf8_lossy(bytes).trim_end().to_owned())
    };
    let shown = |wanted: u64| match (field(wanted).and_then(|value| value.number()), text(wanted)) {
        (Some(number), _) => (number as i64).to_string(),
        (_, text) => text.unwrap_or_else(|| "0".to_owned()),
    };
    match number {
        PRINT => Some(format!("tracing_mark_write: {}", text(2)?)),
        IPI_ENTRY | IPI_EXIT => {
            let name = if number == IPI_ENTRY { "ipi_entry" } else { "ipi_exit" };
            Some(format!("{name}: ({})", text(1)?))
        }
        GENERIC => generic(body),
        _ => {
            let (_, name, fields) = EVENTS.iter().find(|(known, ..)| *known == number)?;
            let mut line = format!("{name}:");
            let mut order: Vec<usize> = (0..fields.len()).collect();
            // Tasks are command, thread, priorities.
            if number == 353 {
                order = vec![0, 3, 2, 1];
            }
            for index in order {
                let _ = write!(line, " {}={}", fields[index], shown(index as u64 + 1));
            }
            Some(line)
        }
    }
}

/// An event that Perfetto has no message for: its name, and each field with its name.
fn generic(body: &[u8]) -> Option<String> {
    let mut line = String::new();
    for (number, value) in Fields::of(body) {
        let bytes = value.bytes()?;
        if number == 1 {
            line = format!("{}:", String::from_utf8_lossy(bytes));
            continue;
        }
        let (mut name, mut shown) = (String::new(), String::new());
        for (number, value) in Fields::of(bytes) {
            match (number, value.bytes(), value.number()) {
                (1, Some(text), _) => name = String::from_utf8_lossy(text).into_owned(),
                (3, Some(text), _) => shown = String::from_utf8_lossy(text).into_owned(),
                (4, _, Some(number)) => shown = (number as i64).to_string(),
                (5, _, Some(number)) => shown = number.to_string(),
                _ => {}
            }
        }
        // Pointers are addresses in text.
        if matches!(name.as_str(), "hrtimer" | "function" | "lock_addr") {
            shown = shown.parse::<i64>().map_or(shown, |number| format!("{number:#x}"));
        }
        let _ = write!(line, " {name}={shown}");
    }
    Some(line).filter(|line| !line.is_empty())
}
