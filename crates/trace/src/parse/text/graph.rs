//! Lines of the function-graph tracer: ` 0) + 10.357 us   |    }  /* foo */`, with or without the time, the task and the
//! flags before the duration.
//!
//! A function that was entered before the trace has only a line for its end; with the `funcgraph-tail` option it has a name
//! there, without it the line is skipped. If lines have no time (an option, off by default), the time of a CPU is the sum of
//! the durations of its lines.

use super::fields::symbol;
use super::machine::{Machine, Place};
use super::scan;
use crate::event::{EventKind, Name, Symbol};
use crate::parse::texts::Texts;
use crate::reader::{CPUS_MAX, Selection};
use std::collections::BTreeMap;

/// Depth beyond which calls are not followed: the kernel's own limit is 50.
const DEPTH_MAX: usize = 256;

/// A line, cut into its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns<'a> {
    pub(super) at_ns: Option<u64>,
    pub(super) cpu: u32,
    pub(super) task: Option<(&'a [u8], u32)>,
    pub(super) flags: &'a [u8],
    pub(super) duration_ns: Option<u64>,
    /// The text after the duration, with the spaces that show the depth.
    pub(super) text: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call<'a> {
    /// `foo() {`
    Entry { function: Symbol, depth: u32 },
    /// `foo();`
    Leaf { function: Symbol, depth: u32 },
    /// `}`
    Exit { function: Symbol, depth: u32, entry_ns: Option<u64> },
    /// `/* sched_switch: … */`: an event, or a marker.
    Comment(&'a [u8]),
}

/// The state of a CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct Cpu {
    /// The functions that run and when each began, by depth.
    functions: Vec<Option<(Symbol, u64)>>,
    /// The task in the last line that had one.
    pub(super) task: Option<(Name, u32)>,
    /// The time so far, if lines have none.
    pub(super) at_ns: u64,
}

/// The state of all CPUs.
#[derive(Clone, Debug, Default)]
pub(super) struct Cpus(BTreeMap<u32, Cpu>);

impl Cpus {
    /// The state of a CPU; `None` if there are too many (a damaged file).
    pub(super) fn of(&mut self, cpu: u32) -> Option<&mut Cpu> {
        if self.0.len() >= CPUS_MAX && !self.0.contains_key(&cpu) {
            return None;
        }
        Some(self.0.entry(cpu).or_default())
    }
}

/// `0.488 us`, `+ 10.357 us`, `! 1234567 us`.
pub(super) fn duration(column: &[u8]) -> Option<u64> {
    let column = match column {
        [b'+' | b'!' | b'#' | b'*' | b'@' | b'$', rest @ ..] => scan::skip_spaces(rest),
        _ => column,
    };
    let (value, digits, rest) = scan::seconds(column)?;
    if scan::trim(rest) != b"us" {
        return None;
    }
    // Read as seconds it is a million times as long; without fraction it is the microseconds themselves.
    if digits == 0 { value.checked_mul(1000) } else { Some(value / 1_000_000) }
}

/// Cuts a line into its columns; `None` if it is not one of this tracer.
pub(super) fn columns(line: &[u8]) -> Option<Columns<'_>> {
    let mut rest = scan::skip_spaces(line);
    let mut at_ns = None;
    if let Some((time, digits, after)) = scan::seconds(rest)
        && digits > 0
        && let Some(after) = scan::skip_spaces(after).strip_prefix(b"|")
    {
        at_ns = Some(time);
        rest = scan::skip_spaces(after);
    }
    let (mut cpu, mut after) = scan::number(rest)?;
    // The time since the start of a latency trace.
    if let Some(next) = scan::skip_spaces(after).strip_prefix(b"us")
        && let Some(next) = scan::skip_spaces(next).strip_prefix(b"|")
    {
        at_ns = Some(cpu.checked_mul(1000)?);
        (cpu, after) = scan::number(scan::skip_spaces(next))?;
    }
    rest = after.strip_prefix(b")")?;
    let mut columns =
        Columns { at_ns, cpu: cpu.try_into().ok()?, task: None, flags: &[], duration_ns: None, text: &[] };
    // Task and flags, in this order, then the duration or the space for it.
    for _ in 0..3 {
        let bar = memchr::memchr(b'|', rest)?;
        let column = scan::trim(&rest[..bar]);
        columns.text = &rest[bar + 1..];
        if column.is_empty() || column.ends_with(b">") || column.starts_with(b"<=") {
            return Some(columns);
        }
        if let Some(duration_ns) = duration(column) {
            columns.duration_ns = Some(duration_ns);
            return Some(columns);
        }
        if super::columns::are_flags(column) {
            columns.flags = column;
        } else {
            let (command, pid) = scan::split_last(column, b'-')?;
            columns.task = Some((scan::trim(command), scan::whole_u32(pid)?));
        }
        rest = columns.text;
    }
    None
}

