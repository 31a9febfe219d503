//! Events as text: for evidence and for `--export text`. The form is that of the kernel's own trace files, so that other
//! tools can read it, too. Fields that the event model does not keep are missing.

use crate::vocabulary;
use whylate_core::order::InOrder;
use whylate_core::result::{CauseKind, TimelineSegment};
use whylate_trace::event::{
    Context, Event, EventKind, NoiseSource, Symbol, Task, TaskState, TimerlatContext, Vector,
};
use whylate_trace::reader::Reader;

/// The most segments of a timeline; beyond that the shortest are joined to their neighbours.
const SEGMENTS_MAX: usize = 400;

/// The event and its fields, as after the timestamp of a trace line.
pub(crate) fn event(event: &Event, reader: &dyn Reader) -> String {
    let name = |name| reader.names().text(name);
    let at = |function: Symbol| symbol(function, reader);
    match event.kind {
        EventKind::Switch { .. }
        | EventKind::Waking { .. }
        | EventKind::Wakeup { .. }
        | EventKind::Migrate { .. }
        | EventKind::PriorityInherited { .. } => scheduler(event, reader),
        EventKind::TimerStart { timer, function, expires_ns } => {
            format!("hrtimer_start: hrtimer={timer:#x} function={} expires={expires_ns}", at(function))
        }
        EventKind::TimerCancel { timer } => format!("hrtimer_cancel: hrtimer={timer:#x}"),
        EventKind::TimerExpire { timer, function, now_ns } => {
            format!("hrtimer_expire_entry: hrtimer={timer:#x} function={} now={now_ns}", at(function))
        }
        EventKind::TimerExpireExit { timer } => format!("hrtimer_expire_exit: hrtimer={timer:#x}"),
        EventKind::WheelExpire { timer, function } => {
            format!("timer_expire_entry: timer={timer:#x} function={}", at(function))
        }
        EventKind::WheelExpireExit { timer } => format!("timer_expire_exit: timer={timer:#x}"),
        EventKind::WorkBegin { work, function } => {
            format!("workqueue_execute_start: work struct {work:#x}: function {}", at(function))
        }
        EventKind::WorkEnd { work } => format!("workqueue_execute_end: work struct {work:#x}"),
        EventKind::Function { function, caller: Symbol::Address(0) } => at(function),
        EventKind::Function { function, caller } => format!("{} <-{}", at(function), at(caller)),
        EventKind::GraphEntry { function, .. } => format!("funcgraph_entry: func={}", at(function)),
        EventKind::GraphExit { function, duration_ns, .. } => {
            format!("funcgraph_exit: func={} duration_ns={duration_ns}", at(function))
        }
        EventKind::IrqsOff { caller, parent } => {
            format!("irq_disable: caller={} parent={}", at(caller), at(parent))
        }
        EventKind::IrqsOn { caller, parent } => {
            format!("irq_enable: caller={} parent={}", at(caller), at(parent))
        }
        EventKind::PreemptOff { caller, parent } => {
            format!("preempt_disable: caller={} parent={}", at(caller), at(parent))
        }
        EventKind::PreemptOn { caller, parent } => {
            format!("preempt_enable: caller={} parent={}", at(caller), at(parent))
        }
        EventKind::Stack { frames } => {
            let frames: Vec<String> = reader.frames(frames).iter().map(|frame| at(*frame)).collect();
            format!("<stack trace> {}", frames.join(" <- "))
        }
        EventKind::Print { text } => format!("tracing_mark_write: {}", name(text).trim_end()),
        EventKind::Other { name: other, .. } => format!("{}:", name(other)),
        EventKind::Lost { events } => match events {
            Some(events) => format!("LOST {events} EVENTS"),
            None => "LOST EVENTS".to_owned(),
        },
        _ => tracers(event, reader),
    }
}

/// A function's name, or its address if the name is not known.
pub(crate) fn symbol(symbol: Symbol, reader: &dyn Reader) -> String {
    match (reader.symbol(symbol), symbol) {
        (Some((name, _)), _) => name.to_owned(),
        (None, Symbol::Address(address)) => format!("{address:#x}"),
        (None, Symbol::Name(name)) => reader.names().text(name).to_owned(),
    }
}

