//! Traces as text: `trace`, `trace_pipe` and `snapshot` of tracefs, latency traces, function graphs, and what
//! `trace-cmd report` prints.
//!
//! In: a [`Source`]. Out: a [`Reader`]. Columns are taken from the comments at the head; without them the number of letters
//! decides. One buffer of lines and the texts so far are all that is in memory. Lines that are not trace lines are counted
//! and reported at the end in [`TraceInfo::remarks`]. An incomplete last line is ignored, since it may be cut in the middle
//! of a number. Times of latency traces are relative to the start of the trace. Stacks of user space are not read.

mod analysis;
mod body;
mod columns;
mod fields;
mod graph;
mod header;
mod machine;
mod prefix;
pub(super) mod scan;
mod seek;
mod stack;
mod tracer;

use super::lines::{LineError, Lines};
use super::{ParseError, Source};
use crate::event::{Event, Frames, Names, Symbol};
use crate::reader::{Reader, Selection, TraceInfo};
pub(super) use fields::{Text, function_field, lock_wait, lock_wait_end, nmi, work_begin, work_end};
use machine::Machine;
pub(super) use machine::unquoted;
pub(super) use prefix::begins_event;

/// A trace line must come within this many lines, or the file is not a trace.
const LINES_TO_RECOGNISE: u64 = 1000;

/// How much of a text that is not a trace is checked.
const HEAD_BYTES: u64 = 16 << 10;

/// The kind of a text that is not a trace.
fn other_text(head: &[u8]) -> &'static str {
    const HISTOGRAM: &str =
        "a histogram of a BPF tool, which names no thread: record a trace with `whylate trace record`";
    const KNOWN: [(&[u8], &str); 5] = [
        (
            b"| Max delay ms",
            "the table of `perf sched latency`, which has no events: give the perf.data file that the table was made from",
        ),
        (
            b"*A0 ",
            "the map of `perf sched map`, which has no wake-ups: give the perf.data file that the map was made from",
        ),
        (
            b" latency higher than ",
            "the list of a BPF tool, which shows the waiting threads but not what delayed them: record a trace with `whylate trace record`",
        ),
        (b"|@@@", HISTOGRAM),
        (b"distribution", HISTOGRAM),
    ];
    KNOWN
        .into_iter()
        .find(|(mark, _)| memchr::memmem::find(head, mark).is_some())
        .map_or("a text without a single trace line", |(_, what)| what)
}

/// A reader of traces as text.
pub struct TextReader {
    source: Source,
    lines: Lines,
    machine: Machine,
    finished: bool,
}

impl TextReader {
    /// Reads the head of the trace, up to the first event.
    ///
    /// # Errors
    /// [`ParseError::Foreign`] when nothing in the first lines is of a trace; otherwise as [`Reader::next`].
    pub fn new(source: Source) -> Result<Self, ParseError> {
        let lines = Lines::new(source.stream(0)?, 0);
        let mut reader = Self { source, lines, machine: Machine::new(), finished: false };
        while reader.machine.pop().is_none() && reader.machine.strange.count < LINES_TO_RECOGNISE {
            if !reader.advance()? {
                break;
            }
        }
        if !reader.machine.recognised {
            let path = reader.source.path().to_owned();
            let mut head = Vec::new();
            let read = std::io::Read::read_to_end(
                &mut std::io::Read::take(reader.source.stream(0)?, HEAD_BYTES),
                &mut head,
            );
            read.map_err(|error| reader.source.failed(error, 0))?;
            return Err(ParseError::Foreign { path, found: other_text(&head).to_owned() });
        }
        if reader.machine.info.resolution_ns == 0 {
            // Not an event line: the kernel writes microseconds here.
            reader.machine.info.resolution_ns = 1000;
        }
        reader.seek(None, Selection::All)?;
        Ok(reader)
    }

    /// The same, of a trace that has another form.
    pub(super) fn named(mut self, format: &str) -> Self {
        self.machine.info.format = format.to_owned();
        self
    }

    /// Takes a line; `false` if there was none.
    fn advance(&mut self) -> Result<bool, ParseError> {
        let line = match self.lines.next() {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(false),
            Err(LineError::Read(error, offset)) => return Err(self.source.failed(error, offset)),
            Err(LineError::TooLong(offset)) => {
                return Err(self.damaged(offset, "this line is too long for a trace file"));
            }
        };
        if !line.ended {
            self.remark(format!(
                "the last line, at byte {}, is incomplete and was ignored: the trace may be truncated",
                line.offset
            ));
            return Ok(true);
        }
        let taken = self.machine.line(self.lines.bytes(line), line.offset);
        taken.map_err(|message| self.damaged(line.offset, &message))?;
        Ok(true)
    }

    fn damaged(&self, offset: u64, message: &str) -> ParseError {
        ParseError::Damaged { path: self.source.path().to_owned(), offset, message: message.to_owned() }
    }

    fn remark(&mut self, remark: String) {
        let remarks = &mut self.machine.info.remarks;
        if !remarks.contains(&remark) {
            remarks.push(remark);
        }
    }

    /// Facts that are known only after everything was read.
    fn finish(&mut self) {
        self.finished = true;
        self.machine.end();
        let strange = self.machine.strange;
        if strange.count > 0 {
            let (count, offset) = (strange.count, strange.first_offset);
            self.remark(format!(
                "lines that are not trace lines were skipped: {count}, the first at byte {offset}"
            ));
        }
        if self.machine.raw_times {
            self.remark(
                "the times are values of a raw counter, not nanoseconds; the text does not name the clock: \
                 `counter`, `x86-tsc`, or `uptime` (hundredths of a second)"
                    .to_owned(),
            );
        }
        if self.machine.summed_times {
            self.remark(
                "the function-graph lines have no time, so durations are added up for each CPU; \
                 record with the option funcgraph-abstime"
                    .to_owned(),
            );
        }
        self.machine.info.limits = self.machine.texts.limit().into_iter().collect();
    }
}

impl Reader for TextReader {
    fn info(&self) -> &TraceInfo {
        &self.machine.info
    }

    fn names(&self) -> &Names {
        &self.machine.texts.names
    }

    /// In an uncompressed file it is found by bisection: the times of a text are sorted, except for small disorder in data
    /// from `trace_pipe`. In a compressed file everything before it is read.
    fn seek(&mut self, from_ns: Option<u64>, selection: Selection) -> Result<(), ParseError> {
        let offset = match from_ns {
            Some(from_ns) => seek::find(&self.source, &mut self.machine, from_ns)?,
            None => 0,
        };
        if offset == 0 {
            self.machine.texts.restart();
        }
        self.lines = Lines::new(self.source.stream(offset)?, offset);
        self.machine.restart(offset == 0, selection, from_ns.unwrap_or(0));
        self.finished = false;
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Event>, ParseError> {
        loop {
            if let Some(event) = self.machine.pop() {
                return Ok(Some(event));
            }
            if self.finished {
                return Ok(None);
            }
            if !self.advance()? {
                self.finish();
            }
        }
    }

    fn symbol(&self, symbol: Symbol) -> Option<(&str, u64)> {
        match symbol {
            Symbol::Name(name) => Some((self.machine.texts.names.text(name), 0)),
            Symbol::Address(address) => self.machine.texts.addressed(address).map(|name| (name, 0)),
        }
    }

    fn frames(&self, frames: Frames) -> &[Symbol] {
        self.machine.texts.frames(frames)
    }
}
