//! Lines with a prefix: what stands behind it.

use super::{Machine, Place, Shape};
use crate::event::{EventKind, Frames};
use crate::parse::text::events::{self, Text, tracer};
use crate::parse::text::prefix::{self, Prefix};
use crate::parse::text::scan;
use crate::parse::text::stack::Pending;
use crate::reader::Selection;

impl Machine {
    pub(super) fn usual(&mut self, line: &[u8], offset: u64) -> bool {
        let Some(prefix) = self.prefixes.usual(line) else { return false };
        self.shape = Shape::Usual;
        self.prefixed(prefix, offset);
        true
    }

    pub(super) fn latency(&mut self, line: &[u8], offset: u64) -> bool {
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
}
