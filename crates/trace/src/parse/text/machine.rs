//! From lines to events: which shape a line has, what the lines before it said, and what waits for a later line.
//!
//! In: lines with their offsets. Out: events in a queue. It reads no file.

use super::columns::{self, Columns};
use super::events::{self, Table, Text, tracer};
use super::graph;
use super::header::{self, Remark};
use super::prefix::{self, Prefix, Prefixes};
use super::recorded::Recorded;
use super::scan;
use super::stack::{self, Pending};
use super::texts::Texts;
use crate::event::{Event, EventKind, Name};
use crate::reader::{Selection, TraceInfo};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use whylate_core::CpuId;

/// Lines in a row that are no trace's, beyond which the file is taken for damaged: a marker's text can have some.
const STRANGE_LINES_MAX: u64 = 10_000;
/// Losses whose places are remembered, so that a second reading does not count them again.
const LOSSES_MAX: usize = 1 << 20;

/// The shape that the lines have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Shape {
    /// `trace`, `trace_pipe`, reports.
    #[default]
    Usual,
    /// Latency traces.
    Latency,
    /// The function-graph tracer.
    Graph,
}

/// Lines that were not understood.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Strange {
    pub(super) count: u64,
    pub(super) first_offset: u64,
    in_a_row: u64,
}

/// What a line belongs to.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) at_ns: u64,
    pub(super) cpu: u32,
    pub(super) pid: Option<u32>,
    pub(super) command: Option<Name>,
    pub(super) offset: u64,
}

/// From lines to events.
pub(super) struct Machine {
    pub(super) info: TraceInfo,
    pub(super) texts: Texts,
    pub(super) shape: Shape,
    pub(super) strange: Strange,
    /// Whether anything was found that only traces have.
    pub(super) recognised: bool,
    /// Whether the times are a counter's.
    pub(super) raw_times: bool,
    /// Whether times of function-graph lines are sums of durations.
    pub(super) summed_times: bool,
    ready: VecDeque<Event>,
    /// Ends of leaf functions, which stand in the line of the begin: by time, then by order.
    later: BTreeMap<(u64, u64), Event>,
    columns: Columns,
    prefixes: Prefixes,
    table: Table,
    graph: graph::Cpus,
    recorded: Recorded,
    stack: Option<Pending>,
    losses: Vec<(CpuId, Option<u64>, u64)>,
    losses_counted: BTreeSet<u64>,
    last_ns: u64,
    selection: Selection,
    from_ns: u64,
}

impl Machine {
    pub(super) fn new() -> Self {
        Self {
            info: TraceInfo { format: "tracefs text".to_owned(), ..TraceInfo::default() },
            texts: Texts::new(),
            shape: Shape::default(),
            strange: Strange::default(),
            recognised: false,
            raw_times: false,
            summed_times: false,
            ready: VecDeque::new(),
            later: BTreeMap::new(),
            columns: Columns::new(),
            prefixes: Prefixes::default(),
            table: Table::new(),
            graph: graph::Cpus::default(),
            recorded: Recorded::default(),
            stack: None,
            losses: Vec::new(),
            losses_counted: BTreeSet::new(),
            last_ns: 0,
            selection: Selection::All,
            from_ns: 0,
        }
    }

