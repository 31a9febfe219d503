//! Who is to blame for the time in which a task waited for the CPU, or slept.

use crate::blame::piece::{Blame, may_run_before};
use crate::confidence::{self, CONCLUDED, LIKELY, POSSIBLE, STATED};
use crate::segments::{Surroundings, Thread, throttled};
use whylate_core::figure;
use whylate_core::recording::{Activation, Doing, Object, Stage, Wait, Waker};
use whylate_core::result::CauseKind as Kind;

/// How the threads of the Java VM's collectors are called.
const JAVA_COLLECTORS: [&str; 7] =
    ["GC Thread#", "G1 ", "ParGC", "ZWorker", "ZDriver", "XWorker", "Shenandoah"];
/// A condition variable has several adjacent words, and its waits alternate between them.
const SAME_OBJECT_BYTES: u64 = 16;

/// The thread that had the CPU while the task, of that priority, was runnable.
pub(super) fn behind(
    thread: &Thread,
    priority: i32,
    surroundings: &Surroundings,
    evidence: impl Fn(&str) -> String,
) -> Blame {
    if thread.pid == 0 {
        return Blame::unattributed_as("the CPU was idle although the task was runnable");
    }
    let evidence = evidence(&format!("{} ({})", thread.command, figure::scheduled(thread.priority)));
    if !may_run_before(thread.priority, priority) {
        let evidence = format!("{evidence}; {} has a lower priority than the task", thread.command);
        return throttled(evidence, LIKELY, priority, surroundings);
    }
    // The scheduler leaves the CPU to it as long as it is runnable.
    let sure = if priority > 0 && thread.priority > priority { CONCLUDED } else { LIKELY };
    Blame::new(Kind::Thread, sure, evidence).thread(&thread.command, thread.pid)
}

/// `lock at 0x10 (in g_log_mutex of arm)`.
pub(super) fn lock_at(address: u64, name: Option<&str>) -> String {
    let variable = name.map(|name| format!(" (in {name})")).unwrap_or_default();
    format!("lock at {address:#x}{variable}")
}

/// Who owned the lock first.
pub(super) fn owned(lock: &str, pid: u32, command: &str) -> String {
    format!("{command} (thread {pid}) owned the {lock} when the wait began")
}

/// What it slept for, and who had it.
pub(super) fn blocked(wait: &Wait, waker: &Waker) -> Blame {
    match wait {
        Wait::Lock { address, name, owner, inherits_priority } => {
            let lock = lock_at(*address, name.as_deref());
            let lock = match inherits_priority {
                true => format!("priority-inheritance {lock}"),
                false => lock,
            };
            match (owner, waker) {
                (Some((pid, command)), Waker::Thread(last, name)) if last != pid => {
                    let evidence = format!(
                        "{}, and {name} (thread {last}) released the lock. No record shows how long each thread held the lock",
                        owned(&lock, *pid, command)
                    );
                    Blame::new(Kind::Lock, POSSIBLE, evidence).thread(command, *pid)
                }
                (Some((pid, command)), _) => {
                    let evidence = owned(&lock, *pid, command);
                    Blame::new(Kind::Lock, STATED, evidence).thread(command, *pid)
                }
                (None, Waker::Thread(pid, command)) => {
                    let evidence = format!(
                        "the task waited for the {lock}, which {command} (thread {pid}) released; earlier holders are not known"
                    );
                    Blame::new(Kind::Lock, LIKELY, evidence).thread(command, *pid)
                }
                (None, _) => {
                    let evidence = format!("the task waited for the {lock}; the lock's holder is not known");
                    Blame::new(Kind::Lock, LIKELY, evidence)
                }
            }
        }
        Wait::Page => ended_by(
            Blame::new(Kind::PageFault, STATED, "the task slept in a page fault until the page was mapped"),
            waker,
        ),
        Wait::Kernel(call) => {
            let evidence = "the task slept uninterruptibly in the kernel (state D)";
            let named = call.clone().map(|call| (call, Vec::new()));
            ended_by(Blame::new(Kind::Wait, confidence::SHOWN, evidence).named(named), waker)
        }
        Wait::Inside { call, object } => {
            let blame = slept(call, &object.describe(), waker);
            match runtime(object, waker) {
                Some(what) => Blame { evidence: format!("{}; {what}", blame.evidence).into(), ..blame },
                None => blame,
            }
        }
        // It is in the middle of the work only if the user marked where the work begins and ends.
        Wait::Work(Some(call)) => slept(call, "", waker),
        Wait::Work(None) | Wait::Unknown => Blame::unattributed(),
    }
}

