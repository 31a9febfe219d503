//! The windows of spikes for other tools: a trace in the JSON format that ui.perfetto.dev and chrome://tracing
//! open, or the events as text in the form of the kernel's trace files.

use crate::describe;
use crate::find::late::{Late, LateKind};
use crate::states::stacks::{FunctionId, PathId};
use crate::states::state::{Level, Span};
use crate::states::{self, States};
use crate::vocabulary;
use crate::window::{self, Window};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use whylate_core::result::ExplainedSpike;
use whylate_trace::event::EventKind;
use whylate_trace::parse::ParseError;
use whylate_trace::reader::Reader;

/// Process number of the spikes themselves; CPUs have theirs from 1.
const SPIKES_PROCESS: u64 = 1_000_000;
const THREAD_ROW: u64 = 1;
const INTERRUPT_ROW: u64 = 2;
const FUNCTION_ROW: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Export {
    Perfetto,
    Text,
}

/// The windows of `spikes`, which were found in the trace of `reader`.
pub fn export(
    reader: &mut dyn Reader,
    spikes: &[ExplainedSpike],
    form: Export,
) -> Result<String, ParseError> {
    let mut ordered: Vec<&ExplainedSpike> = spikes.iter().collect();
    ordered.sort_by_key(|spike| spike.expected_ns);
    let mut perfetto = Perfetto::default();
    let mut text =
        String::from("# tracer: nop\n#\n#           TASK-PID     CPU#  |||||||  TIMESTAMP  FUNCTION\n");
    let mut shown = None;
    for spike in ordered {
        let window = window_of(reader, spike)?;
        let reader: &dyn Reader = reader;
        match form {
            Export::Perfetto => perfetto.window(&window, spike, reader, shown),
            Export::Text => {
                for event in window.events.iter().filter(|event| shown.is_none_or(|at| event.at_ns > at)) {
                    text.push_str(&describe::line(event, reader));
                    text.push('\n');
                }
            }
        }
        shown = shown.max(window.events.last().map(|event| event.at_ns));
    }
    Ok(match form {
        Export::Text => text,
        Export::Perfetto => json!({ "displayTimeUnit": "ns", "traceEvents": perfetto.finish() }).to_string(),
    })
}

/// Adds the latency again before it, and the time after it that the explanation reads.
fn window_of(reader: &mut dyn Reader, spike: &ExplainedSpike) -> Result<Window, ParseError> {
    let since_ns = spike.expected_ns.saturating_sub(spike.latency_ns);
    let (expected_ns, from) = (spike.expected_ns, spike.expected_from);
    let late = Late::new(spike.cpu, expected_ns, spike.actual_ns, from, LateKind::Wakeup);
    window::read(reader, &Late { pid: spike.pid, since_ns, ..late })
}

#[derive(Default)]
struct Perfetto {
    events: Vec<Value>,
    cpus: BTreeSet<u32>,
}

impl Perfetto {
    fn window(&mut self, window: &Window, spike: &ExplainedSpike, reader: &dyn Reader, shown: Option<u64>) {
        let states = states::sweep(window, reader);
        let fresh = |at: u64| shown.is_none_or(|shown| at > shown);
        for (cpu, spans) in &states.spans {
            self.cpus.insert(cpu.0);
            let process = u64::from(cpu.0) + 1;
            let spans: Vec<Span> = spans.iter().filter(|span| fresh(span.from)).copied().collect();
            self.rows(process, &spans, window, &states, reader);
            self.functions(process, &spans, &states);
        }
        for event in window.events.iter().filter(|event| fresh(event.at_ns)) {
            let shown = matches!(
                event.kind,
                EventKind::Waking { .. }
                    | EventKind::Wakeup { .. }
                    | EventKind::TimerExpire { .. }
                    | EventKind::TimerStart { .. }
                    | EventKind::Print { .. }
                    | EventKind::Lost { .. }
                    | EventKind::Migrate { .. }
                    | EventKind::IpiSend { .. }
                    | EventKind::PageFault { .. }
            );
            if shown {
                let text = describe::event(event, reader);
                let name = text.split([':', '=']).next().unwrap_or("event").to_owned();
                self.events.push(json!({
                    "ph": "i", "s": "t", "name": name, "ts": microseconds(event.at_ns),
                    "pid": u64::from(event.cpu.0) + 1, "tid": THREAD_ROW, "args": { "event": text },
                }));
            }
        }
        self.spike(spike);
    }

