//! Reads a log to its end and keeps the messages that the catalogue knows, in bounded memory.

use crate::catalogue::{KINDS, MessageKind, sentence};
use crate::line::{self, LogLine};
use crate::pattern::{Captured, Patterns};
use serde::Deserialize;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::{HashMap, VecDeque};
use std::io::{self, BufRead, Read};
use std::sync::LazyLock;
use whylate_core::result::{LogMessage, Severity};

/// A longer line is cut.
const LINE_BYTES_MAX: usize = 16 << 10;
/// Beyond this number, groups are merged into one for each kind.
const GROUPS_MAX: usize = 256;
/// Lines of a mail that one message is broken into, at most.
const BROKEN_MAX: usize = 4;
/// A line that adds to a message comes within this many lines.
const DETAIL_LINES: u64 = 16;

static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    let rows = KINDS.iter().enumerate();
    Patterns::new(rows.flat_map(|(row, kind)| kind.patterns.iter().map(move |pattern| (row, *pattern))))
});
static UNDONE: LazyLock<Patterns> = LazyLock::new(|| {
    let rows = KINDS.iter().enumerate();
    Patterns::new(rows.flat_map(|(row, kind)| kind.undone_by.iter().map(move |pattern| (row, *pattern))))
});

/// The content of a log.
#[derive(Clone, Debug, Default)]
pub struct KernelLog {
    /// The worst first.
    pub messages: Vec<LogMessage>,
    /// Lines, of any kind.
    pub lines: u64,
    /// Lines with the time or the mark of a log.
    pub stamped: u64,
    /// The first and the last moment since boot.
    pub from_ns: Option<u64>,
    pub to_ns: Option<u64>,
    /// `Linux version` of the log.
    pub kernel: Option<String>,
    /// `Command line:` of the log.
    pub command_line: Option<String>,
    /// Why the log could not be read to its end.
    pub damage: Option<String>,
}

impl KernelLog {
    /// Whether it was a log at all.
    pub fn is_any(&self) -> bool {
        !self.messages.is_empty() || self.stamped > 0
    }
}

/// Whether a text begins as a log of the kernel does: a line of the catalogue, or most lines with the mark of a log.
pub fn is_log(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head);
    if text.trim_start().starts_with('{') {
        return text.contains("\"dmesg\"") || text.contains("\"_TRANSPORT\"") || text.contains("\"MESSAGE\"");
    }
    let lines = text.lines().filter(|line| !line.trim().is_empty()).take(400).filter_map(line::parse);
    let (mut all, mut stamped, mut known) = (0, 0, 0);
    for line in lines {
        all += 1;
        stamped += u32::from(line.stamped);
        known += u32::from(PATTERNS.find(&line.text).is_some());
    }
    known > 0 || stamped * 2 > all
}

/// Reads a log as text or JSON.
///
/// # Errors
/// Those of the source.
pub fn read(mut source: impl BufRead) -> io::Result<KernelLog> {
    let head = source.fill_buf()?;
    let is_json = head.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    if is_json { read_json(source) } else { read_lines(source) }
}

/// Reads a log as text.
///
/// # Errors
/// Those of the source.
pub fn read_lines(mut source: impl BufRead) -> io::Result<KernelLog> {
    let mut state = LogState::default();
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let limit = LINE_BYTES_MAX as u64;
        if source.by_ref().take(limit).read_until(b'\n', &mut bytes)? == 0 {
            break;
        }
        if bytes.len() == LINE_BYTES_MAX && bytes.last() != Some(&b'\n') {
            source.skip_until(b'\n')?;
        }
        state.log.lines += 1;
        if let Some(line) = line::parse(&String::from_utf8_lossy(&bytes)) {
            state.take(line);
        }
    }
    Ok(state.finish())
}

