//! What the kernel recorded with its begin and end: interrupts, softirqs, functions of other CPUs, waits for locks.

use super::blame::{Context, OWN, RECORDED, unknown};
use super::decompose::{Blame, Piece, Who};
use super::{Activity, Segment, Sender, lock_name};
use whylate_core::result::CauseKind as Kind;

/// The names of the softirqs, as in /proc/softirqs.
const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];
/// How sure it is where a hypervisor may have stopped the CPU in between, which a piece of at least this length suggests: a
/// guest's timer interrupts, which take some 5 us, were seen to take 50 to 120 us now and then.
const RECORDED_IN_GUEST: f64 = 0.9;
const STOPPED_MIN_NS: u64 = 50_000;

impl Context<'_> {
    /// What the kernel recorded with its begin and end.
    pub(super) fn recorded(&self, piece: &Piece<'_>, segment: &Segment) -> Blame {
        let (who, evidence) = match &segment.what {
            Activity::Irq { line } => {
                let device = self.surroundings.lines.get(line);
                let name =
                    device.map_or_else(|| format!("irq/{line}"), |device| format!("irq/{line} {device}"));
                (Who::new(Kind::Irq).actor(name), "its handler's begin and end were recorded")
            }
            Activity::Softirq { number } => {
                let name =
                    SOFTIRQS.get(*number as usize).map_or_else(|| number.to_string(), ToString::to_string);
                (Who::new(Kind::Softirq).actor(name), "its begin and end were recorded")
            }
            Activity::Nmi { handler } => {
                (Who::new(Kind::Nmi).function(handler.clone()), "the handler's time was recorded")
            }
            Activity::Function { function, sender } => {
                let mut who = Who::new(Kind::Ipi).function(function.clone());
                if let Some(sender) = sender {
                    let actor = if self.is_ours(sender) { OWN } else { &sender.command };
                    who = who.actor(actor).pid(sender.pid);
                }
                (who, "another CPU asked for this function, whose begin and end were recorded")
            }
            Activity::Lock { flags, .. } => {
                (Who::new(Kind::Lock).actor(lock_name(*flags)), "the wait for the lock was recorded")
            }
            _ => return unknown(),
        };
        let evidence = match &segment.what {
            Activity::Function { sender: Some(sender), .. } => {
                let ours =
                    if self.is_ours(sender) { ": the measurement's doing, not the machine's" } else { "" };
                format!("{evidence}; sent by CPU {}{ours}", sender.cpu)
            }
            _ => evidence.to_owned(),
        };
        self.by_record(who, piece, evidence)
    }

    /// Blames what was recorded with its begin and end.
    fn by_record(&self, who: Who, piece: &Piece<'_>, evidence: String) -> Blame {
        let is_long = piece.to_ns - piece.from_ns >= STOPPED_MIN_NS;
        let (confidence, evidence) = match self.surroundings.is_virtual && is_long {
            true => {
                (RECORDED_IN_GUEST, format!("{evidence}; a hypervisor may have stopped the CPU meanwhile"))
            }
            false => (RECORDED, evidence),
        };
        Blame { who, confidence, callers: Vec::new(), evidence }
    }

    /// Whether this program sent it, as when it reads a counter of the CPU.
    fn is_ours(&self, sender: &Sender) -> bool {
        self.surroundings.own_process != 0 && sender.process == self.surroundings.own_process
    }

    /// An interrupt of the processor's own: the local timer, or one that another CPU sent.
    pub(super) fn vector(&self, piece: &Piece<'_>, segment: &Segment) -> Blame {
        let Activity::Vector { vector } = segment.what else { return unknown() };
        let function = self.recording.segments.iter().find(|other| {
            matches!(other.what, Activity::Function { .. })
                && other.from_ns >= segment.from_ns
                && other.to_ns <= segment.to_ns
        });
        let ipi = |function: &str| Who::new(Kind::Ipi).function(function);
        let who = match (vector, function) {
            // The time around the function belongs to it.
            (0xfb | 0xfc, Some(function)) => return self.recorded(piece, function),
            (0xfb | 0xfc, None) => ipi("call_function"),
            (0xfd, _) => ipi("reschedule"),
            (0xf6, _) => ipi("irq_work"),
            (0xec, _) => Who::new(Kind::Irq).actor("local timer"),
            _ => Who::new(Kind::Irq).actor(format!("vector {vector:#x}")),
        };
        self.by_record(who, piece, "the interrupt's begin and end were recorded".to_owned())
    }
}
