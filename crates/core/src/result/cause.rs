//! Causes: who took the time, and what speaks for it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who took the time, with the evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cause {
    /// What kind of thing it was.
    pub kind: CauseKind,
    /// Who: the name of a thread, an interrupt's line and devices, a softirq vector, a lock's owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// Thread id of the actor, when it is a thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The kernel function that covers the time, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Who called that function, innermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<String>,
    /// Begin of the time that it took, on the clock of the spike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_ns: Option<u64>,
    /// End of the time that it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_ns: Option<u64>,
    /// The part of [expected, actual] that it covers, in [0, 1].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// How sure it is, in [0, 1]; lowered when events were lost or not recorded, which the evidence then says.
    /// Absent where the kind alone says it (`unattributed`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// What speaks for it; empty for `unattributed`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// The evidence that the answer was made from, where a trace of the spike was kept; otherwise empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<CauseSource>,
}

/// A kind of evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CauseSource {
    /// What the BPF programs recorded.
    Bpf,
    /// A trace of the spike.
    Trace,
    /// Counters of the kernel and settings of the machine.
    Counters,
}

impl CauseSource {
    /// As texts name it.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Bpf => "recording of the BPF programs",
            Self::Trace => "trace",
            Self::Counters => "kernel's counters",
        }
    }
}

impl Cause {
    /// A cause of that kind of which nothing else is known yet.
    pub fn new(kind: CauseKind) -> Self {
        Self {
            kind,
            actor: None,
            pid: None,
            function: None,
            callers: Vec::new(),
            from_ns: None,
            to_ns: None,
            share: None,
            confidence: None,
            evidence: Vec::new(),
            sources: Vec::new(),
        }
    }

    /// Nothing explains it.
    pub fn unattributed() -> Self {
        Self::new(CauseKind::Unattributed)
    }
}

impl Default for Cause {
    fn default() -> Self {
        Self::unattributed()
    }
}

/// Kinds of causes. A kind is claimed only on evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CauseKind {
    /// A hard interrupt's handler ran.
    Irq,
    /// A softirq ran.
    Softirq,
    /// A non-maskable interrupt's handler ran.
    Nmi,
    /// Another thread ran, of a priority that the task could not preempt.
    Thread,
    /// Code ran with preemption off.
    PreemptOff,
    /// Code ran with interrupts off.
    IrqsOff,
    /// An interrupt that another CPU sent was handled.
    Ipi,
    /// The timer itself expired late, with interrupts on.
    TimerLate,
    /// The CPU needed the time to leave an idle state.
    IdleExit,
    /// The task itself had a page fault.
    PageFault,
    /// The task was moved to another CPU.
    Migration,
    /// Real-time throttling stopped the task for the rest of its period.
    Throttled,
    /// The task waited for a lock that another thread held.
    Lock,
    /// The hypervisor ran something else.
    Steal,
    /// The firmware took the CPU (a system-management interrupt was counted).
    Smi,
    /// Interrupts were provably on and nothing of the kernel ran: hardware or firmware.
    Hardware,
    /// The other thread of the same core slowed it down.
    Smt,
    /// Nothing explains it.
    Unattributed,
}

impl CauseKind {
    /// Every kind.
    pub const ALL: [Self; 18] = [
        Self::Irq,
        Self::Softirq,
        Self::Nmi,
        Self::Thread,
        Self::PreemptOff,
        Self::IrqsOff,
        Self::Ipi,
        Self::TimerLate,
        Self::IdleExit,
        Self::PageFault,
        Self::Migration,
        Self::Throttled,
        Self::Lock,
        Self::Steal,
        Self::Smi,
        Self::Hardware,
        Self::Smt,
        Self::Unattributed,
    ];

    /// The name in results and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Irq => "irq",
            Self::Softirq => "softirq",
            Self::Nmi => "nmi",
            Self::Thread => "thread",
            Self::PreemptOff => "preempt_off",
            Self::IrqsOff => "irqs_off",
            Self::Ipi => "ipi",
            Self::TimerLate => "timer_late",
            Self::IdleExit => "idle_exit",
            Self::PageFault => "page_fault",
            Self::Migration => "migration",
            Self::Throttled => "throttled",
            Self::Lock => "lock",
            Self::Steal => "steal",
            Self::Smi => "smi",
            Self::Hardware => "hardware",
            Self::Smt => "smt",
            Self::Unattributed => "unattributed",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_one_name_everywhere() {
        for kind in CauseKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert_eq!(CauseKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(CauseKind::from_name("late"), None);
    }
}
