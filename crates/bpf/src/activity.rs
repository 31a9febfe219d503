//! Converts records of the rings to the explainer's types.

use crate::causes::Causes;
use crate::layout::tasks::Waker as RawWaker;
use crate::layout::{Command, RawSegment, What};
use whylate_core::CpuId;
use whylate_core::figure::PRIORITY_TOP;
use whylate_core::recording::Waker;
use whylate_core::recording::{Activity, Segment, Sender, Thread};
use zerocopy::{IntoBytes as _, TryFromBytes as _};

impl Causes {
    /// One record as the explainer takes it; `None` for a kind that this program does not know.
    pub(crate) fn segment(&self, ring: u32, raw: &RawSegment) -> Option<Segment> {
        let what = match raw.what()? {
            What::Irq { line } => Activity::Irq { line },
            What::Vector { vector } => Activity::Vector { vector },
            What::Softirq { number } => Activity::Softirq { number },
            What::Nmi { handler } => Activity::Nmi { handler: self.symbols.name(handler) },
            What::Function {
                has_sender,
                sender_cpu,
                sender_thread: pid,
                function,
                sender_process: process,
                sender_command,
            } => {
                let sender = has_sender.then(|| sender(sender_cpu, pid, process, &sender_command));
                Activity::Function { function: self.symbols.name(function), sender }
            }
            What::Called {
                has_sender,
                sender_cpu,
                sender_thread: pid,
                function,
                sender_process: process,
                sender_command,
            } => {
                let sender = has_sender.then(|| sender(sender_cpu, pid, process, &sender_command));
                Activity::Called { function: self.symbols.name(function), sender }
            }
            What::Thread { was_runnable, thread: pid, process, prio, next_prio, command } => {
                let (thread, next_priority) = (thread(pid, prio, &command), PRIORITY_TOP - next_prio);
                Activity::Thread { thread, process, was_runnable, next_priority }
            }
            What::Idle { state } => Activity::Idle { state },
            What::Lock { thread: pid, process, flags } => Activity::Lock { pid, process, flags },
            What::PageFault { thread: pid, address } => Activity::PageFault { pid, address },
            What::Timer { thread: pid, process, stack } => {
                Activity::Timer { pid, process, stack: self.late_stack(ring, stack) }
            }
            What::Wakeup { thread: pid, process, stack, previous, previous_prio, previous_command } => {
                let previous = thread(previous, previous_prio, &previous_command);
                Activity::Wakeup { pid, process, previous, stack: self.late_stack(ring, stack) }
            }
            What::Migration { thread: pid, process, to_cpu } => {
                Activity::Migration { pid, process, to: CpuId(to_cpu) }
            }
            What::Waking { by, thread: pid, waker, waker_command, .. } => {
                Activity::Waking { pid, waker: waker_of(by, waker, &waker_command) }
            }
        };
        Some(Segment { from_ns: raw.start_ns, to_ns: raw.end_ns, what })
    }
}

fn sender(cpu: u16, pid: u32, process: u32, command: &Command) -> Sender {
    Sender { cpu: CpuId(cpu.into()), pid, process, command: thread(pid, 0, command).command }
}

/// Who woke a thread, by the kind of the layout. An interrupted thread is not the waker.
fn waker_of(by: u8, pid: u32, command: &Command) -> Waker {
    match RawWaker::try_read_from_bytes(u32::from(by).as_bytes()) {
        Ok(RawWaker::Timer) => Waker::Timer,
        Ok(RawWaker::Thread) if pid != 0 => Waker::Thread(pid, command.text()),
        _ => Waker::Interrupt,
    }
}

/// The name of the idle task is not recorded.
fn thread(pid: u32, prio: i32, command: &Command) -> Thread {
    let command = if pid == 0 { "swapper".to_owned() } else { command.text() };
    Thread { pid, priority: PRIORITY_TOP - prio, command }
}
