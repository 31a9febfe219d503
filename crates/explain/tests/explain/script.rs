//! Traces written by hand, one event on each line, and the reader of them.
//!
//! `<us> <cpu> <command>-<pid> <flags> <event>`; the flags are those of a real-time kernel's text (`dnLh1.2`). The
//! events are short forms of the kernel's: see [`Script::kind`].

use std::collections::HashMap;
use whylate_core::CpuId;
use whylate_trace::event::{
    Context, Event, EventKind, Frames, Name, Names, Symbol, Task, TaskState, TimerlatContext, Vector,
};
use whylate_trace::parse::ParseError;
use whylate_trace::reader::{Reader, Selection, TraceInfo};

/// A trace in memory.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) info: TraceInfo,
    pub(crate) names: Names,
    pub(crate) texts: HashMap<Name, String>,
    pub(crate) events: Vec<Event>,
    pub(crate) stacks: Vec<Vec<Symbol>>,
    place: usize,
    selection: Option<Selection>,
}

impl Script {
    pub(crate) fn new(lines: &str) -> Self {
        let mut script =
            Self { info: TraceInfo { resolution_ns: 1000, ..TraceInfo::default() }, ..Self::default() };
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            script.line(line);
        }
        script.events.sort_by_key(|event| event.at_ns);
        script
    }

    pub(crate) fn name(&mut self, text: &str) -> Name {
        let name = self.names.intern(text);
        self.texts.insert(name, text.to_owned());
        name
    }

    fn symbol_of(&mut self, text: &str) -> Symbol {
        Symbol::Name(self.name(text))
    }

    fn line(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (command, pid) = words[2].rsplit_once('-').expect("command-pid");
        let micros: f64 = words[0].parse().expect("microseconds");
        let event = Event {
            at_ns: (micros * 1000.0).round() as u64,
            cpu: CpuId(words[1].parse().expect("a CPU")),
            pid: Some(pid.parse().expect("a pid")),
            command: Some(self.name(command)),
            context: context(words[3]),
            offset: self.events.len() as u64 * 100,
            kind: self.kind(&words[4..]),
        };
        self.events.push(event);
    }

    /// `command-pid:priority`
    fn task(&mut self, text: &str) -> Task {
        let (who, priority) = text.rsplit_once(':').expect("a priority");
        let (command, pid) = who.rsplit_once('-').expect("command-pid");
        Task {
            pid: pid.parse().expect("a pid"),
            command: self.name(command),
            priority: priority.parse().expect("a priority"),
        }
    }

    fn kind(&mut self, words: &[&str]) -> EventKind {
        let us = |text: &str| text.parse::<u64>().expect("a number") * 1000;
        match *words {
            ["switch", previous, state, ">", next] => {
                let state = match state.chars().next() {
                    Some('R') => TaskState::Runnable,
                    letter => TaskState::Blocked(letter.unwrap_or('S')),
                };
                EventKind::Switch { previous: self.task(previous), state, next: self.task(next) }
            }
            ["waking", task, cpu] => {
                EventKind::Waking { task: self.task(task), target_cpu: CpuId(cpu.parse().unwrap()) }
            }
            ["wakeup", task, cpu] => {
                EventKind::Wakeup { task: self.task(task), target_cpu: CpuId(cpu.parse().unwrap()) }
            }
            ["migrate", task, from, ">", to] => EventKind::Migrate {
                task: self.task(task),
                from_cpu: CpuId(from.parse().unwrap()),
                to_cpu: CpuId(to.parse().unwrap()),
            },
            ["pi", task, ">", new] => {
                EventKind::PriorityInherited { task: self.task(task), new_priority: new.parse().unwrap() }
            }
            ["timer_start", expires] => EventKind::TimerStart {
                timer: 1,
                function: self.symbol_of("hrtimer_wakeup"),
                expires_ns: us(expires),
            },
            ["expire", now] => EventKind::TimerExpire {
                timer: 1,
                function: self.symbol_of("hrtimer_wakeup"),
                now_ns: us(now),
            },
            ["timer_start", expires, timer, function] => EventKind::TimerStart {
                timer: timer.parse().unwrap(),
                function: self.symbol_of(function),
                expires_ns: us(expires),
            },
            ["expire", now, timer, function] => EventKind::TimerExpire {
                timer: timer.parse().unwrap(),
                function: self.symbol_of(function),
                now_ns: us(now),
            },
            ["expirex", timer] => EventKind::TimerExpireExit { timer: timer.parse().unwrap() },
            ["fn", function, "<-", caller] => {
                EventKind::Function { function: self.symbol_of(function), caller: self.symbol_of(caller) }
            }
            ["vec", name] => EventKind::VectorEntry { vector: self.vector(name) },
            ["vecx", name] => EventKind::VectorExit { vector: self.vector(name) },
            ["irq", irq, name] => EventKind::IrqEntry { irq: irq.parse().unwrap(), name: self.name(name) },
            ["irqx", irq] => EventKind::IrqExit { irq: irq.parse().unwrap() },
            ["softirq", vector] => EventKind::SoftirqEntry { vector: vector.parse().unwrap() },
            ["softirqx", vector] => EventKind::SoftirqExit { vector: vector.parse().unwrap() },
            _ => self.section_or_other(words),
        }
    }

    fn section_or_other(&mut self, words: &[&str]) -> EventKind {
        match *words {
            ["irqs_off", caller, "<-", parent] => {
                EventKind::IrqsOff { caller: self.symbol_of(caller), parent: self.symbol_of(parent) }
            }
            ["irqs_on", caller, "<-", parent] => {
                EventKind::IrqsOn { caller: self.symbol_of(caller), parent: self.symbol_of(parent) }
            }
            ["preempt_off", caller, "<-", parent] => {
                EventKind::PreemptOff { caller: self.symbol_of(caller), parent: self.symbol_of(parent) }
            }
            ["preempt_on", caller, "<-", parent] => {
                EventKind::PreemptOn { caller: self.symbol_of(caller), parent: self.symbol_of(parent) }
            }
            ["csd", function] => EventKind::RemoteFunctionEntry { function: self.symbol_of(function) },
            ["csdx", function] => EventKind::RemoteFunctionExit { function: self.symbol_of(function) },
            ["idle", "-"] => EventKind::Idle { state: None },
            ["idle", state] => EventKind::Idle { state: Some(state.parse().unwrap()) },
            ["lock"] => EventKind::LockWait { lock: 7, flags: 0 },
            ["lockx"] => EventKind::LockWaitEnd { lock: 7 },
            ["fault"] => EventKind::PageFault { address: 0x1000, instruction: 0x2000, user: true },
            ["stack", ref frames @ ..] => {
                let stack = frames.iter().map(|frame| self.symbol_of(frame)).collect();
                self.stacks.push(stack);
                EventKind::Stack { frames: Frames(self.stacks.len() as u32 - 1) }
            }
            ["print", ref rest @ ..] => EventKind::Print { text: self.name(&rest.join(" ")) },
            ["lost", events] => EventKind::Lost { events: Some(events.parse().unwrap()) },
            ["timerlat", context, sequence, latency] => EventKind::Timerlat {
                sequence: sequence.parse().unwrap(),
                context: if context == "irq" { TimerlatContext::Irq } else { TimerlatContext::Thread },
                latency_ns: latency.parse::<u64>().unwrap() * 1000,
            },
            ["gap", start, duration, interference] => EventKind::NoiseGap {
                start_ns: start.parse::<u64>().unwrap() * 1000,
                duration_ns: duration.parse::<u64>().unwrap() * 1000,
                interference: interference.parse().unwrap(),
            },
            ["hwlat", inner, outer] => EventKind::Hwlat {
                sequence: 1,
                inner_ns: inner.parse::<u64>().unwrap() * 1000,
                outer_ns: outer.parse::<u64>().unwrap() * 1000,
                count: Some(1),
                nmi_ns: None,
                nmi_count: None,
                wall_ns: None,
            },
            _ => panic!("no such event: {words:?}"),
        }
    }

    fn vector(&mut self, name: &str) -> Vector {
        match name {
            "local_timer" => Vector::LocalTimer,
            "reschedule" => Vector::Reschedule,
            "call_function" => Vector::CallFunction,
            other => Vector::Other(self.name(other)),
        }
    }
}