    fn rows(&mut self, process: u64, spans: &[Span], window: &Window, states: &States, reader: &dyn Reader) {
        let thread = |span: &Span| {
            let command = span.state.pid.and_then(|pid| window.commands.get(&pid));
            match (span.state.pid, command) {
                (Some(0), _) => "idle".to_owned(),
                (Some(pid), Some(name)) => format!("{}-{pid}", reader.names().text(*name)),
                (Some(pid), None) => format!("thread {pid}"),
                (None, _) => "unknown".to_owned(),
            }
        };
        let above = |span: &Span| match span.state.level {
            Level::Thread => None,
            Level::Softirq(vector) => Some(vocabulary::softirq(vector)),
            Level::HardIrq(label) => Some(states.labels[label].text.clone()),
            Level::Nmi => Some(vocabulary::NMI.to_owned()),
        };
        self.joined(process, THREAD_ROW, spans, |span| Some(thread(span)));
        self.joined(process, INTERRUPT_ROW, spans, above);
    }

    /// One slice for neighbours of the same name.
    fn joined(&mut self, process: u64, row: u64, spans: &[Span], name: impl Fn(&Span) -> Option<String>) {
        let is_same = |one: &Span, next: &Span| one.to == next.from && name(one) == name(next);
        for part in spans.chunk_by(is_same) {
            if let ([first, ..], [.., last], Some(name)) = (part, part, name(&part[0])) {
                self.slice(process, row, &name, first.from, last.to, &Value::Null);
            }
        }
    }

    fn functions(&mut self, process: u64, spans: &[Span], states: &States) {
        let mut open: Vec<(FunctionId, u64)> = Vec::new();
        let mut end = 0;
        for span in spans {
            let mut chain: Vec<FunctionId> = states.paths.functions(span.state.path).collect();
            chain.reverse();
            if span.state.path == PathId::ROOT || span.state.user {
                chain.clear();
            }
            let kept = open.iter().zip(&chain).take_while(|((open, _), next)| open == *next).count();
            for (function, from) in open.drain(kept..).rev() {
                self.slice(
                    process,
                    FUNCTION_ROW,
                    states.functions.name(function),
                    from,
                    span.from,
                    &Value::Null,
                );
            }
            open.extend(chain[kept..].iter().map(|function| (*function, span.from)));
            end = span.to;
        }
        for (function, from) in open.drain(..).rev() {
            self.slice(process, FUNCTION_ROW, states.functions.name(function), from, end, &Value::Null);
        }
    }

    fn slice(&mut self, process: u64, row: u64, name: &str, from: u64, to: u64, arguments: &Value) {
        let mut event = json!({
            "ph": "X", "name": name, "ts": microseconds(from),
            "dur": microseconds(to.saturating_sub(from)), "pid": process, "tid": row,
        });
        if !arguments.is_null() {
            event["args"] = arguments.clone();
        }
        self.events.push(event);
    }

    /// The spike and its timeline, on a process of their own.
    fn spike(&mut self, spike: &ExplainedSpike) {
        let cause = serde_json::to_value(&spike.cause).unwrap_or(Value::Null);
        let name = format!("{} is late", spike.task);
        self.slice(SPIKES_PROCESS, 1, &name, spike.expected_ns, spike.actual_ns, &json!({ "cause": cause }));
        for segment in &spike.timeline {
            let arguments = json!({ "kind": segment.kind, "function": segment.function, "cpu": segment.cpu });
            self.slice(SPIKES_PROCESS, 2, &segment.what, segment.from_ns, segment.to_ns, &arguments);
        }
    }

    /// The names of the rows come first.
    fn finish(self) -> Vec<Value> {
        let named = |what: &str, pid: u64, tid: u64, name: &str| json!({ "ph": "M", "name": what, "pid": pid, "tid": tid, "args": { "name": name } });
        let mut events = vec![
            named("process_name", SPIKES_PROCESS, 0, "spikes"),
            named("thread_name", SPIKES_PROCESS, 1, "late"),
            named("thread_name", SPIKES_PROCESS, 2, "what happened"),
        ];
        for cpu in &self.cpus {
            let process = u64::from(*cpu) + 1;
            events.push(named("process_name", process, 0, &format!("CPU {cpu}")));
            for (row, name) in
                [(THREAD_ROW, "threads"), (INTERRUPT_ROW, "interrupts"), (FUNCTION_ROW, "functions")]
            {
                events.push(named("thread_name", process, row, name));
            }
        }
        events.extend(self.events);
        events
    }
}

/// The format's unit. Doubles hold nanoseconds of a machine that is up for weeks.
fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1000.0
}
