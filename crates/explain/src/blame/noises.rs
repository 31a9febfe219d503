//! The time of a timerlat sample as the tracer recorded it. Each interrupt and softirq counts from its start for its net
//! duration, a thread for its net duration in the time that they leave free.
//!
//! The lines come some time after a noise has ended, so only their own starts and durations count. The remaining time is the
//! tracer's own work and the switches.

use crate::blame::account::{Accountant, Piece, Place};
use crate::blame::label::{Phase, Who};
use crate::blame::piece::Blame;
use crate::confidence::{CONCLUDED, LEFT_OVER, SEEN, SHOWN, STATED};
use crate::describe;
use crate::find::late::LateKind;
use crate::time;
use std::collections::BTreeMap;
use whylate_core::result::CauseKind;
use whylate_trace::event::{Event, EventKind, NoiseSource};

/// A noise's start may be given a little before the moment that is computed from a latency.
const SLACK_NS: u64 = 1_000;

#[derive(Clone, Copy, Debug)]
struct Noise {
    source: NoiseSource,
    from: u64,
    net: u64,
    /// Depth of disabled preemption in the thread, if the flags show it.
    depth: Option<u8>,
    event: usize,
}

impl Accountant<'_> {
    /// Divides a timerlat sample by the noises of its CPU; `false` if there are none.
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

    /// Divides a gap that the osnoise tracer found by the noises that it counted in the gap; `false` if some of their lines
    /// are missing.
    pub(crate) fn gap_by_noises(&mut self) -> bool {
        let (from, to) = (self.late.expected_ns, self.late.actual_ns);
        let LateKind::NoiseGap { interference } = self.late.kind else { return false };
        let is_within = |noise: &Noise| noise.from >= from && noise.from < to;
        let noises: Vec<Noise> = self.noises(from, to).into_iter().filter(is_within).collect();
        // If they do not fill the gap, hardware took the rest, or something that the tracer does not see.
        let known = noises.iter().fold(0u64, |sum, noise| sum.saturating_add(noise.net));
        if noises.len() < interference as usize || known < to.saturating_sub(from) / 2 {
            return false;
        }
        self.paint(&noises, from, to);
        true
    }

    fn noises(&self, from: u64, to: u64) -> Vec<Noise> {
        let own = |(index, event): (usize, &Event)| {
            let EventKind::Noise { source, start_ns, duration_ns } = event.kind else { return None };
            // A thread's noise may have begun long before; noise that ended before the sample does not count.
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
        let mut covered = Covered::default();
        let is_thread = |noise: &&Noise| matches!(noise.source, NoiseSource::Thread { .. });
        // In the order of their ends: a nested noise has its own time, and the outer one is net of it.
        let interrupts = noises.iter().filter(|noise| !is_thread(noise));
        for noise in interrupts.chain(noises.iter().filter(is_thread)) {
            let net = noise.net.saturating_sub(entry.saturating_sub(noise.from));
            covered.fill(noise.from.max(entry), to, net, |begin, end| taken.push((begin, end, noise)));
        }
        taken.sort_by_key(|(begin, ..)| *begin);
        let surroundings = Around::of(noises);
        let mut at = entry;
        for (begin, end, noise) in taken {
            self.rest(at, begin);
            let (blame, what) = self.blamed(noise, &surroundings);
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
                place: None,
            };
            self.pieces.push(Piece { from, to, began: from, blame: Blame::default(), detail });
        }
    }

    fn add(&mut self, from: u64, to: u64, blame: Blame, what: String, noise: &Noise) {
        let spans = self.states.spans.get(&self.late.cpu).map_or(&[][..], Vec::as_slice);
        let first = spans.partition_point(|span| span.events.1 < noise.event);
        let place = spans.get(first).filter(|span| span.events.1 == noise.event).map(|_| first as u32);
        let detail = Place { cpu: self.late.cpu, what, need: None, place };
        self.pieces.push(Piece { from, to, began: noise.from.min(from), blame, detail });
    }

    /// What a noise was for the tracer's thread. An interrupted thread goes on because preemption is disabled, or because the
    /// tracer's thread may not preempt it.
    fn blamed(&self, noise: &Noise, around: &Around) -> (Blame, String) {
        let (kind, actor, pid) = describe::noise(noise.source, self.labeller.reader);
        let Some(pid) = pid else {
            let reason = "the tracer recorded the start and the net time of this noise";
            return (Blame::new(kind, STATED, reason).actor(actor.as_str()), actor);
        };
        if pid == 0 {
            let reason = "the CPU was idle when the timer's interrupt came";
            let blame = Blame::new(CauseKind::IdleExit, CONCLUDED, reason);
            return (blame, "leaving idle".to_owned());
        }
        if matches!(self.late.kind, LateKind::NoiseGap { .. }) {
            let reason = "the tracer recorded the start and the net time of this noise";
            return (Blame::new(CauseKind::Thread, STATED, reason).thread(&actor, pid), actor);
        }
        let priority = self.labeller.priorities.at(pid, noise.event);
        let depth = around.depth_since(noise.from.saturating_sub(SLACK_NS));
        let own = self.late.priority;
        let preempts = priority.zip(own).is_some_and(|(other, own)| other <= own);
        let (kind, confidence, reason) = match depth {
            _ if preempts => (
                CauseKind::Thread,
                SHOWN,
                "another thread ran at a priority that the tracer's thread cannot preempt",
            ),
            Some(1..) => (
                CauseKind::PreemptOff,
                SEEN,
                "interrupts during the noise came while preemption was disabled",
            ),
            _ => (CauseKind::Thread, LEFT_OVER, "another thread ran; the trace does not show all priorities"),
        };
        // The tracer prints the stack that the timer's interrupt found.
        let found = around.first_thread.filter(|first| *first == noise.event);
        let named = found.and_then(|_| self.labeller.printed_stack(self.late.cpu, self.late.actual_ns));
        (Blame::new(kind, confidence, reason).thread(&actor, pid).named(named), actor)
    }
}

