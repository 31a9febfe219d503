//! What is to be done with the records of an event: decided once, from its format.

use super::numbers::{NUMBERS, Values};
use super::slot::{Slot, Span};
use crate::event::{EventKind, Name, Names, Vector};
use crate::parse::format::EventFormat;

/// Where a task is in a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskSlots {
    pub(super) command: Span,
    pub(super) pid: Slot,
    pub(super) priority: Slot,
}

/// Which switch `preemptirq` tells of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Toggle {
    IrqsOff,
    IrqsOn,
    PreemptOff,
    PreemptOn,
}

/// Whose noise an `osnoise:*_noise` event tells of.
#[derive(Clone, Copy, Debug)]
pub(super) enum NoiseSlots {
    Irq { vector: Slot, name: Span },
    Softirq { vector: Slot },
    Nmi,
    Thread { pid: Slot, command: Span },
}

/// How records of an event are decoded.
#[derive(Clone, Copy, Debug)]
pub(super) enum Plan {
    Numbers {
        slots: [Slot; 8],
        count: u8,
        make: fn(&Values) -> EventKind,
    },
    /// Nothing of the record matters.
    Fixed(EventKind),
    Switch {
        previous: TaskSlots,
        state: Slot,
        next: TaskSlots,
    },
    Waking {
        task: TaskSlots,
        cpu: Slot,
    },
    Wakeup {
        task: TaskSlots,
        cpu: Slot,
    },
    Migrate {
        task: TaskSlots,
        from: Slot,
        to: Slot,
    },
    PriorityInherited {
        task: TaskSlots,
        new: Slot,
    },
    IrqEntry {
        irq: Slot,
        name: Span,
    },
    /// The reason is the address of a text that `printk_formats` has.
    Ipi {
        entry: bool,
        reason: Slot,
    },
    Toggle {
        toggle: Toggle,
        caller: Slot,
        parent: Slot,
    },
    Syscall {
        enter: bool,
        number: Slot,
        name: Name,
    },
    Stack {
        size: Option<Slot>,
        callers: u32,
    },
    Print {
        text: Span,
    },
    /// The format's address and the packed arguments.
    BinaryPrint {
        format: Slot,
        arguments: Span,
    },
    /// The text's address.
    Puts {
        text: Slot,
    },
    Hwlat {
        sequence: Slot,
        inner: Slot,
        outer: Slot,
        count: Option<Slot>,
        nmi: Option<Slot>,
        nmis: Option<Slot>,
    },
    Noise {
        source: NoiseSlots,
        start: Slot,
        duration: Slot,
    },
    /// The old events of the wake-up tracers, which have no commands: `ftrace:context_switch`.
    TracerSwitch {
        previous: [Slot; 2],
        state: Slot,
        next: [Slot; 2],
    },
    /// `ftrace:wakeup`.
    TracerWakeup {
        task: [Slot; 2],
        cpu: Slot,
    },
}

impl Plan {
    /// The plan for a format. An event that the model does not know, and one whose fields are not those that are
    /// known, becomes [`EventKind::Other`].
    pub(super) fn of(format: &EventFormat, names: &mut Names) -> Self {
        let known = match format.system.as_str() {
            "sched" => scheduler(format),
            "preemptirq" => toggle(format),
            "irq_vectors" => vector(format, names),
            "syscalls" => syscall(format, names),
            "osnoise" => noise(format).or_else(|| numbers(format)),
            "ftrace" => tracer(format).or_else(|| numbers(format)),
            "ipi" => ipi(format).or_else(|| numbers(format)),
            "irq" if format.name == "irq_handler_entry" => irq_entry(format),
            _ => numbers(format),
        };
        known.unwrap_or_else(|| {
            let system = (!format.system.is_empty()).then(|| names.intern(&format.system));
            Self::Fixed(EventKind::Other { system, name: names.intern(&format.name) })
        })
    }

    /// Whether such events find late wake-ups, when [`may_find_wakeups`] is true of their name.
    pub(super) fn finds_wakeups(&self) -> bool {
        matches!(
            self,
            Self::Switch { .. }
                | Self::Waking { .. }
                | Self::Wakeup { .. }
                | Self::Migrate { .. }
                | Self::PriorityInherited { .. }
                | Self::TracerSwitch { .. }
                | Self::TracerWakeup { .. }
                | Self::Print { .. }
                | Self::BinaryPrint { .. }
                | Self::Puts { .. }
                | Self::Hwlat { .. }
                | Self::Numbers { .. }
        )
    }
}

/// Whether events of that name may find late wake-ups: see [`crate::reader::Selection::Wakeups`].
pub(super) fn may_find_wakeups(name: &str) -> bool {
    matches!(
        name,
        "sched_switch"
            | "sched_waking"
            | "sched_wakeup"
            | "sched_wakeup_new"
            | "sched_migrate_task"
            | "sched_pi_setprio"
            | "context_switch"
            | "wakeup"
            | "print"
            | "bprint"
            | "bputs"
            | "hwlat"
            | "hrtimer_start"
            | "hrtimer_cancel"
            | "hrtimer_expire_entry"
            | "timerlat"
            | "osnoise"
            | "sample_threshold"
    )
}

fn numbers(format: &EventFormat) -> Option<Plan> {
    let known = NUMBERS.iter().find(|known| known.system == format.system && known.name == format.name)?;
    let mut slots = [Slot::default(); 8];
    for (slot, field) in slots.iter_mut().zip(known.fields) {
        *slot = Slot::of(format, field)?;
    }
    Some(Plan::Numbers { slots, count: known.fields.len() as u8, make: known.make })
}

