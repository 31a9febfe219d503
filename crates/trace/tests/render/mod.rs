//! Events as text with their names, for goldens.

use std::fmt::Write;
use whylate_trace::event::{Event, EventKind};
use whylate_trace::reader::Reader;

/// The debug output of `kind`, with texts in place of the numbers of names.
pub(crate) fn kind(kind: &EventKind, reader: &dyn Reader) -> String {
    let debug = format!("{kind:?}");
    let mut rendered = String::new();
    let mut rest = debug.as_str();
    while let Some((before, after)) = rest.split_once("Name(") {
        // A symbol's name is a name in a name.
        let symbol = after.strip_prefix("Name(");
        let (number, after) = symbol.unwrap_or(after).split_once(')').expect("it is closed");
        let after = if symbol.is_some() { after.strip_prefix(')').expect("it is closed") } else { after };
        let wanted = format!("Name({number})");
        let name = reader.names().iter().find(|(name, _)| format!("{name:?}") == wanted);
        let _ = write!(rendered, "{before}{:?}", name.map_or("?", |(_, text)| text));
        rest = after;
    }
    rendered + rest
}

/// A line for an event: offset, time, CPU, task, context, kind, stack.
#[allow(dead_code, reason = "not all tests need it")]
pub(crate) fn event(event: &Event, reader: &dyn Reader) -> String {
    let command = event.command.map_or("-", |name| reader.names().text(name));
    let pid = event.pid.map_or("-".to_owned(), |pid| pid.to_string());
    let context = event.context;
    let mut flags = String::new();
    for (set, letter) in [
        (context.irqs_off == Some(true), 'd'),
        (context.need_resched, 'n'),
        (context.need_resched_lazy, 'l'),
        (context.hard_irq, 'h'),
        (context.softirq, 's'),
        (context.nmi, 'z'),
    ] {
        if set {
            flags.push(letter);
        }
    }
    let depth = |depth: Option<u8>| depth.map_or("-".to_owned(), |depth| depth.to_string());
    let (preempt, migrate) = (depth(context.preempt_depth), depth(context.migrate_disable));
    let text = kind(&event.kind, reader);
    let mut line = format!(
        "{} {} [{}] {command}:{pid} {flags}/{preempt}/{migrate} {text}",
        event.offset, event.at_ns, event.cpu
    );
    if let EventKind::Stack { frames } = event.kind {
        for frame in reader.frames(frames) {
            let _ = match reader.symbol(*frame) {
                Some((name, _)) => write!(line, " < {name}"),
                None => write!(line, " < {frame:?}"),
            };
        }
    }
    line
}
