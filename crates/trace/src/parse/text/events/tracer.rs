//! Lines of tracers: function, hwlat, osnoise, timerlat, the wake-up tracers' own switches, and markers.

use super::scan::{self, Tail};
use super::{Text, symbol};
use crate::event::{EventKind, NoiseSource, OsnoiseSample, Task, TaskState, TimerlatContext};
use crate::parse::text::texts::Texts;
use whylate_core::CpuId;

/// `function <-caller`, with trace-cmd `function <-- caller`.
pub(in crate::parse::text) fn function(line: &[u8], texts: &mut Texts) -> Option<EventKind> {
    let (function, caller) = scan::split(line, b" <-")?;
    let caller = scan::trim(caller.strip_prefix(b"-").unwrap_or(caller));
    Some(EventKind::Function {
        function: symbol(scan::trim(function), texts)?,
        caller: symbol(caller, texts)?,
    })
}

/// `function: function <-- caller`.
pub(super) fn function_field(text: &Text<'_>, texts: &mut Texts) -> Option<EventKind> {
    function(text.fields, texts)
}

/// A marker: what was written, without what names the function that wrote it.
pub(super) fn print(text: &Text<'_>, texts: &mut Texts) -> Option<EventKind> {
    let marker = text.fields.strip_prefix(b"tracing_mark_write:").map_or(text.fields, scan::skip_spaces);
    Some(EventKind::Print { text: texts.intern(marker) })
}

/// `#12    …`: a sample of hwlat or timerlat.
pub(in crate::parse::text) fn sample(line: &[u8]) -> Option<EventKind> {
    let (sequence, rest) = scan::number(line.strip_prefix(b"#")?)?;
    let sequence = u32::try_from(sequence).ok()?;
    let rest = scan::skip_spaces(rest);
    match rest.strip_prefix(b"context") {
        Some(rest) => timerlat(sequence, rest),
        None => hwlat(sequence, rest.strip_prefix(b"inner/outer(us):")?),
    }
}

/// `  9469/4846  ts:1795246791.968277742 count:236 nmi-total:3 nmi-count:1`; old kernels have no count.
fn hwlat(sequence: u32, rest: &[u8]) -> Option<EventKind> {
    let (inner, rest) = scan::number(scan::skip_spaces(rest))?;
    let (outer, rest) = scan::number(scan::skip_spaces(rest.strip_prefix(b"/")?))?;
    let optional = |key: &[u8]| scan::value(rest, key).and_then(scan::whole);
    Some(EventKind::Hwlat {
        sequence,
        inner_ns: inner.checked_mul(1000)?,
        outer_ns: outer.checked_mul(1000)?,
        count: optional(b"count:").and_then(|count| count.try_into().ok()),
        nmi_ns: optional(b"nmi-total:").and_then(|microseconds| microseconds.checked_mul(1000)),
    })
}

/// `    irq timer_latency    354428 ns`.
fn timerlat(sequence: u32, rest: &[u8]) -> Option<EventKind> {
    let (context, latency) = scan::split(rest, b"timer_latency")?;
    let context = match scan::trim(context) {
        b"irq" => TimerlatContext::Irq,
        b"thread" => TimerlatContext::Thread,
        context if context.starts_with(b"user") => TimerlatContext::User,
        _ => return None,
    };
    let (latency_ns, rest) = scan::number(scan::skip_spaces(latency))?;
    (scan::trim(rest) == b"ns").then_some(EventKind::Timerlat { sequence, context, latency_ns })
}

/// The value of `key:value` among pairs that tabs part.
fn tabbed(fields: &[u8], key: &[u8]) -> Option<u64> {
    fields
        .split(|byte| matches!(byte, b'\t' | b' '))
        .find_map(|pair| pair.strip_prefix(key)?.strip_prefix(b":"))
        .and_then(scan::whole)
}

/// `seq:1 context:0 timer_latency:1234` with tabs between, as reports have it.
pub(super) fn timerlat_fields(text: &Text<'_>, _: &mut Texts) -> Option<EventKind> {
    let context = match tabbed(text.fields, b"context")? {
        0 => TimerlatContext::Irq,
        1 => TimerlatContext::Thread,
        2 => TimerlatContext::User,
        _ => return None,
    };
    Some(EventKind::Timerlat {
        sequence: tabbed(text.fields, b"seq")?.try_into().ok()?,
        context,
        latency_ns: tabbed(text.fields, b"timer_latency")?,
    })
}

/// `cnt:1 ts:1795246791.0968277742 inner:9469 outer:4846 count:236 nmi-ts:0 nmi-count:0` with tabs between, as reports
/// have it.
pub(super) fn hwlat_fields(text: &Text<'_>, _: &mut Texts) -> Option<EventKind> {
    Some(EventKind::Hwlat {
        sequence: tabbed(text.fields, b"cnt")?.try_into().ok()?,
        inner_ns: tabbed(text.fields, b"inner")?.checked_mul(1000)?,
        outer_ns: tabbed(text.fields, b"outer")?.checked_mul(1000)?,
        count: tabbed(text.fields, b"count").and_then(|count| count.try_into().ok()),
        nmi_ns: tabbed(text.fields, b"nmi-ts").and_then(|microseconds| microseconds.checked_mul(1000)),
    })
}

