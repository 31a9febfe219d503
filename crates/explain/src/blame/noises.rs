//! The time of a timerlat sample as the tracer recorded it: each interrupt and softirq from its start for its net
//! duration, a thread for its net duration in what they leave free.
//!
//! The lines come when a noise has ended, later than it ended; their own starts and durations count. What is left over
//! is the tracer's own work and the switches.

use crate::blame::account::{Accountant, Piece, Place};
use crate::blame::label::{Phase, Who};
use crate::blame::piece::Blame;
use crate::confidence::{CONCLUDED, LEFT_OVER, SEEN, SHOWN, STATED};
use crate::describe;
use crate::find::late::LateKind;
use crate::time;
use whylate_core::result::CauseKind;
use whylate_trace::event::{Event, EventKind, NoiseSource};

/// A noise's start may be given a little before the moment that is computed from a latency.
const SLACK_NS: u64 = 1_000;

#[derive(Clone, Copy, Debug)]
struct Noise {
    source: NoiseSource,
    from: u64,
    net: u64,
    /// Depth of disabled preemption in the thread, where the flags tell.
    depth: Option<u8>,
    event: usize,
}

impl Accountant<'_> {
    /// Divides a timerlat sample by the noises of its CPU; `false` where there are none.
    pub(crate) fn by_noises(&mut self, irq: Option<(u64, u64)>) -> bool {
        let (from, to) = (self.late.expected_ns, self.late.actual_ns);
        let noises = self.noises(from, to);
        if noises.is_empty() {
            return false;
        }
        let entry = self.entry(&noises, irq, from, to);
        let who = Who { pid: self.late.pid, priority: self.late.priority };
        self.walk(Phase::TimerDue, who, self.late.cpu, from, entry);
        self.paint(&noises, entry, to);
        true
    }

    /// Divides a gap that the osnoise tracer found by the noises that it counted into it; `false` where their lines are not all
    /// there.
    pub(crate) fn gap_by_noises(&mut self) -> bool {
        let (from, to) = (self.late.expected_ns, self.late.actual_ns);
        let LateKind::NoiseGap { interference } = self.late.kind else { return false };
        let is_within = |noise: &Noise| noise.from >= from && noise.from < to;
        let noises: Vec<Noise> = self.noises(from, to).into_iter().filter(is_within).collect();
        // A gap that they do not fill is one of hardware, or of what the tracer does not see.
        let known: u64 = noises.iter().map(|noise| noise.net).sum();
        if noises.len() < interference as usize || known < (to - from) / 2 {
            return false;
        }
        self.paint(&noises, from, to);
        true
    }

    fn noises(&self, from: u64, to: u64) -> Vec<Noise> {
        let own = |(index, event): (usize, &Event)| {
            let EventKind::Noise { source, start_ns, duration_ns } = event.kind else { return None };
            // A thread's noise may have begun long before; what ended before the sample is not in it.
            let is_within = event.at_ns.saturating_add(SLACK_NS) >= from
                && start_ns < to
                && start_ns.saturating_add(SLACK_NS) >= from.min(start_ns.saturating_add(duration_ns));
            (event.cpu == self.late.cpu && is_within).then_some(Noise {
                source,
                from: start_ns,
                net: duration_ns,
                depth: event.context.preempt_depth,
                event: index,
            })
        };
        self.window.events.iter().enumerate().filter_map(own).collect()
    }

    /// When the timer's own interrupt began: the last interrupt that began before its sample.
    fn entry(&self, noises: &[Noise], irq: Option<(u64, u64)>, from: u64, to: u64) -> u64 {
        let sampled = irq.map_or(from, |(_, latency_ns)| from.saturating_add(latency_ns));
        let sampled = time::within(sampled, from, to);
        let is_before = |noise: &&Noise| {
            matches!(noise.source, NoiseSource::Irq { .. })
                && noise.from <= sampled.saturating_add(SLACK_NS)
                && noise.from.saturating_add(noise.net).saturating_add(SLACK_NS) >= sampled
        };
        let begin = noises.iter().filter(is_before).map(|noise| noise.from).max();
        time::within(begin.unwrap_or(sampled), from, to)
    }

    fn paint(&mut self, noises: &[Noise], entry: u64, to: u64) {
        let mut taken: Vec<(u64, u64, &Noise)> = Vec::new();
        let is_thread = |noise: &&Noise| matches!(noise.source, NoiseSource::Thread { .. });
        // In the order in which they ended: one that came in another has its time alone, the other's is net of it.
        let interrupts = noises.iter().filter(|noise| !is_thread(noise));
        for noise in interrupts.chain(noises.iter().filter(is_thread)) {
            let mut left = noise.net.saturating_sub(entry.saturating_sub(noise.from));
            for (begin, end) in free(&taken, noise.from.max(entry), to) {
                let end = end.min(begin.saturating_add(left));
                left -= end - begin;
                if end > begin {
                    taken.push((begin, end, noise));
                }
            }
        }
        taken.sort_by_key(|(begin, ..)| *begin);
        let mut at = entry;
        for (begin, end, noise) in taken {
            self.rest(at, begin);
            let (blame, what) = self.blamed(noise, noises);
            self.add(begin, end, blame, what, noise);
            at = end;
        }
        self.rest(at, to);
    }

    fn rest(&mut self, from: u64, to: u64) {
        if from < to {
            let detail = Place {
                cpu: self.late.cpu,
                what: "context switch and tracing".to_owned(),
                need: None,
                span: None,
            };
            self.pieces.push(Piece { from, to, began: from, blame: Blame::default(), detail });
        }
    }

    fn add(&mut self, from: u64, to: u64, blame: Blame, what: String, noise: &Noise) {
        let spans = self.states.spans.get(&self.late.cpu).map_or(&[][..], Vec::as_slice);
        let span = spans.iter().find(|span| span.events.1 == noise.event).copied();
        let detail = Place { cpu: self.late.cpu, what, need: None, span };
        self.pieces.push(Piece { from, to, began: noise.from.min(from), blame, detail });
    }

    /// Who a noise was to the tracer's thread. An interrupted thread goes on because preemption is off, or because the
    /// tracer's thread may not preempt it.
    fn blamed(&self, noise: &Noise, noises: &[Noise]) -> (Blame, String) {
        let (kind, actor, pid) = describe::noise(noise.source, self.labeller.reader);
        let Some(pid) = pid else {
            let reason = "the tracer recorded its start and its net time";
            return (Blame::new(kind, STATED, reason).actor(actor.as_str()), actor);
        };
        if pid == 0 {
            let reason = "the CPU was idle when the timer's interrupt came";
            let blame = Blame::new(CauseKind::IdleExit, CONCLUDED, reason);
            return (blame, "leaving idle".to_owned());
        }
        if matches!(self.late.kind, LateKind::NoiseGap { .. }) {
            let reason = "the tracer recorded its start and its net time";
            return (Blame::new(CauseKind::Thread, STATED, reason).thread(&actor, pid), actor);
        }
        let priority = self.labeller.priorities.at(pid, noise.event);
        let within = |other: &&Noise| {
            other.from >= noise.from.saturating_sub(SLACK_NS)
                && matches!(other.source, NoiseSource::Irq { .. })
        };
        let depth = noises.iter().filter(within).filter_map(|other| other.depth).min();
        let own = self.late.priority;
        let preempts = priority.zip(own).is_some_and(|(other, own)| other <= own);
        let (kind, confidence, reason) = match depth {
            _ if preempts => {
                (CauseKind::Thread, SHOWN, "it ran at a priority that the tracer's thread may not preempt")
            }
            Some(1..) => (CauseKind::PreemptOff, SEEN, "interrupts that came into it found preemption off"),
            _ => (CauseKind::Thread, LEFT_OVER, "another thread ran; the trace does not show all priorities"),
        };
        let first = noises.iter().find(|other| matches!(other.source, NoiseSource::Thread { .. }));
        // The tracer prints the stack that the timer's interrupt found.
        let found = first.filter(|first| first.event == noise.event);
        let named = found.and_then(|_| self.labeller.printed_stack(self.late.cpu, self.late.actual_ns));
        (Blame::new(kind, confidence, reason).thread(&actor, pid).named(named), actor)
    }
}

/// What is free of `[from, to]`.
fn free(taken: &[(u64, u64, &Noise)], from: u64, to: u64) -> Vec<(u64, u64)> {
    let mut within: Vec<(u64, u64)> = taken
        .iter()
        .map(|(begin, end, _)| (*begin, *end))
        .filter(|(begin, end)| *end > from && *begin < to)
        .collect();
    within.sort_unstable();
    let mut at = from;
    let mut found = Vec::new();
    for (begin, end) in within {
        if begin > at {
            found.push((at, begin));
        }
        at = at.max(end);
    }
    if at < to {
        found.push((at, to));
    }
    found
}