fn scheduler(event: &Event, reader: &dyn Reader) -> String {
    let name = |task: Task| reader.names().text(task.command).to_owned();
    let woken = |what: &str, task: Task, cpu: u32| {
        format!("{what}: comm={} pid={} prio={} target_cpu={cpu:03}", name(task), task.pid, task.priority)
    };
    match event.kind {
        EventKind::Switch { previous, state, next } => {
            let state = match state {
                TaskState::Runnable => "R".to_owned(),
                TaskState::Blocked(letter) => letter.to_string(),
            };
            format!(
                "sched_switch: prev_comm={} prev_pid={} prev_prio={} prev_state={state} ==> next_comm={} next_pid={} next_prio={}",
                name(previous),
                previous.pid,
                previous.priority,
                name(next),
                next.pid,
                next.priority
            )
        }
        EventKind::Waking { task, target_cpu } => woken("sched_waking", task, target_cpu.0),
        EventKind::Wakeup { task, target_cpu } => woken("sched_wakeup", task, target_cpu.0),
        EventKind::Migrate { task, from_cpu, to_cpu } => format!(
            "sched_migrate_task: comm={} pid={} prio={} orig_cpu={from_cpu} dest_cpu={to_cpu}",
            name(task),
            task.pid,
            task.priority
        ),
        EventKind::PriorityInherited { task, new_priority } => format!(
            "sched_pi_setprio: comm={} pid={} oldprio={} newprio={new_priority}",
            name(task),
            task.pid,
            task.priority
        ),
        _ => String::new(),
    }
}

fn tracers(event: &Event, reader: &dyn Reader) -> String {
    let name = |name| reader.names().text(name);
    match event.kind {
        EventKind::Hwlat { sequence, inner_ns, outer_ns, count, .. } => format!(
            "#{sequence} inner/outer(us): {}/{} count:{}",
            inner_ns / 1000,
            outer_ns / 1000,
            count.unwrap_or(0)
        ),
        EventKind::Timerlat { sequence, context, latency_ns } => {
            let context = match context {
                TimerlatContext::Irq => "irq",
                TimerlatContext::Thread => "thread",
                TimerlatContext::User => "user-ret",
            };
            format!("#{sequence} context {context} timer_latency {latency_ns} ns")
        }
        EventKind::Osnoise(sample) => format!(
            "osnoise: runtime {} ns noise {} ns max {} ns",
            sample.runtime_ns, sample.noise_ns, sample.noise_max_ns
        ),
        EventKind::NoiseGap { start_ns, duration_ns, interference } => {
            format!(
                "sample_threshold: start {} duration {duration_ns} ns interference {interference}",
                seconds(start_ns)
            )
        }
        EventKind::Noise { source, start_ns, duration_ns } => {
            let (kind, who) = match source {
                NoiseSource::Irq { vector, name: irq } => ("irq_noise", format!("{}:{vector}", name(irq))),
                NoiseSource::Softirq { vector } => ("softirq_noise", format!("{vector}")),
                NoiseSource::Nmi => ("nmi_noise", "nmi".to_owned()),
                NoiseSource::Thread { pid, command } => ("thread_noise", format!("{}:{pid}", name(command))),
            };
            format!("{kind}: {who} start {} duration {duration_ns} ns", seconds(start_ns))
        }
        _ => interrupts(event, reader),
    }
}