/// A wait for a word that timed out and was repeated until a thread ended it: such as for the lock of an interpreter, whose
/// waiters look every few milliseconds. `nth` is the number of the stage.
pub(super) fn tried_again(activation: &Activation, nth: usize) -> Option<Blame> {
    let word = |stage: &Stage| match &stage.what {
        Doing::Blocked { wait: Wait::Inside { call, object: Object::Word(address, name) }, waker } => {
            Some((call.clone(), address / SAME_OBJECT_BYTES, name.clone(), waker.clone()))
        }
        _ => None,
    };
    let (call, address, variable, waker) = word(activation.stages.get(nth)?)?;
    if waker != Waker::Timer {
        return None;
    }
    let mut later =
        activation.stages[nth + 1..].iter().filter_map(word).filter(|(_, other, ..)| *other == address);
    let (pid, command) = later.find_map(|(.., waker)| match waker {
        Waker::Thread(pid, command) => Some((pid, command)),
        _ => None,
    })?;
    let evidence = format!(
        "before {command} woke the task, the task slept in {call} several times on the same word, each time \
         until a timeout; other threads may have caused part of the wait"
    );
    let what = runtime(&Object::Word(address, variable), &waker);
    let evidence = what.map(|what| format!("{evidence}; {what}")).unwrap_or(evidence);
    Some(Blame::new(Kind::Wait, LIKELY, evidence).named(Some((call, Vec::new()))).thread(&command, pid))
}

/// What the word or the waker belongs to, where that is known: the lock of an interpreter, or a collector.
fn runtime(object: &Object, waker: &Waker) -> Option<&'static str> {
    match (object, waker) {
        (Object::Word(_, Some(name)), _) if name.starts_with("_PyRuntime of ") => Some(
            "the word belongs to the state of Python's interpreter, which contains the interpreter's lock (GIL)",
        ),
        (_, Waker::Thread(_, name)) if name == "VM Thread" => {
            Some("VM Thread is the thread that stops all other threads of the Java VM for a safepoint")
        }
        (_, Waker::Thread(_, name)) if JAVA_COLLECTORS.iter().any(|it| name.starts_with(it)) => {
            Some("the waking thread belongs to the Java VM's garbage collector")
        }
        (Object::Word(_, Some(name)), _) if name.starts_with("runtime.") => Some(
            "the word belongs to Go's runtime, which stops threads for garbage collection and when goroutines wait",
        ),
        _ => None,
    }
}

/// Names the thread that ended the wait: a thread that releases a lock of the kernel, such as that of the process's memory
/// (`mmap_lock`), wakes the next waiter itself.
fn ended_by(blame: Blame, waker: &Waker) -> Blame {
    let Waker::Thread(pid, command) = waker else { return blame };
    let evidence =
        format!("{}; {command} woke the task, possibly by releasing a kernel lock", blame.evidence);
    Blame { evidence: evidence.into(), ..blame }.thread(command, *pid)
}

/// A sleep in a system call that signals end, with the thread that ended it.
fn slept(call: &str, object: &str, waker: &Waker) -> Blame {
    let place = if object.is_empty() { call.to_owned() } else { format!("{call} for {object}") };
    let evidence = match waker {
        Waker::Thread(_, command) => format!("the task slept in {place} until {command} woke it"),
        Waker::Timer => format!("the task slept in {place} until its timer expired"),
        Waker::Interrupt => format!("the task slept in {place} until an interrupt woke it"),
        Waker::Unknown => format!("the task slept in {place}"),
    };
    let blame = Blame::new(Kind::Wait, STATED, evidence).named(Some((call.to_owned(), Vec::new())));
    match waker {
        Waker::Thread(pid, command) => blame.thread(command, *pid),
        _ => blame,
    }
}
