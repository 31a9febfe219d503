//! Lines with a prefix: the event after it.

use super::fields::{Text, symbol};
use super::machine::{Machine, Place};
use super::prefix::{Prefix, Style};
use super::stack::Pending;
use super::{scan, tracer};
use crate::event::{EventKind, Frames, Name, Symbol};
use crate::parse::events::{self, Row};
use crate::parse::texts::Texts;
use crate::reader::{CPUS_MAX, Selection, TraceInfo};
use std::collections::BTreeSet;

/// The most names of events that are listed: a text can look like a name.
const NAMES_MAX: usize = 4096;

/// Which events were seen, for [`TraceInfo::recorded`].
#[derive(Default)]
pub(super) struct Recorded {
    known: u128,
    others: BTreeSet<Name>,
    marks: Vec<&'static str>,
}

impl Recorded {
    /// An event of the table, by its position in it.
    fn known(&mut self, position: usize, row: &Row, info: &mut TraceInfo) {
        let bit = 1u128 << (position & 127);
        if self.known & bit == 0 {
            self.known |= bit;
            info.recorded.push(format!("{}:{}", row.system, row.name));
        }
    }

    /// An event by its name alone: text does not say the system.
    fn other(&mut self, name: &[u8], texts: &mut Texts, info: &mut TraceInfo) {
        if self.others.len() < NAMES_MAX {
            let name = texts.intern(name);
            if self.others.insert(name) {
                info.recorded.push(texts.names.text(name).to_owned());
            }
        }
    }

    pub(super) fn mark(&mut self, name: &'static str, info: &mut TraceInfo) {
        if !self.marks.contains(&name) {
            self.marks.push(name);
            info.recorded.push(name.to_owned());
        }
    }
}

