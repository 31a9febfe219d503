//! Lines with a prefix: what stands behind it.

use super::fields::Text;
use super::machine::{Machine, Place};
use super::prefix::Prefix;
use super::stack::Pending;
use super::{scan, tracer};
use crate::event::{EventKind, Frames, Name};
use crate::parse::events::{self, Row};
use crate::parse::texts::Texts;
use crate::reader::{Selection, TraceInfo};
use std::collections::BTreeSet;

/// Names of events beyond which they are not listed: what looks like a name can be a text.
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

    /// A line of a tracer.
    pub(super) fn mark(&mut self, name: &'static str, info: &mut TraceInfo) {
        if !self.marks.contains(&name) {
            self.marks.push(name);
            info.recorded.push(name.to_owned());
        }
    }
}

impl Machine {
    /// Takes a line by its prefix; `false` when it has none.
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
        if prefix.at_ns < self.from_ns {
            return true;
        }
        let body = scan::skip_spaces(prefix.rest);
        if self.selection == Selection::Wakeups && memchr::memmem::find(body, b" <-").is_some() {
            self.recorded.mark("ftrace:function", &mut self.info);
            return true;
        }
        let command = match prefix.command {
            b"" | b"<...>" => None,
            command => Some(self.texts.intern(command)),
        };
        let place = Place { at_ns: prefix.at_ns, cpu: prefix.cpu, pid: Some(prefix.pid), command, offset };
        self.body(body, place, prefix.flags);
        true
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
            _ => {}
        }
        let found = events::by_name(name);
        match found {
            Some((position, row)) => self.recorded.known(position, row, &mut self.info),
            None => self.recorded.other(name, &mut self.texts, &mut self.info),
        }
        let known = found.map(|(_, row)| row);
        if self.selection == Selection::Wakeups && !known.is_some_and(|row| row.of_wakeups) {
            return;
        }
        let mut text = Text { name, fields: scan::trim(fields), texts: &mut self.texts };
        let row = known.or_else(|| events::by_pattern(None, name));
        let kind = row.and_then(|row| row.text).and_then(|decode| decode(&mut text));
        let kind = kind.unwrap_or_else(|| EventKind::Other {
            system: known.map(|row| self.texts.intern(row.system.as_bytes())),
            name: self.texts.intern(name),
        });
        self.push(place, flags, kind);
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
        if let Some(kind) = tracer::function(body, &mut self.texts) {
            self.recorded.mark("ftrace:function", &mut self.info);
            return Some(kind);
        }
        if self.selection == Selection::Wakeups {
            return None;
        }
        if let Some(kind) = tracer::syscall_line(body, &mut self.texts) {
            self.recorded.mark("syscalls", &mut self.info);
            return Some(kind);
        }
        Some(EventKind::Other { system: None, name: self.texts.intern(word) })
    }
}
