//! How a thread is scheduled, as text: `fifo 50`, `rr 1`, `other -5`, `batch 0`, `idle`. If its children become
//! ordinary tasks, `reset-on-fork` comes after it. If the thread has a nice value that it does not use, `nice 5` comes
//! before that.

use crate::change::Task;
use std::io;
use whylate_core::plan::ThreadPolicy;
use whylate_host::HostRoot;
use whylate_host::threads::{self, Stat};
use whylate_sys::schedule::{ThreadScheduling, scheduling_of_thread, set_scheduling_of_thread};

const RESET: &str = "reset-on-fork";
/// Before the nice value that a thread keeps while its policy does not use it.
const NICE: &str = "nice";

/// The kernel's number of a policy.
pub(crate) fn number(policy: ThreadPolicy) -> u32 {
    match policy {
        ThreadPolicy::Other => 0,
        ThreadPolicy::Fifo => 1,
        ThreadPolicy::Rr => 2,
        ThreadPolicy::Batch => 3,
        ThreadPolicy::Idle => 5,
    }
}

/// The text of it; `None` for a policy that a treatment does not set, such as `SCHED_DEADLINE`.
pub(crate) fn text(scheduling: ThreadScheduling) -> Option<String> {
    let ThreadScheduling { policy, priority, nice, reset_on_fork } = scheduling;
    let policy = ThreadPolicy::ALL.into_iter().find(|known| number(*known) == policy)?;
    let kept = if nice == 0 { String::new() } else { format!(" {NICE} {nice}") };
    let reset = if reset_on_fork { format!(" {RESET}") } else { String::new() };
    Some(match policy {
        ThreadPolicy::Fifo | ThreadPolicy::Rr => format!("{policy} {priority}{kept}{reset}"),
        ThreadPolicy::Other | ThreadPolicy::Batch => format!("{policy} {nice}{reset}"),
        ThreadPolicy::Idle => format!("{policy}{kept}{reset}"),
    })
}

pub(crate) fn parse(text: &str) -> Option<ThreadScheduling> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let reset_on_fork = words.pop_if(|last| *last == RESET).is_some();
    let value = |word: &str| word.parse::<i32>().ok();
    let nice = |word: &str| value(word).filter(|it| (-20..=19).contains(it));
    let (policy, values) = words.split_first()?;
    let policy = ThreadPolicy::from_name(policy)?;
    let (priority, nice) = match (policy, values) {
        (ThreadPolicy::Other | ThreadPolicy::Batch, [own]) => (0, nice(own)?),
        (ThreadPolicy::Idle, []) => (0, 0),
        (ThreadPolicy::Idle, [NICE, kept]) => (0, nice(kept)?),
        (ThreadPolicy::Fifo | ThreadPolicy::Rr, [own]) => (value(own)?, 0),
        (ThreadPolicy::Fifo | ThreadPolicy::Rr, [own, NICE, kept]) => (value(own)?, nice(kept)?),
        _ => return None,
    };
    let is_real_time = matches!(policy, ThreadPolicy::Fifo | ThreadPolicy::Rr);
    let is_possible = if is_real_time { (1..=99).contains(&priority) } else { priority == 0 };
    is_possible.then_some(ThreadScheduling {
        policy: number(policy),
        priority: priority.unsigned_abs(),
        nice,
        reset_on_fork,
    })
}

/// How a thread is scheduled now; `None` when it has ended.
pub(crate) fn read(task: &Task, root: &HostRoot) -> Option<String> {
    let scheduling =
        if root.is_real() { scheduling_of_thread(task.tid).ok()? } else { read_from_proc(task, root)? };
    Some(text(scheduling).unwrap_or_else(|| format!("policy {}", scheduling.policy)))
}

/// The same from /proc, which does not show what children get.
fn read_from_proc(task: &Task, root: &HostRoot) -> Option<ThreadScheduling> {
    let text = threads::stat(root, task.pid, task.tid)?;
    let stat = Stat::parse(&text)?;
    let field = |number| stat.number(number).and_then(|it| u32::try_from(it).ok());
    let nice = stat.field(19)?.parse().ok()?;
    Some(ThreadScheduling { policy: field(41)?, priority: field(40)?, nice, reset_on_fork: false })
}

pub(crate) fn write(task: &Task, text: &str) -> io::Result<()> {
    let scheduling = parse(text).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    set_scheduling_of_thread(task.tid, scheduling)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_read_back() {
        for line in [
            "fifo 50",
            "rr 1 reset-on-fork",
            "other -5",
            "batch 19",
            "idle",
            "idle nice 3 reset-on-fork",
            "rr 9 nice -1",
        ] {
            assert_eq!(text(parse(line).unwrap()).as_deref(), Some(line));
        }
        for line in
            ["", "fifo", "fifo 0", "fifo 100", "other 20", "idle 1", "deadline 1", "policy 6", "fifo 5 x"]
        {
            assert_eq!(parse(line), None, "{line}");
        }
        let deadline = ThreadScheduling { policy: 6, priority: 0, nice: 0, reset_on_fork: false };
        assert_eq!(text(deadline), None);
    }
}
