//! From lines to events: the style of a line, the state from earlier lines, and events that wait for a later line.
//!
//! In: lines with their offsets. Out: events in a queue. It reads no file.

use super::analysis::Analyser;
use super::body::{Recorded, Rows};
use super::columns::{self, Columns};
use super::graph;
use super::header::{self, Remark};
use super::prefix::{self, Prefixes};
use super::scan;
use super::stack::{self, Pending};
use crate::event::{Event, EventKind, Frames, Name, Symbol};
use crate::parse::texts::Texts;
use crate::reader::{Selection, TraceInfo, lose};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use whylate_core::CpuId;

/// Lines in a row that are not trace lines, after which the file counts as damaged: the text of a marker can have a few.
const STRANGE_LINES_MAX: u64 = 10_000;
/// Places of omitted lines that are kept.
const OMISSIONS_MAX: usize = 4096;
/// Losses whose places are remembered, so that a second reading does not count them again.
const LOSSES_MAX: usize = 1 << 18;
/// Losses that wait for the time of the next event, and ends of functions that wait for their time.
const WAITING_MAX: usize = 1 << 16;

/// A style of lines. To add one: a file that cuts a line into a [`Prefix`](super::prefix::Prefix) and the event after it, or,
/// like [`graph`], takes the line itself; and an entry in [`STYLES`].
struct Style {
    /// Takes a line with its offset; `false` if it is not of this style.
    take: fn(&mut Machine, &[u8], u64) -> bool,
    /// The time in a line; no function if the meaning of a line depends on earlier lines, so that reading cannot begin
    /// anywhere.
    time: Option<Time>,
}

/// Finds the time in a line.
type Time = fn(&mut Machine, &[u8]) -> Option<u64>;

/// All styles. A line is tried as the style of the line before it, then as the others in this order.
const STYLES: [Style; 4] = [
    // `trace`, `trace_pipe`, reports.
    Style {
        take: |machine, line, offset| {
            let prefix = machine.prefixes.usual(line);
            machine.prefixed(prefix, offset)
        },
        time: Some(|machine, line| Some(machine.prefixes.usual(line)?.at_ns)),
    },
    // Latency traces.
    Style {
        take: |machine, line, offset| machine.prefixed(prefix::latency(line), offset),
        time: Some(|_, line| Some(prefix::latency(line)?.at_ns)),
    },
    // Latency traces with the option `verbose`.
    Style {
        take: |machine, line, offset| machine.prefixed(prefix::verbose(line), offset),
        time: Some(|_, line| Some(prefix::verbose(line)?.at_ns)),
    },
    // The function-graph tracer.
    Style { take: Machine::graph, time: None },
];

/// The text after a mark of quotation. A whole quotation may be indented; an indented command may begin with `>`.
fn quoted(line: &[u8]) -> Option<&[u8]> {
    let start = scan::skip_spaces(line);
    let rest = start.strip_prefix(b">")?;
    (start.len() == line.len() || matches!(rest.first(), None | Some(b' ' | b'>'))).then_some(rest)
}

/// A line of a mail without its marks of quotation: `> > `. A line of the kernel's log, to which an oops dumps the trace, without
/// its time: `[   12.345678] `. No line of a trace begins like this.
pub(in crate::parse) fn unquoted(mut line: &[u8]) -> &[u8] {
    while let Some(rest) = quoted(line) {
        line = rest.strip_prefix(b" ").unwrap_or(rest);
    }
    if !matches!(line.first(), Some(b'[' | b'A'..=b'Z')) {
        return line;
    }
    // Removes the prefix of the system's log.
    const KERNEL: &[u8] = b" kernel: ";
    let head = &line[..line.len().min(LOG_HEAD_BYTES)];
    let message = memchr::memmem::find(head, KERNEL).map_or(line, |at| &line[at + KERNEL.len()..]);
    logged(message).unwrap_or(if message.len() < line.len() { message } else { line })
}

/// A host's name and a date are shorter.
const LOG_HEAD_BYTES: usize = 96;

/// What is behind the time of the kernel's log.
fn logged(line: &[u8]) -> Option<&[u8]> {
    let (time, rest) = scan::split(scan::skip_spaces(line.strip_prefix(b"[")?), b"]")?;
    let (_, digits, end) = scan::seconds(time)?;
    (digits == 6 && end.is_empty()).then(|| rest.strip_prefix(b" ").unwrap_or(rest))
}

/// Replacements for a space in web pages and mail programs.
const HARD_SPACE: &[u8] = "\u{a0}".as_bytes();

fn with_plain_spaces(mut line: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(line.len());
    while let Some(at) = memchr::memmem::find(line, HARD_SPACE) {
        plain.extend_from_slice(&line[..at]);
        plain.push(b' ');
        line = &line[at + HARD_SPACE.len()..];
    }
    plain.extend_from_slice(line);
    plain
}

/// Lines that were not understood.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Strange {
    pub(super) count: u64,
    pub(super) first_offset: u64,
    in_a_row: u64,
}