/// The osnoise tracer's line in tracefs (reports leave the run time out): run time and noise in microseconds, what was
/// left in percent, the largest noise in microseconds, and five counts.
pub(in crate::parse::text) fn osnoise(line: &[u8]) -> Option<EventKind> {
    let mut numbers = [0; 8];
    let mut tokens = line.split(|byte| *byte == b' ').filter(|token| !token.is_empty());
    for (position, number) in numbers.iter_mut().enumerate() {
        if position == 2 {
            let (percent, fraction) = scan::split(tokens.next()?, b".")?;
            (scan::whole(percent).is_some() && scan::whole(fraction).is_some()).then_some(())?;
        }
        *number = scan::whole(tokens.next()?)?;
    }
    let [runtime, noise, noise_max, counts @ ..] = numbers;
    Some(EventKind::Osnoise(OsnoiseSample {
        runtime_ns: runtime.checked_mul(1000)?,
        noise_ns: noise.checked_mul(1000)?,
        noise_max_ns: noise_max.checked_mul(1000)?,
        counts,
    }))
}

/// `… start 108.599380530 duration 36735 ns`: what is before it, start and duration.
fn noise(fields: &[u8]) -> Option<(&[u8], u64, u64)> {
    let mut tail = Tail(fields);
    (tail.token()? == b"ns").then_some(())?;
    let duration_ns = scan::whole(tail.token()?)?;
    (tail.token()? == b"duration").then_some(())?;
    let (start_ns, digits, rest) = scan::seconds(tail.token()?)?;
    (digits > 0 && rest.is_empty() && tail.token()? == b"start").then_some(())?;
    Some((scan::trim(tail.0), start_ns, duration_ns))
}

/// The same, with `name:number` before it.
fn named_noise(fields: &[u8]) -> Option<(&[u8], &[u8], u64, u64)> {
    let (source, start_ns, duration_ns) = noise(fields)?;
    let (name, number) = scan::split_last(source, b':')?;
    Some((name, number, start_ns, duration_ns))
}

pub(super) fn irq_noise(text: &Text<'_>, texts: &mut Texts) -> Option<EventKind> {
    let (name, vector, start_ns, duration_ns) = named_noise(text.fields)?;
    let source = NoiseSource::Irq { vector: scan::whole_i32(vector)?, name: texts.intern(name) };
    Some(EventKind::Noise { source, start_ns, duration_ns })
}

pub(super) fn softirq_noise(text: &Text<'_>, _: &mut Texts) -> Option<EventKind> {
    let (_, vector, start_ns, duration_ns) = named_noise(text.fields)?;
    let source = NoiseSource::Softirq { vector: scan::whole_u32(vector)? };
    Some(EventKind::Noise { source, start_ns, duration_ns })
}

pub(super) fn nmi_noise(text: &Text<'_>, _: &mut Texts) -> Option<EventKind> {
    let (_, start_ns, duration_ns) = noise(text.fields)?;
    Some(EventKind::Noise { source: NoiseSource::Nmi, start_ns, duration_ns })
}

pub(super) fn thread_noise(text: &Text<'_>, texts: &mut Texts) -> Option<EventKind> {
    let (command, pid, start_ns, duration_ns) = named_noise(text.fields)?;
    let source = NoiseSource::Thread { pid: scan::whole_u32(pid)?, command: texts.intern(command) };
    Some(EventKind::Noise { source, start_ns, duration_ns })
}

/// `start 74.280857569 duration 15093 ns interference 0`.
pub(super) fn noise_gap(text: &Text<'_>, _: &mut Texts) -> Option<EventKind> {
    let (before, interference) = scan::split(text.fields, b" interference ")?;
    let (source, start_ns, duration_ns) = noise(before)?;
    let interference = scan::whole_u32(scan::trim(interference))?;
    source.is_empty().then_some(EventKind::NoiseGap { start_ns, duration_ns, interference })
}

/// The wake-up tracers' own lines: `154:120:R   + [001]     110: 49:R irq/25-virtio1-` is a wake-up, with `==>` a
/// switch. They are in the context of the first task, whose command only the line's prefix has.
pub(in crate::parse::text) fn own_switch(text: &Text<'_>, texts: &mut Texts) -> Option<EventKind> {
    let (previous_pid, rest) = scan::number(text.fields)?;
    let (previous_priority, rest) = signed(rest.strip_prefix(b":")?)?;
    let (state, rest) = scan::token(rest.strip_prefix(b":")?);
    let (mark, rest) = scan::token(scan::skip_spaces(rest));
    let (cpu, rest) = scan::number(rest.strip_prefix(b"[")?)?;
    let (pid, rest) = scan::number(scan::skip_spaces(rest.strip_prefix(b"]")?))?;
    let (priority, rest) = signed(rest.strip_prefix(b":")?)?;
    let (_, command) = scan::token(rest.strip_prefix(b":")?);
    let woken = Task { pid: pid.try_into().ok()?, command: texts.intern(scan::trim(command)), priority };
    match mark {
        b"+" => Some(EventKind::Wakeup { task: woken, target_cpu: CpuId(cpu.try_into().ok()?) }),
        b"==>" => Some(EventKind::Switch {
            previous: Task {
                pid: previous_pid.try_into().ok()?,
                command: text.command.unwrap_or_else(|| texts.intern(b"<...>")),
                priority: previous_priority,
            },
            state: match state.first()? {
                b'R' => TaskState::Runnable,
                letter => TaskState::Blocked(char::from(*letter)),
            },
            next: woken,
        }),
        _ => None,
    }
}

/// A number of up to three digits with spaces, or a sign, before it.
fn signed(bytes: &[u8]) -> Option<(i32, &[u8])> {
    let bytes = scan::skip_spaces(bytes);
    let length = bytes.iter().position(|byte| *byte == b':')?;
    Some((scan::whole_i32(&bytes[..length])?, &bytes[length..]))
}