fn task(format: &EventFormat, prefix: &str) -> Option<TaskSlots> {
    Some(TaskSlots {
        command: Span::of(format, &format!("{prefix}comm"))?,
        pid: Slot::of(format, &format!("{prefix}pid"))?,
        priority: Slot::of(format, &format!("{prefix}prio"))?,
    })
}

fn scheduler(format: &EventFormat) -> Option<Plan> {
    let slot = |name: &str| Slot::of(format, name);
    match format.name.as_str() {
        "sched_switch" => Some(Plan::Switch {
            previous: task(format, "prev_")?,
            state: slot("prev_state")?,
            next: task(format, "next_")?,
        }),
        "sched_waking" => Some(Plan::Waking { task: task(format, "")?, cpu: slot("target_cpu")? }),
        "sched_wakeup" | "sched_wakeup_new" => {
            Some(Plan::Wakeup { task: task(format, "")?, cpu: slot("target_cpu")? })
        }
        "sched_migrate_task" => {
            Some(Plan::Migrate { task: task(format, "")?, from: slot("orig_cpu")?, to: slot("dest_cpu")? })
        }
        "sched_pi_setprio" => {
            let (command, pid) = (Span::of(format, "comm")?, slot("pid")?);
            let task = TaskSlots { command, pid, priority: slot("oldprio")? };
            Some(Plan::PriorityInherited { task, new: slot("newprio")? })
        }
        _ => None,
    }
}

fn toggle(format: &EventFormat) -> Option<Plan> {
    let toggle = match format.name.as_str() {
        "irq_disable" => Toggle::IrqsOff,
        "irq_enable" => Toggle::IrqsOn,
        "preempt_disable" => Toggle::PreemptOff,
        "preempt_enable" => Toggle::PreemptOn,
        _ => return None,
    };
    let (caller, parent) = (Slot::of(format, "caller_offs")?, Slot::of(format, "parent_offs")?);
    Some(Plan::Toggle { toggle, caller, parent })
}

fn vector(format: &EventFormat, names: &mut Names) -> Option<Plan> {
    let (name, entry) = match (format.name.strip_suffix("_entry"), format.name.strip_suffix("_exit")) {
        (Some(name), _) => (name, true),
        (_, Some(name)) => (name, false),
        _ => return None,
    };
    let vector = match name {
        "local_timer" => Vector::LocalTimer,
        "reschedule" => Vector::Reschedule,
        "call_function" => Vector::CallFunction,
        "call_function_single" => Vector::CallFunctionSingle,
        "irq_work" => Vector::IrqWork,
        other => Vector::Other(names.intern(other)),
    };
    Some(Plan::Fixed(if entry {
        EventKind::VectorEntry { vector }
    } else {
        EventKind::VectorExit { vector }
    }))
}

fn syscall(format: &EventFormat, names: &mut Names) -> Option<Plan> {
    let (name, enter) = match (format.name.strip_prefix("sys_enter_"), format.name.strip_prefix("sys_exit_"))
    {
        (Some(name), _) => (name, true),
        (_, Some(name)) => (name, false),
        _ => return None,
    };
    // Kernels before 4.10 call the field `nr`.
    let number = Slot::of(format, "__syscall_nr").or_else(|| Slot::of(format, "nr"))?;
    Some(Plan::Syscall { enter, number, name: names.intern(name) })
}

fn irq_entry(format: &EventFormat) -> Option<Plan> {
    Some(Plan::IrqEntry { irq: Slot::of(format, "irq")?, name: Span::of(format, "name")? })
}

fn ipi(format: &EventFormat) -> Option<Plan> {
    let entry = match format.name.as_str() {
        "ipi_entry" => true,
        "ipi_exit" => false,
        _ => return None,
    };
    Some(Plan::Ipi { entry, reason: Slot::of(format, "reason")? })
}

fn noise(format: &EventFormat) -> Option<Plan> {
    let slot = |name: &str| Slot::of(format, name);
    let source = match format.name.as_str() {
        "irq_noise" => NoiseSlots::Irq { vector: slot("vector")?, name: Span::of(format, "desc")? },
        "softirq_noise" => NoiseSlots::Softirq { vector: slot("vector")? },
        "nmi_noise" => NoiseSlots::Nmi,
        "thread_noise" => NoiseSlots::Thread { pid: slot("pid")?, command: Span::of(format, "comm")? },
        _ => return None,
    };
    Some(Plan::Noise { source, start: slot("start")?, duration: slot("duration")? })
}

fn tracer(format: &EventFormat) -> Option<Plan> {
    let slot = |name: &str| Slot::of(format, name);
    match format.name.as_str() {
        "kernel_stack" => {
            let callers = format.field("caller").filter(|field| field.array)?.offset as u32;
            Some(Plan::Stack { size: slot("size"), callers })
        }
        "print" => Some(Plan::Print { text: Span::of(format, "buf")? }),
        "bprint" => Some(Plan::BinaryPrint { format: slot("fmt")?, arguments: Span::of(format, "buf")? }),
        "bputs" => Some(Plan::Puts { text: slot("str")? }),
        "hwlat" => Some(Plan::Hwlat {
            sequence: slot("seqnum")?,
            inner: slot("duration")?,
            outer: slot("outer_duration")?,
            count: slot("count"),
            nmi: slot("nmi_total_ts"),
            nmis: slot("nmi_count"),
        }),
        "context_switch" => Some(Plan::TracerSwitch {
            previous: [slot("prev_pid")?, slot("prev_prio")?],
            state: slot("prev_state")?,
            next: [slot("next_pid")?, slot("next_prio")?],
        }),
        "wakeup" => {
            Some(Plan::TracerWakeup { task: [slot("next_pid")?, slot("next_prio")?], cpu: slot("next_cpu")? })
        }
        _ => None,
    }
}