/// ` 0)  cyclict-123  =>   <idle>-0   `: the CPU, and the task that runs from now on.
pub(super) fn task_change(line: &[u8]) -> Option<(u32, &[u8], u32)> {
    let (cpu, rest) = scan::number(scan::skip_spaces(line))?;
    let (_, next) = scan::split(rest.strip_prefix(b")")?, b" => ")?;
    let (command, pid) = scan::split_last(scan::trim(next), b'-')?;
    Some((cpu.try_into().ok()?, scan::trim(command), scan::whole_u32(pid)?))
}

/// The name in what stands behind a function's end: `/* foo */`, `/* foo ret=0x0 */`; a bare return value is not a name.
fn tail(text: &[u8]) -> Option<&[u8]> {
    let (name, _) = scan::token(scan::skip_spaces(text.strip_prefix(b"/*")?));
    let first = *name.first()?;
    let is_name = (first.is_ascii_alphabetic() || first == b'_') && memchr::memchr(b'=', name).is_none();
    is_name.then_some(name)
}

/// The event of a line, from its indentation and the calls so far; `at_ns` is the time of the line. `None` if it is not an
/// event: the end of a function without a name, an arrow at an interrupt.
pub(super) fn call<'a>(text: &'a [u8], at_ns: u64, cpu: &mut Cpu, texts: &mut Texts) -> Option<Call<'a>> {
    let body = scan::skip_spaces(text);
    let depth = (text.len() - body.len()).saturating_sub(2) / 2;
    let body = scan::trim_end(body);
    if let Some(comment) = body.strip_prefix(b"/*") {
        return Some(Call::Comment(scan::trim(comment.strip_suffix(b"*/")?)));
    }
    if body.is_empty() || depth >= DEPTH_MAX {
        return None;
    }
    if let Some(after) = body.strip_prefix(b"}") {
        let known = cpu.functions.get_mut(depth).and_then(Option::take);
        cpu.functions.truncate(depth);
        let function = tail(scan::skip_spaces(after)).and_then(|name| symbol(name, texts));
        // The name of another function: calls of the one that began here are missing.
        let known = known.filter(|(known, _)| function.is_none_or(|function| function == *known));
        let entry_ns = known.map(|(_, entry_ns)| entry_ns);
        let function = function.or(known.map(|(known, _)| known));
        return function.map(|function| Call::Exit { function, depth: depth as u32, entry_ns });
    }
    let (name, after) = scan::split(body, b"(")?;
    let function = symbol(name, texts)?;
    // Return values and comments stand behind the mark.
    let after = scan::split(after, b" /*").map_or(after, |(code, _)| scan::trim_end(code));
    let depth_name = depth as u32;
    if after.ends_with(b"{") {
        if cpu.functions.len() <= depth {
            cpu.functions.resize(depth + 1, None);
        }
        cpu.functions.truncate(depth + 1);
        cpu.functions[depth] = Some((function, at_ns));
        return Some(Call::Entry { function, depth: depth_name });
    }
    after.ends_with(b";").then_some(Call::Leaf { function, depth: depth_name })
}