fn interrupts(event: &Event, reader: &dyn Reader) -> String {
    let name = |name| reader.names().text(name);
    let at = |function: Symbol| symbol(function, reader);
    match event.kind {
        EventKind::IrqEntry { irq, name: device } => {
            format!("irq_handler_entry: irq={irq} name={}", name(device))
        }
        EventKind::IrqExit { irq } => format!("irq_handler_exit: irq={irq}"),
        EventKind::SoftirqRaise { vector } => format!("softirq_raise: vec={vector}"),
        EventKind::SoftirqEntry { vector } => format!("softirq_entry: vec={vector}"),
        EventKind::SoftirqExit { vector } => format!("softirq_exit: vec={vector}"),
        EventKind::VectorEntry { vector } => format!("{}_entry:", vector_name(vector, reader)),
        EventKind::VectorExit { vector } => format!("{}_exit:", vector_name(vector, reader)),
        EventKind::Nmi { duration_ns, .. } => format!("nmi_handler: delta_ns: {duration_ns}"),
        EventKind::IpiSend { target_cpu: Some(cpu), .. } => format!("ipi_send_cpu: cpu={cpu}"),
        EventKind::IpiSend { target_cpu: None, .. } => "ipi_send_cpumask:".to_owned(),
        EventKind::RemoteFunctionEntry { function } => format!("csd_function_entry: func={}", at(function)),
        EventKind::RemoteFunctionExit { function } => format!("csd_function_exit: func={}", at(function)),
        EventKind::PageFault { address, instruction, user } => {
            let kind = if user { "user" } else { "kernel" };
            format!("page_fault_{kind}: address={address:#x} ip={instruction:#x}")
        }
        EventKind::SyscallEnter { number, name: call } => match call {
            Some(call) => format!("sys_enter_{}:", name(call)),
            None => format!("sys_enter: NR {}", number.unwrap_or(0)),
        },
        EventKind::SyscallExit { number, name: call } => match call {
            Some(call) => format!("sys_exit_{}:", name(call)),
            None => format!("sys_exit: NR {}", number.unwrap_or(0)),
        },
        EventKind::Idle { state: Some(state) } => format!("cpu_idle: state={state}"),
        EventKind::Idle { state: None } => "cpu_idle: state=4294967295".to_owned(),
        EventKind::LockWait { lock, flags } => format!("contention_begin: {lock:#x} flags={flags}"),
        EventKind::LockWaitEnd { lock } => format!("contention_end: {lock:#x}"),
        _ => String::new(),
    }
}

fn vector_name(vector: Vector, reader: &dyn Reader) -> &str {
    match vector {
        Vector::LocalTimer => "local_timer",
        Vector::Reschedule => "reschedule",
        Vector::CallFunction => "call_function",
        Vector::CallFunctionSingle => "call_function_single",
        Vector::IrqWork => "irq_work",
        Vector::Other(name) => reader.names().text(name),
    }
}

/// `492.292582`, without trailing zeros.
pub(crate) fn seconds(at_ns: u64) -> String {
    let (whole, rest) = (at_ns / 1_000_000_000, at_ns % 1_000_000_000);
    if rest.is_multiple_of(1000) {
        format!("{whole}.{:06}", rest / 1000)
    } else {
        format!("{whole}.{rest:09}")
    }
}

/// The flags of the common header, in the seven columns of a real-time kernel.
pub(crate) fn flags(context: &Context) -> String {
    let irqs = if context.irqs_off == Some(true) { 'd' } else { '.' };
    let level = match (context.nmi, context.hard_irq, context.softirq) {
        (true, true, _) => 'Z',
        (true, ..) => 'z',
        (_, true, true) => 'H',
        (_, true, false) => 'h',
        (_, false, true) => 's',
        _ => '.',
    };
    let digit = |depth: Option<u8>| match depth {
        None | Some(0) => '.',
        Some(depth) => char::from_digit(u32::from(depth.min(15)), 16).unwrap_or('.'),
    };
    let need = if context.need_resched { 'n' } else { '.' };
    let lazy = if context.need_resched_lazy { 'L' } else { '.' };
    let (depth, migrate) = (digit(context.preempt_depth), digit(context.migrate_disable));
    [irqs, need, lazy, level, depth, '.', migrate].iter().collect()
}

/// A whole line of a trace file.
pub(crate) fn line(event: &Event, reader: &dyn Reader) -> String {
    let command = match (event.command, event.pid) {
        (_, Some(0)) => "<idle>",
        (Some(name), _) => reader.names().text(name),
        _ => "<...>",
    };
    let task = format!("{command}-{}", event.pid.unwrap_or(0));
    let text = self::event(event, reader);
    format!("{task:>23} [{:03}] {} {:>14}: {text}", event.cpu.0, flags(&event.context), seconds(event.at_ns))
}

/// The tracer's own function, recorded after the section's end.
pub(crate) fn section_end(function: Symbol, reader: &dyn Reader) -> Option<CauseKind> {
    match reader.symbol(function)?.0 {
        "tracer_hardirqs_on" => Some(CauseKind::IrqsOff),
        "tracer_preempt_on" => Some(CauseKind::PreemptOff),
        _ => None,
    }
}

