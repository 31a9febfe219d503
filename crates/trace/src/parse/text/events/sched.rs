//! Events of the scheduler.

use super::Text;
use super::scan::{self, Tail};
use crate::event::{EventKind, Task, TaskState};
use crate::parse::text::texts::Texts;
use whylate_core::CpuId;

/// `command:pid [priority]`, as trace-cmd writes tasks.
fn brief_task(bytes: &[u8], texts: &mut Texts) -> Option<Task> {
    let (task, priority) = scan::split_last(scan::trim(bytes), b' ')?;
    let priority = priority.strip_prefix(b"[")?.strip_suffix(b"]")?;
    let (command, pid) = scan::split_last(scan::trim_end(task), b':')?;
    Some(Task {
        pid: scan::whole_u32(pid)?,
        command: texts.intern(command),
        priority: scan::whole_i32(priority)?,
    })
}

/// `comm=… pid=… prio=…`, what came after it being taken already.
fn task(mut tail: Tail<'_>, keys: [&[u8]; 3], texts: &mut Texts) -> Option<Task> {
    let priority = scan::whole_i32(tail.value(keys[2])?)?;
    let pid = scan::whole_u32(tail.value(keys[1])?)?;
    let command = texts.intern(tail.0.strip_prefix(keys[0])?);
    Some(Task { pid, command, priority })
}

const KEYS: [&[u8]; 3] = [b"comm=", b"pid=", b"prio="];

/// `S`, `R+`, `D|K`, …
fn state(bytes: &[u8]) -> Option<TaskState> {
    let first = *bytes.first()?;
    if first == b'R' || bytes.ends_with(b"+") {
        return Some(TaskState::Runnable);
    }
    first.is_ascii_alphabetic().then_some(TaskState::Blocked(char::from(first)))
}

pub(super) fn switch(text: &Text<'_>, texts: &mut Texts) -> Option<EventKind> {
    let Some((previous, next)) = scan::split(text.fields, b" ==> next_comm=") else {
        return brief_switch(text.fields, texts);
    };
    let mut tail = Tail(previous);
    let state = state(tail.value(b"prev_state=")?)?;
    let previous = task(tail, [b"prev_comm=", b"prev_pid=", b"prev_prio="], texts)?;
    let next = task(Tail(next), [b"", b"next_pid=", b"next_prio="], texts)?;
    Some(EventKind::Switch { previous, state, next })
}

/// `trace-cmd:250 [120] R ==> irq/25-virtio0-:120 [49]`.
fn brief_switch(fields: &[u8], texts: &mut Texts) -> Option<EventKind> {
    let (previous, next) = scan::split(fields, b" ==> ")?;
    let mut tail = Tail(previous);
    let state = state(tail.token()?)?;
    let previous = brief_task(tail.0, texts)?;
    Some(EventKind::Switch { previous, state, next: brief_task(next, texts)? })
}

/// The task and the CPU of a wake-up: `comm=a pid=1 prio=120 [success=1] target_cpu=000`, or trace-cmd's
/// `a:1 [120] [success=1] CPU:000`.
fn woken(fields: &[u8], texts: &mut Texts) -> Option<(Task, CpuId)> {
    let mut tail = Tail(fields);
    let last = tail.token()?;
    let (cpu, brief) = match last.strip_prefix(b"target_cpu=") {
        Some(cpu) => (cpu, false),
        None => (last.strip_prefix(b"CPU:")?, true),
    };
    let before = tail.0;
    if tail.value(b"success=").is_none() {
        tail = Tail(before);
    }
    let task = if brief { brief_task(tail.0, texts)? } else { task(tail, KEYS, texts)? };
    Some((task, CpuId(scan::whole_u32(cpu)?)))
}

pub(super) fn waking(text: &Text<'_>, texts: &mut Texts) -> Option<EventKind> {
    woken(text.fields, texts).map(|(task, target_cpu)| EventKind::Waking { task, target_cpu })
}

pub(super) fn wakeup(text: &Text<'_>, texts: &mut Texts) -> Option<EventKind> {
    woken(text.fields, texts).map(|(task, target_cpu)| EventKind::Wakeup { task, target_cpu })
}

pub(super) fn migrate(text: &Text<'_>, texts: &mut Texts) -> Option<EventKind> {
    let mut tail = Tail(text.fields);
    let mut last = tail.token()?;
    // Some RT kernels add whether the task was running.
    if last.starts_with(b"running=") {
        last = tail.token()?;
    }
    let to_cpu = CpuId(scan::whole_u32(last.strip_prefix(b"dest_cpu=")?)?);
    let from_cpu = CpuId(scan::whole_u32(tail.value(b"orig_cpu=")?)?);
    Some(EventKind::Migrate { task: task(tail, KEYS, texts)?, from_cpu, to_cpu })
}

pub(super) fn priority_inherited(text: &Text<'_>, texts: &mut Texts) -> Option<EventKind> {
    let mut tail = Tail(text.fields);
    let new_priority = scan::whole_i32(tail.value(b"newprio=")?)?;
    let task = task(tail, [b"comm=", b"pid=", b"oldprio="], texts)?;
    Some(EventKind::PriorityInherited { task, new_priority })
}