impl Machine {
    /// A line of the function-graph tracer.
    pub(super) fn graph(&mut self, line: &[u8], offset: u64) -> bool {
        let Some(columns) = columns(line) else { return false };
        let task = columns.task.map(|(command, pid)| (self.texts.intern(command), pid));
        let Some(cpu) = self.graph.of(columns.cpu) else { return false };
        cpu.task = task.or(cpu.task);
        let at_ns = columns.at_ns.unwrap_or(cpu.at_ns);
        self.recognised = true;
        self.info.records += 1;
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
            let duration_ns = duration(scan::trim(&fields[..bar]));
            self.graph_call(&fields[bar + 1..], duration_ns, place, flags);
        }
    }

    fn graph_call(&mut self, text: &[u8], duration_ns: Option<u64>, mut place: Place, flags: &[u8]) {
        self.last_ns = place.at_ns;
        self.emit_losses(place.at_ns);
        let Some(cpu) = self.graph.of(place.cpu) else { return };
        let call = call(text, place.at_ns, cpu, &mut self.texts);
        // The clock of a CPU whose lines have no time.
        let duration = duration_ns.unwrap_or(0);
        cpu.at_ns = match call {
            Some(Call::Leaf { .. }) => place.at_ns.saturating_add(duration),
            Some(Call::Exit { entry_ns: Some(entry_ns), .. }) => {
                place.at_ns.max(entry_ns.saturating_add(duration))
            }
            _ => place.at_ns,
        };
        if self.summed_times && matches!(call, Some(Call::Exit { .. })) {
            place.at_ns = cpu.at_ns;
        }
        self.emit_call(call, duration_ns, place, flags);
    }

    fn emit_call(&mut self, call: Option<Call<'_>>, duration_ns: Option<u64>, place: Place, flags: &[u8]) {
        if let Some(Call::Comment(comment)) = call {
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
            Some(Call::Entry { function, depth }) => {
                self.push(place, flags, EventKind::GraphEntry { function, depth });
            }
            Some(Call::Leaf { function, depth }) => {
                self.push(place, flags, EventKind::GraphEntry { function, depth });
                let duration_ns = duration_ns.unwrap_or(0);
                let at_ns = place.at_ns.saturating_add(duration_ns);
                let exit = EventKind::GraphExit { function, depth, duration_ns };
                let event = self.make(Place { at_ns, ..place }, flags, exit);
                self.later.insert((at_ns, place.offset), event);
            }
            Some(Call::Exit { function, depth, entry_ns }) => {
                let since_entry = entry_ns.map(|entry_ns| place.at_ns.saturating_sub(entry_ns));
                if let Some(duration_ns) = duration_ns.or(since_entry) {
                    self.push(place, flags, EventKind::GraphExit { function, depth, duration_ns });
                }
            }
            Some(Call::Comment(_)) | None => {}
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_with_all_options() {
        let found = columns(b" 11) + 10.357 us   |  foo();").expect("a line");
        assert_eq!((found.cpu, found.duration_ns, found.text), (11, Some(10_357), &b"  foo();"[..]));
        let found = columns(b"   37.123456 |   0)   bash-12   |  d..1. |               |  sys_open() {")
            .expect("a line");
        assert_eq!(found.at_ns, Some(37_123_456_000));
        assert_eq!(found.task, Some((&b"bash"[..], 12)));
        assert_eq!((found.flags, found.duration_ns), (&b"d..1."[..], None));
        assert_eq!(found.text, b"  sys_open() {");
        let found = columns(b" 1)   ==========> |").expect("a line");
        assert_eq!(found.text, b"");
        assert_eq!(
            columns(b" 0) $ 1234567 us |  } /* foo */").expect("a line").duration_ns,
            Some(1_234_567_000)
        );
        assert_eq!(columns(b" => foo"), None);
        assert_eq!(columns(b" 0) nonsense"), None);
    }

    #[test]
    fn calls_know_their_function_at_the_end() {
        let (mut cpu, mut texts) = (Cpu::default(), Texts::default());
        let name = |text: &str, texts: &mut Texts| Symbol::Name(texts.intern(text.as_bytes()));
        let (outer, inner) = (name("outer", &mut texts), name("inner", &mut texts));
        let mut call = |text: &'static str| call(text.as_bytes(), 5, &mut cpu, &mut texts);
        assert_eq!(call("  outer() {"), Some(Call::Entry { function: outer, depth: 0 }));
        assert_eq!(
            call("    inner [module](a=1); /* = 0x0 */"),
            Some(Call::Leaf { function: inner, depth: 1 })
        );
        assert_eq!(call("    inner() {"), Some(Call::Entry { function: inner, depth: 1 }));
        assert_eq!(call("      /* print: { */"), Some(Call::Comment(b"print: {")));
        assert_eq!(
            call("    } /* ret=0x0 */"),
            Some(Call::Exit { function: inner, depth: 1, entry_ns: Some(5) })
        );
        assert_eq!(call("  }"), Some(Call::Exit { function: outer, depth: 0, entry_ns: Some(5) }));
        assert_eq!(call("  }"), None);
        assert_eq!(call("  } /* outer */"), Some(Call::Exit { function: outer, depth: 0, entry_ns: None }));
    }

    #[test]
    fn tasks_change() {
        assert_eq!(task_change(b" 0)  cyclict-123  =>   <idle>-0   "), Some((0, &b"<idle>"[..], 0)));
        assert_eq!(task_change(b" ------------------------------------------"), None);
    }
}