fn read_json(source: impl BufRead) -> io::Result<KernelLog> {
    let mut state = LogState::default();
    let mut input = serde_json::Deserializer::from_reader(source);
    while input.end().is_err() {
        match (Records { state: &mut state }).deserialize(&mut input) {
            Ok(()) => {}
            Err(error) if error.is_io() => return Err(error.into()),
            Err(error) => {
                let place = format!("line {}, column {}", error.line(), error.column());
                let end = if error.is_eof() {
                    "the log ends in the middle of a record"
                } else {
                    "this is not a kernel log in JSON"
                };
                state.log.damage = Some(format!("{place}: {end}"));
                break;
            }
        }
    }
    Ok(state.finish())
}

/// A record of `journalctl -o json`, or the document of `dmesg --json`, whose records are taken one by one.
struct Records<'a> {
    state: &'a mut LogState,
}

impl<'de> DeserializeSeed<'de> for Records<'_> {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_any(self)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    Number(f64),
    Text(String),
    /// Bytes that are not UTF-8.
    Bytes(Vec<u8>),
    Other(IgnoredAny),
}

impl Value {
    fn text(self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text),
            Self::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            Self::Number(_) | Self::Other(_) => None,
        }
    }

    /// In nanoseconds, from a number of seconds or a text in microseconds.
    fn at_ns(&self) -> Option<u64> {
        match self {
            Self::Number(seconds) if *seconds >= 0.0 => Some((seconds * 1e6).round() as u64 * 1000),
            Self::Text(text) => text.trim().parse::<u64>().ok()?.checked_mul(1000),
            _ => None,
        }
    }
}

impl<'de> Visitor<'de> for Records<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("records of a log")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut line = LogLine { stamped: true, ..LogLine::default() };
        let (mut message, mut kernel) = (None, true);
        let mut fields = || -> Result<(), A::Error> {
            while let Some(key) = map.next_key::<String>()? {
                match key.as_str() {
                    "dmesg" => map.next_value_seed(Records { state: &mut *self.state })?,
                    "msg" | "MESSAGE" => message = map.next_value::<Value>()?.text(),
                    "time" | "_SOURCE_MONOTONIC_TIMESTAMP" => line.at_ns = map.next_value::<Value>()?.at_ns(),
                    "__MONOTONIC_TIMESTAMP" => {
                        let at_ns = map.next_value::<Value>()?.at_ns();
                        line.at_ns = line.at_ns.or(at_ns);
                    }
                    "_TRANSPORT" => kernel = map.next_value::<Value>()?.text().as_deref() == Some("kernel"),
                    _ => drop(map.next_value::<IgnoredAny>()?),
                }
            }
            Ok(())
        };
        // A truncated record still has its message, if the message is complete.
        let end = fields();
        if let Some(message) = message.filter(|_| kernel) {
            for text in message.lines() {
                self.state.log.lines += 1;
                self.state.take(LogLine { text: text.trim().to_owned(), ..line.clone() });
            }
        }
        end
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut records: A) -> Result<(), A::Error> {
        while records.next_element_seed(Records { state: &mut *self.state })?.is_some() {}
        Ok(())
    }
}

/// What identifies a group: messages of one kind with the same CPU, thread and function.
type Group = (usize, Option<u32>, Option<String>, Option<String>);

#[derive(Default)]
struct LogState {
    log: KernelLog,
    groups: HashMap<Group, usize>,
    found: Vec<(usize, LogMessage)>,
    /// The last lines, not yet looked at, since a mail may have broken them.
    waiting: VecDeque<LogLine>,
    /// The last message, and its line's number.
    last: Option<(usize, u64)>,
    looked_at: u64,
}

impl LogState {
    fn take(&mut self, line: LogLine) {
        if line.text.is_empty() {
            return;
        }
        if line.stamped {
            self.log.stamped += 1;
            self.flush();
        }
        if let Some(at_ns) = line.at_ns {
            self.log.from_ns = self.log.from_ns.or(Some(at_ns));
            self.log.to_ns = Some(at_ns);
        }
        self.waiting.push_back(line);
        if self.waiting.len() >= BROKEN_MAX {
            self.look();
        }
    }

    fn flush(&mut self) {
        while !self.waiting.is_empty() {
            self.look();
        }
    }