    /// Begins again, from the begin of the file or from a later line; what is known of the trace stays.
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
    }

    /// The next event that is ready.
    pub(super) fn pop(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }

    /// The time in a line, when it has one.
    pub(super) fn time(&mut self, line: &[u8]) -> Option<u64> {
        match self.shape {
            Shape::Usual => self.prefixes.usual(line).or_else(|| prefix::latency(line)),
            Shape::Latency => prefix::latency(line).or_else(|| self.prefixes.usual(line)),
            Shape::Graph => return graph::columns(line)?.at_ns,
        }
        .map(|prefix| prefix.at_ns)
    }

    /// Takes a line; an error says what is wrong with it.
    pub(super) fn line(&mut self, line: &[u8], offset: u64) -> Result<(), String> {
        if let Some(frame) = stack::frame(line) {
            if let Some(stack) = &mut self.stack {
                stack.push(frame, &mut self.texts);
            }
            return Ok(());
        }
        self.end_stack();
        let understood = match line.first() {
            None => true,
            Some(b'#') => {
                let remark = header::comment(line, &mut self.info, &mut self.columns);
                self.recognised |= self.info.tracer.is_some() || remark.is_some();
                self.remark(remark, offset);
                true
            }
            Some(_) => match self.shape {
                Shape::Usual => {
                    self.usual(line, offset) || self.latency(line, offset) || self.graph(line, offset)
                }
                Shape::Latency => {
                    self.latency(line, offset) || self.usual(line, offset) || self.graph(line, offset)
                }
                Shape::Graph => {
                    self.graph(line, offset) || self.usual(line, offset) || self.latency(line, offset)
                }
            },
        };
        if understood || self.rare(line, offset) {
            self.strange.in_a_row = 0;
            return Ok(());
        }
        self.strange(line, offset)
    }

    /// Counts a line that is no trace's.
    fn strange(&mut self, line: &[u8], offset: u64) -> Result<(), String> {
        if self.strange.count == 0 {
            self.strange.first_offset = offset;
        }
        self.strange.count += 1;
        self.strange.in_a_row += 1;
        if memchr::memchr(0, line).is_some() {
            return Err("there are bytes here that no text has".to_owned());
        }
        if self.strange.in_a_row == STRANGE_LINES_MAX {
            return Err(format!("{STRANGE_LINES_MAX} lines up to here are none of a trace"));
        }
        Ok(())
    }

    /// The end of the file: what waits comes out.
    pub(super) fn end(&mut self) {
        self.end_stack();
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
        line.iter().all(|byte| *byte == b'-')
    }

    fn remark(&mut self, remark: Option<Remark>, offset: u64) {
        match remark {
            Some(Remark::Lost { cpu, events }) => {
                self.losses.push((cpu, events, offset));
                if self.losses_counted.len() < LOSSES_MAX && self.losses_counted.insert(offset) {
                    let lost = events.unwrap_or(1);
                    match self.info.lost.iter_mut().find(|(known, _)| *known == cpu) {
                        Some((_, sum)) => *sum = sum.saturating_add(lost),
                        None => self.info.lost.push((cpu, lost)),
                    }
                }
            }
            Some(Remark::Begin { cpu }) => self.losses.push((cpu, None, offset)),
            None => {}
        }
    }

    /// Losses were before the event that follows them.
    fn emit_losses(&mut self, at_ns: u64) {
        for (cpu, events, offset) in std::mem::take(&mut self.losses) {
            if at_ns >= self.from_ns {
                let place = Place { at_ns, cpu: cpu.0, pid: None, command: None, offset };
                self.push(place, &[], EventKind::Lost { events });
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
    }

    fn make(&self, place: Place, flags: &[u8], kind: EventKind) -> Event {
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

    fn push(&mut self, place: Place, flags: &[u8], kind: EventKind) {
        let event = self.make(place, flags, kind);
        self.queue(event);
    }

    fn usual(&mut self, line: &[u8], offset: u64) -> bool {
        let Some(prefix) = self.prefixes.usual(line) else { return false };
        self.shape = Shape::Usual;
        self.prefixed(prefix, offset);
        true
    }

    fn latency(&mut self, line: &[u8], offset: u64) -> bool {
        let Some(prefix) = prefix::latency(line) else { return false };
        self.shape = Shape::Latency;
        self.prefixed(prefix, offset);
        true
    }

    fn prefixed(&mut self, prefix: Prefix<'_>, offset: u64) {
        self.recognised = true;
        if self.info.resolution_ns == 0 {
            self.raw_times = prefix.resolution_ns.is_none();
            self.info.resolution_ns = prefix.resolution_ns.unwrap_or(1);
        }
        self.last_ns = prefix.at_ns;
        if !self.losses.is_empty() {
            self.emit_losses(prefix.at_ns);
        }
        if prefix.at_ns < self.from_ns {
            return;
        }
        let body = scan::skip_spaces(prefix.rest);
        if self.selection == Selection::Wakeups && memchr::memmem::find(body, b" <-").is_some() {
            self.recorded.mark("ftrace:function", &mut self.info);
            return;
        }
        let command = match prefix.command {
            b"" | b"<...>" => None,
            command => Some(self.texts.intern(command)),
        };
        let place = Place { at_ns: prefix.at_ns, cpu: prefix.cpu, pid: Some(prefix.pid), command, offset };
        self.body(body, place, prefix.flags);
    }

    /// The event of a line, behind its prefix.
    fn body(&mut self, body: &[u8], place: Place, flags: &[u8]) {
        let end = body.iter().position(|byte| matches!(byte, b':' | b' ' | b'(' | b'['));
        let word = &body[..end.unwrap_or(body.len())];
        let kind = match (body.first(), end.map(|end| body[end])) {
            (Some(b'0'..=b'9'), _) => self.numbers(body, place),
            (Some(b'#'), _) => self.sample(body),
            (Some(b'<'), _) if body.starts_with(b"<stack trace") => return self.begin_stack(place, flags),
            (Some(b'<'), _) if body.starts_with(b"<user stack trace") => None,
            (Some(_), Some(b':')) => return self.named(word, &body[word.len() + 1..], place, flags),
            (Some(_), _) => self.function_or_call(body, word),
            (None, _) => None,
        };
        if let Some(kind) = kind {
            self.push(place, flags, kind);
        }
    }

    /// `name: fields`.
    fn named(&mut self, name: &[u8], fields: &[u8], place: Place, flags: &[u8]) {
        match name {
            b"kernel_stack" => return self.begin_stack(place, flags),
            b"funcgraph_entry" | b"funcgraph_exit" => return self.graph_event(fields, place, flags),
            _ => {}
        }
        let found = self.table.find(name);
        let known = found.map(|(_, known)| known);
        match found {
            Some((position, known)) => self.recorded.known(position, known.full_name, &mut self.info),
            None => self.recorded.other(name, &mut self.texts, &mut self.info),
        }
        if self.selection == Selection::Wakeups && !known.is_some_and(|known| known.of_wakeups) {
            return;
        }
        let text = Text { name, fields: scan::trim(fields), command: place.command };
        let kind = events::decode(known, &text, &mut self.texts);
        self.push(place, flags, kind);
    }

    fn begin_stack(&mut self, place: Place, flags: &[u8]) {
        self.recorded.mark("ftrace:kernel_stack", &mut self.info);
        if self.selection == Selection::All {
            let frames = EventKind::Stack { frames: crate::event::Frames(0) };
            self.stack = Some(Pending::new(self.make(place, flags, frames)));
        }
    }

    /// A sample of hwlat or timerlat.
    fn sample(&mut self, body: &[u8]) -> Option<EventKind> {
        let kind = tracer::sample(body)?;
        let name = if matches!(kind, EventKind::Hwlat { .. }) { "ftrace:hwlat" } else { "ftrace:timerlat" };
        self.recorded.mark(name, &mut self.info);
        Some(kind)
    }

    /// A sample of osnoise, or a switch of the wake-up tracers.
    fn numbers(&mut self, body: &[u8], place: Place) -> Option<EventKind> {
        if let Some(kind) = tracer::osnoise(body) {
            self.recorded.mark("ftrace:osnoise", &mut self.info);
            return Some(kind);
        }
        let text = Text { name: b"", fields: body, command: place.command };
        let kind = tracer::own_switch(&text, &mut self.texts)?;
        let name =
            if matches!(kind, EventKind::Switch { .. }) { "ftrace:context_switch" } else { "ftrace:wakeup" };
        self.recorded.mark(name, &mut self.info);
        Some(kind)
    }

    /// A line without a name before a colon: a call, or a system call.
    fn function_or_call(&mut self, body: &[u8], word: &[u8]) -> Option<EventKind> {
        if let Some(kind) = tracer::function(body, &mut self.texts) {
            self.recorded.mark("ftrace:function", &mut self.info);
            return Some(kind);
        }
        if self.selection == Selection::Wakeups {
            return None;
        }
        if let Some(kind) = events::system::syscall_line(body, &mut self.texts) {
            self.recorded.mark("syscalls", &mut self.info);
            return Some(kind);
        }
        Some(EventKind::Other { system: None, name: self.texts.intern(word) })
    }

    /// A line of the function-graph tracer.
    fn graph(&mut self, line: &[u8], offset: u64) -> bool {
        let Some(columns) = graph::columns(line) else { return false };
        let task = columns.task.map(|(command, pid)| (self.texts.intern(command), pid));
        let Some(cpu) = self.graph.of(columns.cpu) else { return false };
        cpu.task = task.or(cpu.task);
        let at_ns = columns.at_ns.unwrap_or(cpu.at_ns);
        self.shape = Shape::Graph;
        self.recognised = true;
        self.summed_times |= columns.at_ns.is_none();
        if self.info.resolution_ns == 0 {
            self.info.resolution_ns = 1000;
        }
        let (command, pid) = cpu.task.map_or((None, None), |(command, pid)| (Some(command), Some(pid)));
        let place = Place { at_ns, cpu: columns.cpu, pid, command, offset };
        self.graph_call(columns.text, columns.duration_ns, place, columns.flags);
        true
    }

    /// `funcgraph_entry:      0.488 us   |  getname();`, as reports have it.
    fn graph_event(&mut self, fields: &[u8], place: Place, flags: &[u8]) {
        if let Some(bar) = memchr::memchr(b'|', fields) {
            let duration_ns = graph::duration(scan::trim(&fields[..bar]));
            self.graph_call(&fields[bar + 1..], duration_ns, place, flags);
        }
    }

    fn graph_call(&mut self, text: &[u8], duration_ns: Option<u64>, mut place: Place, flags: &[u8]) {
        self.last_ns = place.at_ns;
        self.emit_losses(place.at_ns);
        let Some(cpu) = self.graph.of(place.cpu) else { return };
        let call = graph::call(text, place.at_ns, cpu, &mut self.texts);
        // The clock of a CPU whose lines have no time.
        let duration = duration_ns.unwrap_or(0);
        cpu.at_ns = match call {
            Some(graph::Call::Leaf { .. }) => place.at_ns.saturating_add(duration),
            Some(graph::Call::Exit { entry_ns: Some(entry_ns), .. }) => {
                place.at_ns.max(entry_ns.saturating_add(duration))
            }
            _ => place.at_ns,
        };
        if self.summed_times && matches!(call, Some(graph::Call::Exit { .. })) {
            place.at_ns = cpu.at_ns;
        }
        self.emit_call(call, duration_ns, place, flags);
    }

    fn emit_call(
        &mut self,
        call: Option<graph::Call<'_>>,
        duration_ns: Option<u64>,
        place: Place,
        flags: &[u8],
    ) {
        if let Some(graph::Call::Comment(comment)) = call {
            if place.at_ns >= self.from_ns {
                self.comment(comment, place, flags);
            }
            return;
        }
        self.recorded.mark("ftrace:funcgraph_entry", &mut self.info);
        if self.selection == Selection::Wakeups || place.at_ns < self.from_ns {
            return;
        }
        match call {
            Some(graph::Call::Entry { function, depth }) => {
                self.push(place, flags, EventKind::GraphEntry { function, depth });
            }
            Some(graph::Call::Leaf { function, depth }) => {
                self.push(place, flags, EventKind::GraphEntry { function, depth });
                let duration_ns = duration_ns.unwrap_or(0);
                let at_ns = place.at_ns.saturating_add(duration_ns);
                let exit = EventKind::GraphExit { function, depth, duration_ns };
                let event = self.make(Place { at_ns, ..place }, flags, exit);
                self.later.insert((at_ns, place.offset), event);
            }
            Some(graph::Call::Exit { function, depth, entry_ns }) => {
                let since_entry = entry_ns.map(|entry_ns| place.at_ns.saturating_sub(entry_ns));
                if let Some(duration_ns) = duration_ns.or(since_entry) {
                    self.push(place, flags, EventKind::GraphExit { function, depth, duration_ns });
                }
            }
            Some(graph::Call::Comment(_) | graph::Call::Nothing) | None => {}
        }
    }

    /// What stands between calls in `/* */`: an event, or the text of a marker.
    fn comment(&mut self, comment: &[u8], place: Place, flags: &[u8]) {
        let name = comment.iter().position(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'_'));
        if name.is_some_and(|end| end > 0 && comment[end] == b':') {
            self.body(comment, place, flags);
        } else {
            let text = self.texts.intern(comment);
            self.push(place, flags, EventKind::Print { text });
        }
    }
}