#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) at_ns: u64,
    pub(super) cpu: u32,
    pub(super) pid: Option<u32>,
    pub(super) command: Option<Name>,
    pub(super) offset: u64,
}

/// From lines to events.
#[derive(Default)]
pub(super) struct Machine {
    pub(super) info: TraceInfo,
    pub(super) texts: Texts,
    /// Position in [`STYLES`] of that of the last line.
    pub(super) style: usize,
    pub(super) strange: Strange,
    /// Whether anything specific to traces was found.
    pub(super) recognised: bool,
    /// Whether the times are a counter's.
    pub(super) raw_times: bool,
    /// Whether times of function-graph lines are sums of durations.
    pub(super) summed_times: bool,
    pub(super) ready: VecDeque<Event>,
    /// Ends of leaf functions, which have no line of their own: by time, then by order.
    pub(super) later: BTreeMap<(u64, u64), Event>,
    pub(super) columns: Columns,
    pub(super) prefixes: Prefixes,
    pub(super) graph: graph::Cpus,
    pub(super) recorded: Recorded,
    pub(super) rows: Rows,
    pub(super) stack: Option<Pending>,
    /// The event that lines of a stack of `perf script` belong to.
    pub(super) perf: Option<Place>,
    /// The functions of each CPU that a report shows by indentation.
    pub(super) calls: BTreeMap<u32, Vec<(usize, Symbol)>>,
    analyser: Analyser,
    lines: u64,
    pub(super) losses: Vec<(CpuId, Option<u64>, u64)>,
    pub(super) losses_counted: BTreeSet<u64>,
    pub(super) last_ns: u64,
    pub(super) selection: Selection,
    pub(super) from_ns: u64,
}

impl Machine {
    pub(super) fn new() -> Self {
        let mut texts = Texts::default();
        // The first stack is one without frames, for stacks whose frames are not read yet.
        texts.stack(&[]);
        let info = TraceInfo { format: "tracefs text".to_owned(), ..TraceInfo::default() };
        Self { info, texts, ..Self::default() }
    }

    /// Begins again, from the start of the file or from a later line; what is known about the trace stays.
    pub(super) fn restart(&mut self, at_begin: bool, selection: Selection, from_ns: u64) {
        if at_begin {
            self.columns.clear();
        }
        self.ready.clear();
        self.later.clear();
        self.graph = graph::Cpus::default();
        self.stack = None;
        self.losses.clear();
        self.strange = Strange::default();
        self.selection = selection;
        self.from_ns = from_ns;
        self.last_ns = 0;
        (self.perf, self.lines, self.info.records) = (None, 0, 0);
        self.calls.clear();
        self.analyser = Analyser::default();
    }

    /// The next event that is ready.
    pub(super) fn pop(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }

    /// Whether a line can be understood without those before it.
    pub(super) fn is_seekable(&self) -> bool {
        STYLES[self.style].time.is_some()
    }

    /// The time in a line, when it has one.
    pub(super) fn time(&mut self, line: &[u8]) -> Option<u64> {
        let line = unquoted(line);
        self.styles().find_map(|style| STYLES[style].time?(self, line))
    }

    /// The style of the line before, then the others.
    fn styles(&self) -> impl Iterator<Item = usize> + use<> {
        let last = self.style;
        std::iter::once(last).chain((0..STYLES.len()).filter(move |style| *style != last))
    }

    /// Takes a line as an event of some style.
    fn styled(&mut self, line: &[u8], offset: u64) -> bool {
        for style in self.styles() {
            if (STYLES[style].take)(self, line, offset) {
                self.style = style;
                return true;
            }
        }
        false
    }

    /// Takes a line; an error describes the problem.
    pub(super) fn line(&mut self, line: &[u8], offset: u64) -> Result<(), String> {
        let line = unquoted(line);
        self.lines += u64::from(!line.is_empty());
        // A command can begin with the frames' arrow.
        if let Some(frame) = stack::frame(line)
            && !prefix::begins_event(line)
        {
            if let Some(stack) = &mut self.stack {
                stack.push(frame, &mut self.texts);
            }
            return Ok(());
        }
        if let Some(place) = self.perf
            && let Some((address, name)) = stack::perf_frame(line)
        {
            if self.selection == Selection::All {
                let known = self.stack.take();
                let begin = || Pending::new(self.make(place, b"", EventKind::Stack { frames: Frames(0) }));
                let mut stack = known.unwrap_or_else(begin);
                stack.push_perf(address, name, &mut self.texts);
                self.stack = Some(stack);
            }
            return Ok(());
        }
        self.end_stack();
        self.perf = None;
        let understood = match line.first() {
            None => true,
            Some(b'#') => self.hash_line(line, offset),
            // Also a head that is indented, as in a document.
            Some(_) => {
                self.styled(line, offset)
                    || (line.trim_ascii_start().starts_with(b"#")
                        && self.hash_line(line.trim_ascii_start(), offset))
            }
        };
        if !understood && memchr::memmem::find(line, HARD_SPACE).is_some() {
            self.lines -= 1;
            return self.line(&with_plain_spaces(line), offset);
        }
        if understood || self.rare(line, offset) {
            self.strange.in_a_row = 0;
            return Ok(());
        }
        self.strange(line, offset)
    }