    /// Checks the first waiting line, alone and joined with the next lines that have no mark of their own.
    fn look(&mut self) {
        let Some(line) = self.waiting.pop_front() else { return };
        self.looked_at += 1;
        self.facts(&line.text);
        if let Some((row, pattern, captured)) = PATTERNS.find(&line.text) {
            return self.keep(row, pattern, captured, &line, line.text.clone());
        }
        let mut text = line.text.clone();
        for taken in 1..=self.waiting.len() {
            let next = &self.waiting[taken - 1];
            if next.stamped || PATTERNS.find(&next.text).is_some() {
                break;
            }
            text = format!("{text} {}", next.text);
            if let Some((row, pattern, captured)) = PATTERNS.find(&text) {
                self.waiting.drain(..taken);
                return self.keep(row, pattern, captured, &line, text);
            }
        }
        if let Some((row, ..)) = UNDONE.find(&line.text) {
            self.found.iter_mut().filter(|(of, _)| *of == row).for_each(|(_, message)| message.lines = 0);
        }
    }

    fn facts(&mut self, text: &str) {
        let kernel = || text.strip_prefix("Linux version ").and_then(|rest| rest.split_whitespace().next());
        if self.log.kernel.is_none() {
            self.log.kernel = kernel().map(str::to_owned);
        }
        let line = text.strip_prefix("Kernel command line: ").or_else(|| text.strip_prefix("Command line: "));
        if let Some(line) = line {
            self.log.command_line = Some(line.to_owned());
        }
    }

    fn keep(&mut self, row: usize, pattern: &str, captured: Captured, line: &LogLine, text: String) {
        if pattern.starts_with('+') {
            return self.add(row, &captured);
        }
        let mut group = (row, captured.cpu, captured.task.clone(), captured.function.clone());
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&group) {
            group = (row, None, None, None);
        }
        let index = *self.groups.entry(group).or_insert_with(|| {
            self.found.push((row, new(&KINDS[row], line)));
            self.found.len() - 1
        });
        let message = &mut self.found[index].1;
        message.lines += 1;
        message.last_at_ns = line.at_ns.filter(|_| message.lines > 1).or(message.last_at_ns);
        message.count = message.count.max(captured.count);
        let is_worse = captured.figure_ns > message.figure_ns || message.text.is_empty();
        if is_worse {
            message.text = text;
            message.figure_ns = captured.figure_ns;
        }
        message.cpu = message.cpu.or(captured.cpu);
        message.task = message.task.take().or(captured.task);
        message.pid = message.pid.or(captured.pid);
        message.function = message.function.take().or(captured.function);
        self.last = Some((index, self.looked_at));
    }

    /// Adds a line of detail to the message before it.
    fn add(&mut self, row: usize, captured: &Captured) {
        let Some((index, at)) = self.last else { return };
        let (of, message) = &mut self.found[index];
        if *of == row && self.looked_at - at <= DETAIL_LINES {
            message.cpu = message.cpu.or(captured.cpu);
            message.figure_ns = message.figure_ns.or(captured.figure_ns);
        }
    }

    fn finish(mut self) -> KernelLog {
        self.flush();
        let rank = |severity: Severity| Severity::ALL.iter().position(|it| *it == severity);
        self.found.retain(|(_, message)| message.lines > 0);
        self.found.sort_by_key(|(row, message)| {
            (rank(message.severity), std::cmp::Reverse(message.figure_ns), *row, message.at_ns)
        });
        self.log.messages = self.found.into_iter().map(|(_, message)| message).collect();
        self.log
    }
}

fn new(kind: &MessageKind, line: &LogLine) -> LogMessage {
    LogMessage {
        code: kind.code.to_owned(),
        severity: kind.severity,
        at_ns: line.at_ns,
        wall: line.wall.clone(),
        last_at_ns: None,
        cpu: None,
        task: None,
        pid: None,
        function: None,
        figure_ns: None,
        count: None,
        lines: 0,
        text: String::new(),
        meaning: sentence(kind.meaning),
        names: sentence(kind.names),
        fix: sentence(kind.fix),
        cause: kind.cause,
    }
}
