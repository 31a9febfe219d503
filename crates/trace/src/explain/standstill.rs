//! Whether the whole machine stood still: firmware or a hypervisor that stops every CPU at once.
//!
//! Silence alone proves nothing, an idle CPU is silent too. But where a timer of another CPU was due in the silence as
//! well and came late as well, what stopped was more than the CPU that the task waited for.

use super::account::Piece;
use super::label::Label;
use super::window::Window;
use crate::event::EventKind;
use std::collections::HashMap;
use whylate_core::CpuId;
use whylate_core::result::CauseKind;

/// Shorter ones are not looked at: neighbouring CPUs may well be late by as much for reasons of their own.
const LEAST_NS: u64 = 20_000;
/// The part of the silence by which another CPU's timer has to be late, and in which another CPU has to be silent.
const PART: f64 = 0.5;

/// Gives the pieces in which the timer's interrupt did not come another kind where the machine stood still.
pub(super) fn relabel(pieces: &mut [Piece], window: &Window) {
    use CauseKind::{IdleExit, Irq, TimerLate, Unattributed};
    for piece in pieces {
        // It may stop in the middle of a handler.
        let open = matches!(piece.label.kind, Some(TimerLate | IdleExit | Unattributed | Irq));
        if open && piece.to - piece.from >= LEAST_NS && stood_still(piece, window) {
            piece.label = Label {
                kind: Some(CauseKind::Hardware),
                actor: None,
                pid: None,
                what: "the whole machine stood still".to_owned(),
                certainty: 0.7,
                reason: "no CPU did anything, and timers of several CPUs were late by it: firmware, or a hypervisor",
                need: None,
            };
        }
    }
}

fn stood_still(piece: &Piece, window: &Window) -> bool {
    let (from, to) = (piece.from, piece.to);
    let least = ((to - from) as f64 * PART) as u64;
    let mut armed: HashMap<u64, u64> = HashMap::new();
    let mut late_elsewhere = false;
    let mut last: HashMap<CpuId, u64> = HashMap::new();
    // The longest silence of each CPU within the piece.
    let mut silences: HashMap<CpuId, u64> = HashMap::new();
    for event in &window.events {
        let since = last.insert(event.cpu, event.at_ns).unwrap_or(window.from).max(from);
        let silence = event.at_ns.min(to).saturating_sub(since);
        let longest = silences.entry(event.cpu).or_default();
        *longest = silence.max(*longest);
        match event.kind {
            EventKind::TimerStart { timer, expires_ns, .. } => {
                armed.insert(timer, expires_ns);
            }
            EventKind::TimerExpire { timer, now_ns, .. } => {
                let Some(expires_ns) = armed.remove(&timer) else { continue };
                // Both are on the timers' clock, and the event is on the trace's: only the difference counts.
                let late = now_ns.saturating_sub(expires_ns);
                let due = event.at_ns.saturating_sub(late);
                let within = event.at_ns > from && due < to;
                late_elsewhere |= event.cpu != piece.cpu && within && late >= least;
            }
            _ => {}
        }
    }
    let all_silent = silences.len() > 1 && silences.values().all(|silence| *silence >= least);
    late_elsewhere && all_silent
}
