//! Lines of the function-graph tracer.

use super::{Machine, Place, Shape};
use crate::event::EventKind;
use crate::parse::text::{graph, scan};
use crate::reader::Selection;

impl Machine {
    /// A line of the function-graph tracer.
    pub(super) fn graph(&mut self, line: &[u8], offset: u64) -> bool {
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
    pub(super) fn graph_event(&mut self, fields: &[u8], place: Place, flags: &[u8]) {
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