/// The rows of the last events: a search among all names takes longer than the rest of a short line.
pub(super) struct Rows {
    recent: [Option<(usize, &'static Row)>; ROWS],
}

const ROWS: usize = 256;

impl Default for Rows {
    fn default() -> Self {
        Self { recent: [None; ROWS] }
    }
}

impl Rows {
    /// As [`events::by_name`].
    fn of(&mut self, name: &[u8]) -> Option<(usize, &'static Row)> {
        let (first, last) = (name.get(name.len() / 2)?, name.last()?);
        let place = (name.len() * 37 + usize::from(*first) * 11 + usize::from(*last) * 5) % ROWS;
        if let Some(found) = self.recent[place]
            && found.1.name.as_bytes() == name
        {
            return Some(found);
        }
        let found = events::by_name(name);
        self.recent[place] = found.or(self.recent[place]);
        found
    }
}

/// Latency traces cut commands to this.
const CUT_BYTES: usize = 8;

/// An event of `perf script` without its period and its system: `1 sched:sched_switch: …`.
fn perf_event(body: &[u8]) -> &[u8] {
    let body = match scan::number(body) {
        Some((_, rest)) if rest.starts_with(b" ") => scan::skip_spaces(rest),
        _ => body,
    };
    let end = body.iter().position(|byte| !(byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')));
    let name = end.filter(|end| body[*end] == b':').map(|end| &body[end + 1..]);
    name.filter(|name| name.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_'))
        .unwrap_or(body)
}

impl Machine {
    /// Takes a line by its prefix; `false` if it has none.
    pub(super) fn prefixed(&mut self, prefix: Option<Prefix<'_>>, offset: u64) -> bool {
        let Some(prefix) = prefix else { return false };
        self.recognised = true;
        if self.info.resolution_ns == 0 {
            self.raw_times = prefix.resolution_ns.is_none();
            self.info.resolution_ns = prefix.resolution_ns.unwrap_or(1);
        }
        self.last_ns = prefix.at_ns;
        if !self.losses.is_empty() {
            self.emit_losses(prefix.at_ns);
        }
        self.info.records += 1;
        if prefix.at_ns < self.from_ns {
            return true;
        }
        let mut body = scan::skip_spaces(prefix.rest);
        // `report --ts-diff` has the time since the line before.
        if let Some(rest) = body.strip_prefix(b"(+")
            && let Some((_, rest)) = scan::number(rest)
            && let Some(rest) = rest.strip_prefix(b")")
        {
            body = scan::skip_spaces(rest);
        }
        if prefix.style == Style::Perf {
            body = perf_event(body);
        }
        if self.selection == Selection::Wakeups && self.passed_over(body) {
            return true;
        }
        let command = self.command(&prefix);
        let place = Place { at_ns: prefix.at_ns, cpu: prefix.cpu, pid: prefix.pid, command, offset };
        if prefix.style == Style::Perf {
            self.perf = Some(place);
        }
        self.body(body, place, prefix.flags);
        true
    }

    /// The command of a line's thread. An unknown or truncated one may be in an event.
    fn command(&mut self, prefix: &Prefix<'_>) -> Option<Name> {
        let known = || {
            let name = self.texts.of_pid(prefix.pid?)?;
            Some((name, self.texts.names.text(name).as_bytes()))
        };
        match prefix.command {
            b"" | b"<...>" => known().map(|(name, _)| name),
            cut if prefix.style == Style::Latency && cut.len() >= CUT_BYTES => match known() {
                Some((name, whole)) if whole.starts_with(cut) => Some(name),
                _ => Some(self.texts.intern(cut)),
            },
            command => Some(self.texts.command(command)),
        }
    }

    /// Whether an event has nothing to do with wake-ups: by its name, before the rest of it is read.
    fn passed_over(&mut self, body: &[u8]) -> bool {
        let Some(end) = body.iter().position(|byte| matches!(byte, b':' | b' ' | b'(' | b'[')) else {
            return false;
        };
        if body[end] == b':' {
            let Some((position, row)) = self.rows.of(&body[..end]).filter(|(_, row)| !row.of_wakeups) else {
                return false;
            };
            self.recorded.known(position, row, &mut self.info);
            return true;
        }
        let function = body[end..].starts_with(b" <-");
        if function {
            self.recorded.mark("ftrace:function", &mut self.info);
        }
        function
    }

    /// The event of a line, behind its prefix.
    pub(super) fn body(&mut self, body: &[u8], place: Place, flags: &[u8]) {
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
            b"function" => return self.report_function(fields, place, flags),
            _ => {}
        }
        let found = self.rows.of(name);
        match found {
            Some((position, row)) => self.recorded.known(position, row, &mut self.info),
            None => self.recorded.other(name, &mut self.texts, &mut self.info),
        }
        let known = found.map(|(_, row)| row);
        // The name of the function shows which tracer wrote it.
        if known.is_none() && memchr::memmem::find(fields, b"stop tracing").is_some() {
            let text = self.texts.intern(scan::trim(fields));
            return self.push(place, flags, EventKind::Print { text });
        }
        if self.selection == Selection::Wakeups && !known.is_some_and(|row| row.of_wakeups) {
            return;
        }
        let mut fields = scan::trim(fields);
        // The part that `report -w` adds to a switch.
        if fields.ends_with(b" usecs")
            && let Some(end) = memchr::memmem::rfind(fields, b" Latency: ")
        {
            fields = &fields[..end];
        }
        let mut text = Text { name, fields, texts: &mut self.texts };
        let row = known.or_else(|| events::by_pattern(None, name));
        let kind = row.and_then(|row| row.text).and_then(|decode| decode(&mut text));
        let kind = kind.unwrap_or_else(|| EventKind::Other {
            system: known.map(|row| self.texts.intern(row.system.as_bytes())),
            name: self.texts.intern(name),
        });
        self.push(place, flags, kind);
    }

    /// `function:             schedule <-- worker_thread`; newer versions of trace-cmd leave the caller out and indent a
    /// function that is called by the one above it; `-R` has `ip=schedule parent_ip=worker_thread`.
    fn report_function(&mut self, fields: &[u8], place: Place, flags: &[u8]) {
        self.recorded.mark("ftrace:function", &mut self.info);
        if self.selection == Selection::Wakeups {
            return;
        }
        let body = scan::skip_spaces(fields);
        let kind = match tracer::function(body, &mut self.texts) {
            Some(kind) => Some(kind),
            None if body.starts_with(b"ip=") => {
                let mut value = |key| symbol(scan::value(body, key)?, &mut self.texts);
                value(b"ip")
                    .zip(value(b"parent_ip"))
                    .map(|(function, caller)| EventKind::Function { function, caller })
            }
            None => self.indented(fields.len() - body.len(), body, place.cpu),
        };
        if let Some(kind) = kind {
            self.push(place, flags, kind);
        }
    }

    /// A function whose caller is above it, less indented.
    fn indented(&mut self, indentation: usize, name: &[u8], cpu: u32) -> Option<EventKind> {
        let function = symbol(name, &mut self.texts)?;
        let unknown = Symbol::Address(0);
        if self.calls.len() >= CPUS_MAX && !self.calls.contains_key(&cpu) {
            return None;
        }
        let calls = self.calls.entry(cpu).or_default();
        calls.retain(|(other, _)| *other < indentation);
        let caller = calls.last().map_or(unknown, |(_, caller)| *caller);
        calls.push((indentation, function));
        Some(EventKind::Function { function, caller })
    }

    fn begin_stack(&mut self, place: Place, flags: &[u8]) {
        self.recorded.mark("ftrace:kernel_stack", &mut self.info);
        if self.selection == Selection::All {
            let frames = EventKind::Stack { frames: Frames(0) };
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
        let kind = tracer::own_switch(body, place.command, &mut self.texts)?;
        let name =
            if matches!(kind, EventKind::Switch { .. }) { "ftrace:context_switch" } else { "ftrace:wakeup" };
        self.recorded.mark(name, &mut self.info);
        Some(kind)
    }

    /// A line without a name before a colon: a call, or a system call.
    fn function_or_call(&mut self, body: &[u8], word: &[u8]) -> Option<EventKind> {
        if self.selection == Selection::Wakeups {
            return None;
        }
        if let Some(kind) = tracer::function(body, &mut self.texts) {
            self.recorded.mark("ftrace:function", &mut self.info);
            // `function (caller)`, which no later kernel prints.
            if self.info.kernel.is_none() && body.ends_with(b")") && !body.contains(&b'<') {
                self.info.kernel = Some("2.6".to_owned());
            }
            return Some(kind);
        }
        if let Some(kind) = tracer::syscall_line(body, &mut self.texts) {
            self.recorded.mark("syscalls", &mut self.info);
            return Some(kind);
        }
        // The option `noprint-parent`, and the first function of a section, whose caller is not known.
        if self.info.tracer.as_deref().is_some_and(|tracer| tracer != "nop")
            && word == scan::trim(body)
            && let Some(function) = symbol(word, &mut self.texts)
        {
            self.recorded.mark("ftrace:function", &mut self.info);
            return Some(EventKind::Function { function, caller: Symbol::Address(0) });
        }
        Some(EventKind::Other { system: None, name: self.texts.intern(word) })
    }
}
