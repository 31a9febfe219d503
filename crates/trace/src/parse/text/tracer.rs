//! Lines of tracers, which have no name of an event before a colon: function, hwlat, osnoise, timerlat, the wake-up tracers'
//! own switches, and system calls.

use super::fields::symbol;
use super::scan;
use crate::event::{EventKind, Name, OsnoiseSample, Task, TaskState, TimerlatContext};
use crate::parse::texts::Texts;
use whylate_core::CpuId;

/// `function <-caller`, with trace-cmd `function <-- caller`.
pub(super) fn function(line: &[u8], texts: &mut Texts) -> Option<EventKind> {
    let mark = |at: &usize| *at > 0 && line[at - 1] == b' ' && line[at + 1..].starts_with(b"-");
    let (function, caller) = match memchr::memchr_iter(b'<', line).find(mark) {
        Some(at) => (&line[..at - 1], &line[at + 2..]),
        None => old_function(line)?,
    };
    let caller = scan::trim(caller.strip_prefix(b"-").unwrap_or(caller));
    Some(EventKind::Function {
        function: symbol(scan::trim(function), texts)?,
        caller: symbol(caller, texts)?,
    })
}

/// `function (caller)`, as the latency tracer of Linux 2.6 has it; numbers in the brackets are something else.
fn old_function(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let (function, caller) = scan::split(scan::trim_end(line).strip_suffix(b")")?, b" (")?;
    let is_name = |name: &[u8]| {
        name.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
            && is_word(name).is_some()
    };
    (is_name(function) && is_name(caller)).then_some((function, caller))
}

/// `#12    …`: a sample of hwlat or timerlat.
pub(super) fn sample(line: &[u8]) -> Option<EventKind> {
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
        count: optional(b"count").and_then(|count| count.try_into().ok()),
        nmi_ns: optional(b"nmi-total").and_then(|microseconds| microseconds.checked_mul(1000)),
        nmi_count: optional(b"nmi-count").and_then(|count| count.try_into().ok()),
        wall_ns: scan::value(rest, b"ts").and_then(scan::seconds).map(|(at_ns, ..)| at_ns),
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

/// The osnoise tracer's line in tracefs (reports leave the run time out): run time and noise in microseconds, available time
/// in percent, the largest noise in microseconds, and five counts.
pub(super) fn osnoise(line: &[u8]) -> Option<EventKind> {
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

/// The wake-up tracers' own lines: `154:120:R   + [001]     110: 49:R irq/25-virtio1-` is a wake-up, with `==>` a
/// switch. They are in the context of the first task, whose command only the line's prefix has.
pub(super) fn own_switch(line: &[u8], command: Option<Name>, texts: &mut Texts) -> Option<EventKind> {
    let (previous_pid, rest) = scan::number(line)?;
    let (previous_priority, rest) = signed(rest.strip_prefix(b":")?)?;
    let (state, rest) = scan::token(rest.strip_prefix(b":")?);
    let (mark, rest) = scan::token(scan::skip_spaces(rest));
    let (cpu, rest) = scan::number(rest.strip_prefix(b"[")?)?;
    let (pid, rest) = scan::number(scan::skip_spaces(rest.strip_prefix(b"]")?))?;
    let (priority, rest) = signed(rest.strip_prefix(b":")?)?;
    let (_, name) = scan::token(rest.strip_prefix(b":")?);
    let woken = Task { pid: pid.try_into().ok()?, command: texts.intern(scan::trim(name)), priority };
    match mark {
        b"+" => Some(EventKind::Wakeup { task: woken, target_cpu: CpuId(cpu.try_into().ok()?) }),
        b"==>" => Some(EventKind::Switch {
            previous: Task {
                pid: previous_pid.try_into().ok()?,
                command: command.unwrap_or_else(|| texts.intern(b"<...>")),
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

/// `sys_nanosleep(rqtp: 7ffe…, rmtp: 0)` or `sys_nanosleep -> 0x0`, as tracefs has it.
pub(super) fn syscall_line(line: &[u8], texts: &mut Texts) -> Option<EventKind> {
    let call = line.strip_prefix(b"sys_")?;
    if let Some((call, _)) = scan::split(call, b" -> ") {
        let name = Some(texts.intern(is_word(call)?));
        return Some(EventKind::SyscallExit { number: None, name });
    }
    let (call, rest) = scan::split(call, b"(")?;
    scan::trim_end(rest).ends_with(b")").then_some(())?;
    Some(EventKind::SyscallEnter { number: None, name: Some(texts.intern(is_word(call)?)) })
}

fn is_word(name: &[u8]) -> Option<&[u8]> {
    let all = name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    (all && !name.is_empty()).then_some(name)
}