    /// Takes a line that begins with `#`.
    fn hash_line(&mut self, line: &[u8], offset: u64) -> bool {
        if self.analyser.take(line) {
            self.recognised = true;
            return true;
        }
        let remark = header::comment(line, &mut self.info, &mut self.columns);
        self.recognised |= self.info.tracer.is_some() || remark.is_some();
        self.remark(remark, offset);
        true
    }

    /// Counts a line that is not a trace line.
    fn strange(&mut self, line: &[u8], offset: u64) -> Result<(), String> {
        if self.strange.count == 0 {
            self.strange.first_offset = offset;
        }
        self.strange.count += 1;
        self.strange.in_a_row += 1;
        if memchr::memchr(0, line).is_some() {
            return Err("there is a NUL byte here: this is not text".to_owned());
        }
        if self.strange.in_a_row == STRANGE_LINES_MAX {
            return Err(format!("the last {STRANGE_LINES_MAX} lines are not trace lines"));
        }
        Ok(())
    }

    /// The end of the file: releases waiting events.
    pub(super) fn end(&mut self) {
        self.end_stack();
        let facts = &mut self.info.facts;
        if self.lines > facts.lines {
            (facts.lines, facts.lines_skipped) = (self.lines, self.strange.count);
        }
        let analyses = self.analyser.end();
        if facts.analyses.len() < analyses.len() {
            facts.analyses = analyses;
        }
        self.emit_losses(self.last_ns.max(self.from_ns));
        while let Some((_, event)) = self.later.pop_first() {
            self.ready.push_back(event);
        }
    }

    /// Lines that are neither events nor comments: losses, changes of tasks, the head of a report.
    fn rare(&mut self, line: &[u8], offset: u64) -> bool {
        if let Some(lost) = header::lost(line) {
            self.remark(Some(lost), offset);
            return true;
        }
        if let Some((cpu, command, pid)) = graph::task_change(line) {
            let command = self.texts.intern(command);
            if let Some(cpu) = self.graph.of(cpu) {
                cpu.task = Some((command, pid));
            }
            return true;
        }
        if header::report(line, &mut self.info) {
            self.recognised = true;
            return true;
        }
        let line = scan::trim(line);
        if self.analyser.take(line) || header::bare(line, &mut self.info) {
            self.recognised = true;
            return true;
        }
        let omissions = &mut self.info.facts.omissions;
        let is_one = line.len() >= 3 && line.iter().all(|byte| matches!(byte, b'.' | b'[' | b']'));
        if is_one && omissions.len() < OMISSIONS_MAX {
            omissions.insert(offset);
        }
        line.iter().all(|byte| *byte == b'-')
    }

    fn remark(&mut self, remark: Option<Remark>, offset: u64) {
        match remark {
            Some(Remark::Lost { cpu, events }) => {
                self.losses.push((cpu, events, offset));
                if self.losses_counted.len() < LOSSES_MAX && self.losses_counted.insert(offset) {
                    lose(&mut self.info.lost, cpu, events.unwrap_or(1));
                }
            }
            Some(Remark::Begin { cpu }) => self.losses.push((cpu, None, offset)),
            None => {}
        }
        if self.losses.len() >= WAITING_MAX {
            self.emit_losses(self.last_ns);
        }
    }

    /// Losses were before the event that follows them.
    pub(super) fn emit_losses(&mut self, at_ns: u64) {
        for (cpu, events, offset) in std::mem::take(&mut self.losses) {
            if at_ns >= self.from_ns {
                self.queue(Event::lost(at_ns, cpu, offset, events));
            }
        }
    }

    fn end_stack(&mut self) {
        if let Some(stack) = self.stack.take() {
            let event = stack.finish(&mut self.texts);
            self.queue(event);
        }
    }

    fn queue(&mut self, event: Event) {
        while let Some(first) = self.later.first_entry()
            && first.key().0 <= event.at_ns
        {
            self.ready.push_back(first.remove());
        }
        self.ready.push_back(event);
        // No function of a kernel takes that long.
        while self.later.len() > WAITING_MAX
            && let Some((_, event)) = self.later.pop_first()
        {
            self.ready.push_back(event);
        }
    }

    pub(super) fn make(&self, place: Place, flags: &[u8], kind: EventKind) -> Event {
        Event {
            at_ns: place.at_ns,
            cpu: CpuId(place.cpu),
            pid: place.pid,
            command: place.command,
            context: columns::context(&self.columns, flags),
            offset: place.offset,
            kind,
        }
    }

    pub(super) fn push(&mut self, place: Place, flags: &[u8], kind: EventKind) {
        let event = self.make(place, flags, kind);
        self.queue(event);
    }
}
