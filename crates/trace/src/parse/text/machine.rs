//! From lines to events: which shape a line has, what the lines before it said, and what waits for a later line.
//!
//! In: lines with their offsets. Out: events in a queue. It reads no file.

use super::columns::{self, Columns};
use super::events::Table;
use super::graph;
use super::header::{self, Remark};
use super::prefix::{self, Prefixes};
use super::recorded::Recorded;
use super::scan;
use super::stack::{self, Pending};
use super::texts::Texts;
use crate::event::{Event, EventKind, Name};
use crate::reader::{Selection, TraceInfo};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use whylate_core::CpuId;

mod body;
mod calls;

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
}