fn context(flags: &str) -> Context {
    let flags: Vec<char> = flags.chars().collect();
    if flags.len() < 7 {
        return Context::default();
    }
    let digit = |c: char| Some(c.to_digit(16).unwrap_or(0) as u8);
    Context {
        irqs_off: Some(flags[0] == 'd'),
        need_resched: flags[1] == 'n',
        need_resched_lazy: flags[2] == 'L',
        hard_irq: matches!(flags[3], 'h' | 'H'),
        softirq: matches!(flags[3], 's' | 'H'),
        nmi: matches!(flags[3], 'z' | 'Z'),
        preempt_depth: digit(flags[4]),
        migrate_disable: digit(flags[6]),
    }
}

impl Reader for Script {
    fn info(&self) -> &TraceInfo {
        &self.info
    }

    fn names(&self) -> &Names {
        &self.names
    }

    fn seek(&mut self, from_ns: Option<u64>, selection: Selection) -> Result<(), ParseError> {
        self.place = self.events.partition_point(|event| Some(event.at_ns) < from_ns);
        self.selection = Some(selection);
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Event>, ParseError> {
        while let Some(event) = self.events.get(self.place) {
            self.place += 1;
            // The events that show late wake-ups, as in the readers.
            let wanted = self.selection != Some(Selection::Wakeups)
                || matches!(
                    event.kind,
                    EventKind::Switch { .. }
                        | EventKind::Waking { .. }
                        | EventKind::Wakeup { .. }
                        | EventKind::TimerStart { .. }
                        | EventKind::TimerExpire { .. }
                        | EventKind::Print { .. }
                        | EventKind::Timerlat { .. }
                        | EventKind::Hwlat { .. }
                        | EventKind::NoiseGap { .. }
                        | EventKind::Lost { .. }
                );
            if wanted {
                return Ok(Some(*event));
            }
        }
        Ok(None)
    }

    fn symbol(&self, symbol: Symbol) -> Option<(&str, u64)> {
        match symbol {
            Symbol::Name(name) => self.texts.get(&name).map(|text| (text.as_str(), 0)),
            Symbol::Address(_) => None,
        }
    }

    fn frames(&self, frames: Frames) -> &[Symbol] {
        self.stacks.get(frames.0 as usize).map_or(&[], Vec::as_slice)
    }
}