/// What the noises around a noise show about it.
struct Around {
    /// Start of each interrupt with flags, ascending, and the least depth in it and those that began later.
    depths: Vec<(u64, u8)>,
    /// The event of the first thread.
    first_thread: Option<usize>,
}

impl Around {
    fn of(noises: &[Noise]) -> Self {
        let interrupts = noises.iter().filter(|noise| matches!(noise.source, NoiseSource::Irq { .. }));
        let mut depths: Vec<(u64, u8)> =
            interrupts.filter_map(|noise| Some((noise.from, noise.depth?))).collect();
        depths.sort_unstable();
        let mut least = u8::MAX;
        for (_, depth) in depths.iter_mut().rev() {
            least = least.min(*depth);
            *depth = least;
        }
        let first = noises.iter().find(|noise| matches!(noise.source, NoiseSource::Thread { .. }));
        Self { depths, first_thread: first.map(|noise| noise.event) }
    }

    /// The least depth of disabled preemption that interrupts found since then.
    fn depth_since(&self, from: u64) -> Option<u8> {
        let first = self.depths.partition_point(|(begin, _)| *begin < from);
        self.depths.get(first).map(|(_, depth)| *depth)
    }
}

/// Times that are taken, neighbours joined: the end of each by its start.
#[derive(Default)]
struct Covered(BTreeMap<u64, u64>);

impl Covered {
    /// Takes what is free from `from` on, before `to`, up to `left` nanoseconds of it.
    fn fill(&mut self, from: u64, to: u64, mut left: u64, mut take: impl FnMut(u64, u64)) {
        let before = self.0.range(..=from).next_back().map(|(begin, end)| (*begin, *end));
        // The joined times start here.
        let (start, mut at) = match before.filter(|(_, end)| *end >= from) {
            Some((begin, end)) => (begin, end),
            None => (from, from),
        };
        let first = at;
        while at < to && left > 0 {
            let next = self.0.range(at..).next().map(|(begin, end)| (*begin, *end));
            let free = next.map_or(to, |(begin, _)| begin.min(to));
            let end = free.min(at.saturating_add(left));
            left -= end - at;
            if end > at {
                take(at, end);
            }
            at = end;
            if let Some((begin, end)) = next.filter(|(begin, _)| *begin == at) {
                self.0.remove(&begin);
                at = end;
            }
        }
        if at > first {
            self.0.insert(start, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The free part of `[from, to)`, found nanosecond by nanosecond.
    fn filled(taken: &mut [bool], from: usize, to: usize, left: usize) -> Vec<usize> {
        let free: Vec<usize> = (from..to).filter(|at| !taken[*at]).take(left).collect();
        free.iter().for_each(|at| taken[*at] = true);
        free
    }

    #[test]
    fn each_noise_takes_the_time_that_earlier_ones_left_free() {
        let mut seed = 7_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..300 {
            let (mut taken, mut covered) = ([false; 64], Covered::default());
            for _ in 0..12 {
                let (from, left) = (random(64), random(20));
                let mut found = Vec::new();
                covered.fill(from, 60, left, |begin, end| found.extend(begin as usize..end as usize));
                assert_eq!(found, filled(&mut taken, from as usize, 60, left as usize));
            }
        }
    }
}