/// Kind, actor and thread of a noise.
pub(crate) fn noise(source: NoiseSource, reader: &dyn Reader) -> (CauseKind, String, Option<u32>) {
    let name = |name| reader.names().text(name);
    match source {
        NoiseSource::Irq { vector, name: irq } => {
            let (irq, is_ipi) = (name(irq), is_ipi(name(irq)));
            let text = if irq.starts_with("local_timer") {
                "local timer".to_owned()
            } else {
                format!("{irq}:{vector}")
            };
            (if is_ipi { CauseKind::Ipi } else { CauseKind::Irq }, text, None)
        }
        NoiseSource::Softirq { vector } => (CauseKind::Softirq, vocabulary::softirq(Some(vector)), None),
        NoiseSource::Nmi => (CauseKind::Nmi, vocabulary::NMI.to_owned(), None),
        NoiseSource::Thread { pid, command } => (CauseKind::Thread, name(command).to_owned(), Some(pid)),
    }
}

fn is_ipi(name: &str) -> bool {
    ["reschedule", "call_function"].iter().any(|start| name.starts_with(start))
}

/// What a timeline consists of.
pub(crate) trait Stretch: Sized {
    /// From when to when.
    fn times(&mut self) -> (&mut u64, &mut u64);
    fn length_ns(&self) -> u64;
    /// Whether both show the same.
    fn is_same(&self, next: &Self) -> bool;

    /// Extends it to the end of the next one; the whole shows what the next one does if `takes_next`.
    fn join(&mut self, mut next: Self, takes_next: bool) {
        let (from_ns, to_ns) = (*self.times().0, *next.times().1);
        if takes_next {
            *self = next;
        }
        let (from, to) = self.times();
        (*from, *to) = (from_ns, to_ns);
    }
}

impl Stretch for TimelineSegment {
    fn times(&mut self) -> (&mut u64, &mut u64) {
        (&mut self.from_ns, &mut self.to_ns)
    }

    fn length_ns(&self) -> u64 {
        self.to_ns - self.from_ns
    }

    fn is_same(&self, next: &Self) -> bool {
        (self.cpu, &self.what, self.kind) == (next.cpu, &next.what, next.kind)
    }
}

/// Joins segments until there are few enough.
pub(crate) fn shorten_to_fit<S: Stretch>(segments: &mut Vec<S>) {
    while segments.len() > SEGMENTS_MAX {
        shorten(segments);
    }
}

/// Joins short segments, in pairs, with what is before them; the longer one of a pair names both.
fn shorten<S: Stretch>(segments: &mut Vec<S>) {
    let mut lengths: Vec<u64> = segments.iter().map(Stretch::length_ns).collect();
    lengths.order();
    let limit = lengths[lengths.len() / 2];
    let mut joined: Vec<S> = Vec::with_capacity(segments.len());
    let mut is_pair = false;
    for segment in segments.drain(..) {
        let length_ns = segment.length_ns();
        match joined.last_mut() {
            Some(last) if last.is_same(&segment) => last.join(segment, false),
            Some(last) if !is_pair && length_ns.min(last.length_ns()) <= limit => {
                is_pair = true;
                let takes_next = length_ns > last.length_ns();
                last.join(segment, takes_next);
            }
            _ => {
                is_pair = false;
                joined.push(segment);
            }
        }
    }
    *segments = joined;
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::CpuId;

    #[test]
    fn a_timeline_that_is_shortened_keeps_the_times_of_its_parts() {
        let mut segments = Vec::new();
        let mut at_ns = 0;
        let mut add = |what: &str, length_ns: u64| {
            let (from_ns, to_ns) = (at_ns, at_ns + length_ns);
            at_ns = to_ns;
            let (cpu, what) = (CpuId(1), what.to_owned());
            segments.push(TimelineSegment { from_ns, to_ns, cpu, what, kind: None, function: None });
        };
        add("RCU softirq", 60_000);
        for nth in 0..2_000 {
            add("hog", 3_900_000 + nth * 10);
            add("local timer", 20_000 + nth % 7);
            if nth % 5 == 0 {
                add("RCU softirq", 12_000);
            }
        }
        let whole_ns = at_ns;
        shorten_to_fit(&mut segments);
        assert!(segments.len() <= SEGMENTS_MAX && segments.windows(2).all(|it| it[0].to_ns == it[1].from_ns));
        let hog_ns: u64 = segments.iter().filter(|it| it.what == "hog").map(Stretch::length_ns).sum();
        assert!(hog_ns * 100 >= whole_ns * 98, "{hog_ns} of {whole_ns}");
    }
}
